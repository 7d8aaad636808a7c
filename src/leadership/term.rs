//! For how long this process may act.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::clock::BootTime;

/// For how long this process may act, seen by all its parts at once. A term that is over stays over: who leads again does
/// so in a term of its own, and what is left of an older one is refused for ever.
///
/// It is a deadline on the boot clock, which nobody has to watch over: a process that was stopped and goes on after the
/// deadline finds its term over before it has done anything. Whoever sees the end of it rings a bell besides, for what waits.
#[derive(Clone, Debug)]
pub struct Term(Arc<Bounds>);

#[derive(Debug)]
struct Bounds {
    /// In nanoseconds of the boot clock.
    deadline: AtomicU64,
    over: CancellationToken,
}

/// The deadline of a term without end; no boot clock gets there.
const NEVER: u64 = u64::MAX;

/// The deadline of a term that is over; no process starts so early.
const OVER: u64 = 1;

/// What was to be done is refused: this process does not lead, or does not lead any more.
#[derive(Debug, thiserror::Error)]
#[error("refused: this process does not hold the lease of the leader")]
pub struct NotLeading;

impl Term {
    /// A term that never ends, of a process that has no rivals.
    pub fn for_ever() -> Self {
        Self::until(NEVER)
    }

    /// A term that lasts so long from now.
    pub fn lasting(time: Duration) -> Self {
        let term = Self::not_begun();
        term.lasts_until(BootTime::now() + time);
        term
    }

    /// A term that has not begun.
    pub(crate) fn not_begun() -> Self {
        Self::until(0)
    }

    fn until(deadline: u64) -> Self {
        Self(Arc::new(Bounds { deadline: deadline.into(), over: CancellationToken::new() }))
    }

    /// Whether this process may act at this moment.
    pub fn holds(&self) -> bool {
        let deadline = self.0.deadline.load(Ordering::Acquire);
        deadline == NEVER || BootTime::now().as_nanos() < deadline
    }

    /// Works on while the term holds: before each step of `work` the deadline is looked at, and work that is late goes no
    /// step further. Work that waits when the end of the term is seen ends then.
    pub(crate) async fn during<W: Future>(&self, work: W) -> Result<W::Output, NotLeading> {
        let mut work = pin!(work);
        // Most work ends at its first step, and needs no bell.
        let first = poll_fn(|context| {
            let step = self.holds().then(|| work.as_mut().poll(context));
            Poll::Ready(step.ok_or(NotLeading))
        });
        if let Poll::Ready(done) = first.await? {
            return Ok(done);
        }
        let mut over = pin!(self.0.over.cancelled());
        let rest = poll_fn(|context| {
            if over.as_mut().poll(context).is_ready() || !self.holds() {
                return Poll::Ready(Err(NotLeading));
            }
            work.as_mut().poll(context).map(Ok)
        });
        rest.await
    }

    /// The term lasts until then, unless it is over.
    pub(crate) fn lasts_until(&self, deadline: BootTime) {
        let later = |known| (known != OVER).then(|| deadline.as_nanos());
        // An error means that it is over.
        let _ = self.0.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// The term is over, for ever.
    pub(crate) fn end(&self) {
        self.0.deadline.store(OVER, Ordering::Release);
        self.0.over.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_until_its_deadline_in_all_copies_and_not_before_it_began() {
        let term = Term::not_begun();
        let copy = term.clone();
        assert!(!copy.holds());
        term.lasts_until(BootTime::now() + Duration::from_secs(3600));
        assert!(copy.holds());
        term.lasts_until(BootTime::now());
        assert!(!copy.holds(), "its last moment is over");
        term.lasts_until(BootTime::now() + Duration::from_secs(3600));
        copy.end();
        assert!(!term.holds());
        term.lasts_until(BootTime::now() + Duration::from_secs(3600));
        assert!(!term.holds(), "what is over does not come back");
        assert!(Term::for_ever().holds() && Term::lasting(Duration::from_secs(3600)).holds());
        assert!(!Term::lasting(Duration::ZERO).holds());
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_waits_ends_with_its_term() {
        let term = Term::not_begun();
        term.lasts_until(BootTime::now() + Duration::from_secs(3600));
        let held = Arc::new(());
        let (copy, work) = (term.clone(), Arc::clone(&held));
        let waits = tokio::spawn(async move {
            let work = async move {
                std::future::pending::<()>().await;
                drop(work);
            };
            copy.during(work).await
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        term.end();
        let ended =
            tokio::time::timeout(Duration::from_secs(10), waits).await.expect("nobody waits any more");
        ended.unwrap().expect_err("its term is over");
        assert_eq!(Arc::strong_count(&held), 1, "nothing is left of it");
    }
}
