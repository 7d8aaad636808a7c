//! Through which subnet a load balancer reaches a member.

use std::net::IpAddr;
use std::sync::Arc;

use staffetta_driver::{DriverError, Reason, SubnetId};

use super::options::MemberMode;
use crate::namespaces::Namespaces;
use crate::subnets::Subnets;

/// Knows through which subnet a load balancer reaches a member.
pub struct MemberSubnets {
    /// Whether it has interfaces in the subnets of pods.
    pub mode: MemberMode,
    /// The subnet of pods whose namespace has none.
    pub pods: Option<SubnetId>,
    /// What is known of subnets.
    pub subnets: Arc<Subnets>,
    /// What is known of namespaces.
    pub namespaces: Arc<Namespaces>,
}

impl MemberSubnets {
    /// The subnet for the member `name` (`namespace/pod:port`) with the address `ip`, of a load balancer whose own address is
    /// in the subnet `vip`: that one, unless the member's own subnet is wanted and known.
    pub(super) async fn of(&self, name: &str, ip: IpAddr, vip: &SubnetId) -> Result<SubnetId, DriverError> {
        if self.mode == MemberMode::L3 {
            return Ok(vip.clone());
        }
        let namespace = name.split('/').next().unwrap_or_default();
        let own = self.namespaces.subnet(namespace).ok();
        for subnet in own.iter().chain(&self.pods) {
            match self.subnets.subnet(subnet).await {
                Ok(known) if known.cidr.contains(&ip) => return Ok(subnet.clone()),
                Ok(_) => {}
                Err(error) if error.reason() == Reason::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(vip.clone())
    }
}
