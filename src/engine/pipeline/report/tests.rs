use k8s_openapi::api::core::v1::{Pod, Service};
use parking_lot::Mutex;
use staffetta_driver::RequestRecord;
use staffetta_handler::testing::{Fault, pod};
use staffetta_handler::{
    Action, Change, Context, Event, EventHandler, Failure, Index, Interest, Pending, Registration,
    ResourceEventHandler, Tombstone,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::base::config::RelayOptions;
use crate::base::metrics::Metrics;
use crate::engine::pipeline::{self, Pipeline};
use crate::engine::term::Term;
use crate::engine::testing::CapturedLog;
use crate::engine::watcher::EventSink;

/// A handler that returns the results of a closure.
struct Reported<F>(Mutex<F>);

impl<F, E> ResourceEventHandler<Pod> for Reported<F>
where
    F: FnMut() -> Result<(), E> + Send + 'static,
    E: Failure,
{
    type Error = E;

    async fn on_present(&self, _: &Arc<Pod>) -> Result<Action, E> {
        (self.0.lock())().map(Action::from)
    }

    async fn on_deleted(&self, _: &Tombstone<Pod>) -> Result<Action, E> {
        (self.0.lock())().map(Action::from)
    }
}

/// The chain of one handler, and the occurrences that it publishes.
struct World {
    pipeline: Pipeline,
    occurrences: mpsc::UnboundedReceiver<Occurrence>,
    metrics: Arc<Metrics>,
    logged: CapturedLog,
    started: Instant,
}

impl World {
    fn new<E: Failure>(handle: impl FnMut() -> Result<(), E> + Send + 'static) -> Self {
        Self::around(Registration::new(Reported(Mutex::new(handle))).on::<Pod>().erase(), false)
    }

    /// Returns a world in which successes are told.
    fn proud<E: Failure>(handle: impl FnMut() -> Result<(), E> + Send + 'static) -> Self {
        Self::around(Registration::new(Reported(Mutex::new(handle))).on::<Pod>().erase(), true)
    }

    fn around(registration: Registration, success: bool) -> Self {
        let (publisher, occurrences) = Publisher::detached();
        let metrics = Arc::new(Metrics::new("server", &[]));
        let reports = HandlerReports::new(publisher, success, &metrics);
        let handlers = vec![("vif".into(), registration)];
        let pipeline = pipeline::build(handlers, &RelayOptions::default(), &Term::unlimited(), &reports);
        Self { pipeline, occurrences, metrics, logged: CapturedLog::start(), started: Instant::now() }
    }

    async fn event(&self, event: Event<Pod>) {
        self.pipeline.handle(&event.erase(), &Context::detached()).await.unwrap();
    }

    async fn added(&self) {
        self.event(Event::Added(Arc::new(pod("shop", "web")))).await;
    }

    /// Returns the occurrences until `second` after the start, each with its second.
    async fn until(&mut self, second: u64) -> Vec<(u64, Occurrence)> {
        let end = self.started + Duration::from_secs(second);
        let mut reported = Vec::new();
        while let Ok(Some(occurrence)) = tokio::time::timeout_at(end, self.occurrences.recv()).await {
            reported.push((self.started.elapsed().as_secs(), occurrence));
        }
        reported
    }
}

/// Makes the handler fail with `fault` for this many seconds.
fn failing_for(seconds: u64, fault: Fault) -> impl FnMut() -> Result<(), Fault> + Send {
    let end = Instant::now() + Duration::from_secs(seconds);
    move || if Instant::now() < end { Err(fault.clone()) } else { Ok(()) }
}

/// Makes the handler change something outside with each of `changes`, and nothing otherwise.
fn changing(changes: &'static [bool]) -> impl FnMut() -> Result<(), Fault> + Send {
    let mut changes = changes.iter();
    move || {
        if let Some(changes) = changes.next() {
            RequestRecord::start("PUT", "/ports/p1", *changes).set_status(200);
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_changed_something_is_reported_where_asked_for() {
    let mut world = World::proud(changing(&[true, false, true, true]));
    for _ in 0..2 {
        world.added().await;
    }
    let reported = world.until(10).await;
    assert_eq!(reported.len(), 1, "the second time nothing was changed");
    let (_, Occurrence { warning, reason, handler, regarding, note, .. }) = &reported[0];
    assert_eq!((*warning, *reason, &**handler, &*regarding.name), (false, "Handled", "vif", "web"));
    assert_eq!(note, "handled in 0 ms");
    world.event(Event::Modified(Arc::new(pod("shop", "web")))).await;
    assert_eq!(world.until(20).await.len(), 1);
    world.event(Event::Deleted(Tombstone::Last(Arc::new(pod("shop", "web"))))).await;
    assert!(world.until(30).await.is_empty(), "an Event on an object that is deleted helps nobody");

    let mut world = World::new(changing(&[true, true]));
    world.added().await;
    assert!(world.until(10).await.is_empty(), "by default nothing is told");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_failure_is_reported_once() {
    let mut failing = failing_for(60, Fault::transient("busy"));
    let mut world = World::proud(move || {
        failing()?;
        changing(&[true])()
    });
    world.added().await;
    let reported = world.until(600).await;
    let normal: Vec<_> = reported
        .iter()
        .filter(|(_, reported)| !reported.warning)
        .map(|(_, reported)| reported.reason)
        .collect();
    assert_eq!(normal, ["Recovered"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_passes_within_seconds_is_not_reported() {
    let mut world = World::new(failing_for(9, Fault::transient("busy")));
    world.added().await;
    assert!(world.until(3600).await.is_empty());
    assert!(world.logged.with("").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lasting_failure_is_reported_within_half_a_minute_and_logged_once() {
    let mut world = World::new(failing_for(300, Fault::transient("the quota is used up")));
    world.added().await;
    let reported = world.until(200).await;
    assert!((10..=30).contains(&reported[0].0), "{}", reported[0].0);
    let occurrence = &reported[0].1;
    assert_eq!(
        (occurrence.warning, occurrence.reason, &*occurrence.handler),
        (true, "HandlingFailed", "vif")
    );
    assert_eq!(occurrence.regarding.name, "web");
    assert_eq!(occurrence.regarding.resource_version.as_deref(), Some("1"));
    let (what, then) = occurrence.note.split_once("; attempt ").expect("it says when it is tried again");
    assert!(what == "the quota is used up" && then.contains(" follows in "), "{}", occurrence.note);
    assert!(reported.len() >= 3, "each further attempt is told, and counted by the recorder");

    let lines = world.logged.with("");
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = &lines[0];
    assert_eq!(
        (&line["level"], &line["message"]),
        (&"WARN".into(), &"handling keeps failing; it is retried".into())
    );
    for (field, value) in [
        ("kind", "Pod"),
        ("namespace", "shop"),
        ("name", "web"),
        ("uid", "uid-shop-web"),
        ("handler", "vif"),
        ("reason", "HandlingFailed"),
        ("error", "the quota is used up"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    assert!(line["attempt"].as_u64() >= Some(3) && line["again_s"].is_f64(), "{line}");

    let reported = world.until(1000).await;
    let last = &reported.last().unwrap().1;
    assert_eq!((last.warning, last.reason), (false, "Recovered"));
    assert!(last.note.starts_with("handled again after ") && last.note.ends_with(" min"), "{}", last.note);
    assert_eq!(world.logged.with("handling works again").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_with_a_long_delay_is_reported_at_once() {
    let hint = Duration::from_secs(60);
    let mut world = World::new(failing_for(30, Fault::transient("busy").after(hint)));
    world.added().await;
    let reported = world.until(59).await;
    assert_eq!(reported.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [0]);
    assert_eq!(reported[0].1.note, "busy; attempt 2 follows in 60 s");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_object_is_reported_after_half_a_minute_and_logged_once() {
    let waiting =
        || Fault::transient("not active yet").pending(Pending::default()).after(Duration::from_secs(1));
    {
        let mut world = World::new(failing_for(29, waiting()));
        world.added().await;
        assert!(world.until(3600).await.is_empty(), "it came in time");
        assert!(world.logged.with("").is_empty());
    }
    let mut world = World::new(failing_for(100, waiting()));
    world.added().await;
    let reported = world.until(3600).await;
    let seconds: Vec<_> = reported.iter().map(|(second, occurrence)| (*second, occurrence.warning)).collect();
    assert_eq!(seconds, [(30, true), (60, true), (90, true), (100, false)]);
    assert_eq!(reported[0].1.note, "not active yet; attempt 32 follows in 1 s");
    assert_eq!(reported[3].1.reason, "Recovered");
    assert_eq!(world.logged.with("handling keeps failing; it is retried").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_object_does_not_advance_the_report() {
    let waiting =
        Fault::transient("not active yet").pending(Pending::default()).after(Duration::from_secs(1));
    let mut world = World::new(failing_for(100, waiting));
    world.added().await;
    for second in [10, 20, 25] {
        assert!(world.until(second).await.is_empty());
        world.event(Event::Modified(Arc::new(pod("shop", "web")))).await;
    }
    let reported = world.until(45).await;
    assert!(reported.len() == 1 && (30..=31).contains(&reported[0].0), "{reported:?}");
}

/// A handler that never returns.
struct Hangs;

impl ResourceEventHandler<Pod> for Hangs {
    type Error = Fault;

    async fn on_present(&self, _: &Arc<Pod>) -> Result<Action, Fault> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_attempt_is_reported_at_once() {
    let mut world = World::around(Registration::new(Hangs).on::<Pod>().erase(), false);
    world.added().await;
    let reported = world.until(61).await;
    assert_eq!((reported.len(), reported[0].0, reported[0].1.reason), (1, 60, "TimedOut"));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_logged_once_and_is_handled_again_later() {
    let mut world = World::new(failing_for(90, Fault::permanent("refused")));
    world.added().await;
    let reported = world.until(1000).await;
    let reasons: Vec<_> = reported.iter().map(|(_, occurrence)| occurrence.reason).collect();
    assert_eq!(reasons, ["HandlingFailed", "HandlingFailed", "Recovered"]);
    let (first, again, last) = (&reported[0], &reported[1], &reported[2]);
    assert!(first.0 == 0 && (54..=66).contains(&again.0) && (162..=198).contains(&last.0), "{reported:?}");
    let delay = first.1.note.strip_prefix("refused; it is handled again in ").unwrap();
    assert!(delay.ends_with(" s, or when it changes"), "{}", first.1.note);
    assert!(last.1.note.starts_with("handled again after 2 failed attempts in "), "{}", last.1.note);
    let lines = world.logged.with("handling failed");
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["attempt"], &lines[0]["level"]), (&1.into(), &"ERROR".into()));
    assert!((54..=66).contains(&lines[0]["again_s"].as_u64().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_requested_delay_is_obeyed_for_five_minutes_at_most() {
    let asked = Duration::from_secs(1200);
    let mut world = World::new(failing_for(1, Fault::transient("busy").after(asked)));
    world.added().await;
    let reported = world.until(3600).await;
    let reported: Vec<_> = reported.iter().map(|(second, occurrence)| (*second, occurrence.reason)).collect();
    assert_eq!(reported, [(0, "HandlingFailed"), (300, "Recovered")]);
}

#[tokio::test(start_paused = true)]
async fn the_recovery_of_a_deleted_object_is_not_reported() {
    let mut world = World::new(failing_for(5, Fault::permanent("refused")));
    world.added().await;
    assert_eq!(world.until(10).await.len(), 1);
    world.event(Event::Deleted(Tombstone::Last(Arc::new(pod("shop", "web"))))).await;
    assert!(world.until(100).await.is_empty());
}

/// An error that names another object.
#[derive(Debug, thiserror::Error)]
#[error("refused")]
struct OfService(Box<Identity>);

impl Failure for OfService {
    fn transient(&self) -> bool {
        false
    }

    fn reason(&self) -> &'static str {
        "DriverRefused"
    }

    fn concerns(&self) -> Option<&Identity> {
        Some(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_affects_another_object_is_reported_there_and_so_is_its_end() {
    let service = Identity::of::<Service>(Some("shop".into()), "web".into(), "u".into());
    let mut failures = 1;
    let mut world = World::new(move || {
        failures -= 1;
        if failures >= 0 { Err(OfService(Box::new(service.clone()))) } else { Ok(()) }
    });
    world.added().await;
    let reported = world.until(100).await;
    let reported: Vec<_> =
        reported.iter().map(|(_, occurrence)| (occurrence.reason, occurrence.regarding.clone())).collect();
    assert_eq!((reported[0].0, reported[1].0, reported.len()), ("DriverRefused", "Recovered", 2));
    for (_, regarding) in reported {
        assert_eq!((&*regarding.kind, &*regarding.api_version), ("Service", "v1"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_is_reported() {
    let mut world = World::new(|| Ok::<_, Fault>(()));
    let identity = Identity::of::<Pod>(Some("shop".into()), "odd".into(), "u".into());
    world.pipeline.undecodable(&Undecodable { identity, error: "invalid type: string".into() });
    let reported = world.until(1).await;
    assert_eq!((reported.len(), reported[0].1.reason), (1, "ObjectUndecodable"));
    assert_eq!(reported[0].1.note, "cannot be decoded as a Pod: invalid type: string");
    assert_eq!(world.logged.with("an object cannot be decoded").len(), 1);
}

#[test]
fn durations_are_formatted_in_one_unit() {
    let said = [40, 900, 1000, 60_000, 119_000, 120_000, 900_000, 7_200_000, 90_000_000];
    let said = said.map(|milliseconds| Rounded(Duration::from_millis(milliseconds)).to_string());
    assert_eq!(said, ["40 ms", "900 ms", "1 s", "60 s", "119 s", "2 min", "15 min", "2 h", "25 h"]);
}

/// An index that panics for one object.
struct Brittle;

impl Index<Pod> for Brittle {
    fn apply(&self, event: &Event<Pod>) {
        assert_ne!(event.object_ref().name, "web", "as ordered");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_an_index_ends_only_its_event_and_is_logged_and_counted() {
    let handled = Arc::new(Mutex::new(0));
    let count = Arc::clone(&handled);
    let handle = move || {
        *count.lock() += 1;
        Ok::<_, Fault>(())
    };
    let registration =
        Registration::new(Reported(Mutex::new(handle))).on::<Pod>().index::<Pod>(Arc::new(Brittle));
    let world = World::around(registration.erase(), false);
    world.pipeline.listed(std::any::TypeId::of::<Pod>());
    world.added().await;
    world.event(Event::Added(Arc::new(pod("shop", "other")))).await;
    assert_eq!(*handled.lock(), 2, "the handler goes on");
    let lines = world.logged.with("panicked when an event arrived");
    assert_eq!((lines.len(), &lines[0]["name"]), (1, &"web".into()));
    let page = world.metrics.page(|_| {}).unwrap();
    assert!(page.contains("{handler=\"vif\",outcome=\"panic\"} 1"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn a_deferred_event_leaves_the_retries_of_its_object_and_a_declined_one_ends_them() {
    for (answer, expected) in [
        (Interest::Deferred("not yet"), &["HandlingFailed", "HandlingFailed", "Recovered"][..]),
        (Interest::Declined("not any more"), &["HandlingFailed"]),
    ] {
        let handler = Reported(Mutex::new(failing_for(90, Fault::permanent("refused"))));
        let registration = Registration::new(handler)
            .on::<Pod>()
            .erase()
            .filter(move |event| if event.change() == Change::Modified { answer } else { Interest::Taken });
        let mut world = World::around(registration, false);
        world.added().await;
        world.event(Event::Modified(Arc::new(pod("shop", "web")))).await;
        let reported = world.until(1000).await;
        assert_eq!(
            reported.iter().map(|(_, reported)| reported.reason).collect::<Vec<_>>(),
            expected,
            "{answer:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_objects_that_are_left_at_the_end_are_logged_with_their_number_and_some_names() {
    let mut transient = false;
    let world = World::new(move || {
        transient = !transient;
        Err(if transient { Fault::transient("busy") } else { Fault::permanent("refused") })
    });
    for number in 10..32 {
        world.event(Event::Added(Arc::new(pod("shop", &format!("web-{number}"))))).await;
    }
    assert!(world.pipeline.drain(Duration::from_secs(1)).await);
    let lines = world.logged.with("not all objects were handled before the end");
    assert_eq!((lines.len(), &lines[0]["count"]), (1, &22.into()));
    let objects = lines[0]["objects"].as_str().unwrap();
    assert!(objects.starts_with("Pod shop/web-10, Pod shop/web-11,"), "{objects}");
    assert_eq!(objects.split(", ").count(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_registered_twice_for_a_kind_gets_each_event_once() {
    let handled = Arc::new(Mutex::new(0));
    let count = Arc::clone(&handled);
    let handle = move || {
        *count.lock() += 1;
        Ok::<_, Fault>(())
    };
    let world =
        World::around(Registration::new(Reported(Mutex::new(handle))).on::<Pod>().on::<Pod>().erase(), false);
    world.added().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*handled.lock(), 1);
}
