//! Tests of the drivers named `simulated`: the network outlives a controller that is killed, and its ledger records the created
//! resources.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod capabilities;
mod cni_node;
mod cnitool;
#[path = "../support/collector.rs"]
mod collector;
mod disruptions;
mod killing;
#[path = "../support/kubectl.rs"]
mod kubectl;
mod late;
mod node;
mod plugin;
#[path = "../support/port_forward.rs"]
mod port_forward;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/node.rs"]
mod real_node;
#[path = "../support/disruptions.rs"]
mod support;
mod traces;

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Config};
use process::{Process, eventually};
use serde_json::json;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_memory::MemoryOptions;
use staffetta_memory::http::{Fault, Method, ResourceKind, Server, SimulatedOptions};

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");
const VIF: &str = "openstack.org/kuryr-vif";

/// The number of pods, and of those waiting for an answer when the controller is killed.
const PODS: usize = 12;
const WAITING: usize = 5;

/// A network in which ports are active at once, and a client for it.
fn network() -> (Server, staffetta_memory::http::Client) {
    let memory = MemoryOptions { activation_delay_ms: 0, ..MemoryOptions::default() };
    let options =
        staffetta_memory::http::ServerOptions { memory, ..staffetta_memory::http::ServerOptions::default() };
    let server = Server::start(&options).unwrap();
    let options = SimulatedOptions { url: server.url().into(), ..SimulatedOptions::default() };
    (server, staffetta_memory::http::Client::new(&options).unwrap())
}

/// Options of `[leader_election]`: there is none.
const ALONE: &str = "enabled = false\n";

/// The options of a controller whose pods live in the network at `url`; `election` are those of `[leader_election]`.
fn options(url: &str, election: &str) -> String {
    format!(
        "[kubernetes]\nenabled_handlers = [\"vif\"]\npod_project_driver = \"simulated\"\n\
         pod_subnets_driver = \"simulated\"\npod_security_groups_driver = \"simulated\"\n\
         pod_vif_driver = \"simulated\"\n[simulated]\nurl = \"{url}\"\n\
         [leader_election]\n{election}"
    )
}

async fn annotated(pods: &Api<Pod>) -> usize {
    let listed = pods.list(&ListParams::default()).await.unwrap();
    let has_vif = |pod: &&Pod| pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(VIF));
    listed.iter().filter(has_vif).count()
}

#[tokio::test]
async fn a_controller_that_is_killed_while_ports_are_made_makes_none_of_them_twice() {
    let (network, client) = network();
    let server = ApiServer::start(Options::default()).await.unwrap();
    let pods = Api::<Pod>::namespaced(
        Client::try_from(Config::new(server.url().parse().unwrap())).unwrap(),
        "default",
    );
    for number in 0..PODS {
        let pod = json!({ "metadata": { "name": format!("web-{number}") },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    client.inject(Method::RequestVif, WAITING, &Fault::DoneThenHang).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (program, configuration) = (Path::new(PROGRAM), options(network.url(), ALONE));
    let first = Process::start(program, folder.path(), &configuration, &server.kubeconfig()).await;
    eventually("all ports are made", async || client.ports().await.unwrap().len() == PODS).await;
    eventually("all other pods have theirs", async || annotated(&pods).await == PODS - WAITING).await;
    drop(first);

    let mut second = Process::start(program, folder.path(), &configuration, &server.kubeconfig()).await;
    second.ready().await;
    eventually("all pods have VIFs", async || annotated(&pods).await == PODS).await;
    let ledger = client.effects().await.unwrap();
    let owners = ledger.owners(ResourceKind::Port);
    assert_eq!(owners.len(), PODS);
    assert!(owners.values().all(|counts| counts.created == 1 && counts.released == 0), "{owners:?}");

    for number in 0..PODS {
        let name = format!("web-{number}");
        pods.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    eventually("all pods are gone", async || {
        pods.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    eventually("all ports are released", async || client.ports().await.unwrap().is_empty()).await;
    assert!(client.effects().await.unwrap().existing(ResourceKind::Port).is_empty());
    assert!(second.terminate().await.success());
}

#[tokio::test]
async fn a_controller_without_its_network_is_not_ready_and_says_so() {
    let (network, _) = network();
    let configuration = options(network.url(), ALONE);
    drop(network);
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut process =
        Process::start(Path::new(PROGRAM), folder.path(), &configuration, &server.kubeconfig()).await;
    process.says("the simulated cloud at `simulated.url` does not answer").await;
    let (code, reasons) = process.get("/readyz").await;
    assert_eq!(code, 503);
    assert!(reasons.contains("driver simulated: "), "{reasons}");
    assert!(process.terminate().await.success());
}
