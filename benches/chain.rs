//! The cost of the chain itself: a handler that does nothing behind the whole chain, on the runtime as it ships (one worker thread).
//!
//! The baseline in the same run is a bare `tokio::spawn` of the no-op for each event. The feeder of both is a task on the worker
//! thread, which yields when its budget is used up, as a task that reads a socket does, and sleeps until the last event was handled.
//! The handler counts its events and checks their order.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "these figures are for people, and far from the limits of their types"
)]

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use staffetta::config::RelayOptions;
use staffetta::pipeline::{self, HandlerReports, Pipeline};
use staffetta::term::Term;
use staffetta_handler::{AnyEvent, Context, Event, EventHandler, Registration, ResourceEventHandler};
use tokio::sync::Notify;
use tokio::task::consume_budget;

mod report;
use report::{Row, median, publish};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OBJECTS: usize = 10_000;
const EVENTS: u32 = 100;
const TOTAL: usize = OBJECTS * EVENTS as usize;
const ROUNDS: usize = 5;
/// The number of namespaces of the objects.
const NAMESPACES: usize = 100;
/// The number of objects whose idle queues are measured.
const IDLE_OBJECTS: usize = 100_000;
/// A leader's term ends some time: each step of a handler looks at the clock.
const TERM: Duration = Duration::from_secs(24 * 3600);

/// A small object: the state `sequence` of the thing `index`.
#[derive(Clone, Debug, Default, Deserialize)]
struct Tick {
    metadata: ObjectMeta,
    index: usize,
    sequence: u32,
}

impl kube::Resource for Tick {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;
    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "Tick".into()
    }
    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "bench".into()
    }
    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "ticks".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The no-op: counts, and checks that no object's event comes before or twice after another.
#[derive(Default)]
struct Ledger {
    handled: AtomicUsize,
    disorder: AtomicUsize,
    last: Vec<AtomicU32>,
    sent: Vec<AtomicU64>,
    waited: Vec<AtomicU64>,
    started: Option<Instant>,
    /// Notified when all events were handled.
    done: Notify,
}

impl Ledger {
    fn new(timed: bool) -> Arc<Self> {
        let mut ledger = Self { started: Some(Instant::now()), ..Self::default() };
        ledger.last.resize_with(OBJECTS, AtomicU32::default);
        if timed {
            ledger.sent.resize_with(TOTAL, AtomicU64::default);
            ledger.waited.resize_with(TOTAL, AtomicU64::default);
        }
        Arc::new(ledger)
    }

    fn now(&self) -> u64 {
        self.started.map_or(0, |started| started.elapsed().as_nanos() as u64)
    }

    fn place(tick: &Tick) -> usize {
        tick.index * EVENTS as usize + tick.sequence as usize - 1
    }

    fn note(&self, tick: &Tick) {
        if self.last[tick.index].swap(tick.sequence, Relaxed) >= tick.sequence {
            self.disorder.fetch_add(1, Relaxed);
        }
        if !self.waited.is_empty() {
            let place = Self::place(tick);
            self.waited[place].store(self.now() - self.sent[place].load(Relaxed), Relaxed);
        }
        if self.handled.fetch_add(1, Relaxed) + 1 == TOTAL {
            self.done.notify_one();
        }
    }
}

struct NoOp(Arc<Ledger>);

impl ResourceEventHandler<Tick> for NoOp {
    type Error = Infallible;

    async fn on_present(&self, tick: &Arc<Tick>) -> Result<(), Infallible> {
        self.0.note(tick);
        Ok(())
    }
}

fn metadata(uid: String, index: usize) -> ObjectMeta {
    let namespace = format!("team-{}", index % NAMESPACES);
    ObjectMeta { uid: Some(uid), namespace: Some(namespace), ..ObjectMeta::default() }
}

type Ticks = Arc<Vec<Arc<Tick>>>;

