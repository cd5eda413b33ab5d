//! The rules for the labels of a series.
//!
//! What the client sends is checked first and changed afterwards, so that an error shows the client its own
//! words. Labels that are computed from the profile are not taken from a client.

use crate::labels::Labels;

/// The label that says whose profile it is.
pub const SERVICE: &str = "service_name";
/// The service of profiles that name none.
pub const UNKNOWN_SERVICE: &str = "unknown_service";

const METRIC: &str = "__name__";
const REPLACED: &str = "__name_replaced__";
/// A client that subtracts by itself names the difference so; readers know it by the plain name.
const DELTA_PREFIX: &str = "godeltaprof_";

/// Labels that say how a profile was sent and not what it is of.
const NOT_STORED: [&str; 2] = ["__delta__", "__session_id__"];
/// Labels that readers see but that nobody stores: they are computed from the type and the service.
const COMPUTED: [&str; 6] =
    ["__period_type__", "__period_unit__", "__profile_type__", "__service_name__", "__type__", "__unit__"];
/// Labels of samples that name single requests: as series they would be without number.
const NEVER_PROMOTED: [&str; 3] = ["profile_id", "span_id", "trace_id"];

/// Bounds on labels. Each is named in the error that it causes, as users configure it.
#[derive(Clone, Copy, Debug)]
pub struct LabelLimits {
    /// `max_label_name_length`, in bytes.
    pub name_length: usize,
    /// `max_label_value_length`, in bytes.
    pub value_length: usize,
    /// `max_label_names_per_series`.
    pub names: usize,
}

/// The labels of a series before and after the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// As the client sent them.
    pub sent: Labels,
    /// As they are stored.
    pub labels: Labels,
}

/// Why labels were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelsRefused {
    /// No label at all.
    #[error("there are no labels; send at least __name__ and service_name")]
    None,
    /// No metric name.
    #[error("label __name__ is missing or empty; send the kind of profile, such as process_cpu")]
    NoMetric,
    /// A service name that is there and empty.
    #[error("label service_name is empty; name the service, or leave the label out")]
    EmptyService,
    /// A label without a name.
    #[error("a label with the value {value:?} has an empty name")]
    EmptyName {
        /// Its value.
        value: String,
    },
    /// One name twice.
    #[error("label {name:?} is there twice; send each name once")]
    Twice {
        /// The name.
        name: String,
    },
    /// A long name.
    #[error(
        "label name {name:?}… has {length} bytes, the limit is {limit} (limits.max_label_name_length): send a shorter one"
    )]
    LongName {
        /// How it begins.
        name: String,
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// A long value.
    #[error(
        "value of label {name:?} has {length} bytes, the limit is {limit} (limits.max_label_value_length): send a shorter one"
    )]
    LongValue {
        /// The label.
        name: String,
        /// The value's length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// Many labels.
    #[error(
        "series has {count} labels, the limit is {limit} (limits.max_label_names_per_series): send fewer"
    )]
    TooMany {
        /// How many.
        count: usize,
        /// The limit.
        limit: usize,
    },
}

impl LabelsRefused {
    /// The rule in a word, as metrics of servers of this wire name it.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::None => "missing_labels",
            Self::NoMetric | Self::EmptyService | Self::EmptyName { .. } => "invalid_labels",
            Self::Twice { .. } => "duplicate_label_names",
            Self::LongName { .. } => "label_name_too_long",
            Self::LongValue { .. } => "label_value_too_long",
            Self::TooMany { .. } => "max_label_names_per_series",
        }
    }
}

/// Applies the rules to labels as a client sent them, in any order.
pub fn series(mut sent: Vec<(String, String)>, limits: &LabelLimits) -> Result<Series, LabelsRefused> {
    if sent.is_empty() {
        return Err(LabelsRefused::None);
    }
    sent.sort_unstable();
    if let Some(pair) = sent.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(LabelsRefused::Twice { name: beginning(&pair[0].0) });
    }
    for (name, value) in &sent {
        check(name, value, limits)?;
    }
    if sent.iter().any(|(name, value)| name == SERVICE && value.is_empty()) {
        return Err(LabelsRefused::EmptyService);
    }
    let sent = Labels::new(sent);
    let stored = sent.iter().filter(|(name, _)| !NOT_STORED.contains(name) && !COMPUTED.contains(name));
    let mut labels = Labels::new(stored.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let Some(metric) = sent.get(METRIC) else { return Err(LabelsRefused::NoMetric) };
    if let Some(plain) = metric.strip_prefix(DELTA_PREFIX).filter(|plain| !plain.is_empty()) {
        labels.set(METRIC, plain);
        labels.set(REPLACED, metric);
    }
    if labels.get(SERVICE).is_none() {
        labels.set(SERVICE, UNKNOWN_SERVICE);
    }
    check_count(&labels, limits)?;
    Ok(Series { sent, labels })
}

/// Whether a text label of a sample becomes a label of its series.
pub fn is_promoted(name: &str) -> bool {
    !NEVER_PROMOTED.contains(&name) && !NOT_STORED.contains(&name) && !COMPUTED.contains(&name)
}

/// The labels of the series that a sample's text labels split off. Where both have a name, the series wins.
pub fn promote<'a>(
    series: &Labels,
    sample: impl Iterator<Item = (&'a str, &'a str)>,
    limits: &LabelLimits,
) -> Result<Labels, LabelsRefused> {
    let mut labels = series.clone();
    for (name, value) in sample.filter(|(name, _)| is_promoted(name)) {
        check(name, value, limits)?;
        if series.get(name).is_none() {
            labels.set(name, value);
        }
    }
    check_count(&labels, limits)?;
    Ok(labels)
}

