//! A base that this process looks after, as the holder of the Lease of its node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use staffetta_driver::app_hosting::{
    DeploymentStage, HostedContainer, HostedContainerState, HostedPod, HostedPods,
};
use staffetta_driver::tunnel::{
    ContainerOperationResponseData, ContainerState, ContainerStatusData, NodeDescription, NodeId, PodKey,
    Tunnel, UNKNOWN_STATE,
};
use staffetta_driver::{ContainerKey, Owner};
use tokio::time::Instant;

use super::containers::{BaseContainers, ReportedContainer, Rival};
use super::first_answer::FirstAnswer;
use super::operation::{ContainerAction, Operation};
use super::tracker::OperationTracker;
use crate::node::NodeMarks;
use crate::pod::ClusterIndex;

/// The prefix of the id of a container in the status of its pod.
const CONTAINER_ID_PREFIX: &str = "koupleless://";

/// A tunnel under its name in the configuration.
#[derive(Clone)]
pub(super) struct NamedTunnel {
    /// The name of the tunnel in the configuration.
    pub(super) name: Arc<str>,
    /// The tunnel, through which bases report and are called.
    pub(super) tunnel: Arc<dyn Tunnel>,
}

/// A base (a process of Koupleless behind a node) that this process looks after, from the time when it takes the Lease of the node
/// to the time when it loses or gives it up.
pub(super) struct Base {
    /// The id of the base.
    pub(super) id: NodeId,
    /// The name of the node of the base.
    pub(super) node: Arc<str>,
    /// The tunnel through which the base is called.
    pub(super) tunnel: NamedTunnel,
    /// The index of the pods and nodes in Kubernetes.
    pods: Arc<ClusterIndex>,
    tracker: OperationTracker,
    /// The containers on the base, and the operations in progress.
    pub(super) containers: Mutex<BaseContainers>,
    /// The description, labels, annotations and taints that the base reported last.
    pub(super) profile: Mutex<BaseProfile>,
    /// The wait for the first answer of the base, which gets no node before; `None` if it has answered, or had a node before.
    first_answer: Mutex<Option<FirstAnswer>>,
}

/// A container on a base that belongs to no pod on the node of the base.
pub(super) struct UnownedContainer {
    /// The key under which the base reports the container.
    pub(super) key: ContainerKey,
    /// The pod for which the container was started; [`PodKey::All`] if it was in a baseline.
    pub(super) pod: PodKey,
    /// The container, as it was started.
    pub(super) container: Container,
}

/// The properties that a base reports about itself: its description, labels, annotations and taints.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BaseProfile {
    /// The description with which the base last introduced itself.
    pub(super) description: NodeDescription,
    /// The labels, annotations and taints that the base reports for its node.
    pub(super) marks: NodeMarks,
}

impl Base {
    /// Creates a base whose operations fail without an answer after `limit`.
    pub(super) fn new(
        (id, node): (NodeId, Arc<str>),
        tunnel: NamedTunnel,
        profile: BaseProfile,
        pods: Arc<ClusterIndex>,
        tracker: OperationTracker,
        limit: Duration,
    ) -> Self {
        Self {
            id,
            node,
            tunnel,
            pods,
            tracker,
            containers: Mutex::new(BaseContainers::new(limit)),
            profile: Mutex::new(profile),
            first_answer: Mutex::default(),
        }
    }

    /// Begins to ask the base for its health until it answers for the first time.
    pub(super) fn await_answer(&self) {
        let asking = || FirstAnswer::ask(&self.node, &self.id, Arc::clone(&self.tunnel.tunnel));
        self.first_answer.lock().get_or_insert_with(asking);
    }

    /// Returns `true` if the base has not answered yet, and has no node for that reason.
    pub(super) fn is_awaited(&self) -> bool {
        self.first_answer.lock().is_some()
    }

    /// Records that the base has answered, which ends the wait for its first answer. Returns `true` if this answer was waited for.
    pub(super) fn end_wait_for_answer(&self) -> bool {
        self.first_answer.lock().take().is_some()
    }

    /// Returns the key by which the tunnel of the base identifies a container of a pod.
    pub(super) fn key(&self, pod: &Pod, container: &Container) -> ContainerKey {
        self.tunnel.tunnel.get_container_unique_key(&pod_key(pod), container)
    }

    /// Returns the pods on the node with a container of this key that is to run, the oldest first. The first one determines
    /// the image of the container; the others share the container.
    pub(super) fn claimants(&self, key: &ContainerKey) -> Vec<(Arc<Pod>, Container)> {
        let mut claimants = self.pods_with(key);
        claimants.retain(|(pod, _)| is_living(pod));
        claimants
    }

