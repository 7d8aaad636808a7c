//! The pods of virtual nodes: an index of them, the next task for one, and its status.

mod conditions;
mod containers;
mod decide;
mod form;
mod index;
mod observation;
mod status;

pub(crate) use decide::{PodFacts, PodTask, decide};
pub(crate) use form::form;
pub(crate) use index::ClusterIndex;
pub(crate) use observation::{Change, PodObservation};
pub(crate) use status::{over, patch, status};
