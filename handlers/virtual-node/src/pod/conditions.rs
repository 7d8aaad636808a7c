//! The conditions of a pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Returns the conditions of a pod that a kubelet writes; those of other writers are not included. `made` is `true` if
/// the machine has a workload of the pod.
pub(super) fn conditions(
    pod: &Pod,
    containers: &[ContainerStatus],
    phase: &str,
    made: bool,
    now: Timestamp,
) -> Vec<PodCondition> {
    let ready = phase == "Running" && containers.iter().all(|container| container.ready);
    let gates = gates_hold(pod);
    let unready: Vec<_> = containers
        .iter()
        .filter(|container| !container.ready)
        .map(|container| container.name.as_str())
        .collect();
    let reason = match phase {
        "Succeeded" => Some(("PodCompleted", String::new())),
        "Failed" => Some(("PodFailed", String::new())),
        _ => Some(("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))),
    };
    let gated = Some(("ReadinessGatesNotReady", "a readiness gate of the pod does not hold".to_owned()));
    let finished = (phase == "Succeeded").then(|| ("PodCompleted", String::new()));
    [
        ("PodReadyToStartContainers", made, None),
        ("Initialized", true, finished),
        ("Ready", ready && gates, if ready { gated } else { reason.clone() }),
        ("ContainersReady", ready, reason),
        ("PodScheduled", true, None),
    ]
    .map(|(kind, holds, reason)| {
        condition(pod, kind, holds, reason.filter(|_| !holds || kind == "Initialized"), now)
    })
    .into()
}

/// Returns `true` if the status of the pod has each condition that its readiness gates name, with the status `True`.
fn gates_hold(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    gates
        .into_iter()
        .all(|gate| found(pod, &gate.condition_type).is_some_and(|condition| condition.status == "True"))
}

/// Returns the condition of the type `kind` in the status of the pod; `None` if there is none.
fn found<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// Returns the condition of the type `kind` of a pod, `True` if `holds`. The transition time stays as it was if the status is the same as
/// before.
fn condition(
    pod: &Pod,
    kind: &str,
    holds: bool,
    reason: Option<(&str, String)>,
    now: Timestamp,
) -> PodCondition {
    let status = if holds { "True" } else { "False" };
    let before = found(pod, kind).filter(|before| before.status == status);
    let transition = before.and_then(|before| before.last_transition_time.clone());
    let (reason, message) = reason.map(|(reason, message)| (reason.to_owned(), message)).unzip();
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason,
        message: message.filter(|message| !message.is_empty()),
        last_transition_time: transition.or(Some(Time(now))),
        ..PodCondition::default()
    }
}
