//! The phase of a pod: a function of its containers, as a kubelet reckons it.

use k8s_openapi::api::core::v1::ContainerStatus;

/// The phase of a pod whose containers are so. One that runs never goes back to `Pending`, and none ends for anything but what
/// its containers did.
pub(super) fn phase(containers: &[ContainerStatus], restart_policy: &str, before: &str) -> &'static str {
    let codes: Option<Vec<i32>> = containers
        .iter()
        .map(|container| Some(container.state.as_ref()?.terminated.as_ref()?.exit_code))
        .collect();
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
