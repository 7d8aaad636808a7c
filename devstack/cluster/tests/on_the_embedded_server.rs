//! The controllers together, on the embedded API server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use staffetta_apiserver::ApiServer;
use staffetta_cluster::{Cluster, Options, PodStart};

const DEADLINE: Duration = Duration::from_secs(20);

struct Bench {
    _server: ApiServer,
    client: Client,
    cluster: Cluster,
}

impl Bench {
    async fn start() -> Self {
        let server = ApiServer::start(staffetta_apiserver::Options::default()).await.unwrap();
        let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
        let options = Options {
            pod_start: PodStart::AtOnce,
            stop_time: Duration::from_millis(10),
            ..Options::default()
        };
        let cluster = Cluster::start(client.clone(), options);
        Self { _server: server, client, cluster }
    }

    fn api<K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::default_namespaced(self.client.clone())
    }

    async fn make_deployment(&self, replicas: i32) {
        let deployment = serde_json::from_value(json!({
            "metadata": { "name": "web" },
            "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
                "strategy": { "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
                "template": { "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "web", "image": "web:1" }] } } },
        }));
        self.api::<Deployment>().create(&PostParams::default(), &deployment.unwrap()).await.unwrap();
    }

    async fn until_rolled_out(&self, replicas: i32) {
        until(self.api::<Deployment>(), |deployments| {
            deployments.iter().any(|deployment| {
                let status = deployment.status.clone().unwrap_or_default();
                let counts = [status.replicas, status.updated_replicas, status.available_replicas];
                status.observed_generation == deployment.metadata.generation
                    && counts == [Some(replicas); 3]
                    && deployment.spec.as_ref().unwrap().replicas == Some(replicas)
            })
        })
        .await;
    }
}

/// Lists whenever something of the kind changed, until what is there is as wanted.
async fn until<K>(api: Api<K>, wanted: impl Fn(&[K]) -> bool) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut changes = watcher(api.clone(), watcher::Config::default()).boxed();
    let found = tokio::time::timeout(DEADLINE, async {
        loop {
            changes.next().await.unwrap().unwrap();
            let found = api.list(&ListParams::default()).await.unwrap().items;
            if wanted(&found) {
                return found;
            }
        }
    });
    let Ok(found) = found.await else {
        panic!("it never came about: {:#?}", api.list(&ListParams::default()).await.unwrap().items)
    };
    found
}

#[tokio::test]
async fn a_deployment_comes_up_scales_rolls_and_goes() {
    let bench = Bench::start().await;
    bench.make_deployment(3).await;
    bench.until_rolled_out(3).await;
    let pods = bench.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    let nodes: Vec<_> =
        pods.iter().map(|pod| pod.spec.as_ref().unwrap().node_name.clone().unwrap()).collect();
    assert!(nodes.contains(&"node-1".into()) && nodes.contains(&"node-2".into()), "{nodes:?}");

    for (change, replicas) in [
        (json!({ "spec": { "replicas": 5 } }), 5),
        (
            json!({ "spec": { "template": { "spec": { "containers": [{ "name": "web", "image": "web:2" }] } } } }),
            5,
        ),
        (json!({ "spec": { "replicas": 1 } }), 1),
    ] {
        let patch = Patch::Strategic(change);
        bench.api::<Deployment>().patch("web", &PatchParams::default(), &patch).await.unwrap();
        bench.until_rolled_out(replicas).await;
    }
    let pods = until(bench.api::<Pod>(), |pods| pods.len() == 1).await;
    assert_eq!(pods[0].spec.as_ref().unwrap().containers[0].image.as_deref(), Some("web:2"));

    bench.api::<Deployment>().delete("web", &DeleteParams::background()).await.unwrap();
    until(bench.api::<Pod>(), <[_]>::is_empty).await;
    until(bench.api::<ReplicaSet>(), <[_]>::is_empty).await;
}

#[tokio::test]
async fn the_endpoints_of_a_service_follow_its_pods_and_go_with_it() {
    let bench = Bench::start().await;
    let service = serde_json::from_value(json!({
        "metadata": { "name": "web" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    }));
    bench.api::<Service>().create(&PostParams::default(), &service.unwrap()).await.unwrap();
    bench.make_deployment(3).await;
    let count = |slices: &[EndpointSlice]| -> usize {
        let ready = |slice: &EndpointSlice| {
            let ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
                endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
            };
            slice.endpoints.iter().filter(ready).count()
        };
        slices.iter().map(ready).sum()
    };
    until(bench.api::<EndpointSlice>(), |slices| count(slices) == 3).await;
    until(bench.api::<Endpoints>(), |endpoints| {
        let subsets = endpoints.iter().flat_map(|endpoints| endpoints.subsets.iter().flatten());
        subsets.flat_map(|subset| subset.addresses.iter().flatten()).count() == 3
    })
    .await;
    let patch = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    bench.api::<Deployment>().patch("web", &PatchParams::default(), &patch).await.unwrap();
    until(bench.api::<EndpointSlice>(), |slices| count(slices) == 0).await;
    bench.api::<Service>().delete("web", &DeleteParams::background()).await.unwrap();
    until(bench.api::<EndpointSlice>(), <[_]>::is_empty).await;
    until(bench.api::<Endpoints>(), <[_]>::is_empty).await;
}

#[tokio::test]
async fn nodes_are_ready_and_go_when_the_cluster_stops() {
    let bench = Bench::start().await;
    let nodes: Api<Node> = Api::all(bench.client.clone());
    let found = until(nodes.clone(), |nodes| nodes.len() == 2).await;
    assert_eq!(found.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["node-1", "node-2"]);
    bench.cluster.stop().await;
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 0);
}
