//! What to make of a watch that says nothing. Pure: it is told the time.

use std::time::Duration;

use tokio::time::Instant;

/// How long the server may take for a page of a list, or to take up again a watch that failed: the limit that it has itself.
const ANSWER: Duration = Duration::from_secs(60);

/// After this time a watch that failed looks whether the server took it up again, which no event tells.
const LOOK: Duration = Duration::from_secs(1);

/// So long after its time a watch has ended, whatever became of its connection, and the next one has begun: kube waits for 5 s.
const TAKEN_UP: Duration = Duration::from_secs(10);

/// How a watch is at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Whether it still lists.
    pub(super) lists: bool,
    /// How many attempts have failed since the watch went on last.
    pub(super) attempts: u32,
    /// When the server said anything last in the watch: a bookmark does, and that it takes the watch up. None where nobody
    /// listens.
    pub(super) heard: Option<Instant>,
    /// When it was asked for again after it failed last.
    pub(super) failed: Instant,
    /// The same, or when all was listed after that: since then the server is asked for the watch.
    pub(super) begun: Instant,
}

/// What comes after a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The server took a request and leaves it without an answer: all is listed anew.
    GiveUp,
    /// The server took a watch that failed up again, and did not break it at once.
    GoOn,
    /// Nothing is known yet.
    Wait,
    /// Nothing happened for long: where in its history is the server?
    Ask,
}

impl Moment {
    /// For how long a silence means nothing, where a watch lasts for `timeout`.
    pub(super) fn patience(self, timeout: Duration) -> Duration {
        match self.attempts {
            _ if self.lists => ANSWER,
            0 => quiet(timeout),
            _ => LOOK,
        }
    }

    /// What follows when it has said nothing for that long.
    ///
    /// A watch that failed goes on as soon as the server took it up again, even when nothing happens to its objects. Only who
    /// has looked for a while may say so: one that is taken up and broken each time has to list anew.
    pub(super) fn next(self, timeout: Duration, now: Instant) -> Next {
        let unheard = self.heard.map(|heard| now.saturating_duration_since(heard));
        match (self.lists, self.attempts) {
            (true, _) => Next::GiveUp,
            // A server that answers is heard at least once in the time that a watch lasts.
            (false, 0) if unheard.is_some_and(|unheard| unheard >= unanswered(timeout)) => Next::GiveUp,
            (false, 0) => Next::Ask,
            (false, _) => match self.heard {
                Some(heard) if heard > self.failed => Next::GoOn,
                Some(_) if now.saturating_duration_since(self.begun) > ANSWER => Next::GiveUp,
                _ => Next::Wait,
            },
        }
    }
}

/// After this time without an event a watch asks where in its history the server is.
fn quiet(timeout: Duration) -> Duration {
    timeout * 2
}

/// After this time without a word the request for a watch was left without an answer.
fn unanswered(timeout: Duration) -> Duration {
    quiet(timeout).max(timeout + TAKEN_UP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn what_follows_from_a_silence() {
        // The clock of the machine may have begun less than that ago.
        tokio::time::advance(Duration::from_secs(1000)).await;
        let now = Instant::now();
        let ago = |seconds: u64| now - Duration::from_secs(seconds);
        // Whether it lists, the attempts that failed, and how many seconds ago it was heard and asked for again.
        for (lists, attempts, heard, failed, expected) in [
            (true, 0, Some(1), 1000, Next::GiveUp),
            (true, 3, None, 1, Next::GiveUp),
            (false, 0, Some(0), 1000, Next::Ask),
            (false, 0, Some(119), 1000, Next::Ask),
            (false, 0, Some(120), 1000, Next::GiveUp),
            (false, 0, None, 1000, Next::Ask),
            (false, 1, Some(2), 3, Next::GoOn),
            (false, 1, Some(3), 3, Next::Wait),
            (false, 1, Some(500), 60, Next::Wait),
            (false, 1, Some(500), 61, Next::GiveUp),
            (false, 1, Some(59), 61, Next::GoOn),
            (false, 7, None, 61, Next::Wait),
        ] {
            let heard = heard.map(ago);
            let moment = Moment { lists, attempts, heard, failed: ago(failed), begun: ago(failed) };
            assert_eq!(moment.next(MINUTE, now), expected, "{moment:?} at {now:?}");
        }
        let after_a_list =
            Moment { lists: false, attempts: 1, heard: Some(ago(500)), failed: ago(300), begun: ago(60) };
        assert_eq!(after_a_list.next(MINUTE, now), Next::Wait, "it was just asked for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_of_any_length_is_given_up_only_when_a_healthy_one_would_have_been_heard() {
        let heard = Instant::now();
        let moment = Moment { lists: false, attempts: 0, heard: Some(heard), failed: heard, begun: heard };
        for (timeout, given_up_after) in [(1, 11), (10, 20), (60, 120), (290, 580)] {
            let timeout = Duration::from_secs(timeout);
            let next = |seconds| moment.next(timeout, heard + Duration::from_secs(seconds));
            assert_eq!((next(given_up_after - 1), next(given_up_after)), (Next::Ask, Next::GiveUp));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn patience_is_short_where_something_is_wrong() {
        let now = Instant::now();
        let moment = |lists, attempts| Moment { lists, attempts, heard: None, failed: now, begun: now };
        let patience = |lists, attempts| moment(lists, attempts).patience(MINUTE).as_secs();
        assert_eq!((patience(true, 0), patience(true, 1)), (60, 60));
        assert_eq!((patience(false, 0), patience(false, 1)), (120, 1));
    }
}
