//! What policies, pods and namespaces mean together: which groups there are to be, and which pod bears which.
//!
//! A change is only taken down. What follows from it is reckoned when somebody asks, for the pods that it may concern, so that
//! a hundred changes at start cost as much as one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::name;
use super::pod::{PodFacts, PortName};
use super::rules::{self, Rules};
use super::selector::Labels;
use super::terms::{Peers, Scope, Terms};
use crate::id::{GroupName, Uid};
use crate::owner::Owner;

/// Ports with names, and their numbers.
type Numbers = BTreeMap<PortName, u16>;

/// Descriptions of pods, by the names of their groups.
type Described = Arc<[(GroupName, Arc<Peers>)]>;

/// A group that there is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupWish {
    /// The name.
    pub name: GroupName,
    /// The policy for which it is wanted.
    pub owner: Owner,
    /// The rules that it is to have.
    pub rules: Rules,
}

/// The groups of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Whether policies concern it and none isolates it, in either direction.
    pub(super) open: bool,
    pub(super) groups: BTreeMap<GroupName, Why>,
    /// The descriptions that it fits but for their port, which it has not.
    pub(super) lacking: BTreeSet<GroupName>,
}

/// Why a pod bears a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is there as long as the policy is.
    Fixed,
    /// A policy selects pods whose named ports have these numbers.
    Resolved(Uid, Numbers),
    /// Of the pods that a policy names, it has a port of this number.
    Numbered(GroupName, u16),
}

/// Policies, pods and namespaces.
#[derive(Default)]
pub(super) struct Model {
    namespaces: HashMap<String, Namespace>,
    policies: HashMap<Uid, Arc<Terms>>,
    pods: HashMap<Uid, Known>,
    peers: HashMap<GroupName, Named>,
    /// The groups of policies that name ports of the pods that they select: what the ports are, and how many pods bear it.
    resolved: HashMap<Uid, BTreeMap<GroupName, (Numbers, usize)>>,
    /// The pods of which it is not known any more which groups they bear.
    stale: HashSet<Uid>,
    /// Whether a policy changed since.
    doubted: bool,
    /// The pods and the policies for which something came out differently than before, since somebody asked.
    pub(super) moved_pods: HashSet<Uid>,
    pub(super) moved_policies: HashSet<Uid>,
}

#[derive(Default)]
struct Namespace {
    /// None when its pods or policies were seen before it.
    identity: Option<(Uid, Labels)>,
    pods: HashSet<Uid>,
    policies: BTreeSet<Uid>,
    /// The descriptions that its pods may fit, as far as namespaces are concerned; none when that has to be reckoned.
    described: Option<Described>,
}

struct Known {
    facts: PodFacts,
    standing: Standing,
}

/// A description of pods that some policies use.
struct Named {
    peers: Arc<Peers>,
    users: BTreeSet<Uid>,
    /// For a description with a named port: how many pods have it at which number.
    numbers: BTreeMap<u16, usize>,
    /// And how many pods fit it but for the port.
    lacking: usize,
}

impl Model {
    pub(super) fn put_namespace(&mut self, name: &str, uid: Uid, labels: Labels) {
        let namespace = self.namespaces.entry(name.to_owned()).or_default();
        let identity = Some((uid, labels));
        if namespace.identity != identity {
            namespace.identity = identity;
            namespace.described = None;
            self.stale.extend(namespace.pods.iter().cloned());
        }
    }

    pub(super) fn remove_namespace(&mut self, name: &str, uid: &Uid) {
        if let Some(namespace) = self.namespaces.get_mut(name)
            && namespace.identity.as_ref().is_some_and(|(known, _)| known == uid)
        {
            namespace.identity = None;
            namespace.described = None;
            self.stale.extend(namespace.pods.iter().cloned());
            self.tidy(name);
        }
    }

    pub(super) fn put_pod(&mut self, facts: PodFacts) {
        let uid = facts.owner.uid.clone();
        match self.pods.get_mut(&uid) {
            Some(known) if known.facts == facts => return,
            Some(known) => known.facts = facts,
            None => {
                let namespace = self.namespaces.entry(facts.owner.namespace.clone()).or_default();
                namespace.pods.insert(uid.clone());
                self.pods.insert(uid.clone(), Known { facts, standing: Standing::default() });
            }
        }
        self.stale.insert(uid);
    }

