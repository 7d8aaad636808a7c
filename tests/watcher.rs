//! The events of the watcher, and its recovery from errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::any::TypeId;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use k8s_openapi::api::{core, events};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, Config, Resource};
use serde_json::json;
use staffetta::watcher::{EventSink, Watcher};
use staffetta_apiserver::{ApiServer, Fault, Options, Requests};
use staffetta_handler::{Action, AnyEvent, Context, EventHandler, HandlerError, Kind, Undecodable};
use tokio::sync::{Semaphore, mpsc, watch};

/// Records all calls as text. A list waits while `capacity` has no permit, and the first watch until `drained` is `true`.
struct Recorder {
    events: mpsc::UnboundedSender<String>,
    capacity: Semaphore,
    drained: watch::Sender<bool>,
}

impl EventHandler<AnyEvent> for Recorder {
    async fn handle(&self, event: &AnyEvent, _: &Context<'_>) -> Result<Action, HandlerError> {
        let words = format!("{event:?}");
        let words = words.split(" (").next().unwrap_or_default().to_owned();
        // The receiver is dropped when the test has ended.
        let _ = self.events.send(words);
        Ok(Action::done())
    }
}

impl EventSink for Recorder {
    fn listed(&self, _: TypeId) {
        let _ = self.events.send("listed".into());
    }

    async fn capacity(&self) {
        self.capacity.acquire().await.unwrap().forget();
    }

    async fn drained(&self) {
        if !*self.drained.borrow() {
            let _ = self.events.send("waits".into());
            self.drained.subscribe().wait_for(|drained| *drained).await.unwrap();
        }
    }

    fn undecodable(&self, object: &Undecodable) {
        let _ = self.events.send(format!("{} cannot be decoded", object.identity.object_ref()));
    }
}

struct World {
    server: ApiServer,
    client: Client,
    sink: Arc<Recorder>,
    events: mpsc::UnboundedReceiver<String>,
}

async fn world(capacity: usize) -> World {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let (sender, events) = mpsc::unbounded_channel();
    let sink =
        Recorder { events: sender, capacity: Semaphore::new(capacity), drained: watch::Sender::new(true) };
    World { server, client, sink: Arc::new(sink), events }
}

impl World {
    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, name: &str) {
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(name.into()), ..Default::default() },
            ..Default::default()
        };
        self.maps().create(&PostParams::default(), &map).await.unwrap();
    }

    async fn change(&self, name: &str, value: &str) {
        let patch = Patch::Merge(json!({ "data": { "k": value } }));
        self.maps().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        self.maps().delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn expect(&mut self, expected: &[&str]) {
        for expected in expected {
            let said = tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await;
            assert_eq!(said.expect("the watcher delivers an event in time").as_deref(), Some(*expected));
        }
    }

    /// Expects no event for a time in which a request of the watcher would arrive.
    async fn expect_nothing(&mut self) {
        let said = tokio::time::timeout(Duration::from_millis(300), self.events.recv()).await;
        assert!(said.is_err(), "{said:?}");
    }

    /// Expects that the next record is of the undecodable object `name`.
    async fn expect_undecodable(&mut self, name: &str) {
        let said = tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await;
        let said = said.expect("the watcher delivers an event in time").unwrap();
        assert!(said.starts_with(name) && said.ends_with("cannot be decoded"), "{said}");
    }

    fn requests(&self, verb: &str) -> usize {
        let requests = self.server.requests();
        requests.iter().filter(|request| request.verb == verb && request.resource == "configmaps").count()
    }
}

