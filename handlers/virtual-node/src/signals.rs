//! The reasons to look at a node or a pod that no watch tells.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use staffetta_driver::Owner;
use staffetta_handler::{Identity, Outlet, Signal};

/// There is something to do for a node: its machine was read and differs, or its lease is due.
#[derive(Clone, Debug)]
pub struct NodeDue(Identity);

impl NodeDue {
    /// For the node of that name. Its UID is the name, as `kubectl describe node` looks for Events of a node.
    pub(crate) fn new(name: &str) -> Self {
        Self(Identity::of::<Node>(None, name.to_owned(), name.to_owned()))
    }

    /// The name of the node.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

impl Signal for NodeDue {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// There is something to do for a pod of a node: what stands for it on the machine differs, or its time has come.
#[derive(Clone, Debug)]
pub struct PodDue {
    identity: Identity,
    /// The name of its node.
    pub(crate) node: Arc<str>,
}

impl PodDue {
    pub(crate) fn new(owner: &Owner, node: &Arc<str>) -> Self {
        let namespace = Some(owner.namespace.clone());
        let identity = Identity::of::<Pod>(namespace, owner.name.clone(), owner.uid.as_str().to_owned());
        Self { identity, node: Arc::clone(node) }
    }

    /// Whose time has come.
    pub(crate) fn owner(&self) -> Owner {
        let Identity { namespace, name, uid, .. } = &self.identity;
        Owner {
            namespace: namespace.clone().unwrap_or_default(),
            name: name.clone(),
            uid: uid.as_str().into(),
        }
    }
}

impl Signal for PodDue {
    fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Where it is told that there is something to do, once somebody listens.
#[derive(Default)]
pub(crate) struct Voice(Mutex<Option<Outlet>>);

impl Voice {
    /// It is told to `outlet` from now on.
    pub(crate) fn speaks_to(&self, outlet: &Outlet) {
        *self.outlet() = Some(outlet.clone());
    }

    /// There is something to do for a node.
    pub(crate) fn node_due(&self, name: &str) {
        let outlet = self.outlet().clone();
        if let Some(outlet) = outlet {
            outlet.signal(NodeDue::new(name));
        }
    }

    /// There is something to do for each of these pods of a node.
    pub(crate) fn pods_due(&self, owners: &[Owner], node: &Arc<str>) {
        let outlet = self.outlet().clone();
        let Some(outlet) = outlet else { return };
        for owner in owners {
            outlet.signal(PodDue::new(owner, node));
        }
    }

    fn outlet(&self) -> MutexGuard<'_, Option<Outlet>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
