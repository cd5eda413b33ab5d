//! Labels of a target before and after relabeling, as Prometheus sets them.

use std::time::Duration;

use athanor_profile::Labels;

use crate::config::{DurationError, JobConfig, format_prometheus_duration, parse_prometheus_duration};

pub(super) const ADDRESS_LABEL: &str = "__address__";
pub(super) const SCHEME_LABEL: &str = "__scheme__";
/// Prefix of labels that name parameters of the request.
pub(super) const PARAM_LABEL_PREFIX: &str = "__param_";
const INTERVAL_LABEL: &str = "__scrape_interval__";
const TIMEOUT_LABEL: &str = "__scrape_timeout__";
const METRICS_PATH_LABEL: &str = "__metrics_path__";
const INSTANCE_LABEL: &str = "instance";
/// Prefix of labels that only discovery sets.
pub(super) const META_LABEL_PREFIX: &str = "__meta_";
/// Prefix of labels that are not part of a profile.
const INTERNAL_LABEL_PREFIX: &str = "__";

/// Settings of a target that its labels contain after relabeling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetLabels {
    /// `http` or `https`.
    pub(super) scheme: String,
    /// Host, with or without a port.
    pub(super) address: String,
    /// Interval between two scrapes of one kind.
    pub(super) interval: Duration,
    /// Timeout of a scrape.
    pub(super) timeout: Duration,
    /// Labels of profiles, without `service_name` if no rule sets it.
    pub(super) labels: Labels,
}

/// Target whose labels are invalid after relabeling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTargetError {
    /// The address is empty.
    #[error("no address: the label __address__ is empty after relabeling")]
    NoAddress,
    /// The address is a URL or a path.
    #[error("{address:?} is not a valid hostname; write host:port into the label __address__")]
    Address {
        /// Value of the label.
        address: String,
    },
    /// The scheme is not one of HTTP.
    #[error("the label __scheme__ is {scheme:?}; use http or https")]
    Scheme {
        /// Value of the label.
        scheme: String,
    },
    /// A label has no duration.
    #[error("the label {label} is invalid: {error}")]
    Duration {
        /// Name of the label.
        label: &'static str,
        /// Reason.
        error: DurationError,
    },
    /// A label has a duration of zero.
    #[error("the label {label} is 0; set a duration above 0")]
    ZeroDuration {
        /// Name of the label.
        label: &'static str,
    },
    /// The timeout exceeds the interval.
    #[error(
        "the label __scrape_timeout__ is {timeout:?}, __scrape_interval__ is {interval:?}; set a timeout up to the interval"
    )]
    Timeout {
        /// Value of the label with the timeout.
        timeout: String,
        /// Value of the label with the interval.
        interval: String,
    },
}

/// Returns the labels before relabeling: those of discovery, and those of the job where they are absent.
pub(super) fn discovered_labels(job: &JobConfig, target: &Labels) -> Labels {
    let mut labels = target.clone();
    let mut set_absent = |name: &str, value: &str| {
        if labels.get(name).is_none() {
            labels.set(name, value);
        }
    };
    set_absent("job", &job.job.name);
    set_absent(INTERVAL_LABEL, &format_prometheus_duration(job.job.interval));
    set_absent(TIMEOUT_LABEL, &format_prometheus_duration(job.job.timeout));
    set_absent(METRICS_PATH_LABEL, &job.metrics_path);
    set_absent(SCHEME_LABEL, &job.scheme);
    for (name, values) in &job.params {
        if let Some(value) = values.first() {
            set_absent(&format!("{PARAM_LABEL_PREFIX}{name}"), value);
        }
    }
    labels
}

/// Checks the labels after relabeling and takes them apart.
pub(super) fn target_labels(relabeled: &Labels) -> Result<TargetLabels, InvalidTargetError> {
    let address = relabeled.get(ADDRESS_LABEL).ok_or(InvalidTargetError::NoAddress)?.to_owned();
    if address.contains('/') {
        return Err(InvalidTargetError::Address { address });
    }
    let interval = duration_of(relabeled, INTERVAL_LABEL)?;
    let timeout = duration_of(relabeled, TIMEOUT_LABEL)?;
    if timeout > interval {
        let text = |name| relabeled.get(name).unwrap_or_default().to_owned();
        return Err(InvalidTargetError::Timeout {
            timeout: text(TIMEOUT_LABEL),
            interval: text(INTERVAL_LABEL),
        });
    }
    let scheme = relabeled.get(SCHEME_LABEL).unwrap_or("http").to_ascii_lowercase();
    if !matches!(scheme.as_str(), "http" | "https") {
        return Err(InvalidTargetError::Scheme { scheme });
    }
    let public = relabeled.iter().filter(|(name, _)| !name.starts_with(INTERNAL_LABEL_PREFIX));
    let mut labels = Labels::new(public.map(|(name, value)| (name.to_owned(), value.to_owned())));
    if labels.get(INSTANCE_LABEL).is_none() {
        labels.set(INSTANCE_LABEL, &address);
    }
    Ok(TargetLabels { scheme, address, interval, timeout, labels })
}

fn duration_of(labels: &Labels, label: &'static str) -> Result<Duration, InvalidTargetError> {
    let text = labels.get(label).unwrap_or_default();
    let duration =
        parse_prometheus_duration(text).map_err(|error| InvalidTargetError::Duration { label, error })?;
    if duration.is_zero() { Err(InvalidTargetError::ZeroDuration { label }) } else { Ok(duration) }
}
