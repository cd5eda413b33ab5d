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
    /// Record id of the profile. A row of a downsampled tier has its [`BucketCounts`] here.
    pub id: ContentHash,
    /// Duration of the profile in nanoseconds.
    pub duration: i64,
    /// Sampling period, in the period's unit.
    pub period: i64,
    /// Number of its sample rows.
    pub samples: u32,
}

/// Counts of the profiles that a row of a downsampled tier adds up. Such a row has no record id, so the counts
/// take its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketCounts {
    /// Number of records: rows of the raw tier.
    pub records: u64,
    /// Number of profiles with their first record among these. Sample labels split a profile into records of
    /// several series, and only one of them counts the profile.
    pub profiles: u64,
}

impl BucketCounts {
    /// Packs the counts into the id of a row.
    pub const fn to_row_id(self) -> ContentHash {
        (self.records as ContentHash) << 64 | self.profiles as ContentHash
    }

    /// Unpacks the counts of a row.
    pub const fn from_row_id(id: ContentHash) -> Self {
        BucketCounts { records: (id >> 64) as u64, profiles: id as u64 }
    }

    /// Adds the counts of another row.
    pub const fn add(&mut self, other: Self) {
        self.records = self.records.saturating_add(other.records);
        self.profiles = self.profiles.saturating_add(other.profiles);
    }
}

impl ProfileRow {
    /// Returns the sort key of profiles within a block.
    pub fn order(&self) -> (u32, i64, ContentHash) {
        (self.series, self.time, self.id)
    }
}
