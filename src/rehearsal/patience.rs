//! A dry run asks again when something fails for a passing reason, but not for long: somebody waits for the plan.

use std::future::Future;
use std::time::Duration;

use staffetta_handler::{BackoffPolicy, HandlerError, RetryPolicy, bounded};

/// How long an answer is waited for by asking again.
const PATIENCE: Duration = Duration::from_secs(5);

/// The waits between two questions.
pub(super) const BACKOFF: BackoffPolicy =
    BackoffPolicy { initial: Duration::from_millis(200), max: Duration::from_secs(2), limit: Some(PATIENCE) };

/// The waits between two attempts of a handler.
pub(super) const RETRY: RetryPolicy =
    RetryPolicy { interval: BACKOFF.initial, max_interval: BACKOFF.max, timeout: PATIENCE };

/// Asks, each time for at most `limit`, until there is an answer, an error that is final, or no more patience.
pub(super) async fn patiently<T, F>(limit: Duration, ask: impl Fn() -> F) -> Result<T, HandlerError>
where
    F: Future<Output = Result<T, HandlerError>> + Send,
{
    let mut backoff = BACKOFF.start();
    loop {
        let error = match bounded(limit, ask()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let wait = if error.transient() { backoff.next_wait(error.retry_after()) } else { None };
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use staffetta_handler::testing::Fault;
    use tokio::time::Instant;

    use super::*;

    async fn asked(fault: Fault, answers_at: u32) -> (Result<u32, HandlerError>, u32, Duration) {
        let (asked, started) = (AtomicU32::new(0), Instant::now());
        let answer = patiently(Duration::from_secs(60), || async {
            let nth = asked.fetch_add(1, Ordering::Relaxed) + 1;
            if nth < answers_at { Err(fault.clone().into()) } else { Ok(nth) }
        })
        .await;
        (answer, asked.into_inner(), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_passing_trouble_is_outlived_and_a_lasting_one_is_given_up_within_seconds() {
        let (answer, times, _) = asked(Fault::transient("busy"), 3).await;
        assert_eq!((answer.unwrap(), times), (3, 3));
        let (answer, _, took) = asked(Fault::transient("busy"), u32::MAX).await;
        assert_eq!((answer.unwrap_err().to_string().as_str(), took), ("busy", PATIENCE));
        let (_, times, took) = asked(Fault::permanent("refused"), u32::MAX).await;
        assert_eq!((times, took), (1, Duration::ZERO));
        let (_, times, took) = asked(Fault::transient("busy").after(PATIENCE * 2), u32::MAX).await;
        assert_eq!((times, took), (1, Duration::ZERO), "a hint beyond all patience is not waited for");
    }
}
