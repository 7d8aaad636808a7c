//! The bases to whose MQTT topics the tunnel subscribes, and the times of their reports, kept without I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use staffetta_driver::tunnel::NodeId;
use tokio::time::Instant;

use super::message::BaseMessage;

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
    bases: BTreeMap<NodeId, SubscribedBase>,
    /// The bases whose subscriptions are to end.
    stopped: BTreeSet<NodeId>,
    /// The bases that are to be asked for their modules.
    queries: VecDeque<NodeId>,
}

/// A base with a node in Kubernetes.
#[derive(Debug, Default)]
struct SubscribedBase {
    /// `true` if the topics of the base are subscribed on the current connection to the broker, or are about to be.
    subscribed: bool,
    query: ModulesQuery,
    /// The time of the newest report of each kind (introduction, health, modules), by the clock of the base.
    newest: [Option<Timestamp>; 3],
}

/// The progress, on the current connection, of asking one base for its modules.
#[derive(Debug, Default, PartialEq, Eq)]
enum ModulesQuery {
    /// The base is still to be asked.
    #[default]
    Due,
    /// The base was asked at this time.
    Asked(Instant),
    /// The base has reported its modules.
    Answered,
}

/// A change of subscriptions, to be requested from the broker.
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
        for base in self.bases.values_mut() {
            (base.subscribed, base.query) = (false, ModulesQuery::Due);
        }
        self.stopped.clear();
        self.queries = self.bases.keys().cloned().collect();
    }

    /// Records that a base has reported its modules on the current connection.
    pub(super) fn reported(&mut self, base: &NodeId) {
        if let Some(base) = self.bases.get_mut(base) {
            base.query = ModulesQuery::Answered;
        }
    }

    /// Returns `true` if the base has reported its modules on the current connection to the broker.
    pub(super) fn has_reported(&self, base: &NodeId) -> bool {
        self.bases.get(base).is_some_and(|base| base.query == ModulesQuery::Answered)
    }

    /// Records a message of a base other than a report of its modules. Returns `true` if the base will be asked for them again, because it
    /// did not answer within [`ANSWER_LIMIT`].
    pub(super) fn heard(&mut self, base: &NodeId, now: Instant) -> bool {
        let asked = self.bases.get_mut(base).map(|base| &mut base.query);
        let Some(query @ ModulesQuery::Asked(_)) = asked else { return false };
        let due = matches!(query, ModulesQuery::Asked(at) if now >= *at + ANSWER_LIMIT);
        if due {
            *query = ModulesQuery::Due;
            self.queries.push_back(base.clone());
        }
        due
    }

    /// Records a report that was sent at `sent`. Returns `false` if a newer report of the same kind has already arrived. A report that is
    /// older than the newest one by `window` or more is accepted, because then the clock of the base was set back. Baseline queries,
    /// answers to commands, and reports of bases without a node are always accepted.
    pub(super) fn accept(
        &mut self,
        base: &NodeId,
        message: &BaseMessage,
        sent: Timestamp,
        window: Duration,
    ) -> bool {
        let kind = match message {
            BaseMessage::Discovered(_) => 0,
            BaseMessage::Health(_) => 1,
            BaseMessage::Modules(_) => 2,
            BaseMessage::Baseline(_) | BaseMessage::Operation(..) => return true,
        };
        let Some(newest) = self.bases.get_mut(base).map(|base| &mut base.newest[kind]) else { return true };
        let overtaken =
            newest.is_some_and(|newest| sent < newest && newest.duration_since(sent).unsigned_abs() < window);
        if !overtaken {
            *newest = Some(sent);
        }
        !overtaken
    }

    /// Adds a base, whose topics will be subscribed.
    pub(super) fn start(&mut self, base: &NodeId) {
        if !self.bases.contains_key(base) {
            self.bases.insert(base.clone(), SubscribedBase::default());
            self.stopped.remove(base);
            self.queries.push_back(base.clone());
        }
    }

    /// Removes a base, whose subscriptions will end.
    pub(super) fn stop(&mut self, base: &NodeId) {
        if self.bases.remove(base).is_some() {
            self.stopped.insert(base.clone());
            self.queries.retain(|other| other != base);
        }
    }

    /// Returns the next bases to subscribe or unsubscribe, and records that as requested; `None` if the subscriptions need no change.
    pub(super) fn next_change(&mut self) -> Option<SubscriptionChange> {
        let new = self.bases.iter_mut().filter(|(_, base)| !base.subscribed).take(BASES_PER_REQUEST);
        let subscribe = |(id, base): (&NodeId, &mut SubscribedBase)| {
            base.subscribed = true;
            id.clone()
        };
        let new: Vec<_> = new.map(subscribe).collect();
        if !new.is_empty() {
            return Some(SubscriptionChange::Subscribe(new));
        }
        let stopped: Vec<_> =
            std::iter::from_fn(|| self.stopped.pop_first()).take(BASES_PER_REQUEST).collect();
        (!stopped.is_empty()).then_some(SubscriptionChange::Unsubscribe(stopped))
    }

    /// Returns the number of bases that will be asked for their modules.
    pub(super) fn queries(&self) -> usize {
        self.queries.len()
    }

    /// Returns the number of bases with a node, whose topics are subscribed or about to be.
    pub(super) fn bases(&self) -> usize {
        self.bases.len()
    }

    /// Removes and returns the next base that is to be asked for its modules; `None` if there is none.
    pub(super) fn next_query(&mut self, now: Instant) -> Option<NodeId> {
        let base = self.queries.pop_front()?;
        if let Some(state) = self.bases.get_mut(&base)
            && state.query == ModulesQuery::Due
        {
            state.query = ModulesQuery::Asked(now);
        }
        Some(base)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use staffetta_driver::tunnel::NodeStatusData;

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

    #[test]
    fn a_state_that_was_overtaken_is_dropped_unless_the_clock_was_set_back() {
        let (mut order, base) = (Subscriptions::default(), "b".parse().unwrap());
        let (modules, health) =
            (BaseMessage::Modules(Vec::new()), BaseMessage::Health(NodeStatusData::default()));
        let accept = |order: &mut Subscriptions, message: &BaseMessage, milliseconds| {
            let sent = Timestamp::from_millisecond(milliseconds).unwrap();
            order.accept(&base, message, sent, Duration::from_secs(10))
        };
        assert!(accept(&mut order, &modules, 50_000) && accept(&mut order, &modules, 49_000), "no node");
        order.start(&base);
        for (message, sent, accepted) in [
            (&modules, 50_000, true),
            (&modules, 49_999, false),
            (&modules, 40_001, false),
            (&health, 40_001, true),
            (&modules, 50_000, true),
            (&modules, 50_001, true),
            (&modules, 50_000, false),
            (&modules, 40_001, true),
            (&modules, 41_000, true),
        ] {
            assert_eq!(accept(&mut order, message, sent), accepted, "{message:?} {sent}");
        }
        order.start(&base);
        assert!(!accept(&mut order, &modules, 40_000), "a new description of the base changes nothing");
        order.stop(&base);
        assert!(accept(&mut order, &modules, 1) && order.bases.is_empty());
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
            prop_assert!(broker.iter().eq(subscriptions.bases.keys()), "{broker:?} {subscriptions:?}");
        }
    }
}
