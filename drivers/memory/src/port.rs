//! A port of the simulated network, as tests and other processes see it.

use tokio::time::Instant;

use super::mark::Mark;
use serde::{Deserialize, Serialize};
use staffetta_driver::{ClusterId, Owner, ProjectId, SecurityGroupId, SubnetId, Vif};

/// A port of the simulated network, with its ownership mark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryPort {
    /// The VIF as it was when the port was created. [`vif_at`](Self::vif_at) returns its current state.
    pub vif: Vif,
    /// The cluster in the ownership mark; `None` for a port that another controller created.
    pub cluster: Option<ClusterId>,
    /// The pod in the ownership mark, or the pod of a port of Kuryr; `None` for a pooled port.
    pub owner: Option<Owner>,
    /// The node that binds the port.
    pub node_name: String,
    /// The project of the port.
    pub project: ProjectId,
    /// The security groups of the port.
    pub security_groups: Vec<SecurityGroupId>,
    /// The subnet of each address of the port, in the order of the addresses.
    pub subnets: Vec<SubnetId>,
    /// The time from which the port is ACTIVE. JSON does not contain it; there, `vif` has the current state.
    #[serde(skip, default = "Instant::now")]
    pub active_at: Instant,
}

impl MemoryPort {
    /// Returns the ownership mark of the port.
    pub(super) fn mark(&self) -> Mark {
        Mark { cluster: self.cluster.clone(), owner: self.owner.clone() }
    }

    /// Returns the VIF with its state at the time `now`.
    pub fn vif_at(&self, now: Instant) -> Vif {
        Vif { active: self.vif.active || self.active_at <= now, ..self.vif.clone() }
    }

    /// Returns `true` if the port is that of the pod `owner` in `cluster`, or if Kuryr created it for the pod.
    pub(super) fn belongs_to(&self, cluster: &ClusterId, owner: &Owner) -> bool {
        self.cluster.as_ref().is_none_or(|marked| marked == cluster)
            && self.owner.as_ref().is_some_and(|marked| marked.uid == owner.uid)
    }

    /// Returns `true` if the port belongs to a pool of `cluster`.
    pub(super) fn is_pooled(&self, cluster: &ClusterId) -> bool {
        self.cluster.as_ref() == Some(cluster) && self.owner.is_none()
    }
}