fn check(name: &str, value: &str, limits: &LabelLimits) -> Result<(), LabelsRefused> {
    if name.is_empty() {
        return Err(LabelsRefused::EmptyName { value: beginning(value) });
    }
    if name.len() > limits.name_length {
        let (length, limit) = (name.len(), limits.name_length);
        return Err(LabelsRefused::LongName { name: beginning(name), length, limit });
    }
    if value.len() > limits.value_length {
        let (length, limit) = (value.len(), limits.value_length);
        return Err(LabelsRefused::LongValue { name: beginning(name), length, limit });
    }
    Ok(())
}

/// What the rules themselves added does not count against the client.
fn check_count(labels: &Labels, limits: &LabelLimits) -> Result<(), LabelsRefused> {
    let ours = usize::from(labels.get(SERVICE) == Some(UNKNOWN_SERVICE))
        + usize::from(labels.get(REPLACED).is_some());
    let count = labels.len() - ours;
    if count > limits.names {
        return Err(LabelsRefused::TooMany { count, limit: limits.names });
    }
    Ok(())
}

/// Enough of a text to know it again.
fn beginning(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LabelLimits = LabelLimits { name_length: 12, value_length: 12, names: 4 };

    fn pairs(labels: &[(&str, &str)]) -> Vec<(String, String)> {
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn stored(labels: &[(&str, &str)]) -> Result<String, String> {
        let limits = LabelLimits { name_length: 20, value_length: 30, names: 4 };
        series(pairs(labels), &limits).map(|series| series.labels.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn labels_are_sorted_and_completed() {
        for (sent, expected) in [
            (
                &[("zone", "z"), ("__name__", "cpu"), ("app", "a")][..],
                "{__name__=\"cpu\", app=\"a\", service_name=\"unknown_service\", zone=\"z\"}",
            ),
            (
                &[("__name__", "cpu"), ("service_name", "s"), ("pod", "")],
                "{__name__=\"cpu\", service_name=\"s\"}",
            ),
            (
                &[
                    ("__delta__", "false"),
                    ("__session_id__", "1"),
                    ("__type__", "x"),
                    ("__name__", "cpu"),
                    ("__own__", "1"),
                ],
                "{__name__=\"cpu\", __own__=\"1\", service_name=\"unknown_service\"}",
            ),
            (
                &[("__name__", "godeltaprof_memory"), ("service_name", "s")],
                "{__name__=\"memory\", __name_replaced__=\"godeltaprof_memory\", service_name=\"s\"}",
            ),
            (
                &[("__name__", "godeltaprof_"), ("service_name", "s")],
                "{__name__=\"godeltaprof_\", service_name=\"s\"}",
            ),
            (
                &[("__name__", "wall"), ("__type__", "cpu"), ("größe", "x"), ("a b", "y")],
                "{__name__=\"wall\", a b=\"y\", größe=\"x\", service_name=\"unknown_service\"}",
            ),
        ] {
            assert_eq!(stored(sent).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_is_refused_says_why() {
        let long = "x".repeat(13);
        for (sent, expected) in [
            (&[][..], LabelsRefused::None),
            (&[("service_name", "s")], LabelsRefused::NoMetric),
            (&[("__name__", "")], LabelsRefused::NoMetric),
            (&[("__name__", "cpu"), ("", "v")], LabelsRefused::EmptyName { value: "v".into() }),
            (&[("a", "1"), ("__name__", "cpu"), ("a", "")], LabelsRefused::Twice { name: "a".into() }),
            (
                &[("__name__", long.as_str())],
                LabelsRefused::LongValue { name: "__name__".into(), length: 13, limit: 12 },
            ),
            (
                &[("__name__", "cpu"), (long.as_str(), "")],
                LabelsRefused::LongName { name: long.clone(), length: 13, limit: 12 },
            ),
            (
                &[("__name__", "cpu"), ("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")],
                LabelsRefused::TooMany { count: 5, limit: 4 },
            ),
        ] {
            assert_eq!(series(pairs(sent), &LIMITS).unwrap_err(), expected);
        }
        assert_eq!(
            stored(&[("__name__", "cpu"), ("service_name", "")]).unwrap_err(),
            "label service_name is empty; name the service, or leave the label out"
        );
    }

    #[test]
    fn what_the_rules_add_does_not_count() {
        let sent = [("__name__", "godeltaprof_x"), ("a", "1"), ("b", "1"), ("c", "1")];
        let added = stored(&sent).unwrap();
        assert!(added.contains("unknown_service") && added.contains("__name_replaced__"), "{added}");
    }

    #[test]
    fn labels_of_samples_become_labels_of_the_series() {
        let own = Labels::new(pairs(&[("__name__", "cpu"), ("service_name", "s"), ("pod", "series")]));
        let split = |labels: &[(&'static str, &'static str)]| promote(&own, labels.iter().copied(), &LIMITS);
        let promoted = split(&[("pod", "sample"), ("thread", "1"), ("span_id", "ab"), ("__type__", "x")]);
        let mut expected = own.clone();
        expected.set("thread", "1");
        assert_eq!(promoted, Ok(expected));
        assert_eq!(split(&[("a", "1"), ("b", "1")]), Err(LabelsRefused::TooMany { count: 5, limit: 4 }));
        assert_eq!(split(&[("", "1")]), Err(LabelsRefused::EmptyName { value: "1".into() }));
    }
}
