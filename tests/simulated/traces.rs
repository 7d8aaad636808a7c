//! Traces of the handling of events: `[traces]`.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use serde_json::json;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::http::{Fault, Method};

use crate::collector::{Collector, attribute, path};
use crate::process::{Process, eventually};
use crate::{ALONE, PROGRAM, VIF, network, options};

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
    let traces = format!("[traces]\notlp_endpoint = \"{}\"\n", collector.url());
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
