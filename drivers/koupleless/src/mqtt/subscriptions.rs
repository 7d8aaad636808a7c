//! The subscriptions to the topics of bases, kept without I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use staffetta_driver::tunnel::NodeId;
use tokio::time::Instant;

/// The maximum number of bases in one request to the broker.
const BASES_PER_REQUEST: usize = 50;

/// The time after which a base that has not answered the query for its modules is asked again, once a message of it shows that it is there.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// The bases to whose topics the tunnel subscribes, and the requests that were not sent to the broker yet.
///
/// A connection begins without subscriptions, so everything is subscribed again. Once the topics of a base
/// are subscribed, the base is asked for its modules, because reports may have been missed. The query is lost if the base itself is not
/// subscribed yet; then the base is asked again at a later message of it.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    bases: BTreeSet<NodeId>,
    /// The bases whose subscription is to be changed: `true` to subscribe.
    changes: BTreeMap<NodeId, bool>,
    /// The bases that are to be asked for their modules.
    queries: VecDeque<NodeId>,
    /// The bases that were asked for their modules on this connection, or have reported them.
    asked: HashMap<NodeId, ModulesQuery>,
}

/// The state of the query for the modules of a base.
#[derive(Debug, PartialEq, Eq)]
enum ModulesQuery {
    /// The base was asked at this time.
    Asked(Instant),
    /// The base has reported its modules.
    Answered,
}

/// A request to the broker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SubscriptionChange {
    /// Subscribes the topics of these bases.
    Subscribe(Vec<NodeId>),
    /// Drops the subscriptions of these bases.
    Unsubscribe(Vec<NodeId>),
}

impl Subscriptions {
    /// Records that a new connection begins, without any subscription.
    pub(super) fn connected(&mut self) {
        self.changes = self.bases.iter().map(|base| (base.clone(), true)).collect();
        self.queries = self.bases.iter().cloned().collect();
        self.asked.clear();
    }

    /// Records that a base has reported its modules.
    pub(super) fn reported(&mut self, base: &NodeId) {
        if self.bases.contains(base) {
            self.asked.insert(base.clone(), ModulesQuery::Answered);
        }
    }

    /// Returns `true` if the base has reported its modules on this connection.
    pub(super) fn has_reported(&self, base: &NodeId) -> bool {
        self.asked.get(base) == Some(&ModulesQuery::Answered)
    }

    /// Records a message of a base other than a report of its modules. Returns `true` if the base will be asked for them again, because it
    /// did not answer within [`ANSWER_LIMIT`].
    pub(super) fn heard(&mut self, base: &NodeId, now: Instant) -> bool {
        let due = matches!(self.asked.get(base), Some(ModulesQuery::Asked(at)) if now >= *at + ANSWER_LIMIT);
        if due {
            self.asked.remove(base);
            self.queries.push_back(base.clone());
        }
        due
    }

    /// Adds a base, whose topics will be subscribed.
    pub(super) fn start(&mut self, base: &NodeId) {
        if self.bases.insert(base.clone()) {
            self.changes.insert(base.clone(), true);
            self.queries.push_back(base.clone());
        }
    }

    /// Removes a base, whose subscriptions will end.
    pub(super) fn stop(&mut self, base: &NodeId) {
        if self.bases.remove(base) {
            self.changes.insert(base.clone(), false);
            self.queries.retain(|other| other != base);
            self.asked.remove(base);
        }
    }

    /// Removes and returns the next request to the broker.
    pub(super) fn next_change(&mut self) -> Option<SubscriptionChange> {
        let kind = *self.changes.values().next()?;
        let mut bases = Vec::new();
        self.changes.retain(|base, subscribe| {
            let take = *subscribe == kind && bases.len() < BASES_PER_REQUEST;
            if take {
                bases.push(base.clone());
            }
            !take
        });
        Some(if kind { SubscriptionChange::Subscribe(bases) } else { SubscriptionChange::Unsubscribe(bases) })
    }

    /// Returns the number of bases that will be asked for their modules.
    pub(super) fn queries(&self) -> usize {
        self.queries.len()
    }

