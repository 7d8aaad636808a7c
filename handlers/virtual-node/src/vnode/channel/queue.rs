//! The queued events of a tunnel, by node.

use std::collections::{HashMap, VecDeque};
use std::mem::discriminant;

use staffetta_driver::tunnel::{NodeId, SendError, TunnelEvent};

use super::TunnelLimits;

/// The queued events of a tunnel. Nodes are served round-robin, one event each, so a node that reports a lot delays only itself.
///
/// A node counts towards [`TunnelLimits::nodes`] while it has a queued event or is [kept](Self::keep).
#[derive(Debug)]
pub(super) struct NodeQueues {
    limits: TunnelLimits,
    nodes: HashMap<NodeId, NodeQueue>,
    /// The nodes with events, in the order in which they are served.
    ready: VecDeque<NodeId>,
}

/// The events of one node, in order of arrival. An event that reports a [state](TunnelEvent::is_state) replaces an earlier one of its kind,
/// at the same position.
#[derive(Debug, Default)]
struct NodeQueue {
    events: VecDeque<TunnelEvent>,
    /// `true` if the node stays in the queues even while it has no queued event.
    kept: bool,
}

impl NodeQueues {
    /// Creates empty queues with these limits.
    pub(super) fn new(limits: TunnelLimits) -> Self {
        Self { limits, nodes: HashMap::new(), ready: VecDeque::new() }
    }

    /// Adds an event of `node`. An event that reports a [state](TunnelEvent::is_state) replaces a queued earlier one of its kind. Fails if
    /// a new node would exceed the maximum number of nodes, or an answer or query that of the node's answers and queries.
    pub(super) fn push(&mut self, node: &NodeId, event: TunnelEvent) -> Result<(), SendError> {
        if !self.nodes.contains_key(node) && self.nodes.len() >= self.limits.nodes {
            return Err(SendError::TooManyNodes { limit: self.limits.nodes });
        }
        let queue = self.nodes.entry(node.clone()).or_default();
        let idle = queue.events.is_empty();
        queue.push(event, self.limits.events_per_node)?;
        if idle {
            self.ready.push_back(node.clone());
        }
        Ok(())
    }

    /// Removes and returns the next event: the first one of the node that is served next. `None` if no event is queued.
    pub(super) fn pop(&mut self) -> Option<(NodeId, TunnelEvent)> {
        let node = self.ready.pop_front()?;
        let queue = self.nodes.get_mut(&node)?;
        let event = queue.events.pop_front();
        let (idle, kept) = (queue.events.is_empty(), queue.kept);
        if !idle {
            self.ready.push_back(node.clone());
        } else if !kept {
            self.nodes.remove(&node);
        }
        event.map(|event| (node, event))
    }

    /// Keeps a node in the queues, even without events, until [`release`](Self::release).
    pub(super) fn keep(&mut self, node: &NodeId) {
        self.nodes.entry(node.clone()).or_default().kept = true;
    }

    /// Ends [`keep`](Self::keep): the node is removed as soon as it has no queued event.
    pub(super) fn release(&mut self, node: &NodeId) {
        if let Some(queue) = self.nodes.get_mut(node) {
            queue.kept = false;
            if queue.events.is_empty() {
                self.nodes.remove(node);
            }
        }
    }

    /// Removes all nodes with their events, also those that are kept. Queued baseline queries fail.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.ready.clear();
    }
}

