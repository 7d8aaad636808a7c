//! The lifecycle of a pod, as far as it determines the need for a network.

use k8s_openapi::api::core::v1::Pod;

/// A state in the lifecycle of a pod, as far as it determines the need for a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodLifecycle {
    /// The pod uses the network of its node (`hostNetwork`), whatever its phase.
    HostNetwork,
    /// The pod is not scheduled to a node yet.
    Unscheduled,
    /// The pod has a node and needs a VIF before its containers can start.
    Starting,
    /// The pod has started, or its status is missing, which does not tell. It has a network, either from this controller or from another
    /// component.
    Started,
    /// The deletion of the pod was requested; its containers may still run.
    Terminating,
    /// All containers of the pod have ended, and none will be started again.
    Finished {
        /// `true` if the deletion of the pod was requested.
        deleting: bool,
    },
}

impl PodLifecycle {
    /// Derives the state from the pod's spec, phase and deletion timestamp.
    pub fn of(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let deleting = pod.metadata.deletion_timestamp.is_some();
        // The server sets it together with the timestamp, and lowers it to 0 when the kubelet says that all ended.
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        if spec.and_then(|spec| spec.host_network).unwrap_or(false) {
            Self::HostNetwork
        } else if matches!(phase, Some("Succeeded" | "Failed")) || (deleting && grace == 0) {
            Self::Finished { deleting }
        } else if deleting {
            Self::Terminating
        } else if spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default().is_empty() {
            Self::Unscheduled
        } else if phase == Some("Pending") {
            Self::Starting
        } else {
            Self::Started
        }
    }

    /// Returns `true` if the pod has, or will have, a network of its own, and its containers have not ended.
    pub fn has_network(self) -> bool {
        !matches!(self, Self::HostNetwork | Self::Finished { .. })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn life(metadata: &Value, spec: &Value, phase: Option<&str>) -> PodLifecycle {
        let status = phase.map(|phase| json!({ "phase": phase }));
        let pod = json!({ "metadata": metadata, "spec": spec, "status": status });
        PodLifecycle::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_without_spec_and_status_waits_for_its_node() {
        assert_eq!(PodLifecycle::of(&Pod::default()), PodLifecycle::Unscheduled);
    }

    #[test]
    fn a_pod_starts_on_its_node_and_has_started_when_it_is_pending_no_more() {
        let spec = json!({ "containers": [], "nodeName": "n" });
        assert_eq!(
            life(&json!({}), &json!({ "containers": [] }), Some("Pending")),
            PodLifecycle::Unscheduled
        );
        assert_eq!(life(&json!({}), &spec, None), PodLifecycle::Started, "it may run");
        assert_eq!(life(&json!({}), &spec, Some("Pending")), PodLifecycle::Starting);
        assert_eq!(life(&json!({}), &spec, Some("Running")), PodLifecycle::Started);
        assert_eq!(life(&json!({}), &spec, Some("Unknown")), PodLifecycle::Started);
    }

    #[test]
    fn a_terminating_pod_lives_until_its_grace_time_or_its_phase_is_over() {
        let spec = json!({ "containers": [], "nodeName": "n" });
        let asked = |grace: i64| json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace });
        assert_eq!(life(&asked(30), &spec, Some("Running")), PodLifecycle::Terminating);
        assert_eq!(life(&asked(0), &spec, Some("Running")), PodLifecycle::Finished { deleting: true });
        assert_eq!(life(&asked(30), &spec, Some("Succeeded")), PodLifecycle::Finished { deleting: true });
        assert_eq!(life(&json!({}), &spec, Some("Failed")), PodLifecycle::Finished { deleting: false });
    }

    #[test]
    fn a_pod_in_its_nodes_network_is_never_our_concern() {
        let spec = json!({ "containers": [], "nodeName": "n", "hostNetwork": true });
        assert_eq!(life(&json!({}), &spec, Some("Failed")), PodLifecycle::HostNetwork);
    }
}
