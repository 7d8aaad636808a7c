//! A leader that is stopped during calls of its drivers and continues after another process became the leader: the network's
//! ledger shows that nothing was created or released twice.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use staffetta_apiserver::testing::RealServer;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_memory::http::{EffectKind, Fault, Method, ResourceKind};

use crate::process::{Process, eventually};
use crate::{PROGRAM, annotated};

/// Another one takes over after 10 s.
const SHORT: &str = "lease_duration = \"10s\"\nrenew_deadline = \"8s\"\nretry_period = \"400ms\"\n";
/// Outlives a machine that is busy with something else.
const PATIENT: &str = "lease_duration = \"30s\"\nrenew_deadline = \"20s\"\nretry_period = \"400ms\"\n";

/// The delay of a call before its work, or before its answer: longer than stopping a process takes, and shorter than
/// a lease.
const SLOW: Duration = Duration::from_secs(3);

/// The number of calls whose work is late, and of those whose answer is late.
const EACH: usize = 3;

async fn create(pods: &Api<Pod>, name: &str) {
    let pod = json!({ "metadata": { "name": name },
        "spec": { "nodeName": "n1", "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// Ends a pod as a kubelet does.
async fn end(pods: &Api<Pod>, name: &str) {
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
}

/// The simulated network's own look at itself.
struct Look(staffetta_memory::http::Client);

impl Look {
    /// The number of ports created, and of ports released.
    async fn counts(&self) -> (usize, usize) {
        let ledger = self.0.effects().await.unwrap();
        let count = |effect| ledger.entries().iter().filter(|entry| entry.effect == effect).count();
        (count(EffectKind::Created), count(EffectKind::Released))
    }

    /// Each of so many owners got one port; nothing was released twice.
    async fn assert_once(&self, owners: usize) {
        let ledger = self.0.effects().await.unwrap();
        let counts = ledger.owners(ResourceKind::Port);
        let twice: Vec<_> =
            counts.iter().filter(|(_, counts)| counts.created != 1 || counts.released > 1).collect();
        assert!(twice.is_empty(), "made or released more than once: {twice:?}");
        assert_eq!(counts.len(), owners);
    }
}

async fn stopped_in_the_middle_of_its_calls(kubeconfig: &str) {
    // An error means that somebody installed one before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let yaml = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(yaml, &KubeConfigOptions::default()).await.unwrap();
    let pods = Api::<Pod>::namespaced(Client::try_from(config).unwrap(), "default");
    let (network, client) = crate::network();
    let look = Look(client.clone());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let start = async |place: usize, election: &str| {
        // Half of it for the namespace of the pods: all of their calls are under way at once.
        let options = format!("{}[relay]\nmax_concurrency = 32\n", crate::options(network.url(), election));
        Process::start(Path::new(PROGRAM), folders[place].path(), &options, kubeconfig).await
    };
    let mut first = start(0, SHORT).await;
    first.says("this process is the leader").await;
    first.ready().await;
    let mut second = start(1, PATIENT).await;
    second.says("this process is a standby").await;

    let (old, new): (Vec<_>, Vec<_>) =
        (0..EACH * 2).map(|n| (format!("old-{n}"), format!("new-{n}"))).unzip();
    for name in &old {
        create(&pods, name).await;
    }
    eventually("the old pods have their VIFs", async || annotated(&pods).await == old.len()).await;

    // Of each three calls, one half does its work late, the other half answers late.
    for method in [Method::RequestVif, Method::ReleaseVif] {
        client.inject(method, EACH, &Fault::DoneThenDelay(SLOW)).await.unwrap();
        client.inject(method, EACH, &Fault::Delay(SLOW)).await.unwrap();
    }
    for (old, new) in old.iter().zip(&new) {
        end(&pods, old).await;
        create(&pods, new).await;
    }
    // All of them have arrived: a request that a stopped process has queued is sent when it continues.
    let early = (old.len() + EACH, EACH);
    eventually("the calls are under way", async || {
        client.planned_faults().await.unwrap() == 0
            && look.counts().await == early
            && annotated(&pods).await == 0
    })
    .await;
    first.kill("STOP").await;
    assert_eq!(annotated(&pods).await, 0, "none of the new ones shows a VIF, and no old one any more");
    let all = (old.len() + new.len(), old.len());
    eventually("the calls are done while nobody hears the answers", async || look.counts().await == all)
        .await;

    second.says("this process is the leader").await;
    let names = async || {
        let listed = pods.list(&ListParams::default()).await.unwrap();
        listed.into_iter().filter_map(|pod| pod.metadata.name).collect::<BTreeSet<_>>()
    };
    eventually("the other one has carried all of it on", async || {
        names().await == new.iter().cloned().collect() && annotated(&pods).await == new.len()
    })
    .await;

    first.kill("CONT").await;
    first.says("this process is no longer the leader").await;
    first.says("this process is a standby").await;
    first.ready().await;
    look.assert_once(all.0).await;
    assert_eq!(look.counts().await, all, "who goes on late makes and releases nothing");

    // The same process leads again, and knows what stands.
    assert!(second.terminate().await.success());
    first.says("this process is the leader").await;
    first.ready().await;
    create(&pods, "last").await;
    eventually("the last pod has its VIF", async || annotated(&pods).await == new.len() + 1).await;
    for name in names().await {
        end(&pods, &name).await;
    }
    eventually("all pods are gone", async || names().await.is_empty()).await;
    eventually("all ports are released", async || client.ports().await.unwrap().is_empty()).await;
    look.assert_once(all.0 + 1).await;
    assert!(first.terminate().await.success());
}

#[tokio::test]
async fn a_leader_that_is_stopped_in_the_middle_of_calls_makes_and_releases_nothing_twice() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    stopped_in_the_middle_of_its_calls(&server.kubeconfig()).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_leader_that_is_stopped_in_the_middle_of_calls_makes_and_releases_nothing_twice_on_a_real_server() {
    let server = RealServer::start(&[]).await;
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
    stopped_in_the_middle_of_its_calls(&kubeconfig).await;
}
