//! The responses of the admin server.

use std::net::SocketAddr;

use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use staffetta::controller::Controller;
use staffetta_apiserver::Requests;
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::{Fault, LoadBalancerMethod, VifMethod};

use crate::exposition::Exposition;
use crate::world::{World, active};

/// A client. reqwest requires a TLS provider even for plain HTTP.
fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// The status code and the body of a response of the admin server.
pub(crate) async fn get(admin: SocketAddr, path: &str) -> (u16, String) {
    let answer = client().get(format!("http://{admin}{path}")).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// The response of `/debug/state`.
async fn state(controller: &Controller, query: &str) -> Value {
    let (code, body) = get(controller.admin(), &format!("/debug/state{query}")).await;
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// The metrics at `/metrics`.
pub(crate) async fn metrics(controller: &Controller) -> Exposition {
    let answer = client().get(format!("http://{}/metrics", controller.admin())).send().await.unwrap();
    let form = answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    assert_eq!(form, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    Exposition::read(&answer.text().await.unwrap())
}

fn fails(reason: Reason) -> Fault {
    Fault::Fail(DriverError::new(reason, "request a VIF"))
}

const QUICK: &str = "[relay]\nretry_interval = \"20ms\"\nretry_max_interval = \"50ms\"\n";

#[tokio::test]
async fn readyz_lists_each_condition_on_a_line() {
    let world = World::new().await;
    world.vifs.faults().inject(VifMethod::List, 1000, fails(Reason::Unavailable));
    let mut controller = world.starting_controller().await;
    let admin = controller.admin();
    let verbose = async || get(admin, "/readyz?verbose").await;
    world
        .until("the pods are listed while the marks cannot be read", async || {
            verbose().await.1.contains("[+]watch Pod ok\n")
        })
        .await;
    let (code, lines) = verbose().await;
    assert_eq!(code, 503, "{lines}");
    assert!(lines.contains("[-]handler vif: the ownership marks are not read yet\n"), "{lines}");
    assert!(
        lines.contains("[+]handler lbaasspec ok\n") && lines.ends_with("readyz check failed\n"),
        "{lines}"
    );
    let (code, reasons) = get(controller.admin(), "/readyz").await;
    assert_eq!((code, reasons.lines().next()), (503, Some("not ready")));
    assert!(reasons.contains("handler vif: the ownership marks are not read yet\n"), "{reasons}");
    assert_eq!(metrics(&controller).await.count("staffetta_ready", &[]), 0);
    let handlers = state(&controller, "").await["handlers"].clone();
    let vif = handlers.as_array().unwrap().iter().find(|handler| handler["name"] == "vif").unwrap();
    assert_eq!(
        (&vif["open"], &vif["waits"]),
        (&json!(false), &json!(["the ownership marks are not read yet"]))
    );

    world.vifs.faults().clear();
    tokio::time::timeout(std::time::Duration::from_secs(30), controller.ready()).await.unwrap().unwrap();
    let (code, lines) = verbose().await;
    assert_eq!(code, 200, "{lines}");
    assert!(lines.contains("[+]handler vif ok\n") && lines.ends_with("readyz check passed\n"), "{lines}");
    assert!(!lines.contains("[-]"), "{lines}");
    assert_eq!(get(controller.admin(), "/readyz").await, (200, "ok\n".into()));
    assert_eq!(metrics(&controller).await.count("staffetta_ready", &[]), 1);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_failing_object_is_shown_with_its_error_until_it_is_handled() {
    let world = World::with(QUICK).await;
    world.vifs.faults().inject(VifMethod::Request, 1000, fails(Reason::Quota));
    let controller = world.controller().await;
    let pod = world.pod("web", json!({}), json!({})).await;
    let mut shown = Value::Null;
    world
        .until("the pod is shown to be retried", async || {
            shown = state(&controller, "?namespace=default&name=web&kind=pod&handler=vif").await["objects"]
                [0]
            .clone();
            shown["lastError"]["attempts"].as_u64() > Some(2)
        })
        .await;
    assert_eq!(
        (&shown["handler"], &shown["kind"], &shown["name"]),
        (&json!("vif"), &json!("Pod"), &json!("web"))
    );
    assert_eq!((&shown["namespace"], &shown["uid"]), (&json!("default"), &json!(pod.metadata.uid.unwrap())));
    assert_eq!(shown["change"], "added");
    assert!(["retrying", "running"].contains(&shown["phase"].as_str().unwrap()), "{shown}");
    let error = shown["lastError"]["error"].as_str().unwrap();
    assert!(error.contains("request a VIF"), "{error}");
    let seconds = |of: &Value| of["sinceSeconds"].as_f64().expect("it is a number");
    assert!(seconds(&shown["lastError"]) >= seconds(&shown), "{shown}");
    let since: jiff::Timestamp = shown["lastError"]["since"].as_str().unwrap().parse().unwrap();
    assert!(since <= jiff::Timestamp::now());

    world.vifs.faults().clear();
    world.vif_of("web", active).await;
    world
        .until("nothing is left to be shown", async || state(&controller, "").await["objects"] == json!([]))
        .await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn the_status_page_shows_the_chain_and_the_failing_objects_without_a_script() {
    let world = World::with(QUICK).await;
    world.vifs.faults().inject(VifMethod::Request, 1000, fails(Reason::Quota));
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    world
        .until("the page names the failing pod, its handler and the error", async || {
            let (code, page) = get(controller.admin(), "/").await;
            assert_eq!(code, 200, "{page}");
            page.contains("Pod default/web") && page.contains("QuotaExceeded: ")
        })
        .await;
    let answer = client().get(format!("http://{}/", controller.admin())).send().await.unwrap();
    assert_eq!(answer.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
    let policy = answer.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert!(answer.text().await.unwrap().contains("<b>vif</b>"));

    world.vifs.faults().clear();
    world.vif_of("web", active).await;
    world
        .until("every object is handled", async || {
            get(controller.admin(), "/").await.1.contains("every object is handled")
        })
        .await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_failed_object_shows_the_time_of_its_next_attempt() {
    let world = World::with(QUICK).await;
    world.vifs.faults().inject(VifMethod::Request, 1000, fails(Reason::Refused));
    let controller = world.controller().await;
    for name in ["a", "b", "c"] {
        world.pod(name, json!({}), json!({})).await;
    }
    world
        .until("all of them have failed", async || {
            state(&controller, "?phase=failed").await["objects"].as_array().unwrap().len() == 3
        })
        .await;
    let answer = state(&controller, "?limit=1&handler=vif").await;
    assert_eq!((answer["objects"].as_array().unwrap().len(), &answer["omitted"]), (1, &json!(2)));
    let failed = &answer["objects"][0];
    assert_eq!(
        (&failed["name"], &failed["phase"]),
        (&json!("a"), &json!("failed")),
        "the oldest comes first"
    );
    let seconds = failed["nextSeconds"].as_f64().unwrap();
    assert!((1.0..=120.0).contains(&seconds), "{failed}");
    let next: jiff::Timestamp = failed["next"].as_str().unwrap().parse().unwrap();
    assert!(next > jiff::Timestamp::now());
    let answer = state(&controller, "?phase=failed&limit=2").await;
    assert_eq!((answer["objects"].as_array().unwrap().len(), &answer["omitted"]), (2, &json!(1)));
    for query in ["?phase=queued", "?namespace=other", "?kind=Service", "?handler=lb"] {
        assert_eq!(state(&controller, query).await["objects"], json!([]), "{query}");
    }
    let page = metrics(&controller).await;
    assert_eq!(page.count("staffetta_objects", &[("handler", "vif"), ("phase", "failed")]), 3);
    assert_eq!(page.count("staffetta_failures_total", &[("handler", "vif"), ("outcome", "permanent")]), 3);
    assert_eq!(get(controller.admin(), "/livez").await, (200, "ok\n".into()), "a failed object harms nobody");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn the_objects_of_all_handlers_are_shown_in_one_order() {
    let world = World::with(QUICK).await;
    world.vifs.faults().inject(VifMethod::Request, 1000, fails(Reason::Refused));
    world.load_balancers.faults().inject(LoadBalancerMethod::Ensure, 1000, fails(Reason::Refused));
    let controller = world.controller().await;
    let shown = async |query: &str| {
        let answer = state(&controller, query).await;
        let objects = answer["objects"].as_array().unwrap().iter();
        let names = objects.map(|object| object["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), answer["omitted"].clone())
    };
    let until_failed = async |names: &[&str]| {
        let all = async || shown("?phase=failed").await.0 == names;
        world.until(&format!("these have failed: {names:?}"), all).await;
    };
    world.pod("first", json!({}), json!({})).await;
    until_failed(&["first"]).await;
    world.service("second", json!({ "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }] })).await;
    world.slice("second", &["10.10.0.5"]).await;
    until_failed(&["first", "second-1"]).await;
    world.pod("third", json!({}), json!({})).await;
    until_failed(&["first", "second-1", "third"]).await;
    let expected = (["first", "second-1"].map(str::to_owned).to_vec(), json!(1));
    assert_eq!(shown("?phase=failed&limit=2").await, expected);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn the_metrics_count_events_requests_and_failures() {
    let world = World::with(QUICK).await;
    world.vifs.faults().inject(VifMethod::Request, 2, fails(Reason::Unavailable));
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    world.vif_of("web", active).await;
    let wrote = async |writes: u64| {
        metrics(&controller).await.count("rest_client_requests_total", &PATCHED) == writes
    };
    world.until("both writes are counted", async || wrote(2).await).await;
    let page = metrics(&controller).await;
    let pod = |change| page.count("staffetta_events_received_total", &[("kind", "Pod"), ("change", change)]);
    assert_eq!((pod("added"), pod("deleted")), (1, 0));
    assert!(pod("modified") >= 1, "the echo of the first write");
    assert_eq!(page.count("staffetta_watched_objects", &[("kind", "Pod")]), 1);
    assert_eq!(page.count("staffetta_lists_total", &[("kind", "Pod")]), 1);
    let vif = |name: &str| page.count(name, &[("name", "vif")]);
    let transient = page.count("staffetta_failures_total", &[("handler", "vif"), ("outcome", "transient")]);
    assert!(transient >= 2, "to wait for a port to become active is one too: {transient}");
    assert_eq!(vif("workqueue_retries_total"), transient);
    assert!(vif("workqueue_adds_total") >= 2 && vif("workqueue_queue_duration_seconds_count") >= 1);
    assert!(vif("workqueue_work_duration_seconds_count") >= 3, "each attempt is measured");
    assert_eq!(
        page.count("rest_client_request_duration_seconds_count", &[("verb", "PATCH"), ("host", "unknown")]),
        2
    );
    assert!(page.value("staffetta_watch_idle_seconds", &[("kind", "Pod")]) < 60.0);

    world.end_pod("web").await;
    world.until_pod_is_gone("web").await;
    world
        .until("the deletion is counted", async || {
            let page = metrics(&controller).await;
            let deleted = &[("kind", "Pod"), ("change", "deleted")];
            page.count("staffetta_events_received_total", deleted) == 1
                && page.count("staffetta_watched_objects", &[("kind", "Pod")]) == 0
        })
        .await;
    assert!(wrote(3).await);
    controller.stop().await.unwrap();
}

const PATCHED: [(&str, &str); 3] = [("method", "PATCH"), ("code", "200"), ("host", "unknown")];

#[tokio::test]
async fn a_garbage_collection_and_its_orphans_are_counted() {
    let world = World::new().await;
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    world.vif_of("web", active).await;
    controller.stop().await.unwrap();
    world.change_pod("web", json!({ "metadata": { "finalizers": null } })).await;
    world.end_pod("web").await;

    let controller = world.controller().await;
    world.until("the port without an owner is released", async || world.ports() == 0).await;
    let page = metrics(&controller).await;
    assert_eq!(page.count("staffetta_garbage_collection_orphans_total", &[("handler", "vif")]), 1);
    assert_eq!(
        page.count("staffetta_garbage_collections_total", &[("handler", "vif"), ("outcome", "success")]),
        1
    );
    let last =
        page.value("staffetta_garbage_collection_last_success_timestamp_seconds", &[("handler", "vif")]);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((now - 60.0..=now).contains(&last), "{last}");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_failed_garbage_collection_is_counted_and_repeated() {
    let world = World::with("[relay]\nsweep_interval = \"1s\"\n").await;
    let controller = world.controller().await;
    let sweeps = async |outcome| {
        metrics(&controller)
            .await
            .count("staffetta_garbage_collections_total", &[("handler", "vif"), ("outcome", outcome)])
    };
    world.until("the first sweep is made", async || sweeps("success").await == 1).await;
    world.vifs.faults().inject(VifMethod::List, 1, fails(Reason::Unavailable));
    world.until("the next one fails", async || sweeps("failure").await == 1).await;
    world.until("and the one after it does not", async || sweeps("success").await >= 2).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_shown_with_the_reason() {
    let world = World::new().await;
    let lists = Requests::any().verb("list").resource("pods");
    world.server.faults().inject(lists, 1, staffetta_apiserver::Fault::undecodable("odd", "/spec"));
    world.pod("odd", json!({}), json!({})).await;
    let controller = world.controller().await;
    let answer = state(&controller, "?name=odd").await;
    let object = &answer["undecodable"][0];
    assert_eq!((&object["kind"], &object["namespace"]), (&json!("Pod"), &json!("default")), "{answer}");
    assert!(object["error"].as_str().unwrap().contains("expected"), "{object}");
    assert_eq!(answer["objects"], json!([]));
    for query in ["?name=other", "?handler=vif", "?phase=failed"] {
        assert_eq!(state(&controller, query).await["undecodable"], json!([]), "{query}");
    }
    let page = metrics(&controller).await;
    assert_eq!(page.count("staffetta_undecodable_objects", &[("kind", "Pod")]), 1);
    assert_eq!(page.count("staffetta_watched_objects", &[("kind", "Pod")]), 1);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn an_invalid_query_is_rejected_with_the_reason() {
    let world = World::new().await;
    let controller = world.controller().await;
    for (query, why) in [
        ("limit=10001", "`limit` is at most 10000"),
        ("limit=many", "invalid digit"),
        (
            "phase=odd",
            "unknown variant `odd`, expected one of `held`, `queued`, `running`, `retrying`, `failed`",
        ),
        ("colour=red", "unknown field `colour`"),
        ("handler=odd", "the handler `odd` is not enabled; those are: `vif`, `lb`, `lbaasspec`"),
    ] {
        let (code, said) = get(controller.admin(), &format!("/debug/state?{query}")).await;
        assert_eq!(code, 400, "{query}");
        assert!(said.contains(why), "{query}: {said}");
    }
    let client = client();
    for path in ["/livez", "/readyz", "/metrics", "/debug/state"] {
        let answer = client.post(format!("http://{}{path}", controller.admin())).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 405, "{path}");
    }
    assert_eq!(get(controller.admin(), "/elsewhere").await.0, 404);
    controller.stop().await.unwrap();
}
