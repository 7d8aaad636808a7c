//! What one turn leaves to the next one of the same object.

use std::sync::Arc;

use crate::backoff::Backoff;
use crate::failure::Failure;
use crate::object::Identity;
use crate::standing::Trouble;

/// What is known of an object that has failed; nothing once it was handled with success. It is small, because most have none.
pub(crate) type Carry = Option<Box<Past>>;

/// What is known of an object that has failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    /// Where the back-off of the retries stands, if they ended early.
    pub(crate) backoff: Option<Backoff>,
    /// How often it failed for good.
    pub(crate) failures: u32,
    /// What went wrong.
    pub(crate) trouble: Option<Arc<Trouble>>,
    /// What it waits for, and since when, though nothing went wrong.
    pub(crate) waits: Option<Arc<Trouble>>,
    /// At which object a person was told of it.
    pub(crate) told: Option<Arc<Identity>>,
}

impl Past {
    /// One more attempt has failed with `error`. Answers what went wrong until now.
    pub(crate) fn failed(&mut self, error: &dyn Failure) -> Arc<Trouble> {
        let trouble = Arc::new(Trouble::after(self.trouble.as_deref(), error));
        self.trouble = Some(Arc::clone(&trouble));
        trouble
    }

    /// It waits, as `error` says. Answers for what, and since when.
    pub(crate) fn waits(&mut self, error: &dyn Failure) -> Arc<Trouble> {
        let waits = Arc::new(Trouble::after(self.waits.as_deref(), error));
        self.waits = Some(Arc::clone(&waits));
        waits
    }

    /// It waits for so long that this is what is wrong with it.
    pub(crate) fn waits_too_long(&mut self) {
        let Some(waits) = &self.waits else { return };
        let since = self.trouble.as_ref().map_or(waits.since, |trouble| trouble.since.min(waits.since));
        self.trouble = Some(Arc::new(Trouble { since, ..Trouble::clone(waits) }));
    }
}

/// What went wrong, if anything did.
pub(crate) fn trouble_of(carry: &Carry) -> Option<Arc<Trouble>> {
    carry.as_ref()?.trouble.clone()
}

/// Leaves `past` to who may have one of its own; of two, the newer one counts, and the most failures.
pub(crate) fn bequeath(past: Carry, heir: &mut Carry) {
    let Some(mut past) = past else { return };
    if let Some(own) = heir.take() {
        past.failures = past.failures.max(own.failures);
        past.trouble = past.trouble.or(own.trouble);
        past.waits = past.waits.or(own.waits);
        past.told = past.told.or(own.told);
    }
    *heir = Some(past);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "it stands for what a turn leaves")]
    fn past(failures: u32, told: Option<&str>) -> Carry {
        let told = told.map(|name| Arc::new(Identity::of::<Pod>(None, name.to_owned(), String::new())));
        Some(Box::new(Past { failures, told, ..Past::default() }))
    }

    #[test]
    fn of_two_pasts_the_most_failures_are_kept_and_at_which_object_it_was_told() {
        for (newer, older, told) in
            [(None, Some("b"), "b"), (Some("a"), Some("b"), "a"), (Some("a"), None, "a")]
        {
            let mut heir = past(3, older);
            bequeath(past(2, newer), &mut heir);
            let heir = heir.unwrap();
            assert_eq!((heir.failures, &*heir.told.unwrap().name), (3, told));
        }
    }
}
