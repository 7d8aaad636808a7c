//! The events and triggers that the handler accepts, with their ordering keys and concurrency groups.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use staffetta_driver::Owner;
use staffetta_handler::{
    Action, Event, Interest, OrderingKey, ResourceEventHandler, Tombstone, TriggerHandler,
};

use super::VirtualNodes;
use crate::error::VirtualNodeError;
use crate::pod::node_of;
use crate::triggers::{NodeDue, PodDue};

/// Returns the ordering key of a node: its watch events and triggers are handled one after the other.
fn node_key(name: &str) -> OrderingKey {
    OrderingKey::of(("node", name))
}

/// Returns the concurrency group of the pods on the node `name`. It limits the work for them, so that a slow machine does not
/// delay other nodes. `None` if the name is empty: the pod has no node.
fn node_group(name: &str) -> Option<OrderingKey> {
    (!name.is_empty()).then(|| OrderingKey::of(("machine", name)))
}

impl ResourceEventHandler<Pod> for VirtualNodes {
    type Error = VirtualNodeError;

    fn wants(&self, event: &Event<Pod>) -> Interest {
        match event.object().map(|pod| node_of(pod)) {
            Some("") => Interest::Declined("it has no node yet"),
            // The node may have been replaced by a virtual one, which the watch has not shown yet.
            Some(node) if self.0.cluster.is_real(node) => {
                Interest::Deferred("its node is not a virtual one of the handler")
            }
            _ => Interest::Taken,
        }
    }

    fn group(&self, event: &Event<Pod>) -> Option<OrderingKey> {
        event.object().and_then(|pod| node_group(node_of(pod)))
    }

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<Action, VirtualNodeError> {
        let (owner, node) = (Owner::of(&pod.metadata), node_of(pod));
        self.0.fenced(node, self.0.reconcile_pod(&owner, node)).await.map(Action::from)
    }

    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<Action, VirtualNodeError> {
        self.on_present(pod).await
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Pod>) -> Result<Action, VirtualNodeError> {
        let pod = match tombstone {
            Tombstone::Last(pod) => Some(Arc::clone(pod)),
            Tombstone::Missed(identity) => self.0.missed_pod(&identity.uid.as_str().into()),
        };
        let Some(pod) = pod else {
            // It was on no virtual node.
            self.0.forget(&tombstone.object_ref().uid.into());
            return Ok(Action::done());
        };
        self.0.fenced(node_of(&pod), self.0.pod_is_gone(&pod)).await.map(Action::from)
    }
}

impl ResourceEventHandler<Node> for VirtualNodes {
    type Error = VirtualNodeError;

    fn wants(&self, event: &Event<Node>) -> Interest {
        let name = event.object_ref().name;
        let is_other = !self.0.node_store.contains(name) && self.0.cluster.is_real(name);
        Interest::unless(is_other.then_some("it is not a virtual node of the handler"))
    }

    fn key(&self, event: &Event<Node>) -> OrderingKey {
        node_key(event.object_ref().name)
    }

    /// Returns the concurrency group of a node's own events and triggers. It is not that of its pods, so that pods do not delay
    /// the renewal of the Lease.
    fn group(&self, event: &Event<Node>) -> Option<OrderingKey> {
        Some(node_key(event.object_ref().name))
    }

    async fn on_present(&self, node: &Arc<Node>) -> Result<Action, VirtualNodeError> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.0.fenced(name, self.0.reconcile_node(name)).await.map(Action::from)
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Node>) -> Result<Action, VirtualNodeError> {
        let name = tombstone.object_ref().name;
        self.0.fenced(name, self.0.reconcile_node(name)).await.map(Action::from)
    }
}

impl TriggerHandler<PodDue> for VirtualNodes {
    type Error = VirtualNodeError;

    fn group(&self, trigger: &PodDue) -> Option<OrderingKey> {
        node_group(&trigger.node)
    }

    async fn on_trigger(&self, trigger: &PodDue) -> Result<Action, VirtualNodeError> {
        let owner = trigger.owner();
        self.0.fenced(&trigger.node, self.0.reconcile_pod(&owner, &trigger.node)).await.map(Action::from)
    }
}

impl TriggerHandler<NodeDue> for VirtualNodes {
    type Error = VirtualNodeError;

    fn key(&self, trigger: &NodeDue) -> OrderingKey {
        node_key(trigger.name())
    }

    /// Returns a concurrency group that is separate from the pods of the node, so that they do not delay the renewal of
    /// its lease.
    fn group(&self, trigger: &NodeDue) -> Option<OrderingKey> {
        Some(node_key(trigger.name()))
    }

    async fn on_trigger(&self, trigger: &NodeDue) -> Result<Action, VirtualNodeError> {
        let name = trigger.name();
        self.0.fenced(name, self.0.reconcile_node(name)).await.map(Action::from)
    }
}
