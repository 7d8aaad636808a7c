//! Finds the ports of nodes that are virtual machines of the same cloud.

use std::net::IpAddr;
use std::sync::Arc;

use dashmap::DashMap;
use staffetta_driver::{DriverError, Reason, SubnetId, VifRequest};
use tokio::sync::OnceCell;

use super::api::NeutronApi;
use super::wire::PortBody;
use crate::error::DriverResult;

const STEP: &str = "find the port of the node";
/// The fields of the port of a node that are read.
const FIELDS: &str = "id trunk_details";

/// Values of the type `T` that are derived from the ports of nodes. They are cached by the node's address in Kubernetes until
/// [`forget`](Self::forget) is called.
#[derive(Debug)]
pub(crate) struct NodePorts<T> {
    neutron: NeutronApi,
    /// The subnets in which the nodes have their addresses.
    subnets: Vec<SubnetId>,
    cache: DashMap<IpAddr, Arc<OnceCell<Arc<T>>>>,
}

impl<T> NodePorts<T> {
    /// Creates an empty cache. The nodes have their addresses in `subnets`.
    pub(crate) fn new(neutron: NeutronApi, subnets: Vec<SubnetId>) -> Self {
        Self { neutron, subnets, cache: DashMap::new() }
    }

    /// Returns the cached value of the node at `host`, or derives it from the node's port. Simultaneous calls share one request. The error
    /// is [`Reason::NotFound`] unless exactly one port has the address in the subnets of nodes.
    pub(crate) async fn of(
        &self,
        host: IpAddr,
        derive: impl Fn(PortBody) -> DriverResult<T>,
    ) -> DriverResult<Arc<T>> {
        let cell = Arc::clone(&self.cache.entry(host).or_default());
        cell.get_or_try_init(|| async { derive(self.find(host).await?).map(Arc::new) }).await.cloned()
    }

    /// Removes the cached value of the node at `host`.
    pub(crate) fn forget(&self, host: IpAddr) {
        self.cache.remove(&host);
    }

    /// Finds the port of the node at `host`: the only port with this address in the subnets of nodes. If there is none, or more than one,
    /// the error is [`Reason::NotFound`].
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

/// Returns the address of the pod's node. The status of the pod contains it as soon as the kubelet has reported it; until then, the error
/// is [`Reason::Awaited`].
pub(crate) fn host_of(request: &VifRequest) -> DriverResult<IpAddr> {
    request.host_ip.ok_or_else(|| {
        let detail = format!(
            "the status of the pod does not contain the address of the node {} yet",
            request.node_name
        );
        DriverError::new(Reason::Awaited, STEP).detail(detail)
    })
}
