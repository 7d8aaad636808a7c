//! What this process knows of VIFs that no annotation shows yet, or still shows.

use std::collections::HashMap;

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
    /// The pod shows VIFs that are of no use to it, and gets these in their place: no annotation showed them yet.
    Replaced {
        /// What was made.
        state: Box<PodState>,
        /// What is released once an event shows what was made.
        old: Vec<Vif>,
    },
    /// All were released but these, which the next pod may have as soon as this one shows them no more; it may still show all.
    Released(Vec<Vif>),
}

impl Claim {
    /// The VIFs of which the claim knows.
    pub(super) fn vifs(self) -> Vec<Vif> {
        match self {
            Self::Held(vifs) | Self::Released(vifs) => vifs,
            Self::Made(state) => state.vifs().cloned().collect(),
            Self::Replaced { state, old } => state.vifs().cloned().chain(old).collect(),
            Self::Asked => Vec::new(),
        }
    }
}

/// The claims of all pods. A pod whose annotation shows its VIFs has none.
pub(super) type Claims = crate::claims::Claims<Claim>;

/// What the marks say.
pub(super) fn of_marks(marks: Vec<Marked<Vif>>) -> impl Iterator<Item = (Uid, Claim)> {
    let mut held: HashMap<Uid, Vec<Vif>> = HashMap::new();
    for Marked { owner, thing } in marks {
        if let Some(owner) = owner {
            held.entry(owner.uid).or_default().push(thing);
        }
    }
    held.into_iter().map(|(uid, vifs)| (uid, Claim::Held(vifs)))
}
