//! Writes and driver calls that the controller refuses after the end of a term. The test runs in the same process and blocks handlers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::{Controller, Role};
use staffetta_driver::{Fence, VifPoolDriver};
use staffetta_handler::testing::Fault;
use staffetta_handler::{Action, Registration, ResourceEventHandler, causes};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::world::{PATIENT, World};
use crate::process::eventually;

/// The handler of one term. It waits before it calls its driver, and may spawn a task that writes later.
struct Patient {
    term: usize,
    client: Client,
    wants: Wants,
    seen: Arc<Seen>,
    goes_on: watch::Receiver<bool>,
    _life: Arc<()>,
    _pool: Arc<dyn VifPoolDriver>,
}

/// The behaviour of a handler before it waits.
#[derive(Clone, Copy, PartialEq)]
enum Wants {
    Nothing,
    /// It leaves a task behind that writes later.
    ALateWrite,
    /// It has a driver whose check never succeeds.
    ADriver,
}

/// The actions of the handlers of all terms. Terms are numbered from 1.
#[derive(Default)]
struct Seen {
    made: AtomicUsize,
    lives: Mutex<Vec<Weak<()>>>,
    /// The last term whose handler began.
    began: AtomicUsize,
    /// The terms whose handlers called their driver.
    calls: Mutex<Vec<usize>>,
    /// By term, what came of the late write.
    written: Mutex<Vec<(usize, Result<(), String>)>>,
}

impl ResourceEventHandler<Pod> for Patient {
    type Error = std::convert::Infallible;

    async fn on_present(&self, _: &Arc<Pod>) -> Result<Action, Self::Error> {
        if self.seen.began.fetch_max(self.term, Ordering::SeqCst) == self.term {
            return Ok(Action::done());
        }
        if self.wants == Wants::ALateWrite {
            tokio::spawn(late_write(
                self.term,
                self.client.clone(),
                self.goes_on.clone(),
                Arc::clone(&self.seen),
            ));
        }
        self.goes_on.clone().wait_for(|goes_on| *goes_on).await.unwrap();
        self.seen.calls.lock().unwrap().push(self.term);
        Ok(Action::done())
    }
}

async fn late_write(term: usize, client: Client, mut goes_on: watch::Receiver<bool>, seen: Arc<Seen>) {
    goes_on.wait_for(|goes_on| *goes_on).await.unwrap();
    let pods = Api::<Pod>::namespaced(client, "default");
    let late =
        Patch::Merge(json!({ "metadata": { "annotations": { "example.com/late": term.to_string() } } }));
    let written = pods.patch("web", &PatchParams::default(), &late).await;
    let written = written.map(drop).map_err(|error| causes(&error));
    seen.written.lock().unwrap().push((term, written));
}

