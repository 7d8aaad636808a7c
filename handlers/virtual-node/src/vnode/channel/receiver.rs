//! The receiving end of the channel over which a tunnel passes reports to its caller.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use staffetta_driver::tunnel::{NodeId, TunnelEvent};
use tokio::sync::Notify;

use super::queue::NodeQueues;

/// The channel of a tunnel, which the sender and the receiver share.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) state: Mutex<ChannelState>,
    /// Notified when an event was added, or the last sender was dropped.
    pub(super) arrived: Notify,
}

impl Channel {
    /// Locks the queues and the flags of both ends.
    pub(super) fn state(&self) -> MutexGuard<'_, ChannelState> {
        // Each critical section leaves the queues consistent.
        self.state.lock()
    }
}

/// The queued events, and the flags of both ends of the channel.
#[derive(Debug)]
pub(super) struct ChannelState {
    /// The queued events, by node.
    pub(super) queues: NodeQueues,
    /// `true` until the last sender is dropped.
    pub(super) senders: bool,
    /// `true` until the receiver is dropped.
    pub(super) receiver: bool,
}

/// Receives the reports and answers of machines. Dropping it discards the queued events; later sends fail with
/// [`SendError::Closed`](staffetta_driver::tunnel::SendError::Closed).
#[derive(Debug)]
pub struct TunnelReceiver(pub(super) Arc<Channel>);

impl TunnelReceiver {
    /// Returns the next event with its node, serving the nodes round-robin; `None` once all senders are dropped and no
    /// event is queued. Nothing is lost if the returned future is dropped.
    pub async fn recv(&mut self) -> Option<(NodeId, TunnelEvent)> {
        loop {
            {
                let mut state = self.0.state();
                let next = state.queues.pop();
                if next.is_some() || !state.senders {
                    return next;
                }
            }
            self.0.arrived.notified().await;
        }
    }

    /// Reserves one of the [`TunnelLimits::nodes`](super::TunnelLimits::nodes) for a node until [`release`](Self::release).
    /// Called for each node that exists, so that the reports of other machines cannot displace it.
    pub fn keep(&self, node: &NodeId) {
        self.0.state().queues.keep(node);
    }

    /// Ends the reservation of a node that no longer exists.
    pub fn release(&self, node: &NodeId) {
        self.0.state().queues.release(node);
    }
}

impl Drop for TunnelReceiver {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.receiver = false;
        state.queues.clear();
    }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::tunnel::{
        BASELINE_TIMEOUT, BaselineError, MAX_TUNNEL_DATA, NodeDescription, NodeId, NodeStatusData,
        QueryBaselineRequest, SendError, TunnelEvent,
    };

    use super::super::{TunnelLimits, channel};

    fn base() -> NodeId {
        "base-1".parse().unwrap()
    }

    #[test]
    fn the_data_of_a_tunnel_is_limited() {
        let (sender, _receiver) = channel(TunnelLimits::default());
        let discover = |size: usize| {
            let data = serde_json::json!({ "x": "y".repeat(size - r#"{"x":""}"#.len()) });
            let node = serde_json::json!({ "metadata": { "status": "activated" }, "tunnel_data": data });
            sender.node_discovered(&base(), serde_json::from_value::<NodeDescription>(node).unwrap())
        };
        assert_eq!(discover(MAX_TUNNEL_DATA), Ok(()));
        let bytes = MAX_TUNNEL_DATA + 1;
        assert_eq!(discover(bytes), Err(SendError::TooMuchTunnelData { bytes }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_is_answered_with_what_the_receiver_says_even_if_that_is_nothing() {
        let (sender, mut receiver) = channel(TunnelLimits::default());
        let asking =
            tokio::spawn(
                async move { sender.query_baseline(&base(), QueryBaselineRequest::default()).await },
            );
        let Some((_, TunnelEvent::BaselineQuery(query))) = receiver.recv().await else { panic!("no query") };
        query.answer(Vec::new());
        assert!(asking.await.unwrap().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_without_an_answer_is_an_error_and_never_an_empty_list() {
        let (sender, mut receiver) = channel(TunnelLimits::default());
        let base = base();
        let ask = || sender.query_baseline(&base, QueryBaselineRequest::default());
        let asked = tokio::time::Instant::now();
        assert!(matches!(ask().await, Err(BaselineError::TimedOut)));
        assert_eq!(asked.elapsed(), BASELINE_TIMEOUT);
        let Some((_, TunnelEvent::BaselineQuery(late))) = receiver.recv().await else { panic!("no query") };
        assert!(late.is_abandoned());
        let (answer, ()) = tokio::join!(ask(), async { drop(receiver.recv().await) });
        assert!(matches!(answer, Err(BaselineError::Unanswered)));
        drop(receiver);
        assert!(matches!(ask().await, Err(BaselineError::Send(SendError::Closed))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_that_waits_fails_when_the_receiver_goes() {
        let (sender, receiver) = channel(TunnelLimits::default());
        let base = base();
        let asking = sender.query_baseline(&base, QueryBaselineRequest::default());
        let (answer, ()) = tokio::join!(asking, async { drop(receiver) });
        assert!(matches!(answer, Err(BaselineError::Unanswered)));
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_were_sent_before_the_last_sender_went_are_received() {
        let (sender, mut receiver) = channel(TunnelLimits::default());
        let other = sender.clone();
        drop(sender);
        let waiting =
            tokio::spawn(async move { (receiver.recv().await.is_some(), receiver.recv().await.is_some()) });
        tokio::task::yield_now().await;
        other.node_status(&base(), NodeStatusData::default()).unwrap();
        drop(other);
        assert_eq!(waiting.await.unwrap(), (true, false));
    }

    #[test]
    fn a_report_of_too_many_containers_is_rejected() {
        use staffetta_driver::tunnel::{
            ContainerState, ContainerStatusData, MAX_REPORTED_CONTAINERS, PodKey,
        };
        let (sender, _receiver) = channel(TunnelLimits::default());
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        let status = ContainerStatusData {
            key: "cart:1".into(),
            name: "cart".into(),
            pod_key: PodKey::All,
            state: ContainerState::Activated,
            change_time: time,
            reason: String::new(),
            message: String::new(),
        };
        let report = |count| sender.all_container_statuses(&base(), vec![status.clone(); count]);
        assert_eq!(report(MAX_REPORTED_CONTAINERS), Ok(()));
        let count = MAX_REPORTED_CONTAINERS + 1;
        assert_eq!(report(count), Err(SendError::TooManyContainers { count }));
    }
}
