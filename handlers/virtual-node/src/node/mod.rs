//! The Node object of a virtual node: content, status conditions, ownership and lease.

mod applied_spec;
mod conditions;
mod label;
mod lease;
mod object;
mod ownership;
mod quantity;
mod spec;
mod view;

pub(crate) use applied_spec::{NodeMarks, former_address};
pub(crate) use label::{is_label_key, is_label_value, is_subdomain};
pub(crate) use lease::NodeLeases;
pub(crate) use object::{created, metadata_patch, status_patch};
pub(crate) use ownership::{Label, NodeOwner, Ownership, is_own_label, is_real, names_owner, ownership};
pub use spec::{MachineInfo, NodeHealth, NodeSpec, PROVIDER_TAINT, Room};
pub(crate) use view::{MachineView, NodeObject};
