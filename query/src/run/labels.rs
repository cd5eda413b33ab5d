//! Labels by which series are selected, grouped and displayed.

use std::borrow::Cow;

use athanor_profile::store_interface::series::METRIC_NAME_LABEL;
use athanor_profile::{Labels, ProfileSeries};

/// Label with the whole profile type of a series.
const PROFILE_TYPE_LABEL: &str = "__profile_type__";
/// Number of further labels that describe a series.
const DESCRIBED_LABELS: usize = 6;

/// Returns the labels by which a series is selected and displayed: its own, and those that describe its
/// profile type.
pub fn series_labels(series: &ProfileSeries) -> Labels {
    let mut labels = series.labels().clone();
    labels.set(PROFILE_TYPE_LABEL, &series.profile_type().to_string());
    described_labels(series).into_iter().for_each(|(name, value)| labels.set(name, value));
    labels
}

/// Returns one label of [`series_labels`], without building the others.
pub(crate) fn series_label<'a>(series: &'a ProfileSeries, name: &str) -> Option<Cow<'a, str>> {
    if name == PROFILE_TYPE_LABEL {
        return Some(Cow::Owned(series.profile_type().to_string()));
    }
    let described = described_labels(series).into_iter().find(|(described, _)| *described == name);
    let value = match described {
        Some((_, value)) => Some(value).filter(|value| !value.is_empty()),
        None => series.labels().get(name),
    };
    value.map(Cow::Borrowed)
}

/// Returns the names of [`series_labels`], in no order.
pub(crate) fn series_label_names(series: &ProfileSeries) -> impl Iterator<Item = &str> {
    let described = described_labels(series);
    let own = series.labels().iter().map(|(name, _)| name);
    let own = own.filter(move |name| {
        *name != PROFILE_TYPE_LABEL && described.iter().all(|(described, _)| described != name)
    });
    let described = described.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name);
    own.chain([PROFILE_TYPE_LABEL]).chain(described)
}

/// Returns the labels that describe a series beside its whole profile type. They take the place of its own labels of
/// these names, and an empty value is none.
fn described_labels(series: &ProfileSeries) -> [(&'static str, &str); DESCRIBED_LABELS] {
    [
        (METRIC_NAME_LABEL, series.labels().get(METRIC_NAME_LABEL).unwrap_or_default()),
        ("__type__", &series.value_type.kind),
        ("__unit__", &series.value_type.unit),
        ("__period_type__", &series.period_type.kind),
        ("__period_unit__", &series.period_type.unit),
        ("__service_name__", series.service()),
    ]
}

/// Returns the labels of these names, or all labels if no name is given.
pub(crate) fn project_labels(labels: &Labels, names: &[String]) -> Labels {
    if names.is_empty() {
        return labels.clone();
    }
    let found = names.iter().filter_map(|name| labels.get(name).map(|value| (name, value)));
    Labels::new(found.map(|(name, value)| (name.clone(), value.to_owned())))
}

/// Returns the labels by which series are grouped. Without any name there is one group of everything.
pub(crate) fn group_labels(labels: &Labels, names: &[String]) -> Labels {
    if names.is_empty() { Labels::default() } else { project_labels(labels, names) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use athanor_profile::ValueType;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn one_label_and_all_names_are_those_of_the_series(
            own in prop::collection::vec(
                (
                    "pod|service_name|__name__|__service_name__|__type__|__unit__|__profile_type__|__other__",
                    "[ab]{0,2}",
                ),
                0..6,
            ),
            kind in "(cpu)?", unit in "(ns)?", period in "(cpu)?",
        ) {
            let value_type = ValueType::new(&kind, &unit);
            let series = ProfileSeries::new(Labels::new(own.clone()), value_type, ValueType::new(&period, ""));
            let labels = series_labels(&series);
            let names: Vec<&str> = series_label_names(&series).collect();
            let distinct: BTreeSet<&str> = names.iter().copied().collect();
            prop_assert_eq!(names.len(), distinct.len());
            prop_assert_eq!(distinct, labels.iter().map(|(name, _)| name).collect::<BTreeSet<_>>());
            let further = ["__period_unit__", "__period_type__", "absent", ""];
            for name in own.iter().map(|(name, _)| name.as_str()).chain(names).chain(further) {
                let value = series_label(&series, name);
                prop_assert_eq!(value.as_deref(), labels.get(name), "{}", name);
            }
        }
    }
}
