//! The containers on one base: their reported states, and the operations in progress. Without I/O.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use staffetta_driver::tunnel::{
    ContainerOperationResponseData, ContainerState, ContainerStatusData, PodKey, UNKNOWN_STATE,
};
use staffetta_driver::{ContainerKey, Owner, RequestLog};
use tokio::time::Instant;

use super::operation::ContainerAction;
use super::tracker::{OperationOutcome, TrackedOperation};
use failure::{MAX_DELAY, OperationFailure};
use pending::{OperationEnd, PendingOperation};
use starts::Starts;
pub(super) use step::ContainerStep;

mod failure;
mod pending;
mod starts;
mod step;

/// The delay before a container is looked at again in whose place another version runs.
const SUPERSEDED_DELAY: Duration = Duration::from_secs(30);

/// The containers on one base, by key.
#[derive(Debug)]
pub(super) struct BaseContainers {
    /// The time after which an operation without an answer counts as failed.
    limit: Duration,
    /// `true` once the base has reported its containers. Nothing is started or stopped before.
    reported: bool,
    /// `true` once this process is about to give the base up. Nothing is started or stopped after that.
    closed: bool,
    by_key: HashMap<ContainerKey, BaseContainer>,
}

/// One container on a base.
#[derive(Debug, Default)]
struct BaseContainer {
    /// The state, as of the last report; `None` if the base does not have the container.
    shown: Option<ReportedContainer>,
    /// The image with which this process has started or found the container; `None` if it is not known.
    image: Option<String>,
    /// The operation in progress; `None` if there is none.
    operation: Option<PendingOperation>,
    /// The last failed operation; `None` if none has failed since the container was last started, found to run as its pod wants it, or
    /// found to be gone when no pod wants it.
    failure: Option<OperationFailure>,
    /// The recent starts by this process; `None` if there were none, or if a pod has since stopped wanting the container or wants another
    /// image.
    starts: Option<Starts>,
    /// The container that the base has started by mistake, instead of another one, and the time of its answer; `None` if it has not.
    mistaken: Option<(Container, Instant)>,
    /// The last pod on the node that had the container at the time of a report; `None` if none had. It is recorded only if containers
    /// without a pod are to be stopped.
    pod: Option<Arc<Pod>>,
    /// The time since which reports have shown the container although no pod on the node has it; `None` if a pod has it, or if the last
    /// report does not contain the container or shows it as stopped. Like `pod`, it is recorded only if such containers are to be stopped.
    unclaimed_since: Option<Instant>,
}

/// The state of a container, as its base reports it.
#[derive(Clone, Debug)]
pub(super) struct ReportedContainer {
    /// The state of the module: activated, broken, stopped and so on.
    pub(super) state: ContainerState,
    /// The pod to which the container belongs, according to the base; [`PodKey::All`] if it may belong to any pod.
    pub(super) pod_key: PodKey,
    /// The reason of the last change of the state: one word, or empty.
    pub(super) reason: String,
    /// The message about the last change of the state, or empty.
    pub(super) message: String,
    /// The time at which this process first observed the state.
    since: Instant,
    /// The time of the last report, which shows the state.
    reported: Instant,
    /// The time of the last change of the state, by the clock of the base.
    changed: Timestamp,
    /// `true` if the last report had an older change of the state, which was ignored.
    overtook: bool,
}

/// Another version of a container, which a living pod on the node has, too.
#[derive(Debug)]
pub(super) struct Rival {
    /// The key of the other version.
    pub(super) key: ContainerKey,
    /// The age of its pod, compared with that of the pod in question: `Greater` if its pod is younger.
    pub(super) youth: Ordering,
}

