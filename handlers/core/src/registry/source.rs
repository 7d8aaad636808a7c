//! Sources of triggers.

use std::sync::Arc;

use async_trait::async_trait;

use crate::event::{AnyEvent, Trigger};
use crate::failure::HandlerError;

/// A source of triggers: watches an external system and sends a [`Trigger`] when something happens in that system. The source leaves it to
/// the handlers of the trigger to reconcile the object.
///
/// A source runs while its handler does: while this process is the leader, or all the time if the handler runs in every replica
/// ([`HandlerEntry::in_every_replica`](crate::HandlerEntry::in_every_replica)). A source that ends or fails is started again,
/// with back-off. Triggers that are sent before the indexes of the handler are complete are held in the queues of the handler.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::Node;
/// use staffetta_handler::{Action, HandlerError, Identity, TriggerSender, Registration, Trigger, TriggerHandler, Source};
///
/// #[derive(Clone)]
/// struct Heartbeat(Identity);
///
/// impl Trigger for Heartbeat {
///     fn identity(&self) -> &Identity {
///         &self.0
///     }
/// }
///
/// struct Clockwork;
///
/// #[async_trait]
/// impl Source for Clockwork {
///     async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
///         loop {
///             sender.send(Heartbeat(Identity::of::<Node>(None, "n1".into(), "n1".into())));
///             tokio::time::sleep(Duration::from_secs(10)).await;
///         }
///     }
/// }
///
/// struct Listen;
///
/// impl TriggerHandler<Heartbeat> for Listen {
///     type Error = Infallible;
///     async fn on_trigger(&self, _: &Heartbeat) -> Result<Action, Infallible> {
///         Ok(Action::done())
///     }
/// }
///
/// let registration = Registration::new(Listen).on_trigger::<Heartbeat>().source(Clockwork);
/// # drop(registration);
/// ```
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Sends triggers until the future is dropped. If it returns, it is called again after a back-off delay.
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError>;

    /// Waits until the operations that were begun in the external system have ended, and begins no new ones. It is called when the process
    /// is about to end, while [`run`](Self::run) and the handler still run, and waits for half of the drain time at most. By default, there
    /// is nothing to wait for.
    async fn drain(&self) {}

    /// Gives up what the source holds in Kubernetes, such as a Lease. It is called at the end of the process, when the handler has
    /// handled its last event; [`run`](Self::run) has ended by then. By default, the source holds nothing.
    async fn release(&self) {}

    /// Sends the triggers that are due at the start, and returns. A dry run calls this method instead of [`run`](Self::run). By
    /// default, nothing is due.
    async fn run_once(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        drop(sender);
        Ok(())
    }
}

/// The sender by which a [`Source`] sends its triggers to the handlers. Clones share the destination.
#[derive(Clone)]
pub struct TriggerSender(Arc<dyn Fn(AnyEvent) + Send + Sync>);

impl TriggerSender {
    /// Makes a sender that passes triggers to `take`, which must not block.
    pub fn new(take: impl Fn(AnyEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Sends a trigger to the queues of all handlers that are registered for its type. While it waits there, a newer trigger of the same
    /// type for the same object, or the deletion of that object, may replace it. Never blocks.
    pub fn send(&self, trigger: impl Trigger) {
        (self.0)(AnyEvent::trigger(trigger));
    }
}
