//! Small clusters, and an enforcement of their security groups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::rules::GroupRules;
use super::oracle::End;
use crate::policy::{AlwaysAllowed, PolicyIndex};
use staffetta_driver::{Direction, IpFamily, Remote};
use staffetta_driver::{GroupName, SecurityGroupId};
use staffetta_driver::{NamespaceObserver, NetworkPolicyObserver};
use staffetta_handler::{Event, Index};
use std::sync::Arc;

/// A small cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) namespaces: Vec<Namespace>,
    pub(super) pods: Vec<Pod>,
    pub(super) policies: Vec<NetworkPolicy>,
    /// The addresses of nodes.
    pub(super) nodes: Vec<IpAddr>,
    /// The networks that are always allowed, beside the nodes.
    pub(super) always: AlwaysAllowed,
}

/// The configured group of an open pod.
const OPEN: &str = "of-the-configuration";

/// Creates an empty index with the settings of the cluster.
pub(super) fn index(world: &World) -> PolicyIndex {
    PolicyIndex::new(vec![OPEN.into()], world.always.clone())
}

/// Marks all groups of the index as ready, with their names as ids.
pub(super) fn make_groups(index: &PolicyIndex) {
    let common = index.common_groups().map(|group| group.name);
    for name in index.group_names().into_iter().chain(common) {
        index.set_ready(&name, &name.as_str().into());
    }
}

/// Enforces the security groups of a cluster as a network would.
pub(super) struct Enforced {
    rules: BTreeMap<GroupName, GroupRules>,
    bears: BTreeMap<String, BTreeSet<SecurityGroupId>>,
}

impl Enforced {
    pub(super) fn of(world: &World, index: &PolicyIndex) -> Self {
        make_groups(index);
        let common = index.common_groups().into_iter().map(|group| (group.name, group.rules));
        let mut rules: BTreeMap<GroupName, GroupRules> = common.collect();
        for policy in &world.policies {
            let groups = index.policy_groups(&policy.metadata.uid.clone().unwrap().into());
            rules.extend(groups.into_iter().map(|group| (group.name, group.rules)));
        }
        let mut bears = BTreeMap::new();
        for pod in &world.pods {
            let uid = pod.metadata.uid.clone().unwrap();
            if let Some(groups) = index.pod_groups(&uid.as_str().into()).unwrap() {
                bears.insert(uid, groups.into_iter().collect());
            }
        }
        Self { rules, bears }
    }

    pub(super) fn may(&self, from: End<'_>, to: End<'_>, protocol: &str, port: i32) -> bool {
        let same = matches!((from.pod(), to.pod()), (Some(a), Some(b)) if a.metadata.uid == b.metadata.uid);
        same || (self.passes(from, Direction::Egress, to, protocol, port)
            && self.passes(to, Direction::Ingress, from, protocol, port))
    }

    fn groups(&self, end: End<'_>) -> Option<&BTreeSet<SecurityGroupId>> {
        self.bears.get(end.pod()?.metadata.uid.as_ref()?)
    }

    fn passes(&self, own: End<'_>, direction: Direction, other: End<'_>, protocol: &str, port: i32) -> bool {
        let Some(groups) = self.groups(own) else { return true };
        if groups.contains(&OPEN.into()) {
            return true;
        }
        let address = other.address();
        let family = if address.is_ipv4() { IpFamily::V4 } else { IpFamily::V6 };
        let rules = groups.iter().filter_map(|group| self.rules.get(&group.as_str().into())).flatten();
        let mut fitting = rules.filter(|rule| rule.direction == direction && rule.family == family);
        fitting.any(|rule| {
            let port_fits = rule.ports.is_none_or(|ports| {
                let in_range =
                    |(first, last): (u16, u16)| (i32::from(first)..=i32::from(last)).contains(&port);
                ports.protocol.to_string() == protocol && ports.range.is_none_or(in_range)
            });
            let remote_fits = match &rule.remote {
                Remote::Any => true,
                Remote::Net(net) => net.contains(&address),
                Remote::Group(group) => {
                    self.groups(other).is_some_and(|borne| borne.contains(&group.as_str().into()))
                }
            };
            port_fits && remote_fits
        })
    }
}

