//! Normalization of series labels.
//!
//! Labels are first checked as sent and then changed, so that errors quote the client's own labels. Labels
//! that are computed from the profile are not accepted from clients.

use std::borrow::Cow;

use super::counters::DELTA_LABEL;
use crate::data_model::labels::Labels;
use crate::encoding::hash;
use crate::labeling::relabel::{MAX_LABEL_BYTES_DURING_RELABEL, MAX_LABELS_DURING_RELABEL};

/// Label with the name of the service.
pub const SERVICE_LABEL: &str = "service_name";
/// Service name of profiles that lack the label.
pub const UNKNOWN_SERVICE: &str = "unknown_service";

const METRIC_LABEL: &str = "__name__";
const REPLACED_METRIC_LABEL: &str = "__name_replaced__";
/// Label with the id of a program's run; each start has a new id.
const SESSION_LABEL: &str = "__session_id__";

/// Labels about the transport of a profile, not about its content.
const TRANSPORT_LABELS: [&str; 2] = [DELTA_LABEL, SESSION_LABEL];
/// Labels that queries return but that are never stored. They are computed from type and service.
const COMPUTED_LABELS: [&str; 6] =
    ["__period_type__", "__period_unit__", "__profile_type__", "__service_name__", "__type__", "__unit__"];
/// Sample labels that identify single requests. As series labels their cardinality would be unbounded.
const UNPROMOTED_LABELS: [&str; 3] = ["profile_id", "span_id", "trace_id"];

/// Limits on labels. Each error names the setting of its limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabelLimits {
    /// Setting `max_label_name_length`, in bytes.
    pub name_length: usize,
    /// Setting `max_label_value_length`, in bytes.
    pub value_length: usize,
    /// Setting `max_label_names_per_series`.
    pub names: usize,
    /// Setting `max_sessions_per_series`: number of values of the session label. With 0 the label is not
    /// stored.
    pub sessions: u32,
    /// Set unless `disable_label_sanitization` is on: names are converted to those that older readers accept.
    pub sanitise: bool,
}

impl LabelLimits {
    /// Returns the limits for labels before a tenant's relabeling rules: at least the maximum that relabeling
    /// accepts.
    pub fn widened_for_rules(self) -> Self {
        Self {
            name_length: self.name_length.max(MAX_LABEL_BYTES_DURING_RELABEL),
            value_length: self.value_length.max(MAX_LABEL_BYTES_DURING_RELABEL),
            names: self.names.max(MAX_LABELS_DURING_RELABEL),
            ..self
        }
    }
}

/// Labels of a series before and after normalization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalizedLabels {
    /// Labels as the client sent them.
    pub sent: Labels,
    /// Labels as they are stored.
    pub labels: Labels,
}

/// Reason why labels were rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeriesLabelsError {
    /// The series has no labels.
    #[error("there are no labels; send at least __name__ and service_name")]
    None,
    /// The metric name is missing.
    #[error("label __name__ is missing or empty; send the kind of profile, such as process_cpu")]
    NoMetric,
    /// The service name is present but empty.
    #[error("label service_name is empty; name the service, or leave the label out")]
    EmptyService,
    /// A label has an empty name.
    #[error("a label with the value {value:?} has an empty name")]
    EmptyName {
        /// Value of the label.
        value: String,
    },
    /// A name has characters that older readers do not accept, and sanitization is on.
    #[error(
        "label name {name:?} has characters other than letters, digits, _ and dots, or begins with a digit; rename the label, or set limits.disable_label_sanitization: true"
    )]
    OddName {
        /// Rejected name.
        name: String,
    },
    /// A name occurs twice.
    #[error("label {name:?} is duplicated; send each name once")]
    Twice {
        /// Duplicate name.
        name: String,
    },
    /// Two names with different values become equal by sanitization.
    #[error(
        "labels {one:?} and {other:?} have different values and get the same name, since dots become _ (limits.disable_label_sanitization is false); send one of them"
    )]
    SameName {
        /// First name.
        one: String,
        /// Second name.
        other: String,
    },
    /// A name is too long.
    #[error(
        "label name {name:?}… has {length} bytes, the limit is {limit} (limits.max_label_name_length): send a shorter one"
    )]
    LongName {
        /// Beginning of the name.
        name: String,
        /// Length of the name in bytes.
        length: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// A value is too long.
    #[error(
        "value of label {name:?} has {length} bytes, the limit is {limit} (limits.max_label_value_length): send a shorter one"
    )]
    LongValue {
        /// Name of the label.
        name: String,
        /// Length of the value in bytes.
        length: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// The series has too many labels.
    #[error(
        "series of {metric:?} has {count} labels, the limit is {limit} (limits.max_label_names_per_series): send fewer; the first label beyond the limit, by name, is {first:?}"
    )]
    TooMany {
        /// Metric name of the series.
        metric: String,
        /// Number of labels.
        count: usize,
        /// First label beyond the limit, in the order of names.
        first: String,
        /// Limit on the number of labels.
        limit: usize,
    },
}