/// A `ConfigMap` with a closed set of values.
#[derive(Clone, Debug, serde::Deserialize)]
struct Narrow {
    metadata: ObjectMeta,
    #[serde(default, rename = "data")]
    _data: std::collections::BTreeMap<String, Value>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Value {
    Even,
    More,
}

impl Resource for Narrow {
    type DynamicType = ();
    type Scope = <ConfigMap as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        ConfigMap::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        ConfigMap::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        ConfigMap::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        ConfigMap::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

const CAPACITY: usize = 10_000;

#[tokio::test]
async fn added_modified_and_deleted_are_distinguished() {
    let mut world = world(CAPACITY).await;
    world.create("before").await;
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    watcher.add(&Kind::of::<ConfigMap>());
    world.expect(&["Added ConfigMap default/before", "listed"]).await;
    world.create("after").await;
    world.change("before", "1").await;
    world.delete("before").await;
    world.expect(&["Added ConfigMap default/after", "Modified ConfigMap default/before"]).await;
    world.expect(&["Deleted ConfigMap default/before"]).await;
}

#[tokio::test]
async fn an_object_that_vanished_in_a_gap_is_deleted_and_an_unchanged_one_has_no_event() {
    let mut world = world(CAPACITY).await;
    for name in ["goes", "stays", "changes", "returns"] {
        world.create(name).await;
    }
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    watcher.add(&Kind::of::<ConfigMap>());
    world.expect(&["Added ConfigMap default/changes", "Added ConfigMap default/goes"]).await;
    world.expect(&["Added ConfigMap default/returns", "Added ConfigMap default/stays", "listed"]).await;

    let faults = world.server.faults();
    faults.pause_watches();
    world.delete("goes").await;
    world.delete("returns").await;
    world.create("returns").await;
    world.change("changes", "1").await;
    world.server.trim_event_log();
    faults.resume_watches();
    faults.cut_watches();

    world.expect(&["Modified ConfigMap default/changes"]).await;
    world.expect(&["Deleted ConfigMap default/returns", "Added ConfigMap default/returns"]).await;
    world.expect(&["Deleted ConfigMap default/goes", "listed"]).await;
    world.create("later").await;
    world.expect(&["Added ConfigMap default/later"]).await;
}

#[tokio::test]
async fn an_interrupted_watch_resumes_without_a_new_list() {
    let mut world = world(CAPACITY).await;
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    watcher.add(&Kind::of::<ConfigMap>());
    world.expect(&["listed"]).await;
    world.create("first").await;
    world.expect(&["Added ConfigMap default/first"]).await;
    world.server.faults().cut_watches();
    world.create("second").await;
    world.expect(&["Added ConfigMap default/second"]).await;
    world.create("third").await;
    world.expect(&["Added ConfigMap default/third"]).await;
    assert_eq!(watcher.statuses()[0].counts.lists, 1);
}

#[tokio::test]
async fn a_kind_is_watched_once_and_can_be_watched_again_after_a_stop() {
    let mut world = world(CAPACITY).await;
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    let kind = Kind::of::<ConfigMap>();
    watcher.add(&kind);
    watcher.add(&kind);
    watcher.add(&Kind::of::<Pod>());
    watcher.until_listed().await;
    world.expect(&["listed", "listed"]).await;
    assert!(watcher.statuses().iter().all(|status| status.listed));
    assert_eq!(
        (
            world.requests("list"),
            watcher.statuses().len(),
            watcher.statuses().iter().filter(|status| status.ended).count()
        ),
        (1, 2, 0)
    );
    assert_eq!(watcher.uids(kind.type_id).map(|uids| uids.len()), Some(0));

    watcher.stop();
    assert_eq!(watcher.uids(kind.type_id), None);
    world.create("unseen").await;
    watcher.add(&kind);
    world.expect(&["Added ConfigMap default/unseen", "listed"]).await;
}

#[tokio::test]
async fn one_watch_ends_while_the_others_go_on_and_can_begin_again() {
    let mut world = world(CAPACITY).await;
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    let (kind, other) = (Kind::of::<ConfigMap>(), Kind::of::<Pod>());
    watcher.add(&kind);
    watcher.add(&other);
    watcher.until_listed().await;
    world.expect(&["listed", "listed"]).await;
    watcher.remove(kind.type_id);
    watcher.remove(kind.type_id);
    let names: Vec<_> = watcher.statuses().into_iter().map(|status| status.kind).collect();
    assert_eq!((names.len(), watcher.uids(kind.type_id)), (1, None));
    world.create("unseen").await;
    let pod =
        json!({ "metadata": { "name": "web" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let pods: Api<Pod> = Api::default_namespaced(world.client.clone());
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    world.expect(&["Added Pod default/web"]).await;
    watcher.add(&kind);
    world.expect(&["Added ConfigMap default/unseen", "listed"]).await;
}

#[tokio::test]
async fn an_object_is_read_from_each_watched_kind_of_its_name() {
    let world = world(CAPACITY).await;
    // The API server has the same Events in both groups.
    let events: Api<core::v1::Event> = Api::namespaced(world.client.clone(), "default");
    let pulled = json!({ "metadata": { "name": "pulled" }, "involvedObject": { "namespace": "default" } });
    events.create(&PostParams::default(), &serde_json::from_value(pulled).unwrap()).await.unwrap();
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    watcher.add(&Kind::of::<core::v1::Event>());
    watcher.add(&Kind::of::<events::v1::Event>());
    watcher.until_listed().await;
    let read = watcher.read("event", Some("default"), "pulled").await.unwrap();
    let mut versions: Vec<_> = read.iter().map(|object| object.api_version()).collect();
    versions.sort();
    assert_eq!(versions, ["events.k8s.io/v1", "v1"]);
}

#[tokio::test]
async fn the_objects_of_one_namespace_are_delivered_again() {
    let mut world = world(CAPACITY).await;
    let elsewhere = Api::<ConfigMap>::namespaced(world.client.clone(), "kube-system");
    let metadata = ObjectMeta { name: Some("other".into()), ..Default::default() };
    let other = ConfigMap { metadata, ..Default::default() };
    elsewhere.create(&PostParams::default(), &other).await.unwrap();
    world.create("a").await;
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    watcher.add(&Kind::of::<ConfigMap>());
    world.expect(&["Added ConfigMap default/a", "Added ConfigMap kube-system/other", "listed"]).await;
    watcher.deliver_again("empty", |_| true);
    watcher.deliver_again("default", |kind| kind.name == "Pod");
    world.create("b").await;
    world.expect(&["Added ConfigMap default/b"]).await;
    watcher.deliver_again("default", |kind| kind.name == "ConfigMap");
    world.expect(&["Modified ConfigMap default/a", "Modified ConfigMap default/b", "listed"]).await;
    world.delete("a").await;
    world.expect(&["Deleted ConfigMap default/a"]).await;
    assert_eq!(watcher.statuses()[0].counts.lists, 2);
}

#[tokio::test]
async fn a_kind_is_listed_after_the_one_that_is_needed_first() {
    let mut world = world(CAPACITY).await;
    world.create("a").await;
    world.server.faults().inject(Requests::any().resource("namespaces"), 1, Fault::Hold);
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    watcher.add(&Kind::of::<Namespace>());
    watcher.add_after(&Kind::of::<ConfigMap>(), TypeId::of::<Namespace>());
    // A kind that is not watched is not waited for.
    watcher.add_after(&Kind::of::<Pod>(), TypeId::of::<Service>());
    world.expect(&["listed"]).await;
    world.expect_nothing().await;
    assert_eq!(world.requests("list"), 0);
    world.server.faults().let_go();
    let mut events = Vec::new();
    while events.iter().filter(|event| *event == "listed").count() < 2 {
        events.push(world.events.recv().await.unwrap());
    }
    let first = events.iter().position(|event| event == "listed").unwrap();
    assert!(events[..first].iter().all(|event| event.starts_with("Added Namespace ")), "{events:?}");
    assert_eq!(events[first + 1..], ["Added ConfigMap default/a", "listed"]);
}

#[tokio::test]
async fn the_next_page_of_a_list_waits_for_capacity_and_a_watch_never_does() {
    let mut world = world(2).await;
    for name in ["a", "b", "c", "d", "e"] {
        world.create(name).await;
    }
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink)).page_size(2);
    watcher.add(&Kind::of::<ConfigMap>());
    let added = ["a", "b", "c", "d", "e"].map(|name| format!("Added ConfigMap default/{name}"));
    world.expect(&[&added[0], &added[1], &added[2]]).await;
    world.expect_nothing().await;
    assert_eq!(world.requests("list"), 2, "the third page is not asked for while there is no room");
    world.sink.capacity.add_permits(3);
    world.expect(&[&added[3], &added[4], "listed"]).await;
    assert_eq!((world.requests("list"), world.sink.capacity.available_permits()), (3, 0));
    world.change("a", "1").await;
    world.expect(&["Modified ConfigMap default/a"]).await;
}

#[tokio::test]
async fn the_first_watch_waits_until_the_list_is_handled_and_later_ones_do_not() {
    let mut world = world(CAPACITY).await;
    world.sink.drained.send_replace(false);
    world.create("a").await;
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    watcher.add(&Kind::of::<ConfigMap>());
    world.expect(&["Added ConfigMap default/a", "listed", "waits"]).await;
    watcher.until_listed().await;
    world.change("a", "1").await;
    world.expect_nothing().await;
    assert_eq!(world.requests("watch"), 0);
    world.sink.drained.send_replace(true);
    world.expect(&["Modified ConfigMap default/a"]).await;

    world.sink.drained.send_replace(false);
    world.server.faults().pause_watches();
    world.change("a", "2").await;
    world.server.trim_event_log();
    world.server.faults().resume_watches();
    world.server.faults().cut_watches();
    world.expect(&["Modified ConfigMap default/a", "listed"]).await;
    world.create("later").await;
    world.expect(&["Added ConfigMap default/later"]).await;
}

#[tokio::test]
async fn an_error_of_the_server_is_survived() {
    let mut world = world(CAPACITY).await;
    world.create("a").await;
    world.server.faults().inject(Requests::any().verb("list"), 1, Fault::status(500));
    world.server.faults().inject(Requests::any().verb("watch"), 1, Fault::Cut);
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    watcher.add(&Kind::of::<ConfigMap>());
    world.expect(&["Added ConfigMap default/a", "listed"]).await;
    world.create("b").await;
    world.expect(&["Added ConfigMap default/b"]).await;
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_does_not_affect_others() {
    let mut world = world(CAPACITY).await;
    world.create("a").await;
    world.create("b").await;
    let watcher = Watcher::new(world.client.clone(), Arc::clone(&world.sink));
    watcher.add(&Kind::of::<Narrow>());
    world.expect(&["Added ConfigMap default/a", "Added ConfigMap default/b", "listed"]).await;
    world.change("a", "odd").await;
    world.expect_undecodable("ConfigMap default/a").await;
    assert_eq!(watcher.undecodable().len(), 1);
    world.change("b", "even").await;
    world.expect(&["Modified ConfigMap default/b"]).await;
    world.change("a", "even").await;
    world.expect(&["Modified ConfigMap default/a"]).await;
    assert!(watcher.undecodable().is_empty());
}

#[tokio::test(start_paused = true)]
async fn requests_during_an_outage_are_backed_off() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let dead = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async { Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("connection refused")) }
    });
    let (events, _kept) = mpsc::unbounded_channel();
    let sink = Recorder { events, capacity: Semaphore::new(CAPACITY), drained: watch::Sender::new(true) };
    let watcher = Watcher::new(Client::new(dead, "default"), Arc::new(sink));
    watcher.add(&Kind::of::<ConfigMap>());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = asked.load(Ordering::Relaxed);
    assert!((105..=140).contains(&asked), "{asked} requests in ten minutes: one every five seconds");
    assert!(!watcher.statuses()[0].ended);
}

