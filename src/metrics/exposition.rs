//! Writes the series of one family in the form of OpenMetrics.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::histogram::{BOUNDS, Snapshot};
use super::names::{Family, Form};

static SECONDS: Unit = Unit::Seconds;
static BYTES: Unit = Unit::Bytes;

/// Writes the head of `family`, and what `series` writes below it.
pub(super) fn write(
    encoder: &mut DescriptorEncoder<'_>,
    family: &'static Family,
    series: impl FnOnce(&mut Series<'_>) -> fmt::Result,
) -> fmt::Result {
    let (stem, unit) = stem(family);
    let form = match family.form {
        Form::Counter => MetricType::Counter,
        Form::Gauge => MetricType::Gauge,
        Form::Histogram => MetricType::Histogram,
        Form::Info => MetricType::Info,
    };
    let encoder = encoder.encode_descriptor(stem, family.help, unit, form)?;
    series(&mut Series { family, encoder })
}

/// The name without what the encoder adds: the suffix of the form, and the unit.
fn stem(family: &Family) -> (&'static str, Option<&'static Unit>) {
    let suffix = match family.form {
        Form::Counter => "_total",
        Form::Info => "_info",
        Form::Gauge | Form::Histogram => "",
    };
    let name = family.name.strip_suffix(suffix).unwrap_or(family.name);
    if let Some(stem) = name.strip_suffix("_seconds") {
        (stem, Some(&SECONDS))
    } else if let Some(stem) = name.strip_suffix("_bytes") {
        (stem, Some(&BYTES))
    } else {
        (name, None)
    }
}

/// Writes series of one family, each with a value for each of its labels, in their order.
pub(super) struct Series<'a> {
    family: &'static Family,
    encoder: MetricEncoder<'a>,
}

impl Series<'_> {
    pub(super) fn counter(&mut self, labels: &[&str], value: impl EncodeCounterValue + Copy) -> fmt::Result {
        self.one(labels, |encoder| encoder.encode_counter::<NoLabelSet, _, f64>(&value, None))
    }

    pub(super) fn gauge(&mut self, labels: &[&str], value: impl EncodeGaugeValue + Copy) -> fmt::Result {
        self.one(labels, |encoder| encoder.encode_gauge(&value))
    }

    pub(super) fn histogram(&mut self, labels: &[&str], counted: &Snapshot) -> fmt::Result {
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(counted.buckets).collect();
        let (sum, count) = (counted.sum.as_secs_f64(), counted.count());
        self.one(labels, |encoder| encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None))
    }

    pub(super) fn info(&mut self, labels: &[&str]) -> fmt::Result {
        let labels = self.named(labels);
        self.encoder.encode_info(&labels)
    }

    fn one(
        &mut self,
        labels: &[&str],
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let labels = self.named(labels);
        if labels.is_empty() {
            return write(&mut self.encoder);
        }
        write(&mut self.encoder.encode_family(&labels)?)
    }

    fn named<'l>(&self, values: &[&'l str]) -> Vec<(&'static str, &'l str)> {
        debug_assert_eq!(values.len(), self.family.labels.len(), "{}", self.family.name);
        self.family.labels.iter().copied().zip(values.iter().copied()).collect()
    }
}
