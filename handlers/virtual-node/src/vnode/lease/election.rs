//! Decides when to write the Lease of one node, and whether this process holds it, without I/O.

use std::time::Duration;

use super::{SeenLease, UNKNOWN_HOLDER};
use staffetta_handler::BootTime;

/// The durations that govern the election of the holder of a Lease.
#[derive(Clone, Copy, Debug)]
pub(in crate::vnode) struct LeaseTiming {
    /// The time after which other processes take a Lease that is not renewed.
    pub(in crate::vnode) duration: Duration,
    /// The interval between two renewals of the Lease by its holder.
    pub(in crate::vnode) renewal: Duration,
    /// The delay before the next write to the Lease after a failed one, or after the second rejected one in a row.
    pub(in crate::vnode) retry: Duration,
}

impl LeaseTiming {
    /// Returns the time from the start of a write to the Lease for which the holder may act for the node: a quarter less than `duration`,
    /// so that the requests that it sends last end before another process takes the Lease.
    fn tenure(&self) -> Duration {
        self.duration * 3 / 4
    }
}

/// A write to a Lease. It succeeds only if the Lease has not changed since this process saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::vnode) enum LeaseWrite {
    /// Create the Lease, which nobody holds then.
    Create {
        /// A version of the past. Nobody who held the Lease before it can still act. If nobody has held the Lease since, the writer takes
        /// it at once.
        since: Option<u64>,
    },
    /// Create the Lease again that was deleted while this process held it.
    Recreate,
    /// Replace the Lease in this state, to renew or take it.
    Replace {
        /// The state of the Lease to replace. In any other state, it is not written. `renewed` is set if no holder of a deleted Lease can
        /// act any more.
        seen: SeenLease,
    },
    /// Give up the Lease in this state, so that another process takes it.
    GiveUp {
        /// The state of the Lease to replace. In any other state, it is not written.
        seen: SeenLease,
    },
}

/// The result of a write to a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::vnode) enum WriteResult {
    /// The Lease was written and has this state.
    Written(SeenLease),
    /// The Lease was created, nobody held it before for the whole duration, and it was taken. It has this state.
    First(SeenLease),
    /// The Lease was in another state than expected, and has this one.
    Conflict(SeenLease),
    /// The Lease was not written, and does not exist now.
    Missing,
    /// The request failed, and may have taken effect.
    Failed,
}

/// The participation of one process in the election of the holder of one node's Lease.
///
/// The times in the Lease are never compared, since the clocks of processes differ. A process measures on its own clock how
/// long it has not seen the Lease change, and takes the Lease once this time is the whole duration. The holder counts the
/// duration from before its request, so that its hold ends before any other process takes the Lease.
///
/// A Lease that does not exist may have been deleted while a process held it that does not know that yet, however often. It is therefore
/// created without a holder and a time of renewal, and taken as any other: the whole duration after it was seen. There are two exceptions:
///
/// * The API server has the history of the whole duration, and nobody held the Lease.
/// * A process that holds the deleted Lease uses the new one if it knows before the end of its hold that its write took effect. Only a
///   later write sets the time of renewal, so a write that arrives late leaves a Lease that nobody takes at once.
#[derive(Clone, Debug)]
pub(in crate::vnode) struct LeaseElection {
    replica: String,
    timing: LeaseTiming,
    /// The newest state of the Lease, and the time when this process first saw it.
    seen: Option<(SeenLease, BootTime)>,
    /// The time until which this process may act; `None` while it does not hold the Lease.
    until: Option<BootTime>,
    /// The time since which this process wants the Lease without holding it; `None` if it does not want the Lease, or holds it.
    wanted: Option<BootTime>,
    /// The earliest time of the next write: a renewal of the holder, or a retry.
    due: BootTime,
    /// The time at which the write in progress began; `None` if there is none.
    began: Option<BootTime>,
    /// `true` if the write in progress gives this process the Lease even if its response arrives after the hold: no holder of a deleted
    /// Lease can act any more.
    is_decisive: bool,
    /// `true` if the last write was rejected, because the Lease was in another state than expected or did not exist.
    conflicted: bool,
}

