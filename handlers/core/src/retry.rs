//! Repeats what failed for a passing reason.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::BackoffPolicy;
use crate::failure::HandlerError;
use crate::handler::EventHandler;
use crate::message::Message;
use crate::report::Report;
use crate::turn::Turn;

/// How long and how often [`Retry`] repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The wait before the second attempt; it doubles from there, with jitter.
    pub interval: Duration,
    /// The longest wait between two attempts.
    pub max_interval: Duration,
    /// No attempt starts later than this after the first one that had not to [queue](crate::Failure::queues).
    pub timeout: Duration,
}

impl Default for RetryPolicy {
    /// 1 s, doubling to 60 s, for 500 s: the figures to which Kuryr came.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            max_interval: Duration::from_secs(60),
            timeout: Duration::from_secs(500),
        }
    }
}

/// Repeats an invocation while it fails with an error that says it is transient.
///
/// An error that only [waits](crate::Failure::waits) is repeated the same way, and told to nobody before its
/// [patience](crate::Failure::patience) is over; then once each time that this has passed again. While one waits for its
/// [turn](crate::Failure::queues), the time limit does not run.
/// It gives way to a newer message of the same object, which goes on with the back-off where it stands. When time is up
/// it hands on the last error of the handler itself.
pub struct Retry<H, E> {
    inner: H,
    policy: BackoffPolicy,
    report: Option<Arc<dyn Report<E>>>,
}

impl<H, E: Message> Retry<H, E> {
    /// Repeats `inner` by `policy`.
    pub fn new(inner: H, policy: RetryPolicy) -> Self {
        let RetryPolicy { interval, max_interval, timeout } = policy;
        let policy = BackoffPolicy { initial: interval, max: max_interval, limit: Some(timeout) };
        Self { inner, policy, report: None }
    }

    /// Tells `report` of each failure after which it repeats.
    #[must_use]
    pub fn reported(mut self, report: Arc<dyn Report<E>>) -> Self {
        self.report = Some(report);
        self
    }

