//! Tests of the complete chain that `pipeline::build` returns.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use staffetta::config::{RelayOptions, TimeSpan};
use staffetta::pipeline::{self, HandlerReports, Pipeline};
use staffetta::term::Term;
use staffetta::watcher::EventSink;
use staffetta_handler::testing::{Fault, pod};
use staffetta_handler::{
    Action, Context, Event, EventHandler, Index, Interest, Kind, Registration, ResourceEventHandler,
};

/// Writes down the names of the pods that it gets, and does with each what the name says.
#[derive(Clone)]
struct Scribe {
    handler: &'static str,
    log: Arc<Mutex<Vec<String>>>,
}

impl ResourceEventHandler<Pod> for Scribe {
    type Error = Fault;

    fn wants(&self, event: &Event<Pod>) -> Interest {
        assert!(event.object_ref().name != "panics when asked" || self.handler != "first", "as ordered");
        let is_labelled = event.object().is_some_and(|pod| pod.metadata.labels.is_some());
        Interest::unless(is_labelled.then_some("it has labels"))
    }

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<Action, Fault> {
        let name = pod.metadata.name.clone().unwrap();
        self.log.lock().unwrap().push(format!("{} {name}", self.handler));
        match name.as_str() {
            "fails" if self.handler == "first" => Err(Fault::transient("busy")),
            "panics" if self.handler == "first" => panic!("as ordered"),
            "hangs" if self.handler == "first" => std::future::pending().await,
            _ => Ok(Action::done()),
        }
    }
}

struct World {
    pipeline: Pipeline,
    log: Arc<Mutex<Vec<String>>>,
}

fn world() -> World {
    let log = Arc::new(Mutex::new(Vec::new()));
    let handlers = ["first", "second"].map(|handler| {
        let scribe = Scribe { handler, log: Arc::clone(&log) };
        (handler.to_owned(), Registration::new(scribe).on::<Pod>().erase())
    });
    let options = RelayOptions {
        max_concurrency: NonZeroUsize::MIN,
        handler_timeout: TimeSpan::from_secs(10),
        first_list_backlog: NonZeroUsize::new(20).unwrap(),
        ..RelayOptions::default()
    };
    World {
        pipeline: pipeline::build(handlers.into(), &options, &Term::unlimited(), &HandlerReports::default()),
        log,
    }
}

impl World {
    async fn added(&self, name: &str) {
        self.event(Event::Added(Arc::new(pod("default", name)))).await;
    }

    async fn event(&self, event: Event<Pod>) {
        self.pipeline.handle(&event.erase(), &Context::detached()).await.unwrap();
        run_until_idle().await;
    }

    fn count(&self, line: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|entry| *entry == line).count()
    }
}

async fn run_until_idle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_object_delays_neither_other_objects_nor_other_handlers() {
    let world = world();
    world.added("fails").await;
    world.added("works").await;
    assert_eq!(world.count("first works"), 1, "a sleeping retry holds no permit, and there is only one");
    assert_eq!((world.count("second fails"), world.count("second works")), (1, 1));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(world.count("first fails") >= 2, "it is repeated");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_fails_is_not_retried_once_its_handler_declines_it() {
    let world = world();
    world.added("fails").await;
    let mut declined = pod("default", "fails");
    declined.metadata.labels = Some(BTreeMap::new());
    world.event(Event::Modified(Arc::new(declined))).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.count("first fails"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_invocation_is_interrupted_and_releases_its_permit() {
    let world = world();
    world.added("hangs").await;
    world.added("works").await;
    assert_eq!(world.count("first works"), 0);
    tokio::time::sleep(Duration::from_millis(10_100)).await;
    assert_eq!((world.count("first works"), world.count("second works")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_retried_and_affects_no_other_object() {
    let world = world();
    world.added("panics").await;
    world.added("works").await;
    assert_eq!((world.count("first works"), world.count("second panics")), (1, 1));
    tokio::time::sleep(Duration::from_secs(67)).await;
    assert_eq!(world.count("first panics"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_an_event_is_queued_affects_that_handler_only() {
    let world = world();
    world.added("panics when asked").await;
    world.added("works").await;
    assert_eq!((world.count("first panics when asked"), world.count("second panics when asked")), (0, 1));
    assert_eq!((world.count("first works"), world.count("second works")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn hanging_invocations_of_all_handlers_are_drained_within_one_deadline() {
    let world = world();
    world.added("hangs").await;
    world.added("fails").await;
    let started = tokio::time::Instant::now();
    assert!(!world.pipeline.drain(Duration::from_secs(5)).await, "what hangs does not end in time");
    assert_eq!(started.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_list_has_capacity_while_the_backlog_is_short_and_is_drained_at_a_tenth_of_it() {
    let world = world();
    let state = || {
        let (capacity, drained) = (world.pipeline.capacity(), world.pipeline.drained());
        (capacity.now_or_never().is_some(), drained.now_or_never().is_some())
    };
    // It waits for its next attempt, and counts for neither.
    world.added("fails").await;
    world.added("hangs").await;
    world.added("1").await;
    assert_eq!(state(), (true, true));
    world.added("2").await;
    assert_eq!(state(), (true, false));
    for number in 3..20 {
        world.added(&number.to_string()).await;
    }
    assert_eq!(state(), (true, false));
    world.added("20").await;
    assert_eq!(state(), (false, false));
    tokio::time::sleep(Duration::from_millis(10_100)).await;
    assert_eq!(state(), (true, true));
}

/// An index that only has to be complete.
struct Complete;

impl Index<ConfigMap> for Complete {
    fn apply(&self, _: &Event<ConfigMap>) {}
}

#[tokio::test(start_paused = true)]
async fn a_handler_with_an_index_gets_no_event_before_the_index_is_complete() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let scribe = Scribe { handler: "second", log: Arc::clone(&log) };
    let registration = Registration::new(scribe).on::<Pod>().index::<ConfigMap>(Arc::new(Complete)).erase();
    let pipeline = pipeline::build(
        vec![("second".into(), registration)],
        &RelayOptions::default(),
        &Term::unlimited(),
        &HandlerReports::default(),
    );
    let world = World { pipeline, log };
    let kinds: Vec<_> = world.pipeline.kinds().iter().map(|kind| kind.name.clone()).collect();
    assert_eq!(kinds, ["Pod", "ConfigMap"], "the kind of the index is watched too");
    world.added("waits").await;
    world.pipeline.listed(Kind::of::<Pod>().type_id);
    run_until_idle().await;
    assert_eq!(world.count("second waits"), 0);
    world.pipeline.listed(Kind::of::<ConfigMap>().type_id);
    run_until_idle().await;
    assert_eq!(world.count("second waits"), 1);
}
