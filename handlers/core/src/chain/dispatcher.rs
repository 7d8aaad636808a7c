//! Passes each message to the handlers that are registered for its type.

use std::any::TypeId;

use super::EventHandler;
use super::action::Action;
use super::context::Context;
use crate::event::Message;
use crate::failure::HandlerError;

/// A dispatcher that passes each message to the handlers that are registered for its [route](Message::route) and take it. Each of these
/// handlers gets the message once, in the order in which the handlers were added, as a message of type `M`.
pub struct Dispatcher<E, M, H> {
    routes: Vec<(TypeId, Resolve<E, M>, H)>,
}

/// The type of a function that returns the message for a handler; `None` if the handler does not take it.
type Resolve<E, M> = Box<dyn Fn(&E) -> Option<M> + Send + Sync>;

impl<E, M, H> Default for Dispatcher<E, M, H> {
    fn default() -> Self {
        Self { routes: Vec::new() }
    }
}

impl<E, M, H> Dispatcher<E, M, H> {
    /// Adds a handler for the messages with this `route`. `resolve` returns the message that the handler gets; `None` if it does not take it.
    pub fn add(
        &mut self,
        route: TypeId,
        resolve: impl Fn(&E) -> Option<M> + Send + Sync + 'static,
        handler: H,
    ) {
        self.routes.push((route, Box::new(resolve), handler));
    }
}

impl<E: Message, M: Message, H: EventHandler<M>> EventHandler<E> for Dispatcher<E, M, H> {
    /// Passes the message to all matching handlers, one after the other, and then returns the first failure.
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<Action, HandlerError> {
        let message_route = event.route();
        let mut result = Ok(Action::done());
        for (_, resolve, handler) in self.routes.iter().filter(|(route, ..)| *route == message_route) {
            if let Some(message) = resolve(event) {
                result = result.and(handler.handle(&message, context).await);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::test_message::{HandlerFn, TestMessage};
    use crate::testing::Fault;

    #[tokio::test]
    async fn each_matching_handler_gets_the_message_once_in_order_of_registration() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let handler = |name: &'static str| {
            let log = Arc::clone(&log);
            HandlerFn(move |_: &TestMessage| {
                log.lock().push(name);
                if name == "first" { Err(Fault::permanent("refused").into()) } else { Ok(()) }
            })
        };
        let mut dispatcher = Dispatcher::default();
        let kind = TypeId::of::<TestMessage>();
        let all = |event: &TestMessage| Some(event.clone());
        dispatcher.add(kind, all, handler("first"));
        dispatcher.add(kind, |_: &TestMessage| None, handler("picky"));
        dispatcher.add(TypeId::of::<String>(), all, handler("of another kind"));
        dispatcher.add(kind, all, handler("last"));
        let result = dispatcher.handle(&TestMessage::added("a"), &Context::detached()).await;
        assert_eq!(*log.lock(), ["first", "last"]);
        assert_eq!(result.expect_err("the first failed").to_string(), "refused");
    }
}
