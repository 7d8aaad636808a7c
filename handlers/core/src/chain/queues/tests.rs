use tokio::time::Instant;

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::test_message::{HandlerFn, TestMessage};
use crate::testing::NoMetrics;

fn queues() -> Async<TestMessage, HandlerFn<impl Fn(&TestMessage) -> Result<(), HandlerError>>> {
    let key = |message: &TestMessage| OrderingKey::of(message.uid());
    Async::new(HandlerFn(|_: &TestMessage| Ok(())), false, key, Arc::new(NoMetrics))
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_many_keys_is_released_once_they_are_idle() {
    let queues = queues().closed();
    for number in 0..20_000 {
        queues.push(TestMessage::added(&number.to_string()));
    }
    let full = queues.queues.map.capacity();
    queues.open();
    queues.until_busy_at_most(0).await;
    assert!(queues.queues.map.capacity() < full / 100);
}

/// A handler that sends each message on to another key of the same queues with the next lower version. At version 0, it waits for a
/// second.
struct PassOn(std::sync::OnceLock<Async<TestMessage, Arc<PassOn>>>);

impl EventHandler<TestMessage> for PassOn {
    async fn handle(&self, message: &TestMessage, context: &Context<'_>) -> Result<Action, HandlerError> {
        let Some(next) = message.version.checked_sub(1) else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            return Ok(Action::done());
        };
        let queues = self.0.get().expect("it is set before the first message");
        queues.handle(&TestMessage::modified(&next.to_string(), next), context).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_runs_where_its_message_is_delivered_until_it_waits_and_never_within_another_one() {
    let handler = Arc::new(PassOn(std::sync::OnceLock::new()));
    let key = |message: &TestMessage| OrderingKey::of(message.uid());
    let queues = Async::new(Arc::clone(&handler), false, key, Arc::new(NoMetrics));
    assert!(handler.0.set(queues.clone()).is_ok());
    let (context, before) = (Context::detached(), Instant::now());
    queues.handle(&TestMessage::modified("first", 10_000), &context).await.expect("it is queued");
    assert_eq!(queues.busy(), 1, "the first message was handled, and the next one runs in a task of its own");
    queues.until_busy_at_most(0).await;
    assert_eq!(before.elapsed(), Duration::from_secs(1));

    queues.handle(&TestMessage::modified("waits", 0), &context).await.expect("it is queued");
    assert_eq!((queues.busy(), before.elapsed()), (1, Duration::from_secs(1)), "the caller does not wait");
    queues.handle(&TestMessage::trigger("waits", 0), &context).await.expect("it is queued");
    queues.until_busy_at_most(0).await;
    assert_eq!(before.elapsed(), Duration::from_secs(3), "one after the other");
}

#[tokio::test(start_paused = true)]
async fn a_trigger_is_never_handled_within_the_call_of_its_sender() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let handler = HandlerFn(move |_: &TestMessage| {
        counter.fetch_add(1, SeqCst);
        Ok(())
    });
    let queues =
        Async::new(handler, false, |_: &TestMessage| OrderingKey::of("one key"), Arc::new(NoMetrics));
    let context = Context::detached();
    queues.handle(&TestMessage::added("a"), &context).await.expect("it is queued");
    assert_eq!(calls.load(SeqCst), 1);
    queues.handle(&TestMessage::trigger("a", 1), &context).await.expect("it is queued");
    assert_eq!(calls.load(SeqCst), 1, "its sender may hold locks that the handler takes");
    queues.until_busy_at_most(0).await;
    assert_eq!(calls.load(SeqCst), 2);
}
