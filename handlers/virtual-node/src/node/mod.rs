//! The node: its object, its conditions, its lease.

mod conditions;
mod lease;
mod object;
mod quantity;
mod spec;

pub(crate) use lease::Leases;
pub(crate) use object::{Standing, created, metadata_patch, standing, status_patch};
pub use spec::{KubeletEndpoint, MachineInfo, NodeHealth, NodeSpec, PROVIDER_TAINT};
