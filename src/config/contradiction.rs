//! Options that fit one by one but not together.

use super::sections::{LeaderElection, Relay};
use super::span::Span;

/// Two lengths of time in one section, of which the first must not exceed the second.
pub(super) struct Pair {
    pub(super) section: &'static str,
    pub(super) low: (&'static str, Span),
    pub(super) high: (&'static str, Span),
    /// Whether they may be the same.
    pub(super) may_equal: bool,
}

impl Pair {
    /// All pairs of the program's own sections.
    pub(super) fn all(relay: &Relay, election: &LeaderElection) -> [Self; 4] {
        let relay_pair = |low, high| Self { section: "relay", low, high, may_equal: true };
        let election_pair = |low, high| Self { section: "leader_election", low, high, may_equal: false };
        let deadline = ("renew_deadline", election.renew_deadline);
        [
            relay_pair(
                ("retry_interval", relay.retry_interval),
                ("retry_max_interval", relay.retry_max_interval),
            ),
            relay_pair(
                ("failed_resync", relay.failed_resync),
                ("failed_resync_max", relay.failed_resync_max),
            ),
            election_pair(deadline, ("lease_duration", election.lease_duration)),
            election_pair(("retry_period", election.retry_period), deadline),
        ]
    }

    /// What is wrong with the first option, if anything is.
    pub(super) fn contradiction(&self) -> Option<String> {
        let Self { section, low: (_, low), high: (name, high), may_equal } = self;
        if *may_equal && low > high {
            Some(format!("{low} is more than {section}.{name}, which is {high}"))
        } else if !may_equal && low >= high {
            Some(format!("{low} is not less than {section}.{name}, which is {high}"))
        } else {
            None
        }
    }
}