impl LeaseElection {
    pub(in crate::vnode) fn new(replica: &str, timing: LeaseTiming) -> Self {
        Self {
            replica: replica.to_owned(),
            timing,
            seen: None,
            until: None,
            wanted: None,
            due: BootTime::default(),
            began: None,
            is_decisive: false,
            conflicted: false,
        }
    }

    /// Returns `true` while this process may act for the node, as the holder of its Lease.
    pub(in crate::vnode) fn may_act(&self, now: BootTime) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Returns the time until which this process may act; `None` while it does not hold the Lease.
    pub(in crate::vnode) fn until(&self) -> Option<BootTime> {
        self.until
    }

    /// Returns the holder of the Lease; `None` if nobody holds the Lease, or it has expired.
    pub(in crate::vnode) fn holder(&self, now: BootTime) -> Option<&str> {
        let (seen, since) = self.seen.as_ref()?;
        let held = !seen.deleted && !seen.holder.is_empty() && now < *since + self.timing.duration;
        held.then_some(&seen.holder)
    }

    /// Returns `true` while a write to the Lease is in progress.
    pub(in crate::vnode) fn is_writing(&self) -> bool {
        self.began.is_some()
    }

    /// Records a state of the Lease that the watch has shown. A state that is older than the newest known one is ignored. A deletion at the
    /// version at which this process has taken the Lease is ignored, too: the Lease still exists, and has only left the selection of the
    /// watch.
    pub(in crate::vnode) fn observe(&mut self, seen: &SeenLease, now: BootTime) {
        let newer = match &self.seen {
            None => true,
            // A deletion may be reported with the version of the last state.
            Some((known, _)) => {
                let is_ours = *known.holder == *self.replica;
                let ends = seen.deleted && !known.deleted && !is_ours;
                seen.version > known.version || (seen.version == known.version && ends)
            }
        };
        if newer {
            self.replace(seen, now);
        }
    }

    fn replace(&mut self, seen: &SeenLease, now: BootTime) {
        // Nobody holds a Lease that was just created.
        if *seen.holder != *self.replica && (seen.renewed || !seen.holder.is_empty()) {
            self.until = None;
        }
        self.seen = Some((seen.clone(), now));
    }

    /// Ends the hold if its time is over, and returns the write that is due; `None` if no write is due, or one is in progress. A
    /// process that does not hold the Lease takes it if `wanted` is set, with a further `delay`, by which replicas share nodes
    /// evenly. `history` is a version from before the Lease duration; without it, processes that have one go first.
    pub(in crate::vnode) fn next(
        &mut self,
        wanted: bool,
        delay: Duration,
        history: Option<u64>,
        now: BootTime,
    ) -> Option<LeaseWrite> {
        if self.until.is_some_and(|until| now >= until) {
            self.until = None;
        }
        let holds = self.until.is_some();
        self.wanted = if wanted && !holds { self.wanted.or(Some(now)) } else { None };
        if self.began.is_some() || now < self.due {
            return None;
        }
        let (seen, since) = self.seen.clone().map_or((None, None), |(seen, since)| (Some(seen), Some(since)));
        let is_free =
            |seen: &SeenLease| seen.renewed && (seen.holder.is_empty() || *seen.holder == *self.replica);
        let expires_at = since.or(self.wanted).unwrap_or_default() + self.timing.duration;
        let (write, free_at) = match seen {
            Some(mut seen) if !seen.deleted => {
                let free_at = if is_free(&seen) { since.unwrap_or_default() } else { expires_at };
                seen.renewed |= !holds;
                (LeaseWrite::Replace { seen }, free_at)
            }
            _ if holds => (LeaseWrite::Recreate, expires_at),
            Some(seen) if *seen.holder != *UNKNOWN_HOLDER => {
                let free_at = if is_free(&seen) { BootTime::default() } else { expires_at };
                (LeaseWrite::Create { since: Some(seen.version) }, free_at)
            }
            _ => {
                let free_at = if history.is_some() { BootTime::default() } else { expires_at };
                (LeaseWrite::Create { since: history }, free_at)
            }
        };
        self.is_decisive = matches!(&write, LeaseWrite::Replace { seen } if seen.renewed);
        let may_take = || self.wanted.is_some_and(|wanted| now >= free_at.max(wanted) + delay);
        (holds || may_take()).then_some(write)
    }

