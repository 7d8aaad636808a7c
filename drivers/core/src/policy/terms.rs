//! What one policy says, read once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;

use super::block;
use super::name;
use super::pod::PortName;
use super::selector::Selector;
use crate::id::GroupName;
use crate::load_balancer::Protocol;
use crate::owner::Owner;
use crate::security_group::Ports;

/// How many pairs of a port and a peer a policy may name: so many rules, or twice as many, are made of them.
const PAIRS: usize = 10_000;

/// How many descriptions of pods a policy may hold: each pod is held against all of them.
const DESCRIPTIONS: usize = 500;

/// What one policy says.
#[derive(Debug, PartialEq)]
pub(super) struct Terms {
    pub(super) owner: Owner,
    /// Which pods of its namespace it isolates.
    pub(super) selects: Selector,
    /// What it lets in; none when it does not isolate in that direction.
    pub(super) ingress: Option<Vec<Allowance>>,
    /// What it lets out; none when it does not isolate in that direction.
    pub(super) egress: Option<Vec<Allowance>>,
    /// The groups of pods that it names.
    pub(super) peers: BTreeMap<GroupName, Arc<Peers>>,
    /// The ports of the pods that it selects that it names.
    pub(super) own_ports: BTreeSet<PortName>,
    /// What of it cannot be understood, for people.
    pub(super) problems: Vec<String>,
}

/// One rule of a policy: each of these may be reached at, or from, each of those.
#[derive(Debug, PartialEq)]
pub(super) struct Allowance {
    /// None for all ports of all protocols.
    pub(super) ports: Option<Vec<Ports>>,
    /// To or from whom these are open; none for anybody.
    pub(super) peers: Option<Others>,
    /// Of what is let in: the ports besides these that have a name, at the pods that are selected.
    pub(super) own_ports: BTreeSet<PortName>,
    /// Of what is let out: those who may be reached at the ports that have a name, and the protocols of these.
    pub(super) named_peers: BTreeSet<(GroupName, Protocol)>,
}

/// Who is named in a rule.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Others {
    pub(super) networks: Vec<IpNet>,
    pub(super) pods: BTreeSet<GroupName>,
}

/// A description of pods.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Peers {
    pub(super) scope: Scope,
    pub(super) pods: Selector,
    /// Only those that have a port of that name; each of its numbers makes a group of its own.
    pub(super) port: Option<PortName>,
}

/// In which namespaces pods are meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Scope {
    /// In that one.
    Own(String),
    /// In those with such labels.
    Matching(Selector),
}

impl Allowance {
    /// What cannot be kept.
    fn nothing() -> Self {
        let peers = Some(Others::default());
        Self { ports: Some(Vec::new()), peers, own_ports: BTreeSet::new(), named_peers: BTreeSet::new() }
    }
}

impl Terms {
    pub(super) fn of(policy: &NetworkPolicy) -> Self {
        let owner = Owner::of(&policy.metadata);
        let spec = policy.spec.clone().unwrap_or_default();
        let selects = Selector::of(&spec.pod_selector.unwrap_or_default());
        let (ingress, egress) = (spec.ingress.unwrap_or_default(), spec.egress.unwrap_or_default());
        // Where nothing is said: ingress always, egress if there are rules for it (the API's own default).
        let types = spec.policy_types.filter(|types| !types.is_empty());
        let isolates = |direction: &str, otherwise| {
            types.as_ref().map_or(otherwise, |types| types.iter().any(|named| named == direction))
        };
        let (isolates_ingress, isolates_egress) =
            (isolates("Ingress", true), isolates("Egress", !egress.is_empty()));
        let mut reader = Reader::new(&owner.namespace);
        reader.problems.extend(selects.unknown().map(unknown_operator));
        let ingress = isolates_ingress.then(|| {
            let rules = ingress.into_iter().enumerate();
            rules
                .map(|(number, rule)| {
                    let (ports, from) = (rule.ports.unwrap_or_default(), rule.from.unwrap_or_default());
                    reader.ingress(&format!("ingress[{number}]"), &ports, &from)
                })
                .collect()
        });
        let egress = isolates_egress.then(|| {
            let rules = egress.into_iter().enumerate();
            rules
                .map(|(number, rule)| {
                    let (ports, to) = (rule.ports.unwrap_or_default(), rule.to.unwrap_or_default());
                    reader.egress(&format!("egress[{number}]"), &ports, &to)
                })
                .collect()
        });
        let Reader { peers, own_ports, problems, .. } = reader;
        Self { owner, selects, ingress, egress, peers, own_ports, problems }
    }
}

