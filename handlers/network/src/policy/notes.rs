//! What a person is told of a policy that works, and does less than it seems to say.

use dashmap::DashMap;
use staffetta_driver::Uid;
use staffetta_handler::{Identity, Note, Notes};

/// The reason of the Event by which a person learns that a policy allows less than it seems to say.
pub(crate) const INCOMPLETE: &str = "PolicyIncomplete";

/// What was told of each policy.
pub(super) struct PolicyNotes {
    notes: Notes,
    told: DashMap<Uid, Vec<String>>,
}

impl PolicyNotes {
    pub(super) fn new(notes: Notes) -> Self {
        Self { notes, told: DashMap::new() }
    }

    /// Tells what is wrong with a policy, once.
    pub(super) fn tell(&self, policy: &Identity, problems: &[String]) {
        let uid: Uid = policy.uid.as_str().into();
        if problems.is_empty() {
            self.told.remove(&uid);
            return;
        }
        let before = self.told.insert(uid, problems.to_vec());
        if before.as_deref() != Some(problems) {
            self.notes.tell(Note {
                handler: "policy",
                regarding: policy.clone(),
                warning: true,
                reason: INCOMPLETE,
                text: problems.join("; "),
            });
        }
    }

    pub(super) fn forget(&self, policy: &Uid) {
        self.told.remove(policy);
    }
}
