//! How far a pod is from where it is to be.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::milliseconds;

/// How far a pod is from where it is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// It is there.
    Done,
    /// It is on its way, and nothing is wrong.
    Working {
        /// What it waits for, for people: `app: installing`.
        state: String,
        /// When it is worth asking again. In JSON, whole milliseconds.
        #[serde(rename = "ask_again_ms", with = "milliseconds")]
        ask_again: Duration,
    },
    /// The machine tried and failed. It is tried again when somebody asks after `ask_again`, not before, however often
    /// somebody asks.
    Failing {
        /// What failed, in one word of CamelCase: `InstallFailed`.
        reason: Cow<'static, str>,
        /// What the machine says of it, for people.
        message: String,
        /// When it is worth asking again. In JSON, whole milliseconds.
        #[serde(rename = "ask_again_ms", with = "milliseconds")]
        ask_again: Duration,
    },
}

impl Progress {
    /// Whether nothing is left to be done.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// When it is worth asking again; none when it is done.
    pub fn ask_again(&self) -> Option<Duration> {
        match self {
            Self::Done => None,
            Self::Working { ask_again, .. } | Self::Failing { ask_again, .. } => Some(*ask_again),
        }
    }

    /// The progress of a whole of which this and `other` are parts: a failure is told before work, and it is asked again
    /// as soon as one part is worth it.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let soonest = self.ask_again().into_iter().chain(other.ask_again()).min();
        let mut told = match (&self, &other) {
            (Self::Failing { .. }, _) | (Self::Working { .. }, Self::Done | Self::Working { .. }) => self,
            (Self::Done, _) | (Self::Working { .. }, Self::Failing { .. }) => other,
        };
        if let (Self::Working { ask_again, .. } | Self::Failing { ask_again, .. }, Some(soonest)) =
            (&mut told, soonest)
        {
            *ask_again = soonest;
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn working(seconds: u64) -> Progress {
        Progress::Working { state: format!("{seconds}"), ask_again: Duration::from_secs(seconds) }
    }

    fn failing(seconds: u64) -> Progress {
        let ask_again = Duration::from_secs(seconds);
        Progress::Failing { reason: "InstallFailed".into(), message: format!("{seconds}"), ask_again }
    }

    #[test]
    fn a_whole_is_done_when_all_parts_are_and_asked_again_when_the_first_is_worth_it() {
        assert_eq!(Progress::Done.and(Progress::Done), Progress::Done);
        assert_eq!(Progress::Done.and(working(2)), working(2));
        assert_eq!(working(2).and(Progress::Done), working(2));
        let both = working(3).and(working(2));
        assert_eq!(both, Progress::Working { state: "3".into(), ask_again: Duration::from_secs(2) });
    }

    #[test]
    fn a_failure_of_a_part_is_told_before_the_work_of_another() {
        for whole in [working(1).and(failing(60)), failing(60).and(working(1))] {
            assert_eq!(whole.ask_again(), Some(Duration::from_secs(1)));
            assert!(matches!(whole, Progress::Failing { message, .. } if message == "60"));
        }
        assert_eq!(Progress::Done.and(failing(5)), failing(5));
    }
}
