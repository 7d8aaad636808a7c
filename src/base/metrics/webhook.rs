//! Metrics of the admission webhook.

use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::histogram::Histogram;

use super::family::{MetricFamily, MetricsPage, UnitGauge, histogram};
use super::names;

/// The outcomes of a request to the webhook: the pod was changed, the object was admitted as it was, or the request was malformed or too
/// large.
const OUTCOMES: [&str; 3] = ["patched", "unchanged", "rejected"];

/// The metrics of the admission webhook: the durations of requests to it, and the expiry of its certificate.
pub(crate) struct WebhookMetrics {
    durations: MetricFamily<Histogram>,
    /// The time at which the certificate expires, in seconds since 1970; 0 without a certificate.
    expires: UnitGauge,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        let durations = MetricFamily::new(&names::WEBHOOK_DURATION, histogram as _);
        durations.create(&[&OUTCOMES]);
        Self { durations, expires: UnitGauge::default() }
    }
}

impl WebhookMetrics {
    /// Records the duration of a request to the webhook; `outcome` is one of [`OUTCOMES`].
    pub(crate) fn ended(&self, outcome: &str, time: Duration) {
        self.durations.with(&[outcome]).observe(time.as_secs_f64());
    }

    /// Records the time at which the served certificate expires.
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^52")]
    pub(crate) fn certificate_expires(&self, time: Timestamp) {
        self.expires.set(time.as_second() as f64);
    }

    /// Adds the metrics of the webhook to `page`.
    pub(super) fn show(&self, page: &mut MetricsPage) {
        page.family(&self.durations);
        page.add(&names::WEBHOOK_CERTIFICATE_EXPIRY, self.expires.clone());
    }
}

#[cfg(test)]
impl WebhookMetrics {
    /// Returns the number of requests with this outcome.
    pub(crate) fn count(&self, outcome: &str) -> u64 {
        let mut page = MetricsPage::default();
        self.show(&mut page);
        let text = page.encode().unwrap();
        let series = format!("{}_count{{outcome=\"{outcome}\"}} ", names::WEBHOOK_DURATION.name);
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap()
    }
}
