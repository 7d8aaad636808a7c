//! Decides whether and when an invocation that failed with a transient error is repeated.

use std::time::Duration;

use tokio::time::Instant;

use super::EventHandler;
use super::action::{Action, Delay, Next, Why};
use super::context::Context;
use super::failures::{Failures, Series};
use crate::backoff::{BackoffPolicy, MAX_HINT};
use crate::event::Message;
use crate::failure::HandlerError;

/// A wrapper that has an invocation of its handler repeated which failed with a transient error, with exponential back-off, until the time
/// limit of the policy. It only decides; [`Async`](crate::Async) waits and repeats.
///
/// Work that is [not finished](crate::Action::again) is repeated after the time that the handler asked for. While it waits in the queue
/// of an external system, the time limit does not start. The attempts end early when a newer message replaces this one, which
/// continues with the same back-off. After the time limit, the last error is returned.
pub struct Retry<H> {
    /// The wrapper or handler whose invocations are repeated.
    pub(super) inner: H,
    /// The delays between the attempts, and their time limit.
    pub(super) policy: BackoffPolicy,
}

/// The shortest time after which a handler is called again on its own request, so that a handler that always asks for zero does not keep a
/// core busy.
const LEAST_AGAIN: Duration = Duration::from_millis(10);

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Retry<H> {
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<Action, HandlerError> {
        let result = self.inner.handle(event, context).await;
        if result.as_ref().is_ok_and(Action::is_done) {
            return result;
        }
        let now = Instant::now();
        let series = context.failures.map_or(Series { since: now, attempts: 0 }, |past| past.series(now));
        let delay = |hint| next_attempt(self.policy, series, now, hint);
        let error = match result {
            Err(error) => error,
            Ok(action) => return again(action, context, delay),
        };
        if !error.transient() {
            return Err(error);
        }
        let hint = error.retry_after().map(|hint| at_least(hint, context).min(MAX_HINT));
        let pending = error.pending();
        if let Some(why) = pending.filter(|pending| pending.queued).map(|pending| Why::of(&*error, pending)) {
            return Ok(Next::Again(hint.unwrap_or(self.policy.initial).max(LEAST_AGAIN), Some(why)).into());
        }
        let Some(delay) = delay(hint) else { return Err(error) };
        Ok(match pending {
            Some(pending) => Next::Again(delay.wait, Some(Why::of(&*error, pending))),
            None => Next::Retry(error, delay),
        }
        .into())
    }
}

impl<H> Retry<H> {
    /// Handles a message outside of queues: makes all attempts, and waits between them, until the work is done. Returns the last error once
    /// no further attempt is permitted.
    pub async fn complete<E: Message>(&self, event: &E) -> Result<(), HandlerError>
    where
        H: EventHandler<E>,
    {
        let mut failures = Failures::default();
        loop {
            let context = Context { failures: Some(&failures), ..Context::detached() };
            let wait = match self.handle(event, &context).await?.next() {
                Some(Next::Retry(error, delay)) => {
                    failures.failed(&*error, true);
                    delay.wait
                }
                Some(Next::Again(after, Some(why))) => {
                    failures.unfinished(&why);
                    after
                }
                _ => return Ok(()),
            };
            tokio::time::sleep(wait).await;
        }
    }
}

/// Bounds the time after which a handler is to be called again, and ends a wait that lasts longer than the time limit.
fn again(
    action: Action,
    context: &Context<'_>,
    delay: impl Fn(Option<Duration>) -> Option<Delay>,
) -> Result<Action, HandlerError> {
    match action.next() {
        Some(Next::Again(after, why)) => {
            let after = at_least(after, context);
            match why {
                Some(why) if !why.queued && delay(Some(after)).is_none() => Err(why.into()),
                why => Ok(Next::Again(after, why).into()),
            }
        }
        Some(other) => Ok(other.into()),
        None => Ok(Action::done()),
    }
}

/// Returns `after`, or [`LEAST_AGAIN`] if that is longer, which is counted.
fn at_least(after: Duration, context: &Context<'_>) -> Duration {
    if let Some(queue) = context.queue.filter(|_| after < LEAST_AGAIN) {
        queue.metrics().raised_delay();
    }
    after.max(LEAST_AGAIN)
}

