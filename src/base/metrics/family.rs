//! Families of metric series, and the page that shows them.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeMetric, text};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::names::{MetricDescription, MetricKind};

/// A gauge in a base unit such as seconds.
pub(crate) type UnitGauge = Gauge<f64, AtomicU64>;

/// The inclusive upper bounds of the buckets of all histograms, in seconds: 10 µs to 100 s.
const BUCKETS: [f64; 22] = [
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 25.0, 50.0, 100.0,
];

/// Returns an empty histogram of durations.
pub(super) fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

/// The labels of one series: their names and values.
type LabelSet = Vec<(&'static str, String)>;

/// All series of one metric whose values the measured code updates while it runs. Clones share the series.
#[derive(Clone)]
pub(crate) struct MetricFamily<M> {
    description: &'static MetricDescription,
    series: Family<LabelSet, M, fn() -> M>,
}

impl<M: Clone> MetricFamily<M> {
    /// Creates a family without series. `zero` creates an empty series.
    pub(super) fn new(description: &'static MetricDescription, zero: fn() -> M) -> Self {
        Self { description, series: Family::new_with_constructor(zero) }
    }

    /// Creates a series with the value 0 for each combination of label values. `labels` has one list of values for each label, in the order
    /// of the description.
    pub(super) fn create(&self, labels: &[&[&str]]) {
        let mut combinations = vec![Vec::new()];
        for values in labels {
            let longer = combinations.iter().flat_map(|first: &Vec<_>| {
                values.iter().map(move |value| [first.as_slice(), &[*value]].concat())
            });
            combinations = longer.collect();
        }
        for values in combinations {
            self.with(&values);
        }
    }

    /// Returns the series with these label values, in the order of the description. If the series does not exist, it is created with
    /// the value 0.
    pub(crate) fn with(&self, values: &[&str]) -> M {
        debug_assert_eq!(values.len(), self.description.labels.len(), "{}", self.description.name);
        let values = values.iter().map(|value| (*value).to_owned());
        self.series.get_or_create_owned(&self.description.labels.iter().copied().zip(values).collect())
    }
}

/// The content of one response of `/metrics`: metric families, and values that are read from the current state of the controller.
#[derive(Default)]
pub(crate) struct MetricsPage(Registry);

impl MetricsPage {
    /// Adds all series of `family` to the page.
    pub(super) fn family<M>(&mut self, family: &MetricFamily<M>)
    where
        M: EncodeMetric + TypedMetric + Clone + fmt::Debug + Send + Sync + 'static,
    {
        self.add(family.description, family.series.clone());
    }

    /// Adds a metric of whole numbers with one series for each of `samples`: its label values, in the order of the description, and its
    /// value.
    pub(crate) fn counts<'a, const N: usize, C: TryInto<u64>>(
        &mut self,
        description: &'static MetricDescription,
        samples: impl IntoIterator<Item = ([&'a str; N], C)>,
    ) {
        let samples =
            samples.into_iter().map(|(values, count)| (values, count.try_into().unwrap_or(u64::MAX)));
        match description.kind {
            MetricKind::Counter => self.samples(description, samples, |counter: &Counter, count| {
                counter.inc_by(count);
            }),
            _ => self.samples(description, samples, |gauge: &Gauge<u64, AtomicU64>, count| {
                gauge.set(count);
            }),
        }
    }

    /// Adds a metric in a base unit such as seconds, with one series for each of `samples`: its label values, in the order of the
    /// description, and its value.
    pub(crate) fn values<'a, const N: usize>(
        &mut self,
        description: &'static MetricDescription,
        samples: impl IntoIterator<Item = ([&'a str; N], f64)>,
    ) {
        match description.kind {
            MetricKind::Counter => self.samples(description, samples, |counter: &Counter<f64>, value| {
                counter.inc_by(value);
            }),
            _ => self.samples(description, samples, |gauge: &UnitGauge, value| {
                gauge.set(value);
            }),
        }
    }

    /// Adds a metric with one series for each of `samples`; `set` writes the value of a sample into its series.
    fn samples<'a, const N: usize, M, V>(
        &mut self,
        description: &'static MetricDescription,
        samples: impl IntoIterator<Item = ([&'a str; N], V)>,
        set: fn(&M, V),
    ) where
        M: EncodeMetric + TypedMetric + Default + Clone + fmt::Debug + Send + Sync + 'static,
    {
        let family = MetricFamily::new(description, M::default);
        for (values, value) in samples {
            set(&family.with(&values), value);
        }
        // A family writes empty braces around no labels.
        if N == 0 { self.add(description, family.with(&[])) } else { self.family(&family) }
    }

    /// Adds `metric` to the page. The unit and the suffix of its kind (`_total`, `_info`) are removed from its name, because the registry
    /// appends them again.
    pub(super) fn add(&mut self, description: &MetricDescription, metric: impl Metric) {
        let suffix = match description.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        let name = description.name.strip_suffix(suffix).unwrap_or(description.name);
        if let Some(name) = name.strip_suffix("_seconds") {
            self.0.register_with_unit(name, description.help, Unit::Seconds, metric);
        } else if let Some(name) = name.strip_suffix("_bytes") {
            self.0.register_with_unit(name, description.help, Unit::Bytes, metric);
        } else {
            self.0.register(name, description.help, metric);
        }
    }

    /// Encodes the page in the text format of OpenMetrics 1.0. Fails if a metric cannot be formatted.
    pub(super) fn encode(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.0)?;
        Ok(page)
    }
}
