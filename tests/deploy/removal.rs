//! Tests of `staffetta uninstall`, which frees the objects of a controller.

use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use staffetta_apiserver::{ApiServer, Options};
use tokio::process::Command;

use crate::kubectl::Kubectl;
use crate::process::{Process, SIMULATED, eventually};
use crate::{PROGRAM, folder};

/// One of each kind that has a finalizer of ours, some with one of somebody else too; and the nodes of a device of ours and of one of
/// another installation.
const LEFT: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: web, finalizers: [staffetta.dev/vif, example.com/other]}
spec: {containers: [{name: web, image: 'web:1'}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, finalizers: [staffetta.dev/lb]}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, finalizers: [staffetta.dev/namespace, example.com/other]}
---
apiVersion: v1
kind: Node
metadata: {name: branch-7, labels: {staffetta.dev/handler: app_hosting, staffetta.dev/cluster: east}}
---
apiVersion: v1
kind: Node
metadata: {name: branch-8, labels: {staffetta.dev/handler: app_hosting, staffetta.dev/cluster: west}}
---
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {staffetta.dev/handler: prefix_ip, staffetta.dev/cluster: east}}
---
apiVersion: cisco.vk/v1alpha1
kind: CiscoDevice
metadata: {name: branch-7, finalizers: [cisco.vk/device-cleanup]}
spec: {driver: XE, address: 192.0.2.1}
";

/// Runs the command with these arguments, and returns what it printed. Of the handlers of the objects above, only `vif` is enabled; the
/// others were before.
async fn uninstall(home: &Path, arguments: &[&str]) -> Result<String, String> {
    let configuration = SIMULATED.replacen(
        "[kubernetes]",
        "[kubernetes]\ncluster_id = \"east\"\nenabled_handlers = [\"vif\"]",
        1,
    );
    let file = home.join("staffetta.toml");
    fs::write(&file, configuration).unwrap();
    let mut command = Command::new(PROGRAM);
    command.arg("uninstall").args(arguments).arg("--config").arg(&file);
    let ran = command.arg("--kubeconfig").arg(home.join("kubeconfig")).output().await.unwrap();
    let [printed, said] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    if ran.status.success() { Ok(printed) } else { Err(said) }
}

async fn devices(client: &Client) -> Api<DynamicObject> {
    eventually("the kind CiscoDevice is served", async || {
        client.list_api_group_resources("cisco.vk/v1alpha1").await.is_ok()
    })
    .await;
    let kind = GroupVersionKind::gvk("cisco.vk", "v1alpha1", "CiscoDevice");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

#[tokio::test]
async fn finalizers_and_virtual_nodes_of_ours_are_removed_and_those_of_others_stay_with_kubectl() {
    let (server, home) = (ApiServer::start(Options::default()).await.unwrap(), tempfile::tempdir().unwrap());
    let kubeconfig = home.path().join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let kubectl = Kubectl::find(&kubeconfig, "default");
    let client = staffetta::connect::client(Some(&kubeconfig), None).await.unwrap();
    kubectl.apply(&fs::read_to_string(folder().join("chart/files/ciscodevices.yaml")).unwrap()).await;
    let devices = devices(&client).await;
    kubectl.apply(LEFT).await;

    let listed = uninstall(home.path(), &[]).await.unwrap();
    assert_eq!(listed.matches("would be removed").count(), 5, "{listed}");
    let pods = Api::<Pod>::default_namespaced(client.clone());
    assert_eq!(pods.get("web").await.unwrap().finalizers().len(), 2, "nothing was changed");

    let done = uninstall(home.path(), &["--apply"]).await.unwrap();
    for row in ["Pod ", "Service ", "Namespace ", "CiscoDevice ", "Node "] {
        assert_eq!(done.lines().filter(|line| line.starts_with(row)).count(), 1, "{row}: {done}");
    }
    assert!(!uninstall(home.path(), &["--apply"]).await.unwrap().contains("is removed"), "it is done");

    let pod = Api::<Pod>::default_namespaced(client.clone()).get("web").await.unwrap();
    assert_eq!(pod.finalizers(), ["example.com/other"]);
    let service = Api::<Service>::default_namespaced(client.clone()).get("web").await.unwrap();
    assert!(service.finalizers().is_empty(), "{:?}", service.finalizers());
    let namespace = Api::<Namespace>::all(client.clone()).get("shop").await.unwrap();
    assert_eq!(namespace.finalizers(), ["example.com/other"]);
    let device = devices.get("branch-7").await.unwrap();
    assert!(device.finalizers().is_empty(), "{:?}", device.finalizers());
    let nodes = Api::<Node>::all(client);
    assert!(
        nodes.get_opt("branch-7").await.unwrap().is_none()
            && nodes.get_opt("branch-8").await.unwrap().is_some()
            && nodes.get_opt("node-1").await.unwrap().is_some()
    );
}

#[tokio::test]
async fn finalizers_stay_while_a_controller_runs_that_would_add_them_again() {
    let (server, home) = (ApiServer::start(Options::default()).await.unwrap(), tempfile::tempdir().unwrap());
    fs::write(home.path().join("kubeconfig"), server.kubeconfig()).unwrap();
    let place = home.path().join("controller");
    fs::create_dir(&place).unwrap();
    let election =
        "[leader_election]\nlease_duration = \"2s\"\nrenew_deadline = \"1s\"\nretry_period = \"200ms\"\n";
    let mut controller = Process::start(PROGRAM.as_ref(), &place, election, &server.kubeconfig()).await;
    controller.ready().await;
    let refused = uninstall(home.path(), &["--apply"]).await.unwrap_err();
    assert!(refused.contains("a controller runs") && refused.contains("--stop"), "{refused}");
    assert!(controller.terminate().await.success());
    uninstall(home.path(), &["--apply"]).await.unwrap();
}

#[tokio::test]
async fn a_replica_that_still_holds_the_lease_of_a_virtual_node_is_waited_for() {
    let (server, home) = (ApiServer::start(Options::default()).await.unwrap(), tempfile::tempdir().unwrap());
    let kubeconfig = home.path().join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let client = staffetta::connect::client(Some(&kubeconfig), None).await.unwrap();
    let leases = Api::<Lease>::namespaced(client, "kube-node-lease");
    for (name, cluster) in [("vnode.base-1", "east"), ("vnode.base-2", "west")] {
        let labels = json!({ "staffetta.dev/handler": "vnode", "staffetta.dev/cluster": cluster });
        let lease = json!({ "metadata": { "name": name, "labels": labels },
            "spec": { "holderIdentity": "replica-2", "leaseDurationSeconds": 400 } });
        leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    }
    let renewed = async |holder: &str| {
        let patch =
            json!({ "spec": { "holderIdentity": holder, "renewTime": format!("{:.6}", Timestamp::now()) } });
        leases.patch("vnode.base-1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };

    let refused = uninstall(home.path(), &["--apply"]);
    tokio::pin!(refused);
    let refused = loop {
        tokio::select! {
            refused = &mut refused => break refused.unwrap_err(),
            () = tokio::time::sleep(Duration::from_millis(200)) => renewed("replica-2").await,
        }
    };
    assert!(refused.contains("a controller runs (replica-2)"), "{refused}");

    // With --stop, it waits for the end of the replica.
    let stopped = uninstall(home.path(), &["--apply", "--stop", "staffetta"]);
    tokio::pin!(stopped);
    let waits = tokio::time::timeout(Duration::from_secs(3), &mut stopped).await;
    assert!(waits.is_err(), "{waits:?}");
    renewed("").await;
    stopped.await.unwrap();
}
