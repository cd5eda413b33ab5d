//! Metric families: name, help text and labels beside the code that reads the values.
//!
//! ```text
//!  counters of a crate ─► snapshot ─► MetricFamily::read ─► MetricSamples ─► encoder of prometheus-client
//! ```
//!
//! A crate declares a constant slice of families over one snapshot type. [`metric_collector`] takes the
//! snapshot once per scrape, so the samples of one collector agree with each other. Counting costs nothing
//! more than the counters of the crate. The slice lists all metrics without a running component.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabel, EncodeLabelSet, LabelSetEncoder,
    MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;

use super::histogram::HistogramSnapshot;

const NANOS_PER_SECOND: f64 = 1e9;
/// Suffix of counters, which the encoders add themselves.
const COUNTER_SUFFIX: &str = "_total";

/// Description of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    /// Name of the family. The name of a counter ends in `_total`.
    pub name: &'static str,
    /// Help text that is understandable without other metrics.
    pub help: &'static str,
    /// Type of the metric.
    pub kind: MetricType,
    /// Names of the labels.
    pub labels: &'static [&'static str],
}

/// Metric family with the function that reads its samples from a snapshot of type `S`.
pub struct MetricFamily<S: 'static> {
    description: MetricDescription,
    read: ReadSamples<S>,
}

/// Function that adds the samples of a snapshot.
pub type ReadSamples<S> = fn(&S, &mut MetricSamples<'_>);

/// Receiver of the samples of one family.
pub struct MetricSamples<'a> {
    encoder: MetricEncoder<'a>,
    description: MetricDescription,
    result: fmt::Result,
}

/// Value of a counter or gauge.
pub trait MetricValue: EncodeCounterValue + EncodeGaugeValue {}

impl<V: EncodeCounterValue + EncodeGaugeValue> MetricValue for V {}

/// Labels of one sample. Labels with an empty value are left out, which means the same to Prometheus.
struct SampleLabels<'a> {
    names: &'static [&'static str],
    values: &'a [&'a str],
}

/// Collector that encodes a slice of families.
struct SnapshotCollector<S: 'static, F> {
    families: &'static [MetricFamily<S>],
    snapshot: F,
}

/// Collector of the metrics of one component, for a registry.
pub type MetricCollector = Box<dyn Collector>;

/// Returns a collector that takes snapshots on each scrape and encodes all families. Each snapshot adds its
/// samples to every family.
pub fn metric_collector<S, I>(
    families: &'static [MetricFamily<S>],
    snapshot: impl Fn() -> I + Send + Sync + 'static,
) -> MetricCollector
where
    I: IntoIterator<Item = S> + 'static,
{
    Box::new(SnapshotCollector { families, snapshot })
}

/// Returns the descriptions of a slice of families.
pub fn describe_metrics<S>(families: &[MetricFamily<S>]) -> Vec<MetricDescription> {
    families.iter().map(|family| family.description).collect()
}

impl<S> MetricFamily<S> {
    /// Declares a counter. Each sample must have one value for each label.
    pub const fn counter(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: ReadSamples<S>,
    ) -> Self {
        Self { description: MetricDescription { name, help, kind: MetricType::Counter, labels }, read }
    }

    /// Declares a gauge. Each sample must have one value for each label.
    pub const fn gauge(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: ReadSamples<S>,
    ) -> Self {
        Self { description: MetricDescription { name, help, kind: MetricType::Gauge, labels }, read }
    }

    /// Declares a histogram. Each sample must have one value for each label.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: ReadSamples<S>,
    ) -> Self {
        Self { description: MetricDescription { name, help, kind: MetricType::Histogram, labels }, read }
    }

    fn encode(&self, snapshots: &[S], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let MetricDescription { name, help, kind, .. } = self.description;
        let name = match kind {
            MetricType::Counter => name.strip_suffix(COUNTER_SUFFIX).unwrap_or(name),
            _ => name,
        };
        let encoder = encoder.encode_descriptor(name, help, None, kind)?;
        let mut samples = MetricSamples { encoder, description: self.description, result: Ok(()) };
        snapshots.iter().for_each(|snapshot| (self.read)(snapshot, &mut samples));
        samples.result
    }
}

