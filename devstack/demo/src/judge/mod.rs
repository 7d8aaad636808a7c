//! Decides whether the demo has converged, and lists the reasons if not. Pure: it uses what the API returned.

mod deployment;
mod pod;
mod service;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use ipnet::Ipv4Net;
use kube::{Resource, ResourceExt};

use crate::annotations::{interface_address, lbaas_state, vif};
use crate::read::Objects;

pub(crate) use pod::{is_module, is_on_device, is_on_windows};

/// The reasons why not everything has converged: deployments have their pods, pods their VIFs, services their load
/// balancers, and nothing waits for deletion. Empty if it has.
pub(crate) fn reasons(objects: &Objects) -> Vec<String> {
    let mut reasons: Vec<_> = objects.deployments.iter().filter_map(deployment::reason).collect();
    reasons.extend(objects.pods.iter().filter_map(pod::reason));
    reasons.extend(pod::shared_addresses(&objects.pods));
    reasons.extend(objects.services.iter().filter_map(|service| service::reason(service, &objects.slices)));
    reasons
}

/// The reasons why the subnet of a namespace is not exhausted: `held` pods run in it, and all others wait for a VIF.
pub(crate) fn not_full(objects: &Objects, namespace: &str, held: usize) -> Vec<String> {
    let deployments = objects.deployments.iter().filter(|one| one.namespace().as_deref() == Some(namespace));
    let wanted: usize = deployments.map(deployment::goal).sum();
    let pods = || objects.pods.iter().filter(|pod| pod.namespace().as_deref() == Some(namespace));
    let running = pods().filter(|pod| pod::reason(pod).is_none()).count();
    let waiting = pods().filter(|pod| pod::is_scheduled(pod) && vif(pod).is_none()).count();
    if wanted > held && running == held && waiting == wanted - held {
        return Vec::new();
    }
    let others = wanted.saturating_sub(held);
    vec![format!(
        "in {namespace}, {running} pods run and {waiting} wait for a VIF, instead of {held} and {others}"
    )]
}

/// The reasons why a rollout to a new image is not complete.
pub(crate) fn not_rolled(objects: &Objects, deployment: &str, image: &str) -> Vec<String> {
    let mut reasons = reasons(objects);
    let prefix = format!("{deployment}-");
    for pod in objects.pods.iter().filter(|pod| name(*pod).starts_with(&prefix)) {
        let images: Vec<_> = pod
            .spec
            .iter()
            .flat_map(|spec| &spec.containers)
            .filter_map(|one| one.image.as_deref())
            .collect();
        if images != [image] {
            reasons.push(format!(
                "the pod {} has the image {} instead of {image}",
                name(pod),
                images.join(", ")
            ));
        }
    }
    reasons
}

/// The reasons why a deployment and a service of the same name are not deleted with all they had.
pub(crate) fn not_deleted(objects: &Objects, deleted: &str) -> Vec<String> {
    let deployments = objects.deployments.iter().map(|one| ("deployment", name(one)));
    let services = objects.services.iter().map(|one| ("service", name(one)));
    let pods = objects.pods.iter().map(|one| ("pod", name(one)));
    let of_it = |found: &str| found == deleted || found.starts_with(&format!("{deleted}-"));
    let there = deployments.chain(services).chain(pods).filter(|(_, found)| of_it(found));
    let there = there.map(|(kind, found)| format!("the {kind} {found} is still there"));
    reasons(objects).into_iter().chain(there).collect()
}

/// The resources that exist outside the cluster, by owner.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// The ids of ports.
    pub(crate) ports: BTreeSet<String>,
    /// The services that have load balancers.
    pub(crate) load_balancers: BTreeSet<String>,
    /// The services that have public addresses.
    pub(crate) public_ips: BTreeSet<String>,
}

/// Resources left behind or missing outside the cluster.
pub(crate) fn leaks(objects: &Objects, elsewhere: &Elsewhere) -> Vec<String> {
    let annotated = objects.pods.iter().filter_map(|pod| Some(vif(pod)?.id)).collect();
    let balanced =
        objects.services.iter().filter(|&service| lbaas_state(service).is_some()).map(name).collect();
    let public = objects
        .services
        .iter()
        .filter(|service| !service::public_ips(service).is_empty())
        .map(name)
        .collect();
    [
        differences("port", &elsewhere.ports, "pod", &annotated),
        differences("load balancer of", &elsewhere.load_balancers, "service", &balanced),
        differences("public address of", &elsewhere.public_ips, "service", &public),
    ]
    .concat()
}

/// The reasons why the routers do not run exactly their pods.
pub(crate) fn not_hosted(objects: &Objects, hosted: &BTreeSet<String>, running: usize) -> Vec<String> {
    let wanted: BTreeSet<_> = objects.pods.iter().filter(|pod| is_on_device(pod)).map(name).collect();
    let mut reasons = reasons(objects);
    reasons.extend(differences("app of", hosted, "pod", &wanted));
    if running != wanted.len() {
        reasons.push(format!("{running} apps run on the routers, instead of {}", wanted.len()));
    }
    reasons
}

/// The reasons why the pods on Windows nodes do not have addresses of these prefixes.
pub(crate) fn not_addressed(objects: &Objects, prefixes: &BTreeSet<Ipv4Net>) -> Vec<String> {
    let addressed = objects.pods.iter().filter_map(|pod| Some((pod, interface_address(pod)?)));
    let strange = addressed.filter(|(_, address)| !prefixes.iter().any(|prefix| prefix.contains(address)));
    let strange = strange.map(|(pod, address)| {
        format!("the pod {} has {address}, which no interface of a node has", name(pod))
    });
    reasons(objects).into_iter().chain(strange).collect()
}

/// The reasons why not each of `count` bases has the module `wanted`, and no other. `bases` has the modules of each base.
pub(crate) fn not_loaded(
    objects: &Objects,
    bases: &[(String, Vec<String>)],
    count: usize,
    wanted: &[&str],
) -> Vec<String> {
    let pods = objects.pods.iter().filter(|pod| is_module(pod)).count();
    let mut reasons = reasons(objects);
    for (base, modules) in bases.iter().filter(|(_, modules)| modules != wanted) {
        reasons.push(format!(
            "{base} has the modules [{}] instead of [{}]",
            modules.join(", "),
            wanted.join(", ")
        ));
    }
    if bases.len() != count || pods != count * wanted.len() {
        reasons.push(format!(
            "there are {pods} pods for {} bases, instead of {count} with {} each",
            bases.len(),
            wanted.len()
        ));
    }
    reasons
}

fn differences(thing: &str, there: &BTreeSet<String>, object: &str, here: &BTreeSet<String>) -> Vec<String> {
    let orphans = there.difference(here).map(|id| format!("the {thing} {id} exists and no {object} has it"));
    let missing =
        here.difference(there).map(|id| format!("the {thing} {id} does not exist and a {object} has it"));
    orphans.chain(missing).collect()
}

/// Says so of an object that waits for its deletion.
fn going(object: &impl Resource) -> Option<String> {
    object.meta().deletion_timestamp.as_ref()?;
    Some(match object.finalizers() {
        [] => "is to be deleted".to_owned(),
        finalizers => format!("is to be deleted and waits for {}", finalizers.join(", ")),
    })
}

/// Namespace and name.
pub(crate) fn name(object: &impl Resource) -> String {
    match object.meta().namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}
