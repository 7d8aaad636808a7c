//! How the election stands, for people and metrics.

use std::fmt;

use jiff::Timestamp;

use super::loss::Loss;

/// How the election stands. The counts are those of the process, over all its terms.
#[derive(Clone, Debug)]
pub struct Status {
    /// What this process is in it.
    pub role: Role,
    /// Since when, by the time of day.
    pub since: Timestamp,
    /// How often it renewed the lease.
    pub renewals: u64,
    /// How many of these needed more than one request.
    pub slow_renewals: u64,
    /// How often it led and lost the lease.
    pub losses: u64,
    /// What went wrong with the lease, if the last request failed.
    pub trouble: Option<String>,
}

/// What this process is in the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// There is no election.
    Unopposed,
    /// It has not seen that anybody leads.
    Candidate,
    /// Somebody else leads.
    Standby {
        /// Who.
        holder: String,
    },
    /// It leads.
    Leader,
    /// It led, or gave up, and takes no part; after a loss, until it stands by again.
    Ended(Option<Loss>),
}

impl Status {
    /// Has been this from now on.
    pub(super) fn new(role: Role) -> Self {
        Self { role, since: Timestamp::now(), renewals: 0, slow_renewals: 0, losses: 0, trouble: None }
    }

    pub(super) fn becomes(&mut self, role: Role) {
        self.losses += u64::from(matches!(role, Role::Ended(Some(_))));
        self.role = role;
        self.since = Timestamp::now();
    }
}

/// `leader`, `standby of web-1_0123456789abcdef` ...
impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unopposed => formatter.write_str("unopposed"),
            Self::Candidate => formatter.write_str("candidate"),
            Self::Standby { holder } => write!(formatter, "standby of {holder}"),
            Self::Leader => formatter.write_str("leader"),
            Self::Ended(None) => formatter.write_str("ended"),
            Self::Ended(Some(loss)) => write!(formatter, "ended: {loss}"),
        }
    }
}
