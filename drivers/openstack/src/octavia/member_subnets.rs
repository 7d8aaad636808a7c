//! The subnets through which load balancers reach their members.

use std::net::IpAddr;
use std::sync::Arc;

use staffetta_driver::{Reason, SubnetId};

use super::options::MemberMode;
use crate::error::DriverResult;
use crate::namespaces::Namespaces;
use crate::subnets::Subnets;

/// Finds the subnet through which a load balancer reaches a member.
pub struct MemberSubnets {
    /// The member mode.
    pub mode: MemberMode,
    /// The subnet of pods in namespaces without a network.
    pub pods: Option<SubnetId>,
    /// The subnets.
    pub subnets: Arc<Subnets>,
    /// The namespaces.
    pub namespaces: Arc<Namespaces>,
}

impl MemberSubnets {
    /// Returns the subnet of the member `name` (`namespace/pod:port`) with the address `ip`. In the mode `L3`, or if it is not known, it is
    /// `vip`, that of the load balancer's address.
    pub(super) async fn of(&self, name: &str, ip: IpAddr, vip: &SubnetId) -> DriverResult<SubnetId> {
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
