//! Metrics page in the text formats of Prometheus: OpenMetrics, or the older one for clients that do not
//! request it.

use std::fmt::Write;

use athanor_chassis::observability::histogram::HistogramSnapshot;

/// Scale of values counted in nanoseconds and shown in seconds.
pub(super) const NANOSECOND_SCALE: f64 = 1e-9;
/// Scale of values that are shown unchanged.
pub(super) const UNIT_SCALE: f64 = 1.0;

/// Page of metric families, in the order of writing.
pub(super) struct MetricsPage {
    text: String,
    open_metrics: bool,
}

/// Formats labels as they appear between the braces.
pub(super) fn labels(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{name}=\"{value}\"");
    }
    text
}

/// Returns the single sample of a family without labels.
pub(super) fn unlabeled(value: f64) -> [(String, f64); 1] {
    [(String::new(), value)]
}

impl MetricsPage {
    pub(super) fn new(open_metrics: bool) -> Self {
        Self { text: String::with_capacity(32 << 10), open_metrics }
    }

    pub(super) fn finish(mut self) -> String {
        if self.open_metrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    /// Writes a counter; its name ends in `_total`.
    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, f64)>,
    ) {
        // OpenMetrics names the family without the suffix of its samples.
        let family = if self.open_metrics { name.trim_end_matches("_total") } else { name };
        self.family(family, help, "counter");
        samples.into_iter().for_each(|(labels, value)| self.sample(name, &labels, value));
    }

    /// Writes a gauge with its samples.
    pub(super) fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (String, f64)>) {
        self.family(name, help, "gauge");
        samples.into_iter().for_each(|(labels, value)| self.sample(name, &labels, value));
    }

    /// Writes a histogram. Bucket bounds and sums are multiplied by `scale`.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        scale: f64,
        samples: impl IntoIterator<Item = (String, HistogramSnapshot)>,
    ) {
        self.family(name, help, "histogram");
        for (labels, spread) in samples {
            let comma = if labels.is_empty() { "" } else { "," };
            let mut count = 0;
            for &(end, more) in &spread.buckets {
                count += more;
                // Rounds off the error of the multiplication: 0.0001, not 0.00009999999999999999.
                let end =
                    if end == u64::MAX { f64::INFINITY } else { (end as f64 * scale * 1e9).round() / 1e9 };
                let of = format!("{labels}{comma}le=\"{}\"", shown(end));
                self.sample(&format!("{name}_bucket"), &of, count as f64);
            }
            self.sample(&format!("{name}_sum"), &labels, spread.sum as f64 * scale);
            self.sample(&format!("{name}_count"), &labels, count as f64);
        }
    }

    fn family(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let value = shown(value);
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            _ => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }
}

fn shown(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Histogram;

    use super::*;

    fn page(open_metrics: bool) -> String {
        let histogram = Histogram::with_doubling_buckets(100_000, 2);
        [50_000, 100_001, 5_000_000].iter().for_each(|&value| histogram.record(value));
        let mut page = MetricsPage::new(open_metrics);
        page.counter("a_total", "Things", [(labels(&[("kind", "x\"y\\\n"), ("b", "")]), 2.0)]);
        page.gauge("b_bytes", "Size", unlabeled(20_799_488.0));
        page.histogram(
            "c_seconds",
            "Times",
            NANOSECOND_SCALE,
            [(labels(&[("d", "e")]), histogram.snapshot())],
        );
        page.finish()
    }

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let expected = "# HELP a_total Things\n# TYPE a_total counter\na_total{kind=\"x\\\"y\\\\\\n\",b=\"\"} 2\n\
            # HELP b_bytes Size\n# TYPE b_bytes gauge\nb_bytes 20799488\n\
            # HELP c_seconds Times\n# TYPE c_seconds histogram\nc_seconds_bucket{d=\"e\",le=\"0.0001\"} 1\n\
            c_seconds_bucket{d=\"e\",le=\"0.0002\"} 2\nc_seconds_bucket{d=\"e\",le=\"+Inf\"} 3\n\
            c_seconds_sum{d=\"e\"} 0.005150001\nc_seconds_count{d=\"e\"} 3\n";
        assert_eq!(page(false), expected);
        let open = expected.replace("# HELP a_total", "# HELP a").replace("# TYPE a_total", "# TYPE a");
        assert_eq!(page(true), format!("{open}# EOF\n"));
    }
}
