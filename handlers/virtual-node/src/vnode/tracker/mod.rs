//! Follows each operation on the modules of bases: when it was asked for, sent and ended, and which ones are stuck.
//!
//! | module | content |
//! |---|---|
//! | `open` | the operations in progress, without I/O |
//! | [`EndedOperation`] | an operation that ended, with its outcome and its time, for metrics |
//! | [`OperationTracker`] | follows operations, and reports stuck ones as Events |

mod ended;
mod open;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use staffetta_driver::Owner;
use staffetta_handler::{EventNote, Recorder};
use tokio::time::Instant;
use tracing::debug;

pub use self::ended::{EndedOperation, OperationOutcome};
use self::open::OpenOperations;
use super::{ContainerAction, HANDLER, Operation};
use crate::triggers::{node_identity, pod_identity};

/// The reason of the Event about a stuck operation.
pub(crate) const STUCK: &str = "OperationStuck";

/// The times after which operations on modules count as stuck and are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackerPolicy {
    /// The time since its request after which an operation counts as stuck. Default: 60 s.
    pub stuck_after: Duration,
    /// The time after which a stuck operation is reported again. Default: 10 min.
    pub repeat_after: Duration,
    /// The interval between two searches for stuck operations. Default: 15 s.
    pub inspection_interval: Duration,
}

impl Default for TrackerPolicy {
    fn default() -> Self {
        Self {
            stuck_after: Duration::from_secs(60),
            repeat_after: Duration::from_secs(600),
            inspection_interval: Duration::from_secs(15),
        }
    }
}

/// Tracks the operations (start, activate or stop) on the modules of bases until they end, and reports stuck ones. Clones share the operations.
#[derive(Clone)]
pub struct OperationTracker(Arc<Tracked>);

/// The content of an [`OperationTracker`].
struct Tracked {
    open: Mutex<OpenOperations>,
    /// The function that is called for each operation that ends, for metrics.
    ended: Box<dyn Fn(&EndedOperation) + Send + Sync>,
    recorder: Recorder,
    policy: TrackerPolicy,
}

impl OperationTracker {
    /// Creates a tracker without operations. It calls `ended`, which must not block, for each operation that ends, and reports stuck ones
    /// to `recorder`.
    pub fn new(
        policy: TrackerPolicy,
        recorder: Recorder,
        ended: impl Fn(&EndedOperation) + Send + Sync + 'static,
    ) -> Self {
        let (open, ended) = (Mutex::default(), Box::new(ended));
        Self(Arc::new(Tracked { open, ended, recorder, policy }))
    }

    /// Begins to follow an operation: the tunnel is about to be called.
    pub(super) fn begin(&self, operation: Operation) -> TrackedOperation {
        let operation = Arc::new(operation);
        let id = self.0.open.lock().begin(Arc::clone(&operation), Instant::now());
        TrackedOperation { id, operation, tracker: self.clone() }
    }

    /// Returns the number of operations in progress by tunnel and action, and how many of them are stuck.
    pub fn under_way(&self) -> Vec<(Arc<str>, ContainerAction, [u64; 2])> {
        self.0.open.lock().counts(Instant::now(), self.0.policy.stuck_after)
    }

    /// Reports stuck operations as Events on their pods, or on the node if there is no pod, until the returned future is dropped.
    pub async fn inspect(&self) -> Infallible {
        let mut ticks = tokio::time::interval(self.0.policy.inspection_interval);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            let TrackerPolicy { stuck_after, repeat_after, .. } = self.0.policy;
            let stuck = self.0.open.lock().stuck(now, stuck_after, repeat_after);
            for (operation, text) in stuck {
                let node = || node_identity(&operation.node);
                let regarding = operation.pod.as_ref().map_or_else(node, pod_identity);
                let note = EventNote { handler: HANDLER, regarding, warning: true, reason: STUCK, text };
                self.0.recorder.record(note);
            }
        }
    }
}

/// An operation in progress. It ends with an [outcome](Self::end); one that is dropped without is [`OperationOutcome::Abandoned`].
pub(super) struct TrackedOperation {
    id: u64,
    operation: Arc<Operation>,
    tracker: OperationTracker,
}

impl TrackedOperation {
    /// Returns the pod that requested the operation; `None` if no pod did.
    pub(super) fn pod(&self) -> Option<&Owner> {
        self.operation.pod.as_ref()
    }

    /// Records that the tunnel has taken the request.
    pub(super) fn sent(&self) {
        self.tracker.0.open.lock().sent(self.id, Instant::now());
    }

    /// Ends the operation with this outcome.
    pub(super) fn end(self, outcome: OperationOutcome) {
        self.record(outcome);
    }

