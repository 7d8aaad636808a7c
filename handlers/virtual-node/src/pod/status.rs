//! The status of a pod: a function of the pod as it is, of what was seen of it, and of the time.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodCondition, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::conditions::conditions;
use super::containers::container_status;
use super::phase::phase;
use super::seen::Seen;

/// The status of a pod. What the machine does not tell is kept as it was: the start of the pod, counts of restarts, addresses.
pub(crate) fn status(pod: &Pod, seen: &Seen<'_>, now: Timestamp) -> PodStatus {
    let before = pod.status.clone().unwrap_or_default();
    let spec = pod.spec.clone().unwrap_or_default();
    let known = before.container_statuses.as_deref().unwrap_or_default();
    let containers: Vec<_> = spec
        .containers
        .iter()
        .map(|container| {
            let sight = seen.workload.and_then(|workload| workload.container(&container.name));
            let known = known.iter().find(|known| known.name == container.name);
            container_status(container, sight, known, seen, now)
        })
        .collect();
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    let phase = phase(&containers, policy, before.phase.as_deref().unwrap_or_default());
    let conditions = conditions(pod, &containers, phase, seen.workload.is_some(), now);
    let ip = seen.workload.and_then(|workload| workload.ip).map(|ip| ip.to_string()).or(before.pod_ip);
    let host_ip = seen.host_ip.map(|ip| ip.to_string()).or(before.host_ip);
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions),
        container_statuses: Some(containers),
        pod_ips: ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip: ip,
        host_ips: host_ip.clone().map(|ip| vec![HostIP { ip }]),
        host_ip,
        start_time: before.start_time.or(Some(Time(now))),
        ..PodStatus::default()
    }
}

/// What is written to bring the pod to `wanted`; none when it says so already. Conditions of others are not in it.
pub(crate) fn patch(pod: &Pod, wanted: &PodStatus) -> Option<Value> {
    let before = pod.status.clone().unwrap_or_default();
    let ours = PodStatus {
        conditions: wanted.conditions.as_ref().map(|wanted| {
            let known = before.conditions.as_deref().unwrap_or_default();
            wanted.iter().filter_map(|wanted| same_kind(known, wanted)).collect()
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
    Some(patch)
}

/// The condition of the same kind as it is, as far as we write it.
fn same_kind(known: &[PodCondition], wanted: &PodCondition) -> Option<PodCondition> {
    let known = known.iter().find(|known| known.type_ == wanted.type_)?;
    Some(PodCondition { last_probe_time: None, observed_generation: None, ..known.clone() })
}

#[cfg(test)]
mod tests;
