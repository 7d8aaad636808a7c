//! The status of the leader election, for logs, metrics and health.

use std::fmt;

/// The status of the leader election. The counters cover all terms of this process.
#[derive(Clone, Debug)]
pub struct ElectionStatus {
    /// The role of this process.
    pub role: Role,
    /// The number of renewals that needed more than one request.
    pub slow_renewals: u64,
    /// The number of times that this process was the leader and lost the lease.
    pub losses: u64,
    /// The error of the last request for the lease; `None` if that request succeeded.
    pub last_error: Option<String>,
}

/// The role of this process in the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leader election is disabled.
    Unopposed,
    /// This process takes part in the election, and knows of no leader.
    Candidate,
    /// Another process is the leader.
    Standby {
        /// The identity of the leader.
        holder: String,
    },
    /// This process is the leader.
    Leader,
    /// This process released the lease (`None`) or lost it (the reason), and does not take part in the election. After a loss, it takes
    /// part again in a new term.
    Ended(Option<LossReason>),
}

/// The reason why this process lost the leader lease. Its term has ended; it then takes part in the election again, for a new term.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LossReason {
    /// The lease was not renewed before the deadline, because the server was not reachable or this process was suspended.
    #[error("the lease could not be renewed in time (`leader_election.renew_deadline`)")]
    Expired,
    /// Another process took the lease, or the holder was removed from it.
    #[error("{}", if by.is_empty() { "the holder was removed from the lease".to_owned() } else { format!("the lease was taken by {by}") })]
    Taken {
        /// The identity of the new holder; empty if the holder was removed from the lease.
        by: String,
    },
    /// The task of the election loop ended unexpectedly.
    #[error("the election loop ended unexpectedly")]
    LoopEnded,
}

impl ElectionStatus {
    /// Returns the initial status of a process with `role`.
    pub(super) fn new(role: Role) -> Self {
        Self { role, slow_renewals: 0, losses: 0, last_error: None }
    }

    /// Sets the role of this process. Increments `losses` if the new role is [`Role::Ended`] because the lease was lost.
    pub(super) fn set_role(&mut self, role: Role) {
        self.losses += u64::from(matches!(role, Role::Ended(Some(_))));
        self.role = role;
    }
}

/// Writes the role as text: `leader`, `standby of web-1_0123456789abcdef` ...
impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unopposed => formatter.write_str("unopposed"),
            Self::Candidate => formatter.write_str("candidate"),
            Self::Standby { holder } => write!(formatter, "standby of {holder}"),
            Self::Leader => formatter.write_str("leader"),
            Self::Ended(None) => formatter.write_str("ended"),
            Self::Ended(Some(reason)) => write!(formatter, "ended: {reason}"),
        }
    }
}
