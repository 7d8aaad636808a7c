//! The last status of a pod: nothing of it is left on its machine.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};
use serde_json::Value;

use super::conditions::conditions;
use super::containers::removed;
use super::status::patch;

/// What is written of a pod that was removed from its machine: each container has ended, and so has the pod, for good. None when
/// it says so already.
pub(crate) fn over(pod: &Pod, now: Timestamp) -> Option<Value> {
    let before = pod.status.clone().unwrap_or_default();
    if matches!(before.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let known = before.container_statuses.as_deref().unwrap_or_default();
    let ended = |container: &Container| {
        let known = known.iter().find(|known| known.name == container.name);
        removed(container, known, now)
    };
    let containers: Vec<_> = pod.spec.iter().flat_map(|spec| &spec.containers).map(ended).collect();
    let phase = if containers.iter().all(succeeded) { "Succeeded" } else { "Failed" };
    let conditions = conditions(pod, &containers, phase, false, now);
    let over = PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions),
        container_statuses: Some(containers),
        pod_ip: before.pod_ip,
        pod_ips: before.pod_ips,
        host_ip: before.host_ip,
        host_ips: before.host_ips,
        start_time: before.start_time,
        ..PodStatus::default()
    };
    patch(pod, &over)
}

fn succeeded(container: &ContainerStatus) -> bool {
    let ended = container.state.as_ref().and_then(|state| state.terminated.as_ref());
    ended.is_some_and(|ended| ended.exit_code == 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn over_of(states: &[Value]) -> Option<Value> {
        let container = |number: usize| json!({ "name": format!("c{number}"), "image": "i" });
        let status = |(number, state): (usize, &Value)| json!({ "name": format!("c{number}"), "image": "i", "imageID": "i", "ready": true, "restartCount": 2, "state": state });
        let pod = json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
            "spec": { "containers": (0..2).map(container).collect::<Vec<_>>() },
            "status": { "phase": "Running", "podIP": "10.0.0.1",
                "containerStatuses": states.iter().enumerate().map(status).collect::<Vec<_>>() },
        });
        over(&serde_json::from_value(pod).unwrap(), Timestamp::from_second(9).unwrap())
    }

    #[test]
    fn what_ran_was_killed_and_what_had_ended_keeps_how() {
        let running = json!({ "running": { "startedAt": "1970-01-01T00:00:01Z" } });
        let ended = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
        let over = over_of(&[running, ended.clone()]).unwrap();
        assert_eq!((&over["phase"], &over["podIP"]), (&json!("Failed"), &json!("10.0.0.1")));
        let killed = &over["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(
            (&killed["exitCode"], &killed["startedAt"]),
            (&json!(137), &json!("1970-01-01T00:00:01Z"))
        );
        assert_eq!(over["containerStatuses"][1]["state"], ended);
        assert_eq!(over["containerStatuses"][0]["restartCount"], 2);
        assert_eq!(over_of(&[ended.clone(), ended]).unwrap()["phase"], "Succeeded");
        assert_eq!(over_of(&[]).unwrap()["phase"], "Failed", "it never ran");
    }
}
