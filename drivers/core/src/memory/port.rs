//! A port of the simulated network.

use tokio::time::Instant;

use crate::id::{ClusterId, ProjectId, SecurityGroupId, SubnetId};
use crate::owner::Owner;
use crate::vif::Vif;

/// A port of the simulated network.
#[derive(Clone, Debug)]
pub struct Port {
    /// The VIF as it was handed out.
    pub vif: Vif,
    /// The cluster whose mark it carries.
    pub cluster: Option<ClusterId>,
    /// The owner whose mark it carries.
    pub owner: Option<Owner>,
    /// The node on which it is bound.
    pub node_name: String,
    /// The project to which it belongs.
    pub project: ProjectId,
    /// The security groups that guard it.
    pub security_groups: Vec<SecurityGroupId>,
    /// The subnets of its addresses, in the order of those.
    pub subnets: Vec<SubnetId>,
    /// From when on it is ACTIVE.
    pub active_at: Instant,
}

impl Port {
    /// The VIF as it is now.
    pub fn vif_at(&self, now: Instant) -> Vif {
        Vif { active: self.vif.active || self.active_at <= now, ..self.vif.clone() }
    }
}