impl SeriesLabelsError {
    /// Returns the violated rule as a metric label, with the values that Pyroscope uses.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::None => "missing_labels",
            Self::NoMetric | Self::EmptyService | Self::EmptyName { .. } | Self::OddName { .. } => {
                "invalid_labels"
            }
            Self::Twice { .. } | Self::SameName { .. } => "duplicate_label_names",
            Self::LongName { .. } => "label_name_too_long",
            Self::LongValue { .. } => "label_value_too_long",
            Self::TooMany { .. } => "max_label_names_per_series",
        }
    }
}

/// Normalizes labels as sent by a client, in any order.
pub fn normalize_labels(
    mut sent: Vec<(String, String)>,
    limits: &LabelLimits,
) -> Result<NormalizedLabels, SeriesLabelsError> {
    if sent.is_empty() {
        return Err(SeriesLabelsError::None);
    }
    sent.sort_unstable();
    if let Some(pair) = sent.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(SeriesLabelsError::Twice { name: beginning(&pair[0].0) });
    }
    for (name, value) in &sent {
        check(name, value, limits)?;
    }
    if sent.iter().any(|(name, value)| name == SERVICE_LABEL && value.is_empty()) {
        return Err(SeriesLabelsError::EmptyService);
    }
    let sent = Labels::new(sent);
    let mut labels = Labels::default();
    for (name, value) in sent.iter() {
        set_stored(&mut labels, name, value, &sent, limits)?;
    }
    TRANSPORT_LABELS.iter().chain(&COMPUTED_LABELS).for_each(|name| labels.set(name, ""));
    if let Some(session) = sent.get(SESSION_LABEL) {
        labels.set(SESSION_LABEL, &bounded_session(session, limits.sessions));
    }
    if sent.get(METRIC_LABEL).is_none() {
        return Err(SeriesLabelsError::NoMetric);
    }
    if labels.get(SERVICE_LABEL).is_none() {
        labels.set(SERVICE_LABEL, UNKNOWN_SERVICE);
    }
    check_count(&labels, limits)?;
    Ok(NormalizedLabels { sent, labels })
}

/// Returns whether a label from a client or a rule is not stored.
fn is_transport_label(name: &str) -> bool {
    TRANSPORT_LABELS.contains(&name) || COMPUTED_LABELS.contains(&name)
}

/// Returns the stored name of a label.
fn stored_name<'n>(name: &'n str, limits: &LabelLimits) -> Result<Cow<'n, str>, SeriesLabelsError> {
    if !limits.sanitise {
        return Ok(Cow::Borrowed(name));
    }
    let is_known = |at: usize, letter: char| {
        letter.is_ascii_alphabetic() || matches!(letter, '_' | '.') || at > 0 && letter.is_ascii_digit()
    };
    if !name.char_indices().all(|(at, letter)| is_known(at, letter)) {
        return Err(SeriesLabelsError::OddName { name: beginning(name) });
    }
    Ok(if name.contains('.') { Cow::Owned(name.replace('.', "_")) } else { Cow::Borrowed(name) })
}