impl BaseContainers {
    /// Creates the containers of a base that has not reported any yet. An operation without an answer fails after `limit`.
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, reported: false, closed: false, by_key: HashMap::new() }
    }

    /// Returns the state of a container; `None` if the base does not have it.
    pub(super) fn shown(&self, key: &ContainerKey) -> Option<&ReportedContainer> {
        self.by_key.get(key)?.shown.as_ref()
    }

    /// Returns `true` if the base shows that the container runs.
    pub(super) fn is_active(&self, key: &ContainerKey) -> bool {
        self.shown(key).is_some_and(|shown| shown.state == ContainerState::Activated)
    }

    /// Returns `true` if the base has the container for another pod, and no operation on it is in progress.
    pub(super) fn is_of_another(&self, key: &ContainerKey, pod: &PodKey) -> bool {
        let Some(container) = self.by_key.get(key).filter(|container| container.operation.is_none()) else {
            return false;
        };
        let shown = container.shown.as_ref().filter(|shown| shown.state != ContainerState::Stopped);
        shown.is_some_and(|shown| !shown.is_of(pod))
    }

    /// Returns `true` if the last operation on the container was lost: nobody knows that it failed.
    pub(super) fn is_lost(&self, key: &ContainerKey) -> bool {
        self.by_key.get(key).and_then(|of| of.failure.as_ref()).is_some_and(|failure| failure.lost)
    }

    /// Returns the other version in whose favour a container stays inactive; `None` if it is to run. The version of the youngest pod
    /// runs as soon as it is loaded. Of pods of one age, the version stays that runs.
    pub(super) fn superseded<'r>(&self, rivals: &'r [Rival]) -> Option<&'r Rival> {
        use ContainerState::{Activated, Deactivated, Resolved, Unresolved};
        rivals.iter().find(|rival| match self.shown(&rival.key).map(|shown| shown.state) {
            Some(Activated) => rival.youth.is_ge(),
            Some(Deactivated | Resolved | Unresolved) => rival.youth.is_gt(),
            _ => false,
        })
    }

    /// Returns the next step towards a container that runs with this image for the pod `pod`. `changed` is used if this process does not
    /// know with which image the container runs: `true` if other sources, such as the status of the pod, show another image. `rivals` are
    /// the other versions of the container on the node.
    pub(super) fn start(
        &mut self,
        key: &ContainerKey,
        (pod, image, changed): (&PodKey, &str, bool),
        rivals: &[Rival],
        now: Instant,
    ) -> ContainerStep {
        let superseded = self.superseded(rivals).map(|rival| rival.key.clone());
        let limit = self.limit;
        if let Some(wait) = self.obstacle() {
            return wait;
        }
        let container = self.by_key.entry(key.clone()).or_default();
        if let Some(operation) = &container.operation {
            return ContainerStep::Wait(operation.action.progress().to_owned());
        }
        let Some(shown) = &container.shown else { return container.attempt_start(image, now) };
        let failing = |reason: &str, message: String, after| ContainerStep::Failing {
            reason: reason.to_owned(),
            message,
            after,
        };
        if !shown.is_of(pod) && shown.state != ContainerState::Stopped {
            return failing(
                "ForeignContainer",
                format!("the base has it for another pod ({})", shown.pod_key),
                SUPERSEDED_DELAY,
            );
        }
        match shown.state {
            ContainerState::Activated => {
                let other = container.image.as_ref().map_or(changed, |known| known != image);
                if other {
                    // An image that is not known stays another one, whatever the status of the pod shows then.
                    container.image.get_or_insert_default();
                    container.starts = None;
                    return container.attempt(ContainerAction::Stop, now);
                }
                container.image = Some(image.to_owned());
                container.failure = None;
                ContainerStep::Done
            }
            ContainerState::Unresolved | ContainerState::Resolved if shown.may_load(limit) => {
                ContainerStep::Wait(format!("the base loads it ({})", shown.state))
            }
            ContainerState::Deactivated if shown.reason == UNKNOWN_STATE => failing(
                UNKNOWN_STATE,
                format!("it is left as the base has it ({})", shown.message),
                MAX_DELAY,
            ),
            ContainerState::Deactivated => match superseded {
                Some(other) => failing(
                    "Deactivated",
                    format!("{other} of a younger pod on this node runs instead"),
                    SUPERSEDED_DELAY,
                ),
                None => container.attempt(ContainerAction::Activate, now),
            },
            ContainerState::Stopped => container.attempt_start(image, now),
            ContainerState::Unresolved | ContainerState::Resolved | ContainerState::Broken => {
                container.attempt(ContainerAction::Stop, now)
            }
        }
    }

    /// Forgets the earlier starts of a container that a pod does not want any more, so that a start for another pod has no back-off.
    pub(super) fn forget_starts(&mut self, key: &ContainerKey) {
        if let Some(container) = self.by_key.get_mut(key) {
            container.starts = None;
        }
    }

    /// Returns the next step towards removing this container from the base.
    pub(super) fn stop(&mut self, key: &ContainerKey, now: Instant) -> ContainerStep {
        if let Some(wait) = self.obstacle() {
            return wait;
        }
        let Some(container) = self.by_key.get_mut(key) else { return ContainerStep::Done };
        if let Some(operation) = &container.operation {
            return ContainerStep::Wait(operation.action.progress().to_owned());
        }
        match &container.shown {
            // The former controller had it loaded. What is unloaded before that has ended may appear afterwards, when no pod has it any more.
            Some(shown) if shown.may_load(self.limit) => {
                ContainerStep::Wait(format!("the base loads it ({})", shown.state))
            }
            Some(shown) if shown.state != ContainerState::Stopped => {
                container.attempt(ContainerAction::Stop, now)
            }
            _ => {
                container.failure = None;
                ContainerStep::Done
            }
        }
    }

    /// Returns a wait step while no container may be started or stopped, otherwise `None`.
    fn obstacle(&self) -> Option<ContainerStep> {
        let wait = |text: &str| Some(ContainerStep::Wait(text.to_owned()));
        match (self.reported, self.closed) {
            (_, true) => wait("another replica is about to look after the base"),
            (false, _) => wait("waiting for the first report of the base"),
            _ => None,
        }
    }

    /// Prevents further operations on the base, unless one is in progress. Returns `true` if none is in progress.
    pub(super) fn close(&mut self) -> bool {
        let idle = self.under_way().next().is_none();
        self.closed = idle;
        idle
    }

    /// Records that an operation on the container `key` is being sent. `image` is the image of a start, and not used for others.
    pub(super) fn sending(&mut self, key: &ContainerKey, action: ContainerAction, image: &str, now: Instant) {
        let container = self.by_key.entry(key.clone()).or_default();
        container.operation = Some(PendingOperation::new(action, image, self.limit, now));
    }

    /// Sets the tracker's record of the operation on this container that is being sent. The record gets the outcome when the operation
    /// ends.
    pub(super) fn follow(&mut self, key: &ContainerKey, tracked: TrackedOperation) {
        if let Some(operation) = self.by_key.get_mut(key).and_then(|of| of.operation.as_mut()) {
            operation.tracked = Some(tracked);
        }
    }

    /// Returns the tracker's record of the operation in progress on this container; `None` if there is none.
    fn tracked(&self, key: &ContainerKey) -> Option<&TrackedOperation> {
        self.by_key.get(key)?.operation.as_ref()?.tracked.as_ref()
    }

    /// Returns the pod that requested the operation in progress on this container; `None` without a pod or an operation.
    pub(super) fn asked_by(&self, key: &ContainerKey) -> Option<Owner> {
        self.tracked(key)?.pod().cloned()
    }

    /// Records that the tunnel has taken the operation on this container that was being sent.
    pub(super) fn sent(&self, key: &ContainerKey) {
        self.tracked(key).inspect(|tracked| tracked.sent());
    }

    /// Returns the log of the requests of the operation in progress on this container or, without one, of the last one that failed; else an
    /// empty log.
    pub(super) fn requests(&self, key: &ContainerKey) -> Arc<RequestLog> {
        let container = self.by_key.get(key);
        let under_way = container.and_then(|of| of.operation.as_ref().map(|operation| &operation.requests));
        let failed = container.and_then(|of| of.failure.as_ref().map(|failure| &failure.requests));
        under_way.or(failed).cloned().unwrap_or_default()
    }

    /// Records that the tunnel did not take the operation on this container that was being sent: the operation has ended.
    pub(super) fn unsent(&mut self, key: &ContainerKey) {
        if let Some(mut operation) = self.by_key.get_mut(key).and_then(|of| of.operation.take()) {
            operation.end(OperationOutcome::Refused);
        }
    }

    /// Records the operations past their deadline as failed.
    pub(super) fn time_out(&mut self, now: Instant) {
        for container in self.by_key.values_mut() {
            if let Some(end) = container.operation.as_ref().and_then(|operation| operation.timed_out(now)) {
                container.end(end, now);
            }
        }
    }

    /// Ends all operations, whose outcomes will not be known, and prevents further ones.
    pub(super) fn abandon(&mut self) {
        self.closed = true;
        self.by_key.values_mut().for_each(|container| container.operation = None);
    }

    /// Records the answer to an operation, which ends with a report. Returns `false` if no such operation waits for an answer.
    pub(super) fn answered(
        &mut self,
        action: ContainerAction,
        answer: &ContainerOperationResponseData,
        now: Instant,
    ) -> bool {
        let operation = self.by_key.get_mut(&answer.container_key).and_then(|of| of.operation.as_mut());
        let is_for = |operation: &&mut PendingOperation| operation.action.answers_as() == action;
        operation.filter(is_for).is_some_and(|operation| operation.answered(answer, now))
    }

    /// Records that the base has started this container by mistake, when it was to start `instead_of`: it is to be stopped unless a pod
    /// has it.
    pub(super) fn mistaken(
        &mut self,
        (key, mut container): (ContainerKey, Container),
        instead_of: &ContainerKey,
        now: Instant,
    ) {
        let operation = self.by_key.get(instead_of).and_then(|of| of.operation.as_ref());
        container.image = operation.map(|operation| operation.image.clone());
        self.by_key.entry(key).or_default().mistaken = Some((container, now));
    }

    /// Records a report of all containers. An operation ends if the report shows its effect, although no answer arrived, or that it has none.
    pub(super) fn report(&mut self, statuses: Vec<ContainerStatusData>, now: Instant) {
        self.reported = true;
        let mut newest: HashMap<ContainerKey, ContainerStatusData> = HashMap::with_capacity(statuses.len());
        for status in statuses {
            match newest.get(&status.key) {
                Some(known) if known.change_time.0 > status.change_time.0 => {}
                _ => drop(newest.insert(status.key.clone(), status)),
            }
        }
        for key in newest.keys() {
            self.by_key.entry(key.clone()).or_default();
        }
        self.by_key.retain(|key, container| {
            container.reported(newest.remove(key), now);
            container.shown.is_some()
                || container.mistaken.is_some()
                || container.operation.is_some()
                || container.failure.is_some()
                || container.starts.as_ref().is_some_and(|starts| starts.still_count_at(now))
        });
    }

    /// Returns the containers that reports have shown for `grace` although no pod on the node has them, each with the last pod
    /// that had it in an earlier call (`None` if none had); without a `grace`, none of these. `claimed` has the containers of the pods on
    /// the node. Those that were started by mistake have no grace, and are returned with their container.
    pub(super) fn unclaimed(
        &mut self,
        claimed: &HashMap<ContainerKey, (Arc<Pod>, PodKey)>,
        grace: Option<Duration>,
        now: Instant,
    ) -> Vec<(ContainerKey, Option<Arc<Pod>>, Option<Container>)> {
        let mut unclaimed = Vec::new();
        for (key, container) in &mut self.by_key {
            let is_there =
                container.shown.as_ref().is_some_and(|shown| shown.state != ContainerState::Stopped);
            let claimant = claimed.get(key);
            if let Some((pod, pod_key)) = claimant {
                container.mistaken = None;
                if container.shown.as_ref().is_none_or(|shown| shown.is_of(pod_key)) {
                    container.pod = grace.map(|_| Arc::clone(pod));
                }
            }
            if !is_there || claimant.is_some() {
                container.unclaimed_since = None;
            } else if container.mistaken.is_some()
                || grace.is_some_and(|grace| now >= *container.unclaimed_since.get_or_insert(now) + grace)
            {
                unclaimed.push((
                    key.clone(),
                    container.pod.clone(),
                    container.mistaken.clone().map(|(of, _)| of),
                ));
            }
        }
        unclaimed
    }

    /// Returns the operations in progress, each with the key of its container.
    pub(super) fn under_way(&self) -> impl Iterator<Item = (&ContainerKey, ContainerAction)> {
        self.by_key.iter().filter_map(|(key, container)| Some((key, container.operation.as_ref()?.action)))
    }
}

