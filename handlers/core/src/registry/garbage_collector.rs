//! Garbage collection: finds resources in external systems whose Kubernetes object was deleted.

use async_trait::async_trait;

use crate::event::Identity;
use crate::failure::HandlerError;

/// A handler that creates resources in an external system, and marks each with its owner, for example in a tag. The owner is the
/// Kubernetes object for which the resource was created.
///
/// [`recover`](Self::recover) is called once before the handler gets its first event, and again when this process becomes the leader.
/// [`owners`](Self::owners) is called then and periodically. For each owner that no longer exists, the queue of the handler gets an
/// [`Event::Deleted`](crate::Event) with a [`Tombstone::Missed`](crate::Tombstone). So a release never runs concurrently with another
/// event of the same object.
#[async_trait]
pub trait GarbageCollector: Send + Sync + 'static {
    /// Lists all resources that the controller created for this cluster, and stores in memory which owners have some. So a resource
    /// whose creation was interrupted is used and not created a second time.
    async fn recover(&self) -> Result<(), HandlerError>;

    /// Lists the owners of all resources that the controller created for this cluster, each owner once.
    async fn owners(&self) -> Result<Vec<Identity>, HandlerError>;
}
