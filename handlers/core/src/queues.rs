//! One ordered queue for each ordering key.

use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::crew::Crew;
use crate::digest::Digest;
use crate::failure::HandlerError;
use crate::handler::EventHandler;
use crate::lane::{Lane, Next, QueuePolicy, Seen};
use crate::message::{Message, OrderingKey};
use crate::meter::{Meter, Unmetered};
use crate::turn::Turn;

/// Hands messages of one ordering key to its handler one at a time, in order of arrival; those of different keys run
/// concurrently.
///
/// Taking a message in never waits, so whoever feeds it is never held up. A queue exists while something of its key
/// waits, runs, or failed for good and is to be pushed again; none exists for an idle key. It must be used within a tokio
/// runtime. When the last copy of it is dropped, what runs may end, and nothing more is handed out.
pub struct Async<E: Message, H> {
    queues: Arc<Queues<E, H>>,
    end: Arc<End>,
}

/// What the copies of an [`Async`] share with those who run it.
pub(crate) struct Queues<E: Message, H> {
    pub(crate) inner: H,
    key: Box<dyn Fn(&E) -> OrderingKey + Send + Sync>,
    pub(crate) policy: QueuePolicy,
    pub(crate) meter: Arc<dyn Meter>,
    pub(crate) lanes: DashMap<OrderingKey, Lane<E>, BuildHasherDefault<Digest>>,
    /// Who runs what is ready.
    pub(crate) crew: Crew<Ready<E>>,
    /// Whether lanes get runners; see [`Async::open`].
    open: AtomicBool,
    /// Lanes in which everything waits for nothing but time.
    pub(crate) resting: AtomicUsize,
    /// Rings when a lane is gone or rests, while somebody waits for that.
    fallen: Notify,
    awaited: AtomicBool,
    /// Messages that a full queue replaced although coalescing is off.
    overflowed: AtomicU64,
    /// Whether a task waits to give back the room of the map.
    tidying: AtomicBool,
    /// Retries end, and what failed is not waited for.
    pub(crate) shutdown: CancellationToken,
    /// Nothing more is handed out.
    pub(crate) over: Arc<AtomicBool>,
}

/// A lane that has something to do: its first message.
pub(crate) struct Ready<E> {
    pub(crate) key: OrderingKey,
    pub(crate) next: Next<E>,
}

/// Ends the queues when nobody can push any more.
struct End {
    shutdown: CancellationToken,
    over: Arc<AtomicBool>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.shutdown.cancel();
    }
}

impl<E: Message, H: EventHandler<E>> Async<E, H> {
    /// Queues that are open at once, and that nobody counts.
    pub fn new(
        inner: H,
        policy: QueuePolicy,
        key: impl Fn(&E) -> OrderingKey + Send + Sync + 'static,
    ) -> Self {
        Self::metered(inner, policy, key, Arc::new(Unmetered))
    }

    /// Queues that are open at once, and tell `meter` what passes through them.
    pub fn metered(
        inner: H,
        policy: QueuePolicy,
        key: impl Fn(&E) -> OrderingKey + Send + Sync + 'static,
        meter: Arc<dyn Meter>,
    ) -> Self {
        let (shutdown, over) = (CancellationToken::new(), Arc::<AtomicBool>::default());
        let end = End { shutdown: shutdown.clone(), over: Arc::clone(&over) };
        let queues = Queues {
            inner,
            key: Box::new(key),
            policy,
            meter,
            lanes: DashMap::with_hasher_and_shard_amount(BuildHasherDefault::default(), SHARDS),
            crew: Crew::new(),
            open: AtomicBool::new(true),
            resting: AtomicUsize::new(0),
            fallen: Notify::new(),
            awaited: AtomicBool::new(false),
            overflowed: AtomicU64::new(0),
            tidying: AtomicBool::new(false),
            shutdown,
            over,
        };
        Self { queues: Arc::new(queues), end: Arc::new(end) }
    }

    /// The same queues, closed: messages are taken in and wait until [`open`](Self::open).
    #[must_use]
    pub fn closed(self) -> Self {
        self.queues.open.store(false, Ordering::SeqCst);
        self
    }

    /// Starts to hand out what waits.
    pub fn open(&self) {
        let queues = &self.queues;
        queues.open.store(true, Ordering::SeqCst);
        for mut lane in queues.lanes.iter_mut() {
            if !lane.started
                && let Some(next) = lane.next()
            {
                lane.started = true;
                queues.start(*lane.key(), next);
            }
        }
    }

