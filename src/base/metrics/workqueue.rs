//! Metrics of the queues of one handler, under the names that other Kubernetes controllers use
//! (`workqueue_*`).

use std::error::Error;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use staffetta_handler::{Failure, Panicked, QueueMetrics, TimedOut};

/// The metrics of the queues of one handler.
#[derive(Debug)]
pub(crate) struct WorkqueueMetrics {
    /// The number of messages (events and triggers) that were added to the queues.
    pub(super) adds: Counter,
    /// The number of transient failures that were followed by another attempt.
    pub(super) retries: Counter,
    /// The number of delays before the next attempt that were raised to the shortest one.
    pub(super) raised_delays: Counter,
    /// The times for which messages were queued before their handler was invoked, in seconds.
    pub(super) queue_duration: Histogram,
    /// The durations of invocations of the handler, in seconds.
    pub(super) work_duration: Histogram,
    /// The number of invocations of the handler. It is counted here too, because the count in `work_duration` cannot be read.
    pub(super) attempts: Counter,
}

impl QueueMetrics for WorkqueueMetrics {
    fn added(&self) {
        self.adds.inc();
    }

    fn waited(&self, time: Duration) {
        self.queue_duration.observe(time.as_secs_f64());
    }

    fn worked(&self, time: Duration) {
        self.work_duration.observe(time.as_secs_f64());
        self.attempts.inc();
    }

    fn retried(&self) {
        self.retries.inc();
    }

    fn raised_delay(&self) {
        self.raised_delays.inc();
    }
}

/// The values of the label `outcome` for failed invocations.
pub(super) const FAILURE_OUTCOMES: [&str; 4] = ["transient", "permanent", "panic", "timeout"];

/// Returns the value of the label `outcome` for an invocation that failed with `failure`.
pub(super) fn failure_outcome(failure: &dyn Failure) -> &'static str {
    let error: &(dyn Error + 'static) = failure;
    let [transient, permanent, panic, timeout] = FAILURE_OUTCOMES;
    match failure.transient() {
        _ if error.is::<Panicked>() => panic,
        _ if error.is::<TimedOut>() => timeout,
        true => transient,
        false => permanent,
    }
}

#[cfg(test)]
mod tests {
    use staffetta_handler::bounded;
    use staffetta_handler::testing::Fault;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_classified_by_its_cause() {
        let limit = Duration::from_secs(1);
        let panics = bounded::<()>(limit, async { panic!("as ordered") }).await.unwrap_err();
        let hangs = bounded::<()>(limit, std::future::pending()).await.unwrap_err();
        let (busy, refused) = (Fault::transient("busy"), Fault::permanent("refused"));
        for (failure, outcome) in [
            (&*panics as &dyn Failure, "panic"),
            (&*hangs, "timeout"),
            (&busy, "transient"),
            (&refused, "permanent"),
        ] {
            assert_eq!(failure_outcome(failure), outcome);
        }
    }
}
