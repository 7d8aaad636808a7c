//! Decides the next step for a pod, from the pod, its workload and the earlier steps of this process.

use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::app_hosting::{HostedContainer, HostedContainerState, HostedPod};

use super::form::form;
use super::lost::has_lost;
use super::observation::container_of;

/// The next step for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodTask {
    /// No step: the pod has finished, and its workload is removed, or cannot or must not be removed now.
    Leave,
    /// Wait: no step may be sent to the machine now, because it is not reachable, or its Node object is not owned by this handler or is
    /// being removed.
    Wait,
    /// Write the status only: the workload runs as the pod specifies.
    Report,
    /// Take one step to deploy the pod on its machine, and write the status.
    Apply {
        /// `true` if the specification of the pod differs from the deployed one.
        replaces: bool,
        /// `true` if the machine had the workload of the pod, or a container of it that ran, and has it no more.
        lost: bool,
    },
    /// Remove the workload of a finished pod from the machine, to free its resources.
    Clear,
    /// Remove the workload from the machine, then delete the pod object.
    Remove,
}

/// The facts about a pod, besides its object, on which the next step depends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PodFacts<'a> {
    /// `true` if steps for the pod may be sent to the machine.
    pub(crate) reachable: bool,
    /// The workload of the pod on the machine; `None` if there is none.
    pub(crate) workload: Option<&'a HostedPod>,
    /// The digest ([`form`]) of the specification that this process has deployed; `None` if it has deployed none.
    pub(crate) applied: Option<u64>,
    /// `true` if this process has seen the workload of the pod on the machine.
    pub(crate) workload_seen: bool,
}

/// Decides the next step for a pod on a virtual node.
pub(crate) fn decide(pod: &Pod, facts: &PodFacts<'_>) -> PodTask {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let finished = matches!(phase, "Succeeded" | "Failed");
    if finished && pod.metadata.deletion_timestamp.is_none() {
        return if facts.reachable && facts.workload.is_some_and(is_removable) {
            PodTask::Clear
        } else {
            PodTask::Leave
        };
    }
    if !facts.reachable {
        return PodTask::Wait;
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return PodTask::Remove;
    }
    let same = facts.applied == Some(form(pod));
    if same && facts.workload.is_some_and(|workload| runs(pod, workload)) {
        return PodTask::Report;
    }
    PodTask::Apply {
        replaces: if facts.applied.is_some() { !same } else { image_differs(pod) },
        lost: facts.workload_seen && (facts.workload.is_none() || has_lost(pod, facts.workload)),
    }
}

/// Returns `true` if the status contains an image that the pod no longer has: the image was changed while no controller
/// was running.
fn image_differs(pod: &Pod) -> bool {
    let known = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let image = |name: &str| {
        let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.find(|container| container.name == name)?.image.as_deref()
    };
    known
        .into_iter()
        .any(|known| !known.image.is_empty() && image(&known.name).is_some_and(|image| image != known.image))
}

/// Returns `true` if the workload of a finished pod should be removed. A running workload without the ownership mark of
/// this cluster stays, because a previous controller may have wrongly reported the pod as finished.
fn is_removable(workload: &HostedPod) -> bool {
    workload.marked || !workload.containers.iter().any(is_running)
}

/// Returns `true` if all containers of the pod are running in its workload on the machine.
fn runs(pod: &Pod, workload: &HostedPod) -> bool {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    containers.iter().all(|container| container_of(workload, &container.name).is_some_and(is_running))
}

