//! Hands a message to those who registered for it.

use std::any::TypeId;
use std::collections::HashMap;

use crate::failure::HandlerError;
use crate::handler::EventHandler;
use crate::message::Message;
use crate::turn::Turn;

/// Hands each message to the handlers of its kind whose predicate accepts it, each once, in the order in which they were
/// added.
pub struct Dispatcher<E, H> {
    routes: HashMap<TypeId, Vec<Route<E, H>>>,
}

struct Route<E, H> {
    accepts: Predicate<E>,
    handler: H,
}

/// Whether a handler wants a message.
pub type Predicate<E> = Box<dyn Fn(&E) -> bool + Send + Sync>;

impl<E, H> Default for Dispatcher<E, H> {
    fn default() -> Self {
        Self { routes: HashMap::new() }
    }
}

impl<E, H> Dispatcher<E, H> {
    /// Adds a handler of the messages that travel by `route` ([`Message::route`]) and that `accepts` accepts.
    pub fn add(&mut self, route: TypeId, accepts: impl Fn(&E) -> bool + Send + Sync + 'static, handler: H) {
        self.routes.entry(route).or_default().push(Route { accepts: Box::new(accepts), handler });
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Dispatcher<E, H> {
    /// Fails with the first failure, after every handler has had the message.
    async fn handle(&self, event: &E, turn: &Turn<'_>) -> Result<(), HandlerError> {
        let mut result = Ok(());
        for route in self.routes.get(&event.route()).into_iter().flatten() {
            if (route.accepts)(event) {
                result = result.and(route.handler.handle(event, turn).await);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::testing::{Fault, TestMessage, Turns};

    #[tokio::test]
    async fn each_handler_that_accepts_gets_the_message_once_in_order_of_registration() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let handler = |name: &'static str| {
            let log = Arc::clone(&log);
            Turns(move |_: &TestMessage| {
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
        let result = dispatcher.handle(&TestMessage::added("a"), &Turn::alone()).await;
        assert_eq!(*log.lock().unwrap(), ["first", "last"]);
        assert_eq!(result.expect_err("the first failed").to_string(), "refused");
    }
}
