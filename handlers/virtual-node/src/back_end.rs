//! What one node can do.

use async_trait::async_trait;
use staffetta_driver::virtual_node::{PodRequest, PodUsage, Progress};
use staffetta_driver::{DriverError, Owner, Reason};
use tokio::time::Instant;

use crate::node::NodeHealth;
use crate::workload::Workloads;

/// An answer that comes at once, or by itself later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// The answer.
    Now(T),
    /// The question was sent; the answer is told to the [`Intake`](crate::Intake) when it comes.
    Later,
}

/// What one node can do: the machine behind it.
///
/// It is level-triggered. [`apply`](Self::apply) and [`remove`](Self::remove) go one step nearer and say how far it is; they are
/// called again until it is done, and may be called when it is done already. None of them waits for anything but its own
/// requests. A machine that cannot be reached is [`Reason::Unavailable`], and never an empty inventory.
#[async_trait]
pub trait NodeBackEnd: Send + Sync + 'static {
    /// What the machine is and has.
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError>;

    /// All that runs there of ours, by one read. An answer that is the same as the one before may be the same `Arc`, and costs
    /// nothing then.
    async fn inventory(&self) -> Result<Reply<Workloads>, DriverError>;

    /// One step nearer to a pod that runs as `request` says.
    async fn apply(&self, request: &PodRequest) -> Result<Progress, DriverError>;

    /// The same for a pod that has another form than the one in which it was brought there: what runs of the old one is removed.
    async fn update(&self, request: &PodRequest) -> Result<Progress, DriverError> {
        self.apply(request).await
    }

    /// One step nearer to a machine on which nothing of `owner` is left.
    async fn remove(&self, owner: &Owner) -> Result<Progress, DriverError>;

    /// When the machine answered last, whoever asked it; none where that is not known. One that answers is there, though the answer
    /// to a read may be long in coming behind those to others.
    fn last_answer(&self) -> Option<Instant> {
        None
    }

    /// What the pods use at this moment. Nobody asks for it regularly.
    async fn usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        Err(DriverError::new(Reason::Unsupported, "read what pods use").detail("this machine cannot tell"))
    }
}
