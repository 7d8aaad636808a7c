//! Whether all is as it should be, and if not, why not. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Resource, ResourceExt};

use crate::annotations::{lbaas_spec, lbaas_state, vif};
use crate::read::Objects;

/// Why not all of it has come about: deployments have their pods, pods their VIFs, services their load balancers, and
/// nothing waits for its deletion. Empty when it has.
pub(crate) fn reasons(objects: &Objects) -> Vec<String> {
    let mut reasons: Vec<_> = objects.deployments.iter().filter_map(deployment).collect();
    reasons.extend(objects.pods.iter().filter_map(pod));
    reasons.extend(shared_addresses(&objects.pods));
    reasons.extend(objects.services.iter().filter_map(|service| self::service(service, &objects.slices)));
    reasons
}

/// Why the subnet of a namespace has not run full with `held` pods, while others wait for theirs and nobody gave up.
pub(crate) fn not_full(objects: &Objects, namespace: &str, held: usize) -> Vec<String> {
    let pods = || objects.pods.iter().filter(|pod| pod.namespace().as_deref() == Some(namespace));
    let wanted: usize = objects.deployments.iter().filter(|one| one.namespace().as_deref() == Some(namespace)).map(goal).sum();
    let active = pods().filter(|found| pod(found).is_none()).count();
    let waiting = pods().filter(|found| is_scheduled(found) && vif(found).is_none()).count();
    if wanted > held && active == held && waiting == wanted - held {
        return Vec::new();
    }
    vec![format!("in {namespace}, {active} pods run and {waiting} wait for a VIF, instead of {held} and {}", wanted.saturating_sub(held))]
}

/// What was left behind: `ports` and `load_balancers` are the ids of VIFs and the names of services that exist in the other
/// world.
pub(crate) fn leaks(objects: &Objects, ports: &BTreeSet<String>, load_balancers: &BTreeSet<String>) -> Vec<String> {
    let annotated: BTreeSet<_> = objects.pods.iter().filter_map(|pod| Some(vif(pod)?.id)).collect();
    let balanced: BTreeSet<_> = objects.services.iter().filter(|service| lbaas_state(service).is_some()).map(name).collect();
    let mut reasons = differences("port", ports, "pod", &annotated);
    reasons.extend(differences("load balancer", load_balancers, "service", &balanced));
    reasons
}

fn differences(thing: &str, there: &BTreeSet<String>, object: &str, here: &BTreeSet<String>) -> Vec<String> {
    let orphans = there.difference(here).map(|id| format!("the {thing} {id} belongs to no {object}"));
    let missing = here.difference(there).map(|id| format!("the {thing} {id} of a {object} does not exist"));
    orphans.chain(missing).collect()
}

fn deployment(deployment: &Deployment) -> Option<String> {
    let wanted = goal(deployment);
    let status = deployment.status.clone().unwrap_or_default();
    let is_wanted = |count: Option<i32>| usize::try_from(count.unwrap_or(0)) == Ok(wanted);
    let observed = status.observed_generation == deployment.metadata.generation;
    let settled = observed && [status.replicas, status.updated_replicas, status.available_replicas].map(is_wanted) == [true; 3];
    let what = format!(
        "has {} pods, {} of them new and {} available, instead of {wanted}",
        status.replicas.unwrap_or(0),
        status.updated_replicas.unwrap_or(0),
        status.available_replicas.unwrap_or(0),
    );
    going(deployment).or_else(|| (!settled).then_some(what)).map(|what| format!("the deployment {} {what}", name(deployment)))
}

/// How many pods the deployment wants.
fn goal(deployment: &Deployment) -> usize {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or(0)
}

fn pod(pod: &Pod) -> Option<String> {
    let what = going(pod).or_else(|| {
        if !is_scheduled(pod) {
            return Some("has no node".to_owned());
        }
        let status = pod.status.clone().unwrap_or_default();
        let running = status.phase.as_deref() == Some("Running");
        if in_host_network(pod) {
            let annotated = vif(pod).map(|_| "has a VIF, though it lives in its node's network".to_owned());
            return annotated.or_else(|| (!running).then(|| "does not run".to_owned()));
        }
        let Some(vif) = vif(pod) else { return Some("has no VIF".to_owned()) };
        let ips: Vec<_> = vif.addresses.iter().map(|(address, _)| address.to_string()).collect();
        if !vif.active {
            Some("has a VIF that is not active".to_owned())
        } else if ips.is_empty() {
            Some("has a VIF without an address".to_owned())
        } else if let Some((address, subnet)) = vif.addresses.iter().find(|(address, subnet)| !subnet.contains(address)) {
            Some(format!("has the address {address}, which is not in its subnet {subnet}"))
        } else if !running {
            Some("does not run, though its VIF is active".to_owned())
        } else if status.pod_ip.as_ref() != ips.first() {
            Some(format!("runs with another address than that of its VIF, {}", ips[0]))
        } else {
            None
        }
    });
    what.map(|what| format!("the pod {} {what}", name(pod)))
}

