//! Reachability of a machine: a function of the results of its reads.

use std::time::Duration;

use tokio::time::Instant;

use crate::policy::Policy;

/// The reachability of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reachability {
    /// It was not tried yet.
    Untried,
    /// Its last read succeeded, or the reads have not failed for long enough to count.
    Up {
        /// The time of the first of the current consecutive failures; `None` if the last read succeeded.
        failing: Option<Instant>,
    },
    /// It cannot be reached.
    Down(Outage),
}

/// An outage of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    /// The reason, in CamelCase.
    pub(crate) reason: &'static str,
    /// The message.
    pub(crate) message: String,
    /// `true` if the machine answered and refused the credentials.
    refused: bool,
    /// `true` if the machine was reached before in the life of this process.
    pub(crate) was_up: bool,
}

/// The transition caused by a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// Nothing.
    Nothing,
    /// It was reached for the first time.
    Found,
    /// It can be reached again.
    Up,
    /// It cannot be reached any more.
    Down,
    /// It still cannot be reached, for another reason.
    Otherwise,
}

impl Reachability {
    /// Records a successful read.
    pub(crate) fn succeeded(&mut self) -> Transition {
        let transition = match self {
            Self::Untried => Transition::Found,
            Self::Up { .. } => Transition::Nothing,
            Self::Down(_) => Transition::Up,
        };
        *self = Self::Up { failing: None };
        transition
    }

    /// Records a failed read. A refusal of the credentials counts at once.
    pub(crate) fn failed(
        &mut self,
        reason: &'static str,
        message: String,
        refused: bool,
        policy: &Policy,
    ) -> Transition {
        let now = Instant::now();
        let outage = |was_up| Outage { reason, message, refused, was_up };
        match self {
            Self::Up { failing } => {
                let since = *failing.get_or_insert(now);
                if !refused && now.saturating_duration_since(since) < policy.unreachable_after {
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
                let same = (before.reason, before.refused) == (reason, refused);
                *before = outage(before.was_up);
                if same { Transition::Nothing } else { Transition::Otherwise }
            }
        }
    }

    /// Returns `true` if the last read succeeded.
    pub(crate) fn answers(&self) -> bool {
        matches!(self, Self::Up { failing: None })
    }

    /// Returns `true` if the machine may receive other requests than reads.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }
}

/// The delay before the `attempt`th next read of an unreachable machine: it doubles from the poll interval up to the
/// policy's maximum, and is ten times that for a machine that refuses the credentials, because each attempt may count
/// against an account.
pub(crate) fn retry_delay(attempt: u32, refused: bool, policy: &Policy) -> Duration {
    let most = if refused { policy.max_retry_interval * 10 } else { policy.max_retry_interval };
    let first =
        if refused { policy.max_retry_interval.min(Duration::from_secs(30)) } else { policy.poll_interval };
    first.saturating_mul(1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(reach: &mut Reachability, refused: bool) -> Transition {
        reach.failed("DriverUnavailable", "no answer".into(), refused, &Policy::default())
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
    async fn a_refusal_counts_at_once_and_so_does_a_machine_that_never_answered() {
        let mut reach = Reachability::Up { failing: None };
        assert_eq!(fails(&mut reach, true), Transition::Down);
        assert_eq!(fails(&mut Reachability::Untried, false), Transition::Down);
    }

    #[test]
    fn another_reason_of_an_outage_is_news_and_another_text_is_none() {
        let mut reach = Reachability::Untried;
        let mut fails = |reason, message: &str, refused| {
            reach.failed(reason, message.to_owned(), refused, &Policy::default())
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
    fn who_refuses_us_is_asked_less_often_than_who_is_silent() {
        let policy = Policy::default();
        let seconds = |refused| {
            (1..=8).map(|attempt| retry_delay(attempt, refused, &policy).as_secs()).collect::<Vec<_>>()
        };
        assert_eq!(seconds(false), [5, 10, 20, 40, 60, 60, 60, 60]);
        assert_eq!(seconds(true), [30, 60, 120, 240, 480, 600, 600, 600]);
    }
}
