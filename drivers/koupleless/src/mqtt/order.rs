//! The order of the reports of a base, by the times at which it sent them.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use staffetta_driver::tunnel::NodeId;

use super::message::BaseMessage;

/// The time of the newest report of each kind (introduction, health, modules), for each base with a node.
#[derive(Debug, Default)]
pub(super) struct ReportOrder(HashMap<NodeId, [Option<Timestamp>; 3]>);

impl ReportOrder {
    /// Adds a base, if it is not known.
    pub(super) fn start(&mut self, base: &NodeId) {
        self.0.entry(base.clone()).or_default();
    }

    /// Forgets a base.
    pub(super) fn stop(&mut self, base: &NodeId) {
        self.0.remove(base);
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
        let Some(newest) = self.0.get_mut(base).map(|times| &mut times[kind]) else { return true };
        let overtaken =
            newest.is_some_and(|newest| sent < newest && newest.duration_since(sent).unsigned_abs() < window);
        if !overtaken {
            *newest = Some(sent);
        }
        !overtaken
    }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::tunnel::NodeStatusData;

    use super::*;

    #[test]
    fn a_state_that_was_overtaken_is_dropped_unless_the_clock_was_set_back() {
        let (mut order, base) = (ReportOrder::default(), "b".parse().unwrap());
        let (modules, health) =
            (BaseMessage::Modules(Vec::new()), BaseMessage::Health(NodeStatusData::default()));
        let accept = |order: &mut ReportOrder, message: &BaseMessage, milliseconds| {
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
        assert!(accept(&mut order, &modules, 1) && order.0.is_empty());
    }
}
