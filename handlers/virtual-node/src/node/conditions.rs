//! The conditions of a node: `Ready`, and the pressure on its resources.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::spec::Room;
use super::view::MachineView;

/// The reason of a condition whose value the machine does not report.
const NOT_REPORTED: &str = "NotReported";

/// A condition without its timestamps: type, status, reason and message.
type Untimed = (Cow<'static, str>, Cow<'static, str>, Cow<'static, str>, String);

/// Returns the conditions of a node. While the machine is unreachable or was not read yet, only `Ready` (`False`) is returned;
/// the other conditions of the Node object stay as they are. The transition time of a condition in `before` is kept while its
/// status is the same.
pub(super) fn conditions(
    machine: &MachineView,
    before: &[NodeCondition],
    now: Timestamp,
) -> Vec<NodeCondition> {
    let mut conditions = vec![ready(machine)];
    if machine.reach.is_up() {
        let health = machine.health.as_deref();
        let memory = ["KubeletHasSufficientMemory", "KubeletHasInsufficientMemory"];
        let storage = ["KubeletHasNoDiskPressure", "KubeletHasDiskPressure"];
        conditions.extend([
            pressure("MemoryPressure", memory, "memory", health.and_then(|health| health.memory)),
            pressure("DiskPressure", storage, "storage", health.and_then(|health| health.storage)),
            untimed(
                "PIDPressure",
                "False",
                NOT_REPORTED,
                "the machine does not report how many processes it has".to_owned(),
            ),
            untimed(
                "NetworkUnavailable",
                "False",
                "RouteCreated",
                "pods have the machine's own network".to_owned(),
            ),
        ]);
        for own in health.iter().flat_map(|health| &health.conditions) {
            conditions.retain(|(kind, ..)| *kind != own.type_);
            let (reason, message) = (own.reason.clone(), own.message.clone().unwrap_or_default());
            let reason = reason.map_or(NOT_REPORTED.into(), Cow::Owned);
            conditions.push((own.type_.clone().into(), own.status.clone().into(), reason, message));
        }
    }
    let timed = |(kind, status, reason, message): Untimed| {
        let same = before.iter().find(|before| before.type_ == kind && before.status == status);
        let transition = same.and_then(|same| same.last_transition_time.clone());
        NodeCondition {
            type_: kind.into_owned(),
            status: status.into_owned(),
            reason: Some(reason.into_owned()),
            message: Some(message),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: transition.or(Some(Time(now))),
        }
    };
    conditions.into_iter().map(timed).collect()
}

/// Builds a condition without its timestamps.
fn untimed(kind: &'static str, status: &'static str, reason: &'static str, message: String) -> Untimed {
    (kind.into(), status.into(), reason.into(), message)
}

/// Returns a pressure condition: `True` if less than a twentieth of the resource is free; `False` otherwise, also if the machine
/// does not report it (`room` is `None`). `reasons` are the reasons for enough and for too little; `what` is the name of the
/// resource in the message.
fn pressure(kind: &'static str, reasons: [&'static str; 2], what: &str, room: Option<Room>) -> Untimed {
    let [free, short] = reasons;
    match room {
        Some(room) if room.is_short() => {
            untimed(kind, "True", short, format!("less than 5 % of the machine's {what} is free"))
        }
        Some(_) => untimed(kind, "False", free, format!("the machine has enough free {what}")),
        None => untimed(
            kind,
            "False",
            NOT_REPORTED,
            format!("the machine does not report how much {what} is free"),
        ),
    }
}

/// Returns the condition `Ready`: false while the machine cannot be reached, was not read yet or has a problem.
fn ready(machine: &MachineView) -> Untimed {
    let (status, reason, message) = match (machine.outage(), machine.problem()) {
        (Some(outage), _) => {
            let again = if outage.was_up { " any more" } else { "" };
            let (state, reason) = (outage.state(), outage.reason);
            let message = format!("the machine {state}{again} ({reason}): {}", outage.message);
            ("False", "MachineUnreachable", message)
        }
        (None, _) if !machine.reach.is_up() => {
            ("False", "MachineNotReadYet", "the machine was not read yet".to_owned())
        }
        (None, Some((reason, message))) => ("False", *reason, message.clone()),
        (None, None) => ("True", "KubeletReady", "the machine answers and takes pods".to_owned()),
    };
    untimed("Ready", status, reason, message)
}

/// Returns `true` if the condition `before` has the wanted content. Its heartbeat is not compared, because the heartbeat of a
/// node is its Lease. A missing reason or message equals an empty one, because the API server drops empty ones.
pub(super) fn has_content_of(before: &NodeCondition, wanted: &NodeCondition) -> bool {
    let same = |one: &Option<String>, other: &Option<String>| {
        one.as_deref().unwrap_or_default() == other.as_deref().unwrap_or_default()
    };
    before.type_ == wanted.type_
        && before.status == wanted.status
        && same(&before.reason, &wanted.reason)
        && same(&before.message, &wanted.message)
}
