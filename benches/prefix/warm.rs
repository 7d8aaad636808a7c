//! The time from the event of a pod to its address, seen by a client of the API server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{from_value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_memory::MemoryPrefixes;
use tokio::time::{Instant, sleep};

use crate::report::{Row, median, milliseconds, number};

const ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

pub(crate) async fn measure() -> Vec<Row> {
    let server = ApiServer::start(Options::default()).await.expect("the server starts");
    let client = client(&server);
    let cloud = Arc::new(MemoryPrefixes::default());
    cloud.add_subnet(&"subnet".into(), "10.0.0.0/16".parse().expect("it is a subnet"));
    cloud.add_machine(&"i-win".into(), &"subnet".into(), 50, true);
    let map: ConfigMap = from_value(json!({
        "metadata": { "name": "amazon-vpc-cni" },
        "data": { "enable-windows-ipam": "true", "enable-windows-prefix-delegation": "true", "minimum-ip-target": "640" },
    }))
    .expect("it is a ConfigMap");
    let maps = Api::namespaced(client.clone(), "kube-system");
    maps.create(&PostParams::default(), &map).await.expect("it is created");
    let node: Node = from_value(json!({
        "metadata": { "name": "win", "labels": { "kubernetes.io/os": "windows" } },
        "spec": { "providerID": "aws:///a/i-win" },
    }))
    .expect("it is a Node");
    Api::all(client.clone()).create(&PostParams::default(), &node).await.expect("it is created");

    let pods = number("STAFFETTA_BENCH_PODS", 200);
    let bare = tokio::spawn(bare_patches(client.clone()));
    let baseline = times(&client, pods).await;
    bare.abort();
    let controller = controller(&client, &cloud).await;
    // All targets hold, so that no call is on the way.
    while cloud.blocks().len() < 40 {
        sleep(Duration::from_millis(20)).await;
    }
    sleep(Duration::from_secs(1)).await;
    let before = cloud.calls();
    let ours = times(&client, pods).await;
    let calls = cloud.calls().assign - before.assign;
    controller.stop().await.expect("it stops");
    let (ours, baseline) = (median(ours), median(baseline));
    vec![
        Row::new("a pod's address after its event, median", "ms", ours)
            .against(baseline)
            .goal("at most 10 ms more than a bare PATCH", ours <= baseline + 10.0),
        Row::new("calls of the provider meanwhile", "1", calls as f64),
    ]
}

fn client(server: &ApiServer) -> Client {
    Client::try_from(Config::new(server.url().parse().expect("it is a URL"))).expect("a client can be built")
}

async fn controller(client: &Client, cloud: &Arc<MemoryPrefixes>) -> Controller {
    let mut registry = staffetta::assembly::registry();
    staffetta::assembly::interfaces(&mut registry, cloud);
    let schema = FileSchema::assemble(&registry).expect("the schema is valid");
    let options = [
        ("KUBERNETES__ENABLED_HANDLERS", "[\"prefix_ip\"]"),
        ("ADMIN__LISTEN", "127.0.0.1:0"),
        ("LEADER_ELECTION__ENABLED", "false"),
    ];
    let variables = options.map(|(option, value)| (format!("STAFFETTA_{option}").into(), value.into()));
    let configuration = Configuration::load(&schema, None, variables).expect("it is valid");
    let mut controller =
        Controller::start(registry, &configuration, client.clone()).await.expect("it starts");
    controller.ready().await.expect("it is ready");
    controller
}

/// Patches each pod as soon as its event arrives, and does nothing else.
async fn bare_patches(client: Client) {
    let pods = Api::<Pod>::namespaced(client, "default");
    let mut watch = pods.watch(&WatchParams::default(), "0").await.expect("it is watched").boxed();
    while let Some(Ok(event)) = watch.next().await {
        if let WatchEvent::Added(pod) = event {
            let patch =
                json!({ "metadata": { "uid": pod.uid(), "annotations": { ADDRESS: "10.0.0.1/32" } } });
            let patched =
                pods.patch(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await;
            patched.expect("it is patched");
        }
    }
}

/// Creates pods, one after the other, and returns the time in milliseconds from the event of each to the event of its annotation.
async fn times(client: &Client, count: usize) -> Vec<f64> {
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let mut watch = pods.watch(&WatchParams::default(), "0").await.expect("it is watched").boxed();
    let mut times = Vec::new();
    for number in 0..count {
        let pod: Pod = from_value(json!({
            "metadata": { "name": format!("pod-{number}") },
            "spec": { "nodeName": "win", "containers": [
                { "name": "c", "image": "i", "resources": { "limits": { ADDRESS: "1" }, "requests": { ADDRESS: "1" } } }
            ] },
        }))
        .expect("it is a Pod");
        pods.create(&PostParams::default(), &pod).await.expect("it is created");
        let (mut added, name) = (None, pod.name_any());
        while let Some(Ok(event)) = watch.next().await {
            match event {
                WatchEvent::Added(pod) if pod.name_any() == name => added = Some(Instant::now()),
                WatchEvent::Modified(pod)
                    if pod.name_any() == name && pod.annotations().contains_key(ADDRESS) =>
                {
                    break;
                }
                _ => {}
            }
        }
        times.extend(added.map(|added| milliseconds(added.elapsed())));
    }
    for number in 0..count {
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&format!("pod-{number}"), &now).await.expect("it is deleted");
    }
    times
}