fn shared_addresses(pods: &[Pod]) -> Vec<String> {
    let mut holders: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
    for pod in pods {
        for (address, _) in vif(pod).into_iter().flat_map(|vif| vif.addresses) {
            holders.entry(address).or_default().push(name(pod));
        }
    }
    let shared = holders.into_iter().filter(|(_, pods)| pods.len() > 1);
    shared.map(|(address, pods)| format!("the address {address} belongs to {}", pods.join(" and "))).collect()
}

fn service(service: &Service, slices: &[EndpointSlice]) -> Option<String> {
    let spec = service.spec.as_ref()?;
    let what = going(service).or_else(|| {
        let headless = matches!(spec.cluster_ip.as_deref(), None | Some("" | "None"));
        if headless || spec.selector.as_ref().is_none_or(BTreeMap::is_empty) {
            return None;
        }
        let ports: BTreeSet<_> = spec.ports.iter().flatten().filter_map(|port| u64::try_from(port.port).ok()).collect();
        let Some(said) = lbaas_spec(service) else { return Some("has no description of its load balancer".to_owned()) };
        if said != ports {
            return Some(format!("has the ports {ports:?}, but {said:?} in the description of its load balancer"));
        }
        let Some(state) = lbaas_state(service) else { return Some("has no load balancer".to_owned()) };
        let expected = ready_endpoints(service, slices);
        if spec.cluster_ip.as_deref() != Some(&*state.vip.to_string()) {
            Some(format!("has a load balancer at {} instead of its own address", state.vip))
        } else if state.listeners != ports.len() {
            Some(format!("has {} listeners and {} ports", state.listeners, ports.len()))
        } else if state.members != expected {
            Some(format!("has {} members and {} ready endpoints", state.members.len(), expected.len()))
        } else if spec.type_.as_deref() == Some("LoadBalancer") && public_ips(service) != Vec::from_iter(state.public_ip) {
            Some(format!("has the public address {:?} and says {:?}", state.public_ip, public_ips(service)))
        } else if spec.type_.as_deref() == Some("LoadBalancer") && state.public_ip.is_none() {
            Some("has no public address".to_owned())
        } else {
            None
        }
    });
    what.map(|what| format!("the service {} {what}", name(service)))
}

/// Each address and port at which a ready pod serves the service.
fn ready_endpoints(service: &Service, slices: &[EndpointSlice]) -> BTreeSet<(IpAddr, u16)> {
    let mut found = BTreeSet::new();
    let of_service = |slice: &&EndpointSlice| {
        slice.namespace() == service.namespace()
            && slice.labels().get("kubernetes.io/service-name") == service.metadata.name.as_ref()
    };
    for slice in slices.iter().filter(of_service) {
        let ports = slice.ports.iter().flatten().filter_map(|port| u16::try_from(port.port?).ok());
        for endpoint in &slice.endpoints {
            let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
            let address = endpoint.addresses.first().and_then(|address| address.parse().ok());
            let address = address.filter(|_| ready);
            found.extend(address.into_iter().flat_map(|address| ports.clone().map(move |port| (address, port))));
        }
    }
    found
}

fn public_ips(service: &Service) -> Vec<IpAddr> {
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    ingress.into_iter().flatten().filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
}

/// Says so of an object that waits for its deletion.
fn going(object: &impl Resource) -> Option<String> {
    object.meta().deletion_timestamp.as_ref()?;
    let finalizers = object.finalizers();
    Some(if finalizers.is_empty() {
        "is to be deleted".to_owned()
    } else {
        format!("is to be deleted and waits for {}", finalizers.join(", "))
    })
}

fn is_scheduled(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_some_and(|node| !node.is_empty())
}

fn in_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false)
}

pub(crate) fn name(object: &impl Resource) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

#[cfg(test)]
mod tests;
