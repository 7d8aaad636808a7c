//! The rules of the election: the next action of a candidate or leader as a function of its observations and the time.
//!
//! This module neither reads a clock nor does I/O. Two rules make sure that there are never two leaders at the same time:
//!
//! * A leader's term ends `renew_deadline` after it **sent** the last renewal that it knows to have succeeded.
//! * A candidate takes the lease `lease_duration`, which is longer, after it **observed** the last renewal. The server rejects that
//!   if there was a renewal that the candidate did not observe: each write names the resourceVersion that it replaces.
//!
//! A lease that does not exist may have been deleted while a leader held it, which may not know that yet. A candidate creates it without a
//! holder and without `renewTime`. A lease in this state is taken as any other: `lease_duration` after it was observed. Only a leader
//! may use it at once, until the end of its term, and sets `renewTime` when a write has prolonged the term.
//!
//! Each process measures with its own boot clock. The timestamps of the lease are for people; any change of the lease counts as a
//! renewal, because wall clocks can be set.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::lease::{LeaseOutcome, LeaseUpdate, ObservedLease};
use super::status::LossReason;
use staffetta_handler::BootTime;

/// The three durations of the section `[leader_election]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// The time after the last observed renewal from which a candidate may take the lease.
    pub(super) lease_duration: Duration,
    /// The time after its last successful renewal at which a leader stops; less than `lease_duration`.
    pub(super) renew_deadline: Duration,
    /// The longest time between two renewals of a leader; less than `renew_deadline`. A candidate reads a lease that does not change after
    /// twice this time.
    pub(super) retry_period: Duration,
}

/// The state of one participant of the election, from which its next action is decided.
pub(super) struct Elector {
    identity: String,
    /// The identity of this process in its previous term. That term has ended, and nothing of it is sent any more, so a lease with this
    /// holder is free.
    previous: Option<String>,
    timing: Timing,
    /// The number of request delays computed so far. It varies the jitter of the next one.
    pauses: u32,
    phase: ElectorPhase,
    observed: Observation,
    /// `true` if the lease must be read before it can be written, because its current resourceVersion is not known.
    stale: bool,
    /// `true` if the last write was rejected with a conflict, and no holder was observed since then.
    contended: bool,
    /// The time of the next request: a candidate reads the lease, a leader renews it.
    next_request: BootTime,
}

/// The role of a participant in the election.
enum ElectorPhase {
    /// The participant does not hold the lease.
    Candidate,
    /// The participant holds the lease, and its term lasts until `deadline`.
    Leader { deadline: BootTime },
    /// The participant held the lease and lost it. This phase is final.
    Lost(LossReason),
}

/// The last known state of the lease.
enum Observation {
    /// The lease was not read yet.
    Unknown,
    /// The lease does not exist.
    Missing,
    /// The lease exists. `since` is the time at which this version of it was first observed.
    Lease { lease: ObservedLease, since: BootTime },
}

/// The next action that a participant has to take.
#[derive(Debug)]
pub(super) enum ElectorAction {
    /// Wait until this time, or until a change of the lease is observed.
    Wait(BootTime),
    /// Read the lease.
    Read,
    /// Write the lease.
    Write(LeaseUpdate),
    /// Stop: this process is no longer the leader.
    Stop(LossReason),
}

impl Elector {
    /// Creates a candidate that has observed nothing yet.
    pub(super) fn new(identity: String, previous: Option<String>, timing: Timing) -> Self {
        Self {
            identity,
            previous,
            timing,
            pauses: 0,
            phase: ElectorPhase::Candidate,
            observed: Observation::Unknown,
            stale: true,
            contended: false,
            next_request: BootTime::default(),
        }
    }

    /// Returns the next action at the time `now`. Ends the term if its deadline has passed.
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

    /// Records the state of the lease at the time `now`; `None` if it did not exist. A leader that observes another holder has lost it.
    pub(super) fn observe(&mut self, now: BootTime, lease: Option<ObservedLease>) {
        self.stale = false;
        self.contended &= lease.as_ref().is_none_or(|lease| self.is_free(lease));
        match (&self.phase, &lease) {
            // Of a lease that somebody created after a deletion, nobody else is the holder.
            (ElectorPhase::Leader { .. }, Some(lease))
                if lease.holder != self.identity && (lease.renewed || !lease.holder.is_empty()) =>
            {
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
                Observation::Lease { lease: last, since }
            }
            (Some(lease), _) => Observation::Lease { lease, since: now },
            (None, _) => Observation::Missing,
        };
    }

    /// Records that a read of the lease failed at `now`. The next request follows after one retry period (less jitter).
    pub(super) fn read_failed(&mut self, now: BootTime) {
        self.next_request = now + self.pause();
    }

    /// Records that the watch of the lease ended at `now`. The next read follows after one retry period (less jitter) at most.
    pub(super) fn watch_ended(&mut self, now: BootTime) {
        self.next_request = self.next_request.min(now + self.pause());
    }

