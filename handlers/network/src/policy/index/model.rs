//! Incremental computation of the security groups that follow from policies, pods and namespaces.
//!
//! A change is only recorded. The groups of the pods that the change may concern are recomputed
//! later, in slices and at the latest on the next read, so that a hundred changes at startup cost
//! as much as one, and no change blocks the thread.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use staffetta_driver::{Direction, GroupName, Owner, Uid};

use super::name;
use super::pod::{PodFields, PortName, PortNumbers};
use super::rule_limit::RuleLimit;
use super::rules::{self, GroupRules};
use super::selector::Labels;
use super::terms::{ParsedPolicy, PeerScope, PeerSelector};

/// A security group that must exist, with exactly these rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DesiredGroup {
    /// The name of the security group.
    pub(crate) name: GroupName,
    /// The policy that needs the group; `None` for a group that exists regardless of policies.
    pub(crate) owner: Option<Owner>,
    /// The rules of the security group, which refer to other groups by name.
    pub(crate) rules: GroupRules,
}

/// The security groups that a pod must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodGroups {
    /// `true` if policies apply to the pod and no policy isolates it in any direction.
    pub(super) open: bool,
    /// The names of the security groups, without those that every `open` pod has.
    pub(super) names: BTreeSet<GroupName>,
    /// The numbers of the pod's named ports, by the name of a group. There is an entry for each
    /// policy that selects the pod, and for each peer selector that matches it, if the policy or
    /// selector names ports.
    pub(super) ports: BTreeMap<GroupName, PortNumbers>,
}

/// All network policies, pods and namespaces, and the security groups that follow from them.
#[derive(Default)]
pub(super) struct PolicyModel {
    /// UID and labels of each namespace, by name.
    namespaces: HashMap<String, (Uid, Labels)>,
    /// The parsed policies, by UID.
    pub(super) policies: HashMap<Uid, Arc<ParsedPolicy>>,
    /// The pods by UID, with their security groups as last computed.
    pods: BTreeMap<Uid, (PodFields, PodGroups)>,
    /// The policies and peer selectors that concern each namespace, by the name of the namespace.
    /// An entry is removed when a policy or the namespace changes, and computed again when it is
    /// needed.
    scopes: HashMap<String, Arc<NamespaceScope>>,
    /// The distinct sets of numbers that pods have for the named ports of a group, by the name of
    /// the group. The value of each set is the number of pods that have it.
    resolved: HashMap<GroupName, BTreeMap<PortNumbers, usize>>,
    /// The pods whose security groups must be recomputed.
    dirty: BTreeSet<Uid>,
    /// The added, changed or removed policies for which the recomputation of pods has not begun yet.
    pending: Vec<Arc<ParsedPolicy>>,
    /// The added, changed or removed policies for which the pods are being recomputed, one after the other in the order of the pods' UIDs.
    applying: Vec<Arc<ParsedPolicy>>,
    /// The last pod that was recomputed for the policies in `applying`, or skipped as not concerned; `None` before the first one.
    applied_to: Option<Uid>,
    /// The limit of the number of security group rules of each namespace.
    rule_limit: RuleLimit,
    /// The number of recomputations of a pod's security groups so far.
    #[cfg(test)]
    pub(super) recomputed: usize,
    /// The pods whose security groups have changed, or may have been changed in the cloud, since a caller last took these changes.
    pub(super) changed_pods: HashSet<Uid>,
    /// The policies whose security groups have changed, or may have been changed in the cloud, since a caller last took these changes.
    pub(super) changed_policies: HashSet<Uid>,
}

/// The number of changed policies above which all pods are recomputed, instead of only those that a change concerns.
const MANY_CHANGES: usize = 8;

/// The policies of a namespace, and the peer selectors of all policies that match the namespace.
struct NamespaceScope {
    policies: Vec<Arc<ParsedPolicy>>,
    selectors: BTreeMap<GroupName, Arc<PeerSelector>>,
}

impl PolicyModel {
    /// Adds a namespace, or updates its labels.
    pub(super) fn set_namespace(&mut self, name: &str, uid: Uid, labels: Labels) {
        let identity = (uid, labels);
        if self.namespaces.get(name) != Some(&identity) {
            self.namespaces.insert(name.to_owned(), identity);
            self.namespace_changed(name);
        }
    }

    /// Removes the namespace with this name and UID. A newer namespace with the same name stays.
    pub(super) fn remove_namespace(&mut self, name: &str, uid: &Uid) {
        if self.namespaces.get(name).is_some_and(|(present, _)| present == uid) {
            self.namespaces.remove(name);
            self.namespace_changed(name);
        }
    }