    pub(super) fn remove_pod(&mut self, uid: &Uid) {
        let Some(Known { facts, standing }) = self.pods.remove(uid) else { return };
        self.stale.remove(uid);
        self.moved_pods.remove(uid);
        self.uncount(&standing);
        if let Some(namespace) = self.namespaces.get_mut(&facts.owner.namespace) {
            namespace.pods.remove(uid);
        }
        self.tidy(&facts.owner.namespace);
    }

    pub(super) fn put_policy(&mut self, terms: Terms) {
        let uid = terms.owner.uid.clone();
        if self.policies.get(&uid).is_some_and(|known| **known == terms) {
            return;
        }
        self.unname(&uid);
        // One that was there keeps what was counted.
        for (name, peers) in &terms.peers {
            let named = self.peers.entry(name.clone()).or_insert_with(|| Named {
                peers: Arc::clone(peers),
                users: BTreeSet::new(),
                numbers: BTreeMap::new(),
                lacking: 0,
            });
            named.users.insert(uid.clone());
        }
        self.namespaces.entry(terms.owner.namespace.clone()).or_default().policies.insert(uid.clone());
        self.policies.insert(uid.clone(), Arc::new(terms));
        self.moved_policies.insert(uid);
        self.doubt_all();
    }

    pub(super) fn remove_policy(&mut self, uid: &Uid) {
        self.unname(uid);
        let Some(terms) = self.policies.remove(uid) else { return };
        if let Some(namespace) = self.namespaces.get_mut(&terms.owner.namespace) {
            namespace.policies.remove(uid);
        }
        self.tidy(&terms.owner.namespace);
        self.moved_policies.remove(uid);
        self.doubt_all();
    }

    /// What is to be known of a pod, whether or not it is known already.
    pub(super) fn standing_of(&mut self, facts: &PodFacts) -> Standing {
        self.settle();
        match self.pods.get(&facts.owner.uid) {
            Some(known) if known.facts == *facts => known.standing.clone(),
            _ => self.reckon(facts),
        }
    }

    /// The groups of a pod.
    pub(super) fn standing(&mut self, uid: &Uid) -> Option<&Standing> {
        self.settle();
        self.pods.get(uid).filter(|known| known.facts.concerned).map(|known| &known.standing)
    }

    /// The owner of a pod or a policy.
    pub(super) fn pod(&self, uid: &Uid) -> Option<&Owner> {
        self.pods.get(uid).map(|known| &known.facts.owner)
    }

    pub(super) fn policy(&self, uid: &Uid) -> Option<&Arc<Terms>> {
        self.policies.get(uid)
    }

    /// Each pod and each policy counts as one for which something came out differently.
    pub(super) fn move_all(&mut self) {
        self.moved_pods = self.pods.keys().cloned().collect();
        self.moved_policies = self.policies.keys().cloned().collect();
    }

    /// The groups of a policy: first those without rules that the others name.
    pub(super) fn groups(&mut self, uid: &Uid) -> Vec<GroupWish> {
        self.settle();
        let Some(terms) = self.policies.get(uid) else { return Vec::new() };
        let wish = |name: GroupName, rules| GroupWish { name, owner: terms.owner.clone(), rules };
        let peers = terms.peers.keys().flat_map(|name| self.numbered(name));
        let mut groups: Vec<_> = peers.map(|name| wish(name, Rules::new())).collect();
        let none = BTreeMap::new();
        for (name, own) in self.own(terms) {
            groups.push(wish(name, rules::of(terms, own.unwrap_or(&none), |peers| self.numbers(peers))));
        }
        groups
    }

    /// The names of all groups that there are to be.
    pub(super) fn names(&mut self) -> HashSet<GroupName> {
        self.settle();
        let own = self.policies.values().flat_map(|terms| self.own(terms)).map(|(name, _)| name);
        own.chain(self.peers.keys().flat_map(|name| self.numbered(name))).collect()
    }

    /// The named ports of a policy that none of the pods has which it concerns. A policy may be there before its pods: as long
    /// as there is none, nothing is missing.
    pub(super) fn unresolved(&mut self, uid: &Uid) -> Vec<String> {
        self.settle();
        let Some(terms) = self.policies.get(uid).cloned() else { return Vec::new() };
        let selected = self.resolved.get(uid).filter(|selected| !selected.is_empty());
        let resolved: Option<BTreeSet<&PortName>> =
            selected.map(|selected| selected.values().flat_map(|(ports, _)| ports.keys()).collect());
        let own =
            terms.own_ports.iter().filter(|port| resolved.as_ref().is_some_and(|own| !own.contains(port)));
        let mut names: BTreeSet<PortName> = own.cloned().collect();
        for (name, peers) in &terms.peers {
            if let Some(port) = &peers.port
                && self.peers.get(name).is_some_and(|named| named.numbers.is_empty() && named.lacking > 0)
            {
                names.insert(port.clone());
            }
        }
        names.into_iter().map(|(name, protocol)| format!("{name}/{protocol}")).collect()
    }

