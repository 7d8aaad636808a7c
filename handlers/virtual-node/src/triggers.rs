//! Triggers: requests to reconcile a node or a pod that do not come from a Kubernetes watch.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use staffetta_driver::Owner;
use staffetta_handler::{Identity, Trigger, TriggerSender};

/// Returns the identity of a node for triggers and Events. Its UID is the name, because `kubectl describe node`
/// searches Events by this UID.
pub(crate) fn node_identity(name: &str) -> Identity {
    Identity::of::<Node>(None, name.to_owned(), name.to_owned())
}

/// Returns the identity of a pod for triggers and Events.
pub(crate) fn pod_identity(owner: &Owner) -> Identity {
    let Owner { namespace, name, uid } = owner.clone();
    Identity::of::<Pod>(Some(namespace), name, uid.as_str().to_owned())
}

/// A request to reconcile a node, for example because the state of its machine changed or its lease is to be renewed.
#[derive(Clone, Debug)]
pub(crate) struct NodeDue(Identity);

impl NodeDue {
    /// Creates the trigger for the node with this name.
    pub(crate) fn new(name: &str) -> Self {
        Self(node_identity(name))
    }

    /// Returns the name of the node.
    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }
}

impl Trigger for NodeDue {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// A request to reconcile a pod, for example because its workload on the machine changed or the delay after its last step has passed.
#[derive(Clone, Debug)]
pub(crate) struct PodDue {
    identity: Identity,
    /// The name of the node on which the pod or its workload is.
    pub(crate) node: Arc<str>,
}

impl PodDue {
    /// Creates the trigger for the pod `owner`, whose workload is on `node`.
    pub(crate) fn new(owner: &Owner, node: &Arc<str>) -> Self {
        Self { identity: pod_identity(owner), node: Arc::clone(node) }
    }

    /// Returns the namespace, name and UID of the pod.
    pub(crate) fn owner(&self) -> Owner {
        let Identity { namespace, name, uid, .. } = &self.identity;
        Owner {
            namespace: namespace.clone().unwrap_or_default(),
            name: name.clone(),
            uid: uid.as_str().into(),
        }
    }
}

impl Trigger for PodDue {
    fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Sends triggers to the handler. Before [`connect`](Self::connect), triggers are dropped.
#[derive(Default)]
pub(crate) struct Notifier(Mutex<Option<TriggerSender>>);

impl Notifier {
    /// Connects this notifier: from now on it sends its triggers (requests to reconcile a node or pod) to `sender`.
    pub(crate) fn connect(&self, sender: &TriggerSender) {
        *self.0.lock() = Some(sender.clone());
    }

    /// Triggers a reconciliation of a node.
    pub(crate) fn node_due(&self, name: &str) {
        let sender = self.0.lock().clone();
        if let Some(sender) = sender {
            sender.send(NodeDue::new(name));
        }
    }

    /// Triggers a reconciliation of each pod in `owners`, which is on the node or has a workload on its machine.
    pub(crate) fn pods_due(&self, owners: &[Owner], node: &Arc<str>) {
        let sender = self.0.lock().clone();
        let Some(sender) = sender else { return };
        for owner in owners {
            sender.send(PodDue::new(owner, node));
        }
    }
}
