//! Computes the status of a pod, from the pod, its observed state and the time.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use staffetta_driver::app_hosting::HostedPod;

use super::conditions::conditions;
use super::containers::{container_status, exit_code, removed};
use super::lost::{has_ended, is_absent, runs_once};
use super::observation::{Change, PodObservation, container_of};

/// Returns the status of a pod. Values that the machine does not report are taken from the previous status: the start
/// time of the pod, restart counts, addresses.
pub(crate) fn status(pod: &Pod, observation: &PodObservation<'_>, now: Timestamp) -> PodStatus {
    let containers = containers(pod, |container, known| {
        // What has ended, and is not started again, stays so, whatever the machine still has of it.
        if let Some(known) = known.filter(|known| runs_once(pod) && has_ended(known))
            && observation.change == Change::Nothing
            && is_absent(observation.workload, &container.name)
        {
            return ContainerStatus { ready: false, started: Some(false), ..known.clone() };
        }
        let observed = observation.workload.and_then(|workload| container_of(workload, &container.name));
        container_status(container, observed, known, observation, now)
    });
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
    let before = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let phase = phase(&containers, policy, before);
    assembled(pod, phase, containers, observation.workload, observation.host_ip, now)
}

/// Returns the patch with the final status of a deleted pod whose workload was removed: all containers have terminated,
/// and the phase is `Succeeded` or `Failed`. `None` if the pod has such a phase already.
pub(crate) fn final_status(pod: &Pod, now: Timestamp) -> Option<Value> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let containers = containers(pod, |container, known| removed(container, known, now));
    let succeeded = |container: &ContainerStatus| exit_code(container) == Some(0);
    let phase = if containers.iter().all(succeeded) { "Succeeded" } else { "Failed" };
    patch(pod, &assembled(pod, phase, containers, None, None, now))
}

/// Returns the status of each container. `status` computes one from the specification and the previous status of the
/// container.
fn containers(
    pod: &Pod,
    status: impl Fn(&Container, Option<&ContainerStatus>) -> ContainerStatus,
) -> Vec<ContainerStatus> {
    let known = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let known = known.unwrap_or_default();
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let status =
        |container: &Container| status(container, known.iter().find(|known| known.name == container.name));
    containers.map(status).collect()
}

/// Returns the whole status of a pod. Addresses and the start time stay as they were if the machine does not report them any more.
fn assembled(
    pod: &Pod,
    phase: &str,
    containers: Vec<ContainerStatus>,
    workload: Option<&HostedPod>,
    host_ip: Option<IpAddr>,
    now: Timestamp,
) -> PodStatus {
    let before = pod.status.clone().unwrap_or_default();
    let ip = workload.and_then(|workload| workload.ip).map(|ip| ip.to_string()).or(before.pod_ip);
    let host_ip = host_ip.map(|ip| ip.to_string()).or(before.host_ip);
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions(pod, &containers, phase, workload.is_some(), now)),
        container_statuses: Some(containers),
        pod_ips: ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip: ip,
        host_ips: host_ip.clone().map(|ip| vec![HostIP { ip }]),
        host_ip,
        start_time: before.start_time.or(Some(Time(now))),
        ..PodStatus::default()
    }
}

/// Returns the phase of a pod, computed from its containers as in a kubelet. The phase `Running` never changes back to
/// `Pending`.
fn phase(containers: &[ContainerStatus], restart_policy: &str, before: &str) -> &'static str {
    let codes: Option<Vec<i32>> = containers.iter().map(exit_code).collect();
    let ended = codes.filter(|codes| !codes.is_empty() && restart_policy != "Always");
    if let Some(codes) = ended {
        if codes.iter().all(|code| *code == 0) {
            return "Succeeded";
        }
        if restart_policy == "Never" {
            return "Failed";
        }
        return "Running";
    }
    let is = |pick: fn(&ContainerStatus) -> bool| containers.iter().any(pick);
    let waits = is(|container| container.state.as_ref().is_none_or(|state| state.waiting.is_some()));
    let runs = is(|container| container.state.as_ref().is_some_and(|state| state.running.is_some()));
    let ended = is(|container| container.state.as_ref().is_some_and(|state| state.terminated.is_some()));
    if before == "Running" || (!waits && (runs || ended)) { "Running" } else { "Pending" }
}

/// Returns the patch that changes the status to `wanted`; `None` if the status is the same already. The patch does not
/// contain the conditions of other writers.
pub(crate) fn patch(pod: &Pod, wanted: &PodStatus) -> Option<Value> {
    let before = pod.status.clone().unwrap_or_default();
    let ours = PodStatus {
        conditions: wanted.conditions.as_ref().map(|wanted| {
            let known = before.conditions.as_deref().unwrap_or_default();
            wanted.iter().filter_map(|wanted| known_condition(known, wanted)).collect()
        }),
        phase: before.phase.clone(),
        container_statuses: before.container_statuses.clone(),
        pod_ip: before.pod_ip.clone(),
        pod_ips: before.pod_ips.clone(),
        host_ip: before.host_ip.clone(),
        host_ips: before.host_ips.clone(),
        start_time: before.start_time.clone(),
        ..PodStatus::default()
    };
    // Times are compared as they are written: to the second.
    let (wanted, ours) = (json!(wanted), json!(ours));
    if wanted == ours {
        return None;
    }
    let mut patch = wanted;
    for field in ["podIPs", "hostIPs"] {
        if patch[field] != ours[field]
            && !ours[field].is_null()
            && let Some(addresses) = patch[field].as_array_mut()
        {
            addresses.insert(0, json!({ "$patch": "replace" }));
        }
    }
    // The server merges conditions by type and keeps the fields that a patch leaves out: absent ones are sent as null.
    for condition in patch["conditions"].as_array_mut().into_iter().flatten() {
        for field in ["reason", "message"] {
            condition[field] = condition[field].take();
        }
    }
    Some(patch)
}

/// Returns the condition in `known` of the same type as `wanted`, with only the fields that this controller writes;
/// `None` if there is none.
fn known_condition(known: &[PodCondition], wanted: &PodCondition) -> Option<PodCondition> {
    let known = known.iter().find(|known| known.type_ == wanted.type_)?;
    Some(PodCondition { last_probe_time: None, observed_generation: None, ..known.clone() })
}

#[cfg(test)]
mod tests;
