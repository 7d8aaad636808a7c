//! The reachability of a machine, computed from the results of its reads.

use std::time::Duration;

use staffetta_driver::Reason;
use tokio::time::Instant;

use crate::policy::Policy;

/// The reachability of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reachability {
    /// The machine was not read yet.
    Untried,
    /// The last read succeeded, a report arrived since, or the reads that have failed since do not make the machine unreachable yet (see
    /// [`Reachability::failed`]).
    Up {
        /// The time of the last answer before the current series of failed reads, or that of the first of them if no answer is known;
        /// `None` if no read has failed since the last success.
        failing: Option<Instant>,
    },
    /// The machine cannot be reached.
    Down(MachineOutage),
}

/// An outage of a machine: the error of the last failed read, or the silence of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineOutage {
    /// The reason of the outage, one word in CamelCase.
    pub(crate) reason: &'static str,
    /// The message for people: the error of the last failed read, or the time for which the machine has been silent.
    pub(crate) message: String,
    /// `true` if this process reached the machine before the outage.
    pub(crate) was_up: bool,
}

/// The reason of an outage of a machine whose description (for example, its credentials) cannot be used, so that nothing was sent to it.
pub(crate) const MISDESCRIBED: &str = "MachineInvalid";

/// The reason of an outage of a machine that has sent no report for `Policy::silent_after`.
pub(crate) const SILENT: &str = "MachineSilent";

impl MachineOutage {
    /// Returns `true` if the description of the machine cannot be used.
    pub(crate) fn is_misdescribed(&self) -> bool {
        self.reason == MISDESCRIBED
    }

    /// Returns a phrase for messages: that the machine `cannot be reached`, `cannot be read` because it refuses, or `has no usable description`.
    pub(crate) fn state(&self) -> &'static str {
        match self.reason {
            MISDESCRIBED => "has no usable description",
            reason if reason == Reason::Refused.name() => "cannot be read",
            _ => "cannot be reached",
        }
    }
}

/// The change of the reachability by a read, a report or silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// No change of the reachability.
    Nothing,
    /// The machine was reached for the first time.
    Found,
    /// The machine can be reached again after an outage.
    Up,
    /// The machine cannot be reached from now on.
    Down,
    /// The machine still cannot be reached, for another reason than before.
    Otherwise,
}

impl Reachability {
    /// Records a successful read or a report. Returns the change of the reachability.
    pub(crate) fn succeeded(&mut self) -> Transition {
        let transition = match self {
            Self::Untried => Transition::Found,
            Self::Up { .. } => Transition::Nothing,
            Self::Down(_) => Transition::Up,
        };
        *self = Self::Up { failing: None };
        transition
    }

    /// Records a failed read. Returns the change of the reachability. A reachable machine becomes unreachable with the second or a
    /// later failure in a row, once `Policy::unreachable_after` has passed since its last answer (the value of `answered` at the
    /// first failure). With `refused` (a retry would fail in the same way), it becomes unreachable at once. A machine that was
    /// not reached yet becomes unreachable with the first failure.
    pub(crate) fn failed(
        &mut self,
        reason: &'static str,
        message: String,
        refused: bool,
        answered: Option<Instant>,
        policy: &Policy,
    ) -> Transition {
        let now = Instant::now();
        let outage = |was_up| MachineOutage { reason, message, was_up };
        match self {
            Self::Up { failing } => {
                let is_first = failing.is_none();
                let since = *failing.get_or_insert(answered.unwrap_or(now));
                let lasts = now.saturating_duration_since(since) >= policy.unreachable_after;
                if !refused && (is_first || !lasts) {
                    return Transition::Nothing;
                }
                *self = Self::Down(outage(true));
                Transition::Down
            }
            Self::Untried => {
                *self = Self::Down(outage(false));
                Transition::Down
            }
            Self::Down(before) => {
                let same = before.reason == reason;
                *before = outage(before.was_up);
                if same { Transition::Nothing } else { Transition::Otherwise }
            }
        }
    }

    /// Records that a machine has sent no report for `Policy::silent_after`. Returns the change of the reachability.
    pub(crate) fn fell_silent(&mut self, message: String) -> Transition {
        let was_up = match self {
            Self::Untried => false,
            Self::Up { .. } => true,
            Self::Down(before) => before.was_up,
        };
        let outage = MachineOutage { reason: SILENT, message, was_up };
        match std::mem::replace(self, Self::Down(outage)) {
            Self::Down(before) if before.reason == SILENT => Transition::Nothing,
            Self::Down(_) => Transition::Otherwise,
            Self::Untried | Self::Up { .. } => Transition::Down,
        }
    }

    /// Returns `true` if the machine can be reached and no read has failed since its last answer.
    pub(crate) fn answers(&self) -> bool {
        matches!(self, Self::Up { failing: None })
    }

    /// Returns `true` if the machine counts as reachable, so that requests other than reads may be sent to it.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }
}

/// The kind of a failed read of a machine, which determines when the next one follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// The machine did not answer, or its answer is no data.
    Unanswered,
    /// The machine refused the read, or its description cannot be used.
    Refused,
    /// The machine refused credentials that it has accepted before.
    RefusedAnew,
}