    /// Adds or updates a pod, whose groups are recomputed later.
    pub(super) fn set_pod(&mut self, facts: PodFields) {
        let uid = facts.owner.uid.clone();
        match self.pods.get_mut(&uid) {
            Some((present, _)) if *present == facts => return,
            Some((present, _)) => *present = facts,
            None => drop(self.pods.insert(uid.clone(), (facts, PodGroups::default()))),
        }
        self.dirty.insert(uid);
    }

    /// Removes a pod, and subtracts it from the numbers of pods that have the same numbers for named ports.
    pub(super) fn remove_pod(&mut self, uid: &Uid) {
        self.dirty.remove(uid);
        self.changed_pods.remove(uid);
        if let Some((_, groups)) = self.pods.remove(uid) {
            self.count(&groups, false);
        }
    }

    /// Adds or updates a policy, and records the change for the pods that it may concern.
    pub(super) fn set_policy(&mut self, terms: ParsedPolicy) {
        let uid = terms.owner.uid.clone();
        if self.policies.get(&uid).is_none_or(|present| **present != terms) {
            let terms = Arc::new(terms);
            let before = self.policies.insert(uid.clone(), Arc::clone(&terms));
            self.changed_policies.insert(uid);
            self.policies_changed(before.into_iter().chain([terms]));
        }
    }

    /// Removes a policy, and records the change for the pods that it may concern.
    pub(super) fn remove_policy(&mut self, uid: &Uid) {
        if let Some(terms) = self.policies.remove(uid) {
            self.changed_policies.remove(uid);
            self.policies_changed([terms]);
        }
    }

    /// Returns the security groups that a pod must have, even if the pod is not in the model.
    pub(super) fn groups_for(&mut self, facts: &PodFields) -> PodGroups {
        self.update();
        match self.pods.get(&facts.owner.uid) {
            Some((present, groups)) if present == facts => groups.clone(),
            _ => self.compute(facts),
        }
    }

    /// Returns the security groups that a pod must have, or `None` if the pod is not in the model
    /// or policies do not apply to it.
    pub(super) fn pod_groups(&mut self, uid: &Uid) -> Option<&PodGroups> {
        self.update();
        self.pods.get(uid).filter(|(facts, _)| facts.is_restricted).map(|(_, groups)| groups)
    }

    /// Returns the namespace, name and UID of a pod, or `None` if the pod is not in the model.
    pub(super) fn pod_owner(&self, uid: &Uid) -> Option<&Owner> {
        self.pods.get(uid).map(|(facts, _)| &facts.owner)
    }

    /// Marks all pods and policies as changed, so that their security groups are reconciled.
    pub(super) fn mark_all_changed(&mut self) {
        self.changed_pods = self.pods.keys().cloned().collect();
        self.changed_policies = self.policies.keys().cloned().collect();
    }

    /// Marks the pods that must have the security group `group` as changed.
    pub(super) fn mark_members_changed(&mut self, group: &GroupName) {
        self.update();
        let members = self.pods.iter().filter(|(_, (_, groups))| groups.names.contains(group));
        self.changed_pods.extend(members.map(|(uid, _)| uid.clone()));
    }

    /// Returns the security groups that a policy needs. Groups of peers come first, because the
    /// rules of the other groups refer to them. The list is empty if the policy does not exist.
    pub(super) fn policy_groups(&mut self, uid: &Uid) -> Vec<DesiredGroup> {
        self.update();
        let Some(terms) = self.policies.get(uid) else { return Vec::new() };
        let group = |name: GroupName, rules| DesiredGroup { name, owner: Some(terms.owner.clone()), rules };
        let peers = self.peer_groups(terms).map(|name| group(name, GroupRules::new()));
        let is_excessive = self.rule_limit.exceeded_by(terms).is_some();
        let own = self.own_groups(terms).into_iter().map(|(name, own)| {
            group(name, if is_excessive { GroupRules::new() } else { self.rules(terms, &own) })
        });
        peers.chain(own).collect()
    }

    /// Sets the maximum number of rules that the policies of one namespace may have together; `None` for no limit.
    pub(super) fn set_max_rules(&mut self, max_rules: Option<usize>) {
        self.rule_limit.set_max(max_rules, &self.policies);
    }

    /// Returns the maximum number of rules of a namespace if the policy, counted after older policies,
    /// exceeds it; otherwise `None`. A policy that exceeds it isolates its pods and allows nothing.
    pub(super) fn exceeded_limit(&mut self, uid: &Uid) -> Option<usize> {
        self.update();
        self.rule_limit.exceeded_by(self.policies.get(uid)?)
    }

    /// Returns the security group rules of a policy for the pods that have the numbers `own` for its named ports.
    fn rules(&self, terms: &ParsedPolicy, own: &PortNumbers) -> GroupRules {
        rules::of(terms, own, |peers| self.numbers(peers))
    }

