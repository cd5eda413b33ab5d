//! Page of metrics for Prometheus, in both of its text formats, and their description for readers.

use std::fmt::{self, Write};

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

use super::metric_family::MetricDescription;

/// Media type that clients of OpenMetrics accept.
const OPEN_METRICS_TYPE: &str = "application/openmetrics-text";
/// Usual size of a page.
const PAGE_BYTES: usize = 32 << 10;

/// Text format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Text format of Prometheus, for clients that do not request OpenMetrics.
    PrometheusText,
}

impl MetricsFormat {
    /// Returns the format for the values of the header `Accept`.
    pub fn from_accept<'a>(mut values: impl Iterator<Item = &'a str>) -> Self {
        match values.any(|value| value.contains(OPEN_METRICS_TYPE)) {
            true => Self::OpenMetrics,
            false => Self::PrometheusText,
        }
    }

    /// Value of the header `Content-Type` for the format.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::PrometheusText => prometheus_text::CONTENT_TYPE,
        }
    }

    /// Returns the page with the values of all metrics of some registries.
    ///
    /// # Errors
    ///
    /// A collector fails to encode a value.
    pub fn encode(self, registries: &[&Registry]) -> Result<String, fmt::Error> {
        let mut page = String::with_capacity(PAGE_BYTES);
        for registry in registries {
            match self {
                Self::OpenMetrics => text::encode_registry(&mut page, registry)?,
                Self::PrometheusText => prometheus_text::encode(&mut page, registry)?,
            }
        }
        if self == Self::OpenMetrics {
            text::encode_eof(&mut page)?;
        }
        Ok(page)
    }
}

/// Returns a Markdown table of the metrics of each component, for a page of the reference.
pub fn describe_as_markdown(components: &[(&str, Vec<MetricDescription>)]) -> String {
    let mut tables = String::new();
    for (component, metrics) in components {
        // Writing to a string does not fail.
        let _ =
            write!(tables, "\n## {component}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
        for MetricDescription { name, help, kind, labels } in metrics {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = labels.join(", ");
            let _ = writeln!(tables, "| `{name}` | {} | {labels} | {help} |", kind.as_str());
        }
    }
    tables
}
