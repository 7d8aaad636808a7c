//! The ports of nodes that are machines of the same cloud.

use std::net::IpAddr;
use std::sync::Arc;

use dashmap::DashMap;
use staffetta_driver::{DriverError, Reason, SubnetId, VifRequest};
use tokio::sync::OnceCell;

use super::api::NeutronApi;
use super::wire::PortBody;
use crate::error::DriverResult;

const STEP: &str = "find the port of the node";
const FIELDS: &str = "id trunk_details";

/// Values that are derived from the ports of nodes, cached by the address of the node in Kubernetes until they are forgotten.
#[derive(Debug)]
pub(crate) struct NodePorts<T> {
    neutron: NeutronApi,
    /// The subnets of the nodes' addresses.
    subnets: Vec<SubnetId>,
    cache: DashMap<IpAddr, Arc<OnceCell<Arc<T>>>>,
}

impl<T> NodePorts<T> {
    pub(crate) fn new(neutron: NeutronApi, subnets: Vec<SubnetId>) -> Self {
        Self { neutron, subnets, cache: DashMap::new() }
    }

    /// Returns the cached value of the node at `host`, or derives it from the node's port. Simultaneous calls share one request.
    pub(crate) async fn of(
        &self,
        host: IpAddr,
        derive: impl Fn(PortBody) -> DriverResult<T>,
    ) -> DriverResult<Arc<T>> {
        let cell = Arc::clone(&self.cache.entry(host).or_default());
        cell.get_or_try_init(|| async { derive(self.find(host).await?).map(Arc::new) }).await.cloned()
    }

    /// The cached value.
    pub(crate) fn known(&self, host: IpAddr) -> Option<Arc<T>> {
        self.cache.get(&host)?.get().cloned()
    }

    /// Drops the cached value.
    pub(crate) fn forget(&self, host: IpAddr) {
        self.cache.remove(&host);
    }

    async fn find(&self, host: IpAddr) -> DriverResult<PortBody> {
        let subnets = self.subnets.iter().map(|subnet| format!("subnet_id={subnet}"));
        let filter: Vec<_> =
            subnets.chain([format!("ip_address={host}")]).map(|fixed_ip| ("fixed_ips", fixed_ip)).collect();
        let mut ports = self.neutron.ports(STEP, &filter, FIELDS).await?.into_iter();
        let found = match (ports.next(), ports.next()) {
            (Some(port), None) => return Ok(port),
            (Some(one), Some(other)) => format!("both {} and {} have", one.id, other.id),
            (None, _) => "no port has".to_owned(),
        };
        let detail =
            format!("{found} the address {host} in the subnets of `pod_vif_nested.worker_nodes_subnets`");
        Err(DriverError::new(Reason::NotFound, STEP).detail(detail))
    }
}

/// The address of the node, which the pod's status contains once the kubelet has reported it.
pub(crate) fn host_of(request: &VifRequest) -> DriverResult<IpAddr> {
    request.host_ip.ok_or_else(|| {
        let detail = format!(
            "the status of the pod does not contain the address of the node {} yet",
            request.node_name
        );
        DriverError::new(Reason::Awaited, STEP).detail(detail)
    })
}
