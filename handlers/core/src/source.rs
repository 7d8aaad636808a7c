//! Where events come from that no watch tells of.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::any_event::AnyEvent;
use crate::failure::HandlerError;
use crate::signal::Signal;

/// Something that says what happens elsewhere, as a watch does for objects: it reads, and never writes.
///
/// It is started when this process leads and dropped when it does so no more or ends. One that ends or fails is started again,
/// with growing waits. What it says before its handler's indexes are complete waits in the handler's queues.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use k8s_openapi::api::core::v1::Node;
/// use staffetta_handler::{HandlerError, Identity, Outlet, Registration, Signal, SignalHandler, Source};
///
/// #[derive(Clone)]
/// struct Heartbeat(Identity);
///
/// impl Signal for Heartbeat {
///     fn identity(&self) -> &Identity {
///         &self.0
///     }
/// }
///
/// struct Clockwork;
///
/// impl Source for Clockwork {
///     async fn run(&self, outlet: Outlet) -> Result<(), HandlerError> {
///         loop {
///             outlet.signal(Heartbeat(Identity::of::<Node>(None, "n1".into(), "n1".into())));
///             tokio::time::sleep(Duration::from_secs(10)).await;
///         }
///     }
/// }
///
/// struct Listen;
///
/// impl SignalHandler<Heartbeat> for Listen {
///     type Error = Infallible;
///     async fn on_signal(&self, _: &Heartbeat) -> Result<(), Infallible> {
///         Ok(())
///     }
/// }
///
/// let registration = Registration::new(Listen).on_signal::<Heartbeat>().source(Clockwork);
/// # drop(registration);
/// ```
pub trait Source: Send + Sync + 'static {
    /// Tells of what happens, until it is dropped.
    fn run(&self, outlet: Outlet) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Tells once what there is to be told now, and ends: a dry run asks for that. By default nothing.
    fn rehearse(&self, outlet: Outlet) -> impl Future<Output = Result<(), HandlerError>> + Send {
        drop(outlet);
        std::future::ready(Ok(()))
    }
}

/// Where a [`Source`] hands its signals in. A copy is a reference.
#[derive(Clone)]
pub struct Outlet(Arc<dyn Fn(AnyEvent) + Send + Sync>);

impl Outlet {
    /// Hands signals to `take`, which must never wait.
    pub fn new(take: impl Fn(AnyEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// There is a reason to look at an object. Never waits: the signal goes into the queues of those who registered for it,
    /// where a newer one may stand for an older one.
    pub fn signal(&self, signal: impl Signal) {
        (self.0)(AnyEvent::signal(signal));
    }
}

/// A [`Source`] whose type is erased.
pub trait ErasedSource: Send + Sync {
    /// See [`Source::run`].
    fn run(&self, outlet: Outlet) -> Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + '_>>;

    /// See [`Source::rehearse`].
    fn rehearse(&self, outlet: Outlet)
    -> Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + '_>>;
}

impl<S: Source> ErasedSource for S {
    fn run(&self, outlet: Outlet) -> Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + '_>> {
        Box::pin(Source::run(self, outlet))
    }

    fn rehearse(
        &self,
        outlet: Outlet,
    ) -> Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + '_>> {
        Box::pin(Source::rehearse(self, outlet))
    }
}
