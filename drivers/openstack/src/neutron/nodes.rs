//! The ports of nodes that are machines of the same cloud.

use std::net::IpAddr;
use std::sync::Arc;

use dashmap::DashMap;
use staffetta_driver::{DriverError, Reason, SubnetId, VifId, VifRequest};
use tokio::sync::OnceCell;

use super::api::Neutron;
use super::wire::{Port, TrunkDetails};

const STEP: &str = "find the port of the node";
const FIELDS: [&str; 2] = ["id", "trunk_details"];

/// The ports of nodes, by the address at which Kubernetes knows the node. Each is asked for once, and again after it was
/// forgotten.
#[derive(Debug)]
pub(crate) struct Nodes<T> {
    neutron: Neutron,
    /// Where nodes have their addresses.
    subnets: Vec<SubnetId>,
    known: DashMap<IpAddr, Arc<OnceCell<Arc<T>>>>,
}

/// The port of a node.
pub(crate) struct NodePort {
    pub(crate) id: VifId,
    pub(crate) trunk: Option<TrunkDetails>,
}

impl<T> Nodes<T> {
    /// Nodes whose addresses are in these subnets.
    pub(crate) fn new(neutron: Neutron, subnets: Vec<SubnetId>) -> Self {
        Self { neutron, subnets, known: DashMap::new() }
    }

    /// What `make` makes of the port of the node at `host`. However many ask, Neutron is asked once.
    pub(crate) async fn of(
        &self,
        host: IpAddr,
        make: impl Fn(NodePort) -> Result<T, DriverError>,
    ) -> Result<Arc<T>, DriverError> {
        let cell = Arc::clone(&self.known.entry(host).or_default());
        cell.get_or_try_init(|| async { make(self.find(host).await?).map(Arc::new) }).await.cloned()
    }

    /// What is known of the node at `host`, if anything is.
    pub(crate) fn known(&self, host: IpAddr) -> Option<Arc<T>> {
        self.known.get(&host)?.get().cloned()
    }

    /// Whatever is known of the node at `host` is wrong by now.
    pub(crate) fn forget(&self, host: IpAddr) {
        self.known.remove(&host);
    }

    async fn find(&self, host: IpAddr) -> Result<NodePort, DriverError> {
        let subnets = self.subnets.iter().map(|subnet| format!("subnet_id={subnet}"));
        let filter: Vec<_> =
            subnets.chain([format!("ip_address={host}")]).map(|fixed_ip| ("fixed_ips", fixed_ip)).collect();
        let mut ports = self.neutron.ports(STEP, &filter, &FIELDS).await?.into_iter();
        let failed = |detail| Err(DriverError::new(Reason::NotFound, STEP).detail(detail));
        match (ports.next(), ports.next()) {
            (Some(Port { id, trunk_details, .. }), None) => Ok(NodePort { id, trunk: trunk_details }),
            (None, _) => failed(format!(
                "no port has the address {host} in the subnets of `pod_vif_nested.worker_nodes_subnets`"
            )),
            (Some(one), Some(other)) => failed(format!(
                "both {} and {} have the address {host} in the subnets of `pod_vif_nested.worker_nodes_subnets`",
                one.id, other.id
            )),
        }
    }
}

/// The address of the node, of which the pod's status tells once the kubelet knows of the pod.
pub(crate) fn host_of(request: &VifRequest) -> Result<IpAddr, DriverError> {
    request.host_ip.ok_or_else(|| {
        let detail =
            format!("the status of the pod does not tell the address of the node {} yet", request.node_name);
        DriverError::new(Reason::Awaited, STEP).detail(detail)
    })
}