impl BaseContainer {
    /// Returns the step to send the operation or, after a failure, to wait until the back-off ends.
    fn attempt(&self, action: ContainerAction, now: Instant) -> ContainerStep {
        match &self.failure {
            Some(failure) if now < failure.retry_at => ContainerStep::Failing {
                reason: failure.reason.clone(),
                message: failure.message.clone(),
                after: failure.retry_at - now,
            },
            _ => ContainerStep::Send(action),
        }
    }

    /// Returns the step to start the container or, if it does not stay loaded, to wait until the back-off ends.
    fn attempt_start(&self, image: &str, now: Instant) -> ContainerStep {
        match self.starts.as_ref().and_then(|starts| starts.delay(image, now)) {
            Some((count, after)) => ContainerStep::Failing {
                reason: "CrashLoopBackOff".to_owned(),
                message: format!("the base has started it {count} times, and it did not stay loaded"),
                after,
            },
            None => self.attempt(ContainerAction::Start, now),
        }
    }

    /// Records that an operation has started the container with this image.
    fn started(&mut self, image: String, now: Instant) {
        self.starts = Some(Starts::after(self.starts.take(), &image, now));
        (self.image, self.failure) = (Some(image), None);
    }

    /// Records the end of the operation in progress. After a failure, the next attempt follows after a back-off.
    fn end(&mut self, end: OperationEnd, now: Instant) {
        let Some(mut operation) = self.operation.take() else { return };
        match end {
            OperationEnd::Done(outcome) => {
                operation.end(outcome);
                match operation.action {
                    ContainerAction::Start => self.started(operation.image, now),
                    ContainerAction::Activate => self.failure = None,
                    // What is stopped because its start failed is started again at once, and remembers the failure.
                    ContainerAction::Stop => {
                        if let Some(failure) = &mut self.failure {
                            failure.retry_at = now;
                        }
                    }
                }
            }
            OperationEnd::Failed { reason, message, lost } => {
                operation.end(OperationOutcome::Failure);
                let count = self.failure.as_ref().map_or(0, |failure| failure.count);
                let failure = OperationFailure::new(count, &reason, &message, operation.requests, now);
                self.failure = Some(OperationFailure { lost, ..failure });
            }
        }
    }

