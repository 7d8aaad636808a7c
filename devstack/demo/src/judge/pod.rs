//! Checks pods.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

use super::{going, name};
use crate::annotations::{VifState, interface_address, vif};

/// Returns the reason why the pod is not complete.
pub(super) fn reason(pod: &Pod) -> Option<String> {
    going(pod).or_else(|| fault(pod)).map(|what| format!("the pod {} {what}", name(pod)))
}

/// The addresses that are not one pod's alone.
pub(super) fn shared_addresses(pods: &[Pod]) -> Vec<String> {
    let mut holders: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
    for pod in pods {
        let of_vif = vif(pod).into_iter().flat_map(|vif| vif.addresses).map(|(address, _)| address);
        for address in of_vif.chain(interface_address(pod).map(IpAddr::from)) {
            holders.entry(address).or_default().push(name(pod));
        }
    }
    let shared = holders.into_iter().filter(|(_, pods)| pods.len() > 1);
    shared.map(|(address, pods)| format!("the address {address} belongs to {}", pods.join(" and "))).collect()
}

pub(super) fn is_scheduled(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_some_and(|node| !node.is_empty())
}

/// Returns `true` if the pod runs on a router, with an address of the router's network.
pub(crate) fn is_on_device(pod: &Pod) -> bool {
    let wanted = pod.spec.iter().flat_map(|spec| spec.node_selector.iter().flatten());
    wanted.into_iter().any(|(key, value)| key == "platform" && value == "cisco-ios-xe")
}

/// Returns `true` if the pod runs on a Windows node, with an address of the network interface of the node.
pub(crate) fn is_on_windows(pod: &Pod) -> bool {
    let wanted = pod.spec.iter().flat_map(|spec| spec.node_selector.iter().flatten());
    wanted.into_iter().any(|(key, value)| key == "kubernetes.io/os" && value == "windows")
}

/// Returns `true` if the pod is a module of a Java base, with the address of the base.
pub(crate) fn is_module(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.iter().flatten();
    labels
        .into_iter()
        .any(|(key, value)| key == "virtual-kubelet.koupleless.io/component" && value == "module")
}

fn fault(pod: &Pod) -> Option<String> {
    let status = pod.status.clone().unwrap_or_default();
    let runs = status.phase.as_deref() == Some("Running");
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
    if !is_scheduled(pod) {
        return Some("has no node".into());
    }
    if is_on_device(pod) {
        return match (runs, status.pod_ip) {
            (false, _) => Some("does not run on its router".into()),
            (true, None) => Some("has no address from its router".into()),
            (true, Some(_)) => None,
        };
    }
    if is_on_windows(pod) {
        return match interface_address(pod) {
            None => Some("has no address of its node".into()),
            Some(_) if !runs => Some("does not run, though it has an address of its node".into()),
            Some(address) => (status.pod_ip != Some(address.to_string()))
                .then(|| "runs with another address than that of its annotation".into()),
        };
    }
    if is_module(pod) {
        return (!runs).then(|| "does not run on its base".into());
    }
    match vif(pod) {
        Some(_) if host_network => Some("has a VIF, though it lives in its node's network".into()),
        None if host_network => (!runs).then(|| "does not run".into()),
        None => Some("has no VIF".into()),
        Some(vif) => vif_fault(&vif).or_else(|| {
            let same = status.pod_ip == vif.addresses.first().map(|(address, _)| address.to_string());
            match (runs, same) {
                (false, _) => Some("does not run, though its VIF is active".into()),
                (true, false) => Some("runs with another address than that of its VIF".into()),
                (true, true) => None,
            }
        }),
    }
}

fn vif_fault(vif: &VifState) -> Option<String> {
    if !vif.active {
        return Some("has a VIF that is not active".into());
    }
    if vif.addresses.is_empty() {
        return Some("has a VIF without an address".into());
    }
    let outside = vif.addresses.iter().find(|(address, subnet)| !subnet.contains(address));
    outside.map(|(address, subnet)| format!("has the address {address}, which is not in its subnet {subnet}"))
}
