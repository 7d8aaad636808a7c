//! What this process knows of VIFs that no annotation shows yet, or still shows.

use std::collections::HashMap;

use dashmap::DashMap;
use staffetta_driver::{Marked, Uid, Vif};

use crate::os_vif::PodState;

/// Where one pod stands between the driver and the annotation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Claim {
    /// A VIF was asked for, and what came of it is not known: there may be one.
    Asked,
    /// These exist by their marks, and no annotation showed them yet. None: the marks were read, and there is none.
    Held(Vec<Vif>),
    /// These were made by this process, each for its interface, and no annotation showed them yet.
    Made(Box<PodState>),
    /// All were released; the pod may still show them.
    Released,
}

impl Claim {
    /// The VIFs of which the claim knows.
    pub(super) fn vifs(self) -> Vec<Vif> {
        match self {
            Self::Held(vifs) => vifs,
            Self::Made(state) => state.vifs().cloned().collect(),
            Self::Asked | Self::Released => Vec::new(),
        }
    }
}

/// The claims of all pods. A pod whose annotation shows its VIFs has none.
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
    pub(super) fn recover(&self, marks: Vec<Marked<Vif>>) {
        let mut held: HashMap<Uid, Vec<Vif>> = HashMap::new();
        for Marked { owner, thing } in marks {
            if let Some(owner) = owner {
                held.entry(owner.uid).or_default().push(thing);
            }
        }
        self.0.clear();
        for (uid, vifs) in held {
            self.0.insert(uid, Claim::Held(vifs));
        }
    }
}
