//! For how long this process may act.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use staffetta_handler::Failure;

use super::clock::BootTime;

/// For how long this process may act, seen by all its parts at once.
///
/// It is a deadline on the boot clock, which nobody has to watch over: a process that was stopped and goes on after the
/// deadline finds its term over before it has done anything.
#[derive(Clone, Debug)]
pub struct Term(Arc<AtomicU64>);

/// The deadline of a term without end; no boot clock gets there.
const NEVER: u64 = u64::MAX;

/// What was to be done is refused: this process does not lead, or does not lead any more.
#[derive(Debug, thiserror::Error)]
#[error("refused: this process does not hold the lease of the leader")]
pub struct NotLeading;

impl Failure for NotLeading {
    /// Whoever leads has handled it or will.
    fn transient(&self) -> bool {
        false
    }

    fn reason(&self) -> &'static str {
        "NotLeading"
    }
}

impl Term {
    /// A term that never ends, of a process that has no rivals.
    pub fn for_ever() -> Self {
        Self(Arc::new(AtomicU64::new(NEVER)))
    }

    /// A term that lasts so long from now.
    pub fn lasting(time: Duration) -> Self {
        let term = Self::not_begun();
        term.lasts_until(BootTime::now() + time);
        term
    }

    /// A term that has not begun.
    pub(crate) fn not_begun() -> Self {
        Self(Arc::new(AtomicU64::new(0)))
    }

    /// Whether this process may act at this moment.
    pub fn holds(&self) -> bool {
        let deadline = self.0.load(Ordering::Acquire);
        deadline == NEVER || BootTime::now().as_nanos() < deadline
    }

    /// Works on while the term holds: before each step of `work` the deadline is looked at, and work that is late goes no
    /// step further.
    pub(crate) async fn during<W: Future>(&self, work: W) -> Result<W::Output, NotLeading> {
        let mut work = pin!(work);
        let step = poll_fn(|context| {
            if self.holds() { work.as_mut().poll(context).map(Ok) } else { Poll::Ready(Err(NotLeading)) }
        });
        step.await
    }

    /// The term lasts until then.
    pub(crate) fn lasts_until(&self, deadline: BootTime) {
        self.0.store(deadline.as_nanos(), Ordering::Release);
    }

    /// The term is over.
    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Release);
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
        assert!(Term::for_ever().holds() && Term::lasting(Duration::from_secs(3600)).holds());
        assert!(!Term::lasting(Duration::ZERO).holds());
    }
}