    /// Returns the other versions of a container that living pods on the node have, each with the pod and its container: containers of
    /// the same name with another key. The oldest pod comes first.
    pub(super) fn versions(
        &self,
        key: &ContainerKey,
        name: &str,
    ) -> Vec<(ContainerKey, Arc<Pod>, Container)> {
        let version = |pod: Arc<Pod>| {
            let container = containers(&pod).iter().find(|container| container.name == name)?.clone();
            let other = self.key(&pod, &container);
            (other != *key && is_living(&pod)).then_some((other, pod, container))
        };
        self.pods().into_iter().filter_map(version).collect()
    }

    /// Returns the rivals of a container of a pod.
    pub(super) fn rivals(&self, pod: &Pod, key: &ContainerKey, name: &str) -> Vec<Rival> {
        let versions = self.versions(key, name).into_iter();
        let youth = |other: &Pod| {
            let ((created, waits, _), (ours, our_wait, _)) = (age(other), age(pod));
            (created, waits).cmp(&(ours, our_wait))
        };
        versions.map(|(key, other, _)| Rival { youth: youth(&other), key }).collect()
    }

    /// Returns the pods on the node of the base, the oldest first.
    fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.pods_on(&self.node);
        pods.sort_by(|one, other| age(one).cmp(&age(other)));
        pods
    }

    /// Returns the pods on the node with a container of this key, the oldest first.
    fn pods_with(&self, key: &ContainerKey) -> Vec<(Arc<Pod>, Container)> {
        let container = |pod: Arc<Pod>| {
            let mut containers = containers(&pod).iter();
            let container = containers.find(|container| self.key(&pod, container) == *key).cloned();
            container.map(|container| (pod, container))
        };
        self.pods().into_iter().filter_map(container).collect()
    }

    /// Adds an operation on the container `key`, which is about to be sent to the base, to the tracker of operations. `pod` is the pod that
    /// requested the operation; `None` if no pod did.
    pub(super) fn follow(&self, pod: Option<Owner>, key: &ContainerKey, action: ContainerAction) {
        let (tunnel, base, node) = (Arc::clone(&self.tunnel.name), self.id.clone(), Arc::clone(&self.node));
        let tracked = self.tracker.begin(Operation { tunnel, base, node, pod, key: key.clone(), action });
        self.containers.lock().follow(key, tracked);
    }

    /// Records the answer of the base to an operation. Returns the pods that the answer concerns; none if no such operation is in
    /// progress.
    pub(super) fn answered(
        &self,
        action: ContainerAction,
        answer: &ContainerOperationResponseData,
    ) -> Vec<Owner> {
        let (key, now) = (&answer.container_key, Instant::now());
        let asked_by = {
            let mut containers = self.containers.lock();
            let asked_by = containers.asked_by(key);
            if !containers.answered(action, answer, now) {
                return Vec::new();
            }
            if let Some(instead) = &answer.instead {
                let other = self.tunnel.tunnel.get_container_unique_key(&PodKey::All, instead);
                containers.mistaken((other, Container::clone(instead)), key, now);
            }
            asked_by
        };
        let mut owners: Vec<_> =
            self.pods_with(key).iter().map(|(pod, _)| Owner::of(&pod.metadata)).collect();
        owners.extend(asked_by.filter(|owner| !owners.contains(owner)));
        owners
    }

    /// Returns the key of a pod, and its containers, each with the key of the container.
    fn keyed<'p>(&self, pod: &'p Pod) -> (PodKey, Vec<(ContainerKey, &'p Container)>) {
        let pod_key = pod_key(pod);
        let key = |container| self.tunnel.tunnel.get_container_unique_key(&pod_key, container);
        let containers = containers(pod).iter().map(|container| (key(container), container)).collect();
        (pod_key, containers)
    }

    /// Records a report of the states of all containers on the base. Returns these states by pod, for the pods on the node.
    pub(super) fn report(&self, statuses: Vec<ContainerStatusData>) -> HostedPods {
        self.containers.lock().report(statuses, Instant::now());
        // The pods of operations without an answer may be gone.
        self.time_out();
        let pods = self.pods();
        let keyed: Vec<_> = pods.iter().map(|pod| (pod, self.keyed(pod))).collect();
        // The image of each container that is to run, from its oldest pod.
        let mut images = HashMap::new();
        for (_, (_, containers)) in keyed.iter().filter(|(pod, _)| is_living(pod)) {
            for (key, container) in containers {
                images.entry(key).or_insert(&container.image);
            }
        }
        let ip = self.profile.lock().description.network_info.node_ip;
        let shown = self.containers.lock();
        let hosted = keyed.iter().filter_map(|(pod, (pod_key, containers))| {
            let hosted = containers.iter().filter_map(|(key, container)| {
                let other = images.get(key).is_some_and(|image| **image != container.image);
                let reported = shown.shown(key).filter(|_| !other || !is_living(pod))?;
                let is_coming = reported.state == ContainerState::Deactivated
                    && is_living(pod)
                    && shown.superseded(&self.rivals(pod, key, &container.name)).is_none();
                let state = reported.is_of(pod_key).then(|| state(reported, is_coming)).flatten()?;
                Some(HostedContainer {
                    name: container.name.clone(),
                    id: format!("{CONTAINER_ID_PREFIX}{key}"),
                    state,
                })
            });
            let containers: Vec<_> = hosted.collect();
            let owner = Owner::of(&pod.metadata);
            (!containers.is_empty()).then_some(HostedPod { owner, marked: true, containers, ip })
        });
        hosted.collect()
    }

    /// Returns the containers that the base has shown for `grace` although no pod on the node has them, if a pod on the node had them at an
    /// earlier call, or they were in a former baseline; and those that the base has started by mistake. `named` returns the container of a former baseline for which its argument returns
    /// `true`; `None` if there is none.
    pub(super) fn unowned(
        &self,
        grace: Option<Duration>,
        named: impl Fn(&dyn Fn(&Container) -> bool) -> Option<Container>,
    ) -> Vec<UnownedContainer> {
        let pods = self.pods.pods_on(&self.node);
        let mut claimed = HashMap::new();
        for pod in &pods {
            let (pod_key, containers) = self.keyed(pod);
            let with_pod = |(key, _)| (key, (Arc::clone(pod), pod_key.clone()));
            claimed.extend(containers.into_iter().map(with_pod));
        }
        let unclaimed = self.containers.lock().unclaimed(&claimed, grace, Instant::now());
        let ours = unclaimed.into_iter().filter_map(|(key, pod, mistaken)| {
            if let Some(container) = mistaken {
                return Some(UnownedContainer { key, pod: PodKey::All, container });
            }
            let (pod, container) = if let Some(pod) = pod {
                let container = containers(&pod).iter().find(|container| self.key(&pod, container) == key);
                (pod_key(&pod), container?.clone())
            } else {
                let key_of = |container: &Container| {
                    self.tunnel.tunnel.get_container_unique_key(&PodKey::All, container)
                };
                (PodKey::All, named(&|container| key_of(container) == key)?)
            };
            let is_active = |key: &ContainerKey| self.containers.lock().is_active(key);
            // One that runs stays until its successor runs.
            let stays = is_active(&key)
                && self.versions(&key, &container.name).iter().any(|(other, ..)| !is_active(other));
            (!stays).then_some(UnownedContainer { key, pod, container })
        });
        ours.collect()
    }

    /// Ends the operations that have reached their time limit without an answer.
    pub(super) fn time_out(&self) {
        self.containers.lock().time_out(Instant::now());
    }

    /// Ends all work for the base, which this process does not look after any more.
    pub(super) fn abandon(&self) {
        self.containers.lock().abandon();
        drop(self.first_answer.lock().take());
    }
}

