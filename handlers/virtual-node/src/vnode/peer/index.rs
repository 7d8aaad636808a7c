//! The peer Deployments and the bases of one environment.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Node};
use parking_lot::Mutex;
use staffetta_driver::tunnel::{NodeId, QueryBaselineRequest};
use staffetta_handler::{Event, Index};
use tokio::sync::Notify;

use super::decide::{baseline, change, containers, is_peer};
use super::node::BaseNode;

/// The maximum number of containers of peer Deployments that are remembered.
const REMEMBERED: usize = 4096;

/// The peer Deployments and the bases of one environment, kept up to date by the watches.
#[derive(Debug)]
pub struct PeerIndex {
    environment: String,
    state: Mutex<Peers>,
    /// `true` once all Deployments that existed at the start were added.
    complete: AtomicBool,
    /// Notified when a base came, went, or changed a property by which nodes are chosen.
    pub(super) bases_changed: Notify,
}

/// The content of a [`PeerIndex`].
#[derive(Debug, Default)]
struct Peers {
    /// The peer Deployments, by UID.
    deployments: HashMap<String, Arc<Deployment>>,
    /// The bases, by the name of their node.
    bases: BTreeMap<String, BaseNode>,
    /// The containers of all peer Deployments since the start, changed and deleted ones included, at most [`REMEMBERED`]. The one that was
    /// named last comes first.
    remembered: VecDeque<Container>,
}

impl Peers {
    /// Moves the containers of a peer Deployment to the front of the remembered ones, and forgets the oldest above [`REMEMBERED`].
    fn remember(&mut self, deployment: &Deployment) {
        for container in containers(deployment) {
            let known = self.remembered.iter().position(|known| known == container);
            let known = known.and_then(|place| self.remembered.remove(place));
            self.remembered.truncate(REMEMBERED - 1);
            self.remembered.push_front(known.unwrap_or_else(|| container.clone()));
        }
    }
}

impl PeerIndex {
    /// Creates an index without any object.
    pub fn new(environment: impl Into<String>) -> Self {
        let (environment, state, complete) = (environment.into(), Mutex::default(), AtomicBool::new(false));
        Self { environment, state, complete, bases_changed: Notify::new() }
    }

    /// Returns the environment of the Deployments and bases.
    pub(super) fn environment(&self) -> &str {
        &self.environment
    }

    /// Records that all Deployments that existed at the start were added.
    pub(super) fn completed(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Returns the baseline of `base`, which asks through the tunnel with the key `tunnel` and belongs to the installation `cluster`: the
    /// containers with which it is to start; `None` while that is not known yet, and the base then asks again. An empty list means that it
    /// starts without modules.
    pub(in crate::vnode) fn baseline(
        &self,
        base: &NodeId,
        tunnel: &str,
        cluster: &str,
        request: &QueryBaselineRequest,
    ) -> Option<Vec<Container>> {
        if !self.complete.load(Ordering::Acquire) {
            return None;
        }
        let node = BaseNode::asking(base, tunnel, cluster, &self.environment, request);
        let peers = self.state.lock();
        Some(baseline(peers.deployments.values().map(|deployment| &**deployment), &node))
    }

    /// Returns the last container that a peer Deployment has had since the start of this process and for which `is_it` returns `true`;
    /// `None` if there is none among the last [`REMEMBERED`] containers, or if a peer Deployment has such a container now.
    pub(in crate::vnode) fn former_baseline_container(
        &self,
        is_it: impl Fn(&Container) -> bool,
    ) -> Option<Container> {
        let peers = self.state.lock();
        let current = peers.deployments.values().flat_map(|deployment| containers(deployment)).any(&is_it);
        peers.remembered.iter().find(|container| !current && is_it(container)).cloned()
    }

    /// Returns the newest state of a peer Deployment, and the number of replicas that it is to have; `None` if it has that number
    /// already, specifies no pods, or is no peer Deployment.
    pub(super) fn due(&self, uid: &str) -> Option<(Arc<Deployment>, i32)> {
        let peers = self.state.lock();
        let deployment = peers.deployments.get(uid)?;
        Some((Arc::clone(deployment), change(deployment, peers.bases.values())?))
    }

    /// Returns the peer Deployments whose number of replicas is to change.
    pub(super) fn all_due(&self) -> Vec<Arc<Deployment>> {
        let peers = self.state.lock();
        let due = |deployment: &&Arc<Deployment>| change(deployment, peers.bases.values()).is_some();
        peers.deployments.values().filter(due).cloned().collect()
    }
}

impl Index<Deployment> for PeerIndex {
    fn apply(&self, event: &Event<Deployment>) {
        let mut peers = self.state.lock();
        match event {
            Event::Added(deployment) | Event::Modified(deployment)
                if is_peer(deployment, &self.environment) =>
            {
                peers.remember(deployment);
                peers.deployments.insert(event.uid().to_owned(), Arc::clone(deployment));
            }
            _ => drop(peers.deployments.remove(event.uid())),
        }
    }
}

impl Index<Node> for PeerIndex {
    fn apply(&self, event: &Event<Node>) {
        let base = match event {
            Event::Added(node) | Event::Modified(node) => BaseNode::of(node, &self.environment),
            Event::Deleted(_) => None,
        };
        let mut peers = self.state.lock();
        let changed = match base {
            Some(base) => peers.bases.insert(base.name.clone(), base.clone()).as_ref() != Some(&base),
            None => peers.bases.remove(event.object_ref().name).is_some(),
        };
        drop(peers);
        if changed {
            self.bases_changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::deployment;
    use super::*;

    #[test]
    fn of_the_former_images_of_a_module_the_one_that_was_named_last_is_found() {
        let index = PeerIndex::new("dev");
        let mut cart = deployment("cart", 1, &["a"], 1);
        for image in ["one", "two", "one"] {
            let pod = cart.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
            pod.containers[0].image = Some(image.to_owned());
            index.apply(&Event::Added(Arc::new(cart.clone())));
        }
        index.apply(&Event::Deleted(staffetta_handler::Tombstone::Last(Arc::new(cart))));
        let found = index.former_baseline_container(|container| container.name == "cart").unwrap();
        assert_eq!(found.image.as_deref(), Some("one"));
    }
}
