//! The status of containers: what a machine shows, with what was known before.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as Shown, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::seen::{Change, Seen};
use crate::workload::{ContainerSight, ContainerState};

/// The exit code of a container that was there and is not any more: as if it had been killed. Kubelets say the same of one that they
/// killed.
const LOST: i32 = 137;

/// The status of a container. While its pod has another form, its image is the one that it had: who comes after this process knows by
/// that what is still to be done.
pub(super) fn container_status(
    container: &Container,
    sight: Option<&ContainerSight>,
    before: Option<&ContainerStatus>,
    seen: &Seen<'_>,
    now: Timestamp,
) -> ContainerStatus {
    let mut status = before.cloned().unwrap_or_default();
    let was = before.and_then(|before| before.state.clone()).unwrap_or_default();
    let restarts = before.map_or(0, |before| before.restart_count);
    status.name.clone_from(&container.name);
    if seen.change == Change::Nothing || status.image.is_empty() {
        status.image = container.image.clone().unwrap_or_default();
        status.image_id.clone_from(&status.image);
    }
    let id = sight.map(|sight| sight.id.clone());
    let state = match sight.map(|sight| &sight.state) {
        Some(ContainerState::Running { since }) => {
            let again = was.terminated.is_some()
                || (was.waiting.is_some()
                    && status.last_state.as_ref().is_some_and(|last| last.terminated.is_some()));
            let others = was.running.as_ref().filter(|running| is_other(running, *since));
            if let Some(running) = others {
                status.last_state =
                    Some(ended(running.started_at.clone(), now, 0, "Completed", "it was started anew"));
            } else if let Some(terminated) = was.terminated {
                status.last_state = Some(Shown { terminated: Some(terminated), ..Shown::default() });
            }
            status.restart_count =
                if again || others.is_some() { restarts.saturating_add(1) } else { restarts };
            let kept = was
                .running
                .as_ref()
                .filter(|_| others.is_none())
                .and_then(|running| running.started_at.clone());
            let started = since.map(Time).or(kept).unwrap_or(Time(now));
            Shown { running: Some(ContainerStateRunning { started_at: Some(started) }), ..Shown::default() }
        }
        Some(ContainerState::Ended { exit_code, reason, message }) => {
            let same = was.terminated.as_ref().is_some_and(|terminated| {
                terminated.exit_code == *exit_code && terminated.reason.as_deref() == Some(reason)
            });
            if same {
                was.clone()
            } else {
                let began = was.running.as_ref().and_then(|running| running.started_at.clone());
                ended(began, now, *exit_code, reason, message)
            }
        }
        Some(ContainerState::Waiting { reason, message }) => {
            waiting(&mut status, &was, (reason, message), seen.change, now)
        }
        None => waiting(&mut status, &was, seen.why, seen.change, now),
    };
    let running = state.running.is_some();
    status.ready = running;
    status.started = Some(running);
    status.container_id = id.or(status.container_id);
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
        ended(began, now, LOST, "Removed", "it was removed from the machine, for the pod was deleted")
    });
    status
}

/// Whether what runs began at another time than what ran before, as far as both are known.
fn is_other(before: &ContainerStateRunning, since: Option<Timestamp>) -> bool {
    match (before.started_at.as_ref(), since) {
        (Some(before), Some(since)) => before.0.as_second() != since.as_second(),
        _ => false,
    }
}

/// A container that waits. One that ran before has ended meanwhile, however that came about.
fn waiting(
    status: &mut ContainerStatus,
    was: &Shown,
    (reason, message): (&str, &str),
    change: Change,
    now: Timestamp,
) -> Shown {
    if let Some(running) = &was.running {
        let (why, said) = if change == Change::UnderWay {
            ("Replaced", "the pod changed, and it is made anew")
        } else {
            ("ContainerStatusUnknown", "it ran, and the machine does not run it any more")
        };
        status.last_state = Some(ended(running.started_at.clone(), now, LOST, why, said));
    } else if was.terminated.is_some() {
        status.last_state = Some(was.clone());
    }
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let waiting = ContainerStateWaiting { reason: some(reason), message: some(message) };
    Shown { waiting: Some(waiting), ..Shown::default() }
}

fn ended(began: Option<Time>, now: Timestamp, exit_code: i32, reason: &str, message: &str) -> Shown {
    let message = Some(Cow::from(message)).filter(|message| !message.is_empty());
    let terminated = ContainerStateTerminated {
        exit_code,
        reason: Some(reason.to_owned()),
        message: message.map(Cow::into_owned),
        started_at: began,
        finished_at: Some(Time(now)),
        ..ContainerStateTerminated::default()
    };
    Shown { terminated: Some(terminated), ..Shown::default() }
}
