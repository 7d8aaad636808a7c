//! What a person is told of a policy that works, and does less than it seems to say.

use dashmap::DashMap;
use staffetta_driver::Uid;
use staffetta_handler::{Identity, Note, Notes};

/// A policy allows less than it seems to say.
struct Incomplete<'p>(&'p [String]);

impl Incomplete<'_> {
    fn reason(&self) -> &'static str {
        "PolicyIncomplete"
    }

    fn text(&self) -> String {
        self.0.join("; ")
    }
}

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
            let incomplete = Incomplete(problems);
            self.notes.tell(Note {
                handler: "policy",
                regarding: policy.clone(),
                warning: true,
                reason: incomplete.reason(),
                text: incomplete.text(),
            });
        }
    }

    pub(super) fn forget(&self, policy: &Uid) {
        self.told.remove(policy);
    }
}
