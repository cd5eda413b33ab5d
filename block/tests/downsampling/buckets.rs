//! Buckets as plain sums, from lists of profiles and from blocks of a downsampled tier.

use std::collections::{BTreeMap, BTreeSet};

use athanor_block::Block;
use athanor_chassis::Tier;
use athanor_profile::store_interface::series::{BucketCounts, ProfileSeries};

use crate::records::{StoredRecord, records_of};

/// Tenant, series and end of a bucket.
type BucketKey = (String, ProfileSeries, i64);

/// Buckets by key.
pub type Buckets = BTreeMap<BucketKey, Bucket>;

/// Sums of one series and bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Number of records.
    pub records: u64,
    /// Number of profiles.
    pub profiles: u64,
    /// Sum of the durations, within 64 bits.
    pub duration: i128,
    /// Largest period. None in the sum of no profile.
    pub period: Option<i64>,
    /// Sums by stack.
    pub sums: BTreeMap<Vec<String>, i128>,
}

impl Bucket {
    fn add(&mut self, other: Bucket) {
        self.records += other.records;
        self.profiles += other.profiles;
        self.duration = (self.duration + other.duration).clamp(i64::MIN.into(), i64::MAX.into());
        self.period = self.period.max(other.period);
        for (stack, sum) in other.sums {
            *self.sums.entry(stack).or_default() += sum;
        }
    }

    fn from_record(record: &StoredRecord, records: u64, profiles: u64) -> Self {
        let [duration, period] = record.header;
        let mut bucket = Bucket {
            records,
            profiles,
            duration: duration.into(),
            period: Some(period),
            sums: BTreeMap::new(),
        };
        for ((stack, _), value) in &record.values {
            *bucket.sums.entry(stack.clone()).or_default() += i128::from(*value);
        }
        bucket
    }
}

/// Adds the buckets of a block.
pub fn add_buckets(all: &mut Buckets, other: Buckets) {
    for (key, bucket) in other {
        all.entry(key).or_default().add(bucket);
    }
}

/// Sums records by bucket. The first record of a profile and value type in the order of series counts the profile.
pub fn buckets_of_records(records: &[StoredRecord], tier: Tier) -> Buckets {
    let mut ordered: Vec<&StoredRecord> = records.iter().collect();
    ordered.sort_by_key(|record| (&record.tenant, &record.series, record.time));
    let mut profiles = BTreeSet::new();
    let mut buckets = Buckets::new();
    for record in ordered {
        let value_type = record.series.value_type.kind.clone();
        let is_first = profiles.insert((record.tenant.clone(), record.id >> 64, value_type));
        let key = (record.tenant.clone(), record.series.clone(), tier.bucket_end(record.time));
        buckets.entry(key).or_default().add(Bucket::from_record(record, 1, u64::from(is_first)));
    }
    buckets
}

/// Reads the buckets of a block.
pub fn buckets_of(block: &Block) -> Buckets {
    let mut buckets = Buckets::new();
    for row in records_of(block) {
        assert!(row.timestamps.is_empty() && row.values.keys().all(|(_, span)| *span == 0));
        let key = (row.tenant.clone(), row.series.clone(), row.time);
        let BucketCounts { records, profiles } = BucketCounts::from_row_id(row.id);
        buckets.entry(key).or_default().add(Bucket::from_record(&row, records, profiles));
    }
    buckets
}
