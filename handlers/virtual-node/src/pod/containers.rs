//! The status of containers, computed from the observed state and the previous status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use staffetta_driver::app_hosting::{DeploymentStage, HostedContainer, HostedContainerState};

use super::observation::{Change, PodObservation};

/// The exit code of a container that disappeared, was replaced or was removed: that of a killed process, as kubelets report it.
const LOST: i32 = 137;

/// Returns the status of a container, from its state on the machine (`observed`) and its previous status (`before`), each `None` if there
/// is none. While a changed pod is being replaced or its change is refused, `image` stays that of the previous specification, so that a
/// process that starts later detects the change.
pub(super) fn container_status(
    container: &Container,
    observed: Option<&HostedContainer>,
    before: Option<&ContainerStatus>,
    observation: &PodObservation<'_>,
    now: Timestamp,
) -> ContainerStatus {
    let mut status = before.cloned().unwrap_or_default();
    let was = status.state.take().unwrap_or_default();
    status.name.clone_from(&container.name);
    if observation.change == Change::Nothing || status.image.is_empty() {
        status.image = container.image.clone().unwrap_or_default();
        status.image_id.clone_from(&status.image);
    }
    let seen = observed.map(|observed| &observed.state);
    let is_unknown =
        matches!(seen, Some(HostedContainerState::Waiting { stage: DeploymentStage::Unknown, .. }));
    let state = match seen {
        // A state that nobody knows says nothing about the end of the container.
        _ if is_unknown && was.waiting.is_none() && was != ContainerState::default() => was,
        // What ends while it is replaced was stopped for that.
        Some(HostedContainerState::Ended { .. } | HostedContainerState::Failed { .. })
            if observation.change == Change::UnderWay =>
        {
            if was.terminated.is_some() {
                was
            } else {
                waiting(&mut status, was, observation.why, observation.change, now)
            }
        }
        Some(HostedContainerState::Running) => running(&mut status, was, now),
        Some(HostedContainerState::Ended { message }) => ended_as(was, 0, "Completed", message, now),
        Some(HostedContainerState::Failed { reason, message }) => ended_as(was, 1, reason, message, now),
        Some(HostedContainerState::Waiting { stage, message }) => {
            waiting(&mut status, was, (stage.reason(), message), observation.change, now)
        }
        None => waiting(&mut status, was, observation.why, observation.change, now),
    };
    status.ready = state.running.is_some() && !is_unknown;
    status.started = Some(status.ready);
    status.container_id = observed.map(|observed| observed.id.clone()).or(status.container_id);
    status.state = Some(state);
    status
}

/// Returns the last status of a container that was removed from its machine: terminated, whatever its state was.
pub(super) fn removed(
    container: &Container,
    before: Option<&ContainerStatus>,
    now: Timestamp,
) -> ContainerStatus {
    let mut status = before.cloned().unwrap_or_default();
    let was = status.state.take().unwrap_or_default();
    status.name.clone_from(&container.name);
    status.image = container.image.clone().unwrap_or_default();
    status.image_id.clone_from(&status.image);
    (status.ready, status.started) = (false, Some(false));
    status.state = Some(if was.terminated.is_some() {
        was
    } else {
        let began = was.running.and_then(|running| running.started_at);
        ended(began, now, LOST, "Removed", "the pod was deleted")
    });
    status
}

/// Returns the state of a container that ended: its previous state `was` if that has the same exit code and reason, so that the time at
/// which the end was first observed is kept.
fn ended_as(
    was: ContainerState,
    exit_code: i32,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> ContainerState {
    let same = was.terminated.as_ref().is_some_and(|terminated| {
        terminated.exit_code == exit_code && terminated.reason.as_deref() == Some(reason)
    });
    if same {
        return was;
    }
    ended(was.running.and_then(|running| running.started_at), now, exit_code, reason, message)
}

/// Returns the state of a running container. The restart count is increased if the container had ended before.
fn running(status: &mut ContainerStatus, was: ContainerState, now: Timestamp) -> ContainerState {
    let ended_before = status.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
    let again = was.terminated.is_some() || (was.waiting.is_some() && ended_before);
    if was.terminated.is_some() {
        status.last_state = Some(ContainerState { terminated: was.terminated, ..ContainerState::default() });
    }
    status.restart_count = status.restart_count.saturating_add(i32::from(again));
    let started_at = was.running.and_then(|running| running.started_at).or(Some(Time(now)));
    ContainerState { running: Some(ContainerStateRunning { started_at }), ..ContainerState::default() }
}

/// Returns the state of a waiting container. If the container was running or had ended before, the end of that run is recorded
/// in `last_state`.
fn waiting(
    status: &mut ContainerStatus,
    was: ContainerState,
    (reason, message): (&str, &str),
    change: Change,
    now: Timestamp,
) -> ContainerState {
    if let Some(running) = was.running {
        status.last_state = Some(if change == Change::UnderWay {
            let text = "the pod changed; the container is being replaced";
            ended(running.started_at, now, LOST, "Replaced", text)
        } else {
            ended_unseen(running.started_at, now)
        });
    } else if was.terminated.is_some() {
        status.last_state = Some(was);
    }
    let waiting = ContainerStateWaiting { reason: filled(reason), message: filled(message) };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

/// Returns the state `terminated` of a container that ran from `began`, and that the machine has lost.
pub(super) fn ended_unseen(began: Option<Time>, now: Timestamp) -> ContainerState {
    ended(began, now, LOST, "ContainerStatusUnknown", "the container no longer exists on the machine")
}

/// Returns the state `terminated` of a container that ran from `began` to `now`.
fn ended(began: Option<Time>, now: Timestamp, exit_code: i32, reason: &str, message: &str) -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code,
        reason: Some(reason.to_owned()),
        message: filled(message),
        started_at: began,
        finished_at: Some(Time(now)),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

/// Returns the text; `None` if it is empty.
fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the exit code of a terminated container; `None` in any other state.
pub(super) fn exit_code(container: &ContainerStatus) -> Option<i32> {
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}
