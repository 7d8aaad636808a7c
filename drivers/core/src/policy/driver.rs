//! The driver `policy` of the security groups of pods: a pod is guarded from its first moment as policies say.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use super::book::PolicyBook;
use crate::error::{DriverError, Reason};
use crate::id::{GroupName, ProjectId, SecurityGroupId};
use crate::namespace_observer::NamespaceObserver;
use crate::network_policy_observer::NetworkPolicyObserver;
use crate::pod_security_groups::PodSecurityGroupsDriver;
use crate::rehearsal::PLANNED;

/// How long to wait before a group is looked for again that is being made.
const SOON: Duration = Duration::from_millis(200);

/// The driver `policy`: the groups that the book says. Where one is not there yet, the pod waits for it, so that it is never
/// open for a moment.
pub struct PolicySecurityGroups {
    book: Arc<PolicyBook>,
    rehearsed: bool,
}

impl PolicySecurityGroups {
    /// Answers what stands in `book`. When it is `rehearsed`, groups that would be made by then are named by what they are.
    pub fn new(book: Arc<PolicyBook>, rehearsed: bool) -> Self {
        Self { book, rehearsed }
    }
}

fn planned(name: &GroupName) -> SecurityGroupId {
    format!("{PLANNED}{name}").into()
}

#[async_trait]
impl PodSecurityGroupsDriver for PolicySecurityGroups {
    async fn security_groups(&self, pod: &Pod, _: &ProjectId) -> Result<Vec<SecurityGroupId>, DriverError> {
        let planned: Option<fn(&GroupName) -> SecurityGroupId> = self.rehearsed.then_some(planned);
        self.book.born(pod, planned).map_err(|missing| {
            let step = "find the security groups of a pod";
            let detail = format!("{missing}; the handler `policy` makes it");
            DriverError::new(Reason::Awaited, step).detail(detail).after(SOON)
        })
    }

    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        Some(Arc::clone(&self.book) as _)
    }

    fn policies(&self) -> Option<Arc<dyn NetworkPolicyObserver>> {
        Some(Arc::clone(&self.book) as _)
    }
}
