//! Writes metrics one by one.
//!
//! Always true: names begin with `diorite_` unless Prometheus has a name for the metric. The encoder appends `_total`
//! to counters, and the units, which are Prometheus' base units.

use diorite_base::measure::Distribution;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::fmt;

/// The buckets of histograms end at the powers of two from 2^4 = 16 µs to 2^24 µs, which is 16.8 s.
const FIRST_POWER: u32 = 4;
const LAST_POWER: u32 = 24;

/// Labels and a value.
type Labelled<'a, V> = (&'a [(&'a str, &'a str)], V);

/// Writes metrics to the encoder.
pub(super) struct Writer<'w, 'e> {
    encoder: &'w mut DescriptorEncoder<'e>,
}

impl<'w, 'e> Writer<'w, 'e> {
    pub(super) fn new(encoder: &'w mut DescriptorEncoder<'e>) -> Self {
        Self { encoder }
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: u64) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    pub(super) fn counter_f64(&mut self, name: &str, help: &str, unit: &Unit, value: f64) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, Some(unit), MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: u64) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        gauge_of(value).encode(metric)
    }

    pub(super) fn gauge_f64(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: f64) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (value_of_label, value) in values {
            let labels = [(label, *value_of_label)];
            ConstCounter::new(*value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (value_of_label, value) in values {
            let labels = [(label, *value_of_label)];
            gauge_of(*value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes a metric with several labels.
    pub(super) fn family<'a>(
        &mut self,
        (name, help, unit, kind): (&str, &str, Option<&Unit>, MetricType),
        values: impl Iterator<Item = Labelled<'a, u64>>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, kind)?;
        for (labels, value) in values {
            let metric = family.encode_family(&labels)?;
            match kind {
                MetricType::Counter => ConstCounter::new(value).encode(metric)?,
                _ => gauge_of(value).encode(metric)?,
            }
        }
        Ok(())
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, times: &Distribution) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        encode(metric, times)
    }

    pub(super) fn histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        times: impl Iterator<Item = (&'a str, Distribution)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (value_of_label, times) in times {
            let labels = [(label, value_of_label)];
            encode(family.encode_family(&labels)?, &times)?;
        }
        Ok(())
    }
}

fn encode(mut metric: MetricEncoder<'_>, times: &Distribution) -> fmt::Result {
    let powers = times.by_powers(FIRST_POWER, LAST_POWER);
    let buckets: Vec<(f64, u64)> =
        powers.iter().map(|(bound, count)| (bound.unwrap_or(f64::INFINITY), *count)).collect();
    // The sum of the buckets, so that count and buckets agree even during a concurrent write.
    let count = buckets.iter().map(|(_, count)| count).sum();
    metric.encode_histogram::<NoLabelSet>(times.sum_seconds(), count, &buckets, None)
}

fn gauge_of(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
