//! The status of a `CiscoDevice`. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::cisco_device::{CiscoDevice, CiscoDeviceStatus};
use super::devices::Verdict;
use crate::machine::{Machine, NodeObject};

/// The status that an object is to have.
pub(super) fn status(
    object: &CiscoDevice,
    verdict: &Verdict,
    machine: Option<&Machine>,
    now: Timestamp,
) -> CiscoDeviceStatus {
    let (phase, ready, reason, message) = standing(object, verdict, machine);
    let before = object.status.clone().unwrap_or_default();
    let (others, known): (Vec<_>, Vec<_>) =
        before.conditions.into_iter().partition(|condition| condition.type_ != "Ready");
    let status = if ready { "True" } else { "False" };
    let same = known.into_iter().find(|condition| condition.status == status);
    let condition = Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: object.metadata.generation,
        last_transition_time: same.map_or(Time(now), |condition| condition.last_transition_time),
    };
    let conditions = others.into_iter().chain([condition]).collect();
    CiscoDeviceStatus { phase: Some(phase.to_owned()), conditions }
}

fn standing(
    object: &CiscoDevice,
    verdict: &Verdict,
    machine: Option<&Machine>,
) -> (&'static str, bool, &'static str, String) {
    if object.metadata.deletion_timestamp.is_some() {
        return ("Deleting", false, "Deleting", "its node is taken out of the cluster".to_owned());
    }
    match verdict {
        Verdict::Invalid(reason) => return ("Error", false, "DeviceInvalid", reason.clone()),
        Verdict::Taken(by) => {
            return ("Error", false, "NodeNameTaken", format!("the node of this name is the device of {by}"));
        }
        Verdict::Holds => {}
    }
    let Some(machine) = machine else {
        return ("Pending", false, "Pending", "its node is about to be made".to_owned());
    };
    match machine.object() {
        NodeObject::Ours => {}
        NodeObject::Coming => {
            return ("Pending", false, "Pending", "its node is about to be made".to_owned());
        }
        NodeObject::Missing { reason, message } => return ("Error", false, reason, message),
    }
    if let Some(outage) = machine.outage() {
        return ("Error", false, outage.reason, outage.message);
    }
    if !machine.is_up() {
        return ("Provisioning", false, "Provisioning", "the device was not reached yet".to_owned());
    }
    match machine.health().and_then(|health| health.trouble.clone()) {
        Some((reason, message)) => ("Error", false, reason, message),
        None => ("Ready", true, "DeviceReady", "the device answers and takes pods".to_owned()),
    }
}

/// Whether two statuses say the same.
pub(super) fn same(before: Option<&CiscoDeviceStatus>, wanted: &CiscoDeviceStatus) -> bool {
    before.is_some_and(|before| before == wanted)
}
