//! The status of a `CiscoDevice`. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::cisco_device::{CiscoDevice, CiscoDeviceStatus};
use super::devices::Verdict;
use crate::node::{MachineView, NodeObject};

/// The part of a status that is observed: the phase, and the reason and message of the condition `Ready`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DevicePhase {
    phase: &'static str,
    reason: &'static str,
    message: String,
}

impl DevicePhase {
    /// The phase and the reason. Another message alone, such as that of the same outage, is not a reason to write a status.
    pub(super) fn class(&self) -> (&'static str, &'static str) {
        (self.phase, self.reason)
    }
}

/// The phase of a device that can be used.
const READY: &str = "Ready";

/// The status of an object. The transition time is kept while the device stays ready, or stays not ready.
pub(super) fn status(object: &CiscoDevice, observed: DevicePhase, now: Timestamp) -> CiscoDeviceStatus {
    let before = object.status.clone().unwrap_or_default();
    let (others, known): (Vec<_>, Vec<_>) =
        before.conditions.into_iter().partition(|condition| condition.type_ != READY);
    let status = if observed.phase == READY { "True" } else { "False" };
    let same = known.into_iter().find(|condition| condition.status == status);
    let condition = Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: observed.reason.to_owned(),
        message: observed.message,
        observed_generation: object.metadata.generation,
        last_transition_time: same.map_or(Time(now), |condition| condition.last_transition_time),
    };
    let conditions = others.into_iter().chain([condition]).collect();
    CiscoDeviceStatus { phase: Some(observed.phase.to_owned()), conditions }
}

/// The observed state of a device, from its description and the machine of its node.
pub(super) fn phase(object: &CiscoDevice, verdict: &Verdict, machine: Option<&MachineView>) -> DevicePhase {
    let of = |phase, reason, message: &str| DevicePhase { phase, reason, message: message.to_owned() };
    if object.metadata.deletion_timestamp.is_some() {
        return of("Deleting", "Deleting", "its node is being removed from the cluster");
    }
    match verdict {
        Verdict::Invalid(reason) => return of("Error", "DeviceInvalid", reason),
        Verdict::Taken(by) => {
            let message = format!("the node name is already used by a device from {by}");
            return of("Error", "NodeNameTaken", &message);
        }
        Verdict::Holds => {}
    }
    let pending = of("Pending", "Pending", "its node is about to be created");
    let Some(machine) = machine else { return pending };
    match (&machine.object, machine.outage(), machine.problem()) {
        (NodeObject::Coming, ..) => pending,
        (NodeObject::Ours, Some(outage), _) => of("Error", outage.reason, &outage.message),
        (NodeObject::Ours, None, _) if !machine.reach.is_up() => {
            of("ProvisioningStatus", "ProvisioningStatus", "the device has not been reached yet")
        }
        (NodeObject::Missing { reason, message }, ..) | (NodeObject::Ours, None, Some((reason, message))) => {
            of("Error", reason, message)
        }
        (NodeObject::Ours, None, None) => of(READY, "DeviceReady", "the device answers and takes pods"),
    }
}
