//! What the handler of policies and the driver that says which groups a new pod has know together.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use tokio::sync::Notify;

use super::block;
use super::model::{GroupWish, Model, Standing};
use super::name;
use super::pod::PodFacts;
use super::rules::{self, Rules};
use super::terms::Terms;
use crate::id::{GroupName, SecurityGroupId, Uid};
use crate::namespace_observer::NamespaceObserver;
use crate::network_policy_observer::NetworkPolicyObserver;
use crate::owner::Owner;
use crate::security_group::Direction;

/// The policies, pods, namespaces and nodes of the cluster, what they mean together, and which groups there are for it.
///
/// It is fed by watches and asks nobody. What follows from a change is reckoned when somebody asks.
#[derive(Default)]
pub struct PolicyBook {
    state: Mutex<State>,
    due: Notify,
    /// The groups of a pod that no policy isolates.
    open: Vec<SecurityGroupId>,
    always: AlwaysAllowed,
}

/// Whom no policy keeps away, besides the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlwaysAllowed {
    /// Who may reach every pod.
    pub from: Vec<IpNet>,
    /// What every pod may reach.
    pub to: Vec<IpNet>,
}

#[derive(Default)]
struct State {
    model: Model,
    nodes: HashMap<Uid, BTreeSet<IpAddr>>,
    /// The groups that exist and have their rules.
    ready: HashMap<GroupName, SecurityGroupId>,
    /// The groups of peers that cannot be had, with the pods that are without them meanwhile.
    missing: HashMap<GroupName, HashSet<Uid>>,
    /// With which groups a pod's VIFs are made, and when that was said.
    born: HashMap<Uid, (u64, Vec<SecurityGroupId>)>,
    /// How often something was noted that is older or newer than something else.
    tick: u64,
}

/// For whom something came out differently than before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Pods that bear other groups.
    pub pods: Vec<Owner>,
    /// Policies whose groups or rules are others.
    pub policies: Vec<Owner>,
}

/// A group that a pod ought to bear is not there yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the security group `{0}` is not there yet")]
pub struct NotReady(pub GroupName);

impl PolicyBook {
    /// A book in which nothing stands. A pod that no policy isolates has the groups `open`; where there are none, it has two
    /// that let everything pass.
    pub fn new(open: Vec<SecurityGroupId>, always: AlwaysAllowed) -> Self {
        let fewest = |networks: Vec<IpNet>| block::merged(networks.iter().map(IpNet::trunc).collect());
        let always = AlwaysAllowed { from: fewest(always.from), to: fewest(always.to) };
        Self { open, always, ..Self::default() }
    }

    /// The pod exists, and is as it is here.
    pub fn pod_present(&self, pod: &Pod) {
        self.change(|state| state.model.put_pod(PodFacts::of(pod)));
    }

    /// The pod is gone.
    pub fn pod_gone(&self, uid: &Uid) {
        self.change(|state| {
            state.model.remove_pod(uid);
            state.born.remove(uid);
            for bearers in state.missing.values_mut() {
                bearers.remove(uid);
            }
        });
    }

    /// The node exists, and is as it is here.
    pub fn node_present(&self, node: &Node) {
        let uid: Uid = node.metadata.uid.clone().unwrap_or_default().into();
        let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
        let addresses = addresses.into_iter().flatten().filter_map(|address| address.address.parse().ok());
        self.lock().nodes.insert(uid, addresses.collect());
    }

    /// The node is gone.
    pub fn node_gone(&self, uid: &Uid) {
        self.lock().nodes.remove(uid);
    }

    /// The groups that there are whatever policies say, with the rules that they are to have.
    pub fn common_groups(&self) -> [(GroupName, Rules); 3] {
        let nodes: BTreeSet<IpNet> =
            self.lock().nodes.values().flatten().map(|address| IpNet::from(*address)).collect();
        let always = [(Direction::Ingress, &self.always.from), (Direction::Egress, &self.always.to)];
        let always = always.map(|(direction, also)| rules::always(direction, nodes.iter().chain(also)));
        [
            (name::open_ingress(), rules::everything(Direction::Ingress)),
            (name::open_egress(), rules::everything(Direction::Egress)),
            (name::nodes(), always.into_iter().flatten().collect()),
        ]
    }

    /// The groups that a policy needs, those without rules first. None when there is no such policy.
    pub fn groups(&self, policy: &Uid) -> Vec<GroupWish> {
        self.lock().model.groups(policy)
    }

    /// The names of all groups that there are to be, but for the common ones.
    pub fn names(&self) -> HashSet<GroupName> {
        self.lock().model.names()
    }

    /// What of a policy cannot be understood or leads to nobody, for people.
    pub fn problems(&self, policy: &Uid) -> Vec<String> {
        let mut state = self.lock();
        let unresolved = state.model.unresolved(policy).into_iter();
        let unresolved = unresolved.map(|port| format!("no pod that it concerns has a port named {port}"));
        let mut problems: Vec<_> = unresolved.collect();
        problems.extend(state.model.policy(policy).into_iter().flat_map(|terms| terms.problems.clone()));
        problems.sort();
        problems.dedup();
        problems
    }

    /// The group is there and has its rules: pods may bear it. Those that are without it are due.
    pub fn ready(&self, name: &GroupName, id: &SecurityGroupId) {
        let mut state = self.lock();
        state.ready.insert(name.clone(), id.clone());
        if let Some(without) = state.missing.remove(name) {
            state.model.moved_pods.extend(without);
            self.due.notify_one();
        }
    }