/// A sink that never returns from an event, or never has capacity for a list.
struct Stuck {
    in_event: bool,
}

impl EventHandler<AnyEvent> for Stuck {
    async fn handle(&self, _: &AnyEvent, _: &Context<'_>) -> Result<Action, HandlerError> {
        if self.in_event { std::future::pending().await } else { Ok(Action::done()) }
    }
}

impl EventSink for Stuck {
    fn listed(&self, _: TypeId) {}

    async fn capacity(&self) {
        std::future::pending::<()>().await;
    }

    async fn drained(&self) {}

    fn undecodable(&self, _: &Undecodable) {}
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_never_returns_from_an_event_is_stuck_and_one_that_waits_for_capacity_is_not() {
    let list = json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" },
        "items": [{ "metadata": { "name": "a", "namespace": "default", "uid": "u1", "resourceVersion": "1" } }] });
    let server = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let body = kube::client::Body::from(list.to_string().into_bytes());
        async { Ok::<_, std::io::Error>(http::Response::new(body)) }
    });
    let client = Client::new(server, "default");
    for in_event in [true, false] {
        let watcher = Watcher::new(client.clone(), Arc::new(Stuck { in_event }));
        watcher.add(&Kind::of::<ConfigMap>());
        let stuck = || watcher.statuses()[0].stuck();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(stuck(), None);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(stuck().is_some(), in_event, "{:?}", stuck());
    }
}
