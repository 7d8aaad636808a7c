//! Reports the failures of handlers: in the log, as a Kubernetes Event on the object and as a metric.
//! With `events.success`, it reports successes as Events, too.
//!
//! An error that disappears within [`REPORT_DELAY`] is logged at level `debug` only, unless the next attempt is far away. If a failure
//! was reported, its end is reported, too.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use staffetta_handler::{
    Failure, Failures, Identity, LastError, Message, Panicked, QueueMetrics, Report, Resolved, TimedOut,
    Undecodable, causes,
};
use tracing::{debug, error, info, warn};

use super::recorded::OnHandled;
use crate::base::metrics::Metrics;
use crate::engine::events::{Occurrence, Publisher};

/// The time for which an object must fail before a transient error is reported.
const REPORT_DELAY: Duration = Duration::from_secs(10);

/// The longest time for which an object may fail without a report. If the next attempt would be later, the failure is reported earlier.
const MAX_UNREPORTED: Duration = Duration::from_secs(30);

/// The reason of the Kubernetes Event that reports the end of a failure.
pub(crate) const RECOVERED: &str = "Recovered";

/// The reason of the Kubernetes Event that reports a success.
pub(crate) const HANDLED: &str = "Handled";

/// The reason of the Kubernetes Event on an object that cannot be decoded.
pub(crate) const UNDECODABLE: &str = "ObjectUndecodable";

/// A reporter of what happens to objects in all handlers: in the log, as metrics and as Kubernetes Events. Clones share the metrics.
#[derive(Clone)]
pub struct HandlerReports {
    publisher: Publisher,
    /// `true` if successes are reported as Kubernetes Events, too.
    success: bool,
    metrics: Arc<Metrics>,
}

impl Default for HandlerReports {
    /// Creates reports that write no Kubernetes Events, and whose metrics no page shows.
    fn default() -> Self {
        Self::new(Publisher::default(), false, &Arc::default())
    }
}

impl HandlerReports {
    /// Creates reports with the metrics `metrics`. `publisher` writes the Events; those of successes only if `success` is `true`.
    pub(crate) fn new(publisher: Publisher, success: bool, metrics: &Arc<Metrics>) -> Self {
        Self { publisher, success, metrics: Arc::clone(metrics) }
    }

    /// Returns the [`Report`] that gets all failures of `handler`, including transient ones.
    pub(super) fn failures(&self, handler: &str) -> Arc<dyn Report<Resolved>> {
        let (publisher, metrics) = (self.publisher.clone(), Arc::clone(&self.metrics));
        Arc::new(FailureReport { handler: handler.into(), publisher, metrics })
    }

    /// Returns the callback for successes of `handler` in which a request changed something; `None` if they are not reported.
    pub(super) fn successes(&self, handler: &str) -> Option<OnHandled> {
        let (publisher, handler) = (self.publisher.clone(), handler.into());
        let report: OnHandled = Box::new(move |event, context| {
            // The end of a failure is reported as such. An Event on an object that is deleted helps no user, and triggers come from
            // staffetta itself.
            if !event.finalizing()
                && !event.is_trigger()
                && context.failures().and_then(Failures::reported_on).is_none()
            {
                let note = format!("handled in {}", Rounded(context.queued_since().elapsed()));
                publisher.publish(Occurrence::new(
                    event.event().identity(),
                    &handler,
                    false,
                    HANDLED,
                    (&note, ""),
                ));
            }
        });
        self.success.then_some(report)
    }

    /// Reports an object that cannot be decoded: in the log, and as a Kubernetes Event on the object.
    pub(super) fn undecodable(&self, object: &Undecodable) {
        let object_ref = object.identity.object_ref();
        error!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
            error = object.error, "an object cannot be decoded and is ignored");
        let (regarding, note) = (object.identity.clone(), object.to_string());
        self.publisher.publish(Occurrence::new(regarding, &"watch".into(), true, UNDECODABLE, (&note, "")));
    }

    /// Counts a panic in the code of `handler` that indexes objects as they are watched. The panic is already logged.
    pub(super) fn index_panicked(&self, handler: &str, panicked: &Panicked) {
        self.metrics.count_failure(handler, panicked);
    }

    /// Returns the metrics of the queues of `handler`.
    pub(super) fn queue_metrics(&self, handler: &str) -> Arc<dyn QueueMetrics> {
        Arc::new(self.metrics.workqueue(handler))
    }
}

/// The [`Report`] of one handler: logs, counts and publishes its failures.
struct FailureReport {
    handler: Arc<str>,
    publisher: Publisher,
    metrics: Arc<Metrics>,
}