/// Sets a label by its stored name. `all` contains all labels, for the error about equal names.
fn set_stored(
    labels: &mut Labels,
    name: &str,
    value: &str,
    all: &Labels,
    limits: &LabelLimits,
) -> Result<(), SeriesLabelsError> {
    let stored = stored_name(name, limits)?;
    if labels.get(&stored).is_some_and(|other| other != value) {
        let is_other = |(other, _): &(&str, &str)| stored_name(other, limits).as_ref() == Ok(&stored);
        let one = all.iter().find(is_other).map(|(other, _)| beginning(other)).unwrap_or_default();
        return Err(SeriesLabelsError::SameName { one, other: beginning(name) });
    }
    labels.set(&stored, value);
    Ok(())
}

/// Maps a session id to one of `sessions` values; empty if `sessions` is 0. SDKs send eight bytes, lowest
/// first.
fn bounded_session(session: &str, sessions: u32) -> String {
    if sessions == 0 {
        return String::new();
    }
    let bytes = (session.len() == 16).then(|| u64::from_str_radix(session, 16).ok()).flatten();
    let number = bytes.map_or_else(|| hash::hash_bytes(session.as_bytes()) as u64, u64::swap_bytes);
    format!("{:016x}", (number % u64::from(sessions)).swap_bytes())
}

/// Normalizes labels that relabeling rules returned. Removes computed labels and checks the limits for the
/// rest.
pub fn normalize_relabeled(mut made: Labels, limits: &LabelLimits) -> Result<Labels, SeriesLabelsError> {
    TRANSPORT_LABELS[..1].iter().chain(&COMPUTED_LABELS).for_each(|name| made.set(name, ""));
    for (name, value) in made.iter() {
        check(name, value, limits)?;
    }
    let mut labels = Labels::default();
    for (name, value) in made.iter() {
        set_stored(&mut labels, name, value, &made, limits)?;
    }
    // Sanitization may have renamed a label to a computed one.
    TRANSPORT_LABELS[..1].iter().chain(&COMPUTED_LABELS).for_each(|name| labels.set(name, ""));
    if labels.get(METRIC_LABEL).is_none() {
        return Err(SeriesLabelsError::NoMetric);
    }
    if labels.get(SERVICE_LABEL).is_none() {
        return Err(SeriesLabelsError::EmptyService);
    }
    check_count(&labels, limits)?;
    Ok(labels)
}

/// Returns whether a text label of a sample becomes a label of its series.
pub fn is_promoted(name: &str) -> bool {
    !UNPROMOTED_LABELS.contains(&name) && !is_transport_label(name)
}

/// Returns the labels of the series that a sample's text labels split off. If both have a name, the value of
/// the series wins.
pub fn promote<'a>(
    series: &Labels,
    sample: impl Iterator<Item = (&'a str, &'a str)>,
    limits: &LabelLimits,
) -> Result<Labels, SeriesLabelsError> {
    let mut labels = series.clone();
    for (name, value) in sample.filter(|(name, _)| is_promoted(name)) {
        check(name, value, limits)?;
        let stored = stored_name(name, limits)?;
        if series.get(&stored).is_none() {
            labels.set(&stored, value);
        }
    }
    check_count(&labels, limits)?;
    Ok(labels)
}

fn check(name: &str, value: &str, limits: &LabelLimits) -> Result<(), SeriesLabelsError> {
    if name.is_empty() {
        return Err(SeriesLabelsError::EmptyName { value: beginning(value) });
    }
    if name.len() > limits.name_length {
        let length = name.len();
        let limit = limits.name_length;
        return Err(SeriesLabelsError::LongName { name: beginning(name), length, limit });
    }
    if value.len() > limits.value_length {
        let length = value.len();
        let limit = limits.value_length;
        return Err(SeriesLabelsError::LongValue { name: beginning(name), length, limit });
    }
    Ok(())
}

/// Checks the number of labels. Labels that normalization itself adds do not count.
fn check_count(labels: &Labels, limits: &LabelLimits) -> Result<(), SeriesLabelsError> {
    let is_ours = |&(name, value): &(&str, &str)| {
        name == REPLACED_METRIC_LABEL || name == SERVICE_LABEL && value == UNKNOWN_SERVICE
    };
    let mut beyond = labels.iter().filter(|label| !is_ours(label)).skip(limits.names);
    let Some((first, _)) = beyond.next() else { return Ok(()) };
    let metric = beginning(labels.get(METRIC_LABEL).unwrap_or_default());
    let count = limits.names + 1 + beyond.count();
    Err(SeriesLabelsError::TooMany { metric, count, first: beginning(first), limit: limits.names })
}

