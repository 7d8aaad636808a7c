//! The node: its object, its conditions, its lease.

mod conditions;
mod keeper;
mod lease;
mod marks;
mod object;
mod quantity;
mod spec;

pub(crate) use keeper::{Keeper, Label, Standing, has_keeper, is_own_label, is_real, standing};
pub(crate) use lease::Leases;
pub(crate) use marks::former_place;
pub(crate) use object::{created, metadata_patch, status_patch};
pub use spec::{KubeletEndpoint, MachineInfo, NodeHealth, NodeSpec, PROVIDER_TAINT, Room};
