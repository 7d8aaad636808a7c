//! The content of one `NetworkPolicy`, parsed: the pods that it selects, the traffic that it allows, and its
//! problems.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;
use staffetta_driver::{Direction, GroupName, Owner, Protocol, ProtocolPorts, Remote};

use super::block;
use super::name;
use super::pod::{PodFields, PortName};
use super::selector::ObjectSelector;

/// The maximum number of pairs of a port and a peer in a policy. Each pair becomes one or two
/// security group rules; with a named port of the peers, two for each number of that port. A named port that
/// no pod has becomes no rule.
const MAX_PAIRS: usize = 10_000;

/// The maximum number of peer selectors in a policy. Each pod is matched against every selector.
const MAX_SELECTORS: usize = 500;

/// The parsed content of one `NetworkPolicy`.
#[derive(Debug, PartialEq)]
pub(super) struct ParsedPolicy {
    /// The namespace, name and UID of the policy.
    pub(super) owner: Owner,
    /// The creation time of the policy.
    pub(super) created: Option<Time>,
    /// The selector of the pods that the policy applies to; it selects only pods in the namespace
    /// of the policy.
    pub(super) selector: ObjectSelector,
    /// The directions in which the policy isolates the selected pods.
    pub(super) isolated: BTreeSet<Direction>,
    /// The pairs of a port and a peer that the policy allows, each with the direction of the traffic.
    pub(super) rules: Vec<(Direction, RuleTerm)>,
    /// The peer selectors that the rules refer to, by the name of their group.
    pub(super) peers: BTreeMap<GroupName, Arc<PeerSelector>>,
    /// The named ports in ingress rules. The selected pods define their numbers.
    pub(super) own_ports: BTreeSet<PortName>,
    /// Descriptions of invalid parts of the policy, for an Event.
    pub(super) problems: Vec<String>,
}

/// A pair of a port and a peer that a rule of a policy allows.
#[derive(Debug, PartialEq)]
pub(super) enum RuleTerm {
    /// A range of ports, or `None` for all ports of all protocols, and the peer.
    Ports(Option<ProtocolPorts>, Remote<GroupName>),
    /// A named port whose number the selected pods define, and the peer.
    OwnPort(PortName, Remote<GroupName>),
    /// A group of peers that have a named port, and the protocol of that port. The peers define its
    /// number.
    PeerPort(GroupName, Protocol),
}

/// A selector of pods in one or several namespaces, from the peers of a rule.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct PeerSelector {
    /// The namespaces of the selected pods.
    pub(super) scope: PeerScope,
    /// The selector of the pods by their labels.
    pub(super) pods: ObjectSelector,
    /// The named port that a pod must have; `None` for any pod. The pods with the same port number
    /// form a group of their own.
    pub(super) port: Option<PortName>,
}

/// The namespaces of a peer selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) enum PeerScope {
    /// The namespace with this name, which is the namespace of the policy.
    Own(String),
    /// The namespaces whose labels match this selector.
    Matching(ObjectSelector),
}

impl ParsedPolicy {
    /// Returns the name of the security group of the pods that the policy selects.
    pub(super) fn group(&self) -> GroupName {
        name::policy(&self.owner.uid)
    }

    /// Parses a policy. Invalid parts allow nothing and are described in `problems`.
    pub(super) fn of(policy: &NetworkPolicy) -> Self {
        let spec = policy.spec.clone().unwrap_or_default();
        let selector = ObjectSelector::of(&spec.pod_selector.unwrap_or_default());
        let (ingress, egress) = (spec.ingress.unwrap_or_default(), spec.egress.unwrap_or_default());
        // The API's default: ingress always, egress if there are egress rules.
        let types = spec.policy_types.filter(|types| !types.is_empty());
        let isolates = |direction: &str, default| {
            types.as_ref().map_or(default, |types| types.iter().any(|named| named == direction))
        };
        let (ingress_isolated, egress_isolated) =
            (isolates("Ingress", true), isolates("Egress", !egress.is_empty()));
        let isolated = [(Direction::Ingress, ingress_isolated), (Direction::Egress, egress_isolated)];
        let mut terms = Self {
            owner: Owner::of(&policy.metadata),
            created: policy.metadata.creation_timestamp.clone(),
            problems: selector.unknown().map(unknown_operator).collect(),
            selector,
            isolated: isolated.into_iter().filter(|(_, is)| *is).map(|(direction, _)| direction).collect(),
            rules: Vec::new(),
            peers: BTreeMap::new(),
            own_ports: BTreeSet::new(),
        };
        for (number, rule) in ingress.into_iter().enumerate().filter(|_| ingress_isolated) {
            let (ports, from) = (rule.ports.unwrap_or_default(), rule.from.unwrap_or_default());
            terms.add_rule(Direction::Ingress, &format!("ingress[{number}]"), &ports, &from);
        }
        for (number, rule) in egress.into_iter().enumerate().filter(|_| egress_isolated) {
            let (ports, to) = (rule.ports.unwrap_or_default(), rule.to.unwrap_or_default());
            terms.add_rule(Direction::Egress, &format!("egress[{number}]"), &ports, &to);
        }
        terms
    }

