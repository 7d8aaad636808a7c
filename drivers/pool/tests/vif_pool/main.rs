//! Pools of VIFs in front of the simulated network.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod existing;
mod failures;
mod hand_outs;
mod multi_pool;
mod nodes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use staffetta_driver::{
    Activation, BulkVifDriver, DriverError, NodeInfo, Owner, PodVifDriver, PoolClaim, Reason,
    SecurityGroupId, Vif, VifClass, VifPoolDriver, VifPoolObserver, VifRequest,
};
use staffetta_memory::{
    BulkVifCall, BulkVifMethod, Fault, MemoryBulkVifDriver, MemoryNetwork, MemoryOptions,
    MemoryPublishedVifs, MemoryVifDriver, VifCall,
};
use staffetta_pool::{IsLeader, NoopVifPool, VifPoolMetrics, VifPoolPolicy, WarmVifPool};
use tokio::time::Instant;

const POLICY: VifPoolPolicy = VifPoolPolicy { min: 5, max: 0, batch: 10, cool_down: Duration::from_secs(20) };

/// A pool in front of the simulated network.
struct World {
    network: Arc<MemoryNetwork>,
    vifs: Arc<MemoryVifDriver>,
    bulk: Arc<MemoryBulkVifDriver>,
    published: Arc<MemoryPublishedVifs>,
    pool: Arc<WarmVifPool>,
    leads: Arc<AtomicBool>,
    policy: VifPoolPolicy,
}

impl World {
    /// A pool that has begun, in an empty world.
    async fn new(policy: VifPoolPolicy) -> Self {
        let world = Self::with(MemoryOptions::default(), policy);
        world.start().await;
        world
    }

    fn with(options: MemoryOptions, policy: VifPoolPolicy) -> Self {
        let network = Arc::new(MemoryNetwork::new(options));
        let bulk = MemoryBulkVifDriver::new(Arc::clone(&network), "east".into());
        Self::on(network, bulk, policy)
    }

    fn on(network: Arc<MemoryNetwork>, bulk: MemoryBulkVifDriver, policy: VifPoolPolicy) -> Self {
        let vifs = Arc::new(MemoryVifDriver::new(Arc::clone(&network), "east".into()));
        let (bulk, leads) = (Arc::new(bulk), Arc::new(AtomicBool::new(true)));
        let holds = Arc::clone(&leads);
        let is_leader: IsLeader = Arc::new(move || holds.load(Ordering::Relaxed));
        let published = Arc::<MemoryPublishedVifs>::default();
        let (stock, behind, shown) =
            (Arc::clone(&bulk) as _, Arc::clone(&vifs) as _, Arc::clone(&published) as _);
        let pool = Arc::new(WarmVifPool::new(stock, behind, shown, policy, is_leader));
        Self { network, vifs, bulk, published, pool, leads, policy }
    }

    async fn start(&self) {
        self.pool.resync().await.unwrap();
        self.pool.start();
        run_until_idle().await;
    }

    /// Another process takes over, once the annotations of these pods are known to it.
    async fn restarted(&self, shown: &[(&str, &Vif)]) -> Self {
        let bulk = MemoryBulkVifDriver::new(Arc::clone(&self.network), "east".into());
        let world = Self::on(Arc::clone(&self.network), bulk, self.policy);
        for (name, vif) in shown {
            world.pool.pod_vifs(&pod(name), Some(&[Vif::clone(vif)]));
        }
        world.start().await;
        world
    }

    fn request_for(&self, name: &str, node: &str, groups: &[&str]) -> VifRequest {
        VifRequest {
            owner: owner(name),
            node_name: node.into(),
            host_ip: None,
            project: "memory".into(),
            subnets: vec![self.network.subnet("10.10.0.0/16".parse().unwrap())],
            security_groups: groups.iter().map(|group| (*group).into()).collect(),
        }
    }

    async fn ask(&self, name: &str) -> Result<Vif, DriverError> {
        self.pool.request_vif(&self.request_for(name, "n1", &["default"])).await
    }

    async fn get(&self, name: &str) -> Vif {
        let vif = self.ask(name).await.unwrap();
        run_until_idle().await;
        vif
    }

    async fn release(&self, name: &str, vif: &Vif) {
        self.pool.release_vif(&owner(name), vif).await.unwrap();
        run_until_idle().await;
    }

    /// Returns `true` if the pod holds a VIF.
    async fn holds(&self, name: &str) -> bool {
        !self.pool.vifs(Some(&owner(name))).await.unwrap().is_empty()
    }

    fn metrics(&self) -> VifPoolMetrics {
        self.pool.metrics()()
    }

    fn ports(&self) -> usize {
        self.network.ports().len()
    }

    /// The number of VIFs of each request.
    fn orders(&self) -> Vec<usize> {
        let count = |call| if let BulkVifCall::CreateVifs(_, count) = call { Some(count) } else { None };
        self.bulk.calls().into_iter().filter_map(count).collect()
    }

    fn lists(&self) -> usize {
        self.bulk.calls().into_iter().filter(|call| *call == BulkVifCall::ListVifs).count()
    }
}

fn owner(name: &str) -> Owner {
    Owner { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
}

fn pod(name: &str) -> Pod {
    let meta = ObjectMeta {
        namespace: Some("default".into()),
        name: Some(name.into()),
        uid: Some(format!("uid-{name}")),
        ..ObjectMeta::default()
    };
    Pod { metadata: meta, ..Pod::default() }
}

/// Lets what was started come to its end, or to where it waits for time to pass.
async fn run_until_idle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    run_until_idle().await;
}

fn outage() -> DriverError {
    DriverError::new(Reason::Unavailable, "make ports")
}
