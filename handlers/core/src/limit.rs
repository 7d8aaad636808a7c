//! Bounds how many invocations run at a time.

use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::failure::HandlerError;
use crate::handler::EventHandler;
use crate::message::{Message, OrderingKey};
use crate::turn::Turn;

/// Lets at most a set number of invocations run at a time; the others wait in order of arrival. Messages that name a
/// [group](Self::per) are bounded within it, and neither delay nor are delayed by those of another.
///
/// It belongs inside [`Retry`](crate::Retry), so that a sleeping retry holds no permit.
pub struct Limit<H, E> {
    inner: H,
    permits: usize,
    common: Semaphore,
    group: Group<E>,
    /// The groups of which something runs or waits.
    groups: DashMap<OrderingKey, Arc<Semaphore>>,
}

/// The group of a message, if it is in one.
type Group<E> = Box<dyn Fn(&E) -> Option<OrderingKey> + Send + Sync>;

impl<H, E> Limit<H, E> {
    /// Lets `permits` invocations of `inner` run at a time; 0 is taken as 1.
    pub fn new(inner: H, permits: usize) -> Self {
        let permits = permits.clamp(1, Semaphore::MAX_PERMITS);
        let (common, groups) = (Semaphore::new(permits), DashMap::new());
        Self { inner, permits, common, group: Box::new(|_| None), groups }
    }

    /// Lets so many run at a time of each group that `group` names; what is in none shares one bound as before.
    #[must_use]
    pub fn per(mut self, group: impl Fn(&E) -> Option<OrderingKey> + Send + Sync + 'static) -> Self {
        self.group = Box::new(group);
        self
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Limit<H, E> {
    async fn handle(&self, event: &E, turn: &Turn<'_>) -> Result<(), HandlerError> {
        let Some(group) = (self.group)(event) else {
            let _permit = permit(&self.common).await;
            return self.inner.handle(event, turn).await;
        };
        let entered = Entered::new(&self.groups, group, self.permits);
        let _permit = permit(&entered.semaphore).await;
        self.inner.handle(event, turn).await
    }
}

async fn permit(semaphore: &Semaphore) -> SemaphorePermit<'_> {
    match semaphore.try_acquire() {
        Ok(permit) => permit,
        Err(_) => semaphore.acquire().await.expect("the semaphore is never closed"),
    }
}

/// Somebody in a group. The last one to leave takes the group along.
struct Entered<'a> {
    groups: &'a DashMap<OrderingKey, Arc<Semaphore>>,
    group: OrderingKey,
    semaphore: Arc<Semaphore>,
}

impl<'a> Entered<'a> {
    fn new(groups: &'a DashMap<OrderingKey, Arc<Semaphore>>, group: OrderingKey, permits: usize) -> Self {
        let semaphore = Arc::clone(&groups.entry(group).or_insert_with(|| Arc::new(Semaphore::new(permits))));
        Self { groups, group, semaphore }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Who enters takes its copy under the same lock: two copies are that of the map and ours.
        self.groups.remove_if(&self.group, |_, semaphore| Arc::strong_count(semaphore) <= 2);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::compose::Compose;
    use crate::testing::TestMessage;

    #[derive(Default)]
    struct Crowd {
        inside: AtomicUsize,
        most: AtomicUsize,
    }

    struct Enter(Arc<Crowd>);

    impl EventHandler<TestMessage> for Enter {
        async fn handle(&self, _: &TestMessage, _: &Turn<'_>) -> Result<(), HandlerError> {
            let inside = self.0.inside.fetch_add(1, Ordering::SeqCst) + 1;
            self.0.most.fetch_max(inside, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.0.inside.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    }

    #[tokio::test]
    async fn no_more_invocations_run_at_a_time_than_there_are_permits() {
        let crowd = Arc::new(Crowd::default());
        let limit: Limit<_, TestMessage> = Enter(Arc::clone(&crowd)).limit(3);
        let (event, turn) = (TestMessage::added("a"), Turn::alone());
        futures_util::future::join_all((0..20).map(|_| limit.handle(&event, &turn))).await;
        assert_eq!(crowd.most.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_group_is_bounded_by_itself_and_gone_when_nothing_of_it_runs() {
        let crowd = Arc::new(Crowd::default());
        let limit = Enter(Arc::clone(&crowd))
            .limit(2)
            .per(|event: &TestMessage| event.uid().split_once('-').map(|(node, _)| OrderingKey::of(node)));
        let events: Vec<_> =
            (0..60).map(|place| TestMessage::added(&format!("{}-{place}", place % 3))).collect();
        let turn = Turn::alone();
        futures_util::future::join_all(events.iter().map(|event| limit.handle(event, &turn))).await;
        assert_eq!(crowd.most.load(Ordering::SeqCst), 6, "two of each of the three");
        assert!(limit.groups.is_empty());
    }

    #[tokio::test]
    async fn no_permit_at_all_is_taken_as_one() {
        let limit = Enter(Arc::default()).limit(0);
        limit.handle(&TestMessage::added("a"), &Turn::alone()).await.expect("it is let in");
    }
}
