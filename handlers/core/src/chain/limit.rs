//! Bounds the number of concurrent invocations.

use std::hash::BuildHasherDefault;
use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::EventHandler;
use super::action::Action;
use super::context::Context;
use crate::event::{KeyHasher, Message, OrderingKey};
use crate::failure::HandlerError;

/// A wrapper that runs at most a fixed number of invocations of its handler concurrently. Each group of messages has its own limit. Among
/// the messages without a group, those about objects of one namespace have at most half of the permits, but at least one. Invocations
/// beyond a limit wait; those of one group or namespace start in order of arrival.
///
/// Put this wrapper inside [`Retry`](crate::Retry), so that a message that waits for its next attempt holds no permit.
pub struct Limit<H, E> {
    /// The wrapper or handler whose invocations are limited.
    inner: H,
    permits: usize,
    /// The permits for messages without a group.
    ungrouped: Semaphore,
    /// The function that returns the group of a message, or `None` if it belongs to no group.
    group: GroupBy<E>,
    /// The semaphores of groups and namespaces: all with a running or waiting invocation, and idle ones until they are removed.
    groups: DashMap<OrderingKey, Arc<Semaphore>, BuildHasherDefault<KeyHasher>>,
}

/// The number of known groups and namespaces at which the idle ones are removed when a further one comes.
const SWEEP_AT: usize = 16_384;

/// The type of a function that returns the group of a message; `None` if it belongs to no group.
pub(super) type GroupBy<E> = Box<dyn Fn(&E) -> Option<OrderingKey> + Send + Sync>;

impl<H, E> Limit<H, E> {
    /// Creates a wrapper with `permits` permits (at least one) for the messages without a group together, and as many for each group.
    pub(super) fn new(inner: H, permits: usize, group: GroupBy<E>) -> Self {
        let permits = permits.clamp(1, Semaphore::MAX_PERMITS);
        Self { inner, permits, ungrouped: Semaphore::new(permits), group, groups: DashMap::default() }
    }

    /// Returns the semaphore of a group or a namespace. A new one has `permits` permits.
    fn semaphore_of(&self, key: OrderingKey, permits: usize) -> Arc<Semaphore> {
        if let Some(known) = self.groups.get(&key) {
            return Arc::clone(&known);
        }
        if self.groups.len() >= SWEEP_AT {
            self.groups.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        Arc::clone(&self.groups.entry(key).or_insert_with(|| Arc::new(Semaphore::new(permits))))
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Limit<H, E> {
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<Action, HandlerError> {
        let group = (self.group)(event);
        // A namespace is a group with half of the permits, within the common ones.
        let namespace = || event.object_ref().namespace.map(|name| OrderingKey::of(("namespace", name)));
        let permits = if group.is_some() { self.permits } else { (self.permits / 2).max(1) };
        let share = group.or_else(namespace).map(|key| self.semaphore_of(key, permits));
        let _of_share = acquire(share.as_deref()).await;
        let _of_all = acquire(group.is_none().then_some(&self.ungrouped)).await;
        self.inner.handle(event, context).await
    }
}

/// Waits for a permit of `semaphore`; without a semaphore, returns `None` at once.
async fn acquire(semaphore: Option<&Semaphore>) -> Option<SemaphorePermit<'_>> {
    Some(semaphore?.acquire().await.expect("the semaphore is never closed"))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;

    use super::*;
    use crate::test_message::TestMessage;

    #[derive(Default)]
    struct Crowd {
        inside: AtomicUsize,
        most: AtomicUsize,
    }

    struct Enter(Arc<Crowd>);

    impl EventHandler<TestMessage> for Enter {
        async fn handle(&self, _: &TestMessage, _: &Context<'_>) -> Result<Action, HandlerError> {
            let inside = self.0.inside.fetch_add(1, Ordering::SeqCst) + 1;
            self.0.most.fetch_max(inside, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.0.inside.fetch_sub(1, Ordering::SeqCst);
            Ok(Action::done())
        }
    }

    #[tokio::test]
    async fn no_more_invocations_run_at_a_time_than_there_are_permits() {
        let crowd = Arc::new(Crowd::default());
        let limit: Limit<_, TestMessage> = Enter(Arc::clone(&crowd)).limit(3, |_| None);
        let (event, context) = (TestMessage::added("a"), Context::detached());
        futures_util::future::join_all((0..20).map(|_| limit.handle(&event, &context))).await;
        assert_eq!(crowd.most.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_group_has_its_own_permits() {
        let crowd = Arc::new(Crowd::default());
        let limit = Enter(Arc::clone(&crowd)).limit(2, |event: &TestMessage| {
            event.uid().split_once('-').map(|(node, _)| OrderingKey::of(node))
        });
        let events: Vec<_> =
            (0..60).map(|place| TestMessage::added(&format!("{}-{place}", place % 3))).collect();
        let context = Context::detached();
        futures_util::future::join_all(events.iter().map(|event| limit.handle(event, &context))).await;
        assert_eq!(crowd.most.load(Ordering::SeqCst), 6, "two of each of the three");
    }

    #[tokio::test]
    async fn idle_groups_are_kept_until_there_are_many_and_busy_ones_longer() {
        let limit = Enter(Arc::default()).limit(1, |event: &TestMessage| Some(OrderingKey::of(event.uid())));
        let (event, context) = (TestMessage::added, Context::detached());
        let semaphore = |group: &str| Arc::downgrade(&limit.semaphore_of(OrderingKey::of(group), 1));
        let busy_event = event("busy");
        let mut busy = pin!(limit.handle(&busy_event, &context));
        assert!(busy.as_mut().now_or_never().is_none());
        let (idle, busy_semaphore) = (semaphore("0"), semaphore("busy"));
        for group in 0..2 * SWEEP_AT {
            limit.handle(&event(&group.to_string()), &context).await.expect("it is let in");
            assert!(limit.groups.len() <= SWEEP_AT);
            assert_eq!(idle.upgrade().is_some(), group < SWEEP_AT - 1, "{group}");
        }
        assert!(busy_semaphore.upgrade().is_some());
        busy.await.expect("it is let in");
    }

    #[tokio::test]
    async fn a_namespace_has_at_most_half_of_the_permits_and_the_others_go_on() {
        let crowd = Arc::new(Crowd::default());
        let limit: Limit<_, TestMessage> = Enter(Arc::clone(&crowd)).limit(6, |_| None);
        let context = Context::detached();
        let (greedy, other) =
            (vec![TestMessage::added("greedy/a"); 20], vec![TestMessage::added("other/a"); 20]);
        futures_util::future::join_all(greedy.iter().map(|event| limit.handle(event, &context))).await;
        assert_eq!(crowd.most.load(Ordering::SeqCst), 3);
        let both = greedy.iter().chain(&other).map(|event| limit.handle(event, &context));
        futures_util::future::join_all(both).await;
        assert_eq!(
            crowd.most.load(Ordering::SeqCst),
            6,
            "the other namespace does not wait for the greedy one"
        );
    }

    #[tokio::test]
    async fn zero_permits_count_as_one() {
        let limit = Enter(Arc::default()).limit(0, |_| None);
        limit.handle(&TestMessage::added("a"), &Context::detached()).await.expect("it is let in");
    }
}
