//! The containers on one base: their reported states, and the operations in progress. Without I/O.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::tunnel::{
    ContainerOperationResponseData, ContainerState, ContainerStatusData, OperationResponseResult, PodKey,
};
use staffetta_driver::{ContainerKey, Owner, RequestLog};
use tokio::time::Instant;

use super::operation::ContainerAction;
use super::tracker::{OperationOutcome, TrackedOperation};
use failure::{MAX_DELAY, OperationFailure};
use starts::Starts;
pub(super) use step::ContainerStep;

mod failure;
mod starts;
mod step;

/// The time after the answer to an operation during which contradicting reports are ignored: they may be from before the operation.
const STALE_REPORT_WINDOW: Duration = Duration::from_secs(5);

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
    /// The state, as of the last report or answer; `None` if the base does not have the container.
    shown: Option<ReportedContainer>,
    /// The image with which this process has started or found the container; `None` if it is not known.
    image: Option<String>,
    /// The start or stop in progress; `None` if there is none.
    operation: Option<PendingOperation>,
    /// The last failed operation; `None` if none has failed since the container was last started, found to run as its pod wants it, or
    /// found to be gone when no pod wants it.
    failure: Option<OperationFailure>,
    /// The recent starts by this process; `None` if there were none, or if a pod has since stopped wanting the container or wants another
    /// image.
    starts: Option<Starts>,
    /// The time until which reports that contradict the last answer are ignored; `None` if no report is ignored.
    ignored_until: Option<Instant>,
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
}

/// An operation (start or stop) on a container that was sent, or is being sent, and has not ended.
#[derive(Debug)]
struct PendingOperation {
    action: ContainerAction,
    /// The image with which the container is started. Not used if it is stopped.
    image: String,
    deadline: Instant,
    requests: Arc<RequestLog>,
    /// The record of the operation in the tracker; `None` until it is [followed](BaseContainers::follow).
    tracked: Option<TrackedOperation>,
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

