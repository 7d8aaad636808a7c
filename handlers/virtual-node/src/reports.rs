//! The reports and heartbeats of a machine, and its silence, without I/O.

use std::time::Duration;

use tokio::time::Instant;

use crate::policy::Policy;

/// The verdict on the silence of a machine, for machines that answer a request by a separate report
/// ([`Reply::Later`](crate::Reply::Later)). The silence begins with the last report, with a later heartbeat that counts, or, before the
/// first report, when the node was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportVerdict {
    /// The machine was silent for less than `Policy::silent_after`.
    Heard,
    /// The machine was silent for `Policy::silent_after`: it cannot be reached.
    Unreachable,
    /// The machine was silent for `Policy::gone_after`, counted anew from the last time at which its reports could not be received: it is
    /// taken to exist no more.
    Gone,
}

/// The times of the last report (of health or workloads) and the last heartbeat of a machine. A heartbeat shows that the machine runs;
/// only an answer shows that requests reach it. So heartbeats count only after the first answer, and only while no read waits for one.
#[derive(Debug)]
pub(crate) struct Reports {
    /// The time when the node was added.
    added: Instant,
    /// The time of the last report, heartbeats excluded; `None` before the first one.
    reported: Option<Instant>,
    /// The time of the last heartbeat; `None` before the first one.
    heartbeat: Option<Instant>,
    /// The time of the first read since the last report; `None` if there was no read since.
    asked: Option<Instant>,
    /// `true` while no list of workloads has arrived since the last read.
    unlisted: bool,
    /// The last time at which reports of the machine could not be received, for example without a connection; `None` if they always could.
    unreceivable_until: Option<Instant>,
}

impl Reports {
    /// Creates the record of a machine whose node is added now, without any report or heartbeat.
    pub(crate) fn new() -> Self {
        let added = Instant::now();
        Self {
            added,
            reported: None,
            heartbeat: None,
            asked: None,
            unlisted: false,
            unreceivable_until: None,
        }
    }

    /// Records that the machine is being read.
    pub(crate) fn asked(&mut self) {
        self.asked.get_or_insert_with(Instant::now);
        self.unlisted = true;
    }

    /// Records a report other than a heartbeat. `lists` is `true` if the report lists the workloads.
    pub(crate) fn arrived(&mut self, lists: bool) {
        (self.reported, self.asked) = (Some(Instant::now()), None);
        self.unlisted &= !lists;
    }

    /// Records a heartbeat.
    pub(crate) fn heartbeat(&mut self) {
        self.heartbeat = Some(Instant::now());
    }

    /// Records that reports of the machine cannot be received at this time.
    pub(crate) fn reports_cannot_arrive(&mut self) {
        self.unreceivable_until = Some(Instant::now());
    }

    /// Returns the time of the last report or of a later heartbeat; `None` before the first report. While a read is unanswered, a heartbeat
    /// after it counts as if it had arrived when that read began.
    pub(crate) fn last(&self) -> Option<Instant> {
        let heartbeat = self.heartbeat.map(|at| self.asked.map_or(at, |asked| asked.min(at)));
        self.reported.map(|at| heartbeat.map_or(at, |heartbeat| heartbeat.max(at)))
    }

    /// Returns the time since which the machine is silent: before its first report, the time at which its node was added, so that a restart
    /// of this process removes no node.
    fn silent_since(&self) -> Instant {
        self.last().unwrap_or(self.added)
    }

    /// Returns the time for which the machine has been silent.
    pub(crate) fn silent_for(&self) -> Duration {
        self.silent_since().elapsed()
    }

    /// Returns the time for which the machine has been silent, counted anew from the last time at which its reports could not be received.
    pub(crate) fn silent_while_receivable(&self) -> Duration {
        let since = self.silent_since();
        self.unreceivable_until.map_or(since, |until| until.max(since)).elapsed()
    }

    /// Returns the message about the outage of a silent machine: the seconds since its last report, and a hint if it sends heartbeats.
    pub(crate) fn outage_message(&self) -> String {
        let seconds = self.silent_for().as_secs();
        if self.heartbeat.is_some_and(|at| at > self.silent_since()) {
            return format!(
                "no answer for {seconds} s, although it sends heartbeats; check that requests reach it"
            );
        }
        format!("no report for {seconds} s")
    }

    /// Returns the verdict on the machine now, by the time limits of `policy`.
    pub(crate) fn verdict(&self, policy: &Policy) -> ReportVerdict {
        if policy.gone_after.is_some_and(|limit| self.silent_while_receivable() >= limit) {
            ReportVerdict::Gone
        } else if self.silent_for() >= policy.silent_after {
            ReportVerdict::Unreachable
        } else {
            ReportVerdict::Heard
        }
    }

