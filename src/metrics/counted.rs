//! Counts what the chains tell of themselves.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use staffetta_handler::{
    AnyEvent, Failure, HandlerError, Meter, Panicked, Report, ResyncPolicy, TimedOut, Turn,
};

use super::Figures;
use crate::observers::{Observers, OnUndecodable};

/// The observers that are inside, and the figures beside them.
pub(crate) struct Counted<O> {
    inner: O,
    figures: Arc<Figures>,
}

impl<O> Counted<O> {
    /// Counts in `figures` what `inner` is told.
    pub(crate) fn new(inner: O, figures: &Arc<Figures>) -> Self {
        Self { inner, figures: Arc::clone(figures) }
    }
}

impl<O: Observers> Observers for Counted<O> {
    fn report(&self, handler: &str, resync: ResyncPolicy) -> Arc<dyn Report<AnyEvent>> {
        let inner = self.inner.report(handler, resync);
        match self.figures.handler(handler) {
            Some(figures) => Arc::new(CountedReport { inner, failures: Arc::clone(&figures.failures) }),
            None => inner,
        }
    }

    fn undecodable(&self) -> OnUndecodable {
        self.inner.undecodable()
    }

    fn meter(&self, handler: &str) -> Arc<dyn Meter> {
        match self.figures.handler(handler) {
            Some(figures) => Arc::clone(&figures.meter) as _,
            None => self.inner.meter(handler),
        }
    }
}

struct CountedReport {
    inner: Arc<dyn Report<AnyEvent>>,
    failures: Arc<Failures>,
}

impl Report<AnyEvent> for CountedReport {
    fn failed(&self, event: &AnyEvent, error: &HandlerError, turn: &Turn<'_>) {
        self.failures.count(&**error);
        self.inner.failed(event, error, turn);
    }

    fn will_retry(&self, event: &AnyEvent, error: &HandlerError, wait: Duration, turn: &Turn<'_>) {
        self.failures.count(&**error);
        self.inner.will_retry(event, error, wait, turn);
    }

    fn recovered(&self, event: &AnyEvent, turn: &Turn<'_>) {
        self.inner.recovered(event, turn);
    }
}

/// How an attempt of a handler failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With an error that may pass.
    Transient,
    /// With an error that will not.
    Permanent,
    /// With a panic.
    Panic,
    /// It gave no answer in time.
    Timeout,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Transient, Self::Permanent, Self::Panic, Self::Timeout];

    fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
        }
    }

    fn of(failure: &dyn Failure) -> Self {
        let error: &(dyn Error + 'static) = failure;
        if error.is::<Panicked>() {
            Self::Panic
        } else if error.is::<TimedOut>() {
            Self::Timeout
        } else if failure.transient() {
            Self::Transient
        } else {
            Self::Permanent
        }
    }
}

/// Counts the attempts of one handler that failed.
#[derive(Default)]
pub(super) struct Failures([AtomicU64; Outcome::ALL.len()]);

impl Failures {
    fn count(&self, failure: &dyn Failure) {
        self.0[Outcome::of(failure) as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were, by their outcome.
    pub(super) fn counts(&self) -> [(&'static str, u64); Outcome::ALL.len()] {
        Outcome::ALL.map(|outcome| (outcome.name(), self.0[outcome as usize].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use staffetta_handler::bounded;
    use staffetta_handler::testing::Fault;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_failure_is_counted_by_how_it_failed() {
        let limit = Duration::from_secs(1);
        let panics = bounded::<()>(limit, async { panic!("as ordered") }).await.unwrap_err();
        let hangs = bounded::<()>(limit, std::future::pending()).await.unwrap_err();
        let failures = Failures::default();
        for failure in [&*panics, &*hangs, &Fault::transient("busy"), &Fault::permanent("refused")] {
            failures.count(failure);
        }
        failures.count(&Fault::transient("busy"));
        assert_eq!(failures.counts(), [("transient", 2), ("permanent", 1), ("panic", 1), ("timeout", 1)]);
    }
}
