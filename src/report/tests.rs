use std::sync::Mutex;

use k8s_openapi::api::core::v1::{Pod, Service};
use staffetta_handler::testing::{Fault, pod};
use staffetta_handler::{Event, EventHandler, Failure, Registration, ResourceEventHandler, Tombstone};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::pipeline::{self, Pipeline, Policy};
use crate::testing::Logged;
use crate::watcher::Sink;

/// Fails as it is told.
struct Told<F>(Mutex<F>);

impl<F, E> ResourceEventHandler<Pod> for Told<F>
where
    F: FnMut() -> Result<(), E> + Send + 'static,
    E: Failure,
{
    type Error = E;

    async fn on_present(&self, _: &Arc<Pod>) -> Result<(), E> {
        (self.0.lock().unwrap())()
    }

    async fn on_deleted(&self, _: &Tombstone<Pod>) -> Result<(), E> {
        (self.0.lock().unwrap())()
    }
}

/// The chain that ships around a handler, and what is told.
struct World {
    pipeline: Pipeline,
    notices: mpsc::Receiver<Notice>,
    logged: Logged,
    started: Instant,
}

impl World {
    fn new<E: Failure>(handle: impl FnMut() -> Result<(), E> + Send + 'static) -> Self {
        Self::around(Registration::new(Told(Mutex::new(handle))).on::<Pod>().erase())
    }

    fn around(registration: Registration) -> Self {
        let (recorder, notices) = Recorder::overheard();
        let reports = Reports::new(Some(recorder));
        let pipeline = pipeline::build(vec![("vif".into(), registration)], &Policy::default(), &reports);
        Self { pipeline, notices, logged: Logged::start(), started: Instant::now() }
    }

    async fn event(&self, event: Event<Pod>) {
        self.pipeline.handle(&event.erase(), &Turn::alone()).await.unwrap();
    }

    async fn added(&self) {
        self.event(Event::Added(Arc::new(pod("shop", "web")))).await;
    }

    /// What is told until this many seconds after the start: after which second, and what.
    async fn until(&mut self, second: u64) -> Vec<(u64, Notice)> {
        let end = self.started + Duration::from_secs(second);
        let mut told = Vec::new();
        while let Ok(Some(notice)) = tokio::time::timeout_at(end, self.notices.recv()).await {
            told.push((self.started.elapsed().as_secs(), notice));
        }
        told
    }
}

/// Fails until this many seconds have passed.
fn failing_for(seconds: u64, fault: Fault) -> impl FnMut() -> Result<(), Fault> + Send {
    let end = Instant::now() + Duration::from_secs(seconds);
    move || if Instant::now() < end { Err(fault.clone()) } else { Ok(()) }
}

#[tokio::test(start_paused = true)]
async fn what_passes_within_seconds_is_nobodys_business() {
    let mut world = World::new(failing_for(9, Fault::transient("busy")));
    world.added().await;
    assert!(world.until(3600).await.is_empty());
    assert!(world.logged.with("").is_empty());
}

