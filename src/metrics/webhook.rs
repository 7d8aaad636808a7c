//! Metrics of the admission webhook.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::histogram::Histogram;

use super::family::{MetricFamily, MetricsPage, histogram};
use super::names;

/// The outcome of a request to the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookOutcome {
    /// The pod was changed.
    Patched,
    /// The object was admitted as it was.
    Unchanged,
    /// The request was malformed or too large.
    Rejected,
}

impl WebhookOutcome {
    /// All outcomes, for the series of the metric.
    const ALL: [Self; 3] = [Self::Patched, Self::Unchanged, Self::Rejected];

    /// Returns the value of the label `outcome` of the metric of requests.
    fn name(self) -> &'static str {
        match self {
            Self::Patched => "patched",
            Self::Unchanged => "unchanged",
            Self::Rejected => "rejected",
        }
    }
}

/// The requests to the webhook, and the expiry of its certificate.
pub(crate) struct WebhookMetrics {
    durations: MetricFamily<Histogram>,
    /// The time at which the certificate expires, in seconds since 1970; 0 without a certificate.
    expires: AtomicI64,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        let durations = MetricFamily::new(&names::WEBHOOK_DURATION, histogram as _);
        durations.create(&[&WebhookOutcome::ALL.map(WebhookOutcome::name)]);
        Self { durations, expires: AtomicI64::default() }
    }
}

impl WebhookMetrics {
    /// Counts a request with its outcome and its duration.
    pub(crate) fn ended(&self, outcome: WebhookOutcome, time: Duration) {
        self.durations.with(&[outcome.name()]).observe(time.as_secs_f64());
    }

    /// Records the time at which the served certificate expires.
    pub(crate) fn certificate_expires(&self, time: Timestamp) {
        self.expires.store(time.as_second(), Ordering::Relaxed);
    }

    /// Adds the metrics of the webhook to `page`.
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^52")]
    pub(super) fn show(&self, page: &mut MetricsPage) {
        page.family(&self.durations);
        let expires = self.expires.load(Ordering::Relaxed) as f64;
        page.values(&names::WEBHOOK_CERTIFICATE_EXPIRY, [([], expires)]);
    }
}

#[cfg(test)]
impl WebhookMetrics {
    /// Returns the number of requests with this outcome.
    pub(crate) fn count(&self, outcome: WebhookOutcome) -> u64 {
        let mut page = MetricsPage::default();
        self.show(&mut page);
        let text = page.encode().unwrap();
        let series = format!("{}_count{{outcome=\"{}\"}} ", names::WEBHOOK_DURATION.name, outcome.name());
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap()
    }
}