    /// The group is not there and cannot be had. Where it is one of peers, pods go without it until it is: no rule can name
    /// it, so it would open nothing to them, and nobody's pods are to wait for what somebody else's policy describes.
    pub fn unavailable(&self, name: &GroupName) {
        if name::is_of_peers(name) {
            self.lock().missing.entry(name.clone()).or_default();
        }
    }

    /// The group is going: no pod may bear it.
    pub fn not_ready(&self, name: &GroupName) {
        self.lock().ready.remove(name);
    }

    /// The groups that a pod ought to bear, sorted; none when policies do not concern it.
    pub fn guards(&self, pod: &Uid) -> Result<Option<Vec<SecurityGroupId>>, NotReady> {
        let mut state = self.lock();
        let Some(standing) = state.model.standing(pod).cloned() else { return Ok(None) };
        self.ids(&mut state, pod, &standing, None).map(Some)
    }

    /// The groups with which the VIFs of a pod are made; where one is not there yet, its place is taken by what `planned`
    /// makes of its name. It is remembered until the pod is gone.
    pub(super) fn born(
        &self,
        pod: &Pod,
        planned: Option<fn(&GroupName) -> SecurityGroupId>,
    ) -> Result<Vec<SecurityGroupId>, NotReady> {
        let facts = PodFacts::of(pod);
        let mut state = self.lock();
        let standing = state.model.standing_of(&facts);
        let groups = self.ids(&mut state, &facts.owner.uid, &standing, planned)?;
        state.tick += 1;
        let tick = state.tick;
        if state.model.pod(&facts.owner.uid).is_some() {
            state.born.insert(facts.owner.uid, (tick, groups.clone()));
        }
        Ok(groups)
    }

    /// With which groups the VIFs of a pod were made, if that was said later than `tick`.
    pub fn born_since(&self, pod: &Uid, tick: u64) -> Option<Vec<SecurityGroupId>> {
        let state = self.lock();
        state.born.get(pod).filter(|(said, _)| *said > tick).map(|(_, groups)| groups.clone())
    }

    /// A number that grows: what is noted with it is newer than all that was noted before.
    pub fn tick(&self) -> u64 {
        let mut state = self.lock();
        state.tick += 1;
        state.tick
    }

    /// For whom something came out differently, since this was asked last.
    pub fn take_due(&self) -> Due {
        let mut state = self.lock();
        state.model.settle();
        state.forget_unwanted();
        let pods = std::mem::take(&mut state.model.moved_pods);
        let policies = std::mem::take(&mut state.model.moved_policies);
        let policy = |uid: &Uid| state.model.policy(uid).map(|terms| terms.owner.clone());
        Due {
            pods: pods.iter().filter_map(|uid| state.model.pod(uid).cloned()).collect(),
            policies: policies.iter().filter_map(policy).collect(),
        }
    }

    /// This pod is due: it may not be guarded as it was known to be.
    pub fn moved(&self, pod: &Uid) {
        self.change(|state| state.model.moved_pods.extend([pod.clone()]));
    }

    /// Every pod and every policy is due: what there is turned out to be otherwise than it was known.
    pub fn all_due(&self) {
        self.change(|state| state.model.move_all());
    }

    /// Waits until something may be due. Only one may wait.
    pub async fn changed(&self) {
        self.due.notified().await;
    }

    /// The groups of a pod of that standing. Those that cannot be had are left out, and it is noted that it is without them.
    fn ids(
        &self,
        state: &mut State,
        pod: &Uid,
        standing: &Standing,
        planned: Option<fn(&GroupName) -> SecurityGroupId>,
    ) -> Result<Vec<SecurityGroupId>, NotReady> {
        let State { ready, missing, .. } = state;
        let both = [name::open_ingress(), name::open_egress()];
        let both = both.iter().filter(|_| standing.open && self.open.is_empty());
        let open = self.open.iter().filter(|_| standing.open);
        let mut ids: BTreeSet<_> = open.cloned().collect();
        for name in standing.groups.keys().chain(both) {
            if let Some(id) = ready.get(name).cloned().or_else(|| planned.map(|planned| planned(name))) {
                ids.insert(id);
            } else if let Some(without) = missing.get_mut(name) {
                without.insert(pod.clone());
            } else {
                return Err(NotReady(name.clone()));
            }
        }
        Ok(ids.into_iter().collect())
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.due.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A group that nobody wants any more is not missing.
    fn forget_unwanted(&mut self) {
        if !self.missing.is_empty() {
            let wanted = self.model.names();
            self.missing.retain(|name, _| wanted.contains(name));
        }
    }
}

impl NetworkPolicyObserver for PolicyBook {
    fn present(&self, policy: &NetworkPolicy) {
        let terms = Terms::of(policy);
        self.change(|state| state.model.put_policy(terms));
    }

    fn gone(&self, uid: &Uid) {
        self.change(|state| state.model.remove_policy(uid));
    }
}

impl NamespaceObserver for PolicyBook {
    fn present(&self, namespace: &Namespace) {
        let meta = &namespace.metadata;
        let (uid, labels) = (meta.uid.clone().unwrap_or_default(), meta.labels.clone().unwrap_or_default());
        let name = meta.name.clone().unwrap_or_default();
        self.change(|state| state.model.put_namespace(&name, uid.into(), labels));
    }

    fn gone(&self, name: &str, uid: &Uid) {
        self.change(|state| state.model.remove_namespace(name, uid));
    }
}
