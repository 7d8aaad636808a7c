//! An oracle for connections between pods that follows Kubernetes' documentation, policy by policy
//! and rule by rule.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::world::World;

/// One end of a connection: a pod, or an address that no pod has.
#[derive(Clone, Copy, Debug)]
pub(super) enum End<'w> {
    Pod(&'w Pod),
    Address(IpAddr),
}

impl<'w> End<'w> {
    pub(super) fn address(self) -> IpAddr {
        match self {
            End::Pod(pod) => pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap().parse().unwrap(),
            End::Address(address) => address,
        }
    }

    /// Returns the pod, if it has a network of its own. A pod of the host network acts as the node,
    /// and a finished pod has no network; its address is free for other pods.
    pub(super) fn pod(self) -> Option<&'w Pod> {
        let End::Pod(pod) = self else { return None };
        let over = matches!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Succeeded" | "Failed"));
        let own = pod.spec.as_ref().unwrap().host_network != Some(true);
        Some(pod).filter(|_| own && !over)
    }
}

/// Returns `true` if a connection from one end to a port of the other is allowed by the policies of
/// both.
pub(super) fn may(world: &World, from: End<'_>, to: End<'_>, protocol: &str, port: i32) -> bool {
    let same = matches!((from.pod(), to.pod()), (Some(a), Some(b)) if a.metadata.uid == b.metadata.uid);
    same || (leaves(world, from, to, protocol, port) && enters(world, from, to, protocol, port))
}

fn leaves(world: &World, from: End<'_>, to: End<'_>, protocol: &str, port: i32) -> bool {
    let Some(pod) = from.pod() else { return true };
    if is_always_allowed(world, &world.always.to, to) {
        return true;
    }
    let mut policies = world.policies.iter().filter(|policy| isolates(policy, pod, "Egress")).peekable();
    policies.peek().is_none()
        || policies.any(|policy| {
            let mut rules = policy.spec.as_ref().unwrap().egress.iter().flatten();
            let own = policy.metadata.namespace.as_ref().unwrap();
            rules.any(|rule| {
                let (ports, peers) =
                    (rule.ports.as_deref().unwrap_or_default(), rule.to.as_deref().unwrap_or_default());
                let mut named_peers = peers.iter().filter(|peer| peer.ip_block.is_none());
                let by_number =
                    ports.is_empty() || ports.iter().any(|named| number_fits(named, protocol, port));
                let by_name = ports.iter().any(|named| name_fits(named, to.pod(), protocol, port));
                (by_number && (peers.is_empty() || peers.iter().any(|peer| is_meant(world, own, peer, to))))
                    || (by_name
                        && (peers.is_empty() || named_peers.any(|peer| is_meant(world, own, peer, to))))
            })
        })
}

fn enters(world: &World, from: End<'_>, to: End<'_>, protocol: &str, port: i32) -> bool {
    let Some(pod) = to.pod() else { return true };
    if is_always_allowed(world, &world.always.from, from) {
        return true;
    }
    let mut policies = world.policies.iter().filter(|policy| isolates(policy, pod, "Ingress")).peekable();
    policies.peek().is_none()
        || policies.any(|policy| {
            let mut rules = policy.spec.as_ref().unwrap().ingress.iter().flatten();
            let own = policy.metadata.namespace.as_ref().unwrap();
            rules.any(|rule| {
                let (ports, peers) =
                    (rule.ports.as_deref().unwrap_or_default(), rule.from.as_deref().unwrap_or_default());
                let fits =
                    |named| number_fits(named, protocol, port) || name_fits(named, Some(pod), protocol, port);
                (ports.is_empty() || ports.iter().any(fits))
                    && (peers.is_empty() || peers.iter().any(|peer| is_meant(world, own, peer, from)))
            })
        })
}

/// Returns `true` for the ends that are always allowed: nodes and configured networks.
fn is_always_allowed(world: &World, also: &[IpNet], end: End<'_>) -> bool {
    let address = end.address();
    world.nodes.contains(&address) || also.iter().any(|net| net.contains(&address))
}

/// Returns `true` if the policy selects the pod and isolates it in that direction.
fn isolates(policy: &NetworkPolicy, pod: &Pod, direction: &str) -> bool {
    let spec = policy.spec.as_ref().unwrap();
    let isolated = match spec.policy_types.as_deref() {
        None | Some([]) => {
            direction == "Ingress" || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty())
        }
        Some(types) => types.iter().any(|named| named == direction),
    };
    let selector = spec.pod_selector.clone().unwrap_or_default();
    isolated
        && policy.metadata.namespace == pod.metadata.namespace
        && fits(&selector, pod.metadata.labels.as_ref())
}

fn is_meant(world: &World, own: &str, peer: &NetworkPolicyPeer, end: End<'_>) -> bool {
    if let Some(block) = &peer.ip_block {
        return is_in(block, end.address());
    }
    let Some(pod) = end.pod() else { return false };
    let namespace = pod.metadata.namespace.as_deref().unwrap();
    let there = match &peer.namespace_selector {
        None => namespace == own,
        Some(selector) => world
            .namespaces
            .iter()
            .filter(|known| known.metadata.name.as_deref() == Some(namespace))
            .any(|known| fits(selector, known.metadata.labels.as_ref())),
    };
    let described =
        peer.pod_selector.as_ref().is_none_or(|selector| fits(selector, pod.metadata.labels.as_ref()));
    there && described && (peer.namespace_selector.is_some() || peer.pod_selector.is_some())
}

fn is_in(block: &IPBlock, address: IpAddr) -> bool {
    let contains = |text: &String| text.parse::<IpNet>().unwrap().contains(&address);
    contains(&block.cidr) && !block.except.iter().flatten().any(contains)
}

fn number_fits(named: &NetworkPolicyPort, protocol: &str, port: i32) -> bool {
    let fits = match named.port {
        None => true,
        Some(IntOrString::Int(first)) => (first..=named.end_port.unwrap_or(first)).contains(&port),
        Some(IntOrString::String(_)) => false,
    };
    named.protocol.as_deref().unwrap_or("TCP") == protocol && fits
}

/// Returns `true` if the destination pod has a port of that name with this number.
fn name_fits(named: &NetworkPolicyPort, reached: Option<&Pod>, protocol: &str, port: i32) -> bool {
    let (Some(IntOrString::String(name)), Some(pod)) = (&named.port, reached) else { return false };
    let containers = &pod.spec.as_ref().unwrap().containers;
    let ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
    let mut of_name = ports.filter(|known| {
        known.name.as_ref() == Some(name) && known.protocol.as_deref().unwrap_or("TCP") == protocol
    });
    named.protocol.as_deref().unwrap_or("TCP") == protocol
        && of_name.next().is_some_and(|known| known.container_port == port)
}

fn fits(selector: &LabelSelector, labels: Option<&std::collections::BTreeMap<String, String>>) -> bool {
    let value = |key: &str| labels.and_then(|labels| labels.get(key));
    let mut pairs = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    pairs.all(|(key, wanted)| value(key) == Some(wanted))
        && expressions.all(|expression| {
            let listed = |found: &String| expression.values.iter().flatten().any(|value| value == found);
            match (expression.operator.as_str(), value(&expression.key)) {
                ("In", found) => found.is_some_and(listed),
                ("NotIn", found) => !found.is_some_and(listed),
                ("Exists", found) => found.is_some(),
                ("DoesNotExist", found) => found.is_none(),
                _ => false,
            }
        })
}
