//! Garbage collection: finds resources outside of the cluster whose owner was deleted.

use async_trait::async_trait;

use crate::chain::HandlerError;
use crate::event::Identity;

/// A handler that creates resources outside and marks them with their owner.
///
/// [`recover`](Self::recover) is called once before the handler gets its first event, and again when this process becomes the
/// leader. [`owners`](Self::owners) is called then and periodically; for an owner that no longer exists the handler's own queue
/// gets an [`Event::Deleted`](crate::Event) with a [`Tombstone::Missed`](crate::Tombstone), so a release never runs concurrently
/// with another event of that object.
#[async_trait]
pub trait GarbageCollector: Send + Sync + 'static {
    /// Reads the ownership marks of everything that this cluster created, so that a partial creation is adopted, not repeated.
    async fn recover(&self) -> Result<(), HandlerError>;

    /// Lists the owners of everything that this cluster created, each once.
    async fn owners(&self) -> Result<Vec<Identity>, HandlerError>;
}
