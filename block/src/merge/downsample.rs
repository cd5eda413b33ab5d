//! Downsampling of one tenant's rows: the rows of a series and bucket are added up.

use athanor_chassis::Tier;
use athanor_profile::data_model::identity::profile_id_of_record;
use athanor_profile::encoding::hash::{ContentHash, hash_bytes};
use athanor_profile::store_interface::series::{BucketCounts, ProfileRow, ProfileSeries};

use crate::format::duplicates::DuplicateIds;
use crate::format::error::BlockError;
use crate::format::meta::SAMPLES_FILE;
use crate::format::sample_rows::{ProfileRows, SampleRow};
use crate::merge::input::TenantInput;
use crate::reader::profile_stream::{ProfileStream, StoredProfile};
use crate::writer::row_sorter::StackSums;
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
                if input.rows.contains(place, row.time) {
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
    sums: StackSums,
    /// Sum of the absolute values. No sum of some of them passes 63 bits if this one does not.
    magnitude: u64,
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
            sums: StackSums::new(stack_count),
            magnitude: 0,
            row: ProfileRows::default(),
        }
    }

    /// Adds the next profile, by (series, time). If a sum could pass 63 bits, the bucket continues in a second row.
    pub(crate) fn add_profile(
        &mut self,
        out: &mut TenantWriter<'_, '_>,
        profile: &ProfileRow,
        counts: BucketCounts,
        samples: &[SampleRow],
    ) -> Result<(), BlockError> {
        let end = self.tier.bucket_end(profile.time);
        let is_other = (self.series, self.end) != (profile.series, end);
        let magnitude = samples.iter().fold(0u64, |sum, row| sum.saturating_add(row.value.unsigned_abs()));
        if is_other || !can_add_counts(self.counts, counts) || !self.can_add(magnitude) {
            self.flush(out)?;
        }
        (self.series, self.end) = (profile.series, end);
        if self.counts == BucketCounts::default() {
            self.period = profile.period;
        }
        self.counts.add(counts);
        self.duration = self.duration.saturating_add(profile.duration);
        self.period = self.period.max(profile.period);
        if self.can_add(magnitude) {
            self.magnitude += magnitude;
            return samples
                .iter()
                .try_for_each(|sample| self.sums.add(sample.stack, sample.value))
                .ok_or_else(unknown_stack);
        }
        for sample in samples {
            // The samples of one profile are too large for a row. The next row then counts no profile.
            if !self.can_add(sample.value.unsigned_abs()) {
                self.flush(out)?;
                self.period = profile.period;
            }
            self.magnitude = self.magnitude.saturating_add(sample.value.unsigned_abs());
            self.sums.add(sample.stack, sample.value).ok_or_else(unknown_stack)?;
        }
        Ok(())
    }

    fn can_add(&self, magnitude: u64) -> bool {
        self.magnitude.checked_add(magnitude).is_some_and(|sum| i64::try_from(sum).is_ok())
    }

    /// Writes the row, if there is one, and begins the next one of the same bucket.
    pub(crate) fn flush(&mut self, out: &mut TenantWriter<'_, '_>) -> Result<(), BlockError> {
        self.row.clear();
        self.sums.drain(|stack, value| self.row.rows.push(SampleRow { stack, request: 0, value }));
        let counts = std::mem::take(&mut self.counts);
        if counts == BucketCounts::default() && self.row.rows.is_empty() {
            return Ok(());
        }
        let profile = ProfileRow {
            series: self.series,
            time: self.end,
            id: counts.to_row_id(),
            duration: std::mem::take(&mut self.duration),
            period: std::mem::take(&mut self.period),
            samples: self.row.rows.len() as u32,
        };
        self.magnitude = 0;
        out.add_profile(profile, &mut self.row)
    }
}

fn unknown_stack() -> BlockError {
    BlockError::corrupt(SAMPLES_FILE, "unknown stack")
}

/// Returns whether the counts fit into their columns together.
fn can_add_counts(left: BucketCounts, right: BucketCounts) -> bool {
    left.records.checked_add(right.records).is_some_and(|records| i64::try_from(records).is_ok())
}
