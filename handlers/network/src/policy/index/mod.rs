//! Index of policies, pods, namespaces and nodes, and the security groups that follow from them.
//!
//! A pod that no policy isolates has the configured groups. If none are configured, it has two
//! groups that allow everything. An isolated pod has these groups instead: the group of each policy
//! that selects it, the group that allows everything in a direction in which it is not isolated,
//! and the group `nodes`. In addition, a rule's peers (the pods that its selector matches) are
//! members of a group without rules, and the rules of other groups refer to that group. A change of
//! a pod's labels therefore changes its groups, but no rule.
//!
//! | module | content |
//! |---|---|
//! | `selector`, `block`, `pod` | labels, addresses and ports |
//! | `terms` | one parsed policy |
//! | `name`, `rules` | the names and rules of groups |
//! | `model` | incremental computation of all groups |

mod block;
mod model;
mod name;
mod observed;
mod pod;
mod rule_limit;
mod rules;
mod selector;
mod terms;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;
use staffetta_driver::{Direction, GroupName, Owner, PodLifecycle, SecurityGroupId, Uid, VifId};
use tokio::sync::Notify;

pub(crate) use self::model::DesiredGroup;
use self::model::{PodGroups, PolicyModel};
use self::pod::PodFields;
use crate::os_vif::{KURYR_VIF, PodState};

/// Index of the cluster's policies, pods, namespaces and nodes, and of the security groups that
/// exist.
///
/// The watches update the index; it makes no calls itself. The handler `policy` creates the groups
/// that the index requires. The driver [`PolicySecurityGroups`](super::PolicySecurityGroups) reads
/// the groups of new pods from the index. Results are computed when they are read.
#[derive(Default)]
pub struct PolicyIndex {
    state: Mutex<IndexState>,
    changed: Notify,
    /// The configured security groups of a pod that no policy isolates. If the list is empty, the pod gets the two groups of this program
    /// that allow all ingress and all egress.
    open: Vec<SecurityGroupId>,
    always: AlwaysAllowed,
    /// The configured maximum number of rules of the policies of a namespace; `None` if it depends on the cloud's quota.
    max_rules: Option<usize>,
}

/// The number of pods whose groups are recomputed, or for which triggers are sent, before other tasks
/// run.
const PODS_PER_SLICE: usize = 64;

/// The networks that no policy blocks, in addition to the addresses of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlwaysAllowed {
    /// The networks that may reach every pod.
    pub from: Vec<IpNet>,
    /// The networks that every pod may reach.
    pub to: Vec<IpNet>,
}

/// The mutable content of a [`PolicyIndex`].
#[derive(Default)]
struct IndexState {
    model: PolicyModel,
    /// The addresses of each node, by the UID of the node.
    nodes: HashMap<Uid, BTreeSet<IpAddr>>,
    /// The security groups that exist and have their rules, so that pods may use them.
    ready: HashMap<GroupName, SecurityGroupId>,
    /// The security groups of peers whose creation failed, so that pods are handled without them.
    unavailable: HashSet<GroupName>,
    /// The groups that were last chosen for new VIFs of each pod, with the logical time of the choice.
    assigned: HashMap<Uid, (u64, Vec<SecurityGroupId>)>,
    /// The annotation with the VIFs of each pod, unless the handler `vif` has checked them.
    annotations: HashMap<Uid, Box<str>>,
    /// The logical time, a counter. Its values order the observations of this process, without a clock.
    tick: u64,
}

/// The pods and policies whose security groups must be reconciled, because they changed or may differ from those in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexChanges {
    /// The pods that must have other security groups than before, or whose VIFs may have others than stored.
    pub(crate) pods: Vec<Owner>,
    /// The policies that need other security groups or rules than before, or whose groups another program may have changed.
    pub(crate) policies: Vec<Owner>,
}

/// The error for a security group that a pod needs and that does not exist yet or lacks its rules.
/// The value is the name of the group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the security group `{0}` does not exist yet")]
pub struct GroupNotReady(pub GroupName);