/// Returns the delay before the attempt that follows `series` at the time `now`; `None` once the time limit has passed, or if the delay
/// that the error requests (`hint`) would end after it. Without a hint, the last attempt is made at the limit.
fn next_attempt(
    policy: BackoffPolicy,
    series: Series,
    now: Instant,
    hint: Option<Duration>,
) -> Option<Delay> {
    let left = match policy.limit {
        Some(limit) => {
            limit.checked_sub(now.saturating_duration_since(series.since)).filter(|left| !left.is_zero())?
        }
        None => Duration::MAX,
    };
    let backoff = policy.requeue_delay(series.attempts, None).min(left);
    let wait = hint.unwrap_or(backoff);
    (wait <= left).then_some(Delay { wait, least: backoff.min(wait) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Why;
    use crate::test_message::{HandlerFn, TestMessage};
    use crate::testing::Fault;

    const POLICY: BackoffPolicy = BackoffPolicy {
        initial: Duration::from_secs(1),
        max: Duration::from_secs(60),
        limit: Some(Duration::from_secs(500)),
    };

    /// Returns what follows an attempt with this result, after `attempts` attempts of a series that began `elapsed` ago.
    async fn after(
        result: impl Fn() -> Result<Action, HandlerError> + Send + Sync + 'static,
        (elapsed, attempts): (u64, u32),
    ) -> Result<Option<Next>, HandlerError> {
        let mut failures = Failures::default();
        for _ in 0..attempts {
            failures.failed(&Fault::transient("busy"), true);
        }
        tokio::time::advance(Duration::from_secs(elapsed)).await;
        let handler = Returns(result).retry(POLICY);
        let context = Context { failures: Some(&failures), ..Context::detached() };
        Ok(handler.handle(&TestMessage::added("a"), &context).await?.next())
    }

    struct Returns<F>(F);

    impl<F: Fn() -> Result<Action, HandlerError> + Send + Sync + 'static> EventHandler<TestMessage>
        for Returns<F>
    {
        async fn handle(&self, _: &TestMessage, _: &Context<'_>) -> Result<Action, HandlerError> {
            (self.0)()
        }
    }

    async fn after_error(fault: Fault, past: (u64, u32)) -> Result<Option<Next>, HandlerError> {
        after(move || Err(fault.clone().into()), past).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_transient_failure_is_repeated_with_doubled_delays_until_the_time_limit() {
        let busy = || Fault::transient("busy");
        for (past, seconds) in
            [((0, 0), 1.0), ((1, 1), 2.0), ((3, 2), 4.0), ((200, 9), 60.0), ((498, 20), 2.0)]
        {
            let next = after_error(busy(), past).await.expect("it is tried again");
            let Some(Next::Retry(error, delay)) = next else { panic!("{next:?}") };
            assert_eq!((error.to_string().as_str(), delay.wait), ("busy", delay.least));
            let wait = delay.wait.as_secs_f64();
            assert!((wait / seconds - 1.0).abs() < 0.11, "{wait} s after {past:?}");
        }
        let error = after_error(busy(), (500, 20)).await.expect_err("the time is up");
        assert_eq!(error.to_string(), "busy", "the last error of the handler");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_of_zero_is_a_short_delay() {
        let busy = Fault::transient("busy").after(Duration::ZERO);
        let next = after_error(busy, (0, 0)).await.expect("it is tried again");
        let Some(Next::Retry(_, delay)) = next else { panic!("{next:?}") };
        assert_eq!(delay.wait, LEAST_AGAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_failure_is_returned_at_once() {
        let error = after_error(Fault::permanent("refused"), (0, 0)).await.expect_err("it is permanent");
        assert_eq!(error.to_string(), "refused");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_is_obeyed_unless_it_ends_after_the_time_limit() {
        let busy = |seconds| Fault::transient("busy").after(Duration::from_secs(seconds));
        for (hint, expected) in [(7, 7), (86_400, 300)] {
            let next = after_error(busy(hint), (0, 0)).await.expect("it is tried again");
            let Some(Next::Retry(_, delay)) = next else { panic!("{next:?}") };
            assert_eq!(delay.wait, Duration::from_secs(expected));
            assert!(
                delay.least < Duration::from_secs(2),
                "a trigger may end the wait after the back-off alone"
            );
        }
        after_error(busy(60), (450, 1)).await.expect_err("the time is up before that");
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_work_is_repeated_within_the_time_limit_unless_it_is_queued() {
        let again = |after, queued| move || Ok(Action::again(after, Why { queued, ..Why::new("not yet") }));
        let second = Duration::from_secs(1);
        for (wait, queued, elapsed, expected) in [
            (second, false, 0, Some(second)),
            (Duration::ZERO, false, 0, Some(LEAST_AGAIN)),
            (second, false, 500, None),
            (second, true, 500, Some(second)),
            (Duration::MAX, true, 0, Some(Duration::MAX)),
            (Duration::MAX, false, 0, None),
        ] {
            let waits = match after(again(wait, queued), (elapsed, 1)).await {
                Ok(Some(Next::Again(after, Some(why)))) if why.text == "not yet" => Some(after),
                Ok(next) => panic!("{next:?}"),
                Err(error) => {
                    assert_eq!(error.to_string(), "not yet");
                    None
                }
            };
            assert_eq!(waits, expected, "{wait:?}, queued: {queued}, after {elapsed} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_succeeded_may_be_called_again_at_any_time() {
        for (wait, expected) in [(0, LEAST_AGAIN), (86_400 * 365, Duration::from_secs(86_400 * 365))] {
            let next = after(move || Ok(Action::requeue(Duration::from_secs(wait))), (1000, 1)).await;
            assert!(matches!(next, Ok(Some(Next::Again(after, None))) if after == expected), "{next:?}");
        }
        let handler = HandlerFn(|_: &TestMessage| Ok(())).retry(POLICY);
        let action = handler.handle(&TestMessage::added("a"), &Context::detached()).await;
        assert!(action.expect("it succeeds").is_done());
    }
}
