//! The interface to the machine behind a node.

use async_trait::async_trait;
use staffetta_driver::app_hosting::HostedPods;
use staffetta_driver::virtual_node::{PodProgress, PodRequest, PodUsage};
use staffetta_driver::{DriverError, Owner, Reason};
use tokio::time::Instant;

use crate::node::NodeHealth;

/// An answer, or the promise of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// The answer.
    Now(T),
    /// The request was sent; the source reports the answer to the [`NodeStore`](crate::NodeStore) when it comes.
    Later,
}

/// The machine behind a node: reads its state and runs pods on it.
///
/// It is level-triggered. [`apply`](Self::apply) and [`remove`](Self::remove) take one step and return the progress; they are
/// called again until it is done, and may be called when it is done already. None of them waits for anything but its own
/// requests. A machine that cannot be reached is [`Reason::Unavailable`], and never an empty inventory.
#[async_trait]
pub trait NodeBackEnd: Send + Sync + 'static {
    /// Reads the machine's capacity and information.
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError>;

    /// Reads the workloads on the machine that are ours, all at once.
    async fn inventory(&self) -> Result<Reply<HostedPods>, DriverError>;

    /// Takes one step towards a pod that runs as `request` says.
    async fn apply(&self, request: &PodRequest) -> Result<PodProgress, DriverError>;

    /// Does the same for a pod that has changed since it was brought there: its old workload is removed.
    async fn update(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.apply(request).await
    }

    /// Takes one step towards a machine without any workload of `owner`.
    async fn remove(&self, owner: &Owner) -> Result<PodProgress, DriverError>;

    /// The time of the machine's last answer to any request; `None` if unknown. A machine that answers other requests
    /// is reachable, even if a read waits behind them.
    fn last_answer(&self) -> Option<Instant> {
        None
    }

    /// Reads what the pods use now. Called on demand only.
    async fn usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        Err(DriverError::new(Reason::Unsupported, "read the resource usage of pods")
            .detail("this machine does not report it"))
    }
}
