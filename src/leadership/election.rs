//! The rules of the election: what a candidate and a leader do, as a function of what they have seen and of the time.
//!
//! Nothing here reads a clock or talks to anybody. Two rules make two leaders at a time impossible:
//!
//! * A leader's term ends `renew_deadline` after it **sent** the last renewal that it knows to have succeeded.
//! * A candidate takes a lease over `lease_duration`, which is more, after it **saw** the last renewal, and the server
//!   refuses that when there was one which it did not see: each write names the version of the lease that it replaces.
//!
//! Both are measured on the boot clock of whoever measures. What the lease says about the time of day is for people; any
//! change of the lease counts as a sign of life of its holder, as the time of day may stand still or repeat itself.

use std::time::Duration;

use super::clock::BootTime;
use super::lease::{Draft, Sighting};
use super::loss::Loss;

/// The three lengths of time of an election.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// How long others wait after the last sign of life.
    pub(super) lease_duration: Duration,
    /// How long a leader goes on without having renewed; less than `lease_duration`.
    pub(super) renew_deadline: Duration,
    /// The longest time between two renewals or attempts; less than `renew_deadline`.
    pub(super) retry_period: Duration,
}

/// One participant.
pub(super) struct Election {
    identity: String,
    timing: Timing,
    luck: Luck,
    role: Role,
    seen: Seen,
    /// Whether the lease must be read before it is written: its version is not known, or known to be old.
    stale: bool,
    /// Whether the last write met somebody else's, and nobody was seen to have the lease since.
    contended: bool,
    /// When the server is asked next: by a candidate for a look, by a leader for a renewal.
    ask_at: BootTime,
}

enum Role {
    Candidate,
    Leader {
        deadline: BootTime,
    },
    /// For ever.
    Over(Loss),
}

enum Seen {
    /// The lease was not read yet.
    Nothing,
    /// There is none. Where one that was held has vanished, its holder may still go by it until then.
    Missing { free_at: BootTime },
    /// As it was last seen, and when this version of it was first seen.
    Lease { lease: Sighting, since: BootTime },
}

/// What is to be done now.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing, until then or until something is seen.
    Wait(BootTime),
    /// Read the lease.
    Look,
    /// Write the lease.
    Write(Draft),
    /// End: this process does not lead any more.
    StandDown(Loss),
}

/// What came of a write.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was done; this is the lease now.
    Written(Sighting),
    /// Somebody else has written the lease meanwhile.
    Conflict,
    /// There is no such lease.
    Missing,
    /// It was refused, or nobody knows.
    Failed,
}

impl Election {
    /// A candidate who has seen nothing yet. `seed` decides about its jitter.
    pub(super) fn new(identity: String, timing: Timing, seed: u64) -> Self {
        Self {
            identity,
            timing,
            luck: Luck(seed),
            role: Role::Candidate,
            seen: Seen::Nothing,
            stale: true,
            contended: false,
            ask_at: BootTime::default(),
        }
    }

    /// What is to be done at `now`.
    pub(super) fn step(&mut self, now: BootTime) -> Step {
        if let Role::Leader { deadline } = self.role
            && now >= deadline
        {
            self.role = Role::Over(Loss::Expired);
        }
        match &self.role {
            Role::Over(loss) => Step::StandDown(loss.clone()),
            Role::Leader { deadline } if now < self.ask_at => Step::Wait(self.ask_at.min(*deadline)),
            _ if self.stale && now < self.ask_at => Step::Wait(self.ask_at),
            _ if self.stale => Step::Look,
            Role::Leader { .. } => Step::Write(self.draft()),
            Role::Candidate => {
                let free_at = self.free_at();
                if now >= free_at {
                    Step::Write(self.draft())
                } else if now >= self.ask_at {
                    Step::Look
                } else {
                    Step::Wait(free_at.min(self.ask_at))
                }
            }
        }
    }

    /// The lease was seen at `now`, or that there is none.
    pub(super) fn saw(&mut self, now: BootTime, lease: Option<Sighting>) {
        self.stale = false;
        self.contended &= lease.as_ref().is_none_or(|lease| self.is_free(lease));
        match (&self.role, &lease) {
            (Role::Leader { .. }, Some(lease)) if lease.holder != self.identity => {
                self.role = Role::Over(Loss::Taken { by: lease.holder.clone() });
            }
            (Role::Leader { .. }, _) => self.ask_at = now,
            // A leader that lives is heard of each retry period.
            (Role::Candidate | Role::Over(_), _) => self.ask_at = now + self.timing.retry_period * 2,
        }
        self.seen = match (lease, std::mem::replace(&mut self.seen, Seen::Nothing)) {
            (Some(lease), Seen::Lease { lease: known, since }) if lease.version == known.version => {
                Seen::Lease { lease, since }
            }
            (Some(lease), _) => Seen::Lease { lease, since: now },
            (None, Seen::Lease { lease, .. }) if !self.is_free(&lease) => {
                Seen::Missing { free_at: now + self.duration(&lease) }
            }
            (None, Seen::Missing { free_at }) => Seen::Missing { free_at },
            (None, _) => Seen::Missing { free_at: BootTime::default() },
        };
    }