    /// Returns `true` if the security groups of the pod may depend on the policy.
    pub(super) fn may_concern(&self, pod: &PodFields) -> bool {
        let namespace = &pod.owner.namespace;
        let is_peer = |peers: &PeerSelector| {
            let is_elsewhere = matches!(&peers.scope, PeerScope::Own(own) if own != namespace);
            !is_elsewhere && peers.pods.matches(&pod.labels)
        };
        self.owner.namespace == *namespace && self.selector.matches(&pod.labels)
            || self.peers.values().any(|peers| is_peer(peers))
    }

    /// Adds the pairs of a port and a peer that a rule allows; `path` is the place of the rule in the
    /// policy's `spec`. A rule with which the policy would exceed [`MAX_PAIRS`] or [`MAX_SELECTORS`] is
    /// left out and described in `problems`.
    fn add_rule(
        &mut self,
        direction: Direction,
        path: &str,
        ports: &[NetworkPolicyPort],
        peers: &[NetworkPolicyPeer],
    ) {
        let ports = self.ports(ports);
        let selected = self.selected(peers);
        let left = MAX_PAIRS.saturating_sub(self.rules.len());
        let pairs = self.networks(peers, left).and_then(|networks| {
            let remotes = if peers.is_empty() { 1 } else { networks.len() + selected.len() };
            (ports.len().saturating_mul(remotes) <= left).then_some(networks)
        });
        let pairs =
            pairs.map(|networks| RulePairs::of(direction, &ports, networks, &selected, peers.is_empty()));
        let is_new = |name: &&GroupName| !self.peers.contains_key(*name);
        let Some(pairs) = pairs
            .filter(|pairs| self.peers.len() + pairs.peers.keys().filter(is_new).count() <= MAX_SELECTORS)
        else {
            self.problems.push(format!(
                "`spec.{path}` is ignored and allows nothing: with it, the policy exceeds {MAX_PAIRS} pairs of a port and a \
                 peer, or {MAX_SELECTORS} pod selectors"
            ));
            return;
        };
        for peers in pairs.peers.values() {
            self.problems.extend(peers.pods.unknown().map(unknown_operator));
            if let PeerScope::Matching(namespaces) = &peers.scope {
                self.problems.extend(namespaces.unknown().map(unknown_operator));
            }
        }
        for port in &ports {
            match (port, direction, peers.iter().find_map(|peer| peer.ip_block.as_ref())) {
                (RulePort::Name((name, _)), Direction::Egress, Some(block)) => {
                    self.problems
                        .push(format!("the port `{name}` has no number in the block {}", block.cidr));
                }
                (RulePort::Name(name), Direction::Ingress, _) => drop(self.own_ports.insert(name.clone())),
                _ => {}
            }
        }
        self.peers.extend(pairs.peers);
        self.rules.extend(pairs.rules.into_iter().map(|rule| (direction, rule)));
    }

    /// Parses the ports of a rule. A rule without ports stands for all ports.
    fn ports(&mut self, ports: &[NetworkPolicyPort]) -> Vec<RulePort> {
        if ports.is_empty() {
            return vec![RulePort::Numbers(None)];
        }
        let parsed = ports
            .iter()
            .filter_map(|port| RulePort::of(port).map_err(|problem| self.problems.push(problem)).ok());
        parsed.collect()
    }

    /// Returns the merged networks of all valid IP blocks in `peers`; others are described in `problems`.
    /// Gives up with `None` if the blocks split into too many networks for `limit`; the caller must still
    /// compare the number of returned networks with the limit.
    fn networks(&mut self, peers: &[NetworkPolicyPeer], limit: usize) -> Option<Vec<IpNet>> {
        let mut networks = Vec::new();
        for block in peers.iter().filter_map(|peer| peer.ip_block.as_ref()) {
            match block::networks(block, limit) {
                Ok(split) if split.len() > limit => return None,
                Ok(split) => networks.extend(split),
                Err(problem) => self.problems.push(problem),
            }
            if networks.len() > 2 * limit {
                networks = block::merged(networks);
                if networks.len() > limit {
                    return None;
                }
            }
        }
        Some(block::merged(networks))
    }

