//! Why a leader is none any more.

/// Why this process does not lead any more. Its term does not come back from that: it stands by for another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The lease could not be renewed by the deadline, because the server could not be reached or the process was stopped.
    #[error("the lease could not be renewed in time (`leader_election.renew_deadline`)")]
    Expired,
    /// Somebody else has the lease.
    #[error("the lease was taken by {}", if by.is_empty() { "nobody: its holder was removed" } else { by })]
    Taken {
        /// Who; empty where somebody removed the holder.
        by: String,
    },
    /// The task that holds the election ended by itself.
    #[error("the election ended by itself")]
    Abandoned,
}