    /// Ends the operation if it has not ended: logs the outcome, and passes it on to the function `ended` of the tracker.
    fn record(&self, outcome: OperationOutcome) {
        let Tracked { open, ended: receiver, .. } = &*self.tracker.0;
        let ended = open.lock().end(self.id, outcome, Instant::now());
        if let Some(ended) = ended {
            let Operation { tunnel, base, node, pod, key, action } = &*ended.operation;
            let (namespace, name) = pod.as_ref().map(|pod| (&*pod.namespace, &*pod.name)).unzip();
            debug!(handler = HANDLER, %tunnel, %base, %node, namespace, name, uid = pod.as_ref().map(|pod| pod.uid.as_str()), module = %key,
                action = action_name(*action), outcome = ended.outcome.name(), code = ended.code(), took_s = ended.took.as_secs_f64(),
                since_sent_s = ended.since_sent.map(|time| time.as_secs_f64()), "an operation on a module ended");
            receiver(&ended);
        }
    }
}

impl Drop for TrackedOperation {
    fn drop(&mut self) {
        self.record(OperationOutcome::Abandoned);
    }
}

impl std::fmt::Debug for TrackedOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.operation.fmt(f)
    }
}

/// Returns the value of the label `action` of metrics: `start`, `activate` or `stop`.
pub fn action_name(action: ContainerAction) -> &'static str {
    match action {
        ContainerAction::Start => "start",
        ContainerAction::Activate => "activate",
        ContainerAction::Stop => "stop",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Records the text of each Event.
    #[derive(Clone, Default)]
    pub(in crate::vnode) struct Texts(pub(in crate::vnode) Arc<Mutex<Vec<String>>>);

    impl Texts {
        pub(in crate::vnode) fn recorder(&self) -> Recorder {
            let texts = Arc::clone(&self.0);
            Recorder::new(move |note| {
                texts.lock().push(format!("{} {} {}", note.regarding.name, note.reason, note.text));
            })
        }
    }

    pub(super) fn operation(key: &str, action: ContainerAction) -> Operation {
        let pod = Some(Owner { namespace: "default".into(), name: "web".into(), uid: "u".into() });
        let (base, node) = ("b-1".parse().unwrap(), "vnode.b-1.dev".into());
        Operation { tunnel: "http".into(), base, node, pod, key: key.into(), action }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_operation_is_one_event_until_it_is_repeated_much_later() {
        let texts = Texts::default();
        let policy = TrackerPolicy::default();
        let tracker = OperationTracker::new(policy, texts.recorder(), |_| {});
        let inspecting = tracker.clone();
        let inspection = tokio::spawn(async move { inspecting.inspect().await });
        let cart = tracker.begin(operation("cart:1", ContainerAction::Start));
        cart.sent();
        tracker.begin(operation("quick:1", ContainerAction::Stop)).end(OperationOutcome::Observed);
        tokio::time::sleep(policy.stuck_after / 2).await;
        assert!(texts.0.lock().is_empty() && tracker.under_way().len() == 1);
        tokio::time::sleep(policy.repeat_after).await;
        let reported = texts.0.lock().clone();
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(
            reported[0].starts_with("web OperationStuck ") && reported[0].contains("cart:1"),
            "{reported:?}"
        );
        assert_eq!(tracker.under_way(), [("http".into(), ContainerAction::Start, [1, 1])]);
        tokio::time::sleep(policy.repeat_after).await;
        assert_eq!(texts.0.lock().len(), 2);
        drop(cart);
        tokio::time::sleep(policy.repeat_after * 2).await;
        assert!(texts.0.lock().len() == 2 && tracker.under_way().is_empty());
        inspection.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_operation_that_no_pod_requested_is_an_event_on_its_node() {
        let texts = Texts::default();
        let tracker = OperationTracker::new(TrackerPolicy::default(), texts.recorder(), |_| {});
        let _cart = tracker.begin(Operation { pod: None, ..operation("cart:1", ContainerAction::Stop) });
        let _ = tokio::time::timeout(Duration::from_secs(90), tracker.inspect()).await;
        let reported = texts.0.lock().clone();
        assert!(
            reported.len() == 1 && reported[0].starts_with("vnode.b-1.dev OperationStuck "),
            "{reported:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_an_operation_is_passed_on_once() {
        let ends = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&ends);
        let tracker = OperationTracker::new(TrackerPolicy::default(), Recorder::silent(), move |ended| {
            seen.lock().push((ended.outcome.name(), ended.code(), ended.took));
        });
        let [cart, dropped] =
            ["cart:1", "other:1"].map(|key| tracker.begin(operation(key, ContainerAction::Start)));
        tokio::time::sleep(Duration::from_secs(2)).await;
        cart.end(OperationOutcome::Refused);
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(dropped);
        let expected =
            [("refused", Some("01002"), Duration::from_secs(2)), ("abandoned", None, Duration::from_secs(3))];
        assert_eq!(*ends.lock(), expected);
    }
}
