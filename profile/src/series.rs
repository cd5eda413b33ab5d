//! Series and profiles, as whatever stores them knows them.

use crate::hash::{ContentHash, allocation_bytes};
use crate::labels::Labels;
use crate::model::ValueType;
use crate::profile_type::ProfileType;

/// The label with the name of what is measured, such as `process_cpu`.
pub const METRIC_NAME_LABEL: &str = "__name__";
/// The label with the name of the service.
pub const SERVICE_NAME_LABEL: &str = "service_name";

/// What a series counts, and for whom. Sorted by service first, so that a service's rows lie together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileSeries {
    service: String,
    labels: Labels,
    /// What its values count.
    pub value_type: ValueType,
    /// What was counted between two samples.
    pub period_type: ValueType,
}

impl ProfileSeries {
    /// From labels and types.
    pub fn new(labels: Labels, value_type: ValueType, period_type: ValueType) -> Self {
        let service = labels.get(SERVICE_NAME_LABEL).unwrap_or_default().to_owned();
        ProfileSeries { service, labels, value_type, period_type }
    }
    /// The labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }
    /// The full type: its name is that of the metric label, empty if there is none.
    pub fn profile_type(&self) -> ProfileType {
        ProfileType {
            name: self.labels.get(METRIC_NAME_LABEL).unwrap_or_default().to_owned(),
            value: self.value_type.clone(),
            period: self.period_type.clone(),
        }
    }
    /// What it takes in memory, where no clone shares its labels.
    pub fn memory(&self) -> usize {
        let text =
            |of: &ValueType| allocation_bytes(of.kind.capacity()) + allocation_bytes(of.unit.capacity());
        let texts =
            allocation_bytes(self.service.capacity()) + text(&self.value_type) + text(&self.period_type);
        size_of::<ProfileSeries>() + texts + self.labels.memory()
    }
    /// The service, empty if no label names it.
    pub fn service(&self) -> &str {
        &self.service
    }
}

/// One profile of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileRow {
    /// Place of its series in the tenant's part.
    pub series: u32,
    /// When it was taken, Unix nanoseconds.
    pub time: i64,
    /// Its record id.
    pub id: ContentHash,
    /// How long it took, nanoseconds.
    pub duration: i64,
    /// What lay between two samples, in the period's unit.
    pub period: i64,
    /// How many sample rows are its.
    pub samples: u32,
}

impl ProfileRow {
    /// The order of profiles within a block.
    pub fn order(&self) -> (u32, i64, ContentHash) {
        (self.series, self.time, self.id)
    }
}
