//! Counters of virtual nodes and their label values.

use std::sync::atomic::{AtomicU64, Ordering};

/// The result of a read of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// It answered.
    Success,
    /// It did not answer, or the answer cannot be read.
    Failure,
    /// It answered, and refused.
    Refused,
}

/// The kind of a request to the kubelet API of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The log of a container.
    Logs,
    /// A program in a container.
    Exec,
    /// Attach to a container's input and output.
    Attach,
    /// A port of a pod.
    PortForward,
    /// List the pods.
    Pods,
    /// Read their resource usage.
    Stats,
}

/// The result of a request to a kubelet API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestResult {
    /// Served.
    Success,
    /// The machine does not support the operation.
    Unsupported,
    /// The client is not authorized.
    Denied,
    /// The machine did not answer.
    Failure,
}

const READS: [&str; 3] = ["success", "failure", "refused"];
const REQUESTS: [&str; 6] = ["logs", "exec", "attach", "port_forward", "pods", "stats"];
const ANSWERS: [&str; 4] = ["success", "unsupported", "denied", "failure"];

/// The states of machines, as label values.
pub(crate) const STATES: [&str; 4] = ["ready", "troubled", "untried", "unreachable"];

/// Reads of machines and requests to kubelet APIs, since the process began.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    reads: [AtomicU64; READS.len()],
    requests: [[AtomicU64; ANSWERS.len()]; REQUESTS.len()],
}

impl Counts {
    /// Counts a read of a machine.
    pub(crate) fn read(&self, read: Read) {
        self.reads[read as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request to a kubelet API.
    pub(crate) fn request(&self, request: Request, result: RequestResult) {
        self.requests[request as usize][result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of reads of machines, by result.
    pub(crate) fn reads(&self) -> Vec<(&'static str, u64)> {
        READS.into_iter().zip(self.reads.iter().map(load)).collect()
    }

    /// The number of requests to kubelet APIs, by kind and result.
    pub(crate) fn requests(&self) -> Vec<(&'static str, &'static str, u64)> {
        let requests = REQUESTS.into_iter().zip(&self.requests);
        let each = requests.flat_map(|(request, answers)| {
            ANSWERS.into_iter().zip(answers).map(move |(answer, count)| (request, answer, load(count)))
        });
        each.collect()
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
