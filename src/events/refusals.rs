//! The namespaces that take no Events: a quota is used up there, a webhook says no, or our rights do not reach that far. Pure.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long after a refusal it is tried again.
pub(super) const REST: Duration = Duration::from_secs(5 * 60);

/// How many namespaces are remembered. When so many refuse, it is no matter of a namespace any more.
const CAPACITY: usize = 64;

/// Until when which namespaces are left alone.
#[derive(Default)]
pub(super) struct Refusals(HashMap<String, Instant>);

impl Refusals {
    /// `namespace` has refused an Event. Answers whether that is news; none where too many refuse, and it is not remembered.
    pub(super) fn refused(&mut self, namespace: &str, now: Instant) -> Option<bool> {
        // Where nothing was tried for so long, nothing is to be sent.
        self.0.retain(|_, until| *until + REST > now);
        if self.0.len() >= CAPACITY && !self.0.contains_key(namespace) {
            return None;
        }
        Some(self.0.insert(namespace.to_owned(), now + REST).is_none())
    }

    /// `namespace` takes Events. Answers whether that is news.
    pub(super) fn took(&mut self, namespace: &str) -> bool {
        self.0.remove(namespace).is_some()
    }

    /// Until when nothing is worth sending to `namespace`; none where it is now.
    pub(super) fn until(&self, namespace: &str, now: Instant) -> Option<Instant> {
        self.0.get(namespace).copied().filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_left_alone_until_it_is_tried_again_and_is_forgotten_when_nobody_does() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.refused("shop", now), Some(true));
        assert_eq!((refusals.until("shop", now), refusals.until("other", now)), (Some(now + REST), None));
        assert_eq!(refusals.until("shop", now + REST), None);
        assert_eq!(refusals.refused("shop", now + REST), Some(false), "it is the same trouble");
        assert!(refusals.took("shop") && !refusals.took("shop"));
        assert_eq!(refusals.refused("shop", now), Some(true));
        assert_eq!(refusals.refused("shop", now + 3 * REST), Some(true));
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for number in 0..CAPACITY {
            assert_eq!(refusals.refused(&number.to_string(), now), Some(true));
        }
        assert_eq!((refusals.refused("one more", now), refusals.refused("0", now)), (None, Some(false)));
        assert_eq!(refusals.refused("one more", now + 2 * REST), Some(true));
    }
}
