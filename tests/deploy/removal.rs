//! Tests of the instructions in docs/operations.md that remove what a deleted controller left behind.

use std::fs;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use staffetta_apiserver::{ApiServer, Options};
use tokio::process::Command;

use crate::folder;
use crate::kubectl::Kubectl;
use crate::process::eventually;

/// One of each kind that has a finalizer of ours, some with one of somebody else too, and the node of a device.
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
metadata: {name: branch-7, labels: {staffetta.dev/handler: app_hosting}}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: cisco.vk/v1alpha1
kind: CiscoDevice
metadata: {name: branch-7, finalizers: [cisco.vk/device-cleanup]}
spec: {driver: XE, address: 192.0.2.1}
";

/// The commands of the section, as the page shows them.
fn commands() -> Vec<String> {
    let page = fs::read_to_string(folder().join("../../docs/operations.md")).unwrap();
    let (_, section) = page.split_once("\n## Uninstall\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    section
        .split("```")
        .skip(1)
        .step_by(2)
        .map(|block| block.strip_prefix("sh\n").unwrap().to_owned())
        .collect()
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
async fn what_is_left_behind_without_a_controller_is_let_go_as_the_page_says_with_kubectl() {
    let (server, home) = (ApiServer::start(Options::default()).await.unwrap(), tempfile::tempdir().unwrap());
    let kubeconfig = home.path().join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let kubectl = Kubectl::find(&kubeconfig, "default");
    let client = staffetta::connect::client(Some(&kubeconfig)).await.unwrap();
    kubectl.apply(&fs::read_to_string(folder().join("handlers/app_hosting/crd.yaml")).unwrap()).await;
    let devices = devices(&client).await;
    kubectl.apply(LEFT).await;

    let commands = commands();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let script = format!("set -eo pipefail\n{command}");
        let ran = Command::new("bash").arg("-c").arg(&script).env("KUBECONFIG", &kubeconfig).output().await;
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{command}{}", String::from_utf8_lossy(&ran.stderr));
    }

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
            && nodes.get_opt("node-1").await.unwrap().is_some()
    );
}