/// A controller with such a handler, and the switch that lets all of them go on.
async fn controller(world: &World, wants: Wants) -> (Controller, Arc<Seen>, watch::Sender<bool>) {
    let (let_go, goes_on) = watch::channel(false);
    let seen = Arc::<Seen>::default();
    let reported = Arc::clone(&seen);
    let mut registry = staffetta::assembly::registry();
    registry.handler("patient", "Waits.", move |setup| {
        let life = Arc::new(());
        reported.lives.lock().unwrap().push(Arc::downgrade(&life));
        if wants == Wants::ADriver {
            setup.check("absent", || async { Err(Fault::transient("it is not there").into()) });
        }
        let patient = Patient {
            term: reported.made.fetch_add(1, Ordering::SeqCst) + 1,
            client: setup.client(),
            wants,
            seen: Arc::clone(&reported),
            goes_on: goes_on.clone(),
            _life: life,
            _pool: setup.driver::<dyn VifPoolDriver>()?,
        };
        Ok(Registration::new(patient).on::<Pod>().erase())
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = format!(
        "[kubernetes]\nenabled_handlers = [\"patient\"]\nvif_pool_driver = \"memory\"\npod_vif_driver = \"memory\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[leader_election]\n{PATIENT}"
    );
    std::fs::write(file.path(), options).unwrap();
    let schema = FileSchema::assemble(&registry).unwrap();
    let configuration = Configuration::load(&schema, Some(file.path()), []).unwrap();
    let controller = Controller::start(registry, &configuration, world.client()).await.unwrap();
    (controller, seen, let_go)
}

/// Somebody writes another holder into the lease: the term ends. If that is nobody, the next one begins at once.
async fn set_holder(world: &World, holder: &str) {
    let lease = Patch::Merge(json!({ "spec": { "holderIdentity": holder } }));
    world.leases().patch("staffetta", &PatchParams::default(), &lease).await.unwrap();
}

/// Waits until the handler of this term waits.
async fn until_begun(seen: &Seen, term: usize) {
    eventually(&format!("the handler of term {term} waits"), async || {
        seen.began.load(Ordering::SeqCst) == term
    })
    .await;
}

#[tokio::test]
async fn after_its_term_neither_a_handler_nor_its_leftover_tasks_act_although_the_process_is_leader_again() {
    let world = World::embedded().await;
    let (controller, seen, let_go) = controller(&world, Wants::ALateWrite).await;
    world.pod("web").await;
    until_begun(&seen, 1).await;
    assert_eq!(controller.leadership().role, Role::Leader);

    set_holder(&world, "").await;
    until_begun(&seen, 2).await;
    assert_eq!((controller.leadership().role, controller.leadership().losses), (Role::Leader, 1));
    assert_eq!(
        seen.lives.lock().unwrap()[0].strong_count(),
        0,
        "the first term's handler is gone, and its call with it"
    );
    let_go.send(true).unwrap();
    eventually("both tasks have tried to write", async || seen.written.lock().unwrap().len() == 2).await;
    for (term, written) in &*seen.written.lock().unwrap() {
        match written {
            Ok(()) => assert_eq!(*term, 2),
            Err(error) => {
                assert_eq!(*term, 1);
                assert!(error.contains("this process does not hold the leader lease"), "{error}");
            }
        }
    }
    assert_eq!(*seen.calls.lock().unwrap(), [2]);
    let annotations = world.pods().get("web").await.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations["example.com/late"], "2");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn twenty_lost_leases_leak_nothing_and_fail_no_object() {
    let world = World::embedded().await;
    let (mut controller, seen, let_go) = controller(&world, Wants::Nothing).await;
    world.pod("web").await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let mut early = 0;
    for term in 1..=20 {
        until_begun(&seen, term).await;
        if term == 3 {
            controller.ready().await.unwrap();
            early = tasks();
        }
        set_holder(&world, "").await;
    }
    until_begun(&seen, 21).await;
    assert_eq!(controller.leadership().losses, 20);
    controller.ready().await.unwrap();
    let alive = seen.lives.lock().unwrap().iter().filter(|life| life.strong_count() > 0).count();
    assert_eq!(alive, 1, "each term's chains went with it");
    // Each term has a dozen tasks.
    eventually("there are as many tasks as before", async || tasks() <= early + 3).await;
    let events = Api::<Event>::all(world.client()).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(events, [], "nobody is told of what the ends of terms interrupted");
    let page =
        reqwest::get(format!("http://{}/metrics", controller.admin())).await.unwrap().text().await.unwrap();
    let mut series: Vec<_> =
        page.lines().filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name).collect();
    series.retain(|name| !name.starts_with('#'));
    series.sort_unstable();
    let (all, pools) =
        (series.len(), series.iter().filter(|name| name.starts_with("staffetta_vif_pool_")).count());
    series.dedup();
    assert_eq!((series.len(), pools), (all, 11), "each series stands there once");
    let_go.send(true).unwrap();
    eventually("the last one goes on", async || *seen.calls.lock().unwrap() == [21]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_former_leader_is_a_ready_standby_without_the_conditions_of_a_leader() {
    let world = World::embedded().await;
    let (controller, seen, _let_go) = controller(&world, Wants::ADriver).await;
    world.pod("web").await;
    until_begun(&seen, 1).await;
    let readiness = async || {
        let answer = reqwest::get(format!("http://{}/readyz", controller.admin())).await.unwrap();
        answer.text().await.unwrap()
    };
    assert!(readiness().await.contains("driver absent: it is not there"), "{}", readiness().await);
    set_holder(&world, "a thief").await;
    eventually("it stands by, and is ready", async || readiness().await == "ok\n").await;
    assert_eq!(controller.leadership().role, Role::Standby { holder: "a thief".into() });
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn the_lease_is_released_only_when_requests_that_no_queue_knows_have_ended() {
    let world = World::embedded().await;
    let (let_go, goes_on) = watch::channel(false);
    let (fences, found) = tokio::sync::mpsc::unbounded_channel();
    let mut registry = staffetta::assembly::registry();
    registry.handler("patient", "Leaves a request behind.", move |setup| {
        drop(fences.send(setup.shared(|| Ok(Fence::default()))?));
        Ok(Registration::new(Idle).on::<Pod>().erase())
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = format!(
        "[kubernetes]\nenabled_handlers = [\"patient\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n[leader_election]\n{PATIENT}"
    );
    std::fs::write(file.path(), options).unwrap();
    let schema = FileSchema::assemble(&registry).unwrap();
    let configuration = Configuration::load(&schema, Some(file.path()), []).unwrap();
    let mut controller = Controller::start(registry, &configuration, world.client()).await.unwrap();
    controller.ready().await.unwrap();
    // The last one is that of the term; the others were built to check that this is possible.
    let mut found = found;
    let mut fence = found.recv().await.unwrap();
    while let Ok(later) = found.try_recv() {
        fence = later;
    }
    let (detached, mut released) = (Arc::clone(&fence), goes_on);
    let request = tokio::spawn(async move {
        detached.run(async move { released.wait_for(|goes_on| *goes_on).await.map(drop).unwrap() }).await
    });
    let holder = async || world.leases().get("staffetta").await.unwrap().spec.unwrap().holder_identity;
    let mut stopping = tokio::spawn(controller.stop());
    eventually("no other request begins", async || fence.run(async {}).await.is_none()).await;
    for _ in 0..50 {
        assert!(holder().await.is_some_and(|holder| !holder.is_empty()) && !stopping.is_finished());
    }
    let_go.send(true).unwrap();
    (&mut stopping).await.unwrap().unwrap();
    assert_eq!(request.await.unwrap(), Some(()), "it was awaited");
    assert!(holder().await.is_none_or(|holder| holder.is_empty()), "and then the lease was released");
}

/// A handler that does nothing.
struct Idle;

impl ResourceEventHandler<Pod> for Idle {
    type Error = std::convert::Infallible;
}