    fn tell(&self, event: &E, error: &HandlerError, wait: Duration, turn: &Turn<'_>) {
        if let Some(report) = &self.report {
            report.will_retry(event, error, wait, turn);
        }
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Retry<H, E> {
    async fn handle(&self, event: &E, turn: &Turn<'_>) -> Result<(), HandlerError> {
        let Err(mut error) = self.inner.handle(event, turn).await else { return Ok(()) };
        let mut backoff = turn.take_backoff().unwrap_or_else(|| self.policy.start());
        let mut told: Option<Instant> = None;
        loop {
            if !error.transient() {
                return Err(error);
            }
            let queues = error.queues();
            let wait = if queues {
                error.retry_after().unwrap_or(self.policy.initial)
            } else {
                let Some(wait) = backoff.next_wait(error.retry_after()) else { return Err(error) };
                wait
            };
            let resting = if error.waits() {
                let waits = turn.waits(&*error);
                if told.unwrap_or(waits.since).elapsed() >= error.patience() {
                    told = Some(Instant::now());
                    turn.waits_too_long();
                    self.tell(event, &error, wait, turn);
                }
                turn.wait(wait, waits)
            } else {
                let resting = turn.rest(wait, turn.failed(&*error));
                self.tell(event, &error, wait, turn);
                resting
            };
            tokio::select! {
                () = turn.superseded() => {
                    turn.give_way(backoff);
                    return Ok(());
                }
                () = turn.shutdown() => return Ok(()),
                () = tokio::time::sleep(wait) => {}
            }
            drop(resting);
            if queues {
                backoff = self.policy.start();
            }
            match self.inner.handle(event, turn).await {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::compose::Compose;
    use crate::testing::{Fault, TestMessage, Turns};

    fn failing(times: u32, fault: Fault) -> (impl EventHandler<TestMessage>, Arc<AtomicU32>) {
        let attempts = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&attempts);
        let handler = Turns(move |_: &TestMessage| {
            let attempt = seen.fetch_add(1, Ordering::Relaxed);
            if attempt < times { Err(fault.clone().into()) } else { Ok(()) }
        });
        (handler, attempts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_transient_failure_is_repeated_until_it_succeeds() {
        let (handler, attempts) = failing(3, Fault::transient("busy"));
        let retry = handler.retry(RetryPolicy::default());
        retry.handle(&TestMessage::added("a"), &Turn::alone()).await.expect("the fourth attempt succeeds");
        assert_eq!(attempts.load(Ordering::Relaxed), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn any_other_failure_is_handed_on_at_once() {
        let (handler, attempts) = failing(3, Fault::permanent("refused"));
        let error =
            handler.retry(RetryPolicy::default()).handle(&TestMessage::added("a"), &Turn::alone()).await;
        assert_eq!(error.expect_err("it fails").to_string(), "refused");
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn when_time_is_up_the_handlers_own_last_error_is_handed_on() {
        let (handler, attempts) = failing(u32::MAX, Fault::transient("busy"));
        let started = Instant::now();
        let error =
            handler.retry(RetryPolicy::default()).handle(&TestMessage::added("a"), &Turn::alone()).await;
        assert_eq!(error.expect_err("it fails").to_string(), "busy");
        assert_eq!(started.elapsed().as_secs(), 500);
        assert!((9..=20).contains(&attempts.load(Ordering::Relaxed)));
    }

    /// Counts what it is told.
    #[derive(Default)]
    struct Told(AtomicU32);

    impl Report<TestMessage> for Told {
        fn failed(&self, _: &TestMessage, _: &HandlerError, _: &Turn<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn will_retry(&self, _: &TestMessage, _: &HandlerError, _: Duration, _: &Turn<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_only_waits_is_repeated_and_is_no_failure() {
        for (fault, failures) in [(Fault::transient("not yet").waiting(), 0), (Fault::transient("busy"), 3)] {
            let (handler, attempts) = failing(3, fault.after(Duration::from_millis(50)));
            let (told, turn, started) = (Arc::new(Told::default()), Turn::alone(), Instant::now());
            let retry = handler.retry(RetryPolicy::default()).reported(Arc::clone(&told) as _);
            retry.handle(&TestMessage::added("a"), &turn).await.expect("the fourth attempt succeeds");
            assert_eq!(attempts.load(Ordering::Relaxed), 4);
            assert_eq!(started.elapsed(), Duration::from_millis(150));
            assert_eq!((told.0.load(Ordering::Relaxed), turn.attempts()), (failures, failures));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_long_is_told_each_time_that_its_patience_is_over() {
        let wait = Duration::from_secs(1);
        let (handler, _) = failing(95, Fault::transient("not yet").waiting().after(wait));
        let (told, turn) = (Arc::new(Told::default()), Turn::alone());
        let retry = handler.retry(RetryPolicy::default()).reported(Arc::clone(&told) as _);
        let (message, started) = (TestMessage::added("a"), Instant::now());
        let mut handled = std::pin::pin!(retry.handle(&message, &turn));
        for (seconds, expected) in [(29, 0), (31, 1), (59, 1), (61, 2), (91, 3)] {
            let end = tokio::time::sleep_until(started + Duration::from_millis(seconds * 1000 + 500));
            tokio::select! {
                biased;
                _ = &mut handled => panic!("it still waits"),
                () = end => {}
            }
            assert_eq!(told.0.load(Ordering::Relaxed), expected, "after {seconds} s");
        }
        let trouble = turn.trouble().expect("a wait of more than half a minute is one");
        assert_eq!((&*trouble.error, trouble.attempts, trouble.since), ("not yet", 91, started));
        handled.await.expect("it has come");
        assert!(turn.makes_good());
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_longer_than_the_time_for_retries_is_a_failure() {
        let (handler, _) = failing(u32::MAX, Fault::transient("not yet").waiting());
        let retry = handler.retry(RetryPolicy::default());
        assert!(retry.handle(&TestMessage::added("a"), &Turn::alone()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_for_retries_begins_when_the_turn_of_what_queues_has_come() {
        let attempts = AtomicU32::new(0);
        let handler = Turns(move |_: &TestMessage| {
            let queues = attempts.fetch_add(1, Ordering::Relaxed) < 100;
            let queued = || Fault::transient("not its turn").queued().after(Duration::from_secs(10));
            Err(if queues { queued() } else { Fault::transient("busy") }.into())
        });
        let started = Instant::now();
        let retry = handler.retry(RetryPolicy::default());
        let error = retry.handle(&TestMessage::added("a"), &Turn::alone()).await.expect_err("time is up");
        assert_eq!((error.to_string().as_str(), started.elapsed().as_secs()), ("busy", 1000 + 500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_of_the_error_is_obeyed() {
        let (handler, _) = failing(1, Fault::transient("busy").after(Duration::from_secs(7)));
        let started = Instant::now();
        let retry = handler.retry(RetryPolicy::default());
        retry.handle(&TestMessage::added("a"), &Turn::alone()).await.expect("the second attempt succeeds");
        assert_eq!(started.elapsed(), Duration::from_secs(7));
    }
}