impl MetricSamples<'_> {
    /// Adds a sample of a counter or gauge without labels.
    pub fn add(&mut self, value: impl MetricValue) {
        self.add_labeled(&[], value);
    }

    /// Adds a sample of a counter or gauge with the values of its labels, in the order of the label names.
    pub fn add_labeled(&mut self, labels: &[&str], value: impl MetricValue) {
        let kind = self.description.kind;
        self.encode(labels, |mut encoder| match kind {
            MetricType::Counter => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
            _ => encoder.encode_gauge(&value),
        });
    }

    /// Adds a histogram of durations that were recorded in nanoseconds, in seconds.
    pub fn add_durations(&mut self, labels: &[&str], durations: &HistogramSnapshot) {
        self.add_scaled(labels, durations, NANOS_PER_SECOND);
    }

    /// Adds a histogram of whole numbers.
    pub fn add_numbers(&mut self, labels: &[&str], numbers: &HistogramSnapshot) {
        self.add_scaled(labels, numbers, 1.0);
    }

    fn add_scaled(&mut self, labels: &[&str], histogram: &HistogramSnapshot, divisor: f64) {
        let upper = |bound: u64| if bound == u64::MAX { f64::INFINITY } else { bound as f64 / divisor };
        let buckets: Vec<(f64, u64)> =
            histogram.buckets.iter().map(|&(bound, count)| (upper(bound), count)).collect();
        let sum = histogram.sum as f64 / divisor;
        self.encode(labels, |mut encoder| {
            encoder.encode_histogram::<NoLabelSet>(sum, histogram.count(), &buckets, None)
        });
    }

    fn encode(&mut self, values: &[&str], sample: impl FnOnce(MetricEncoder<'_>) -> fmt::Result) {
        let MetricDescription { name, labels: names, .. } = self.description;
        debug_assert_eq!(names.len(), values.len(), "{name} has one value for each label");
        if self.result.is_ok() {
            self.result = self.encoder.encode_family(&SampleLabels { names, values }).and_then(sample);
        }
    }
}

impl EncodeLabelSet for SampleLabels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let labels = self.names.iter().copied().zip(self.values.iter().copied());
        labels
            .filter(|(_, value)| !value.is_empty())
            .try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

impl<S, F, I> Collector for SnapshotCollector<S, F>
where
    F: Fn() -> I + Send + Sync + 'static,
    I: IntoIterator<Item = S> + 'static,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshots: Vec<S> = (self.snapshot)().into_iter().collect();
        self.families.iter().try_for_each(|family| family.encode(&snapshots, &mut encoder))
    }
}

impl<S, F> fmt::Debug for SnapshotCollector<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.families.iter().map(|family| family.description.name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::{prometheus_text, text};
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::Histogram;

    const FAMILIES: &[MetricFamily<(&str, u64)>] = &[
        MetricFamily::counter("a_total", "Things", &["kind", "empty"], |(kind, count), samples| {
            samples.add_labeled(&[kind, ""], *count);
        }),
        MetricFamily::gauge("b_bytes", "Size", &[], |(_, bytes), samples| samples.add(*bytes)),
        MetricFamily::histogram("c_seconds", "Times", &["d"], |_, samples| {
            let histogram = Histogram::with_doubling_buckets(100_000, 2);
            [50_000, 100_001, 5_000_000].iter().for_each(|&value| histogram.record(value));
            samples.add_durations(&["e"], &histogram.snapshot());
        }),
    ];

    fn registry(snapshots: &'static [(&'static str, u64)]) -> Registry {
        let mut registry = Registry::default();
        registry.register_collector(metric_collector(FAMILIES, || snapshots.iter().copied()));
        registry
    }

    #[test]
    fn families_have_escaped_labels_and_cumulative_buckets() {
        let registry = registry(&[("x\"y\\\n", 20_799_488)]);
        let mut page = String::new();
        prometheus_text::encode(&mut page, &registry).unwrap();
        let expected = "# HELP a_total Things\n# TYPE a_total counter\n\
            a_total{kind=\"x\\\"y\\\\\\n\"} 20799488\n\
            # HELP b_bytes Size\n# TYPE b_bytes gauge\nb_bytes 20799488\n\
            # HELP c_seconds Times\n# TYPE c_seconds histogram\n\
            c_seconds_bucket{d=\"e\",le=\"0.0001\"} 1\nc_seconds_bucket{d=\"e\",le=\"0.0002\"} 2\n\
            c_seconds_bucket{d=\"e\",le=\"+Inf\"} 3\nc_seconds_sum{d=\"e\"} 0.005150001\nc_seconds_count{d=\"e\"} 3\n";
        assert_eq!(page, expected);
        let mut open = String::new();
        text::encode(&mut open, &registry).unwrap();
        assert!(open.contains("# TYPE a counter\na_total{kind="), "{open}");
        assert!(open.contains("c_seconds_bucket{le=\"0.0002\",d=\"e\"} 2\n"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
    }

    #[test]
    fn families_without_samples_are_described() {
        let mut page = String::new();
        prometheus_text::encode(&mut page, &registry(&[])).unwrap();
        let lines = |prefix: &str| page.lines().filter(|line| line.starts_with(prefix)).count();
        assert_eq!((page.lines().count(), lines("# HELP "), lines("# TYPE ")), (6, 3, 3), "{page}");
        let names: Vec<&str> = describe_metrics(FAMILIES).iter().map(|family| family.name).collect();
        assert_eq!(names, ["a_total", "b_bytes", "c_seconds"]);
    }

    #[test]
    fn snapshots_share_one_family() {
        let mut page = String::new();
        text::encode(&mut page, &registry(&[("one", 1), ("two", 2)])).unwrap();
        assert!(
            page.contains("# TYPE a counter\na_total{kind=\"one\"} 1\na_total{kind=\"two\"} 2\n"),
            "{page}"
        );
    }
}
