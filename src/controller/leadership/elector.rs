//! The rules of the election: the next action of a candidate or leader as a function of its observations and the time.
//!
//! Nothing here reads a clock or does I/O. Two rules exclude two leaders at a time:
//!
//! * A leader's term ends `renew_deadline` after it **sent** the last renewal that it knows to have succeeded.
//! * A candidate takes the lease `lease_duration`, which is longer, after it **observed** the last renewal. The server rejects that
//!   if there was a renewal that the candidate did not observe: each write names the resourceVersion that it replaces.
//!
//! Each process measures with its own boot clock. The timestamps of the lease are for people; any change of the lease counts as a
//! renewal, because wall clocks can be set.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::lease::{LeaseOutcome, LeaseUpdate, ObservedLease};
use super::status::LossReason;
use crate::clock::BootTime;

/// The three durations of an election.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// The time after the last observed renewal at which a candidate takes the lease.
    pub(super) lease_duration: Duration,
    /// The time after the last renewal at which a leader stops; less than `lease_duration`.
    pub(super) renew_deadline: Duration,
    /// The longest time between two requests; less than `renew_deadline`.
    pub(super) retry_period: Duration,
}

/// The state of one participant.
pub(super) struct Elector {
    identity: String,
    timing: Timing,
    /// The number of pauses so far.
    pauses: u32,
    phase: ElectorPhase,
    observed: Observation,
    /// `true` if the lease must be read before it is written: its resourceVersion is unknown or outdated.
    stale: bool,
    /// `true` if the last write conflicted, and no holder was observed since.
    contended: bool,
    /// The time of the next request: a read of a candidate, a renewal of a leader.
    next_request: BootTime,
}

enum ElectorPhase {
    Candidate,
    Leader {
        deadline: BootTime,
    },
    /// The lease was lost; final.
    Lost(LossReason),
}

enum Observation {
    /// The lease was not read yet.
    Unknown,
    /// There is no lease. If a held lease was deleted, its holder may act until `free_at`.
    Missing { free_at: BootTime },
    /// The last observed lease, and the time at which this version of it was first observed.
    Lease { lease: ObservedLease, since: BootTime },
}

/// The next action of a participant.
#[derive(Debug)]
pub(super) enum ElectorAction {
    /// Wait until then, or until a change of the lease is observed.
    Wait(BootTime),
    /// Read the lease.
    Read,
    /// Write the lease.
    Write(LeaseUpdate),
    /// Stop: this process is no longer the leader.
    Stop(LossReason),
}

