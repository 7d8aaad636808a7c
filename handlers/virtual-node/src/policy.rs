//! Intervals, time limits and bounds.

use std::time::Duration;

/// Intervals, time limits and bounds of virtual nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The interval at which the workloads of a machine are read.
    pub poll_interval: Duration,
    /// The interval at which the health of a machine is read.
    pub health_interval: Duration,
    /// The time limit of a read.
    pub read_timeout: Duration,
    /// The time for which reads must fail before a reachable node becomes unreachable.
    pub unreachable_after: Duration,
    /// The longest time between two attempts to reach a machine that is unreachable.
    pub max_retry_interval: Duration,
    /// The time for which a workload must have no owner, or a Node object no machine, before it is removed.
    pub orphan_grace: Duration,
    /// The time between two renewals of a node's lease.
    pub lease_interval: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(5),
            health_interval: Duration::from_secs(60),
            read_timeout: Duration::from_secs(30),
            unreachable_after: Duration::from_secs(15),
            max_retry_interval: Duration::from_secs(60),
            orphan_grace: Duration::from_secs(60),
            lease_interval: Duration::from_secs(10),
        }
    }
}
