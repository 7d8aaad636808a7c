//! Ownership marks: how things outside that no object owns any more are found.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::failure::HandlerError;
use crate::object::Identity;

/// A handler that makes things outside and marks them with their owner.
///
/// [`recover`](Self::recover) is called once before the handler gets its first event, and again when this process takes
/// over as leader. [`owners`](Self::owners) is called then and periodically; an owner that does not exist any more is
/// handed to the handler's own queue as an [`Event::Deleted`](crate::Event) with a
/// [`Tombstone::Missed`](crate::Tombstone), so that a release never runs beside anything else of that object.
pub trait Sweep: Send + Sync + 'static {
    /// Reads the marks of everything that this cluster made, so that a half-made thing is adopted and not made twice.
    fn recover(&self) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// The owners of everything that this cluster made, one entry an owner.
    fn owners(&self) -> impl Future<Output = Result<Vec<Identity>, HandlerError>> + Send;
}

/// A [`Sweep`] whose type is erased.
pub trait ErasedSweep: Send + Sync {
    /// See [`Sweep::recover`].
    fn recover(&self) -> Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + '_>>;
    /// See [`Sweep::owners`].
    fn owners(&self) -> Pin<Box<dyn Future<Output = Result<Vec<Identity>, HandlerError>> + Send + '_>>;
}

pub(crate) struct SweepOf<H>(pub(crate) Arc<H>);

impl<H: Sweep> ErasedSweep for SweepOf<H> {
    fn recover(&self) -> Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + '_>> {
        Box::pin(self.0.recover())
    }

    fn owners(&self) -> Pin<Box<dyn Future<Output = Result<Vec<Identity>, HandlerError>> + Send + '_>> {
        Box::pin(self.0.owners())
    }
}