    /// Returns the time at which the [`verdict`](Self::verdict) changes next if no report arrives before; `None` if the verdict will not
    /// change, or no report has arrived yet.
    pub(crate) fn judged_at(&self, policy: &Policy) -> Option<Instant> {
        let (last, limits) = (self.last()?, [Some(policy.silent_after), policy.gone_after]);
        let times = limits.into_iter().flatten().map(|limit| last + limit);
        times.filter(|at| *at > Instant::now()).min()
    }

    /// Returns the time, possibly past, until which the last heartbeat makes a read of the machine unnecessary; `None` without a heartbeat,
    /// before the first report, or while no list of workloads has arrived since the last read.
    pub(crate) fn spared_until(&self, policy: &Policy) -> Option<Instant> {
        let answered = self.reported.is_some() && !self.unlisted;
        self.heartbeat_until(policy).filter(|_| answered)
    }

    /// Returns the time until which the last heartbeat counts; `None` if there was none. It counts longer than the poll interval, since
    /// heartbeats come at similar intervals, and with time left for a read before the machine counts as silent.
    pub(crate) fn heartbeat_until(&self, policy: &Policy) -> Option<Instant> {
        let Policy { poll_interval, silent_after, .. } = *policy;
        let time = (poll_interval * 3 / 2).min((poll_interval + silent_after) / 2);
        self.heartbeat.map(|at| at + time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        let (poll_interval, gone_after) = (Duration::from_secs(10), Some(Duration::from_secs(60)));
        Policy { poll_interval, gone_after, ..Policy::default() }
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_is_judged_by_the_time_since_it_was_heard() {
        let (mut reports, policy) = (Reports::new(), policy());
        let kept = Policy { gone_after: None, ..policy.clone() };
        reports.arrived(true);
        for (wait, verdict) in [
            (0, ReportVerdict::Heard),
            (24, ReportVerdict::Heard),
            (1, ReportVerdict::Unreachable),
            (34, ReportVerdict::Unreachable),
            (1, ReportVerdict::Gone),
        ] {
            pass(wait).await;
            assert_eq!(reports.verdict(&policy), verdict);
        }
        assert_eq!(reports.verdict(&kept), ReportVerdict::Unreachable, "its node is kept");
        reports.reports_cannot_arrive();
        pass(59).await;
        assert_eq!(reports.verdict(&policy), ReportVerdict::Unreachable, "nothing could be heard of it");
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_verdict_comes_when_the_machine_was_silent_for_so_long() {
        let (mut reports, policy) = (Reports::new(), policy());
        pass(5).await;
        reports.arrived(true);
        let after = |seconds| Some(reports.silent_since() + Duration::from_secs(seconds));
        assert_eq!(reports.judged_at(&policy), after(25));
        pass(25).await;
        assert_eq!(reports.judged_at(&policy), after(60));
        pass(35).await;
        assert_eq!(reports.judged_at(&policy), None);
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_count_while_reads_are_answered() {
        let (mut reports, policy) = (Reports::new(), policy());
        reports.arrived(true);
        for _ in 0..10 {
            pass(12).await;
            reports.heartbeat();
            assert_eq!(reports.verdict(&policy), ReportVerdict::Heard);
            assert_eq!(reports.spared_until(&policy), Some(Instant::now() + Duration::from_secs(15)));
        }
        reports.asked();
        for (heartbeats, verdict) in
            [(2, ReportVerdict::Heard), (2, ReportVerdict::Unreachable), (1, ReportVerdict::Gone)]
        {
            for _ in 0..heartbeats {
                pass(12).await;
                reports.heartbeat();
                reports.asked();
            }
            assert_eq!(reports.verdict(&policy), verdict);
            assert!(reports.outage_message().contains("heartbeats"));
            assert_eq!(reports.spared_until(&policy), None);
        }
        reports.arrived(false);
        assert_eq!((reports.verdict(&policy), reports.spared_until(&policy)), (ReportVerdict::Heard, None));
        reports.arrived(true);
        assert!(reports.spared_until(&policy).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_of_a_machine_that_never_answered_do_not_count() {
        let (mut reports, policy) = (Reports::new(), policy());
        for _ in 0..5 {
            pass(12).await;
            reports.heartbeat();
        }
        assert_eq!((reports.verdict(&policy), reports.last()), (ReportVerdict::Gone, None));
        assert_eq!(reports.spared_until(&policy), None);
    }

    #[test]
    fn a_machine_is_read_before_it_counts_as_silent_whatever_the_intervals() {
        let mut reports = Reports::new();
        reports.arrived(true);
        reports.heartbeat();
        for poll in 1..25 {
            let policy = Policy { poll_interval: Duration::from_secs(poll), ..policy() };
            let spared = reports.spared_until(&policy).unwrap().duration_since(reports.heartbeat.unwrap());
            assert!(spared > policy.poll_interval && spared < policy.silent_after, "{poll}");
        }
    }
}
