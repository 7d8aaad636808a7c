//! The observed state of a pod: the input for its status.

use std::net::IpAddr;

use staffetta_driver::app_hosting::{HostedContainer, HostedPod};

/// The observed state of a pod: the input for its status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodObservation<'a> {
    /// The workload of the pod on the machine; `None` if there is none.
    pub(crate) workload: Option<&'a HostedPod>,
    /// The waiting reason (in CamelCase) and message of the containers while there is no workload.
    pub(crate) why: (&'a str, &'a str),
    /// The state of a change of the pod's specification on the machine.
    pub(crate) change: Change,
    /// The IP address of the machine; `None` if it is not known.
    pub(crate) host_ip: Option<IpAddr>,
}

/// The state of a change of a pod's specification on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The workload has the specification of the pod, as far as is known.
    Nothing,
    /// The pod has changed and the machine has not accepted the change, or refuses it: the old workload stays.
    Refused,
    /// The pod has changed: the old workload is being removed, and a new one is created.
    UnderWay,
}

/// Returns the container with this name of a workload; `None` if the workload has none.
pub(super) fn container_of<'a>(workload: &'a HostedPod, name: &str) -> Option<&'a HostedContainer> {
    workload.containers.iter().find(|container| container.name == name)
}
