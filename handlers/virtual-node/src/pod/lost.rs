//! Containers that a machine has lost: they ran, as the status of their pod says, and the machine has them no more.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use staffetta_driver::app_hosting::{DeploymentStage, HostedContainerState, HostedPod};

use super::containers::ended_unseen;
use super::observation::container_of;

/// Returns `true` if the machine has nothing of the container, or its configuration alone.
pub(super) fn is_absent(workload: Option<&HostedPod>, name: &str) -> bool {
    let container = workload.and_then(|workload| container_of(workload, name));
    container.is_none_or(|container| {
        matches!(&container.state, HostedContainerState::Waiting { stage: DeploymentStage::Configured, .. })
    })
}

/// Returns `true` if the machine has lost a container of the pod.
pub(super) fn has_lost(pod: &Pod, workload: Option<&HostedPod>) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.into_iter().any(|container| runs(container) && is_absent(workload, &container.name))
}

/// Returns `true` if no container of the pod is started a second time.
pub(super) fn runs_once(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Never")
}

/// Returns the pod, whose containers are started once (`restartPolicy: Never`), as it is after the machine has lost some of them: the
/// status says that they have ended, and the specification has only the others. `None` if none is lost, or the pod has another policy.
pub(crate) fn after_loss(pod: &Pod, workload: Option<&HostedPod>, now: Timestamp) -> Option<Pod> {
    if !runs_once(pod) {
        return None;
    }
    let mut pod = pod.clone();
    let mut over = Vec::new();
    for status in pod.status.as_mut()?.container_statuses.iter_mut().flatten() {
        if !is_absent(workload, &status.name) || !(runs(status) || has_ended(status)) {
            continue;
        }
        over.push(status.name.clone());
        if let Some(running) = status.state.take_if(|state| state.running.is_some()) {
            status.state = Some(ended_unseen(running.running.and_then(|running| running.started_at), now));
        }
    }
    pod.spec.as_mut()?.containers.retain(|container| !over.contains(&container.name));
    (!over.is_empty()).then_some(pod)
}

fn runs(container: &ContainerStatus) -> bool {
    matches!(&container.state, Some(ContainerState { running: Some(_), .. }))
}

/// Returns `true` if the status says that the container has ended.
pub(super) fn has_ended(container: &ContainerStatus) -> bool {
    matches!(&container.state, Some(ContainerState { terminated: Some(_), .. }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use staffetta_driver::Owner;
    use staffetta_driver::app_hosting::HostedContainer;

    use super::super::{Change, PodObservation, status};
    use super::*;

    fn pod(policy: &str, states: &[(&str, serde_json::Value)]) -> Pod {
        let containers: Vec<_> =
            states.iter().map(|(name, _)| json!({ "name": name, "image": "i" })).collect();
        let status = |(name, state): &(&str, serde_json::Value)| json!({ "name": name, "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state });
        let statuses: Vec<_> = states.iter().map(status).collect();
        serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
            "spec": { "restartPolicy": policy, "containers": containers },
            "status": { "phase": "Running", "containerStatuses": statuses },
        }))
        .unwrap()
    }

    fn workload(states: &[(&str, HostedContainerState)]) -> HostedPod {
        let containers = states.iter().map(|(name, state)| HostedContainer {
            name: (*name).into(),
            id: "x".into(),
            state: state.clone(),
        });
        let owner = Owner::of(&pod("Never", &[]).metadata);
        HostedPod { owner, marked: true, containers: containers.collect(), ip: None }
    }

    fn configured() -> HostedContainerState {
        HostedContainerState::Waiting { stage: DeploymentStage::Configured, message: String::new() }
    }

    #[test]
    fn a_pod_that_is_started_once_fails_when_its_machine_has_lost_it_as_with_a_kubelet() {
        let pod = pod("Never", &[("app", json!({ "running": {} }))]);
        let only_configured = workload(&[("app", configured())]);
        for there in [None, Some(&only_configured)] {
            assert!(has_lost(&pod, there));
            let over = after_loss(&pod, there, Timestamp::UNIX_EPOCH).unwrap();
            assert!(over.spec.as_ref().unwrap().containers.is_empty());
            let over = Pod { spec: pod.spec.clone(), ..over };
            let (why, change, host_ip) = (("", ""), Change::Nothing, None);
            let observation = PodObservation { workload: there, why, change, host_ip };
            let status = status(&over, &observation, Timestamp::UNIX_EPOCH);
            let container = &status.container_statuses.as_ref().unwrap()[0];
            let ended = container.state.as_ref().unwrap().terminated.as_ref().unwrap();
            assert_eq!((ended.exit_code, ended.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
            assert_eq!((status.phase.as_deref(), container.ready), (Some("Failed"), false));
        }
    }

    #[test]
    fn the_containers_that_are_left_of_a_pod_go_on_and_a_pod_that_may_be_restarted_is() {
        let running = json!({ "running": {} });
        let states = [("app", running.clone()), ("db", running), ("late", json!({ "waiting": {} }))];
        let there = workload(&[("db", HostedContainerState::Running)]);
        let rest = after_loss(&pod("Never", &states), Some(&there), Timestamp::UNIX_EPOCH).unwrap();
        let names: Vec<_> =
            rest.spec.unwrap().containers.into_iter().map(|container| container.name).collect();
        assert_eq!(names, ["db", "late"]);
        for policy in ["Always", "OnFailure"] {
            assert!(has_lost(&pod(policy, &states), Some(&there)));
            assert_eq!(after_loss(&pod(policy, &states), Some(&there), Timestamp::UNIX_EPOCH), None);
        }
        let all = workload(&[("app", HostedContainerState::Running), ("db", HostedContainerState::Running)]);
        assert!(!has_lost(&pod("Never", &states), Some(&all)));
        assert_eq!(after_loss(&pod("Never", &states), Some(&all), Timestamp::UNIX_EPOCH), None);
    }
}
