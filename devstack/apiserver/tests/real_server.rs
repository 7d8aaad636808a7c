//! A real control plane that a test stops, starts again and takes back to an earlier state, and what a client sees of it
//! through a proxy.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::net::TcpStream;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Error};
use serde_json::json;
use staffetta_apiserver::Proxy;
use staffetta_apiserver::testing::RealServer;

/// A server with a proxy before it. The server ends last.
struct World {
    proxy: Proxy,
    leases: Api<Lease>,
    server: RealServer,
}

impl World {
    async fn start(flags: &[&str]) -> Self {
        let server = RealServer::start(flags).await;
        let proxy = Proxy::start(Kubeconfig::read_from(server.kubeconfig()).unwrap()).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&proxy.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        config.default_retry = false;
        let leases = Api::default_namespaced(Client::try_from(config).unwrap());
        Self { proxy, leases, server }
    }

    async fn create(&self, name: &str) {
        let lease = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.leases.create(&PostParams::default(), &lease).await.unwrap();
    }

    async fn version(&self) -> u64 {
        let list = self.leases.list(&ListParams::default()).await.unwrap();
        list.metadata.resource_version.unwrap().parse().unwrap()
    }
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_stopped_server_is_a_cut_connection_and_comes_back_with_its_data_on_a_real_server() {
    let world = World::start(&[]).await;
    let version = world.version().await.to_string();
    let mut watch = world.leases.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    world.create("a").await;
    assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    world.server.stop_apiserver().await;
    assert!(!matches!(watch.next().await, Some(Ok(_))), "the watch is over");
    let error = world.leases.get("a").await.unwrap_err();
    assert!(!matches!(error, Error::Api(_)), "{error:?} is no answer");
    world.server.resume().await;
    world.leases.get("a").await.unwrap();
    let mut watch = world.leases.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    let Some(WatchEvent::Error(status)) = watch.try_next().await.unwrap() else {
        panic!("its memory of what was before began anew");
    };
    assert_eq!(status.code, 410, "{status:?}");
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_server_without_its_etcd_answers_with_errors_on_a_real_server() {
    let world = World::start(&["--request-timeout=3s"]).await;
    world.server.stop_etcd().await;
    let lease = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let Err(Error::Api(status)) = world.leases.create(&PostParams::default(), &lease).await else {
        panic!("nothing can be stored");
    };
    assert!(status.code >= 500, "{status:?}");
    world.server.resume().await;
    world.create("b").await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn an_older_state_takes_the_place_of_a_newer_one_on_a_real_server() {
    let world = World::start(&[]).await;
    world.create("old").await;
    let snapshot = world.server.snapshot().await;
    let kept = world.version().await;
    for number in 0..20 {
        world.create(&format!("new-{number}")).await;
    }
    let lost = world.version().await;
    world.server.restore(&snapshot).await;
    let names = world.leases.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = names.items.into_iter().map(|lease| lease.metadata.name.unwrap()).collect();
    assert_eq!(names, ["old"]);
    let now = world.version().await;
    assert!(kept < lost && now < lost, "{kept} {lost} {now}");
    assert!(world.proxy.requests().iter().any(|request| request.verb == "list"));
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn what_etcd_has_forgotten_is_410_on_a_real_server() {
    let world = World::start(&["--watch-cache=false"]).await;
    let version = world.version().await.to_string();
    for name in ["a", "b"] {
        world.create(name).await;
    }
    world.server.compact().await;
    let mut watch = world.leases.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    let Some(WatchEvent::Error(status)) = watch.try_next().await.unwrap() else {
        panic!("its version is gone");
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));

    let cluster = Kubeconfig::read_from(world.server.kubeconfig()).unwrap().clusters.remove(0).cluster;
    let address = cluster.unwrap().server.unwrap().replace("https://", "");
    assert!(TcpStream::connect(&address).is_ok());
    drop(world);
    assert!(TcpStream::connect(&address).is_err(), "it ends with its owner");
}
