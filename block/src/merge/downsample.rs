//! Downsampling of one tenant's rows: the rows of a series and bucket are added up.

use athanor_chassis::Tier;
use athanor_profile::data_model::identity::profile_id_of_record;
use athanor_profile::encoding::hash::{ContentHash, hash_bytes};
use athanor_profile::store_interface::series::{BucketCounts, ProfileRow, ProfileSeries};

use crate::format::duplicates::DuplicateIds;
use crate::format::error::BlockError;
use crate::format::sample_rows::{ProfileRows, SampleRow};
use crate::merge::input::TenantInput;
use crate::reader::profile_stream::{ProfileStream, StoredProfile};
use crate::writer::write::TenantWriter;

/// Counter of profiles among records. Sample labels split a profile into records of several series. The first
/// record of each value type counts the profile.
pub(crate) struct ProfileCounter {
    /// Hash of the value type of each series of the output.
    types: Vec<u64>,
    /// Profiles with several records of one value type.
    profiles: DuplicateIds,
}

impl ProfileCounter {
    /// Reads the IDs of all rows that the merge takes. `series_of_inputs` maps their series to those of the output.
    pub(crate) fn read(
        inputs: &[TenantInput<'_>],
        series: &[ProfileSeries],
        series_of_inputs: &[Vec<u32>],
    ) -> Result<Self, BlockError> {
        let types = series.iter().map(hash_value_type).collect();
        let mut counter = ProfileCounter { types, profiles: DuplicateIds::default() };
        let mut prefixes = Vec::new();
        for (input, series) in inputs.iter().zip(series_of_inputs) {
            let mut profiles = ProfileStream::open(&input.part)?;
            let mut place = 0;
            while let Some(StoredProfile { row, .. }) = profiles.next_profile()? {
                if input.rows.contains(place) {
                    let key = counter.key(row.id, series[row.series as usize]);
                    prefixes.push(DuplicateIds::prefix(key));
                }
                place += 1;
            }
        }
        counter.profiles = DuplicateIds::from_prefixes(prefixes);
        Ok(counter)
    }

    /// Returns the key of a record's profile and value type.
    fn key(&self, record: ContentHash, series: u32) -> ContentHash {
        let value_type = self.types.get(series as usize).copied().unwrap_or_default();
        let profile = (profile_id_of_record(record) >> 64) as u64;
        ContentHash::from(value_type) << 64 | ContentHash::from(profile ^ value_type)
    }

    /// Counts a record. `series` is its series in the output.
    pub(crate) fn count(&mut self, record: ContentHash, series: u32) -> BucketCounts {
        let key = self.key(record, series);
        BucketCounts { records: 1, profiles: u64::from(self.profiles.take_first(key)) }
    }
}

fn hash_value_type(series: &ProfileSeries) -> u64 {
    let value_type = &series.value_type;
    hash_bytes(format!("{}\0{}", value_type.kind, value_type.unit).as_bytes()) as u64
}

/// Row of one series and bucket while its profiles are added up. Memory: a sum for each stack of the tenant.
pub(crate) struct BucketBuilder {
    tier: Tier,
    series: u32,
    /// Time of the bucket's end.
    end: i64,
    counts: BucketCounts,
    duration: i64,
    period: i64,
    /// Sum of all values.
    total: i64,
    sums: Vec<i64>,
    has_sum: Vec<bool>,
    /// Stacks that have a sum.
    touched: Vec<u32>,
    row: ProfileRows,
}

impl BucketBuilder {
    pub(crate) fn new(tier: Tier, stack_count: usize) -> Self {
        BucketBuilder {
            tier,
            series: 0,
            end: 0,
            counts: BucketCounts::default(),
            duration: 0,
            period: 0,
            total: 0,
            sums: vec![0; stack_count],
            has_sum: vec![false; stack_count],
            touched: Vec::new(),
            row: ProfileRows::default(),
        }
    }

    /// Adds the next row, by (series, time). If a sum would pass 63 bits, the bucket continues in a second row.
    pub(crate) fn add_profile(
        &mut self,
        out: &mut TenantWriter<'_, '_>,
        profile: &ProfileRow,
        counts: BucketCounts,
        samples: &[SampleRow],
    ) -> Result<(), BlockError> {
        let end = self.tier.bucket_end(profile.time);
        let is_other = (self.series, self.end) != (profile.series, end);
        if is_other || !can_add_counts(self.counts, counts) || !self.can_add_samples(samples) {
            self.flush(out)?;
        }
        (self.series, self.end) = (profile.series, end);
        if self.counts == BucketCounts::default() {
            self.period = profile.period;
        }
        self.counts.add(counts);
        self.duration = self.duration.saturating_add(profile.duration);
        self.period = self.period.max(profile.period);
        for sample in samples {
            // The samples of one profile may be too large for a row too. The next row then counts no profile.
            if !self.can_add_sample(sample) {
                self.flush(out)?;
                self.period = profile.period;
            }
            self.add_sample(sample);
        }
        Ok(())
    }

    /// Returns whether the samples fit into the row. Samples of one stack are few, and are not added up.
    fn can_add_samples(&self, samples: &[SampleRow]) -> bool {
        let mut total = self.total;
        samples.iter().all(|sample| match total.checked_add(sample.value) {
            Some(sum) => {
                total = sum;
                self.sums[sample.stack as usize].checked_add(sample.value).is_some()
            }
            None => false,
        })
    }

    fn can_add_sample(&self, sample: &SampleRow) -> bool {
        let sum = self.sums[sample.stack as usize];
        sum.checked_add(sample.value).is_some() && self.total.checked_add(sample.value).is_some()
    }

    fn add_sample(&mut self, sample: &SampleRow) {
        let stack = sample.stack as usize;
        self.sums[stack] += sample.value;
        self.total += sample.value;
        if !std::mem::replace(&mut self.has_sum[stack], true) {
            self.touched.push(sample.stack);
        }
    }

    /// Writes the row, if there is one, and begins the next one of the same bucket.
    pub(crate) fn flush(&mut self, out: &mut TenantWriter<'_, '_>) -> Result<(), BlockError> {
        let counts = std::mem::take(&mut self.counts);
        if counts == BucketCounts::default() && self.touched.is_empty() {
            return Ok(());
        }
        self.touched.sort_unstable();
        self.row.clear();
        for stack in self.touched.drain(..) {
            let value = std::mem::take(&mut self.sums[stack as usize]);
            self.has_sum[stack as usize] = false;
            self.row.rows.push(SampleRow { stack, request: 0, value });
        }
        let profile = ProfileRow {
            series: self.series,
            time: self.end,
            id: counts.to_row_id(),
            duration: std::mem::take(&mut self.duration),
            period: std::mem::take(&mut self.period),
            samples: self.row.rows.len() as u32,
        };
        self.total = 0;
        out.add_profile(profile, &mut self.row)
    }
}

/// Returns whether the counts fit into their columns together.
fn can_add_counts(left: BucketCounts, right: BucketCounts) -> bool {
    left.records.checked_add(right.records).is_some_and(|records| i64::try_from(records).is_ok())
}
