//! What the handler takes, and in which queues.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use staffetta_driver::Owner;
use staffetta_handler::{Event, Message, OrderingKey, ResourceEventHandler, SignalHandler, Tombstone};

use super::{VirtualNodes, node_of};
use crate::error::VirtualNodeError;
use crate::signals::{NodeDue, PodDue};

/// The queue of a node: its events, its signals.
fn node_key(name: &str) -> OrderingKey {
    OrderingKey::of(("node", name))
}

/// What is done for one node shares a bound, so that a slow machine delays no other.
fn node_group(name: &str) -> Option<OrderingKey> {
    (!name.is_empty()).then(|| OrderingKey::of(("machine", name)))
}

impl ResourceEventHandler<Pod> for VirtualNodes {
    type Error = VirtualNodeError;

    fn wants(&self, event: &Event<Pod>) -> bool {
        match event.object() {
            Some(pod) => !node_of(pod).is_empty() && !self.0.cluster.is_real(node_of(pod)),
            None => true,
        }
    }

    fn group(&self, event: &Event<Pod>) -> Option<OrderingKey> {
        event.object().and_then(|pod| node_group(node_of(pod)))
    }

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<(), VirtualNodeError> {
        self.0.settle_pod(&Owner::of(&pod.metadata), node_of(pod)).await
    }

    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<(), VirtualNodeError> {
        self.0.settle_pod(&Owner::of(&pod.metadata), node_of(pod)).await
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Pod>) -> Result<(), VirtualNodeError> {
        match tombstone {
            Tombstone::Last(pod) => self.0.pod_is_gone(&Owner::of(&pod.metadata), node_of(pod)).await,
            // What is left of one that went unseen has no owner: its machine's reader finds that out.
            Tombstone::Missed(identity) => {
                self.0.forget(&identity.uid.as_str().into());
                Ok(())
            }
        }
    }
}

impl ResourceEventHandler<Node> for VirtualNodes {
    type Error = VirtualNodeError;

    fn wants(&self, event: &Event<Node>) -> bool {
        let name = event.subject().name;
        self.0.fleet.get(name).is_some() || !self.0.cluster.is_real(name)
    }

    fn key(&self, event: &Event<Node>) -> OrderingKey {
        node_key(event.subject().name)
    }

    fn group(&self, event: &Event<Node>) -> Option<OrderingKey> {
        event.object().and_then(|node| node.metadata.name.as_deref()).and_then(node_group)
    }

    async fn on_present(&self, node: &Arc<Node>) -> Result<(), VirtualNodeError> {
        self.0.settle_node(node.metadata.name.as_deref().unwrap_or_default()).await
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Node>) -> Result<(), VirtualNodeError> {
        self.0.settle_node(tombstone.subject().name).await
    }
}

impl SignalHandler<PodDue> for VirtualNodes {
    type Error = VirtualNodeError;

    fn group(&self, signal: &PodDue) -> Option<OrderingKey> {
        node_group(&signal.node)
    }

    async fn on_signal(&self, signal: &PodDue) -> Result<(), VirtualNodeError> {
        self.0.settle_pod(&signal.owner(), &signal.node).await
    }
}

impl SignalHandler<NodeDue> for VirtualNodes {
    type Error = VirtualNodeError;

    fn key(&self, signal: &NodeDue) -> OrderingKey {
        node_key(signal.name())
    }

    /// A node has a turn beside its pods, so that none of them keeps its lease from being renewed.
    fn group(&self, signal: &NodeDue) -> Option<OrderingKey> {
        Some(node_key(signal.name()))
    }

    async fn on_signal(&self, signal: &NodeDue) -> Result<(), VirtualNodeError> {
        self.0.settle_node(signal.name()).await
    }
}
