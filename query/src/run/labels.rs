//! Labels by which series are selected, grouped and displayed.

use athanor_profile::store_interface::series::{METRIC_NAME_LABEL, SERVICE_NAME_LABEL};
use athanor_profile::{Labels, ProfileSeries};

/// Returns the labels by which a series is selected and displayed: its own, and those that describe its
/// profile type.
pub fn series_labels(series: &ProfileSeries) -> Labels {
    let mut labels = series.labels().clone();
    let profile_type = series.profile_type();
    labels.set("__profile_type__", &profile_type.to_string());
    labels.set(METRIC_NAME_LABEL, &profile_type.name);
    labels.set("__type__", &profile_type.value.kind);
    labels.set("__unit__", &profile_type.value.unit);
    labels.set("__period_type__", &profile_type.period.kind);
    labels.set("__period_unit__", &profile_type.period.unit);
    let service = labels.get(SERVICE_NAME_LABEL).unwrap_or_default().to_owned();
    labels.set("__service_name__", &service);
    labels
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