    /// Returns the number of bases.
    pub(super) fn bases(&self) -> usize {
        self.bases.len()
    }

    /// Removes and returns the next base that is to be asked for its modules.
    pub(super) fn next_query(&mut self, now: Instant) -> Option<NodeId> {
        let base = self.queries.pop_front()?;
        self.asked.entry(base.clone()).or_insert(ModulesQuery::Asked(now));
        Some(base)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(number: usize) -> NodeId {
        format!("b-{number}").parse().unwrap()
    }

    /// Applies all requests to what the broker has.
    fn drain(subscriptions: &mut Subscriptions, broker: &mut BTreeSet<NodeId>) {
        while let Some(change) = subscriptions.next_change() {
            match change {
                SubscriptionChange::Subscribe(bases) => broker.extend(bases),
                SubscriptionChange::Unsubscribe(bases) => broker.retain(|base| !bases.contains(base)),
            }
        }
    }

    #[test]
    fn a_reconnect_subscribes_all_bases_in_few_requests_and_asks_each_once() {
        let (mut subscriptions, mut broker) = (Subscriptions::default(), BTreeSet::new());
        for number in 0..120 {
            subscriptions.start(&id(number));
        }
        drain(&mut subscriptions, &mut broker);
        assert_eq!((subscriptions.queries(), subscriptions.next_change()), (120, None));
        while subscriptions.next_query(Instant::now()).is_some() {}
        subscriptions.connected();
        let requests = std::iter::from_fn(|| subscriptions.next_change()).count();
        assert_eq!((requests, subscriptions.queries()), (3, 120));
        subscriptions.stop(&id(0));
        let asked: BTreeSet<_> = std::iter::from_fn(|| subscriptions.next_query(Instant::now())).collect();
        assert_eq!((asked.len(), asked.contains(&id(0))), (119, false));
    }

    #[test]
    fn a_base_is_asked_again_at_a_message_until_it_reports_on_this_connection() {
        let (mut subscriptions, base, now) = (Subscriptions::default(), id(1), Instant::now());
        subscriptions.reported(&base);
        assert!(!subscriptions.has_reported(&base), "it has no node");
        subscriptions.start(&base);
        assert!(!subscriptions.heard(&base, now + ANSWER_LIMIT), "it will be asked");
        for round in 0..2 {
            let asked = now + ANSWER_LIMIT * round;
            assert_eq!(subscriptions.next_query(asked), Some(base.clone()));
            assert!(!subscriptions.heard(&base, asked), "it may be about to answer");
            assert!(!subscriptions.has_reported(&base) && subscriptions.heard(&base, asked + ANSWER_LIMIT));
        }
        subscriptions.reported(&base);
        assert_eq!(subscriptions.next_query(now), Some(base.clone()));
        assert!(subscriptions.has_reported(&base) && !subscriptions.heard(&base, now + ANSWER_LIMIT * 9));
        subscriptions.connected();
        assert!(!subscriptions.has_reported(&base), "it is another connection");
        subscriptions.reported(&base);
        subscriptions.stop(&base);
        subscriptions.start(&base);
        assert!(!subscriptions.has_reported(&base), "it is another node");
    }

    proptest! {
        /// Law for any order of calls and connections: the broker ends with the subscriptions of exactly the bases that exist.
        #[test]
        fn the_broker_has_the_subscriptions_of_the_bases_that_exist(calls in prop::collection::vec((0_usize..9, 0_u8..4), 0..60)) {
            let (mut subscriptions, mut broker) = (Subscriptions::default(), BTreeSet::new());
            for (number, call) in calls {
                match call {
                    0 => subscriptions.start(&id(number)),
                    1 => subscriptions.stop(&id(number)),
                    2 => drain(&mut subscriptions, &mut broker),
                    _ => {
                        broker.clear();
                        subscriptions.connected();
                    }
                }
            }
            drain(&mut subscriptions, &mut broker);
            prop_assert_eq!(&broker, &subscriptions.bases);
        }
    }
}
