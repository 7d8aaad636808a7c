use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use serde_json::{Value, json};
use staffetta_handler::Identity;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower_test::mock::{self, Handle};

use super::*;
use crate::base::metrics::Metrics;
use crate::engine::testing::CapturedLog;

impl Publisher {
    /// Returns a publisher without a task, and the queue from which a test reads the occurrences.
    pub(crate) fn detached() -> (Self, mpsc::UnboundedReceiver<Occurrence>) {
        let (queue, occurrences) = mpsc::unbounded_channel();
        (Self(Arc::new(move |occurrence| drop(queue.send(occurrence)))), occurrences)
    }
}

/// A publisher and a server that the test controls.
struct World {
    publisher: Publisher,
    task: PublisherTask,
    outcomes: MetricFamily<Counter>,
    server: Handle<Request<Body>, Response<Body>>,
    started: Instant,
}

/// A request that the server received, and the time since the start.
#[derive(Debug)]
struct Asked {
    method: Method,
    path: String,
    body: Value,
    at: Duration,
    /// The time since the start in whole seconds.
    after: u64,
}

impl World {
    fn new() -> Self {
        let (service, server) = mock::pair::<Request<Body>, Response<Body>>();
        let (client, identity) = (Client::new(service, "default"), "web_1".to_owned());
        let outcomes = Metrics::new("server", &[]).kubernetes_events;
        let (publisher, task) = start(client, identity, outcomes.clone());
        Self { publisher, task, outcomes, server, started: Instant::now() }
    }

    fn tell(&self, namespace: Option<&str>, name: &str, note: &str) {
        let regarding = Identity::of::<Pod>(namespace.map(str::to_owned), name.into(), format!("uid-{name}"));
        self.publisher.publish(Occurrence::new(regarding, &"vif".into(), true, "QuotaExceeded", (note, "")));
    }

    /// Returns the number of Events with this outcome.
    fn count(&self, outcome: &str) -> u64 {
        self.outcomes.with(&[outcome]).get()
    }

    /// Receives the next request and responds with this code and body.
    async fn answer(&mut self, code: u16, answer: &Value) -> Asked {
        let (asked, reply) = self.server.next_request().await.expect("it asks");
        let at = self.started.elapsed();
        let (parts, body) = asked.into_parts();
        let body = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
        let answer = Body::from(serde_json::to_vec(answer).unwrap());
        reply.send_response(Response::builder().status(code).body(answer).unwrap());
        Asked { method: parts.method, path: parts.uri.path().to_owned(), body, at, after: at.as_secs() }
    }

    async fn done(&mut self) -> Asked {
        let event = json!({ "metadata": {}, "involvedObject": {}, "eventTime": null });
        self.answer(200, &event).await
    }

    /// Returns `true` if no request arrives within a day.
    async fn is_quiet(&mut self) -> bool {
        let day = Duration::from_secs(24 * 3600);
        tokio::time::timeout(day, self.server.next_request()).await.is_err()
    }
}

fn refusal(code: u16, details: &Value) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "No",
        "message": "no", "details": details })
}