/// Returns the key (namespace and name) by which tunnels identify a pod.
pub(super) fn pod_key(pod: &Pod) -> PodKey {
    let Owner { namespace, name, .. } = Owner::of(&pod.metadata);
    PodKey::Pod { namespace, name }
}

/// Returns the containers of a pod.
pub(super) fn containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default()
}

/// Returns `true` if the containers of the pod are to run: it has not finished and is not being deleted.
fn is_living(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns the sort key of a pod by age. Of pods of the same second, those with a container on the base come first; the others are
/// sorted by UID.
fn age(pod: &Pod) -> (Option<Timestamp>, bool, &str) {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let mut statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let waits = !statuses.any(|status| status.container_id.is_some());
    (created, waits, pod.metadata.uid.as_deref().unwrap_or_default())
}

/// Converts the reported state of a container to that in the status of its pod; `None` if it was stopped. No state becomes `terminated`: a
/// stopped container is started again, unless its pod is deleted. `is_coming` is `true` if the container is about to be activated.
fn state(shown: &ReportedContainer, is_coming: bool) -> Option<HostedContainerState> {
    let failed = |default: &str| {
        let reason = if shown.reason.is_empty() { default } else { &shown.reason };
        HostedContainerState::Failed { reason: reason.to_owned(), message: shown.message.clone() }
    };
    match shown.state {
        ContainerState::Activated => Some(HostedContainerState::Running),
        ContainerState::Deactivated if !is_coming || shown.reason == UNKNOWN_STATE => {
            Some(failed("Deactivated"))
        }
        ContainerState::Unresolved | ContainerState::Resolved | ContainerState::Deactivated => {
            let (stage, message) = (DeploymentStage::Installing, shown.message.clone());
            Some(HostedContainerState::Waiting { stage, message })
        }
        ContainerState::Broken => Some(failed("Broken")),
        ContainerState::Stopped => None,
    }
}
