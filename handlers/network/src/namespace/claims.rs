//! What this process knows of networks that no annotation shows yet, or still shows.

use dashmap::DashMap;
use staffetta_driver::{NamespaceNetwork, Owner, Uid};

/// Where one namespace stands between the driver and the annotation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Claim {
    /// A network was asked for, and what came of it is not known: there may be one, whole or half-made.
    Asked,
    /// This one was made, and no annotation showed it yet.
    Made(NamespaceNetwork),
    /// It was released; the namespace may still show it.
    Released,
}

/// The claims of all namespaces. One whose annotation shows its network has none.
#[derive(Default)]
pub(super) struct Claims(DashMap<Uid, Claim>);

impl Claims {
    pub(super) fn get(&self, uid: &Uid) -> Option<Claim> {
        self.0.get(uid).map(|claim| claim.clone())
    }

    pub(super) fn set(&self, uid: &Uid, claim: Claim) {
        self.0.insert(uid.clone(), claim);
    }

    pub(super) fn forget(&self, uid: &Uid) {
        self.0.remove(uid);
    }

    /// Replaces all claims by what the marks say.
    pub(super) fn recover(&self, owners: Vec<Owner>) {
        self.0.clear();
        for owner in owners {
            self.0.insert(owner.uid, Claim::Asked);
        }
    }
}
