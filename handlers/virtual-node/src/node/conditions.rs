//! The conditions of a node: whether it is ready, and what presses it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::spec::Room;
use crate::machine::Machine;

/// How old the heartbeat of a condition becomes before the status is written though nothing else differs: as kubelets do.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(300);

/// The reason of a condition of which the machine tells nothing.
const NOT_REPORTED: &str = "NotReported";

/// One condition before it has times.
pub(super) struct Wanted {
    pub(super) kind: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
}

/// The conditions of a node. `Ready` is `False` while its machine cannot be reached; what it cannot tell of itself then is not
/// claimed either, and stays as it was.
pub(super) fn wanted(machine: &Machine) -> Vec<Wanted> {
    let mut conditions = vec![ready(machine)];
    if machine.is_up() {
        let health = machine.health().unwrap_or_default();
        conditions.push(pressure(
            "MemoryPressure",
            ("KubeletHasSufficientMemory", "KubeletHasInsufficientMemory"),
            "memory",
            health.memory,
        ));
        conditions.push(pressure(
            "DiskPressure",
            ("KubeletHasNoDiskPressure", "KubeletHasDiskPressure"),
            "storage",
            health.storage,
        ));
        conditions.push(is_false(
            "PIDPressure",
            NOT_REPORTED,
            "the machine does not report how many processes it has",
        ));
        conditions.push(is_false(
            "NetworkUnavailable",
            "RouteCreated",
            "pods have the machine's own network",
        ));
    }
    conditions
}

/// Whether a machine has too little of something: what it does not tell is not claimed.
fn pressure(
    kind: &'static str,
    (calm, pressed): (&'static str, &'static str),
    what: &str,
    room: Option<Room>,
) -> Wanted {
    match room {
        Some(room) if room.is_short() => {
            let message = format!("less than a twentieth of the machine's {what} is free");
            Wanted { kind, status: "True", reason: pressed.to_owned(), message }
        }
        Some(_) => is_false(kind, calm, &format!("the machine has {what} that is free")),
        None => is_false(kind, NOT_REPORTED, &format!("the machine does not report how much {what} is free")),
    }
}

fn is_false(kind: &'static str, reason: &str, message: &str) -> Wanted {
    Wanted { kind, status: "False", reason: reason.to_owned(), message: message.to_owned() }
}

fn ready(machine: &Machine) -> Wanted {
    let (status, reason, message) = match (machine.outage(), machine.health()) {
        (Some(outage), _) => {
            let since = if outage.was_up { "cannot be reached any more" } else { "cannot be reached" };
            (
                "False",
                "MachineUnreachable".to_owned(),
                format!("the machine {since} ({}): {}", outage.reason, outage.message),
            )
        }
        (None, _) if !machine.is_up() => {
            ("False", "MachineNotReadYet".to_owned(), "the machine was not read yet".to_owned())
        }
        (None, Some(health)) if health.trouble.is_some() => {
            let (reason, message) = health.trouble.clone().unwrap_or_default();
            ("False", reason.to_owned(), message)
        }
        (None, _) => ("True", "KubeletReady".to_owned(), "the machine answers and takes pods".to_owned()),
    };
    Wanted { kind: "Ready", status, reason, message }
}

/// A condition with its times: that of the transition is kept while the status is the same.
pub(super) fn timed(wanted: Wanted, before: Option<&NodeCondition>, now: Timestamp) -> NodeCondition {
    let same = before.filter(|before| before.status == wanted.status);
    let transition = same.and_then(|before| before.last_transition_time.clone());
    NodeCondition {
        type_: wanted.kind.to_owned(),
        status: wanted.status.to_owned(),
        reason: Some(wanted.reason),
        message: Some(wanted.message),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: transition.or(Some(Time(now))),
    }
}

/// Whether a condition says the same, and said so not too long ago.
pub(super) fn holds(before: &NodeCondition, wanted: &NodeCondition) -> bool {
    let heartbeat = |condition: &NodeCondition| condition.last_heartbeat_time.as_ref().map(|time| time.0);
    let age = match (heartbeat(before), heartbeat(wanted)) {
        (Some(before), Some(now)) => now.duration_since(before).unsigned_abs(),
        _ => return false,
    };
    age < HEARTBEAT
        && before.status == wanted.status
        && before.reason == wanted.reason
        && before.message == wanted.message
}
