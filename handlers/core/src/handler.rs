//! The one trait that every part of the chain implements.

use std::future::Future;
use std::sync::Arc;

use crate::failure::HandlerError;
use crate::message::Message;
use crate::turn::Turn;

/// Something that takes messages: a handler, or a wrapper around one ([`Compose`](crate::Compose)).
pub trait EventHandler<E: Message>: Send + Sync + 'static {
    /// Handles one message. `turn` says what only the queue knows.
    fn handle(&self, event: &E, turn: &Turn<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Arc<H> {
    async fn handle(&self, event: &E, turn: &Turn<'_>) -> Result<(), HandlerError> {
        (**self).handle(event, turn).await
    }
}
