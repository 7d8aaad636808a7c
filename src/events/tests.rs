use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::Body;
use serde_json::{Value, json};
use tower_test::mock::{self, Handle};

use super::*;
use crate::testing::Logged;

/// A recorder and the server that it asks.
struct World {
    recorder: Recorder,
    recording: Recording,
    server: Handle<Request<Body>, Response<Body>>,
    started: Instant,
}

/// A request, and how long after the start it came.
#[derive(Debug)]
struct Asked {
    method: Method,
    path: String,
    body: Value,
    at: Duration,
    /// The same in whole seconds.
    after: u64,
}

impl World {
    fn new() -> Self {
        let (service, server) = mock::pair::<Request<Body>, Response<Body>>();
        let (client, identity) = (Client::new(service, "default"), "web_1".to_owned());
        let (recorder, recording) = record(client, identity, Arc::default());
        Self { recorder, recording, server, started: Instant::now() }
    }

    /// How often it came to this.
    fn count(&self, result: &str) -> u64 {
        let counts = self.recorder.counts.counts();
        counts.iter().find(|(name, _)| *name == result).unwrap().1
    }

    fn tell(&self, namespace: Option<&str>, name: &str, note: &str) {
        let regarding = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            uid: Some(format!("uid-{name}")),
            ..ObjectReference::default()
        };
        let action = "vif".into();
        self.recorder.tell(Notice::new(regarding, Weight::Warning, "QuotaExceeded", &action, (note, "")));
    }

    /// Takes the next request, and answers it as said; an empty object stands for any good answer.
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

    /// Whether it asks nothing for a day.
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
async fn an_event_is_made_through_the_newer_group_and_brought_up_to_date_through_the_older() {
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
async fn what_is_said_of_an_object_without_a_namespace_is_kept_in_the_default_one() {
    let mut world = World::new();
    world.tell(None, "node", "");
    assert_eq!(world.done().await.path, "/apis/events.k8s.io/v1/namespaces/default/events");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_server_has_forgotten_is_made_anew_under_its_count() {
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
async fn without_the_right_to_it_asks_every_five_minutes_warns_once_and_says_when_it_is_over() {
    let logged = Logged::start();
    let mut world = World::new();
    world.tell(Some("shop"), "web", "no port left");
    let mut asked = Vec::new();
    for _ in 0..4 {
        asked.push(world.answer(403, &refusal(403, &json!({}))).await.after);
    }
    assert_eq!(asked, [0, 300, 600, 900]);
    assert_eq!(logged.with("Kubernetes Events cannot be sent").len(), 1);
    assert_eq!(world.done().await.after, 1200);
    assert!(world.is_quiet().await);
    assert_eq!(logged.with("Kubernetes Events are sent again").len(), 1);
    assert_eq!(world.count("failed"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_takes_no_event_holds_up_those_of_no_other() {
    let mut world = World::new();
    let logged = Logged::start();
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
    let warned = logged.with("Kubernetes Events cannot be sent");
    assert_eq!((warned.len(), &warned[0]["namespace"]), (1, &json!("full")));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_ends_or_is_gone_takes_no_event_and_holds_up_no_other() {
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
async fn while_the_server_is_in_trouble_it_is_left_in_peace_and_nothing_is_lost() {
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
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_got_lost_makes_no_second_event() {
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
async fn whoever_tells_never_waits_and_what_is_too_much_is_counted() {
    let world = World::new();
    for number in 0..3000 {
        world.tell(Some("shop"), &format!("web-{number}"), "no port left");
    }
    assert_eq!(world.count("dropped"), 3000 - 1024);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_is_due_is_sent() {
    let mut world = World::new();
    for name in ["web", "db", "web"] {
        world.tell(Some("shop"), name, "no port left");
    }
    let draining = tokio::spawn(world.recording.drain(Duration::from_secs(2)));
    let mut names = Vec::new();
    while let Some((asked, reply)) = world.server.next_request().await {
        names.push(asked.uri().path().to_owned());
        reply.send_response(Response::new(Body::from(b"{\"metadata\":{}}".to_vec())));
    }
    draining.await.unwrap();
    assert_eq!((names.len(), world.started.elapsed().as_secs()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_a_silent_server_is_waited_for_no_longer_than_the_grace() {
    let mut world = World::new();
    world.tell(Some("shop"), "web", "no port left");
    let _silent = world.server.next_request().await.unwrap();
    world.recording.drain(Duration::from_secs(2)).await;
    assert_eq!(world.started.elapsed().as_secs(), 2);
}
