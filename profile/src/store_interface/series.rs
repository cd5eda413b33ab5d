//! Series and profiles in the form that storage and sources use.

use crate::data_model::labels::Labels;
use crate::data_model::model::ValueType;
use crate::data_model::profile_type::ProfileType;
use crate::encoding::hash::{ContentHash, allocation_bytes};

/// Label with the name of the metric, such as `process_cpu`.
pub const METRIC_NAME_LABEL: &str = "__name__";
/// Label with the name of the service.
pub const SERVICE_NAME_LABEL: &str = "service_name";

/// Labels and types of a series. The order is by service first, so that a service's rows are contiguous.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileSeries {
    service: String,
    labels: Labels,
    /// Type and unit of the values.
    pub value_type: ValueType,
    /// Type and unit of the sampling period.
    pub period_type: ValueType,
}

impl ProfileSeries {
    /// Creates a series from labels and types.
    pub fn new(labels: Labels, value_type: ValueType, period_type: ValueType) -> Self {
        let service = labels.get(SERVICE_NAME_LABEL).unwrap_or_default().to_owned();
        ProfileSeries { service, labels, value_type, period_type }
    }
    /// Returns the labels of the series.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }
    /// Returns the full profile type. Its name is the value of the metric label, empty if there is none.
    pub fn profile_type(&self) -> ProfileType {
        ProfileType {
            name: self.labels.get(METRIC_NAME_LABEL).unwrap_or_default().to_owned(),
            value: self.value_type.clone(),
            period: self.period_type.clone(),
        }
    }
    /// Returns the memory that the series takes if no clone shares its labels.
    pub fn memory(&self) -> usize {
        let text =
            |of: &ValueType| allocation_bytes(of.kind.capacity()) + allocation_bytes(of.unit.capacity());
        let texts =
            allocation_bytes(self.service.capacity()) + text(&self.value_type) + text(&self.period_type);
        size_of::<ProfileSeries>() + texts + self.labels.memory()
    }
    /// Returns the service, empty if no label names it.
    pub fn service(&self) -> &str {
        &self.service
    }
}

/// Row of a profile in a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileRow {
    /// Index of its series in the tenant's part.
    pub series: u32,
    /// Time of the profile, Unix nanoseconds.
    pub time: i64,
    /// Record id of the profile.
    pub id: ContentHash,
    /// Duration of the profile in nanoseconds.
    pub duration: i64,
    /// Sampling period, in the period's unit.
    pub period: i64,
    /// Number of its sample rows.
    pub samples: u32,
}

impl ProfileRow {
    /// Returns the sort key of profiles within a block.
    pub fn order(&self) -> (u32, i64, ContentHash) {
        (self.series, self.time, self.id)
    }
}