    /// Records the outcome of a write whose request was sent at `sent` and completed at `now`.
    pub(super) fn write_completed(&mut self, sent: BootTime, now: BootTime, outcome: LeaseOutcome) {
        match outcome {
            LeaseOutcome::Written(mut lease) => {
                (self.stale, self.contended) = (false, false);
                let deadline = sent + self.timing.renew_deadline;
                // An ended term stays ended, even if the write succeeded.
                let in_time = match self.phase {
                    ElectorPhase::Candidate => true,
                    ElectorPhase::Leader { deadline } => now < deadline,
                    ElectorPhase::Lost(_) => false,
                };
                if lease.holder != self.identity {
                    self.next_request = now;
                } else if now < deadline && in_time {
                    self.next_request = sent + self.pause();
                    self.phase = ElectorPhase::Leader { deadline };
                    lease.renewed = true;
                }
                self.observed = Observation::Lease { lease, since: now };
            }
            LeaseOutcome::Conflict => {
                self.stale = true;
                let again = std::mem::replace(&mut self.contended, true);
                self.next_request = if again { now + self.pause() } else { now };
            }
            LeaseOutcome::Failed => {
                self.stale = true;
                self.next_request = now + self.pause();
            }
        }
    }

    /// Returns the deadline of the term; `None` if this participant is not the leader.
    pub(super) fn deadline(&self) -> Option<BootTime> {
        match self.phase {
            ElectorPhase::Leader { deadline } => Some(deadline),
            ElectorPhase::Candidate | ElectorPhase::Lost(_) => None,
        }
    }

    /// Returns `true` if this participant was the leader and lost the lease.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.phase, ElectorPhase::Lost(_))
    }

    /// Returns the identity of the other process that holds the lease as last observed; `None` if there is none, or the lease was not read
    /// yet.
    pub(super) fn holder(&self) -> Option<&str> {
        match &self.observed {
            Observation::Lease { lease, .. } if !self.has_no_other_holder(lease) => Some(&lease.holder),
            _ => None,
        }
    }

    /// Returns the update that releases the lease; `None` if this participant does not hold it.
    pub(super) fn release(&self) -> Option<LeaseUpdate> {
        let Observation::Lease { lease, .. } = &self.observed else { return None };
        let released = LeaseUpdate { holder: String::new(), duration_seconds: 1, ..self.update() };
        (lease.holder == self.identity && lease.renewed).then_some(released)
    }

    /// Returns the update that takes or renews the lease.
    fn update(&self) -> LeaseUpdate {
        let duration = self.timing.lease_duration;
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        let leads = self.deadline().is_some();
        let (version, renews, transitions) = match &self.observed {
            Observation::Lease { lease, .. } => {
                let is_renewal = lease.holder == self.identity;
                let transitions = lease.transitions.saturating_add(i32::from(lease.renewed));
                let renews = lease.renewed || !leads;
                (Some(lease.version.clone()), renews, (!is_renewal).then_some(transitions))
            }
            Observation::Unknown | Observation::Missing => (None, false, Some(0)),
        };
        let holder = if version.is_some() || leads { self.identity.clone() } else { String::new() };
        let duration_seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
        LeaseUpdate { version, holder, duration_seconds, renews, transitions }
    }

    /// Returns the time from which the lease may be taken.
    fn free_at(&self) -> BootTime {
        match &self.observed {
            Observation::Lease { lease, since } if !self.is_free(lease) => *since + self.duration(lease),
            Observation::Unknown | Observation::Missing | Observation::Lease { .. } => BootTime::default(),
        }
    }

    /// Returns `true` if this participant may take the lease at once: no holder of a deleted lease can act any more, and nobody else holds
    /// this one.
    fn is_free(&self, lease: &ObservedLease) -> bool {
        lease.renewed && self.has_no_other_holder(lease)
    }

    /// Returns `true` if nobody holds the lease, a previous term of this process left it, or this participant holds it (a candidate only if
    /// the response to its write was lost).
    fn has_no_other_holder(&self, lease: &ObservedLease) -> bool {
        let holder = &lease.holder;
        holder.is_empty() || *holder == self.identity || self.previous.as_ref() == Some(holder)
    }

    /// Returns the duration of `lease`; if it has none, the configured duration of this participant.
    fn duration(&self, lease: &ObservedLease) -> Duration {
        lease.duration.unwrap_or(self.timing.lease_duration)
    }

    /// Returns the retry period with jitter: shortened by up to a fifth. The share differs for each participant and each call, so that
    /// participants do not send requests at the same time.
    fn pause(&mut self) -> Duration {
        self.pauses += 1;
        let mut digest = DefaultHasher::new();
        (&self.identity, self.pauses).hash(&mut digest);
        let shortened = u32::try_from(digest.finish() % 201).unwrap_or_default();
        self.timing.retry_period * (1000 - shortened) / 1000
    }
}
