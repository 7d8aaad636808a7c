//! A real kube-apiserver with pods in it, for benchmarks.

#![allow(dead_code, reason = "each benchmark takes what it needs")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::wait::{complete, until};

/// The annotation that a pod gets.
pub(crate) const VIF: &str = "openstack.org/kuryr-vif";
/// The finalizer that a pod gets.
pub(crate) const FINALIZER: &str = "staffetta.dev/vif";

/// The number of requests in flight, on both sides.
pub(crate) const IN_FLIGHT: usize = 8;

/// The client library as the program uses it, under another name.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the server was just started");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.expect("it is complete");
    config.default_retry = false;
    Client::try_from(config).expect("its certificates are readable")
}

pub(crate) fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "default")
}

/// A pod of about 3 KB on a node, as a deployment would make it.
pub(crate) fn pod(name: &str) -> Pod {
    let env: Vec<_> = (0..24)
        .map(|number| json!({ "name": format!("VARIABLE_{number}"), "value": format!("a value of some length, {number}") }))
        .collect();
    let container = json!({
        "name": "web", "image": "registry.example/shop/web:1.2.3", "env": env,
        "ports": [{ "containerPort": 8080 }],
        "resources": { "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "memory": "128Mi" } },
    });
    let pod = json!({
        "metadata": { "name": name, "labels": { "app": "web", "tier": "front" } },
        "spec": { "nodeName": "node-1", "automountServiceAccountToken": false, "containers": [container] },
    });
    serde_json::from_value(pod).expect("it is a pod")
}

/// Creates pods of these names.
pub(crate) async fn create(client: &Client, names: &[String]) {
    let api = pods(client);
    each(names, async |name| {
        api.create(&PostParams::default(), &pod(name)).await.expect("a pod can be created");
    })
    .await;
}

/// The UID and resourceVersion of each pod by name, which a patch of it must carry.
pub(crate) async fn versions(client: &Client) -> BTreeMap<String, (String, String, Option<String>)> {
    let api = pods(client);
    let mut found = BTreeMap::new();
    let mut page = ListParams::default().limit(500);
    loop {
        let list = api.list_metadata(&page).await.expect("pods can be listed");
        for item in list.items {
            let meta = item.metadata;
            let annotation = meta.annotations.unwrap_or_default().remove(VIF);
            let state = (meta.uid.unwrap_or_default(), meta.resource_version.unwrap_or_default(), annotation);
            found.insert(meta.name.unwrap_or_default(), state);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return found,
        }
    }
}

/// Takes the annotation and the finalizer away again.
pub(crate) async fn reset(client: &Client, names: &[String]) {
    let body = json!({ "metadata": { "annotations": { VIF: null },
        "$deleteFromPrimitiveList/finalizers": [FINALIZER] } });
    each(names, async |name| {
        patch(client, name, &body).await;
    })
    .await;
}

/// Ends pods as a kubelet does, and waits until they are gone.
pub(crate) async fn end(client: &Client, names: &[String]) {
    let api = pods(client);
    each(names, async |name| {
        api.delete(name, &DeleteParams::default().grace_period(0)).await.expect("a pod can be deleted");
    })
    .await;
    until(Duration::from_millis(200), async || {
        let left = versions(client).await.keys().filter(|name| names.contains(name)).count();
        complete(names.len() - left, names.len(), "pods are gone")
    })
    .await;
}

/// Waits until this many pods have a VIF; if `active`, one that is active.
pub(crate) async fn until_wired(client: &Client, pods: usize, active: bool) {
    let shows = |annotation: &String| !active || annotation.replace(' ', "").contains(r#""active":true"#);
    until(Duration::from_millis(500), async || {
        let state = versions(client).await.into_values();
        let wired = state.filter_map(|(_, _, annotation)| annotation.filter(shows));
        complete(wired.count(), pods, "pods have a VIF")
    })
    .await;
}

/// One bare PATCH, as the program sends it: of the answer it wants the metadata alone.
pub(crate) async fn patch(client: &Client, name: &str, body: &Value) -> PartialObjectMeta<Pod> {
    let request = kube::api::Request::new("/api/v1/namespaces/default/pods")
        .patch_metadata(name, &PatchParams::default(), &Patch::Strategic(body))
        .expect("the request is well-formed");
    client.request(request).await.expect("the PATCH is accepted")
}

/// The body by which the program claims a VIF.
pub(crate) fn claim(uid: &str, version: &str, annotation: &str) -> Value {
    json!({ "metadata": { "uid": uid, "resourceVersion": version, "annotations": { VIF: annotation },
        "finalizers": [FINALIZER] } })
}

/// Does something for each name, so many at a time.
pub(crate) async fn each(names: &[String], work: impl AsyncFn(&str)) {
    stream::iter(names).for_each_concurrent(IN_FLIGHT, async |name| work(name).await).await;
}