impl PolicyIndex {
    /// Creates an empty index. Pods that no policy isolates get the groups `open` or, if `open` is
    /// empty, two groups that allow everything. `always` lists the networks that no policy blocks.
    pub fn new(open: Vec<SecurityGroupId>, always: AlwaysAllowed) -> Self {
        let merged = |networks: Vec<IpNet>| block::merged(networks.iter().map(IpNet::trunc).collect());
        let always = AlwaysAllowed { from: merged(always.from), to: merged(always.to) };
        Self { open, always, ..Self::default() }
    }

    /// Sets the maximum number of rules that the policies of a namespace may have together. If it is `None`, the maximum is half
    /// of the cloud's quota of rules; without a known quota, there is none.
    #[must_use]
    pub fn with_max_rules(self, max_rules: Option<usize>) -> Self {
        self.state.lock().model.set_max_rules(max_rules);
        Self { max_rules, ..self }
    }

    /// Returns `true` if the maximum number of rules of a namespace depends on the cloud's quota of rules.
    pub(crate) fn needs_rule_quota(&self) -> bool {
        self.max_rules.is_none()
    }

    /// Records the cloud's quota of security group rules; `None` if it is not known or unlimited.
    pub(crate) fn set_rule_quota(&self, quota: Option<usize>) {
        let half = quota.map(|quota| quota / 2);
        self.change(|state| state.model.set_max_rules(self.max_rules.or(half)));
    }

    /// Returns the number of times that the security groups of a pod were recomputed so far, over all pods, for tests.
    #[cfg(test)]
    pub(crate) fn recomputed(&self) -> usize {
        self.state.lock().model.recomputed
    }

    /// Recomputes the security groups of all pods that recorded changes may concern, and lets other
    /// tasks run after each slice of pods.
    pub(crate) async fn apply_changes(&self) {
        while self.state.lock().model.advance(PODS_PER_SLICE) {
            tokio::task::yield_now().await;
        }
    }

    /// Adds or updates a pod of the index.
    pub(crate) fn set_pod(&self, pod: &Pod) {
        let (fields, lifecycle) = (PodFields::of(pod), PodLifecycle::of(pod));
        // Without a node or a network of its own, a pod uses no VIF, and the handler `vif` checks none.
        let may_use_vifs = lifecycle.has_network() && lifecycle != PodLifecycle::Unscheduled;
        let annotation = pod.annotations().get(KURYR_VIF).filter(|_| may_use_vifs);
        let annotation = annotation.map(|text| text.as_str().into());
        self.change(|state| {
            match annotation {
                Some(text) => drop(state.annotations.insert(fields.owner.uid.clone(), text)),
                None => drop(state.annotations.remove(&fields.owner.uid)),
            }
            state.model.set_pod(fields);
        });
    }

    /// Removes a pod from the index.
    pub(crate) fn remove_pod(&self, uid: &Uid) {
        self.change(|state| {
            state.model.remove_pod(uid);
            state.assigned.remove(uid);
            state.annotations.remove(uid);
        });
    }

    /// Returns the VIFs in the annotations of the pods whose VIFs are not checked yet according to `is_checked`. They may belong to
    /// these pods.
    pub(crate) fn unchecked_vifs(&self, is_checked: impl Fn(&Uid) -> bool) -> HashSet<VifId> {
        let state = self.state.lock();
        let unchecked = state.annotations.iter().filter(|(uid, _)| !is_checked(uid));
        let unchecked: Vec<_> = unchecked.map(|(_, text)| text.clone()).collect();
        drop(state);
        // A malformed annotation is reported by the handler `vif`.
        let read = unchecked.iter().filter_map(|text| PodState::read(text).ok());
        read.flat_map(|state| state.vifs().map(|vif| vif.id.clone()).collect::<Vec<_>>()).collect()
    }

    /// Records that the handler `vif` has checked the VIFs of the pod, so that its annotation is not needed any more.
    pub(crate) fn forget_annotation(&self, pod: &Uid) {
        self.state.lock().annotations.remove(pod);
    }

