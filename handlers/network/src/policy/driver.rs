//! The driver `policy` of the option `pod_security_groups_driver`: new pods start with the security
//! groups that the network policies require.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{
    DriverError, NamespaceObserver, NetworkPolicyObserver, PodSecurityGroupsDriver, ProjectId, Reason,
    SecurityGroupId,
};

use super::error::RETRY_DELAY;
use super::index::PolicyIndex;

/// The driver `policy` of the option `pod_security_groups_driver`, which finds the security groups
/// of a new pod in the [`PolicyIndex`].
///
/// While one of the groups does not exist yet, the driver returns an error with the reason
/// [`Reason::Awaited`]. The pod gets no VIF until then, so that it is never unprotected.
pub struct PolicySecurityGroups {
    index: Arc<PolicyIndex>,
    dry_run: bool,
}

impl PolicySecurityGroups {
    /// Creates a driver that reads from `index`. In a `dry_run`, a group that does not exist yet
    /// gets a placeholder id, and no error is returned.
    pub fn new(index: Arc<PolicyIndex>, dry_run: bool) -> Self {
        Self { index, dry_run }
    }
}

#[async_trait]
impl PodSecurityGroupsDriver for PolicySecurityGroups {
    async fn security_groups(&self, pod: &Pod, _: &ProjectId) -> Result<Vec<SecurityGroupId>, DriverError> {
        self.index.apply_changes().await;
        self.index.assign_groups(pod, self.dry_run).map_err(|missing| {
            let step = "find the security groups of a pod";
            let detail = format!("{missing}; the handler `policy` creates it");
            DriverError::new(Reason::Awaited, step).detail(detail).after(RETRY_DELAY)
        })
    }

    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        Some(Arc::clone(&self.index) as _)
    }

    fn policies(&self) -> Option<Arc<dyn NetworkPolicyObserver>> {
        Some(Arc::clone(&self.index) as _)
    }
}