    /// Returns the next step towards a container that runs with this image. `changed` is used if this process does not know with which
    /// image the container runs: `true` if other sources, such as the status of the pod, show another image.
    pub(super) fn start(
        &mut self,
        key: &ContainerKey,
        image: &str,
        changed: bool,
        now: Instant,
    ) -> ContainerStep {
        let limit = self.limit;
        if let Some(wait) = self.obstacle() {
            return wait;
        }
        let container = self.by_key.entry(key.clone()).or_default();
        if let Some(operation) = &container.operation {
            return ContainerStep::Wait(operation.action.progress().to_owned());
        }
        let Some(shown) = &container.shown else { return container.attempt_start(image, now) };
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
            ContainerState::Unresolved | ContainerState::Resolved if now < shown.since + limit => {
                ContainerStep::Wait(format!("the base loads it ({})", shown.state))
            }
            // Whoever deactivated it wants that, such as the operator, or another version that took its place. Tunnels also report a
            // container in a state that they do not know as deactivated.
            ContainerState::Deactivated => {
                let why = if shown.message.is_empty() { "deactivated" } else { &shown.message };
                ContainerStep::Failing {
                    reason: "Deactivated".to_owned(),
                    message: format!(
                        "it is left as the base has it ({why}); activate it there, or delete the pod"
                    ),
                    after: MAX_DELAY,
                }
            }
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

    /// Records that an operation on the container `key` is being sent. `image` is the image of a start, and not used for a stop.
    pub(super) fn sending(&mut self, key: &ContainerKey, action: ContainerAction, image: &str, now: Instant) {
        let deadline = now + self.limit;
        let container = self.by_key.entry(key.clone()).or_default();
        let (image, requests) = (image.to_owned(), Arc::default());
        container.operation = Some(PendingOperation { action, image, deadline, requests, tracked: None });
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
        let message = format!("the base did not answer within {} s", self.limit.as_secs());
        for container in self.by_key.values_mut() {
            let operation = container.operation.take_if(|operation| operation.deadline <= now);
            if let Some(mut operation) = operation {
                operation.end(OperationOutcome::Failure);
                container.fail("OperationTimedOut", &message, operation.requests, now);
            }
        }
    }

    /// Ends all operations, whose outcomes will not be known, and prevents further ones.
    pub(super) fn abandon(&mut self) {
        self.closed = true;
        self.by_key.values_mut().for_each(|container| container.operation = None);
    }

    /// Records the answer to an operation. Returns `false` if no such operation is in progress.
    pub(super) fn answered(
        &mut self,
        action: ContainerAction,
        answer: &ContainerOperationResponseData,
        now: Instant,
    ) -> bool {
        let Some(container) = self.by_key.get_mut(&answer.container_key) else { return false };
        let Some(mut operation) = container.operation.take_if(|operation| operation.action == action) else {
            return false;
        };
        if answer.result == OperationResponseResult::Fail {
            operation.end(OperationOutcome::Failure);
            container.ignored_until = None;
            container.fail(&answer.reason, &answer.message, operation.requests, now);
            return true;
        }
        operation.end(OperationOutcome::Success);
        container.ignored_until = Some(now + STALE_REPORT_WINDOW);
        match action {
            ContainerAction::Start => {
                container.shown = Some(ReportedContainer {
                    state: ContainerState::Activated,
                    pod_key: PodKey::All,
                    reason: String::new(),
                    message: String::new(),
                    since: now,
                });
                container.started(operation.image, now);
            }
            ContainerAction::Stop => {
                (container.shown, container.image) = (None, None);
                // What is stopped because its start failed is started again at once, and remembers the failure.
                if let Some(failure) = &mut container.failure {
                    failure.retry_at = now;
                }
            }
        }
        true
    }

    /// Records a report of all containers. An operation ends if the report shows its effect, although no answer arrived.
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
            // A later report may contradict the last answer, too.
            let ignores_reports = container.ignored_until.is_some_and(|until| now < until);
            ignores_reports
                || container.shown.is_some()
                || container.operation.is_some()
                || container.failure.is_some()
                || container.starts.as_ref().is_some_and(|starts| starts.still_count_at(now))
        });
    }

    /// Returns the containers that reports have shown for `grace` although no pod on the node has them, each with the last pod
    /// that had it in an earlier call (`None` if none had). `claimed` has the containers of the pods on the node.
    pub(super) fn unclaimed(
        &mut self,
        claimed: &HashMap<ContainerKey, Arc<Pod>>,
        grace: Duration,
        now: Instant,
    ) -> Vec<(ContainerKey, Option<Arc<Pod>>)> {
        let mut unclaimed = Vec::new();
        for (key, container) in &mut self.by_key {
            let is_there =
                container.shown.as_ref().is_some_and(|shown| shown.state != ContainerState::Stopped);
            let claimant = claimed.get(key);
            if let Some(pod) = claimant {
                container.pod = Some(Arc::clone(pod));
            }
            if !is_there || claimant.is_some() {
                container.unclaimed_since = None;
            } else if now >= *container.unclaimed_since.get_or_insert(now) + grace {
                unclaimed.push((key.clone(), container.pod.clone()));
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

    /// Records a failure of an operation. The next attempt follows after a back-off.
    fn fail(&mut self, reason: &str, message: &str, requests: Arc<RequestLog>, now: Instant) {
        let count = self.failure.as_ref().map_or(0, |failure| failure.count);
        self.failure = Some(OperationFailure::new(count, reason, message, requests, now));
    }

    /// Records the status of this container in a report; `None` if the report does not contain the container. The operation in progress
    /// ends if the status shows its effect.
    fn reported(&mut self, status: Option<ContainerStatusData>, now: Instant) {
        let shown = status.map(|status| ReportedContainer {
            since: self
                .shown
                .as_ref()
                .filter(|known| known.state == status.state)
                .map_or(now, |known| known.since),
            state: status.state,
            pod_key: status.pod_key,
            reason: status.reason,
            message: status.message,
        });
        let state = |shown: &Option<ReportedContainer>| {
            shown.as_ref().map(|shown| shown.state).filter(|state| *state != ContainerState::Stopped)
        };
        // A report that was on its way when the answer came.
        if self.ignored_until.is_some_and(|until| now < until) && state(&shown) != state(&self.shown) {
            return;
        }
        self.ignored_until = None;
        let state = state(&shown);
        let done = self.operation.take_if(|operation| match operation.action {
            ContainerAction::Start => state == Some(ContainerState::Activated),
            ContainerAction::Stop => state.is_none(),
        });
        if state.is_none() {
            self.image = None;
        }
        self.shown = shown;
        if let Some(mut operation) = done {
            operation.end(OperationOutcome::Observed);
            if operation.action == ContainerAction::Start {
                self.started(operation.image, now);
            }
        }
    }
}

impl PendingOperation {
    /// Records the outcome of this operation in the tracker of operations, if it was added there.
    fn end(&mut self, outcome: OperationOutcome) {
        if let Some(tracked) = self.tracked.take() {
            tracked.end(outcome);
        }
    }
}

#[cfg(test)]
mod tests;
