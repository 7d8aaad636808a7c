//! Two replicas that are killed and paused while the API server fails, with pods and services on the simulated cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use staffetta_apiserver::testing::RealServer;
use staffetta_driver::Owner;
use staffetta_memory::MemoryOptions;
use staffetta_memory::http::{Client, OwnerCounts, ResourceKind, Server, ServerOptions, SimulatedOptions};

use crate::process::SIMULATED;
use crate::support::{Churn, Objects, QUICK, Replicas, ServerFault, Site};

/// The number of pods and of services at a time.
const OBJECTS: (usize, usize) = (60, 10);

/// The number of replicas that are killed or paused, unless `STAFFETTA_DISRUPTIONS` is set.
const DISRUPTIONS: usize = 24;

/// A simulated cloud in which everything takes some time.
struct Cloud {
    server: Server,
    client: Client,
}

impl Cloud {
    fn start() -> Self {
        let memory = MemoryOptions {
            activation_delay_ms: 50,
            load_balancer_delay_ms: 20,
            cool_down_ms: 100,
            ..MemoryOptions::default()
        };
        let server = Server::start(&ServerOptions { memory, ..ServerOptions::default() }).unwrap();
        let options = SimulatedOptions { url: server.url().into(), ..SimulatedOptions::default() };
        Self { client: Client::new(&options).unwrap(), server }
    }

    fn options(&self, more: &str) -> String {
        let drivers = SIMULATED.replace("\"memory\"", "\"simulated\"");
        format!("{drivers}\n[simulated]\nurl = {:?}\n{more}", self.server.url())
    }

    /// Returns `true` if each object owns one resource, and nobody else owns any.
    async fn is_clean(&self, objects: &Objects) -> bool {
        let ports = self.client.ports().await.unwrap().into_iter().map(|port| port.owner);
        let balancers = self.client.load_balancers().await.unwrap().into_iter().map(|owned| owned.owner);
        belong_to(ports, &objects.pods) && belong_to(balancers, &objects.services)
    }

    /// Nothing is left, and no object ever owned two resources.
    async fn assert_clean(&self) {
        let log = self.client.effects().await.unwrap();
        for kind in [ResourceKind::Port, ResourceKind::LoadBalancer, ResourceKind::PublicIp] {
            assert!(log.existing(kind).is_empty(), "left behind: {:?}", log.existing(kind));
            let owners = log.owners(kind);
            let twice: BTreeMap<_, OwnerCounts> = owners
                .into_iter()
                .filter(|(_, counts)| counts.peak > 1 || counts.released > counts.created)
                .collect();
            assert!(twice.is_empty(), "{kind:?} made or released twice: {twice:?}");
        }
    }
}

/// Returns `true` if each of these objects owns one resource, and nobody else owns any.
fn belong_to(
    owners: impl Iterator<Item = Option<Owner>>,
    objects: &BTreeMap<String, Option<String>>,
) -> bool {
    let mut uids: Vec<_> = owners.map(|owner| owner.map(|owner| owner.uid.to_string())).collect();
    uids.sort_unstable();
    uids.iter().map(Option::as_ref).eq(objects.keys().map(Some))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn after_each_fault_everything_is_served_with_the_default_timings_on_a_real_server() {
    let (server, cloud, folder) =
        (RealServer::start(&[]).await, Cloud::start(), tempfile::tempdir().unwrap());
    let site = Site::start(&server).await;
    let replicas = Replicas::start(&site, folder.path(), cloud.options("")).await;
    let churn = Churn::start(&site, "n1", OBJECTS, Duration::from_millis(200)).await;
    replicas.run_until_idle(&churn, async |objects| cloud.is_clean(objects).await).await;
    for fault in ServerFault::ALL {
        site.inject(fault, Duration::from_secs(40)).await;
        let recovery = replicas.run_until_idle(&churn, async |objects| cloud.is_clean(objects).await).await;
        eprintln!("{fault:?}: {recovery}");
    }
    churn.end().await;
    replicas.terminate().await;
    cloud.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn replicas_that_are_killed_and_paused_during_faults_leak_nothing_and_share_nothing_on_a_real_server() {
    let (server, cloud, folder) =
        (RealServer::start(&[]).await, Cloud::start(), tempfile::tempdir().unwrap());
    let site = Site::start(&server).await;
    let mut replicas = Replicas::start(&site, folder.path(), cloud.options(QUICK)).await;
    let churn = Churn::start(&site, "n1", OBJECTS, Duration::from_millis(100)).await;
    replicas.disrupt(&churn, DISRUPTIONS, async |objects| cloud.is_clean(objects).await).await;
    churn.end().await;
    replicas.terminate().await;
    cloud.assert_clean().await;
}
