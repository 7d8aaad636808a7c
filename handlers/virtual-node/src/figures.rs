//! What is counted while virtual nodes are kept, and the names of what is counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What came of a read of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// It answered.
    Success,
    /// It did not answer, or nobody could understand it.
    Failure,
    /// It answered, and refused.
    Refused,
}

/// What somebody wants from the kubelet API of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The log of a container.
    Logs,
    /// A program in a container.
    Exec,
    /// What a container reads and writes.
    Attach,
    /// A port of a pod.
    PortForward,
    /// Which pods there are.
    Pods,
    /// What they use.
    Stats,
}

/// What a kubelet API answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// What was asked for.
    Success,
    /// That such a machine cannot do that.
    Unsupported,
    /// That whoever asks may not know.
    Denied,
    /// That the machine does not tell at this moment.
    Failure,
}

const READS: [&str; 3] = ["success", "failure", "refused"];
const REQUESTS: [&str; 6] = ["logs", "exec", "attach", "port_forward", "pods", "stats"];
const ANSWERS: [&str; 4] = ["success", "unsupported", "denied", "failure"];

/// How the machines behind nodes may be.
pub(crate) const STATES: [&str; 4] = ["ready", "troubled", "untried", "unreachable"];

/// Reads of machines and requests to kubelet APIs, since the process began.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    reads: [AtomicU64; READS.len()],
    requests: [[AtomicU64; ANSWERS.len()]; REQUESTS.len()],
}

impl Counts {
    /// A machine was read.
    pub(crate) fn read(&self, read: Read) {
        self.reads[read as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A kubelet API was asked.
    pub(crate) fn asked(&self, request: Request, answered: Answered) {
        self.requests[request as usize][answered as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often machines were read, by what came of it.
    pub(crate) fn reads(&self) -> Vec<(&'static str, u64)> {
        READS.into_iter().zip(self.reads.iter().map(load)).collect()
    }

    /// How often kubelet APIs were asked, by what for and what was answered.
    pub(crate) fn requests(&self) -> Vec<(&'static str, &'static str, u64)> {
        let requests = REQUESTS.into_iter().zip(&self.requests);
        let each = requests.flat_map(|(request, answers)| {
            ANSWERS.into_iter().zip(answers).map(move |(answer, count)| (request, answer, load(count)))
        });
        each.collect()
    }

    /// Adds what `other` counted.
    pub(crate) fn take_over(&self, other: &Self) {
        let ours = self.reads.iter().chain(self.requests.iter().flatten());
        for (ours, theirs) in ours.zip(other.reads.iter().chain(other.requests.iter().flatten())) {
            ours.fetch_add(load(theirs), Ordering::Relaxed);
        }
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