/// Returns the delay before the next read of a machine, after `attempt` consecutive failures (from 1). A machine that does not answer is
/// read nearly as often as one that does, so that the end of an outage is noticed soon, and its beginning sooner. A refused read is repeated
/// after 30 s (less if the policy's maximum is shorter), then after delays that double, because each attempt may count against the account:
/// up to nearly the maximum if the machine has accepted the same credentials before, otherwise up to ten times the maximum.
pub(crate) fn retry_delay(attempt: u32, failure: ReadFailure, policy: &Policy) -> Duration {
    let most = match failure {
        ReadFailure::Unanswered => return policy.poll_interval * if attempt == 1 { 2 } else { 4 } / 5,
        // Less, because the delay is varied.
        ReadFailure::RefusedAnew => policy.max_retry_interval * 9 / 10,
        ReadFailure::Refused => policy.max_retry_interval * 10,
    };
    let first = policy.max_retry_interval.min(Duration::from_secs(30));
    first.saturating_mul(1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(reach: &mut Reachability, refused: bool) -> Transition {
        reach.failed("DriverUnavailable", "no answer".into(), refused, None, &Policy::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_fails_once_is_no_outage_and_one_that_goes_on_failing_is() {
        let mut reach = Reachability::Untried;
        assert_eq!(reach.succeeded(), Transition::Found);
        assert_eq!(fails(&mut reach, false), Transition::Nothing);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!(fails(&mut reach, false), Transition::Nothing);
        assert_eq!(reach.succeeded(), Transition::Nothing, "the time starts anew");
        assert_eq!(fails(&mut reach, false), Transition::Nothing);
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(fails(&mut reach, false), Transition::Down);
        assert!(!reach.is_up());
        assert_eq!((fails(&mut reach, false), reach.succeeded()), (Transition::Nothing, Transition::Up));
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_hangs_is_out_of_reach_with_the_second_failure_counted_from_its_last_answer() {
        let mut reach = Reachability::Up { failing: None };
        let answered = Some(Instant::now());
        tokio::time::advance(Duration::from_secs(15)).await;
        let mut fails = || {
            let policy = Policy::default();
            reach.failed("DriverUnavailable", "no answer".into(), false, answered, &policy)
        };
        assert_eq!(fails(), Transition::Nothing, "one read that takes long is no outage");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(fails(), Transition::Down);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_at_once_and_so_does_a_machine_that_never_answered() {
        let mut reach = Reachability::Up { failing: None };
        assert_eq!(fails(&mut reach, true), Transition::Down);
        assert_eq!(fails(&mut Reachability::Untried, false), Transition::Down);
    }

    #[test]
    fn another_reason_of_an_outage_is_news_and_another_text_is_none() {
        let mut reach = Reachability::Untried;
        let mut fails = |reason, message: &str, refused| {
            reach.failed(reason, message.to_owned(), refused, None, &Policy::default())
        };
        assert_eq!(fails("DriverUnavailable", "no answer", false), Transition::Down);
        assert_eq!(fails("DriverUnavailable", "no route", false), Transition::Nothing);
        assert_eq!(fails("DriverRefused", "401", true), Transition::Otherwise);
        assert_eq!(fails("DriverRefused", "401 again", true), Transition::Nothing);
        assert_eq!(fails("DriverUnavailable", "no answer", false), Transition::Otherwise);
        assert!(
            matches!(&reach, Reachability::Down(outage) if outage.message == "no answer" && !outage.was_up)
        );
        assert_eq!(reach.succeeded(), Transition::Up);
    }

    #[test]
    fn no_answer_is_an_outage_at_once_and_no_news_after_it() {
        let mut reach = Reachability::Up { failing: None };
        assert_eq!(reach.fell_silent("25 s".into()), Transition::Down);
        assert_eq!(reach.fell_silent("30 s".into()), Transition::Nothing);
        assert!(matches!(&reach, Reachability::Down(outage) if outage.message == "30 s" && outage.was_up));
        assert_eq!(reach.succeeded(), Transition::Up);
        let mut reach = Reachability::Untried;
        assert_eq!(reach.fell_silent("25 s".into()), Transition::Down);
        assert_eq!(fails(&mut reach, false), Transition::Otherwise);
        assert_eq!(reach.fell_silent("40 s".into()), Transition::Otherwise);
    }

    #[test]
    fn who_refuses_us_is_asked_less_often_than_who_is_silent() {
        let policy = Policy::default();
        let seconds = |failure| {
            (1..=8).map(|attempt| retry_delay(attempt, failure, &policy).as_secs()).collect::<Vec<_>>()
        };
        assert_eq!(seconds(ReadFailure::Unanswered), [2, 4, 4, 4, 4, 4, 4, 4]);
        assert_eq!(seconds(ReadFailure::Refused), [30, 60, 120, 240, 480, 600, 600, 600]);
        assert_eq!(seconds(ReadFailure::RefusedAnew), [30, 54, 54, 54, 54, 54, 54, 54]);
    }
}