#[tokio::test(start_paused = true)]
async fn an_event_is_created_through_events_v1_and_updated_through_core_v1() {
    let mut world = World::new();
    world.tell(Some("shop"), "web", "no port left");
    let made = world.done().await;
    assert_eq!((made.method, &*made.path), (Method::POST, "/apis/events.k8s.io/v1/namespaces/shop/events"));
    let event = &made.body;
    assert_eq!((&event["apiVersion"], &event["kind"]), (&json!("events.k8s.io/v1"), &json!("Event")));
    let name = event["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web.") && event["metadata"]["namespace"] == "shop");
    let regarding =
        json!({ "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "uid-web" });
    assert_eq!(event["regarding"], regarding);
    for (field, value) in [
        ("type", "Warning"),
        ("reason", "QuotaExceeded"),
        ("action", "vif"),
        ("note", "no port left"),
        ("reportingController", "staffetta.dev/controller"),
        ("reportingInstance", "web_1"),
    ] {
        assert_eq!(event[field], value, "{field}");
    }
    assert!(event["eventTime"].as_str().unwrap().ends_with('Z') && event["series"].is_null());

    world.tell(Some("shop"), "web", "still no port left");
    world.tell(Some("shop"), "web", "still no port left at all");
    let updated = world.done().await;
    assert_eq!((updated.method, updated.after), (Method::PATCH, 60));
    assert_eq!(updated.path, format!("/api/v1/namespaces/shop/events/{name}"));
    assert_eq!(updated.body["message"], "still no port left at all");
    assert_eq!(updated.body["series"]["count"], 3);
    assert!(updated.body["series"]["lastObservedTime"].is_string());
    assert_eq!(updated.body.as_object().unwrap().len(), 2, "nothing else is touched");
    assert!(world.is_quiet().await);
    assert_eq!((world.count("created"), world.count("updated")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_cluster_scoped_object_are_in_the_namespace_default() {
    let mut world = World::new();
    world.tell(None, "node", "");
    assert_eq!(world.done().await.path, "/apis/events.k8s.io/v1/namespaces/default/events");
}

#[tokio::test(start_paused = true)]
async fn an_expired_event_is_created_again_with_its_count() {
    let mut world = World::new();
    world.tell(Some("shop"), "web", "one");
    let made = world.done().await;
    world.tell(Some("shop"), "web", "two");
    world.answer(404, &refusal(404, &json!({}))).await;
    let again = world.done().await;
    assert_eq!((again.method, &again.body["note"]), (Method::POST, &json!("two")));
    assert_eq!(again.body["series"]["count"], 2);
    assert_eq!(again.body["metadata"]["name"], made.body["metadata"]["name"]);
    assert_eq!(again.body["eventTime"], made.body["eventTime"]);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_write_is_repeated_every_five_minutes_and_logged_once() {
    let logged = CapturedLog::start();
    let mut world = World::new();
    world.tell(Some("shop"), "web", "no port left");
    let mut asked = Vec::new();
    for _ in 0..4 {
        asked.push(world.answer(403, &refusal(403, &json!({}))).await.after);
    }
    assert_eq!(asked, [0, 300, 600, 900]);
    assert_eq!(logged.with("cannot write Kubernetes Events").len(), 1);
    assert_eq!(world.done().await.after, 1200);
    assert!(world.is_quiet().await);
    assert_eq!(logged.with("Kubernetes Events are written again").len(), 1);
    assert_eq!(world.count("failed"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_forbids_events_delays_those_of_no_other() {
    let mut world = World::new();
    let logged = CapturedLog::start();
    for name in ["a", "b"] {
        world.tell(Some("full"), name, "no port left");
    }
    assert_eq!(world.answer(403, &refusal(403, &json!({}))).await.after, 0);
    world.tell(Some("shop"), "web", "no port left");
    let done = world.done().await;
    assert_eq!((&*done.path, done.after), ("/apis/events.k8s.io/v1/namespaces/shop/events", 0));
    let mut later = Vec::new();
    for _ in 0..2 {
        let done = world.done().await;
        assert_eq!(done.path, "/apis/events.k8s.io/v1/namespaces/full/events");
        later.push(done.after);
    }
    assert_eq!(later, [300, 300], "nothing is lost");
    assert!(world.is_quiet().await);
    assert_eq!((world.count("failed"), world.count("created")), (1, 3));
    let warned = logged.with("cannot write Kubernetes Events");
    assert_eq!((warned.len(), &warned[0]["namespace"]), (1, &json!("full")));
}

#[tokio::test(start_paused = true)]
async fn a_terminating_or_missing_namespace_discards_its_events_and_delays_no_other() {
    let mut world = World::new();
    let ending = json!({ "causes": [{ "reason": "NamespaceTerminating", "field": "metadata.namespace" }] });
    for (name, code, details) in [("web", 403, ending), ("db", 404, json!({})), ("x", 422, json!({}))] {
        world.tell(Some("shop"), name, "no port left");
        assert_eq!(world.answer(code, &refusal(code, &details)).await.after, 0);
    }
    world.tell(Some("other"), "web2", "no port left");
    assert_eq!(world.done().await.after, 0);
    assert!(world.is_quiet().await);
    assert_eq!(world.count("refused"), 3);
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_repeated_with_growing_delays_and_nothing_is_lost() {
    let mut world = World::new();
    world.tell(Some("shop"), "web", "one");
    let mut asked = Vec::new();
    for code in [500, 503, 429, 504] {
        asked.push(world.answer(code, &refusal(code, &json!({}))).await.at);
        world.tell(Some("shop"), "web", "more");
    }
    asked.push(world.answer(429, &refusal(429, &json!({ "retryAfterSeconds": 30 }))).await.at);
    let done = world.done().await;
    // The shortest wait is a second, less a quarter. One token a minute after the first five: the object's own limit holds for
    // what fails too.
    let waits: Vec<_> = asked.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    assert!(waits.iter().all(|wait| *wait >= Duration::from_millis(750)), "{waits:?}");
    assert!(done.at >= asked[4] + Duration::from_secs(30));
    assert_eq!((done.body["series"]["count"].clone(), done.body["note"].clone()), (json!(5), json!("more")));
    assert!(world.is_quiet().await);

    // Those of several objects are not limited for each object.
    let (mut world, mut asked) = (World::new(), Vec::new());
    for name in ["a", "b", "c", "d"] {
        world.tell(Some("shop"), name, "one");
        asked.push(world.answer(500, &refusal(500, &json!({}))).await.at);
    }
    let waits: Vec<_> = asked.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    assert!(waits.windows(2).all(|pair| pair[1] >= pair[0].mul_f64(1.4)), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_creates_no_second_event() {
    let mut world = World::new();
    world.tell(Some("shop"), "web", "one");
    // It was made, and nobody answers; the connection is let go after ten seconds.
    let (_, silent) = world.server.next_request().await.unwrap();
    let again = world.answer(409, &refusal(409, &json!({}))).await;
    assert!((10..15).contains(&again.after), "{}", again.after);
    let updated = world.done().await;
    assert_eq!((updated.method, &updated.body["message"]), (Method::PATCH, &json!("one")));
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn occurrences_of_too_many_events_are_discarded_and_counted() {
    let world = World::new();
    for number in 0..20_000 {
        world.tell(Some("shop"), &format!("web-{number}"), "no port left");
    }
    assert_eq!(world.count("dropped"), 20_000 - 16 * 1024);
}

#[tokio::test(start_paused = true)]
async fn events_that_are_due_are_written_at_the_end() {
    let mut world = World::new();
    for name in ["web", "db", "web"] {
        world.tell(Some("shop"), name, "no port left");
    }
    let draining = tokio::spawn(world.task.drain(Duration::from_secs(2)));
    let mut names = Vec::new();
    while let Some((asked, reply)) = world.server.next_request().await {
        names.push(asked.uri().path().to_owned());
        reply.send_response(Response::new(Body::from(b"{\"metadata\":{}}".to_vec())));
    }
    draining.await.unwrap();
    assert_eq!((names.len(), world.started.elapsed().as_secs()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_a_hanging_request_is_cancelled_after_the_grace_period() {
    let mut world = World::new();
    world.tell(Some("shop"), "web", "no port left");
    let _silent = world.server.next_request().await.unwrap();
    world.task.drain(Duration::from_secs(2)).await;
    assert_eq!(world.started.elapsed().as_secs(), 2);
}
