//! The subscriptions to the topics of bases, kept without I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use staffetta_driver::tunnel::NodeId;

/// The maximum number of bases in one request to the broker.
const BASES_PER_REQUEST: usize = 50;

/// The bases to whose topics the tunnel subscribes, and the requests that were not sent to the broker yet.
///
/// A connection begins without subscriptions, so everything is subscribed again. Once the topics of a base
/// are subscribed, the base is asked for its modules, because reports may have been missed.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    bases: BTreeSet<NodeId>,
    /// The bases whose subscription is to be changed: `true` to subscribe.
    changes: BTreeMap<NodeId, bool>,
    /// The bases that are to be asked for their modules.
    queries: VecDeque<NodeId>,
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
    pub(super) fn next_query(&mut self) -> Option<NodeId> {
        self.queries.pop_front()
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
        while subscriptions.next_query().is_some() {}
        subscriptions.connected();
        let requests = std::iter::from_fn(|| subscriptions.next_change()).count();
        assert_eq!((requests, subscriptions.queries()), (3, 120));
        subscriptions.stop(&id(0));
        let asked: BTreeSet<_> = std::iter::from_fn(|| subscriptions.next_query()).collect();
        assert_eq!((asked.len(), asked.contains(&id(0))), (119, false));
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