    /// Returns the selectors of the pods in `peers`. An empty `peers` stands for all pods.
    fn selected(&self, peers: &[NetworkPolicyPeer]) -> Vec<(PeerScope, ObjectSelector)> {
        if peers.is_empty() {
            return vec![(PeerScope::Matching(ObjectSelector::default()), ObjectSelector::default())];
        }
        let of_pods = |peer: &&NetworkPolicyPeer| {
            peer.ip_block.is_none() && (peer.pod_selector.is_some() || peer.namespace_selector.is_some())
        };
        let selected = peers.iter().filter(of_pods).map(|peer| {
            let scope = match &peer.namespace_selector {
                Some(selector) => PeerScope::Matching(ObjectSelector::of(selector)),
                None => PeerScope::Own(self.owner.namespace.clone()),
            };
            (scope, peer.pod_selector.as_ref().map(ObjectSelector::of).unwrap_or_default())
        });
        selected.collect()
    }
}

/// Returns the text, for an Event, about a selector operator that the Kubernetes API does not define.
fn unknown_operator(operator: &str) -> String {
    format!("`{operator}` is not an operator of a selector")
}

/// The pairs of a port and a peer in one rule, and the peer selectors that the pairs refer to.
struct RulePairs {
    rules: Vec<RuleTerm>,
    peers: BTreeMap<GroupName, Arc<PeerSelector>>,
}

impl RulePairs {
    /// Combines each port with each peer: with [`Remote::Any`] if `anybody` is `true`, otherwise
    /// with `networks` and `selected`. For a named port of an egress rule, each of `selected`
    /// becomes a separate peer selector that requires the port.
    fn of(
        direction: Direction,
        ports: &[RulePort],
        networks: Vec<IpNet>,
        selected: &[(PeerScope, ObjectSelector)],
        anybody: bool,
    ) -> Self {
        let mut peers = BTreeMap::new();
        let mut add = |port: Option<&PortName>| {
            let names = selected.iter().cloned().map(|(scope, pods)| {
                let selector = PeerSelector { scope, pods, port: port.cloned() };
                let name = name::peers(&selector);
                peers.insert(name.clone(), Arc::new(selector));
                name
            });
            names.collect::<Vec<_>>()
        };
        let of_peers = |port: &RulePort| direction == Direction::Egress && matches!(port, RulePort::Name(_));
        let remotes: Vec<_> = if anybody {
            vec![Remote::Any]
        } else if ports.iter().all(of_peers) {
            Vec::new()
        } else {
            networks.into_iter().map(Remote::Net).chain(add(None).into_iter().map(Remote::Group)).collect()
        };
        let mut rules = Vec::new();
        for port in ports {
            match port {
                RulePort::Numbers(ports) => {
                    rules.extend(remotes.iter().map(|remote| RuleTerm::Ports(*ports, remote.clone())));
                }
                RulePort::Name(name) if of_peers(port) => {
                    rules.extend(add(Some(name)).into_iter().map(|peers| RuleTerm::PeerPort(peers, name.1)));
                }
                RulePort::Name(name) => {
                    rules
                        .extend(remotes.iter().map(|remote| RuleTerm::OwnPort(name.clone(), remote.clone())));
                }
            }
        }
        Self { rules, peers }
    }
}

/// A parsed port of a policy's rule.
enum RulePort {
    /// A range of port numbers; `None` for all ports of all protocols.
    Numbers(Option<ProtocolPorts>),
    /// A named port, whose number depends on the pod.
    Name(PortName),
}

impl RulePort {
    /// Parses a port. Returns a description of the problem if the port is invalid.
    fn of(port: &NetworkPolicyPort) -> Result<Self, String> {
        let protocol: Protocol = match port.protocol.as_deref() {
            Some(protocol) => protocol.parse::<Protocol>().map_err(|error| error.to_string())?,
            None => Protocol::Tcp,
        };
        let number = |number: i32| u16::try_from(number).ok().filter(|number| *number > 0);
        let range = match &port.port {
            None => None,
            Some(IntOrString::String(name)) => return Ok(Self::Name((name.clone(), protocol))),
            Some(IntOrString::Int(first)) => {
                let last = port.end_port.unwrap_or(*first);
                let range = number(*first).zip(number(last)).filter(|(first, last)| first <= last);
                Some(range.ok_or_else(|| format!("there are no ports {first} to {last}"))?)
            }
        };
        Ok(Self::Numbers(Some(ProtocolPorts { protocol, range })))
    }
}