    /// Returns the three groups that exist regardless of policies, with their rules: the group that
    /// allows all ingress, the group that allows all egress, and the group `nodes` for the traffic
    /// that no policy blocks.
    pub(crate) fn common_groups(&self) -> [DesiredGroup; 3] {
        let nodes: BTreeSet<IpNet> =
            self.state.lock().nodes.values().flatten().map(|address| IpNet::from(*address)).collect();
        let always = [(Direction::Ingress, &self.always.from), (Direction::Egress, &self.always.to)];
        let always =
            always.map(|(direction, also)| rules::allow_networks(direction, nodes.iter().chain(also)));
        let group = |name, rules| DesiredGroup { name, owner: None, rules };
        let open = |direction| group(name::open(direction), rules::allow_everything(direction));
        let nodes = group(name::nodes(), always.into_iter().flatten().collect());
        [open(Direction::Ingress), open(Direction::Egress), nodes]
    }

    /// Returns the security groups that a policy needs, with their rules. Groups of peers come
    /// first. The list is empty if the policy does not exist.
    pub(crate) fn policy_groups(&self, policy: &Uid) -> Vec<DesiredGroup> {
        self.state.lock().model.policy_groups(policy)
    }

    /// Returns the namespace, name and UID of each policy.
    pub(crate) fn policies(&self) -> Vec<Owner> {
        self.state.lock().model.policies.values().map(|terms| terms.owner.clone()).collect()
    }

    /// Returns the names of all security groups that the policies need.
    pub(crate) fn group_names(&self) -> HashSet<GroupName> {
        self.state.lock().model.group_names()
    }

    /// Returns the problems of a policy as texts for an Event: invalid parts, named ports that no
    /// pod has, and too many rules.
    pub(crate) fn problems(&self, policy: &Uid) -> Vec<String> {
        let mut state = self.state.lock();
        let unresolved = state.model.unresolved_ports(policy).into_iter();
        let unresolved =
            unresolved.map(|port| format!("no pod selected by the policy has a port named {port}"));
        let mut problems: Vec<_> = unresolved.collect();
        problems.extend(state.model.exceeded_limit(policy).map(|limit| {
            format!(
                "the policy allows nothing: with it, the policies of the namespace have more than {limit} rules \
                 (`network_policy.max_rules_per_namespace`)"
            )
        }));
        problems
            .extend(state.model.policies.get(policy).into_iter().flat_map(|terms| terms.problems.clone()));
        problems.sort();
        problems.dedup();
        problems
    }

    /// Records that a security group exists and has its rules, so that pods may use it. If its
    /// creation had failed before, the pods that must have it are marked as changed.
    pub(crate) fn set_ready(&self, name: &GroupName, id: &SecurityGroupId) {
        let mut state = self.state.lock();
        state.ready.insert(name.clone(), id.clone());
        if state.unavailable.remove(name) {
            state.model.mark_members_changed(name);
            self.changed.notify_one();
        }
    }

    /// Records that the creation of a security group failed. If it is a group of peers, pods are
    /// handled without it until it exists. No rule can refer to a group that does not exist, so it
    /// would allow nothing to its members, and a policy must not block pods that it does not select.
    pub(crate) fn set_unavailable(&self, name: &GroupName) {
        if name::is_of_peers(name) {
            self.state.lock().unavailable.insert(name.clone());
        }
    }

    /// Records that a security group is about to be deleted or has other rules than desired, so
    /// that pods must not use it.
    pub(crate) fn clear_ready(&self, name: &GroupName) {
        self.state.lock().ready.remove(name);
    }

    /// Returns the ids of the security groups that a pod must have, sorted, or `None` if the pod is unknown
    /// or policies do not apply to it. Returns an error if one of the groups does not exist yet.
    pub(crate) fn pod_groups(&self, pod: &Uid) -> Result<Option<Vec<SecurityGroupId>>, GroupNotReady> {
        let mut state = self.state.lock();
        let Some(groups) = state.model.pod_groups(pod).cloned() else { return Ok(None) };
        self.ids(&state, &groups, false).map(Some)
    }