    /// A look at the lease failed at `now`.
    pub(super) fn saw_nothing(&mut self, now: BootTime) {
        self.ask_at = now + self.pause();
    }

    /// The server does not tell of changes by itself any more: a look is due sooner.
    pub(super) fn is_deaf(&mut self, now: BootTime) {
        self.ask_at = self.ask_at.min(now + self.pause());
    }

    /// A write that was sent at `sent` ended at `now`.
    pub(super) fn wrote(&mut self, sent: BootTime, now: BootTime, outcome: Outcome) {
        match outcome {
            Outcome::Written(lease) => {
                (self.stale, self.contended) = (false, false);
                self.seen = Seen::Lease { lease, since: now };
                let deadline = sent + self.timing.renew_deadline;
                // A term that was over once does not come back, whatever the answer says.
                let in_time = match self.role {
                    Role::Candidate => true,
                    Role::Leader { deadline } => now < deadline,
                    Role::Over(_) => false,
                };
                if now < deadline && in_time {
                    self.ask_at = sent + self.pause();
                    self.role = Role::Leader { deadline };
                }
            }
            Outcome::Conflict => {
                self.stale = true;
                let again = std::mem::replace(&mut self.contended, true);
                self.ask_at = if again { now + self.pause() } else { now };
            }
            Outcome::Missing => self.saw(now, None),
            Outcome::Failed => {
                self.stale = true;
                self.ask_at = now + self.pause();
            }
        }
    }

    /// Until when this participant may act; none if it does not lead.
    pub(super) fn deadline(&self) -> Option<BootTime> {
        match self.role {
            Role::Leader { deadline } => Some(deadline),
            Role::Candidate | Role::Over(_) => None,
        }
    }

    /// Whether this participant has led and does so no more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.role, Role::Over(_))
    }

    /// Who holds the lease, as far as was seen; an empty name when nobody does.
    pub(super) fn holder(&self) -> Option<&str> {
        match &self.seen {
            Seen::Nothing => None,
            Seen::Missing { .. } => Some(""),
            Seen::Lease { lease, .. } => Some(&lease.holder),
        }
    }

    /// How the lease is given up, if it is this participant's.
    pub(super) fn release(&self) -> Option<Draft> {
        let Seen::Lease { lease, .. } = &self.seen else { return None };
        let released = Draft { holder: String::new(), duration_seconds: 1, ..self.draft() };
        (lease.holder == self.identity).then_some(released)
    }

    /// The lease as this participant's.
    fn draft(&self) -> Draft {
        let duration = self.timing.lease_duration;
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        let (version, transitions) = match &self.seen {
            Seen::Lease { lease, .. } => {
                let renews = lease.holder == self.identity;
                let transitions = (!renews).then_some(lease.transitions.saturating_add(1));
                (Some(lease.version.clone()), transitions)
            }
            Seen::Nothing | Seen::Missing { .. } => (None, Some(0)),
        };
        Draft {
            version,
            holder: self.identity.clone(),
            duration_seconds: i32::try_from(seconds).unwrap_or(i32::MAX),
            transitions,
        }
    }

    /// When the lease may be taken.
    fn free_at(&self) -> BootTime {
        match &self.seen {
            Seen::Missing { free_at } => *free_at,
            Seen::Lease { lease, since } if !self.is_free(lease) => *since + self.duration(lease),
            Seen::Nothing | Seen::Lease { .. } => BootTime::default(),
        }
    }

    /// Nobody holds it, or this participant, who did not learn so: the answer got lost.
    fn is_free(&self, lease: &Sighting) -> bool {
        lease.holder.is_empty() || lease.holder == self.identity
    }

    /// For how long its holder has the lease; where it does not say, for as long as we would.
    fn duration(&self, lease: &Sighting) -> Duration {
        lease.duration.unwrap_or(self.timing.lease_duration)
    }

    /// A retry period less up to a fifth, so that many do not ask at once.
    fn pause(&mut self) -> Duration {
        self.timing.retry_period.mul_f64(1.0 - 0.2 * self.luck.next())
    }
}

/// Where the jitter comes from: `SplitMix64` (Steele, Lea and Flood 2014). Nothing depends on its quality.
pub(super) struct Luck(pub(super) u64);

impl Luck {
    /// The next number, from 0 to less than 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a float")]
    pub(super) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
