//! Intervals and time limits of virtual nodes.

use std::time::Duration;

/// The intervals and time limits of a handler of virtual nodes, and the namespaces whose pods may use Secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The interval between reads of the workloads of a machine, varied by up to a tenth. While
    /// [heartbeats](crate::NodeStore::heartbeat) of a machine arrive, its workloads are read once in `health_interval`. Default: 5 s.
    pub poll_interval: Duration,
    /// The interval between reads of the health of a machine, varied by up to a tenth. While its heartbeats arrive and its workloads stay
    /// the same, its health is read in every fifth interval. Default: 60 s.
    pub health_interval: Duration,
    /// The time limit of a read of a machine's workloads or health. Each answer of the machine to another request starts it again. Default:
    /// 30 s.
    pub read_timeout: Duration,
    /// The time since the last answer of a reachable machine after which its node becomes not ready, if at least two
    /// reads have failed. A machine that refuses a read becomes unreachable at once. Default: 15 s.
    pub unreachable_after: Duration,
    /// The time since the last report of a machine that answers a request by a separate report
    /// ([`Reply::Later`](crate::Reply::Later)) after which its node becomes not ready. A heartbeat counts as a report unless a
    /// read before it was not answered. Default: 25 s.
    pub silent_after: Duration,
    /// The time since the last report of such a machine (one that answers by separate reports) after which its node is removed; `None`
    /// to keep the node. Default: `None`.
    pub gone_after: Option<Duration>,
    /// The longest delay between two reads of a machine that refuses credentials which it has accepted before; for one that never accepted
    /// them, or has no usable description, ten times as long. A machine that does not answer is read about once in `poll_interval`.
    /// Default: 60 s.
    pub max_retry_interval: Duration,
    /// The time for which a workload must have had no pod, or a Node object no machine, before it is removed. Default:
    /// 60 s.
    pub orphan_grace: Duration,
    /// The interval at which a Node object is compared with its machine, and at which its lease is renewed unless the node source does
    /// that. Default: 10 s.
    pub lease_interval: Duration,
    /// The namespaces whose pods may use Secrets in their environment. Default: none.
    pub secret_namespaces: Vec<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(5),
            health_interval: Duration::from_secs(60),
            read_timeout: Duration::from_secs(30),
            unreachable_after: Duration::from_secs(15),
            silent_after: Duration::from_secs(25),
            gone_after: None,
            max_retry_interval: Duration::from_secs(60),
            orphan_grace: Duration::from_secs(60),
            lease_interval: Duration::from_secs(10),
            secret_namespaces: Vec::new(),
        }
    }
}