fn ticks(order: impl Iterator<Item = (usize, u32)>, kinds: &[Arc<Tick>]) -> Ticks {
    Arc::new(
        order
            .map(|(index, sequence)| Arc::clone(&kinds[index * EVENTS as usize + sequence as usize - 1]))
            .collect(),
    )
}

fn event(tick: &Arc<Tick>) -> AnyEvent {
    let tick = Arc::clone(tick);
    if tick.sequence == 1 { Event::Added(tick).erase() } else { Event::Modified(tick).erase() }
}

fn chain(ledger: &Arc<Ledger>, coalesce: bool) -> Arc<Pipeline> {
    let registration = Registration::new(NoOp(Arc::clone(ledger))).on::<Tick>().erase();
    let queue_depth = NonZeroUsize::new(EVENTS as usize).expect("there are events");
    let options = RelayOptions { coalesce, queue_depth, ..RelayOptions::default() };
    let handlers = vec![("no-op".into(), registration)];
    Arc::new(pipeline::build(handlers, &options, &Term::lasting(TERM), &HandlerReports::default()))
}

/// Seconds from the first event to the end of the last.
async fn through_the_chain(ticks: &Ticks, coalesce: bool) -> f64 {
    let ledger = Ledger::new(false);
    let pipeline = chain(&ledger, coalesce);
    let (feed, from) = (Arc::clone(ticks), Arc::clone(&pipeline));
    let started = Instant::now();
    let feeder = tokio::spawn(async move {
        let context = Context::detached();
        for tick in feed.iter() {
            from.handle(&event(tick), &context).await.expect("queues never refuse");
            consume_budget().await;
        }
        from.until_backlog(0).await;
    });
    feeder.await.expect("the feeder does not panic");
    let seconds = started.elapsed().as_secs_f64();
    let handled = ledger.handled.load(Relaxed);
    assert_eq!(ledger.disorder.load(Relaxed), 0, "events of one object were handled out of order");
    assert!(
        ledger.last.iter().all(|last| last.load(Relaxed) == EVENTS),
        "the last state of an object was lost"
    );
    assert!(coalesce || handled == TOTAL, "{handled} of {TOTAL} events were handled");
    seconds
}

/// The same events, each a bare task.
async fn through_bare_spawns(ticks: &Ticks) -> f64 {
    let ledger = Ledger::new(false);
    let (feed, to) = (Arc::clone(ticks), Arc::clone(&ledger));
    let started = Instant::now();
    let feeder = tokio::spawn(async move {
        for tick in feed.iter() {
            let (tick, ledger) = (Arc::clone(tick), Arc::clone(&to));
            tokio::spawn(async move { ledger.note(&tick) });
            consume_budget().await;
        }
        to.done.notified().await;
    });
    feeder.await.expect("the feeder does not panic");
    started.elapsed().as_secs_f64()
}

/// Microseconds from arrival to handler, p50 and p99, at `rate` events a second. The feeder keeps the worker thread busy between the
/// events, but yields all the time.
async fn latency(ticks: &Ticks, rate: f64) -> (f64, f64) {
    let ledger = Ledger::new(true);
    let pipeline = chain(&ledger, false);
    let (feed, to, from) = (Arc::clone(ticks), Arc::clone(&ledger), Arc::clone(&pipeline));
    let feeder = tokio::spawn(async move {
        let context = Context::detached();
        let started = Instant::now();
        for (sent, tick) in feed.iter().enumerate() {
            while started.elapsed().as_secs_f64() * rate < sent as f64 {
                tokio::task::yield_now().await;
            }
            to.sent[Ledger::place(tick)].store(to.now(), Relaxed);
            from.handle(&event(tick), &context).await.expect("queues never refuse");
        }
        from.until_backlog(0).await;
    });
    feeder.await.expect("the feeder does not panic");
    let mut waited: Vec<_> = ledger.waited.iter().map(|nanos| nanos.load(Relaxed)).collect();
    waited.sort_unstable();
    let micros = |share: f64| waited[(share * (TOTAL - 1) as f64) as usize] as f64 / 1000.0;
    (micros(0.5), micros(0.99))
}