fn is_running(container: &HostedContainer) -> bool {
    container.state == HostedContainerState::Running
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use staffetta_driver::Owner;
    use staffetta_driver::app_hosting::DeploymentStage;

    use super::*;

    fn pod(image: &str) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
            "spec": { "nodeName": "r1", "containers": [{ "name": "app", "image": image }] } }))
        .unwrap()
    }

    fn workload(state: HostedContainerState) -> HostedPod {
        let owner = Owner::of(&pod("i").metadata);
        let containers = vec![HostedContainer { name: "app".into(), id: "x://1".into(), state }];
        HostedPod { owner, marked: true, containers, ip: None }
    }

    const RUNS: HostedContainerState = HostedContainerState::Running;

    fn facts<'a>(workload: Option<&'a HostedPod>, applied: Option<&Pod>) -> PodFacts<'a> {
        PodFacts { reachable: true, workload, applied: applied.map(form), workload_seen: workload.is_some() }
    }

    #[test]
    fn a_pod_is_brought_to_its_machine_until_it_runs_there_in_its_form() {
        let (pod, other) = (pod("flash:/a.tar"), pod("flash:/b.tar"));
        let running = workload(RUNS);
        let apply = PodTask::Apply { replaces: false, lost: false };
        assert_eq!(decide(&pod, &facts(None, None)), apply);
        assert_eq!(decide(&pod, &facts(Some(&running), None)), apply, "nobody looked at its form yet");
        assert_eq!(decide(&pod, &facts(Some(&running), Some(&pod))), PodTask::Report);
        let replaced = PodTask::Apply { replaces: true, lost: false };
        assert_eq!(decide(&pod, &facts(Some(&running), Some(&other))), replaced);
        let ended = workload(HostedContainerState::Ended { message: String::new() });
        assert_eq!(
            decide(&pod, &facts(Some(&ended), Some(&pod))),
            apply,
            "its back end knows whether it starts again"
        );
        let mut shown = pod.clone();
        let status = json!({ "name": "app", "image": "flash:/z.tar", "imageID": "", "ready": true, "restartCount": 0 });
        shown.status = serde_json::from_value(json!({ "containerStatuses": [status] })).unwrap();
        let changed = decide(&shown, &facts(Some(&running), None));
        assert_eq!(changed, replaced, "it changed while nobody looked on");
        assert_eq!(decide(&shown, &facts(Some(&running), Some(&shown))), PodTask::Report);
        let lost = PodFacts { workload_seen: true, ..facts(None, Some(&pod)) };
        assert_eq!(decide(&pod, &lost), PodTask::Apply { replaces: false, lost: true });
    }

    #[test]
    fn nothing_is_done_for_a_pod_that_is_over_and_its_deletion_is_finished_all_the_same() {
        for phase in ["Succeeded", "Failed"] {
            let mut pod = pod("i");
            pod.status = serde_json::from_value(json!({ "phase": phase })).unwrap();
            assert_eq!(decide(&pod, &facts(None, None)), PodTask::Leave);
            pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            assert_eq!(decide(&pod, &facts(None, None)), PodTask::Remove);
        }
    }

    #[test]
    fn what_lies_on_a_machine_of_a_pod_that_is_over_is_removed_unless_it_runs_for_somebody_else() {
        let mut pod = pod("i");
        pod.status = serde_json::from_value(json!({ "phase": "Succeeded" })).unwrap();
        let ended = HostedContainerState::Ended { message: String::new() };
        let stage = DeploymentStage::Configured;
        let waiting = HostedContainerState::Waiting { stage, message: String::new() };
        for (state, of_others) in [(ended, PodTask::Clear), (waiting, PodTask::Clear), (RUNS, PodTask::Leave)]
        {
            for (marked, expected) in [(true, PodTask::Clear), (false, of_others)] {
                let there = HostedPod { marked, ..workload(state.clone()) };
                assert_eq!(decide(&pod, &facts(Some(&there), None)), expected);
                let away = PodFacts { reachable: false, ..facts(Some(&there), None) };
                assert_eq!(decide(&pod, &away), PodTask::Leave, "nobody waits for that");
            }
        }
    }

    #[test]
    fn whatever_is_to_be_done_waits_while_the_machine_cannot_be_reached() {
        let mut pod = pod("i");
        assert_eq!(decide(&pod, &PodFacts::default()), PodTask::Wait);
        pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(decide(&pod, &PodFacts::default()), PodTask::Wait);
    }

    #[test]
    fn labels_and_annotations_are_not_the_form_of_a_pod_and_an_image_and_a_deadline_are() {
        let (mut labelled, mut timed) = (pod("i"), pod("i"));
        labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        timed.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
        assert_eq!(form(&pod("i")), form(&labelled));
        assert_ne!(form(&pod("i")), form(&pod("j")));
        assert_ne!(form(&pod("i")), form(&timed));
    }
}
