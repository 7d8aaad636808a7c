//! The status of containers: the observed state, merged with the previous status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as Shown, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::sight::{Change, PodSight};
use crate::workload::{ContainerState, ObservedContainer};

/// The exit code of a container that disappeared: as if it had been killed, as kubelets report it.
const LOST: i32 = 137;

/// The status of a container. While the change of its pod is not complete, its image is the former one: by that a later process
/// knows what is still to be done.
pub(super) fn container_status(
    container: &Container,
    observed: Option<&ObservedContainer>,
    before: Option<&ContainerStatus>,
    sight: &PodSight<'_>,
    now: Timestamp,
) -> ContainerStatus {
    let mut status = before.cloned().unwrap_or_default();
    let was = status.state.take().unwrap_or_default();
    status.name.clone_from(&container.name);
    if sight.change == Change::Nothing || status.image.is_empty() {
        status.image = container.image.clone().unwrap_or_default();
        status.image_id.clone_from(&status.image);
    }
    let state = match observed.map(|observed| &observed.state) {
        Some(ContainerState::Running { since }) => running(&mut status, was, *since, now),
        Some(ContainerState::Ended { exit_code, reason, .. })
            if was.terminated.as_ref().is_some_and(|terminated| {
                terminated.exit_code == *exit_code && terminated.reason.as_deref() == Some(reason)
            }) =>
        {
            was
        }
        Some(ContainerState::Ended { exit_code, reason, message }) => {
            ended(was.running.and_then(|running| running.started_at), now, *exit_code, reason, message)
        }
        Some(ContainerState::Waiting { reason, message }) => {
            waiting(&mut status, was, (reason, message), sight.change, now)
        }
        None => waiting(&mut status, was, sight.why, sight.change, now),
    };
    status.ready = state.running.is_some();
    status.started = Some(status.ready);
    status.container_id = observed.map(|observed| observed.id.clone()).or(status.container_id);
    status.state = Some(state);
    status
}

/// The status of a container that was removed from its machine, whatever it did there.
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

/// A container that runs. It counts as restarted if it had ended, or if it started at another time than before.
fn running(status: &mut ContainerStatus, was: Shown, since: Option<Timestamp>, now: Timestamp) -> Shown {
    let ended_before = status.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
    let mut again = was.terminated.is_some() || (was.waiting.is_some() && ended_before);
    let mut started = was.running.and_then(|running| running.started_at);
    let other = started.as_ref().zip(since).is_some_and(|(at, since)| at.0.as_second() != since.as_second());
    if other {
        again = true;
        status.last_state = Some(ended(started.take(), now, 0, "Completed", "the container was restarted"));
    } else if was.terminated.is_some() {
        status.last_state = Some(Shown { terminated: was.terminated, ..Shown::default() });
    }
    status.restart_count = status.restart_count.saturating_add(i32::from(again));
    let started_at = since.map(Time).or(started).or(Some(Time(now)));
    Shown { running: Some(ContainerStateRunning { started_at }), ..Shown::default() }
}

/// A container that waits. One that ran before has ended meanwhile, for whatever reason.
fn waiting(
    status: &mut ContainerStatus,
    was: Shown,
    (reason, message): (&str, &str),
    change: Change,
    now: Timestamp,
) -> Shown {
    if let Some(running) = was.running {
        let (why, text) = if change == Change::UnderWay {
            ("Replaced", "the pod changed; the container is being replaced")
        } else {
            ("ContainerStatusUnknown", "the container no longer exists on the machine")
        };
        status.last_state = Some(ended(running.started_at, now, LOST, why, text));
    } else if was.terminated.is_some() {
        status.last_state = Some(was);
    }
    let waiting = ContainerStateWaiting { reason: filled(reason), message: filled(message) };
    Shown { waiting: Some(waiting), ..Shown::default() }
}

fn ended(began: Option<Time>, now: Timestamp, exit_code: i32, reason: &str, message: &str) -> Shown {
    let terminated = ContainerStateTerminated {
        exit_code,
        reason: Some(reason.to_owned()),
        message: filled(message),
        started_at: began,
        finished_at: Some(Time(now)),
        ..ContainerStateTerminated::default()
    };
    Shown { terminated: Some(terminated), ..Shown::default() }
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) fn exit_code(container: &ContainerStatus) -> Option<i32> {
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}
