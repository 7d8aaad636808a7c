//! The pods of virtual nodes: an index, the decision about the next step of a pod, and the computation of its status.

mod capacity;
mod conditions;
mod containers;
mod decide;
mod form;
mod index;
mod lost;
mod observation;
mod status;

pub(crate) use capacity::out_of_pods;
pub(crate) use decide::{PodFacts, PodTask, decide};
pub(crate) use form::form;
pub(crate) use index::{ClusterIndex, node_of};
pub(crate) use lost::after_loss;
pub(crate) use observation::{Change, PodObservation};
pub(crate) use status::{final_status, patch, status};
