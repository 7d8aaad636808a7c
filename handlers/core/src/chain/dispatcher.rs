//! Passes each message to the handlers that are registered for its type.

use std::any::TypeId;

use super::EventHandler;
use super::context::Context;
use crate::event::Message;
use crate::failure::HandlerError;

/// A dispatcher that passes each message to the handlers that are registered for its [route](Message::route) and whose predicate accepts
/// it. Each of these handlers gets the message once, in the order in which the handlers were added.
pub struct Dispatcher<E, H> {
    routes: Vec<(TypeId, Predicate<E>, H)>,
}

/// The type of a function that returns `true` if a handler wants the message.
type Predicate<E> = Box<dyn Fn(&E) -> bool + Send + Sync>;

impl<E, H> Default for Dispatcher<E, H> {
    fn default() -> Self {
        Self { routes: Vec::new() }
    }
}

impl<E, H> Dispatcher<E, H> {
    /// Adds a handler for the messages with this `route` that `predicate` accepts.
    pub fn add(&mut self, route: TypeId, predicate: impl Fn(&E) -> bool + Send + Sync + 'static, handler: H) {
        self.routes.push((route, Box::new(predicate), handler));
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Dispatcher<E, H> {
    /// Passes the message to all matching handlers, one after the other, and then returns the first failure.
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<(), HandlerError> {
        let (message_route, mut result) = (event.route(), Ok(()));
        for (route, predicate, handler) in &self.routes {
            if *route == message_route && predicate(event) {
                result = result.and(handler.handle(event, context).await);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::test_message::{HandlerFn, TestMessage};
    use crate::testing::Fault;

    #[tokio::test]
    async fn each_matching_handler_gets_the_message_once_in_order_of_registration() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let handler = |name: &'static str| {
            let log = Arc::clone(&log);
            HandlerFn(move |_: &TestMessage| {
                log.lock().unwrap().push(name);
                if name == "first" { Err(Fault::permanent("refused").into()) } else { Ok(()) }
            })
        };
        let mut dispatcher = Dispatcher::default();
        let kind = TypeId::of::<TestMessage>();
        dispatcher.add(kind, |_| true, handler("first"));
        dispatcher.add(kind, |event: &TestMessage| event.uid() == "other", handler("picky"));
        dispatcher.add(TypeId::of::<String>(), |_| true, handler("of another kind"));
        dispatcher.add(kind, |_| true, handler("last"));
        let result = dispatcher.handle(&TestMessage::added("a"), &Context::detached()).await;
        assert_eq!(*log.lock().unwrap(), ["first", "last"]);
        assert_eq!(result.expect_err("the first failed").to_string(), "refused");
    }
}