    /// Returns the names of the security groups that the policies need.
    pub(super) fn group_names(&mut self) -> HashSet<GroupName> {
        self.update();
        let own = self.policies.values().flat_map(|terms| self.own_groups(terms)).map(|(name, _)| name);
        own.chain(self.policies.values().flat_map(|terms| self.peer_groups(terms))).collect()
    }

    /// Returns the named ports of a policy that none of the pods concerned has, as `name/protocol`.
    /// If no pod is concerned, no port is returned, because a policy may be created before its
    /// pods.
    pub(super) fn unresolved_ports(&mut self, uid: &Uid) -> Vec<String> {
        self.update();
        let Some(terms) = self.policies.get(uid) else { return Vec::new() };
        let own = terms.own_ports.iter().map(|port| (terms.group(), port));
        let of_peers =
            terms.peers.iter().filter_map(|(name, peers)| Some((name.clone(), peers.port.as_ref()?)));
        let is_lacking = |(group, port): &(GroupName, &PortName)| {
            let resolved = self.resolved.get(group);
            resolved.is_some_and(|resolved| resolved.keys().all(|numbers| !numbers.contains_key(port)))
        };
        let names: BTreeSet<_> = own.chain(of_peers).filter(is_lacking).map(|(_, port)| port).collect();
        names.into_iter().map(|(name, protocol)| format!("{name}/{protocol}")).collect()
    }

    /// Returns the groups of the pods that a policy selects, each with the numbers of the policy's
    /// named ports. Without named ports there is one group. Otherwise there is one group for each
    /// distinct set of numbers that the pods have.
    fn own_groups(&self, terms: &ParsedPolicy) -> Vec<(GroupName, PortNumbers)> {
        if terms.own_ports.is_empty() {
            return vec![(terms.group(), PortNumbers::new())];
        }
        let resolved = self.resolved.get(&terms.group()).into_iter().flat_map(BTreeMap::keys);
        resolved.map(|numbers| (name::resolved(&terms.group(), numbers), numbers.clone())).collect()
    }

    /// Returns the names of the groups of a policy's peers. A peer selector without a named port
    /// has one group. A selector with a named port has one group for each number of that port.
    fn peer_groups(&self, terms: &ParsedPolicy) -> impl Iterator<Item = GroupName> {
        terms.peers.iter().flat_map(|(peers, selector)| match selector.port {
            None => vec![peers.clone()],
            Some(_) => self.numbers(peers).into_iter().map(|number| name::numbered(peers, number)).collect(),
        })
    }

    /// Returns the numbers that the named port of a peer selector has at the matching pods.
    fn numbers(&self, peers: &GroupName) -> Vec<u16> {
        let resolved = self.resolved.get(peers).into_iter().flat_map(BTreeMap::keys);
        resolved.flat_map(|numbers| numbers.values().copied()).collect()
    }

    /// Computes the groups that a pod must have from the policies and peer selectors of its namespace.
    fn compute(&mut self, facts: &PodFields) -> PodGroups {
        let mut groups = PodGroups::default();
        if !facts.is_restricted {
            return groups;
        }
        let mut isolated = BTreeSet::<Direction>::new();
        let scope = self.scope(&facts.owner.namespace);
        for terms in scope.policies.iter().filter(|terms| terms.selector.matches(&facts.labels)) {
            isolated.extend(&terms.isolated);
            if terms.own_ports.is_empty() {
                groups.names.insert(terms.group());
            } else {
                let numbers = facts.numbers(&terms.own_ports);
                groups.names.insert(name::resolved(&terms.group(), &numbers));
                groups.ports.insert(terms.group(), numbers);
            }
        }
        for (name, peers) in scope.selectors.iter().filter(|(_, peers)| peers.pods.matches(&facts.labels)) {
            if peers.port.is_none() {
                groups.names.insert(name.clone());
            } else {
                let numbers = facts.numbers(&peers.port);
                groups.names.extend(numbers.values().map(|number| name::numbered(name, *number)));
                groups.ports.insert(name.clone(), numbers);
            }
        }
        groups.open = isolated.is_empty();
        if !groups.open {
            groups.names.insert(name::nodes());
            let open = [Direction::Ingress, Direction::Egress].into_iter();
            groups.names.extend(open.filter(|direction| !isolated.contains(direction)).map(name::open));
        }
        groups
    }

    /// Returns the policies and peer selectors that concern the pods of a namespace. While the
    /// labels of the namespace are unknown, only selectors that are limited to that namespace by
    /// name match.
    fn scope(&mut self, name: &str) -> Arc<NamespaceScope> {
        if let Some(scope) = self.scopes.get(name) {
            return Arc::clone(scope);
        }
        let labels = self.namespaces.get(name).map(|(_, labels)| labels);
        let matches = |peers: &PeerSelector| match &peers.scope {
            PeerScope::Own(own) => own == name,
            PeerScope::Matching(selector) => labels.is_some_and(|labels| selector.matches(labels)),
        };
        let isolates = |terms: &ParsedPolicy| terms.owner.namespace == name && !terms.isolated.is_empty();
        let selectors = self.policies.values().flat_map(|terms| &terms.peers);
        let selectors = selectors.filter(|(_, peers)| matches(peers));
        let scope = Arc::new(NamespaceScope {
            policies: self.policies.values().filter(|terms| isolates(terms)).cloned().collect(),
            selectors: selectors.map(|(name, peers)| (name.clone(), Arc::clone(peers))).collect(),
        });
        self.scopes.insert(name.to_owned(), Arc::clone(&scope));
        scope
    }

