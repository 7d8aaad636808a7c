//! Where an object stands in the queues of one handler: what a person asks who sees that nothing happens.

use std::borrow::Cow;
use std::sync::Arc;

use tokio::time::Instant;

use crate::failure::{Failure, causes, shortened};
use crate::message::{Change, Message};

/// One message that has not been handled yet, with all that is known of why.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The kind of its object, as in the field `kind`.
    pub kind: Cow<'static, str>,
    /// The namespace; none for a cluster-scoped object.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// What happened to it.
    pub change: Change,
    /// What it does or waits for.
    pub phase: Phase,
    /// Since when it does that.
    pub since: Instant,
    /// What went wrong since its object was last handled with success.
    pub trouble: Option<Trouble>,
}

/// What a message does or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its handler gets no messages yet: an index or the ownership marks are not complete.
    Held,
    /// An earlier message of its ordering key is at work, or as many of its handler's as may be.
    Queued,
    /// Its handler is at work.
    Running,
    /// It failed for a passing reason and is tried again at this time.
    Retrying {
        /// When.
        at: Instant,
    },
    /// It failed for good and is handled again at this time, or when its object changes.
    Failed {
        /// When.
        at: Instant,
    },
}

/// What went wrong with an object since it was last handled with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The last error with its causes, in one line; of a long one the first 1024 bytes.
    pub error: Arc<str>,
    /// Its reason in one word; see [`Failure::reason`].
    pub reason: &'static str,
    /// How many attempts have failed.
    pub attempts: u32,
    /// When the first of them failed.
    pub since: Instant,
}

impl Trouble {
    /// The trouble after one more failed attempt, now.
    #[must_use]
    pub fn after(before: Option<&Self>, error: &dyn Failure) -> Self {
        Self {
            error: shortened(causes(error)).into(),
            reason: error.reason(),
            attempts: before.map_or(0, |before| before.attempts).saturating_add(1),
            since: before.map_or_else(Instant::now, |before| before.since),
        }
    }
}

impl Standing {
    /// Where `message` stands.
    pub fn of<E: Message>(message: &E, phase: Phase, since: Instant, trouble: Option<Trouble>) -> Self {
        let subject = message.subject();
        Self {
            kind: subject.kind.clone(),
            namespace: subject.namespace.map(str::to_owned),
            name: subject.name.to_owned(),
            uid: subject.uid.to_owned(),
            change: message.change(),
            phase,
            since,
            trouble,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fault;

    #[tokio::test(start_paused = true)]
    async fn a_trouble_counts_its_attempts_from_the_first_one_and_keeps_the_last_error() {
        let first = Trouble::after(None, &Fault::transient("busy"));
        tokio::time::advance(std::time::Duration::from_secs(5)).await;
        let second = Trouble::after(Some(&first), &Fault::permanent("refused"));
        assert_eq!((&*second.error, second.attempts, second.since), ("refused", 2, first.since));
    }

    #[test]
    fn a_long_error_is_cut_between_two_characters() {
        let trouble = Trouble::after(None, &Fault::permanent(&"€".repeat(1000)));
        assert_eq!(*trouble.error, format!("{} ...", "€".repeat(341)));
    }
}