#[tokio::test(start_paused = true)]
async fn why_an_object_is_stuck_is_told_within_half_a_minute_and_logged_once() {
    let mut world = World::new(failing_for(300, Fault::transient("the quota is used up")));
    world.added().await;
    let told = world.until(200).await;
    assert!((10..=30).contains(&told[0].0), "{}", told[0].0);
    let notice = &told[0].1;
    assert_eq!((notice.weight, notice.reason, &*notice.action), (Weight::Warning, "HandlingFailed", "vif"));
    assert_eq!(notice.regarding.name.as_deref(), Some("web"));
    assert_eq!(notice.regarding.resource_version.as_deref(), Some("1"));
    let (what, then) = notice.note.split_once("; attempt ").expect("it says when it is tried again");
    assert!(what == "the quota is used up" && then.contains(" follows in "), "{}", notice.note);
    assert!(told.len() >= 3, "each further attempt is told, and counted by the recorder");

    let lines = world.logged.with("");
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = &lines[0];
    assert_eq!(
        (&line["level"], &line["message"]),
        (&"WARN".into(), &"handling fails and is repeated".into())
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

    let told = world.until(1000).await;
    let last = &told.last().unwrap().1;
    assert_eq!((last.weight, last.reason), (Weight::Normal, "Recovered"));
    assert!(last.note.starts_with("handled again after ") && last.note.ends_with(" min"), "{}", last.note);
    assert_eq!(world.logged.with("handling works again").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_long_from_the_start_is_told_at_once() {
    let hint = Duration::from_secs(60);
    let mut world = World::new(failing_for(30, Fault::transient("busy").after(hint)));
    world.added().await;
    let told = world.until(59).await;
    assert_eq!(told.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [0]);
    assert_eq!(told[0].1.note, "busy; attempt 2 follows in 60 s");
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_told_after_half_a_minute_and_logged_once() {
    let waiting = || Fault::transient("not active yet").waiting().after(Duration::from_secs(1));
    {
        let mut world = World::new(failing_for(29, waiting()));
        world.added().await;
        assert!(world.until(3600).await.is_empty(), "it came in time");
        assert!(world.logged.with("").is_empty());
    }
    let mut world = World::new(failing_for(100, waiting()));
    world.added().await;
    let told = world.until(3600).await;
    let seconds: Vec<_> = told.iter().map(|(second, notice)| (*second, notice.weight)).collect();
    let (warning, normal) = (Weight::Warning, Weight::Normal);
    assert_eq!(seconds, [(30, warning), (60, warning), (90, warning), (100, normal)]);
    assert_eq!(told[0].1.note, "not active yet; attempt 32 follows in 1 s");
    assert_eq!(told[3].1.reason, "Recovered");
    assert_eq!(world.logged.with("handling fails and is repeated").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_no_shorter_because_its_object_changed_meanwhile() {
    let waiting = Fault::transient("not active yet").waiting().after(Duration::from_secs(1));
    let mut world = World::new(failing_for(100, waiting));
    world.added().await;
    for second in [10, 20, 25] {
        assert!(world.until(second).await.is_empty());
        world.event(Event::Modified(Arc::new(pod("shop", "web")))).await;
    }
    let told = world.until(45).await;
    assert!(told.len() == 1 && (30..=31).contains(&told[0].0), "{told:?}");
}

/// Never answers.
struct Hangs;

impl ResourceEventHandler<Pod> for Hangs {
    type Error = Fault;

    async fn on_present(&self, _: &Arc<Pod>) -> Result<(), Fault> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hung_is_told_as_soon_as_it_is_ended() {
    let mut world = World::around(Registration::new(Hangs).on::<Pod>().erase());
    world.added().await;
    let told = world.until(61).await;
    assert_eq!((told.len(), told[0].0, told[0].1.reason), (1, 60, "TimedOut"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_told_at_once_and_the_object_gets_another_chance() {
    let mut world = World::new(failing_for(90, Fault::permanent("refused")));
    world.added().await;
    let told = world.until(1000).await;
    let reasons: Vec<_> = told.iter().map(|(_, notice)| notice.reason).collect();
    assert_eq!(reasons, ["HandlingFailed", "HandlingFailed", "Recovered"]);
    let (first, again, last) = (&told[0], &told[1], &told[2]);
    assert!(first.0 == 0 && (54..=66).contains(&again.0) && (162..=198).contains(&last.0), "{told:?}");
    let note = format!("refused; it is handled again in {} s, or when it changes", again.0);
    assert_eq!(first.1.note, note);
    assert!(last.1.note.starts_with("handled again after 2 failed attempts in "), "{}", last.1.note);
    let lines = world.logged.with("handling failed");
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[1]["attempt"], &lines[1]["level"]), (&2.into(), &"ERROR".into()));
    assert!((108..=132).contains(&lines[1]["again_s"].as_u64().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_reaches_past_the_time_for_retries_is_obeyed_all_the_same() {
    let asked = Duration::from_secs(1200);
    let mut world = World::new(failing_for(1, Fault::transient("busy").after(asked)));
    world.added().await;
    let told = world.until(3600).await;
    let told: Vec<_> = told.iter().map(|(second, notice)| (*second, notice.reason)).collect();
    assert_eq!(told, [(0, "HandlingFailed"), (1200, "Recovered")]);
}

#[tokio::test(start_paused = true)]
async fn what_works_again_because_the_object_is_gone_makes_no_event() {
    let mut world = World::new(failing_for(5, Fault::permanent("refused")));
    world.added().await;
    assert_eq!(world.until(10).await.len(), 1);
    world.event(Event::Deleted(Tombstone::Last(Arc::new(pod("shop", "web"))))).await;
    assert!(world.until(100).await.is_empty());
}

/// An error that says whom it concerns.
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
async fn what_concerns_another_object_is_told_there_and_so_is_its_recovery() {
    let service = Identity::of::<Service>(Some("shop".into()), "web".into(), "u".into());
    let mut failures = 1;
    let mut world = World::new(move || {
        failures -= 1;
        if failures >= 0 { Err(OfService(Box::new(service.clone()))) } else { Ok(()) }
    });
    world.added().await;
    let told = world.until(100).await;
    let told: Vec<_> = told.iter().map(|(_, notice)| (notice.reason, notice.regarding.clone())).collect();
    assert_eq!((told[0].0, told[1].0, told.len()), ("DriverRefused", "Recovered", 2));
    for (_, regarding) in told {
        assert_eq!(
            (regarding.kind.as_deref(), regarding.api_version.as_deref()),
            (Some("Service"), Some("v1"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_no_handler_gets_to_see_is_told_of() {
    let mut world = World::new(|| Ok::<_, Fault>(()));
    let identity = Identity::of::<Pod>(Some("shop".into()), "odd".into(), "u".into());
    world.pipeline.undecodable(&Undecodable { identity, error: "invalid type: string".into() });
    let told = world.until(1).await;
    assert_eq!((told.len(), told[0].1.reason), (1, "ObjectUndecodable"));
    assert_eq!(told[0].1.note, "it is no Pod as this program knows it: invalid type: string");
    assert_eq!(world.logged.with("an object cannot be decoded").len(), 1);
}

#[test]
fn times_are_told_as_a_person_says_them() {
    let said = [40, 900, 1000, 60_000, 119_000, 120_000, 900_000, 7_200_000, 90_000_000];
    let said = said.map(|milliseconds| Rounded(Duration::from_millis(milliseconds)).to_string());
    assert_eq!(said, ["40 ms", "900 ms", "1 s", "60 s", "119 s", "2 min", "15 min", "2 h", "25 h"]);
}
