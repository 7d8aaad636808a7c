//! The stock of the simulated network.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Faults, Ledger, MemoryNetwork, Port};
use crate::error::DriverError;
use crate::id::{ClusterId, SecurityGroupId, VifId};
use crate::owner::Owner;
use crate::pod_vif::VifRequest;
use crate::stock::{StockKey, StockList, StockMade, StockOrder, Stocked, VifStock};
use crate::vif::Vif;

/// The stock of the pool `memory`: one cluster's access to a [`MemoryNetwork`]. Its ports become active by themselves.
pub struct MemoryVifStock {
    network: Arc<MemoryNetwork>,
    cluster: ClusterId,
    active_unbound: bool,
    most: usize,
    halves: Mutex<BTreeSet<VifId>>,
    returned: Ledger<VifId>,
    faults: Faults<StockMethod>,
    ledger: Ledger<StockCall>,
}

/// A method of a stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StockMethod {
    /// [`VifStock::make`].
    Make,
    /// [`VifStock::adapt`].
    Adapt,
    /// [`VifStock::destroy`].
    Destroy,
    /// [`VifStock::list`].
    List,
}

/// A call of a stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StockCall {
    /// So many VIFs were ordered for this host.
    Make(String, usize),
    /// The security groups of a VIF were to be changed.
    Adapt(VifId),
    /// These VIFs were to be destroyed.
    Destroy(Vec<VifId>),
    /// What is in stock was listed.
    List,
}

impl MemoryVifStock {
    /// Makes ports in `network` with the mark of `cluster`.
    pub fn new(network: Arc<MemoryNetwork>, cluster: ClusterId) -> Self {
        let (faults, ledger) = (Faults::default(), Ledger::default());
        let returned = Ledger::default();
        let most = usize::MAX;
        Self {
            network,
            cluster,
            active_unbound: true,
            most,
            halves: Mutex::default(),
            returned,
            faults,
            ledger,
        }
    }

    /// Makes so many ports by one call, and no more.
    #[must_use]
    pub fn by_calls_of(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Of ports that become active only when a node has bound them.
    #[must_use]
    pub fn bound_by_nodes(mut self) -> Self {
        self.active_unbound = false;
        self
    }

    /// The VIFs that pods gave back, in this order.
    pub fn returned(&self) -> Vec<VifId> {
        self.returned.calls()
    }

    /// From now on this VIF counts as half made, or as whole again.
    pub fn set_half(&self, vif: &VifId, half: bool) {
        if half {
            self.halves().insert(vif.clone());
        } else {
            self.halves().remove(vif);
        }
    }

    fn halves(&self) -> MutexGuard<'_, BTreeSet<VifId>> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What goes wrong with the next calls.
    pub fn faults(&self) -> &Faults<StockMethod> {
        &self.faults
    }

    /// The calls so far, those that failed too.
    pub fn calls(&self) -> Vec<StockCall> {
        self.ledger.calls()
    }

    /// As many as can be made, and why not more.
    fn make_all(&self, order: &StockOrder) -> StockMade {
        let StockOrder { key, subnets, security_groups, count } = order;
        let request = VifRequest {
            owner: Owner { namespace: String::new(), name: String::new(), uid: "".into() },
            node_name: key.host.clone(),
            host_ip: None,
            project: key.project.clone(),
            subnets: subnets.clone(),
            security_groups: security_groups.clone(),
        };
        let mut made = StockMade::default();
        while made.vifs.len() < self.most.min(*count) && made.failure.is_none() {
            match self.network.create_port(&self.cluster, &request, None, Instant::now()) {
                Ok(vif) => made.vifs.push(vif),
                Err(error) => made.failure = Some(error),
            }
        }
        made
    }

    fn stocked(&self, port: Port) -> Option<Stocked> {
        if port.cluster.as_ref() != Some(&self.cluster) || port.owner.is_some() {
            return None;
        }
        let vif = port.vif_at(Instant::now());
        let (host, project, mut subnets) = (port.node_name, port.project, port.subnets);
        subnets.sort_unstable();
        let key = StockKey { host, project, network: vif.network.id.clone(), subnets };
        Some(Stocked { key, security_groups: port.security_groups, vif })
    }
}

#[async_trait]
impl VifStock for MemoryVifStock {
    fn host(&self, request: &VifRequest) -> Result<String, DriverError> {
        Ok(request.node_name.clone())
    }

    async fn make(&self, order: &StockOrder) -> StockMade {
        self.ledger.record(StockCall::Make(order.key.host.clone(), order.count));
        let made = self.faults.call(StockMethod::Make, || Ok(self.make_all(order))).await;
        made.unwrap_or_else(|error| StockMade { vifs: Vec::new(), failure: Some(error) })
    }

    async fn adapt(&self, vif: &Vif, security_groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        self.ledger.record(StockCall::Adapt(vif.id.clone()));
        self.faults.call(StockMethod::Adapt, || self.network.guard_port(&vif.id, security_groups)).await
    }

    async fn destroy(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)> {
        self.ledger.record(StockCall::Destroy(vifs.iter().map(|vif| vif.id.clone()).collect()));
        let work = || {
            for vif in vifs {
                self.network.delete_stocked(&self.cluster, &vif.id, Instant::now());
            }
            Ok(())
        };
        match self.faults.call(StockMethod::Destroy, work).await {
            Ok(()) => Vec::new(),
            Err(error) => vifs.iter().map(|vif| (vif.id.clone(), error.clone())).collect(),
        }
    }

    async fn list(&self) -> Result<StockList, DriverError> {
        self.ledger.record(StockCall::List);
        let work = || {
            let stocked = self.network.ports().into_iter().filter_map(|port| self.stocked(port));
            let halves = self.halves();
            let (halves, whole) = stocked.partition(|stocked| halves.contains(&stocked.vif.id));
            Ok(StockList { whole, halves })
        };
        self.faults.call(StockMethod::List, work).await
    }

    fn came_back(&self, vif: &VifId) {
        self.returned.record(vif.clone());
    }

    fn is_active_unbound(&self, _: &Vif) -> bool {
        self.active_unbound
    }
}