/// Adds all objects of the cluster to the index.
pub(super) fn populate(index: &PolicyIndex, world: &World) {
    for namespace in &world.namespaces {
        NamespaceObserver::present(index, namespace);
    }
    for policy in &world.policies {
        NetworkPolicyObserver::present(index, policy);
    }
    for pod in &world.pods {
        index.set_pod(pod);
    }
    for address in &world.nodes {
        let status = json!({ "addresses": [{ "type": "InternalIP", "address": address }] });
        let meta = json!({ "name": address, "uid": address });
        let node: Node = serde_json::from_value(json!({ "metadata": meta, "status": status })).unwrap();
        index.apply(&Event::Added(Arc::new(node)));
    }
}

pub(super) const NAMESPACES: [&str; 3] = ["shop", "blog", "dev"];

pub(super) fn namespace(name: &str, labels: &Value) -> Namespace {
    let meta = json!({ "metadata": { "name": name, "uid": format!("ns-{name}"), "labels": labels } });
    serde_json::from_value(meta).unwrap()
}

pub(super) fn policy(namespace: &str, name: &str, spec: &Value) -> NetworkPolicy {
    let uid = format!("policy-{namespace}-{name}");
    let meta = json!({ "namespace": namespace, "name": name, "uid": uid });
    serde_json::from_value(json!({ "metadata": meta, "spec": spec })).unwrap()
}

/// Returns the pod with this number, which is the last part of its address.
pub(super) fn pod(number: u8, namespace: &str, labels: &Value, http: i32, host_network: bool) -> Pod {
    let meta = json!({ "namespace": namespace, "name": format!("pod-{number}"), "uid": format!("pod-{number}"),
        "labels": labels });
    let ports = match http {
        0 => json!([]),
        _ => {
            json!([{ "name": "http", "containerPort": http }, { "name": "dns", "protocol": "UDP", "containerPort": 53 }])
        }
    };
    let spec = json!({ "hostNetwork": host_network, "containers": [{ "name": "a", "ports": ports }] });
    let status = json!({ "phase": "Running", "podIP": format!("10.0.0.{number}") });
    serde_json::from_value(json!({ "metadata": meta, "spec": spec, "status": status })).unwrap()
}

pub(super) fn labels() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({}),
        json!({ "app": "a" }),
        json!({ "app": "b" }),
        json!({ "app": "a", "tier": "x" }),
        json!({ "tier": "y" }),
    ])
}

fn selector() -> impl Strategy<Value = Value> {
    let expression = |operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": "app", "operator": operator, "values": values }] });
    prop::sample::select(vec![
        json!({}),
        json!({ "matchLabels": { "app": "a" } }),
        json!({ "matchLabels": { "app": "b" } }),
        json!({ "matchLabels": { "tier": "x" } }),
        expression("In", &["a", "b"]),
        expression("NotIn", &["a"]),
        json!({ "matchExpressions": [{ "key": "tier", "operator": "Exists" }] }),
        json!({ "matchExpressions": [{ "key": "tier", "operator": "DoesNotExist" }] }),
    ])
}

fn peer() -> impl Strategy<Value = Value> {
    let block = prop::sample::select(vec![
        json!({ "cidr": "0.0.0.0/0" }),
        json!({ "cidr": "10.0.0.0/29" }),
        json!({ "cidr": "10.0.0.0/24", "except": ["10.0.0.2/31", "10.0.0.4/32"] }),
        json!({ "cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"] }),
        json!({ "cidr": "192.0.2.0/25" }),
        json!({ "cidr": "::/0", "except": ["2001:db8::/33"] }),
    ]);
    prop_oneof![
        selector().prop_map(|pods| json!({ "podSelector": pods })),
        selector().prop_map(|namespaces| json!({ "namespaceSelector": namespaces })),
        (selector(), selector())
            .prop_map(|(namespaces, pods)| json!({ "namespaceSelector": namespaces, "podSelector": pods })),
        block.prop_map(|block| json!({ "ipBlock": block })),
    ]
}

