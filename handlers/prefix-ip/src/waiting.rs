//! The pods that wait for an address of their node.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::{Mutex, MutexGuard};
use staffetta_driver::Uid;

/// The pods that wait for an address of their node, in their newest state. Each is handled again when the node's pool may have one
/// for it. Pods whose node gives no addresses at present are among them.
#[derive(Default)]
pub struct WaitingPods(Mutex<HashMap<Uid, WaitingPod>>);

/// A pod that waits for an address.
struct WaitingPod {
    /// The name of the node of the pod.
    node: String,
    pod: Arc<Pod>,
    /// The reason for the wait that was last reported as an Event; `None` before the first one.
    reported: Option<&'static str>,
}

impl WaitingPods {
    /// Adds a pod that waits for an address. Call it before the address is requested from the pool, so that no wake-up is missed.
    pub(crate) fn add(&self, uid: &Uid, pod: &Arc<Pod>, node: &str) {
        let new = || WaitingPod { node: node.to_owned(), pod: Arc::clone(pod), reported: None };
        self.pods().entry(uid.clone()).or_insert_with(new).pod = Arc::clone(pod);
    }

    /// Replaces the stored state of a pod that waits by its newer state `pod`. Does nothing if the pod does not wait.
    pub(crate) fn update(&self, uid: &str, pod: &Arc<Pod>) {
        if let Some(waiting) = self.pods().get_mut(&Uid::from(uid)) {
            waiting.pod = Arc::clone(pod);
        }
    }

    /// Records the reason for which a pod waits, for an Event. Returns `true` if the reason must be reported: it is the first one or
    /// another one than before; `false` if it is the same, or if the pod does not wait.
    pub(crate) fn record_reason(&self, uid: &Uid, reason: &'static str) -> bool {
        let mut pods = self.pods();
        pods.get_mut(uid).is_some_and(|waiting| waiting.reported.replace(reason) != Some(reason))
    }

    /// Removes a pod that does not wait any more, because it has its address or needs none.
    pub(crate) fn remove(&self, uid: &Uid) {
        self.pods().remove(uid);
    }

    /// Returns a pod that waits; `None` if it does not wait any more.
    pub(crate) fn get(&self, uid: &Uid) -> Option<Arc<Pod>> {
        self.pods().get(uid).map(|waiting| Arc::clone(&waiting.pod))
    }

    /// Returns the UIDs of the pods of a node that wait for an address.
    pub(crate) fn of_node(&self, node: &str) -> Vec<Uid> {
        let pods = self.pods();
        let of_node = pods.iter().filter(|(_, waiting)| waiting.node == node);
        of_node.map(|(uid, _)| uid.clone()).collect()
    }

    /// Returns the number of pods that wait for an address, on all nodes.
    pub fn count(&self) -> usize {
        self.pods().len()
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<Uid, WaitingPod>> {
        self.0.lock()
    }
}
