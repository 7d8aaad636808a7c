//! The stock of the simulated network.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Faults, MemoryNetwork, MemoryPort};
use crate::driver::Calls;
use crate::lock::lock;
use staffetta_driver::{
    BulkVifDriver, BulkVifRequest, BulkVifResult, ClusterId, DriverError, Owner, PooledVif, PooledVifList,
    SecurityGroupId, Vif, VifId, VifPoolKey, VifRequest,
};

/// The stock of the pool `memory`: one cluster's access to a [`MemoryNetwork`]. Its ports become active by themselves.
pub struct MemoryBulkVifDriver {
    network: Arc<MemoryNetwork>,
    cluster: ClusterId,
    active_unbound: bool,
    most: usize,
    incomplete: Mutex<BTreeSet<VifId>>,
    calls: Calls<BulkVifMethod, BulkVifCall>,
}

/// A method of a stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BulkVifMethod {
    /// [`BulkVifDriver::create_vifs`].
    Make,
    /// [`BulkVifDriver::set_security_groups`].
    Adapt,
    /// [`BulkVifDriver::delete_vifs`].
    Destroy,
    /// [`BulkVifDriver::list_vifs`].
    List,
}

/// A call of a stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkVifCall {
    /// This number of VIFs was requested for this host.
    Make(String, usize),
    /// The security groups of a VIF were to be changed.
    Adapt(VifId),
    /// These VIFs were to be destroyed.
    Destroy(Vec<VifId>),
    /// The pooled VIFs were listed.
    List,
}

impl MemoryBulkVifDriver {
    /// Makes ports in `network` with the mark of `cluster`.
    pub fn new(network: Arc<MemoryNetwork>, cluster: ClusterId) -> Self {
        let (incomplete, calls) = (Mutex::default(), Calls::default());
        Self { network, cluster, active_unbound: true, most: usize::MAX, incomplete, calls }
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

    /// From now on this VIF counts as half made, or as whole again.
    pub fn set_incomplete(&self, vif: &VifId, half: bool) {
        if half {
            self.incomplete().insert(vif.clone());
        } else {
            self.incomplete().remove(vif);
        }
    }

    fn incomplete(&self) -> MutexGuard<'_, BTreeSet<VifId>> {
        lock(&self.incomplete)
    }

    /// The faults of the next calls.
    pub fn faults(&self) -> &Faults<BulkVifMethod> {
        &self.calls.faults
    }

    /// The calls so far, those that failed too.
    pub fn calls(&self) -> Vec<BulkVifCall> {
        self.calls.log()
    }

    /// As many as can be made, and why not more.
    fn make_all(&self, order: &BulkVifRequest) -> BulkVifResult {
        let BulkVifRequest { key, subnets, security_groups, count } = order;
        let request = VifRequest {
            owner: Owner { namespace: String::new(), name: String::new(), uid: "".into() },
            node_name: key.host.clone(),
            host_ip: None,
            project: key.project.clone(),
            subnets: subnets.clone(),
            security_groups: security_groups.clone(),
        };
        let mut made = BulkVifResult::default();
        while made.vifs.len() < self.most.min(*count) && made.failure.is_none() {
            match self.network.create_port(&self.cluster, &request, None, Instant::now()) {
                Ok(vif) => made.vifs.push(vif),
                Err(error) => made.failure = Some(error),
            }
        }
        made
    }

    fn stocked(&self, port: MemoryPort) -> Option<PooledVif> {
        if port.cluster.as_ref() != Some(&self.cluster) || port.owner.is_some() {
            return None;
        }
        let vif = port.vif_at(Instant::now());
        let (host, project, mut subnets) = (port.node_name, port.project, port.subnets);
        subnets.sort_unstable();
        let key = VifPoolKey { host, project, network: vif.network.id.clone(), subnets };
        Some(PooledVif { key, security_groups: port.security_groups, vif })
    }
}

#[async_trait]
impl BulkVifDriver for MemoryBulkVifDriver {
    fn host(&self, request: &VifRequest) -> Result<String, DriverError> {
        Ok(request.node_name.clone())
    }

    async fn create_vifs(&self, order: &BulkVifRequest) -> BulkVifResult {
        let call = BulkVifCall::Make(order.key.host.clone(), order.count);
        let made = self.calls.call(BulkVifMethod::Make, call, || Ok(self.make_all(order))).await;
        made.unwrap_or_else(|error| BulkVifResult { vifs: Vec::new(), failure: Some(error) })
    }

    async fn set_security_groups(
        &self,
        vif: &Vif,
        security_groups: &[SecurityGroupId],
    ) -> Result<(), DriverError> {
        let call = BulkVifCall::Adapt(vif.id.clone());
        let work = || self.network.guard_port(&vif.id, security_groups);
        self.calls.call(BulkVifMethod::Adapt, call, work).await
    }

    async fn delete_vifs(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)> {
        let work = || {
            for vif in vifs {
                self.network.delete_stocked(&self.cluster, &vif.id, Instant::now());
            }
            Ok(())
        };
        let call = BulkVifCall::Destroy(vifs.iter().map(|vif| vif.id.clone()).collect());
        match self.calls.call(BulkVifMethod::Destroy, call, work).await {
            Ok(()) => Vec::new(),
            Err(error) => vifs.iter().map(|vif| (vif.id.clone(), error.clone())).collect(),
        }
    }

    async fn list_vifs(&self) -> Result<PooledVifList, DriverError> {
        let work = || {
            let stocked = self.network.ports().into_iter().filter_map(|port| self.stocked(port));
            let incomplete = self.incomplete();
            let (incomplete, usable) = stocked.partition(|stocked| incomplete.contains(&stocked.vif.id));
            Ok(PooledVifList { usable, incomplete })
        };
        self.calls.call(BulkVifMethod::List, BulkVifCall::List, work).await
    }

    fn is_active_unbound(&self, _: &Vif) -> bool {
        self.active_unbound
    }
}
