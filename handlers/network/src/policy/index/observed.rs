//! Updates the `PolicyIndex` from the watched nodes, pods, network policies and namespaces.

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use staffetta_driver::{NamespaceObserver, NetworkPolicyObserver, Uid};
use staffetta_handler::{Event, Index};

use super::PolicyIndex;
use super::terms::ParsedPolicy;

impl Index<Node> for PolicyIndex {
    fn apply(&self, event: &Event<Node>) {
        let uid: Uid = event.uid().into();
        let (Event::Added(node) | Event::Modified(node)) = event else {
            self.state.lock().nodes.remove(&uid);
            return;
        };
        let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
        let addresses = addresses.into_iter().flatten().filter_map(|address| address.address.parse().ok());
        self.state.lock().nodes.insert(uid, addresses.collect());
    }
}

impl Index<Pod> for PolicyIndex {
    fn apply(&self, event: &Event<Pod>) {
        match event {
            Event::Added(pod) | Event::Modified(pod) => self.set_pod(pod),
            Event::Deleted(_) => self.remove_pod(&event.uid().into()),
        }
    }
}

impl NetworkPolicyObserver for PolicyIndex {
    fn present(&self, policy: &NetworkPolicy) {
        let terms = ParsedPolicy::of(policy);
        self.change(|state| state.model.set_policy(terms));
    }

    fn gone(&self, uid: &Uid) {
        self.change(|state| state.model.remove_policy(uid));
    }
}

impl NamespaceObserver for PolicyIndex {
    fn present(&self, namespace: &Namespace) {
        let meta = &namespace.metadata;
        let (uid, labels) = (meta.uid.clone().unwrap_or_default(), meta.labels.clone().unwrap_or_default());
        let name = meta.name.clone().unwrap_or_default();
        self.change(|state| state.model.set_namespace(&name, uid.into(), labels));
    }

    fn gone(&self, name: &str, uid: &Uid) {
        self.change(|state| state.model.remove_namespace(name, uid));
    }
}