    /// Takes a message in.
    pub fn push(&self, event: E) {
        let queues = &self.queues;
        queues.meter.added();
        let (key, now) = ((queues.key)(&event), Instant::now());
        match queues.lanes.entry(key) {
            Entry::Occupied(mut lane) => {
                let overflowed = lane.get_mut().push(event, now, &queues.policy);
                if overflowed > 0 {
                    queues.overflowed.fetch_add(overflowed as u64, Ordering::Relaxed);
                }
            }
            Entry::Vacant(vacant) => {
                if queues.open.load(Ordering::SeqCst) {
                    vacant.insert(Lane::started(event.clone(), now));
                    queues.start(key, Next { event, since: now, past: None });
                } else {
                    vacant.insert(Lane::closed()).push(event, now, &queues.policy);
                }
            }
        }
    }

    /// How many ordering keys have something to do now. One that waits for nothing but time is not counted.
    pub fn busy(&self) -> usize {
        self.queues.busy()
    }

    /// How many queues exist: one for each ordering key that is busy, or waits for its time.
    pub fn queues(&self) -> usize {
        self.queues.lanes.len()
    }

    /// How many messages a full queue replaced although coalescing is off.
    pub fn overflowed(&self) -> u64 {
        self.queues.overflowed.load(Ordering::Relaxed)
    }

    /// Shows every message to `see`, while a part of the queues is locked.
    pub(crate) fn visit(&self, mut see: impl FnMut(Seen<'_, E>)) {
        for lane in &self.queues.lanes {
            lane.visit(&mut see);
        }
    }

    /// How many bytes the map of queues takes, its spare room included, the messages that wait in them not.
    pub fn held_bytes(&self) -> usize {
        self.queues.lanes.capacity() * (size_of::<(OrderingKey, Lane<E>)>() + 1)
    }

    /// Ends as soon as at most `most` ordering keys have something to do.
    pub async fn fallen_to(&self, most: usize) {
        self.queues.until(|queues| queues.busy() <= most).await;
    }

    /// Ends all retries and waits at most `grace` for what runs and waits; then nothing more is handed out. Answers
    /// whether all of it was done. What waits in queues that were never opened was not begun, and is let go.
    pub async fn drain(&self, grace: Duration) -> bool {
        let queues = &self.queues;
        queues.shutdown.cancel();
        queues.lanes.retain(|_, lane| lane.started);
        let drained = queues.until(|queues| queues.lanes.is_empty());
        let drained = tokio::time::timeout(grace, drained).await.is_ok();
        queues.over.store(true, Ordering::SeqCst);
        drained
    }

    /// Ends all retries, lets go what waits, and waits at most `grace` for what runs. Answers whether all of it has ended.
    pub async fn halt(&self, grace: Duration) -> bool {
        self.queues.over.store(true, Ordering::SeqCst);
        self.drain(grace).await
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Async<E, H> {
    /// Takes a copy of the message in; never waits, never fails.
    async fn handle(&self, event: &E, _: &Turn<'_>) -> Result<(), HandlerError> {
        self.push(event.clone());
        Ok(())
    }
}

impl<E: Message, H> Clone for Async<E, H> {
    fn clone(&self) -> Self {
        Self { queues: Arc::clone(&self.queues), end: Arc::clone(&self.end) }
    }
}

impl<E: Message, H: EventHandler<E>> Queues<E, H> {
    fn busy(&self) -> usize {
        self.lanes.len().saturating_sub(self.resting.load(Ordering::SeqCst))
    }

    /// Ends when `condition` holds; it is looked at whenever a lane is gone or rests.
    async fn until(&self, condition: impl Fn(&Self) -> bool) {
        loop {
            let fallen = self.fallen.notified();
            self.awaited.store(true, Ordering::SeqCst);
            if condition(self) {
                return;
            }
            fallen.await;
        }
    }

    /// A lane is gone or rests.
    pub(crate) fn fallen(&self) {
        if self.awaited.load(Ordering::SeqCst) && self.awaited.swap(false, Ordering::SeqCst) {
            self.fallen.notify_waiters();
        }
    }

    /// Gives back the room that the map of lanes has to spare, once this has been idle for a while: to make room is dear.
    pub(crate) fn tidy(self: &Arc<Self>) {
        if self.tidying.load(Ordering::Relaxed)
            || self.lanes.capacity() <= ROOM
            || self.tidying.swap(true, Ordering::SeqCst)
        {
            return;
        }
        let queues = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(queues) = {
                tokio::time::sleep(IDLE).await;
                queues.upgrade()
            } {
                if queues.busy() == 0 {
                    queues.tidying.store(false, Ordering::SeqCst);
                    queues.lanes.shrink_to_fit();
                    return;
                }
            }
        });
    }
}

/// Into how many parts, each with a lock of its own, the map of lanes is divided: enough that threads seldom meet.
const SHARDS: usize = 128;

/// How many entries the map of lanes may have room for while nothing is to be done.
const ROOM: usize = 256;

/// How long the map of lanes keeps more room than that.
const IDLE: Duration = Duration::from_secs(1);
