//! The driver `memory` of bulk VIF creation.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{Faults, MemoryNetwork, MemoryPort};
use crate::driver::{Calls, driver_calls};
use staffetta_driver::{
    BulkVifDriver, BulkVifRequest, BulkVifResult, ClusterId, DriverError, Owned, Owner, PooledVif,
    PooledVifList, SecurityGroupId, Vif, VifId, VifPoolKey, VifRequest,
};

/// The driver `memory` of bulk VIF creation, for one cluster on a [`MemoryNetwork`]. By default, its ports become active without a node.
pub struct MemoryBulkVifDriver {
    network: Arc<MemoryNetwork>,
    cluster: ClusterId,
    /// `true` if ports become active without a node.
    active_unbound: bool,
    /// The maximum number of ports that one call creates.
    max_per_call: usize,
    /// The VIFs that lists show as incomplete, for tests of interrupted creations.
    incomplete: Mutex<BTreeSet<VifId>>,
    calls: Calls<BulkVifMethod, BulkVifCall>,
}

driver_calls! {
    /// A method of [`BulkVifDriver`], for planned faults.
    BulkVifMethod,
    /// A logged call of [`BulkVifDriver`].
    BulkVifCall,
    /// The method [`BulkVifDriver::create_vifs`], for this number of VIFs on the node with this name.
    CreateVifs(String, usize);
    /// The method [`BulkVifDriver::set_security_groups`], for this VIF.
    SetSecurityGroups(VifId);
    /// The method [`BulkVifDriver::delete_vifs`], for these VIFs.
    DeleteVifs(Vec<VifId>);
    /// The method [`BulkVifDriver::list_vifs`].
    ListVifs;
}

impl MemoryBulkVifDriver {
    /// Creates a driver of `network`. Its ports carry the ownership mark of `cluster`.
    pub fn new(network: Arc<MemoryNetwork>, cluster: ClusterId) -> Self {
        let (incomplete, calls) = (Mutex::default(), Calls::default());
        Self { network, cluster, active_unbound: true, max_per_call: usize::MAX, incomplete, calls }
    }

    /// Limits the number of ports that one call creates. By default, there is no limit.
    #[must_use]
    pub fn max_per_call(mut self, max: usize) -> Self {
        self.max_per_call = max;
        self
    }

    /// Makes the driver report that ports become active only when a node binds them.
    #[must_use]
    pub fn active_when_bound(mut self) -> Self {
        self.active_unbound = false;
        self
    }

    /// Makes lists show this VIF as incomplete (`true`), or as usable (`false`).
    pub fn set_incomplete(&self, vif: &VifId, incomplete: bool) {
        if incomplete {
            self.incomplete().insert(vif.clone());
        } else {
            self.incomplete().remove(vif);
        }
    }

    fn incomplete(&self) -> MutexGuard<'_, BTreeSet<VifId>> {
        self.incomplete.lock()
    }

    /// Returns the faults that are planned for later calls of this driver. [`Faults::inject`] adds others.
    pub fn faults(&self) -> &Faults<BulkVifMethod> {
        &self.calls.faults
    }

    /// Returns the last ten thousand calls, oldest first, including failed ones.
    pub fn calls(&self) -> Vec<BulkVifCall> {
        self.calls.log()
    }

    /// Creates the ports of `order`, but not more than the maximum of one call. If one cannot be created, returns those before it, with its
    /// error.
    fn create_all(&self, order: &BulkVifRequest) -> BulkVifResult {
        let BulkVifRequest { key, subnets, security_groups, count } = order;
        let request = VifRequest {
            owner: Owner { namespace: String::new(), name: String::new(), uid: "".into() },
            node_name: key.host.clone(),
            host_ip: None,
            project: key.project.clone(),
            subnets: subnets.clone(),
            security_groups: security_groups.clone(),
        };
        let mut created = BulkVifResult::default();
        while created.vifs.len() < self.max_per_call.min(*count) && created.failure.is_none() {
            match self.network.create_port(&self.cluster, &request, None, Instant::now()) {
                Ok(vif) => created.vifs.push(vif),
                Err(error) => created.failure = Some(error),
            }
        }
        created
    }

    /// Converts a port to a pooled VIF, or returns `None` if it has an owner or its ownership mark does not name this cluster.
    fn to_pooled(&self, port: MemoryPort) -> Option<PooledVif> {
        if !port.is_pooled(&self.cluster) {
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
        let call = BulkVifCall::CreateVifs(order.key.host.clone(), order.count);
        let created = self.calls.call(call, || Ok(self.create_all(order))).await;
        created.unwrap_or_else(|error| BulkVifResult { vifs: Vec::new(), failure: Some(error) })
    }

    async fn set_security_groups(
        &self,
        vif: &Vif,
        security_groups: &[SecurityGroupId],
    ) -> Result<(), DriverError> {
        let call = BulkVifCall::SetSecurityGroups(vif.id.clone());
        let work = || self.network.set_vif_groups(&vif.id, security_groups);
        self.calls.call(call, work).await
    }

    async fn delete_vifs(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)> {
        let work = || {
            for vif in vifs {
                self.network.delete_pooled(&self.cluster, &vif.id, Instant::now());
            }
            Ok(())
        };
        let call = BulkVifCall::DeleteVifs(vifs.iter().map(|vif| vif.id.clone()).collect());
        match self.calls.call(call, work).await {
            Ok(()) => Vec::new(),
            Err(error) => vifs.iter().map(|vif| (vif.id.clone(), error.clone())).collect(),
        }
    }

    async fn list_vifs(&self) -> Result<PooledVifList, DriverError> {
        let work = || {
            let now = Instant::now();
            let owned = |port: &MemoryPort| {
                let is_ours = port.cluster.as_ref() == Some(&self.cluster) && port.owner.is_some();
                is_ours.then(|| Owned { resource: port.vif_at(now), owner: port.owner.clone() })
            };
            let ports = self.network.ports();
            let owned = ports.iter().filter_map(owned).collect();
            let pooled = ports.into_iter().filter_map(|port| self.to_pooled(port));
            let incomplete = self.incomplete();
            let (incomplete, usable) = pooled.partition(|pooled| incomplete.contains(&pooled.vif.id));
            Ok(PooledVifList { usable, incomplete, owned })
        };
        self.calls.call(BulkVifCall::ListVifs, work).await
    }

    fn is_active_unbound(&self, _: &Vif) -> bool {
        self.active_unbound
    }
}
