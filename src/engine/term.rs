//! The leadership term: the time during which this process is the leader and may write. Every write checks it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use staffetta_handler::BootTime;

/// The time during which this process may write, shared by all parts of the program. A term that `end` has ended stays ended:
/// a process that becomes leader again gets a new term, and work that remains from an old term can never write again.
///
/// A term is a deadline on the boot clock and needs no timer: a process that was stopped and continues after the deadline finds that
/// its term has ended before it writes. `end` also wakes all tasks that wait in `run`.
#[derive(Clone, Debug)]
pub struct Term(Arc<TermState>);

/// The state that the clones of a term share.
#[derive(Debug)]
struct TermState {
    /// The deadline, in nanoseconds of the boot clock.
    deadline: AtomicU64,
    /// The token that [`Term::end`] cancels to wake the work that waits in [`Term::run`].
    ended: CancellationToken,
}

/// The deadline of a term that never ends; no boot clock reaches it.
const NEVER: u64 = u64::MAX;

/// The deadline, in nanoseconds of the boot clock, that marks a term as ended for good. It always lies in the past.
const ENDED: u64 = 1;

/// The error of an operation that was rejected because this process is not the leader, or no longer.
#[derive(Debug, thiserror::Error)]
#[error("refused: this process does not hold the leader lease")]
pub struct NotLeader;

impl Term {
    /// Returns a term that never ends, for a process without leader election.
    pub fn unlimited() -> Self {
        Self::until(NEVER)
    }

    /// Returns a term that begins now and ends after `time`.
    pub fn lasting(time: Duration) -> Self {
        let term = Self::pending();
        term.extend(BootTime::now() + time);
        term
    }

    /// Returns a term of leadership that has not begun: the first call of [`extend`](Self::extend) begins it.
    pub(crate) fn pending() -> Self {
        Self::until(0)
    }

    /// Returns a term with a deadline, in nanoseconds of the boot clock.
    fn until(deadline: u64) -> Self {
        Self(Arc::new(TermState { deadline: deadline.into(), ended: CancellationToken::new() }))
    }

    /// Returns `true` while this process may write.
    pub fn is_active(&self) -> bool {
        let deadline = self.0.deadline.load(Ordering::Acquire);
        deadline == NEVER || BootTime::now().as_nanos() < deadline
    }

    /// Runs `work` while the term is active: the deadline is checked before each poll. If `end` is called or the deadline
    /// passes, the work is not polled again and the result is [`NotLeader`].
    pub(crate) async fn run<W: Future>(&self, work: W) -> Result<W::Output, NotLeader> {
        let (mut work, mut ended) = (pin!(work), pin!(None));
        let run = poll_fn(|context| {
            if !self.is_active() {
                return Poll::Ready(Err(NotLeader));
            }
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            // Most work is ready at its first poll and needs no notification of the end.
            if ended.is_none() {
                ended.set(Some(self.0.ended.cancelled()));
            }
            let ended = ended.as_mut().as_pin_mut().expect("it was set");
            ended.poll(context).map(|()| Err(NotLeader))
        });
        run.await
    }

    /// Begins or prolongs the term by setting its deadline. Does nothing if `end` has ended the term.
    pub(crate) fn extend(&self, deadline: BootTime) {
        let extended = |current| (current != ENDED).then(|| deadline.as_nanos());
        // An error means that the term has ended.
        let _ = self.0.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, extended);
    }

    /// Ends the term permanently, and stops the work that waits in `run`.
    pub(crate) fn end(&self) {
        self.0.deadline.store(ENDED, Ordering::Release);
        self.0.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_active_from_its_start_to_its_deadline_in_all_clones() {
        let term = Term::pending();
        let copy = term.clone();
        assert!(!copy.is_active());
        term.extend(BootTime::now() + Duration::from_secs(3600));
        assert!(copy.is_active());
        term.extend(BootTime::now());
        assert!(!copy.is_active(), "the deadline itself is past the term");
        term.extend(BootTime::now() + Duration::from_secs(3600));
        copy.end();
        assert!(!term.is_active());
        term.extend(BootTime::now() + Duration::from_secs(3600));
        assert!(!term.is_active(), "an ended term stays ended");
        assert!(Term::unlimited().is_active() && Term::lasting(Duration::from_secs(3600)).is_active());
        assert!(!Term::lasting(Duration::ZERO).is_active());
    }

    #[tokio::test(start_paused = true)]
    async fn pending_work_stops_when_its_term_ends() {
        let term = Term::pending();
        term.extend(BootTime::now() + Duration::from_secs(3600));
        let held = Arc::new(());
        let (copy, work) = (term.clone(), Arc::clone(&held));
        let waits = tokio::spawn(async move {
            let work = async move {
                std::future::pending::<()>().await;
                drop(work);
            };
            copy.run(work).await
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        term.end();
        let ended = tokio::time::timeout(Duration::from_secs(10), waits).await.expect("the work is stopped");
        ended.unwrap().expect_err("the term has ended");
        assert_eq!(Arc::strong_count(&held), 1, "the work is dropped");
    }
}