fn unknown_operator(operator: &str) -> String {
    format!("`{operator}` is no operator of a selector")
}

/// Reads the rules of a policy.
struct Reader {
    namespace: String,
    peers: BTreeMap<GroupName, Arc<Peers>>,
    own_ports: BTreeSet<PortName>,
    problems: Vec<String>,
    /// How many pairs it may hold yet.
    pairs: usize,
}

/// A rule as it stands there.
struct Read {
    /// None for all ports of all protocols.
    ports: Option<Vec<Ports>>,
    names: BTreeSet<PortName>,
    /// Whether nobody is named.
    anybody: bool,
    networks: Vec<IpNet>,
    /// Everybody, where nobody is named.
    described: Vec<(Scope, Selector)>,
}

impl Reader {
    fn new(namespace: &str) -> Self {
        let (peers, own_ports, problems) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        let namespace = namespace.to_owned();
        Self { namespace, peers, own_ports, problems, pairs: PAIRS }
    }

    fn ingress(&mut self, place: &str, ports: &[NetworkPolicyPort], from: &[NetworkPolicyPeer]) -> Allowance {
        let Some(Read { ports, names: own_ports, networks, described, .. }) =
            self.read(place, ports, from, false)
        else {
            return Allowance::nothing();
        };
        self.own_ports.extend(own_ports.iter().cloned());
        let peers = (!from.is_empty()).then(|| self.others(networks, described));
        Allowance { ports, peers, own_ports, named_peers: BTreeSet::new() }
    }

    fn egress(&mut self, place: &str, ports: &[NetworkPolicyPort], to: &[NetworkPolicyPeer]) -> Allowance {
        let Some(Read { ports, names: named, networks, described, .. }) = self.read(place, ports, to, true)
        else {
            return Allowance::nothing();
        };
        let all_named = ports.as_ref().is_some_and(Vec::is_empty) && !named.is_empty();
        let mut named_peers = BTreeSet::new();
        for port in &named {
            for described in described.iter().cloned() {
                named_peers.insert((self.peers(described, Some(port.clone())), port.1));
            }
            if let Some(block) = to.iter().find_map(|peer| peer.ip_block.as_ref()) {
                self.problems
                    .push(format!("the port `{}` has no number in the block {}", port.0, block.cidr));
            }
        }
        // Where all ports have names, the peers as such are of no use.
        let peers = match to {
            _ if all_named => Some(Others::default()),
            [] => None,
            _ => Some(self.others(networks, described)),
        };
        Allowance { ports, peers, own_ports: BTreeSet::new(), named_peers }
    }

    /// What a rule says, if it is not more than a policy may hold. Where names of ports are `for_peers`, each makes a description
    /// of its own out of each that is there.
    fn read(
        &mut self,
        place: &str,
        ports: &[NetworkPolicyPort],
        peers: &[NetworkPolicyPeer],
        for_peers: bool,
    ) -> Option<Read> {
        let count = ports.len().max(1);
        let (ports, names) = self.ports(ports);
        let described = self.described(peers);
        let read = self.networks(peers).and_then(|networks| {
            let anybody = peers.is_empty();
            let others = if anybody { 1 } else { networks.len() + described.len() };
            let pairs = self.pairs.checked_sub(count.saturating_mul(others))?;
            let read = Read { ports, names, anybody, networks, described };
            (self.peers.len() + self.news(&read, for_peers) <= DESCRIPTIONS).then_some((pairs, read))
        });
        let Some((pairs, read)) = read else {
            self.problems.push(format!(
                "`spec.{place}` allows nothing: a policy may name {PAIRS} pairs of a port and a peer and {DESCRIPTIONS} descriptions \
                 of pods, and with it there are more"
            ));
            return None;
        };
        self.pairs = pairs;
        Some(read)
    }

