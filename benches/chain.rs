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
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use staffetta::config::RelayOptions;
use staffetta::pipeline::{self, HandlerReports, Pipeline};
use staffetta::term::Term;
use staffetta_handler::testing::Fault;
use staffetta_handler::{Action, AnyEvent, Context, Event, EventHandler, Registration, ResourceEventHandler};
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

    async fn on_present(&self, tick: &Arc<Tick>) -> Result<Action, Infallible> {
        self.0.note(tick);
        Ok(Action::done())
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

fn chain(registration: Registration) -> Arc<Pipeline> {
    let handlers = vec![("no-op".into(), registration)];
    let options = RelayOptions::default();
    Arc::new(pipeline::build(handlers, &options, &Term::lasting(TERM), &HandlerReports::default()))
}

fn counting_chain(ledger: &Arc<Ledger>) -> Arc<Pipeline> {
    chain(Registration::new(NoOp(Arc::clone(ledger))).on::<Tick>().erase())
}

/// Seconds from the first event to the end of the last, and the share of the events that were handled. The others were replaced by a newer
/// one of their object.
async fn through_the_chain(ticks: &Ticks) -> (f64, f64) {
    let ledger = Ledger::new(false);
    let pipeline = counting_chain(&ledger);
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
    (seconds, handled as f64 / TOTAL as f64)
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
    let pipeline = counting_chain(&ledger);
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

/// The growth of the resident memory of `pipeline` for each object that it has got an event of. The first half of the objects warms up the
/// allocator; the growth is that of the second half.
async fn bytes_of_each(pipeline: Arc<Pipeline>) -> f64 {
    let objects: Vec<_> = (0..2 * IDLE_OBJECTS)
        .map(|object| {
            let uid = format!("{object:08x}-0000-4000-9000-000000000000");
            let metadata = metadata(uid, object);
            Arc::new(Tick { metadata, index: object % OBJECTS, sequence: 1 })
        })
        .collect();
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
    ((resident[1] - resident[0]) / IDLE_OBJECTS as f64).max(0.0)
}

/// A handler whose events all fail, so that they are in back-off.
struct Fails;

impl ResourceEventHandler<Tick> for Fails {
    type Error = Fault;

    async fn on_present(&self, _: &Arc<Tick>) -> Result<Action, Fault> {
        Err(Fault::transient("busy").after(Duration::from_secs(300)))
    }
}

async fn compare(name: &str, ticks: &Ticks, rows: &mut Vec<Row>) -> f64 {
    let mut chained = Vec::new();
    let mut handled = Vec::new();
    let mut bare = Vec::new();
    for _ in 0..ROUNDS {
        bare.push(TOTAL as f64 / through_bare_spawns(ticks).await);
        let (seconds, share) = through_the_chain(ticks).await;
        chained.push(TOTAL as f64 / seconds);
        handled.push(share);
    }
    let chained = median(chained);
    let bare = median(bare);
    let handled = median(handled);
    let mut row = Row::new(name, "events/s", chained).against(bare);
    if name == "interleaved" {
        row = row.goal("at least 1,000,000", chained >= 1e6);
    }
    rows.push(row.goal("at least 0.5 of bare spawns", chained >= bare / 2.0));
    rows.push(Row::new(format!("{name}, handled"), "share", handled).goal("at least 0.99", handled >= 0.99));
    chained
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
        let idle = bytes_of_each(counting_chain(&Ledger::new(false))).await;
        rows.push(Row::new("memory of an idle object", "bytes", idle).goal("less than 16", idle < 16.0));
        let waiting = bytes_of_each(chain(Registration::new(Fails).on::<Tick>().erase())).await;
        let goal = "at most 1024";
        rows.push(
            Row::new("memory of an object in back-off", "bytes", waiting).goal(goal, waiting <= 1024.0),
        );
    });
    publish("chain", &rows);
}
