//! The pods of virtual nodes: which there are, what is to be done for one, and its status.

mod conditions;
mod containers;
mod decide;
mod form;
mod index;
mod over;
mod phase;
mod seen;
mod status;

pub(crate) use decide::{Facts, Task, decide};
pub(crate) use form::form;
pub(crate) use index::ClusterIndex;
pub(crate) use over::over;
pub(crate) use seen::{Change, Seen};
pub(crate) use status::{patch, status};

#[cfg(test)]
mod laws;
