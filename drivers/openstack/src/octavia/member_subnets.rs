//! The subnets through which load balancers reach their members.

use std::net::IpAddr;
use std::sync::Arc;

use staffetta_driver::{Reason, Subnet, SubnetId};

use super::options::MemberMode;
use crate::error::DriverResult;
use crate::placement::{Namespaces, Subnets};

/// The parameters by which the driver finds the subnet through which a load balancer reaches a member.
pub struct MemberSubnets {
    /// The path from load balancers to pods.
    pub mode: MemberMode,
    /// The subnet of pods whose namespace has no network, if there is one.
    pub pods: Option<SubnetId>,
    /// The reader of subnets in Neutron, with a cache.
    pub subnets: Arc<Subnets>,
    /// The namespaces of the Kubernetes cluster, whose annotations contain the ids of their subnets.
    pub namespaces: Arc<Namespaces>,
}

impl MemberSubnets {
    /// Returns the subnet of the member `name` (`namespace/pod:port`) with the address `ip`. In the mode `L2`, it is the subnet of the
    /// namespace or that of all pods, if the subnet contains the address. Otherwise, and in the mode `L3`, it is `vip`, the subnet of the
    /// load balancer's virtual address.
    pub(super) async fn of(&self, name: &str, ip: IpAddr, vip: &SubnetId) -> DriverResult<SubnetId> {
        if self.mode == MemberMode::L3 {
            return Ok(vip.clone());
        }
        let namespace = name.split('/').next().unwrap_or_default();
        let mut found = containing(ip, self.subnets.of_namespace(&self.namespaces, namespace).await)?;
        if let (None, Some(pods)) = (&found, &self.pods) {
            found = containing(ip, self.subnets.subnet(pods).await)?;
        }
        Ok(found.unwrap_or_else(|| vip.clone()))
    }
}

/// Returns the id of the subnet if it contains `ip`. A subnet that does not exist, or not yet, contains no address.
fn containing(ip: IpAddr, subnet: DriverResult<Subnet>) -> DriverResult<Option<SubnetId>> {
    match subnet {
        Ok(known) => Ok(known.cidr.contains(&ip).then_some(known.id)),
        Err(error) if matches!(error.reason(), Reason::NotFound | Reason::Awaited) => Ok(None),
        Err(error) => Err(error),
    }
}
