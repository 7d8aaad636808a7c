//! A port of the simulated network.

use tokio::time::Instant;

use serde::{Deserialize, Serialize};
use staffetta_driver::{ClusterId, Owner, ProjectId, SecurityGroupId, SubnetId, Vif};

/// A port of the simulated network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryPort {
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
    /// Its security groups.
    pub security_groups: Vec<SecurityGroupId>,
    /// The subnets of its addresses, in the same order.
    pub subnets: Vec<SubnetId>,
    /// The time from which it is ACTIVE. Not in JSON, whose `vif` contains the current state.
    #[serde(skip, default = "Instant::now")]
    pub active_at: Instant,
}

impl MemoryPort {
    /// Returns the VIF at the time `now`.
    pub fn vif_at(&self, now: Instant) -> Vif {
        Vif { active: self.vif.active || self.active_at <= now, ..self.vif.clone() }
    }
}
