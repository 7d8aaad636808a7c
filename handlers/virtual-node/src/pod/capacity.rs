//! The capacity of a node for pods.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// Returns the status of a pod that its node rejects, as a kubelet does: `on_node` has `capacity` other pods that were started, or were
/// created before it, and are not finished. `None` if there is room for the pod, it was started, or it is being deleted.
pub(crate) fn out_of_pods<'a>(
    pod: &Pod,
    on_node: impl Iterator<Item = &'a Pod>,
    capacity: u32,
) -> Option<Value> {
    let is_started = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
    let is_finished = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    if is_started(pod) || is_finished(pod) || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let age = |pod: &Pod| (pod.metadata.creation_timestamp.clone(), pod.metadata.uid.clone());
    let own = age(pod);
    let is_before = |other: &&Pod| {
        other.metadata.uid != pod.metadata.uid
            && !is_finished(other)
            && (is_started(other) || age(other) < own)
    };
    let used = on_node.filter(is_before).count();
    (used >= usize::try_from(capacity).unwrap_or(usize::MAX)).then(|| {
        let message = format!(
            "Node didn't have enough resource: pods, requested: 1, used: {used}, capacity: {capacity}"
        );
        json!({ "phase": "Failed", "reason": "OutOfpods", "message": message })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: u8, status: &Value) -> Pod {
        let created = format!("2026-01-01T00:00:{number:02}Z");
        let metadata = json!({ "name": "web", "uid": number.to_string(), "creationTimestamp": created });
        serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
    }

    #[test]
    fn a_pod_beyond_the_capacity_is_rejected_and_one_that_was_started_or_came_before_stays() {
        let started = json!({ "phase": "Running", "startTime": "2026-01-01T00:01:00Z" });
        let pods =
            [pod(1, &json!({})), pod(2, &json!({})), pod(3, &started), pod(4, &json!({ "phase": "Failed" }))];
        let rejected = |capacity| -> Vec<bool> {
            pods.iter().map(|pod| out_of_pods(pod, pods.iter(), capacity).is_some()).collect()
        };
        assert_eq!(rejected(3), [false, false, false, false]);
        assert_eq!(rejected(2), [false, true, false, false]);
        assert_eq!(rejected(1), [true, true, false, false]);
        let status = out_of_pods(&pods[1], pods.iter(), 2).unwrap();
        assert_eq!(status["reason"], "OutOfpods");
        assert!(status["message"].as_str().unwrap().ends_with("requested: 1, used: 2, capacity: 2"));
    }
}
