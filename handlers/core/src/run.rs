//! Who hands out what is ready, and what becomes of it.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dashmap::mapref::entry::Entry;
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::error;

use crate::crew::Place;
use crate::failure::causes;
use crate::handler::EventHandler;
use crate::lane::{Lane, Next};
use crate::message::{Message, OrderingKey};
use crate::meter::Meter;
use crate::past::Carry;
use crate::queues::{Queues, Ready};
use crate::standing::{Phase, Trouble};
use crate::turn::{Turn, Verdict, Waiting};

impl<E: Message, H: EventHandler<E>> Queues<E, H> {
    /// A lane has something to do and nobody does it yet.
    pub(crate) fn start(self: &Arc<Self>, key: OrderingKey, next: Next<E>) {
        if let Some(place) = self.crew.add(Ready { key, next }) {
            self.recruit(place);
        }
    }

    fn recruit(self: &Arc<Self>, place: Place) {
        tokio::spawn(Arc::clone(self).run(place));
    }

    /// One runner: handles what is ready until nothing is. While a handler makes it wait, its place is another's.
    async fn run(self: Arc<Self>, place: Place) {
        let mut place = Some(place);
        while let Some(Ready { key, next }) = self.crew.next(&mut place) {
            let mut lane = pin!(self.handle_lane(key, next));
            poll_fn(|context| {
                let poll = lane.as_mut().poll(context);
                if poll.is_pending()
                    && let Some(successor) = place.take().and_then(|place| self.crew.leave(place))
                {
                    self.recruit(successor);
                }
                poll
            })
            .await;
            tokio::task::coop::consume_budget().await;
        }
        self.tidy();
    }

    /// Handles the messages of one key until none is left; then the lane is gone.
    async fn handle_lane(self: &Arc<Self>, key: OrderingKey, first: Next<E>) {
        let mut next = Some(first);
        while let Some(Next { event, since, past }) = next {
            if self.over.load(Ordering::SeqCst) {
                self.lanes.remove(&key);
                break;
            }
            let (verdict, past) = self.handle_one(key, &event, since, past).await;
            let Entry::Occupied(mut entry) = self.lanes.entry(key) else { break };
            let lane = entry.get_mut();
            lane.end(verdict, past, &self.policy);
            next = lane.next();
            if next.is_none() && lane.due().is_none() {
                entry.remove();
                break;
            }
            drop(entry);
            if next.is_none() {
                next = self.rest(key).await;
            }
        }
        self.fallen();
    }

    /// One turn. A failure or a panic that nobody inside has ended ends here, with a line in the log.
    async fn handle_one(
        self: &Arc<Self>,
        key: OrderingKey,
        event: &E,
        since: Instant,
        past: Carry,
    ) -> (Verdict, Carry) {
        let hand = InHand { queues: self, key, event };
        let turn = Turn::new(&hand, &self.shutdown, since, past);
        let error = match AssertUnwindSafe(self.inner.handle(event, &turn)).catch_unwind().await {
            Ok(Ok(())) => return turn.end(),
            Ok(Err(error)) => causes(&*error),
            Err(_) => "the handler panicked".to_owned(),
        };
        let subject = event.subject();
        error!(kind = %subject.kind, namespace = subject.namespace, name = subject.name, uid = subject.uid, error,
            "a failure left the chain");
        turn.end()
    }

    /// Waits until a parked message's time comes or a new one arrives; `None`, with the lane gone, at shutdown.
    async fn rest(self: &Arc<Self>, key: OrderingKey) -> Option<Next<E>> {
        loop {
            let (due, bell) = match self.lanes.entry(key) {
                Entry::Vacant(_) => return None,
                Entry::Occupied(mut entry) => {
                    let lane = entry.get_mut();
                    if let Some(next) = lane.next() {
                        return Some(next);
                    }
                    match lane.due() {
                        Some(due) if !self.shutdown.is_cancelled() => (due, lane.bell()),
                        _ => {
                            entry.remove();
                            return None;
                        }
                    }
                }
            };
            let _resting = Resting::new(self);
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = bell.notified() => {}
                () = self.shutdown.cancelled() => {}
            }
        }
    }

    fn rests(&self) {
        self.resting.fetch_add(1, Ordering::SeqCst);
        self.fallen();
    }

    fn wakes(&self) {
        self.resting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A lane in which everything waits for nothing but time, until this is dropped.
struct Resting<'a, E: Message, H: EventHandler<E>>(&'a Queues<E, H>);

impl<'a, E: Message, H: EventHandler<E>> Resting<'a, E, H> {
    fn new(queues: &'a Queues<E, H>) -> Self {
        queues.rests();
        Self(queues)
    }
}

impl<E: Message, H: EventHandler<E>> Drop for Resting<'_, E, H> {
    fn drop(&mut self) {
        self.0.wakes();
    }
}

/// What [`Turn`] may ask of the queue of the message in hand, and tells it.
struct InHand<'a, E: Message, H> {
    queues: &'a Arc<Queues<E, H>>,
    key: OrderingKey,
    event: &'a E,
}

impl<E: Message, H: EventHandler<E>> InHand<'_, E, H> {
    fn lane<T>(&self, with: impl FnOnce(&mut Lane<E>) -> T) -> T {
        with(
            &mut self
                .queues
                .lanes
                .get_mut(&self.key)
                .expect("a lane exists while a message of it is in hand"),
        )
    }
}

impl<E: Message, H: EventHandler<E>> Waiting for InHand<'_, E, H> {
    fn bell(&self) -> Option<Arc<Notify>> {
        self.lane(|lane| lane.bell_for(self.event, &self.queues.policy))
    }

    fn works(&self, since: Instant) {
        self.lane(|lane| lane.stands(Phase::Running, since));
    }

    fn rests(&self, until: Instant, trouble: Arc<Trouble>) {
        self.lane(|lane| lane.rests(until, trouble));
        self.queues.rests();
    }

    fn wakes(&self) {
        self.lane(|lane| lane.stands(Phase::Queued, Instant::now()));
        self.queues.wakes();
    }

    fn meter(&self) -> &dyn Meter {
        &*self.queues.meter
    }
}
