//! Repeats invocations that failed with a transient error.

use std::sync::Arc;

use super::EventHandler;
use super::context::Context;
use super::log_exceptions::Report;
use crate::backoff::BackoffPolicy;
use crate::event::Message;
use crate::failure::HandlerError;

/// A wrapper that repeats an invocation of its handler that fails with a transient error, with exponential back-off.
///
/// Work that is only [pending](crate::Failure::pending) is repeated in the same way, but reported only as its
/// [`Pending`](crate::Pending) specifies. While the work waits in the queue of an external system, the time limit does not start. The
/// retries end early when a queued message supersedes this one; the newer message continues with the same back-off. After the time
/// limit, the last error of the handler is returned.
pub struct Retry<H, E> {
    /// The wrapper or handler whose invocations are repeated.
    pub(super) inner: H,
    /// The delays between the attempts, and their time limit.
    pub(super) policy: BackoffPolicy,
    /// The report that gets the failures that are followed by another attempt; `None` if nothing gets them.
    pub(super) report: Option<Arc<dyn Report<E>>>,
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Retry<H, E> {
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<(), HandlerError> {
        loop {
            let Err(error) = self.inner.handle(event, context).await else { return Ok(()) };
            if !error.transient() {
                return Err(error);
            }
            let next = context.update_retry_state(|retry| retry.retry(&*error, self.policy));
            let Some((wait, is_failure)) = next else { return Err(error) };
            if error.pending().is_none()
                && let Some(metrics) = context.metrics()
            {
                metrics.retried();
            }
            if let Some(report) = self.report.as_ref().filter(|_| is_failure) {
                report.will_retry(event, &error, wait, context);
            }
            // Boxed, because the future of every message would have room for it.
            if !Box::pin(context.sleep(wait)).await {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::failure::Pending;
    use crate::test_message::{HandlerFn, TestMessage};
    use crate::testing::Fault;

    fn failing(times: u32, fault: Fault) -> (impl EventHandler<TestMessage>, Arc<AtomicU32>) {
        let attempts = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&attempts);
        let handler = HandlerFn(move |_: &TestMessage| {
            let attempt = seen.fetch_add(1, Ordering::Relaxed);
            if attempt < times { Err(fault.clone().into()) } else { Ok(()) }
        });
        (handler, attempts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_transient_failure_is_repeated_until_it_succeeds() {
        let (handler, attempts) = failing(3, Fault::transient("busy"));
        let retry = handler.retry(BackoffPolicy::default(), None);
        retry
            .handle(&TestMessage::added("a"), &Context::detached())
            .await
            .expect("the fourth attempt succeeds");
        assert_eq!(attempts.load(Ordering::Relaxed), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_failure_is_returned_at_once() {
        let (handler, attempts) = failing(3, Fault::permanent("refused"));
        let error = handler
            .retry(BackoffPolicy::default(), None)
            .handle(&TestMessage::added("a"), &Context::detached())
            .await;
        assert_eq!(error.expect_err("it fails").to_string(), "refused");
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_time_limit_the_last_error_of_the_handler_is_returned() {
        let (handler, attempts) = failing(u32::MAX, Fault::transient("busy"));
        let started = Instant::now();
        let error = handler
            .retry(BackoffPolicy::default(), None)
            .handle(&TestMessage::added("a"), &Context::detached())
            .await;
        assert_eq!(error.expect_err("it fails").to_string(), "busy");
        assert_eq!(started.elapsed().as_secs(), 500);
        assert!((9..=20).contains(&attempts.load(Ordering::Relaxed)));
    }

    /// A report that counts its calls.
    #[derive(Default)]
    struct CountingReport(AtomicU32);

    impl Report<TestMessage> for CountingReport {
        fn failed(&self, _: &TestMessage, _: &HandlerError, _: &Context<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn will_retry(&self, _: &TestMessage, _: &HandlerError, _: Duration, _: &Context<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_that_only_waits_is_repeated_and_is_no_failure() {
        for (fault, failures) in
            [(Fault::transient("not yet").pending(Pending::default()), 0), (Fault::transient("busy"), 3)]
        {
            let (handler, attempts) = failing(3, fault.after(Duration::from_millis(50)));
            let (reports, context, started) =
                (Arc::new(CountingReport::default()), Context::detached(), Instant::now());
            let retry = handler.retry(BackoffPolicy::default(), Some(Arc::clone(&reports) as _));
            retry.handle(&TestMessage::added("a"), &context).await.expect("the fourth attempt succeeds");
            assert_eq!(attempts.load(Ordering::Relaxed), 4);
            assert_eq!(started.elapsed(), Duration::from_millis(150));
            assert_eq!((reports.0.load(Ordering::Relaxed), context.attempts()), (failures, failures));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_is_reported_each_time_its_patience_has_passed() {
        let wait = Duration::from_secs(1);
        let (handler, _) = failing(95, Fault::transient("not yet").pending(Pending::default()).after(wait));
        let (reports, context) = (Arc::new(CountingReport::default()), Context::detached());
        let retry = handler.retry(BackoffPolicy::default(), Some(Arc::clone(&reports) as _));
        let (message, started) = (TestMessage::added("a"), Instant::now());
        let mut handled = std::pin::pin!(retry.handle(&message, &context));
        for (seconds, expected) in [(29, 0), (31, 1), (59, 1), (61, 2), (91, 3)] {
            let end = tokio::time::sleep_until(started + Duration::from_millis(seconds * 1000 + 500));
            tokio::select! {
                biased;
                _ = &mut handled => panic!("it still waits"),
                () = end => {}
            }
            assert_eq!(reports.0.load(Ordering::Relaxed), expected, "after {seconds} s");
        }
        let last_error = context.last_error().expect("a wait of more than half a minute is a failure");
        assert_eq!((&*last_error.error, last_error.attempts, last_error.since), ("not yet", 91, started));
        handled.await.expect("the wait is over");
        assert!(context.is_recovery());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_beyond_the_time_limit_is_a_failure() {
        let (handler, _) = failing(u32::MAX, Fault::transient("not yet").pending(Pending::default()));
        let retry = handler.retry(BackoffPolicy::default(), None);
        assert!(retry.handle(&TestMessage::added("a"), &Context::detached()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_limit_starts_once_the_wait_for_a_turn_is_over() {
        let attempts = AtomicU32::new(0);
        let handler = HandlerFn(move |_: &TestMessage| {
            let queues = attempts.fetch_add(1, Ordering::Relaxed) < 100;
            let queued = || {
                Fault::transient("not its turn")
                    .pending(Pending { queued: true, ..Pending::default() })
                    .after(Duration::from_secs(10))
            };
            Err(if queues { queued() } else { Fault::transient("busy") }.into())
        });
        let started = Instant::now();
        let retry = handler.retry(BackoffPolicy::default(), None);
        let error = retry
            .handle(&TestMessage::added("a"), &Context::detached())
            .await
            .expect_err("the time limit has passed");
        assert_eq!((error.to_string().as_str(), started.elapsed().as_secs()), ("busy", 1000 + 500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_of_the_error_is_obeyed() {
        let (handler, _) = failing(1, Fault::transient("busy").after(Duration::from_secs(7)));
        let started = Instant::now();
        let retry = handler.retry(BackoffPolicy::default(), None);
        retry
            .handle(&TestMessage::added("a"), &Context::detached())
            .await
            .expect("the second attempt succeeds");
        assert_eq!(started.elapsed(), Duration::from_secs(7));
    }
}
