//! Computes the status of a `CiscoDevice`, without I/O.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::cisco_device::{CiscoDevice, CiscoDeviceStatus};
use super::devices::Verdict;
use super::error::DeviceError;
use crate::node::{MachineView, NodeObject};

/// The observed state of a device: the phase, and the reason and message of the condition `Ready`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DevicePhase {
    phase: &'static str,
    reason: &'static str,
    message: String,
}

impl DevicePhase {
    /// Returns `true` if `other` has the same phase and reason; the messages may differ.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.phase, self.reason) == (other.phase, other.reason)
    }

    /// Returns the error of a device that has the phase `Error`; succeeds in any other phase.
    pub(super) fn check(self) -> Result<(), DeviceError> {
        let Self { phase, reason, message } = self;
        if phase == ERROR { Err(DeviceError::NotReady { reason, message }) } else { Ok(()) }
    }

    /// Returns `true` if the status of the object has this phase and reason. A new message alone does not cause a write of the status.
    pub(super) fn is_written(&self, object: &CiscoDevice) -> bool {
        object.status.as_ref().is_some_and(|status| {
            let ready = status.conditions.iter().find(|condition| condition.type_ == READY);
            status.phase.as_deref() == Some(self.phase)
                && ready.is_some_and(|ready| ready.reason == self.reason)
        })
    }
}

/// The phase of a device that accepts pods, and the type of the condition that shows it.
const READY: &str = "Ready";
/// The phase of a device that takes no pods for a reason that somebody may have to remove.
const ERROR: &str = "Error";

/// Returns the status to write to a `CiscoDevice` object whose device has the phase `observed`. The transition time of the condition
/// `Ready` is kept while its status (`True` or `False`) is the same. Conditions of other writers are kept.
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

/// Returns the observed state of a device, from the check of its specification (`verdict`) and the state of its node
/// (`None` if there is no node).
pub(super) fn phase(object: &CiscoDevice, verdict: &Verdict, machine: Option<&MachineView>) -> DevicePhase {
    let of = |phase, reason, message: &str| DevicePhase { phase, reason, message: message.to_owned() };
    if object.metadata.deletion_timestamp.is_some() {
        return of("Deleting", "Deleting", "its node is being removed from the cluster");
    }
    match verdict {
        Verdict::Invalid(reason) => return of(ERROR, "DeviceInvalid", reason),
        Verdict::Taken => {
            let message = "the node name is already used by a device of a file or the configuration";
            return of(ERROR, "NodeNameTaken", message);
        }
        Verdict::Holds => {}
    }
    let pending = of("Pending", "Pending", "its node is about to be created");
    let Some(machine) = machine else { return pending };
    match (&machine.object, machine.outage(), machine.problem()) {
        (NodeObject::Coming, ..) => pending,
        (NodeObject::Ours, Some(outage), _) => of(ERROR, outage.reason, &outage.message),
        (NodeObject::Ours, None, _) if !machine.reach.is_up() => {
            of("ProvisioningStatus", "ProvisioningStatus", "the device has not been reached yet")
        }
        (NodeObject::Missing { reason, message }, ..) | (NodeObject::Ours, None, Some((reason, message))) => {
            of(ERROR, reason, message)
        }
        (NodeObject::Ours, None, None) => of(READY, "DeviceReady", "the device answers and takes pods"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_written_if_the_status_has_it_with_its_reason_whatever_the_message_is() {
        let mut object = CiscoDevice::default();
        let of = |phase, reason, message: &str| DevicePhase { phase, reason, message: message.into() };
        let outage = of("Error", "DriverUnavailable", "no answer");
        assert!(!outage.is_written(&object), "there is no status");
        object.status = Some(status(&object, outage.clone(), Timestamp::UNIX_EPOCH));
        assert!(outage.is_written(&object));
        assert!(of("Error", "DriverUnavailable", "no route").is_written(&object));
        assert!(!of("Error", "DriverRefused", "no answer").is_written(&object));
        assert!(!of(READY, "DriverUnavailable", "no answer").is_written(&object));
    }
}
