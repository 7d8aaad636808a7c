//! The progress of a pod towards its desired state.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::milliseconds;

/// The progress of a pod towards its desired state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodProgress {
    /// The pod is in its desired state.
    Done,
    /// It is not there yet, without a failure.
    Working {
        /// The current step, for people: `app: installing`.
        state: String,
        /// The delay before the next poll. In JSON, whole milliseconds.
        #[serde(rename = "poll_after_ms", with = "milliseconds")]
        poll_after: Duration,
    },
    /// The last attempt failed. The next poll after `poll_after` repeats it; earlier ones do not.
    Failing {
        /// The failure, one word in CamelCase: `InstallFailed`.
        reason: Cow<'static, str>,
        /// The message of the machine, for people.
        message: String,
        /// The delay before the next poll. In JSON, whole milliseconds.
        #[serde(rename = "poll_after_ms", with = "milliseconds")]
        poll_after: Duration,
    },
}

impl PodProgress {
    /// Returns `true` if the pod is in its desired state.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// The delay before the next poll; `None` when it is done.
    pub fn poll_after(&self) -> Option<Duration> {
        match self {
            Self::Done => None,
            Self::Working { poll_after, .. } | Self::Failing { poll_after, .. } => Some(*poll_after),
        }
    }

    /// Returns the progress of a whole of which this and `other` are parts: a failure goes before work, and the poll delay is the
    /// shorter one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let soonest = self.poll_after().into_iter().chain(other.poll_after()).min();
        let mut whole = match (&self, &other) {
            (Self::Failing { .. }, _) | (Self::Working { .. }, Self::Done | Self::Working { .. }) => self,
            (Self::Done, _) | (Self::Working { .. }, Self::Failing { .. }) => other,
        };
        if let (Self::Working { poll_after, .. } | Self::Failing { poll_after, .. }, Some(soonest)) =
            (&mut whole, soonest)
        {
            *poll_after = soonest;
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn working(seconds: u64) -> PodProgress {
        PodProgress::Working { state: format!("{seconds}"), poll_after: Duration::from_secs(seconds) }
    }

    fn failing(seconds: u64) -> PodProgress {
        let poll_after = Duration::from_secs(seconds);
        PodProgress::Failing { reason: "InstallFailed".into(), message: format!("{seconds}"), poll_after }
    }

    #[test]
    fn a_whole_is_done_when_all_parts_are_and_asked_again_when_the_first_is_worth_it() {
        assert_eq!(PodProgress::Done.and(PodProgress::Done), PodProgress::Done);
        assert_eq!(PodProgress::Done.and(working(2)), working(2));
        assert_eq!(working(2).and(PodProgress::Done), working(2));
        let both = working(3).and(working(2));
        assert_eq!(both, PodProgress::Working { state: "3".into(), poll_after: Duration::from_secs(2) });
    }

    #[test]
    fn a_failure_of_a_part_goes_before_the_work_of_another() {
        for whole in [working(1).and(failing(60)), failing(60).and(working(1))] {
            assert_eq!(whole.poll_after(), Some(Duration::from_secs(1)));
            assert!(matches!(whole, PodProgress::Failing { message, .. } if message == "60"));
        }
        assert_eq!(PodProgress::Done.and(failing(5)), failing(5));
    }
}