    /// Records that a write to the Lease begins. No other one begins before [`finish`](Self::finish).
    pub(in crate::vnode) fn begin(&mut self, now: BootTime) {
        self.began = Some(now);
    }

    /// Records the result of the write that began last.
    pub(in crate::vnode) fn finish(&mut self, result: &WriteResult, now: BootTime) {
        let Some(began) = self.began.take() else { return };
        let unexpected = matches!(result, WriteResult::Conflict(_) | WriteResult::Missing);
        let again = std::mem::replace(&mut self.conflicted, unexpected);
        let counts = self.is_decisive || self.may_act(now) || matches!(result, WriteResult::First(_));
        match result {
            WriteResult::Written(seen) | WriteResult::First(seen) => {
                let left = |known: &SeenLease| known.deleted && known.version == seen.version;
                if self.seen.as_ref().is_some_and(|(known, _)| left(known)) {
                    // The watch was faster: the Lease has left its selection.
                    self.replace(seen, now);
                }
                self.observe(seen, now);
                // A newer state may have been seen meanwhile.
                let newest = self.seen.as_mut().filter(|(known, _)| known == seen);
                if let Some((known, _)) = newest.filter(|_| counts && *seen.holder == *self.replica) {
                    known.renewed = true;
                    self.until = Some(began + self.timing.tenure());
                    self.due = began + self.timing.renewal;
                }
            }
            // Read after the conflict, so it counts even if it seems older: versions start again at those of a backup from which
            // the cluster was restored.
            WriteResult::Conflict(seen) => {
                self.replace(seen, now);
                self.due = if again { now + self.timing.retry } else { now };
            }
            WriteResult::Missing => {
                let holds = self.may_act(now);
                // A state that the watch has shown since the request began may be that of a new Lease.
                if self.seen.as_ref().is_none_or(|(_, since)| *since <= began) {
                    let lease = self.seen.take().map(|(lease, _)| lease).unwrap_or_default();
                    // Another process may have created and held it since this one saw it.
                    let lease =
                        if holds { SeenLease { deleted: true, ..lease } } else { lease.deleted_unseen() };
                    self.seen = Some((lease, now));
                }
                self.due = if again { now + self.timing.retry } else { now };
            }
            WriteResult::Failed => self.due = now + self.timing.retry,
        }
    }

    /// Ends the hold, so that this process does not act for the node from now on, and begins the write that gives the Lease up. Returns
    /// this write, or `None` in these cases:
    ///
    /// * This process does not hold the Lease.
    /// * The Lease is known to be deleted, or was only just created. The hold ends without a write.
    /// * Another write is in progress. The hold goes on.
    pub(in crate::vnode) fn hand_over(&mut self, now: BootTime) -> Option<LeaseWrite> {
        if self.is_writing() {
            return None;
        }
        let seen = self.give_up()?;
        self.begin(now);
        Some(LeaseWrite::GiveUp { seen })
    }

    /// Ends the hold, so that this process does not act for the node from now on. Returns the Lease to give up; `None` if this process
    /// did not hold the Lease, or if the Lease is known to be deleted or was only just created.
    pub(in crate::vnode) fn give_up(&mut self) -> Option<SeenLease> {
        self.until.take()?;
        self.seen.as_ref().filter(|(seen, _)| !seen.deleted && seen.renewed).map(|(seen, _)| seen.clone())
    }
}

#[cfg(test)]
mod tests;