    /// The groups of the pods that a policy selects.
    fn own<'m>(&'m self, terms: &'m Terms) -> Vec<(GroupName, Option<&'m Numbers>)> {
        let uid = &terms.owner.uid;
        if terms.own_ports.is_empty() {
            return vec![(name::policy(uid, None::<&()>), None)];
        }
        let resolved = self.resolved.get(uid).into_iter().flatten();
        resolved.map(|(name, (ports, _))| (name.clone(), Some(ports))).collect()
    }

    /// The groups of the pods that fit a description.
    fn numbered(&self, peers: &GroupName) -> Vec<GroupName> {
        match self.peers.get(peers) {
            Some(named) if named.peers.port.is_some() => {
                named.numbers.keys().map(|number| name::numbered(peers, *number)).collect()
            }
            _ => vec![peers.clone()],
        }
    }

    fn numbers(&self, peers: &GroupName) -> Vec<u16> {
        let named = self.peers.get(peers).filter(|named| named.peers.port.is_some());
        named.map(|named| named.numbers.keys().copied().collect()).unwrap_or_default()
    }

    /// Which groups a pod bears.
    fn reckon(&mut self, facts: &PodFacts) -> Standing {
        if !facts.concerned {
            return Standing::default();
        }
        let (mut groups, mut lacking) = (BTreeMap::new(), BTreeSet::new());
        let (mut ingress, mut egress) = (false, false);
        let described = self.described(&facts.owner.namespace);
        let namespace = self.namespaces.get(&facts.owner.namespace);
        let policies = namespace.into_iter().flat_map(|namespace| &namespace.policies);
        for terms in policies.filter_map(|uid| self.policies.get(uid)) {
            if terms.selects.selects(&facts.labels) && (terms.ingress.is_some() || terms.egress.is_some()) {
                ingress |= terms.ingress.is_some();
                egress |= terms.egress.is_some();
                let (name, why) = own_group(terms, facts);
                groups.insert(name, why);
            }
        }
        for (name, peers) in described.iter().filter(|(_, peers)| peers.pods.selects(&facts.labels)) {
            match &peers.port {
                None => drop(groups.insert(name.clone(), Why::Fixed)),
                Some(port) => match facts.ports.get(port) {
                    Some(number) => {
                        let why = Why::Numbered(name.clone(), *number);
                        groups.insert(name::numbered(name, *number), why);
                    }
                    None => drop(lacking.insert(name.clone())),
                },
            }
        }
        let open = !ingress && !egress;
        if !open {
            groups.insert(name::nodes(), Why::Fixed);
            let half = [(ingress, name::open_ingress()), (egress, name::open_egress())];
            groups.extend(
                half.into_iter().filter(|(isolated, _)| !isolated).map(|(_, name)| (name, Why::Fixed)),
            );
        }
        Standing { open, groups, lacking }
    }

    /// The descriptions that pods of a namespace may fit. Of a namespace that is not known, only its own policies speak.
    fn described(&mut self, name: &str) -> Described {
        let Some(namespace) = self.namespaces.get_mut(name) else { return Arc::default() };
        let labels = namespace.identity.as_ref().map(|(_, labels)| labels);
        let described = namespace.described.get_or_insert_with(|| {
            let fits = |named: &Named| match &named.peers.scope {
                Scope::Own(own) => own == name,
                Scope::Matching(selector) => labels.is_some_and(|labels| selector.selects(labels)),
            };
            let all = self.peers.iter().filter(|(_, named)| !named.users.is_empty() && fits(named));
            all.map(|(name, named)| (name.clone(), Arc::clone(&named.peers))).collect()
        });
        Arc::clone(described)
    }

    /// Reckons anew what is not known any more.
    pub(super) fn settle(&mut self) {
        if self.stale.is_empty() && !self.doubted {
            return;
        }
        for uid in std::mem::take(&mut self.stale) {
            let Some(mut known) = self.pods.remove(&uid) else { continue };
            let standing = self.reckon(&known.facts);
            if standing != known.standing {
                let before = std::mem::replace(&mut known.standing, standing);
                self.count(&known.standing);
                self.uncount(&before);
                if (before.open, &before.groups) != (known.standing.open, &known.standing.groups) {
                    self.moved_pods.insert(uid.clone());
                }
            }
            self.pods.insert(uid, known);
        }
        // By now no pod is counted for what no policy uses.
        self.peers.retain(|_, named| !named.users.is_empty());
        self.resolved.retain(|uid, _| self.policies.contains_key(uid));
        self.doubted = false;
    }

    /// A pod bears these groups.
    fn count(&mut self, standing: &Standing) {
        for name in &standing.lacking {
            let Some(named) = self.peers.get_mut(name) else { continue };
            named.lacking += 1;
            if named.lacking == 1 {
                self.moved_policies.extend(named.users.iter().cloned());
            }
        }
        for (name, why) in &standing.groups {
            match why {
                Why::Fixed => {}
                Why::Resolved(policy, ports) => {
                    let of_policy = self.resolved.entry(policy.clone()).or_default();
                    let (_, bearers) = of_policy.entry(name.clone()).or_insert_with(|| (ports.clone(), 0));
                    *bearers += 1;
                    if *bearers == 1 {
                        self.moved_policies.insert(policy.clone());
                    }
                }
                Why::Numbered(peers, number) => {
                    let Some(named) = self.peers.get_mut(peers) else { continue };
                    let bearers = named.numbers.entry(*number).or_default();
                    *bearers += 1;
                    if *bearers == 1 {
                        self.moved_policies.extend(named.users.iter().cloned());
                    }
                }
            }
        }
    }

    /// A pod does not bear these groups any more.
    fn uncount(&mut self, standing: &Standing) {
        for name in &standing.lacking {
            let Some(named) = self.peers.get_mut(name) else { continue };
            named.lacking -= 1;
            if named.lacking == 0 {
                self.moved_policies.extend(named.users.iter().cloned());
            }
        }
        for (name, why) in &standing.groups {
            match why {
                Why::Fixed => {}
                Why::Resolved(policy, _) => {
                    let Some(of_policy) = self.resolved.get_mut(policy) else { continue };
                    if let Some((_, bearers)) = of_policy.get_mut(name) {
                        *bearers -= 1;
                        if *bearers == 0 {
                            of_policy.remove(name);
                            self.moved_policies.insert(policy.clone());
                        }
                    }
                }
                Why::Numbered(peers, number) => {
                    let Some(named) = self.peers.get_mut(peers) else { continue };
                    if let Some(bearers) = named.numbers.get_mut(number) {
                        *bearers -= 1;
                        if *bearers == 0 {
                            named.numbers.remove(number);
                            self.moved_policies.extend(named.users.iter().cloned());
                        }
                    }
                }
            }
        }
    }

    /// A policy does not use its descriptions any more.
    fn unname(&mut self, uid: &Uid) {
        let Some(terms) = self.policies.get(uid) else { return };
        for name in terms.peers.keys() {
            if let Some(named) = self.peers.get_mut(name) {
                named.users.remove(uid);
            }
        }
    }

    /// Each pod may bear other groups than before.
    fn doubt_all(&mut self) {
        for namespace in self.namespaces.values_mut() {
            namespace.described = None;
        }
        self.stale.extend(self.pods.keys().cloned());
        self.doubted = true;
    }

    /// Forgets a namespace of which nothing is left.
    fn tidy(&mut self, name: &str) {
        let empty = |namespace: &Namespace| {
            namespace.identity.is_none() && namespace.pods.is_empty() && namespace.policies.is_empty()
        };
        if self.namespaces.get(name).is_some_and(empty) {
            self.namespaces.remove(name);
        }
    }
}

/// The group of a pod that a policy selects.
fn own_group(terms: &Terms, facts: &PodFacts) -> (GroupName, Why) {
    let uid = &terms.owner.uid;
    if terms.own_ports.is_empty() {
        return (name::policy(uid, None::<&()>), Why::Fixed);
    }
    let numbers = terms.own_ports.iter().filter_map(|port| Some((port.clone(), *facts.ports.get(port)?)));
    let ports: Numbers = numbers.collect();
    let listed: Vec<_> = ports.iter().collect();
    (name::policy(uid, Some(&listed)), Why::Resolved(uid.clone(), ports))
}
