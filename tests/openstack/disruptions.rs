//! Two replicas that are killed and paused while the API server fails, with pods on a real Neutron and services on a real Octavia.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::services::Shop;
use crate::support::{Churn, Objects, QUICK, Replicas, Site};
use crate::world::World;

/// The number of pods and of services at a time.
const OBJECTS: (usize, usize) = (20, 3);

/// The number of replicas that are killed or paused, unless `STAFFETTA_DISRUPTIONS` is set.
const DISRUPTIONS: usize = 12;

const OPTIONS: &str = "[kubernetes]\nenabled_handlers = [\"vif\", \"lb\", \"lbaasspec\"]\n";

/// Returns `true` if the project has just the ports and load balancers that these objects show.
async fn is_clean(world: &World, objects: &Objects) -> bool {
    let ports = world.ports().await;
    let addresses: Vec<_> =
        ports.iter().flat_map(|port| &port.fixed_ips).map(|ip| ip.ip_address.to_string()).collect();
    let balancers: Vec<_> =
        world.tenant.load_balancers().await.into_iter().map(|balancer| balancer.id).collect();
    are_shown(&addresses, &objects.pods) && are_shown(&balancers, &objects.services)
}

/// Returns `true` if each of these is shown by one of these objects, and nothing else is.
fn are_shown(existing: &[String], objects: &BTreeMap<String, Option<String>>) -> bool {
    let shown: BTreeSet<_> = objects.values().flatten().collect();
    existing.len() == objects.len() && existing.iter().collect::<BTreeSet<_>>() == shown
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn replicas_that_are_killed_and_paused_during_faults_leak_nothing_and_share_nothing_on_a_real_openstack()
 {
    let world = World::on_a_real_server().await;
    let shop = Shop::new(&world).await;
    let site = Site::start(world.real_server()).await;
    let options = world.options(&shop.options(&format!("{OPTIONS}{QUICK}")));
    let mut replicas = Replicas::start(&site, world.folder(), options).await;
    let churn = Churn::start(&site, &world.node, OBJECTS, Duration::from_millis(500)).await;
    replicas.disrupt(&churn, DISRUPTIONS, async |objects| is_clean(&world, objects).await).await;
    churn.end().await;
    world.until_ports(0).await;
    world.until("all load balancers are gone", async || world.tenant.load_balancers().await.is_empty()).await;
    replicas.terminate().await;
}