impl Report<Resolved> for FailureReport {
    fn failed(&self, event: &Resolved, error: &dyn Failure, again: Duration, failures: &mut Failures) {
        self.metrics.count_failure(&self.handler, error);
        let object_ref = event.object_ref();
        let text = text(error, failures);
        let reason = error.reason();
        let is_new = failures.set_reported_on(affected(event, error));
        if is_new || error.transient() {
            error!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
                handler = &*self.handler, change = ?event.change(), attempt = failures.attempts(), reason,
                again_s = again.as_secs(), error = &*text, "handling failed");
        } else {
            debug!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
                handler = &*self.handler, attempt = failures.attempts(), reason, again_s = again.as_secs(), error = &*text,
                "it still fails for the same object");
        }
        let suffix = format!("; it is handled again in {}, or when it changes", Rounded(again));
        self.warn(event, error, (&text, &suffix));
    }

    fn will_retry(&self, event: &Resolved, error: &dyn Failure, wait: Duration, failures: &mut Failures) {
        self.metrics.count_failure(&self.handler, error);
        let object_ref = event.object_ref();
        let text = text(error, failures);
        let reason = error.reason();
        let attempt = failures.attempts();
        let since = failures.last_error().map_or(Duration::ZERO, |last_error| last_error.since.elapsed());
        let failing_for = since.saturating_add(time_limit(error));
        let reported = failing_for >= REPORT_DELAY || failing_for.saturating_add(wait) >= MAX_UNREPORTED;
        if reported && failures.set_reported_on(affected(event, error)) {
            warn!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
                handler = &*self.handler, change = ?event.change(), attempt, reason,
                again_s = wait.as_secs_f64(), error = &*text, "handling keeps failing; it is retried");
        } else {
            debug!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
                handler = &*self.handler, attempt, reason, again_s = wait.as_secs_f64(), error = &*text, "will try again");
        }
        if reported {
            let suffix = format!("; attempt {} follows in {}", attempt.saturating_add(1), Rounded(wait));
            self.warn(event, error, (&text, &suffix));
        }
    }

    fn recovered(&self, event: &Resolved, failures: &Failures) {
        let (Some(object), Some(last_error)) = (failures.reported_on(), failures.last_error()) else {
            return;
        };
        let LastError { attempts, since, .. } = last_error;
        info!(kind = %object.kind, namespace = object.namespace, name = object.name, uid = object.uid,
            handler = &*self.handler, attempt = attempts, "handling works again");
        // An Event on an object that is deleted helps no user, and what was refused of it did not recover.
        if !event.finalizing() {
            let plural = if *attempts == 1 { "attempt" } else { "attempts" };
            let since = Rounded(since.elapsed());
            let note = format!("handled again after {attempts} failed {plural} in {since}");
            let regarding = object.clone();
            self.publisher.publish(Occurrence::new(regarding, &self.handler, false, RECOVERED, (&note, "")));
        }
    }
}

impl FailureReport {
    /// Publishes a Kubernetes Event of type `Warning` with the reason of `error`. `note` is the text, and a suffix that is kept if the text
    /// is too long.
    fn warn(&self, event: &Resolved, error: &dyn Failure, note: (&str, &str)) {
        let regarding = affected(event, error);
        self.publisher.publish(Occurrence::new(regarding, &self.handler, true, error.reason(), note));
    }
}

/// Returns the error with its causes. It is usually formatted already.
fn text(error: &dyn Failure, failures: &Failures) -> Arc<str> {
    failures.last_error().map_or_else(|| causes(error).into(), |last_error| Arc::clone(&last_error.error))
}

/// Returns the time limit that an invocation exceeded; zero for any other error.
fn time_limit(error: &dyn Failure) -> Duration {
    let error: &(dyn Error + 'static) = error;
    error.downcast_ref::<TimedOut>().map_or(Duration::ZERO, |timed_out| timed_out.limit)
}

/// Returns the object on which the Kubernetes Event is created: the object that the error names, otherwise that of the watch event.
fn affected(event: &Resolved, error: &dyn Failure) -> Identity {
    error.concerns().cloned().unwrap_or_else(|| event.event().identity())
}

/// A duration that is displayed in one unit: `90 ms`, `5 s`, `15 min`.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0 => write!(f, "{} ms", self.0.as_millis()),
            seconds @ 1..120 => write!(f, "{seconds} s"),
            seconds @ 120..7200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3600),
        }
    }
}

#[cfg(test)]
mod tests;
