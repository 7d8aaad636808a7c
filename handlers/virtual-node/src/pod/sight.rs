//! The observed state of a pod.

use std::net::IpAddr;

use crate::workload::Workload;

/// The observed state of a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodSight<'a> {
    /// Its workload on the machine.
    pub(crate) workload: Option<&'a Workload>,
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