    /// Records the status of this container in a report; `None` if the report does not contain the container. The operation in progress
    /// ends if the status shows its effect, or that it has none.
    fn reported(&mut self, status: Option<ContainerStatusData>, now: Instant) {
        // A status that is older than the known one was overtaken, unless the next report repeats it: then the clock was set back.
        if let Some((known, status)) = self.shown.as_mut().zip(status.as_ref())
            && status.change_time.0.as_second() < known.changed.as_second()
            && !std::mem::replace(&mut known.overtook, true)
        {
            return;
        }
        let known = self.shown.take();
        let before = known.as_ref().map(|known| known.state);
        self.shown = status.map(|status| ReportedContainer {
            since: known.filter(|known| known.state == status.state).map_or(now, |known| known.since),
            reported: now,
            state: status.state,
            pod_key: status.pod_key,
            reason: status.reason,
            message: status.message,
            changed: status.change_time.0,
            overtook: false,
        });
        let state =
            self.shown.as_ref().map(|shown| shown.state).filter(|state| *state != ContainerState::Stopped);
        let loaded = matches!(state, Some(ContainerState::Activated | ContainerState::Deactivated));
        if loaded && state != before {
            // Whatever failed, it is there.
            self.failure = None;
        }
        if let Some(end) = self.operation.as_mut().and_then(|operation| operation.observed(state, now)) {
            self.end(end, now);
        }
        if state.is_none() {
            self.image = None;
            // The report may be from before the answer.
            self.mistaken.take_if(|(_, answered)| now >= *answered + pending::REPORT_DELAY);
        }
    }
}

impl ReportedContainer {
    /// Returns `true` if the base loads the container, unless a report shows that this takes longer than `limit`. Without a report, it may
    /// have been loaded since.
    fn may_load(&self, limit: Duration) -> bool {
        matches!(self.state, ContainerState::Unresolved | ContainerState::Resolved)
            && self.reported < self.since + limit
    }

    /// Returns `true` unless the base has the container for another pod.
    pub(super) fn is_of(&self, pod: &PodKey) -> bool {
        self.pod_key == PodKey::All || self.pod_key == *pod
    }
}

#[cfg(test)]
mod tests;
