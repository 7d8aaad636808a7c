//! What was seen of a pod.

use std::net::IpAddr;

use crate::workload::Workload;

/// What was seen of a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    /// What stands for it on its machine.
    pub(crate) workload: Option<&'a Workload>,
    /// What it waits for while nothing does: in one word of CamelCase, and for people.
    pub(crate) why: (&'a str, &'a str),
    /// Whether the pod has another form by now than what runs of it.
    pub(crate) replaced: bool,
    /// The machine's own address.
    pub(crate) host_ip: Option<IpAddr>,
}
