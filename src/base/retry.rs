//! Repeats an operation outside of the handler chains, such as the first read of the cluster, until it
//! succeeds.

use std::time::Duration;

use staffetta_handler::{BackoffPolicy, HandlerError, bounded, causes};

/// The back-off between two calls of an operation whose error requests no delay of its own.
const BACKOFF: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_millis(500), Duration::from_secs(30));

/// Calls `operation` until it succeeds, with a time limit of `timeout` for each call. The delay between two calls is that which the
/// error requests, or doubles from 0.5 s to 30 s. After each failure, `on_failure` gets the number of failed calls so far, the
/// milliseconds until the next call, and the error with its causes.
pub(crate) async fn until_success<T, F>(
    timeout: Duration,
    operation: impl Fn() -> F,
    on_failure: impl Fn(u32, u128, String),
) -> T
where
    F: Future<Output = Result<T, HandlerError>> + Send,
{
    let mut backoff = BACKOFF.start();
    loop {
        let error = match bounded(timeout, operation()).await {
            Ok(value) => return value,
            Err(error) => error,
        };
        let wait = backoff.delay(error.retry_after());
        on_failure(backoff.attempts(), wait.as_millis(), causes(&*error));
        tokio::time::sleep(wait).await;
    }
}