/// The resident memory of the process in bytes.
fn resident_bytes() -> f64 {
    let pages =
        std::fs::read_to_string("/proc/self/statm").expect("Linux has the memory of a process in /proc");
    let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    resident.expect("the second field is the number of resident pages") * 4096.0
}

/// The growth of the resident memory for each object that was handled and is idle. The first half of the objects warms up the
/// allocator; the growth is that of the second half.
async fn idle_bytes() -> f64 {
    let objects: Vec<_> = (0..2 * IDLE_OBJECTS)
        .map(|object| {
            let uid = format!("{object:08x}-0000-4000-9000-000000000000");
            let metadata = metadata(uid, object);
            Arc::new(Tick { metadata, index: object % OBJECTS, sequence: 1 })
        })
        .collect();
    let pipeline = chain(&Ledger::new(false), false);
    let mut resident = Vec::new();
    for half in objects.chunks(IDLE_OBJECTS) {
        let (feed, to) = (half.to_vec(), Arc::clone(&pipeline));
        let feeder = tokio::spawn(async move {
            for tick in &feed {
                to.handle(&event(tick), &Context::detached()).await.expect("queues never refuse");
                consume_budget().await;
            }
            to.until_backlog(0).await;
        });
        feeder.await.expect("the feeder does not panic");
        tokio::time::sleep(Duration::from_secs(2)).await;
        resident.push(resident_bytes());
    }
    (resident[1] - resident[0]) / IDLE_OBJECTS as f64
}

async fn compare(name: &str, ticks: &Ticks, rows: &mut Vec<Row>) -> f64 {
    let (mut every, mut newest, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(TOTAL as f64 / through_bare_spawns(ticks).await);
        every.push(TOTAL as f64 / through_the_chain(ticks, false).await);
        newest.push(TOTAL as f64 / through_the_chain(ticks, true).await);
    }
    let (every, newest, bare) = (median(every), median(newest), median(bare));
    let mut row = Row::new(format!("{name}, every event"), "events/s", every).against(bare);
    if name == "interleaved" {
        row = row.goal("at least 1,000,000", every >= 1e6);
    }
    rows.push(row.goal("at least 0.5 of bare spawns", every >= bare / 2.0));
    rows.push(Row::new(format!("{name}, coalescing"), "events/s", newest).against(bare));
    every
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let kinds: Vec<_> = (0..OBJECTS)
        .flat_map(|index| (1..=EVENTS).map(move |sequence| (index, sequence)))
        .map(|(index, sequence)| {
            let metadata = metadata(format!("{index:08x}-0000-4000-8000-000000000000"), index);
            Arc::new(Tick { metadata, index, sequence })
        })
        .collect();
    let interleaved =
        ticks((1..=EVENTS).flat_map(|sequence| (0..OBJECTS).map(move |index| (index, sequence))), &kinds);
    let grouped =
        ticks((0..OBJECTS).flat_map(|index| (1..=EVENTS).map(move |sequence| (index, sequence))), &kinds);
    let mut rows = Vec::new();
    runtime.block_on(async {
        let rate = compare("interleaved", &interleaved, &mut rows).await;
        compare("grouped", &grouped, &mut rows).await;
        let (p50, p99) = latency(&interleaved, rate / 4.0).await;
        rows.push(Row::new("arrival to handler at a quarter of that rate, p50", "us", p50));
        rows.push(Row::new("arrival to handler at a quarter of that rate, p99", "us", p99));
        let idle = idle_bytes().await.max(0.0);
        rows.push(Row::new("memory of an idle object", "bytes", idle).goal("less than 16", idle < 16.0));
    });
    publish("chain", &rows);
}