    /// Returns the ids of the security groups that new VIFs of a pod are created with. In a `dry_run`, a
    /// group that does not exist yet gets the id that the plan of the dry run contains; otherwise, an
    /// error is returned. The ids are stored until the pod is removed from the index.
    pub(super) fn assign_groups(
        &self,
        pod: &Pod,
        dry_run: bool,
    ) -> Result<Vec<SecurityGroupId>, GroupNotReady> {
        let facts = PodFields::of(pod);
        let mut state = self.state.lock();
        let groups = state.model.groups_for(&facts);
        let ids = self.ids(&state, &groups, dry_run)?;
        let tick = state.next_tick();
        if state.model.pod_owner(&facts.owner.uid).is_some() {
            state.assigned.insert(facts.owner.uid, (tick, ids.clone()));
        }
        Ok(ids)
    }

    /// Returns the security groups that [`assign_groups`](Self::assign_groups) returned for a pod after the logical time `tick`
    /// ([`next_tick`](Self::next_tick)), or `None` if it was not called for the pod since then.
    pub(crate) fn assigned_since(&self, pod: &Uid, tick: u64) -> Option<Vec<SecurityGroupId>> {
        let state = self.state.lock();
        state.assigned.get(pod).filter(|(assigned, _)| *assigned > tick).map(|(_, groups)| groups.clone())
    }

    /// Advances the logical time and returns it. The logical time orders the observations and
    /// driver calls of this process.
    pub(crate) fn next_tick(&self) -> u64 {
        self.state.lock().next_tick()
    }

    /// Returns the policies, and at most one slice of the pods, whose groups have changed since the last
    /// call of this method. If pods are left, the next call of [`changed`](Self::changed) returns at once.
    pub(crate) fn take_changes(&self) -> IndexChanges {
        let state = &mut *self.state.lock();
        state.model.update();
        if !state.unavailable.is_empty() {
            let needed = state.model.group_names();
            state.unavailable.retain(|name| needed.contains(name));
        }
        let pods: Vec<_> = state.model.changed_pods.iter().take(PODS_PER_SLICE).cloned().collect();
        for pod in &pods {
            state.model.changed_pods.remove(pod);
        }
        if !state.model.changed_pods.is_empty() {
            self.changed.notify_one();
        }
        let policies = std::mem::take(&mut state.model.changed_policies);
        let policy = |uid: &Uid| state.model.policies.get(uid).map(|terms| terms.owner.clone());
        IndexChanges {
            pods: pods.iter().filter_map(|uid| state.model.pod_owner(uid).cloned()).collect(),
            policies: policies.iter().filter_map(policy).collect(),
        }
    }

    /// Marks a pod as changed, so that its security groups are reconciled: those of its VIFs may differ from the stored ones.
    pub(crate) fn mark_changed(&self, pod: &Uid) {
        self.change(|state| state.model.changed_pods.extend([pod.clone()]));
    }

    /// Marks all pods and policies as changed, because another program changed the security groups
    /// in the cloud.
    pub(crate) fn mark_all_changed(&self) {
        self.change(|state| state.model.mark_all_changed());
    }

    /// Waits until the content of the index has changed since the last call of this method. Only one task may wait.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the ids of a pod's security groups, sorted, without groups of peers whose creation
    /// failed. Returns an error if another group does not exist yet and this is no `dry_run`.
    fn ids(
        &self,
        state: &IndexState,
        groups: &PodGroups,
        dry_run: bool,
    ) -> Result<Vec<SecurityGroupId>, GroupNotReady> {
        let both = [Direction::Ingress, Direction::Egress].map(name::open);
        let both = both.iter().filter(|_| groups.open && self.open.is_empty());
        let open = self.open.iter().filter(|_| groups.open);
        let mut ids: BTreeSet<_> = open.cloned().collect();
        for name in groups.names.iter().chain(both) {
            let planned = || dry_run.then(|| format!("planned-{name}").into());
            if let Some(id) = state.ready.get(name).cloned().or_else(planned) {
                ids.insert(id);
            } else if !state.unavailable.contains(name) {
                return Err(GroupNotReady(name.clone()));
            }
        }
        Ok(ids.into_iter().collect())
    }

    /// Changes the content of the index, and wakes the task that waits for changes.
    fn change(&self, change: impl FnOnce(&mut IndexState)) {
        change(&mut self.state.lock());
        self.changed.notify_one();
    }
}

impl IndexState {
    /// Advances the logical time, a counter, and returns it.
    fn next_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }
}

#[cfg(test)]
mod tests;
