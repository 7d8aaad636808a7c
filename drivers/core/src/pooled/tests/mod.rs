mod existing;
mod failures;
mod hand_outs;
mod nodes;

use std::sync::atomic::Ordering;

use super::*;
use crate::error::Reason;
use crate::memory::{
    Fault, MemoryNetwork, MemoryOptions, MemoryVifDriver, MemoryVifStock, StockCall, StockMethod, VifCall,
};
use crate::noop::NoopPool;

const POLICY: PoolPolicy = PoolPolicy { min: 5, max: 0, batch: 10, cool_down: Duration::from_secs(20) };

/// A pool in front of the simulated network.
struct World {
    network: Arc<MemoryNetwork>,
    vifs: Arc<MemoryVifDriver>,
    stock: Arc<MemoryVifStock>,
    pool: Arc<PooledVifs>,
    leads: Arc<AtomicBool>,
    policy: PoolPolicy,
}

impl World {
    /// A pool that has begun, in an empty world.
    async fn new(policy: PoolPolicy) -> Self {
        let world = Self::with(MemoryOptions::default(), policy);
        world.begin().await;
        world
    }

    fn with(options: MemoryOptions, policy: PoolPolicy) -> Self {
        let network = Arc::new(MemoryNetwork::new(options));
        let stock = MemoryVifStock::new(Arc::clone(&network), "east".into());
        Self::on(network, stock, policy)
    }

    fn on(network: Arc<MemoryNetwork>, stock: MemoryVifStock, policy: PoolPolicy) -> Self {
        let vifs = Arc::new(MemoryVifDriver::new(Arc::clone(&network), "east".into()));
        let (stock, leads) = (Arc::new(stock), Arc::new(AtomicBool::new(true)));
        let holds = Arc::clone(&leads);
        let may_act: MayAct = Arc::new(move || holds.load(Ordering::Relaxed));
        let pool =
            Arc::new(PooledVifs::new(Arc::clone(&stock) as _, Arc::clone(&vifs) as _, policy, may_act));
        Self { network, vifs, stock, pool, leads, policy }
    }

    async fn begin(&self) {
        self.pool.read().await.unwrap();
        self.pool.begin();
        settle().await;
    }

    /// Another process takes over, once the annotations of these pods are known to it.
    async fn restarted(&self, shown: &[(&str, &Vif)]) -> Self {
        let stock = MemoryVifStock::new(Arc::clone(&self.network), "east".into());
        let world = Self::on(Arc::clone(&self.network), stock, self.policy);
        for (name, vif) in shown {
            world.pool.shows(&owner(name), &[Vif::clone(vif)]);
        }
        world.begin().await;
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
        settle().await;
        vif
    }

    async fn release(&self, name: &str, vif: &Vif) {
        self.pool.release_vif(&owner(name), vif).await.unwrap();
        settle().await;
    }

    /// Whether the pod is known to hold anything.
    fn holds(&self, name: &str) -> bool {
        self.pool.inner.state().by_owner.contains_key(&owner(name).uid)
    }

    fn figures(&self) -> PoolFigures {
        self.pool.figures()()
    }

    fn ports(&self) -> usize {
        self.network.ports().len()
    }

    /// How many VIFs each order was for.
    fn orders(&self) -> Vec<usize> {
        let count = |call| if let StockCall::Make(_, count) = call { Some(count) } else { None };
        self.stock.calls().into_iter().filter_map(count).collect()
    }

    fn lists(&self) -> usize {
        self.stock.calls().into_iter().filter(|call| *call == StockCall::List).count()
    }
}

fn owner(name: &str) -> Owner {
    Owner { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
}

/// Lets what was started come to its end, or to where it waits for time to pass.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    settle().await;
}

fn outage() -> DriverError {
    DriverError::new(Reason::Unavailable, "make ports")
}