impl Elector {
    /// A candidate that has observed nothing yet.
    pub(super) fn new(identity: String, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            pauses: 0,
            phase: ElectorPhase::Candidate,
            observed: Observation::Unknown,
            stale: true,
            contended: false,
            next_request: BootTime::default(),
        }
    }

    /// The next action at `now`.
    pub(super) fn next_action(&mut self, now: BootTime) -> ElectorAction {
        if let ElectorPhase::Leader { deadline } = self.phase
            && now >= deadline
        {
            self.phase = ElectorPhase::Lost(LossReason::Expired);
        }
        match &self.phase {
            ElectorPhase::Lost(loss) => ElectorAction::Stop(loss.clone()),
            ElectorPhase::Leader { deadline } if now < self.next_request => {
                ElectorAction::Wait(self.next_request.min(*deadline))
            }
            _ if self.stale && now < self.next_request => ElectorAction::Wait(self.next_request),
            _ if self.stale => ElectorAction::Read,
            ElectorPhase::Leader { .. } => ElectorAction::Write(self.update()),
            ElectorPhase::Candidate => {
                let free_at = self.free_at();
                if now >= free_at {
                    ElectorAction::Write(self.update())
                } else if now >= self.next_request {
                    ElectorAction::Read
                } else {
                    ElectorAction::Wait(free_at.min(self.next_request))
                }
            }
        }
    }

    /// Records the lease as it was at `now`; `None` if it did not exist.
    pub(super) fn observe(&mut self, now: BootTime, lease: Option<ObservedLease>) {
        self.stale = false;
        self.contended &= lease.as_ref().is_none_or(|lease| self.is_free(lease));
        match (&self.phase, &lease) {
            (ElectorPhase::Leader { .. }, Some(lease)) if lease.holder != self.identity => {
                self.phase = ElectorPhase::Lost(LossReason::Taken { by: lease.holder.clone() });
            }
            (ElectorPhase::Leader { .. }, _) => self.next_request = now,
            // A running leader renews in each retry period.
            (ElectorPhase::Candidate | ElectorPhase::Lost(_), _) => {
                self.next_request = now + self.timing.retry_period * 2;
            }
        }
        self.observed = match (lease, std::mem::replace(&mut self.observed, Observation::Unknown)) {
            (Some(lease), Observation::Lease { lease: last, since }) if lease.version == last.version => {
                Observation::Lease { lease, since }
            }
            (Some(lease), _) => Observation::Lease { lease, since: now },
            (None, Observation::Lease { lease, .. }) if !self.is_free(&lease) => {
                Observation::Missing { free_at: now + self.duration(&lease) }
            }
            (None, Observation::Missing { free_at }) => Observation::Missing { free_at },
            (None, _) => Observation::Missing { free_at: BootTime::default() },
        };
    }

    /// Records that a read of the lease failed at `now`.
    pub(super) fn read_failed(&mut self, now: BootTime) {
        self.next_request = now + self.pause();
    }

    /// Records that the watch of the lease ended: the next read is due sooner.
    pub(super) fn watch_ended(&mut self, now: BootTime) {
        self.next_request = self.next_request.min(now + self.pause());
    }

    /// Records the outcome of a write that was sent at `sent` and ended at `now`.
    pub(super) fn write_completed(&mut self, sent: BootTime, now: BootTime, outcome: LeaseOutcome) {
        match outcome {
            LeaseOutcome::Written(lease) => {
                (self.stale, self.contended) = (false, false);
                self.observed = Observation::Lease { lease, since: now };
                let deadline = sent + self.timing.renew_deadline;
                // An ended term stays ended, even if the write succeeded.
                let in_time = match self.phase {
                    ElectorPhase::Candidate => true,
                    ElectorPhase::Leader { deadline } => now < deadline,
                    ElectorPhase::Lost(_) => false,
                };
                if now < deadline && in_time {
                    self.next_request = sent + self.pause();
                    self.phase = ElectorPhase::Leader { deadline };
                }
            }
            LeaseOutcome::Conflict => {
                self.stale = true;
                let again = std::mem::replace(&mut self.contended, true);
                self.next_request = if again { now + self.pause() } else { now };
            }
            LeaseOutcome::Missing => self.observe(now, None),
            LeaseOutcome::Failed => {
                self.stale = true;
                self.next_request = now + self.pause();
            }
        }
    }

    /// The deadline of the term; `None` if this participant is not the leader.
    pub(super) fn deadline(&self) -> Option<BootTime> {
        match self.phase {
            ElectorPhase::Leader { deadline } => Some(deadline),
            ElectorPhase::Candidate | ElectorPhase::Lost(_) => None,
        }
    }

    /// Returns `true` if this participant lost the lease.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.phase, ElectorPhase::Lost(_))
    }

    /// The holder of the lease as last observed; empty if there is none.
    pub(super) fn holder(&self) -> Option<&str> {
        match &self.observed {
            Observation::Unknown => None,
            Observation::Missing { .. } => Some(""),
            Observation::Lease { lease, .. } => Some(&lease.holder),
        }
    }

    /// The update that releases the lease, if this participant holds it.
    pub(super) fn release(&self) -> Option<LeaseUpdate> {
        let Observation::Lease { lease, .. } = &self.observed else { return None };
        let released = LeaseUpdate { holder: String::new(), duration_seconds: 1, ..self.update() };
        (lease.holder == self.identity).then_some(released)
    }

    /// The update that takes or renews the lease.
    fn update(&self) -> LeaseUpdate {
        let duration = self.timing.lease_duration;
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        let (version, transitions) = match &self.observed {
            Observation::Lease { lease, .. } => {
                let is_renewal = lease.holder == self.identity;
                let transitions = (!is_renewal).then_some(lease.transitions.saturating_add(1));
                (Some(lease.version.clone()), transitions)
            }
            Observation::Unknown | Observation::Missing { .. } => (None, Some(0)),
        };
        LeaseUpdate {
            version,
            holder: self.identity.clone(),
            duration_seconds: i32::try_from(seconds).unwrap_or(i32::MAX),
            transitions,
        }
    }

    /// The time from which the lease may be taken.
    fn free_at(&self) -> BootTime {
        match &self.observed {
            Observation::Missing { free_at } => *free_at,
            Observation::Lease { lease, since } if !self.is_free(lease) => *since + self.duration(lease),
            Observation::Unknown | Observation::Lease { .. } => BootTime::default(),
        }
    }

    /// Returns `true` if the lease has no holder, or this participant holds it without knowing: the response was lost.
    fn is_free(&self, lease: &ObservedLease) -> bool {
        lease.holder.is_empty() || lease.holder == self.identity
    }

    /// The duration of `lease`; ours if it has none.
    fn duration(&self, lease: &ObservedLease) -> Duration {
        lease.duration.unwrap_or(self.timing.lease_duration)
    }

    /// A retry period shortened by up to a fifth, different for each participant and pause, so that participants do not send
    /// requests at the same time.
    fn pause(&mut self) -> Duration {
        self.pauses += 1;
        let mut digest = DefaultHasher::new();
        (&self.identity, self.pauses).hash(&mut digest);
        let shortened = u32::try_from(digest.finish() % 201).unwrap_or_default();
        self.timing.retry_period * (1000 - shortened) / 1000
    }
}