    /// How many descriptions of a rule are new.
    fn news(&self, rule: &Read, for_peers: bool) -> usize {
        let names = rule.names.iter().filter(|_| for_peers).cloned().map(Some);
        let described = |port: Option<PortName>| {
            let peers = rule.described.iter().cloned();
            peers.map(move |(scope, pods)| name::peers(&Peers { scope, pods, port: port.clone() }))
        };
        let names = names.chain((!rule.anybody).then_some(None)).flat_map(described);
        names.filter(|name| !self.peers.contains_key(name)).collect::<BTreeSet<_>>().len()
    }

    /// The fewest networks that are together the blocks among these; none when they are more than may be.
    fn networks(&mut self, peers: &[NetworkPolicyPeer]) -> Option<Vec<IpNet>> {
        let mut networks = Vec::new();
        for block in peers.iter().filter_map(|peer| peer.ip_block.as_ref()) {
            match block::networks(block, self.pairs) {
                Ok(left) if left.len() > self.pairs => return None,
                Ok(left) => networks.extend(left),
                Err(problem) => self.problems.push(problem),
            }
            if networks.len() > 2 * self.pairs {
                networks = block::merged(networks);
                if networks.len() > self.pairs {
                    return None;
                }
            }
        }
        Some(block::merged(networks))
    }

    /// The pods that are described. Where nobody is named, all are.
    fn described(&self, peers: &[NetworkPolicyPeer]) -> Vec<(Scope, Selector)> {
        if peers.is_empty() {
            return vec![(Scope::Matching(Selector::default()), Selector::default())];
        }
        let of_pods = |peer: &&NetworkPolicyPeer| {
            peer.ip_block.is_none() && (peer.pod_selector.is_some() || peer.namespace_selector.is_some())
        };
        let described = peers.iter().filter(of_pods).map(|peer| {
            let scope = match &peer.namespace_selector {
                Some(selector) => Scope::Matching(Selector::of(selector)),
                None => Scope::Own(self.namespace.clone()),
            };
            (scope, peer.pod_selector.as_ref().map(Selector::of).unwrap_or_default())
        });
        described.collect()
    }

    /// The ports that have numbers, none for all ports; and those that have names.
    fn ports(&mut self, ports: &[NetworkPolicyPort]) -> (Option<Vec<Ports>>, BTreeSet<PortName>) {
        if ports.is_empty() {
            return (None, BTreeSet::new());
        }
        let (mut numbers, mut names) = (Vec::new(), BTreeSet::new());
        for port in ports {
            match read_port(port) {
                Ok(Port::Numbers(ports)) => numbers.push(ports),
                Ok(Port::Named(name)) => drop(names.insert(name)),
                Err(problem) => self.problems.push(problem),
            }
        }
        (Some(numbers), names)
    }

    fn others(&mut self, networks: Vec<IpNet>, described: Vec<(Scope, Selector)>) -> Others {
        let pods = described.into_iter().map(|described| self.peers(described, None)).collect();
        Others { networks, pods }
    }

    /// The name of the group of the pods that are described so.
    fn peers(&mut self, (scope, pods): (Scope, Selector), port: Option<PortName>) -> GroupName {
        let namespaces = match &scope {
            Scope::Matching(selector) => Some(selector),
            Scope::Own(_) => None,
        };
        let unknown = pods.unknown().chain(namespaces.into_iter().flat_map(Selector::unknown));
        self.problems.extend(unknown.map(unknown_operator));
        let peers = Peers { scope, pods, port };
        let name = name::peers(&peers);
        self.peers.insert(name.clone(), Arc::new(peers));
        name
    }
}

enum Port {
    Numbers(Ports),
    Named(PortName),
}

fn read_port(port: &NetworkPolicyPort) -> Result<Port, String> {
    let protocol: Protocol = match port.protocol.as_deref() {
        Some(protocol) => protocol.parse::<Protocol>().map_err(|error| error.to_string())?,
        None => Protocol::Tcp,
    };
    let number = |number: i32| u16::try_from(number).ok().filter(|number| *number > 0);
    match &port.port {
        None => Ok(Port::Numbers(Ports { protocol, range: None })),
        Some(IntOrString::String(name)) => Ok(Port::Named((name.clone(), protocol))),
        Some(IntOrString::Int(first)) => {
            let last = port.end_port.unwrap_or(*first);
            match (number(*first), number(last)) {
                (Some(first), Some(last)) if first <= last => {
                    Ok(Port::Numbers(Ports { protocol, range: Some((first, last)) }))
                }
                _ => Err(format!("there are no ports {first} to {last}")),
            }
        }
    }
}
