//! Counters of virtual nodes, and the values of their labels.

use std::sync::atomic::{AtomicU64, Ordering};

/// The result of a read of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The machine answered, and the response was decoded.
    Success,
    /// The machine did not answer, or its response could not be decoded.
    Failure,
    /// The machine refused the read, or its description cannot be used.
    Refused,
}

/// The kind of a request to the kubelet API of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Read the log of a container (`/containerLogs`).
    Logs,
    /// Run a program in a container (`/exec`, `/run`).
    Exec,
    /// Attach to the input and output of a container (`/attach`).
    Attach,
    /// Connect to a port of a pod (`/portForward`).
    PortForward,
    /// List the pods (`/pods`, `/runningpods`).
    Pods,
    /// Read the resource usage of the node and its pods (`/stats/summary`).
    Stats,
    /// Read the resource usage as metrics (`/metrics/resource`).
    Metrics,
}

/// The result of a request to a kubelet API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestResult {
    /// The request was served.
    Success,
    /// The machine does not support the operation.
    Unsupported,
    /// The client has no valid credential, or no permission.
    Denied,
    /// The data could not be read from the machine, or the API server could not decide on the permission.
    Failure,
}

/// A change of the holder of a node's lease, where several replicas share the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseChange {
    /// This process has taken the lease of a node.
    Taken,
    /// This process has given the lease of a node up: its machine is gone, another replica has fewer nodes, or the process ends.
    GivenUp,
    /// This process could not renew the lease of a node in time, or another process has taken it.
    Lost,
}

/// The label values of the variants of [`LeaseChange`], in their order.
const LEASE_CHANGES: [&str; 3] = ["taken", "given_up", "lost"];
/// The label values of the variants of [`Read`], in their order.
const READS: [&str; 3] = ["success", "failure", "refused"];
/// The label values of the variants of [`Request`], in their order.
const REQUESTS: [&str; 7] = ["logs", "exec", "attach", "port_forward", "pods", "stats", "metrics"];
/// The label values of the variants of [`RequestResult`], in their order.
const ANSWERS: [&str; 4] = ["success", "unsupported", "denied", "failure"];

/// The states of a machine, as label values: ready, reachable but not accepting pods, not read yet, unreachable.
pub(crate) const STATES: [&str; 4] = ["ready", "troubled", "untried", "unreachable"];

/// Counters of reads of machines, of requests to kubelet APIs and of changes of leases, since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    reads: [AtomicU64; READS.len()],
    requests: [[AtomicU64; ANSWERS.len()]; REQUESTS.len()],
    leases: [AtomicU64; LEASE_CHANGES.len()],
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

    /// Counts that this process has taken, given up or lost the lease of a node.
    pub(crate) fn lease(&self, change: LeaseChange) {
        self.leases[change as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of leases of nodes that this process has taken, given up and lost, by change.
    pub(crate) fn leases(&self) -> Vec<(&'static str, u64)> {
        LEASE_CHANGES.into_iter().zip(self.leases.iter().map(load)).collect()
    }

    /// Returns the number of reads of machines, by result.
    pub(crate) fn reads(&self) -> Vec<(&'static str, u64)> {
        READS.into_iter().zip(self.reads.iter().map(load)).collect()
    }

    /// Returns the number of requests to kubelet APIs, by kind and result.
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
