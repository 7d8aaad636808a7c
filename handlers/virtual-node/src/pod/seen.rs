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
    /// How the pod stands to what runs of it.
    pub(crate) change: Change,
    /// The machine's own address.
    pub(crate) host_ip: Option<IpAddr>,
}

/// How a pod stands to what runs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has the form of what runs, as far as is known.
    Nothing,
    /// It has another form by now, and its machine does not take it: nothing is made anew.
    Refused,
    /// It has another form by now: what runs is removed and made anew.
    UnderWay,
}