fn port() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({ "port": 80 }),
        json!({ "port": 79, "endPort": 81 }),
        json!({ "port": 8080, "endPort": 8080, "protocol": "TCP" }),
        json!({ "protocol": "UDP" }),
        json!({ "port": 53, "protocol": "UDP" }),
        json!({ "port": 9000, "protocol": "SCTP" }),
        json!({ "port": "http" }),
        json!({ "port": "dns", "protocol": "UDP" }),
        json!({ "port": "dns" }),
    ])
}

fn rules(peers: &'static str) -> impl Strategy<Value = Value> {
    let rule = (prop::collection::vec(peer(), 0..3), prop::collection::vec(port(), 0..3));
    let rule = rule.prop_map(move |(named, ports)| json!({ peers: named, "ports": ports }));
    prop::collection::vec(rule, 0..3).prop_map(Value::from)
}

pub(super) fn spec() -> impl Strategy<Value = Value> {
    let types = prop::sample::select(vec![
        json!(null),
        json!(["Ingress"]),
        json!(["Egress"]),
        json!(["Ingress", "Egress"]),
    ]);
    (selector(), types, rules("from"), rules("to")).prop_map(|(pods, types, ingress, egress)| {
        json!({ "podSelector": pods, "policyTypes": types, "ingress": ingress, "egress": egress })
    })
}

pub(super) fn any_pod(number: u8) -> impl Strategy<Value = Pod> {
    let http = prop::sample::select(vec![0, 80, 8080]);
    let odd = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.3));
    let drawn = (prop::sample::select(NAMESPACES.to_vec()), labels(), http, odd);
    drawn.prop_map(move |(namespace, labels, http, (host, over, twice))| {
        let mut pod = pod(number, namespace, &labels, http, host);
        if over {
            pod.status.as_mut().unwrap().phase = Some("Succeeded".into());
        }
        if twice {
            // Of two ports of one name, the first counts.
            let port = json!({ "name": "http", "containerPort": 81 });
            let second = json!({ "name": "b", "ports": [port] });
            pod.spec.as_mut().unwrap().containers.push(serde_json::from_value(second).unwrap());
        }
        pod
    })
}

pub(super) fn any_policy(number: u8) -> impl Strategy<Value = NetworkPolicy> {
    let name = format!("p{number}");
    (prop::sample::select(NAMESPACES.to_vec()), spec())
        .prop_map(move |(namespace, spec)| policy(namespace, &name, &spec))
}

pub(super) fn any_world() -> impl Strategy<Value = World> {
    let namespaces = [labels(), labels(), labels()].prop_map(|labels| {
        NAMESPACES.iter().zip(&labels).map(|(name, labels)| namespace(name, labels)).collect()
    });
    let pods: Vec<_> = (1..=6).map(any_pod).collect();
    let policies: Vec<_> = (1..=4).map(any_policy).collect();
    let nodes = prop::sample::subsequence(vec!["10.0.0.200", "2001:db8::1"], 0..=2)
        .prop_map(|nodes| nodes.iter().map(|node| node.parse().unwrap()).collect());
    let nets = || {
        prop::sample::subsequence(vec!["192.0.2.7/28", "10.0.0.2/31", "10.0.0.3/32"], 0..=3)
            .prop_map(|nets| nets.iter().map(|net| net.parse().unwrap()).collect())
    };
    let always = (nets(), nets()).prop_map(|(from, to)| AlwaysAllowed { from, to });
    (namespaces, pods, policies, nodes, always).prop_map(|(namespaces, pods, policies, nodes, always)| {
        World { namespaces, pods, policies, nodes, always }
    })
}
