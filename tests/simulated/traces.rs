//! Traces of the handling of events: `[traces]`.

use std::collections::BTreeSet;
use std::path::Path;

use axum::http::{StatusCode, Uri};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::http::{Fault, Method};

use crate::collector::{Collector, attribute, path};
use crate::process::{Process, eventually};
use crate::{ALONE, PROGRAM, VIF, network, options};

const PROJECT: &str = "0a1b2c3d00004000800000000000000a";
const SUBNET: &str = "0a1b2c3d-0000-4000-8000-00000000000b";

/// A cluster with a pod, and a client for its pods.
async fn cluster() -> (ApiServer, Api<Pod>) {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let pods = Api::<Pod>::namespaced(client, "default");
    let pod = json!({ "metadata": { "name": "web" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    (server, pods)
}

/// Ends when the pod has its VIF.
async fn connected(pods: &Api<Pod>) {
    eventually("the pod has its VIF", async || {
        pods.get("web").await.unwrap().metadata.annotations.is_some_and(|all| all.contains_key(VIF))
    })
    .await;
}

#[tokio::test]
async fn a_trace_shows_the_way_of_an_event_from_the_queue_to_the_write() {
    let ((network, client), (server, pods), collector) =
        (network(), cluster().await, Collector::start().await);
    let busy = Fault::Fail(DriverError::new(Reason::Unavailable, "request a VIF"));
    client.inject(Method::RequestVif, 1, &busy).await.unwrap();
    let traces = format!("[traces]\notlp_endpoint = \"{}\"\nsample_ratio = 1\n", collector.url());
    let traces = traces + "[log]\nlevel = \"trace\"\n";
    let configuration = options(network.url(), ALONE) + &traces;
    let folder = tempfile::tempdir().unwrap();
    let mut process =
        Process::start(Path::new(PROGRAM), folder.path(), &configuration, &server.kubeconfig()).await;
    connected(&pods).await;
    assert!(process.terminate().await.success());

    let roots = collector.roots("web");
    let added = roots.iter().find(|root| attribute(root, "change") == "Added").expect("it was added");
    assert_eq!(
        (added.name.as_str(), attribute(added, "k8s.namespace.name").as_str()),
        ("vif: Pod", "default")
    );
    let trace = collector.trace(added);
    let paths: BTreeSet<_> = trace.iter().map(|span| path(&trace, span)).collect();
    let expected = [
        "vif: Pod",
        "vif: Pod > queue",
        "vif: Pod > handle",
        "vif: Pod > handle > attempt",
        "vif: Pod > handle > attempt > HTTP",
        "vif: Pod > handle > attempt > find the project of a pod",
        "vif: Pod > handle > attempt > find the security groups of a pod",
        "vif: Pod > handle > attempt > find the subnets of a pod",
        "vif: Pod > handle > attempt > request a VIF",
    ];
    assert_eq!(paths.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected.into());
    let write = trace.iter().find(|span| span.name == "HTTP").unwrap();
    assert_eq!(attribute(write, "http.method"), "PATCH");
    let attempts = trace.iter().filter(|span| span.name == "attempt").count();
    assert_eq!(attempts, 2, "the first one failed");
    let entries: Vec<_> = trace.iter().map(|span| format!("{:?}", span.events)).collect();
    assert!(
        !entries.concat().contains("DEBUG"),
        "such entries are in the log, and not in traces: {entries:?}"
    );
    let queue = trace.iter().find(|span| span.name == "queue").unwrap();
    assert_eq!(queue.start_time_unix_nano, added.start_time_unix_nano);
    assert!(trace.iter().all(|span| span.end_time_unix_nano <= added.end_time_unix_nano));
    // Requests of the watches, for example, are no part of the handling of an event.
    let orphans = collector.spans().into_iter().filter(|span| span.parent_span_id.is_empty());
    assert!(orphans.into_iter().all(|span| !attribute(&span, "handler").is_empty()));
}

#[tokio::test]
async fn without_a_collector_or_without_samples_everything_is_handled_all_the_same() {
    let collector = Collector::start().await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = (format!("http://{}", silent.local_addr().unwrap()), silent);
    for (url, ratio) in [("http://127.0.0.1:1".to_owned(), 1), (silent.0.clone(), 1), (collector.url(), 0)] {
        let ((network, _), (server, pods)) = (network(), cluster().await);
        let traces = format!("[traces]\notlp_endpoint = \"{url}\"\nsample_ratio = {ratio}\n");
        let configuration = options(network.url(), ALONE) + &traces;
        let folder = tempfile::tempdir().unwrap();
        let mut process =
            Process::start(Path::new(PROGRAM), folder.path(), &configuration, &server.kubeconfig()).await;
        connected(&pods).await;
        assert!(process.terminate().await.success());
    }
    assert_eq!(collector.spans(), []);
}

/// All spans in the file of the real collector, each with the attributes of its resource.
fn collected(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    // The last line may be incomplete.
    let documents = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut spans = Vec::new();
    for of_resource in documents.flat_map(|document| list(&document["resourceSpans"])) {
        for mut span in list(&of_resource["scopeSpans"]).iter().flat_map(|scope| list(&scope["spans"])) {
            span["resource"] = of_resource["resource"].clone();
            spans.push(span);
        }
    }
    spans
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// The value of an attribute of a span or resource in JSON; empty without the attribute.
fn text_of(value: &Value, name: &str) -> String {
    let attributes = list(&value["attributes"]);
    let found = attributes.iter().find(|attribute| attribute["key"] == name);
    let value = found.map(|found| found["value"].clone()).unwrap_or_default();
    let text = value["stringValue"].as_str().or(value["intValue"].as_str());
    text.unwrap_or_default().to_owned()
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector: devstack/real/test"]
async fn a_request_id_of_openstack_can_be_traced_to_its_pod_on_a_real_collector() {
    let folder = std::env::var("STAFFETTA_REAL_COLLECTOR").expect("run this test by devstack/real/test");
    let ports = std::fs::read_to_string(format!("{folder}/ports")).unwrap();
    let port = ports.trim().strip_prefix("PORT=").unwrap();
    // A Neutron that has no ports and is out of order.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let neutron = format!("http://{}", listener.local_addr().unwrap());
    let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
    let busy = async move |uri: Uri| {
        let _ = asked.send(uri.path().to_owned());
        (StatusCode::SERVICE_UNAVAILABLE, [("x-openstack-request-id", "req-4711")])
    };
    let ports = get(async || Json(json!({ "ports": [] })));
    let extensions = get(async || Json(json!({ "extensions": [] })));
    let router =
        Router::new().route("/v2.0/ports", ports).route("/v2.0/extensions", extensions).fallback(busy);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let configuration = format!(
        "[kubernetes]\nenabled_handlers = [\"vif\"]\npod_vif_driver = \"neutron-vif\"\n[leader_election]\n{ALONE}\
         [neutron]\nauth_type = \"none\"\nendpoint_override = \"{neutron}\"\n\
         [neutron_defaults]\nproject = \"{PROJECT}\"\npod_subnet = \"{SUBNET}\"\n\
         [traces]\notlp_endpoint = \"http://127.0.0.1:{port}\"\nsample_ratio = 1\n"
    );
    let (server, _) = cluster().await;
    let place = tempfile::tempdir().unwrap();
    let mut process =
        Process::start(Path::new(PROGRAM), place.path(), &configuration, &server.kubeconfig()).await;
    while !asks.recv().await.unwrap().ends_with(SUBNET) {}
    process.terminate().await;

    let mut spans = Vec::new();
    let is_root = |span: &Value| {
        span["parentSpanId"].as_str().unwrap_or_default().is_empty()
            && text_of(span, "k8s.object.name") == "web"
    };
    eventually("the trace is in the file", async || {
        spans = collected(&Path::new(&folder).join("traces.json"));
        spans.iter().any(is_root)
    })
    .await;
    let root = spans.iter().find(|span| is_root(span)).unwrap();
    assert_eq!((&root["name"], text_of(root, "change").as_str()), (&json!("vif: Pod"), "Added"));
    assert_eq!(text_of(&root["resource"], "service.name"), "staffetta");
    let request = spans
        .iter()
        .find(|span| span["traceId"] == root["traceId"] && text_of(span, "request_id") == "req-4711");
    let request = request.expect("the request is in the trace of the pod");
    assert_eq!(text_of(&request["resource"], "service.name"), "staffetta");
    assert_eq!(text_of(request, "http.response.status_code"), "503");
    assert!(text_of(request, "global_request_id").starts_with("req-"));
    for span in &spans {
        let mut names = BTreeSet::new();
        let twice: Vec<_> = list(&span["attributes"])
            .into_iter()
            .filter(|one| !names.insert(one["key"].to_string()))
            .collect();
        assert_eq!(twice, Vec::<Value>::new(), "{}", span["name"]);
    }
    let mut way = Vec::new();
    let mut at = Some(request);
    while let Some(span) = at {
        way.push(span["name"].as_str().unwrap());
        at = spans.iter().find(|parent| parent["spanId"] == span["parentSpanId"]);
    }
    assert!(way[1..].ends_with(&["attempt", "handle", "vif: Pod"]), "{way:?}");
}
