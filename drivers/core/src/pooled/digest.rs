//! Whether a VIF came back as it went.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::vif::Vif;

/// Tells whether a VIF came back as it went. Whoever may annotate a pod could change what the next one gets.
#[derive(Default)]
pub(super) struct Digests(RandomState);

impl Digests {
    /// Of all but whether it is active, keyed by a secret of this process.
    pub(super) fn of(&self, vif: &Vif) -> u64 {
        let text = serde_json::to_string(&Vif { active: false, ..vif.clone() });
        self.0.hash_one(text.unwrap_or_default())
    }
}
