//! Whether a machine can be reached: a function of how its reads went.

use std::time::Duration;

use tokio::time::Instant;

use crate::policy::Policy;

/// Whether a machine can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nobody has tried yet.
    Untried,
    /// Its last read was good, or failed too short a time ago to count.
    Up {
        /// Since when its reads fail.
        failing: Option<Instant>,
    },
    /// It cannot be reached.
    Down(Outage),
}

/// An outage of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    /// Why, in one word of CamelCase.
    pub(crate) reason: &'static str,
    /// Why, for people.
    pub(crate) message: String,
    /// Whether the machine answered, and refused us.
    refused: bool,
    /// Whether the machine was reached before, in the life of this process.
    pub(crate) was_up: bool,
}

/// What a read changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
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

impl Reach {
    /// A read was good.
    pub(crate) fn succeeded(&mut self) -> Turned {
        let turned = match self {
            Self::Untried => Turned::Found,
            Self::Up { .. } => Turned::Nothing,
            Self::Down(_) => Turned::Up,
        };
        *self = Self::Up { failing: None };
        turned
    }

    /// A read failed. One that was refused counts at once: no further read makes it better.
    pub(crate) fn failed(
        &mut self,
        reason: &'static str,
        message: String,
        refused: bool,
        policy: &Policy,
    ) -> Turned {
        let now = Instant::now();
        let outage = |was_up| Outage { reason, message, refused, was_up };
        match self {
            Self::Up { failing } => {
                let since = *failing.get_or_insert(now);
                if !refused && now.saturating_duration_since(since) < policy.unreachable_after {
                    return Turned::Nothing;
                }
                *self = Self::Down(outage(true));
                Turned::Down
            }
            Self::Untried => {
                *self = Self::Down(outage(false));
                Turned::Down
            }
            Self::Down(before) => {
                let same = (before.reason, before.refused) == (reason, refused);
                *before = outage(before.was_up);
                if same { Turned::Nothing } else { Turned::Otherwise }
            }
        }
    }

    /// Whether the last read was good.
    pub(crate) fn answers(&self) -> bool {
        matches!(self, Self::Up { failing: None })
    }

    /// Whether the machine may be asked for anything but whether it is there.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }
}

/// How long to wait before the `attempt`th next read of a machine that cannot be reached: doubling from the poll interval up to
/// the policy's longest; ten times that for one that refuses us, since each attempt may count against an account.
pub(crate) fn knock(attempt: u32, refused: bool, policy: &Policy) -> Duration {
    let most = if refused { policy.knock_max_interval * 10 } else { policy.knock_max_interval };
    let first =
        if refused { policy.knock_max_interval.min(Duration::from_secs(30)) } else { policy.poll_interval };
    first.saturating_mul(1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(reach: &mut Reach, refused: bool) -> Turned {
        reach.failed("DriverUnavailable", "no answer".into(), refused, &Policy::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_fails_once_is_no_outage_and_one_that_goes_on_failing_is() {
        let mut reach = Reach::Untried;
        assert_eq!(reach.succeeded(), Turned::Found);
        assert_eq!(fails(&mut reach, false), Turned::Nothing);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!(fails(&mut reach, false), Turned::Nothing);
        assert_eq!(reach.succeeded(), Turned::Nothing, "the time starts anew");
        assert_eq!(fails(&mut reach, false), Turned::Nothing);
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(fails(&mut reach, false), Turned::Down);
        assert!(!reach.is_up());
        assert_eq!((fails(&mut reach, false), reach.succeeded()), (Turned::Nothing, Turned::Up));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_at_once_and_so_does_a_machine_that_never_answered() {
        let mut reach = Reach::Up { failing: None };
        assert_eq!(fails(&mut reach, true), Turned::Down);
        assert_eq!(fails(&mut Reach::Untried, false), Turned::Down);
    }

    #[test]
    fn another_reason_of_an_outage_is_news_and_another_text_is_none() {
        let mut reach = Reach::Untried;
        let mut fails = |reason, message: &str, refused| {
            reach.failed(reason, message.to_owned(), refused, &Policy::default())
        };
        assert_eq!(fails("DriverUnavailable", "no answer", false), Turned::Down);
        assert_eq!(fails("DriverUnavailable", "no route", false), Turned::Nothing);
        assert_eq!(fails("DriverRefused", "401", true), Turned::Otherwise);
        assert_eq!(fails("DriverRefused", "401 again", true), Turned::Nothing);
        assert_eq!(fails("DriverUnavailable", "no answer", false), Turned::Otherwise);
        assert!(matches!(&reach, Reach::Down(outage) if outage.message == "no answer" && !outage.was_up));
        assert_eq!(reach.succeeded(), Turned::Up);
    }

    #[test]
    fn who_refuses_us_is_asked_less_often_than_who_is_silent() {
        let policy = Policy::default();
        let seconds =
            |refused| (1..=8).map(|attempt| knock(attempt, refused, &policy).as_secs()).collect::<Vec<_>>();
        assert_eq!(seconds(false), [5, 10, 20, 40, 60, 60, 60, 60]);
        assert_eq!(seconds(true), [30, 60, 120, 240, 480, 600, 600, 600]);
    }
}