    /// Recomputes the groups of all pods that recorded changes may concern, and compares the policies with the rule limit.
    pub(super) fn update(&mut self) {
        while self.advance(usize::MAX) {}
        let mut rule_limit = std::mem::take(&mut self.rule_limit);
        let count = |terms: &ParsedPolicy| {
            self.own_groups(terms).iter().map(|(_, own)| self.rules(terms, own).len()).sum()
        };
        let differing = rule_limit.check(&self.policies, count);
        self.changed_policies.extend(differing);
        self.rule_limit = rule_limit;
    }

    /// Recomputes the groups of pods that recorded changes may concern, for at most `limit` pods. Returns `true` if changes are left.
    pub(super) fn advance(&mut self, limit: usize) -> bool {
        let mut left = limit;
        while left > 0
            && let Some(uid) = self.dirty.pop_first()
        {
            self.recompute(uid);
            left -= 1;
        }
        if self.applying.is_empty() {
            (self.applying, self.applied_to) = (std::mem::take(&mut self.pending), None);
        }
        if !self.applying.is_empty() {
            let concerns = |pod: &PodFields| {
                self.applying.len() > MANY_CHANGES || self.applying.iter().any(|terms| terms.may_concern(pod))
            };
            let start = self.applied_to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.pods.range((start, Bound::Unbounded)).take(left);
            let next: Vec<_> = next.map(|(uid, (facts, _))| (uid.clone(), concerns(facts))).collect();
            if next.len() < left {
                self.applying.clear();
            }
            for (uid, is_concerned) in next {
                self.applied_to = Some(uid.clone());
                if is_concerned {
                    self.recompute(uid);
                }
            }
        }
        !(self.dirty.is_empty() && self.applying.is_empty() && self.pending.is_empty())
    }

    /// Recomputes the security groups of a pod, and records the pod as changed if they differ.
    fn recompute(&mut self, uid: Uid) {
        let Some((facts, before)) = self.pods.remove(&uid) else { return };
        #[cfg(test)]
        {
            self.recomputed += 1;
        }
        let groups = self.compute(&facts);
        if before.ports != groups.ports {
            self.count(&groups, true);
            self.count(&before, false);
        }
        if (before.open, &before.names) != (groups.open, &groups.names) {
            self.changed_pods.insert(uid.clone());
        }
        self.pods.insert(uid, (facts, groups));
    }

    /// Updates the counts of pods by port numbers when a pod joins (`joins`) or leaves its groups.
    /// When the first pod with a set of numbers joins, or the last one leaves, the policies that
    /// use the group are marked as changed.
    fn count(&mut self, groups: &PodGroups, joins: bool) {
        let Self { policies, resolved, changed_policies, rule_limit, .. } = self;
        for (group, numbers) in &groups.ports {
            let counts = resolved.entry(group.clone()).or_default();
            let pods = counts.entry(numbers.clone()).or_default();
            *pods = if joins { *pods + 1 } else { pods.saturating_sub(1) };
            if *pods == usize::from(joins) {
                let users = policies.iter().filter(|(_, terms)| {
                    terms.peers.contains_key(group) || !terms.own_ports.is_empty() && terms.group() == *group
                });
                for (uid, terms) in users {
                    changed_policies.insert(uid.clone());
                    rule_limit.changed(terms);
                }
            }
            counts.retain(|_, pods| *pods > 0);
            if counts.is_empty() {
                resolved.remove(group);
            }
        }
    }

    /// Discards the computed policies and peer selectors of a namespace, and marks its pods for recomputation.
    fn namespace_changed(&mut self, name: &str) {
        self.scopes.remove(name);
        let pods = self.pods.iter().filter(|(_, (facts, _))| facts.owner.namespace == name);
        self.dirty.extend(pods.map(|(uid, _)| uid.clone()));
    }

    /// Discards the computed policies and peer selectors of all namespaces, and records the policies in `changed`,
    /// in their old and their new version, so that the pods that they may concern are recomputed later.
    fn policies_changed(&mut self, changed: impl IntoIterator<Item = Arc<ParsedPolicy>>) {
        self.scopes.clear();
        for terms in changed {
            self.rule_limit.changed(&terms);
            self.pending.push(terms);
        }
    }
}
