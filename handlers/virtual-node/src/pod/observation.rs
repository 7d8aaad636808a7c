//! The observed state of a pod.

use std::net::IpAddr;

use staffetta_driver::app_hosting::{HostedContainer, HostedPod};

/// The observed state of a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodObservation<'a> {
    /// Its workload on the machine.
    pub(crate) workload: Option<&'a HostedPod>,
    /// The waiting reason (in CamelCase) and message while there is no workload.
    pub(crate) why: (&'a str, &'a str),
    /// The relation of the pod to its running workload.
    pub(crate) change: Change,
    /// The machine's own address.
    pub(crate) host_ip: Option<IpAddr>,
}

/// The relation of a pod to its running workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The pod has the form of the workload, as far as is known.
    Nothing,
    /// The pod has changed, and its machine refuses the change: the workload stays.
    Refused,
    /// The pod has changed: the workload is removed and created again.
    UnderWay,
}

/// The container of that name.
pub(super) fn container_of<'a>(workload: &'a HostedPod, name: &str) -> Option<&'a HostedContainer> {
    workload.containers.iter().find(|container| container.name == name)
}