/// Returns the first 100 characters of a text, for errors.
fn beginning(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LabelLimits =
        LabelLimits { name_length: 12, value_length: 12, names: 4, sessions: 0, sanitise: false };

    fn pairs(labels: &[(&str, &str)]) -> Vec<(String, String)> {
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn stored(labels: &[(&str, &str)]) -> Result<String, String> {
        let limits = LabelLimits { name_length: 20, value_length: 30, ..LIMITS };
        normalize_labels(pairs(labels), &limits)
            .map(|series| series.labels.to_string())
            .map_err(|e| e.to_string())
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
            (&[][..], SeriesLabelsError::None),
            (&[("service_name", "s")], SeriesLabelsError::NoMetric),
            (&[("__name__", "")], SeriesLabelsError::NoMetric),
            (&[("__name__", "cpu"), ("", "v")], SeriesLabelsError::EmptyName { value: "v".into() }),
            (&[("a", "1"), ("__name__", "cpu"), ("a", "")], SeriesLabelsError::Twice { name: "a".into() }),
            (
                &[("__name__", long.as_str())],
                SeriesLabelsError::LongValue { name: "__name__".into(), length: 13, limit: 12 },
            ),
            (
                &[("__name__", "cpu"), (long.as_str(), "")],
                SeriesLabelsError::LongName { name: long.clone(), length: 13, limit: 12 },
            ),
            (
                &[("__name__", "cpu"), ("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")],
                SeriesLabelsError::TooMany { metric: "cpu".into(), count: 5, first: "d".into(), limit: 4 },
            ),
        ] {
            assert_eq!(normalize_labels(pairs(sent), &LIMITS).unwrap_err(), expected);
        }
        assert_eq!(
            stored(&[("__name__", "cpu"), ("service_name", "")]).unwrap_err(),
            "label service_name is empty; name the service, or leave the label out"
        );
    }

    #[test]
    fn what_the_rules_add_does_not_count() {
        let sent = [("__name__", "x"), ("a", "1"), ("b", "1"), ("c", "1")];
        let added = stored(&sent).unwrap();
        assert!(added.contains("unknown_service"), "{added}");
    }

    #[test]
    fn dots_become_what_older_readers_know_where_that_is_asked_for() {
        let limits = LabelLimits { name_length: 20, value_length: 30, sanitise: true, ..LIMITS };
        let stored = |labels: &[(&str, &str)]| {
            normalize_labels(pairs(labels), &limits).map(|series| (series.sent, series.labels.to_string()))
        };
        let dotted = [("__name__", "cpu"), ("k8s.pod", "p"), ("service.name", "s")];
        let (sent, labels) = stored(&dotted).unwrap();
        assert_eq!(sent, Labels::new(pairs(&dotted)));
        assert_eq!(labels, "{__name__=\"cpu\", k8s_pod=\"p\", service_name=\"s\"}");
        let (one, other) = ("k8s.pod".to_owned(), "k8s_pod".to_owned());
        let equal = [("__name__", "cpu"), ("k8s.pod", "p"), ("k8s_pod", "p"), ("service_name", "s")];
        assert_eq!(stored(&equal).unwrap().1, "{__name__=\"cpu\", k8s_pod=\"p\", service_name=\"s\"}");
        let twice = [("__name__", "cpu"), ("k8s.pod", "p"), ("k8s_pod", "q")];
        assert_eq!(stored(&twice), Err(SeriesLabelsError::SameName { one, other }));
        for odd in ["größe", "a b", "1a", "a-b"] {
            let error = stored(&[("__name__", "cpu"), (odd, "x")]).unwrap_err();
            assert_eq!(error, SeriesLabelsError::OddName { name: odd.into() });
            let own = Labels::new(pairs(&[("__name__", "cpu")]));
            assert_eq!(promote(&own, [(odd, "x")].into_iter(), &limits), Err(error));
        }
        let own = Labels::new(pairs(&[("__name__", "cpu"), ("a_b", "series")]));
        let promoted = promote(&own, [("a.b", "sample"), ("c.d", "1")].into_iter(), &limits).unwrap();
        assert_eq!(promoted.to_string(), "{__name__=\"cpu\", a_b=\"series\", c_d=\"1\"}");
    }

    #[test]
    fn of_sessions_there_are_so_many_and_no_more() {
        let stored = |session: &str, sessions| {
            let sent = pairs(&[("__name__", "cpu"), (SESSION_LABEL, session)]);
            let limits = LabelLimits { value_length: 30, name_length: 20, sessions, ..LIMITS };
            normalize_labels(sent, &limits).unwrap().labels.get(SESSION_LABEL).map(str::to_owned)
        };
        assert_eq!(stored("1700000000000000", 0), None);
        assert_eq!(stored("1700000000000000", 10).as_deref(), Some("0300000000000000"));
        assert_eq!(stored("0300000000000000", 10).as_deref(), Some("0300000000000000"));
        let values: std::collections::BTreeSet<_> =
            (0..1000).map(|run| stored(&format!("run {run}"), 4)).collect();
        assert_eq!(values.len(), 4);
    }

    #[test]
    fn what_rules_make_keeps_the_limits() {
        let made = |labels: &[(&str, &str)]| {
            normalize_relabeled(Labels::new(pairs(labels)), &LIMITS).map(|labels| labels.to_string())
        };
        let stored =
            made(&[("__name__", "cpu"), ("service_name", "s"), ("__type__", "x"), ("__delta__", "x")]);
        assert_eq!(stored.as_deref(), Ok("{__name__=\"cpu\", service_name=\"s\"}"));
        assert_eq!(made(&[("service_name", "s")]), Err(SeriesLabelsError::NoMetric));
        assert_eq!(made(&[("__name__", "cpu")]), Err(SeriesLabelsError::EmptyService));
        let sanitised = |labels: &[(&str, &str)]| {
            let own = [("__name__", "cpu"), ("service_name", "s")];
            let labels = Labels::new(pairs(&[&own, labels].concat()));
            normalize_relabeled(labels, &LabelLimits { sanitise: true, ..LIMITS })
                .map(|labels| labels.to_string())
        };
        let dotted = sanitised(&[("k8s.pod", "p"), ("..type__", "x")]);
        assert_eq!(dotted.as_deref(), Ok("{__name__=\"cpu\", k8s_pod=\"p\", service_name=\"s\"}"));
        let (one, other) = ("k8s.pod".to_owned(), "k8s_pod".to_owned());
        let twice = sanitised(&[("k8s.pod", "p"), ("k8s_pod", "q")]);
        assert_eq!(twice, Err(SeriesLabelsError::SameName { one, other }));
        assert_eq!(sanitised(&[("a-b", "p")]), Err(SeriesLabelsError::OddName { name: "a-b".into() }));
        let name = "x".repeat(13);
        assert!(matches!(
            made(&[("__name__", "cpu"), ("service_name", "s"), (&name, "1")]),
            Err(SeriesLabelsError::LongName { .. })
        ));
    }

    #[test]
    fn labels_of_samples_become_labels_of_the_series() {
        let own = Labels::new(pairs(&[("__name__", "cpu"), ("service_name", "s"), ("pod", "series")]));
        let split = |labels: &[(&'static str, &'static str)]| promote(&own, labels.iter().copied(), &LIMITS);
        let promoted = split(&[("pod", "sample"), ("thread", "1"), ("span_id", "ab"), ("__type__", "x")]);
        let mut expected = own.clone();
        expected.set("thread", "1");
        assert_eq!(promoted, Ok(expected));
        let (metric, first) = ("cpu".to_owned(), "service_name".to_owned());
        let many = SeriesLabelsError::TooMany { metric, count: 5, first, limit: 4 };
        assert_eq!(split(&[("a", "1"), ("b", "1")]), Err(many));
        assert_eq!(split(&[("", "1")]), Err(SeriesLabelsError::EmptyName { value: "1".into() }));
    }
}