impl NodeQueue {
    /// Adds an event. The state of a node replaces an earlier state of the same type in its place, and is always accepted. Any other event
    /// is appended; the error is [`SendError::QueueFull`] if `limit` such events are queued already. Queries that nobody waits for any more
    /// do not count, and are dropped.
    fn push(&mut self, event: TunnelEvent, limit: usize) -> Result<(), SendError> {
        if event.is_state() {
            let mut earlier = self.events.iter_mut();
            match earlier.find(|earlier| discriminant(*earlier) == discriminant(&event)) {
                Some(earlier) => *earlier = event,
                None => self.events.push_back(event),
            }
            return Ok(());
        }
        self.events
            .retain(|event| !matches!(event, TunnelEvent::BaselineQuery(query) if query.is_abandoned()));
        if self.events.iter().filter(|event| !event.is_state()).count() >= limit {
            return Err(SendError::QueueFull { limit });
        }
        self.events.push_back(event);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use staffetta_driver::tunnel::{
        BaselineQuery, ContainerOperationResponseData, NetworkInfo, NodeActivation, NodeDescription,
        NodeMetadata, NodeStatusData, OperationResponseResult, QueryBaselineRequest,
    };

    use super::*;

    const LIMITS: TunnelLimits = TunnelLimits { nodes: 3, events_per_node: 2 };

    fn id(number: usize) -> NodeId {
        format!("base-{number}").parse().unwrap()
    }

    fn started(key: &str) -> TunnelEvent {
        TunnelEvent::StartContainerResponse(ContainerOperationResponseData {
            container_key: key.into(),
            result: OperationResponseResult::Success,
            reason: String::new(),
            message: String::new(),
            instead: None,
        })
    }

    fn discovered(version: &str) -> TunnelEvent {
        let metadata =
            NodeMetadata { name: "shop".into(), version: version.into(), status: NodeActivation::Activated };
        let network_info = NetworkInfo::default();
        TunnelEvent::NodeDiscovered(NodeDescription {
            metadata,
            network_info,
            custom_labels: [].into(),
            tunnel_data: [].into_iter().collect(),
        })
    }

    /// Returns the node and the text of the next event.
    fn next(queues: &mut NodeQueues) -> Option<(String, String)> {
        let (node, event) = queues.pop()?;
        let event = match event {
            TunnelEvent::NodeDiscovered(node) => node.metadata.version,
            TunnelEvent::StartContainerResponse(answer) => answer.container_key.to_string(),
            TunnelEvent::NodeStatus(_) => "status".to_owned(),
            other => format!("{other:?}"),
        };
        Some((node.to_string(), event))
    }

    fn all(queues: &mut NodeQueues) -> Vec<(String, String)> {
        std::iter::from_fn(|| next(queues)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(node, event)| ((*node).to_owned(), (*event).to_owned())).collect()
    }

    #[test]
    fn nodes_are_served_round_robin_whatever_one_of_them_reports() {
        let mut queues = NodeQueues::new(TunnelLimits { events_per_node: 100, ..LIMITS });
        for number in 0..100 {
            queues.push(&id(0), started(&number.to_string())).unwrap();
        }
        queues.push(&id(1), started("a")).unwrap();
        queues.push(&id(1), started("b")).unwrap();
        let first: Vec<_> = std::iter::from_fn(|| next(&mut queues)).take(4).collect();
        assert_eq!(first, pairs(&[("base-0", "0"), ("base-1", "a"), ("base-0", "1"), ("base-1", "b")]));
    }

    #[test]
    fn the_latest_state_replaces_the_earlier_one_and_keeps_its_place() {
        let mut queues = NodeQueues::new(LIMITS);
        for event in [
            discovered("1"),
            started("a"),
            discovered("2"),
            TunnelEvent::NodeStatus(NodeStatusData::default()),
        ] {
            queues.push(&id(0), event).unwrap();
        }
        queues.push(&id(0), discovered("3")).unwrap();
        assert_eq!(all(&mut queues), pairs(&[("base-0", "3"), ("base-0", "a"), ("base-0", "status")]));
    }

    #[test]
    fn a_full_queue_rejects_answers_of_its_node_alone_and_no_state() {
        let mut queues = NodeQueues::new(LIMITS);
        queues.push(&id(0), started("a")).unwrap();
        queues.push(&id(0), started("b")).unwrap();
        assert!(matches!(queues.push(&id(0), started("c")), Err(SendError::QueueFull { limit: 2 })));
        queues.push(&id(0), discovered("1")).unwrap();
        queues.push(&id(1), started("d")).unwrap();
    }

    #[test]
    fn a_query_that_nobody_waits_for_makes_room() {
        let mut queues = NodeQueues::new(LIMITS);
        for _ in 0..10 {
            let (answer, _) = tokio::sync::oneshot::channel();
            let query = BaselineQuery::new(QueryBaselineRequest::default(), answer);
            queues.push(&id(0), TunnelEvent::BaselineQuery(query)).unwrap();
        }
    }

    #[test]
    fn invented_ids_take_no_place_of_a_node_that_is_kept() {
        let mut queues = NodeQueues::new(LIMITS);
        queues.keep(&id(0));
        queues.push(&id(1), discovered("1")).unwrap();
        queues.push(&id(2), discovered("1")).unwrap();
        assert!(matches!(queues.push(&id(3), discovered("1")), Err(SendError::TooManyNodes { limit: 3 })));
        queues.push(&id(0), discovered("1")).unwrap();
        assert_eq!(all(&mut queues).len(), 3);
        queues.push(&id(3), discovered("1")).unwrap();
        queues.release(&id(0));
        for number in [4, 5] {
            queues.push(&id(number), discovered("1")).unwrap();
        }
        assert!(queues.push(&id(0), discovered("1")).is_err(), "its place went to another node");
    }

    proptest! {
        /// Law for any order of calls: the number of nodes and of their events is bounded, an accepted answer is delivered once and in
        /// order, and between two events of one node every other node with events is served.
        #[test]
        fn queues_are_bounded_fair_and_in_order(calls in prop::collection::vec((0_usize..5, 0_u8..6), 0..200)) {
            let mut queues = NodeQueues::new(LIMITS);
            let (mut accepted, mut delivered) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
            let take = |queues: &mut NodeQueues, delivered: &mut HashMap<_, Vec<_>>| {
                let waiting: Vec<_> = queues.ready.iter().cloned().collect();
                let Some((node, event)) = queues.pop() else { return false };
                assert_eq!(Some(&node), waiting.first());
                if let TunnelEvent::StartContainerResponse(answer) = event {
                    delivered.entry(node).or_default().push(answer.container_key);
                }
                true
            };
            for (number, (node, call)) in calls.into_iter().enumerate() {
                let node = id(node);
                match call {
                    0 => drop(queues.push(&node, discovered("1"))),
                    1 | 2 => {
                        let key = number.to_string();
                        if queues.push(&node, started(&key)).is_ok() {
                            accepted.entry(node).or_default().push(key.as_str().into());
                        }
                    }
                    3 => drop(take(&mut queues, &mut delivered)),
                    4 if queues.nodes.len() < LIMITS.nodes => queues.keep(&node),
                    _ => queues.release(&node),
                }
                prop_assert!(queues.nodes.len() <= LIMITS.nodes);
                prop_assert!(queues.nodes.values().all(|queue| queue.events.len() <= LIMITS.events_per_node + 3));
                let waiting = queues.nodes.values().filter(|queue| !queue.events.is_empty()).count();
                prop_assert_eq!(queues.ready.len(), waiting, "each waiting node is listed once");
            }
            while take(&mut queues, &mut delivered) {}
            prop_assert_eq!(accepted, delivered);
        }
    }
}
