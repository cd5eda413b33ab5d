//! Estimate of a merge's memory, so that a job that is too large is split before it starts.

use std::collections::BTreeSet;

use crate::format::error::BlockError;
use crate::format::meta::{
    FileMeta, MAX_ROWS_PER_GROUP, MAX_ROWS_PER_PAGE, PROFILES_FILE, SAMPLES_FILE, TenantMeta,
};
use crate::format::row_order::{HOUR_NANOS, RowOrder};
use crate::merge::input::READ_AHEAD_ROWS;
use crate::merge::name_counts::NameCounts;
use crate::merge::plan::parts_by_tenant;
use crate::merge::series_partition::SeriesPartition;
use crate::merge::{MERGE_FAN_IN, MergeSource};
use crate::reader::profile_stream::PROFILE_BATCH_ROWS;
use crate::reader::read::{Block, TenantBlock};
use crate::reader::timestamps::MAX_TIMESTAMPS_PER_GROUP;

/// Memory of a merge of few rows: contexts of compression, and small tables.
const BASE_BYTES: u64 = 6 << 20;
/// Memory of parsed footers relative to their bytes.
const FOOTER_EXPANSION: u64 = 4;
/// Assumed length of an unknown footer.
const UNKNOWN_FOOTER_BYTES: u64 = 16 << 10;

/// Memory of one profile in the plan: a bit, its ID prefix in a grown list, and the sets of duplicate IDs. Then
/// profiles with several records are counted in the same way.
const PLANNED_PROFILE_BYTES: u64 = 32;
/// Memory of one profile in a row group of the output: columns in grown lists, and the allocation of its ID.
const WRITTEN_PROFILE_BYTES: u64 = 128;
/// Memory of one profile in a page of an input and of its decompression.
const PAGED_PROFILE_BYTES: u64 = 64;
/// Memory of one profile in a decoded batch of an input.
const DECODED_PROFILE_BYTES: u64 = 160;
/// Memory of one sample in a row group of the output, and of its encoded pages.
const WRITTEN_SAMPLE_BYTES: u64 = 28;
/// Additional memory of one sample with a span context, in a row group and in its columns.
const WRITTEN_SPAN_BYTES: u64 = 112;
/// Memory of one timestamp in a row group of the output, with its levels and in grown lists.
const WRITTEN_TIMESTAMP_BYTES: u64 = 32;
/// Memory of one sample in a page of an input and of its decompression.
const PAGED_SAMPLE_BYTES: u64 = 16;
/// Memory of one sample in a decoded batch of an input.
const DECODED_SAMPLE_BYTES: u64 = 16;
/// Upper bound of the dictionary of sample values in one input.
const MAX_VALUE_DICTIONARY_BYTES: u64 = 1 << 20;
/// Memory of one profile while the series of a large service are split: its place in a grown list.
const SPLIT_PROFILE_BYTES: u64 = 48;
/// Hours of a day, each of which is an input of a merge into another order.
const HOURS_PER_DAY: u64 = 24;
/// Memory of one row of the roll-up of the output, in grown lists and encoded pages.
const ROLLUP_ROW_BYTES: u64 = 40;

/// Counts of one tenant's parts in all inputs.
#[derive(Default)]
struct TenantCounts {
    profiles: u64,
    samples: u64,
    names: u64,
    /// Names of one input that are read and not taken.
    largest_read: u64,
    /// Buffers of all inputs, and those of the largest one.
    buffers: u64,
    largest_buffers: u64,
    /// Buffers of the blocks whose IDs are compared.
    compared_buffers: u64,
    timestamps: u64,
    has_spans: bool,
}

/// Merge whose memory is estimated.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeEstimate<'e> {
    /// Blocks whose IDs are read too.
    pub compared: &'e [Block],
    /// Tenants of the output. None for all.
    pub tenants: Option<&'e BTreeSet<String>>,
    /// Order of the output.
    pub order: RowOrder,
    /// Series of the output. None for all. The names of these series are then counted, which reads the stacks of each
    /// input.
    pub series: Option<&'e SeriesPartition>,
}

impl MergeEstimate<'_> {
    /// Returns an upper estimate of the memory of a merge in bytes: names, profile headers, IDs and buffers. Without a
    /// partition it reads metadata only. Names of several inputs count several times, because metadata does not show
    /// which are equal.
    pub fn memory(&self, sources: &[MergeSource]) -> Result<u64, BlockError> {
        let (memory, _) = self.estimate(sources, |part| match self.series {
            Some(partition) => NameCounts::of_series(part, partition),
            None => NameCounts::of_part(part),
        })?;
        Ok(memory)
    }

    /// Returns the memory that a merge needs however its series are split: all of it but names, and the plan of the
    /// split.
    pub fn unsplittable_memory(&self, sources: &[MergeSource]) -> Result<u64, BlockError> {
        let (memory, profiles) = self.estimate(sources, |_| Ok(NameCounts::default()))?;
        Ok(memory + profiles * SPLIT_PROFILE_BYTES)
    }

    /// Returns the memory with the names that `count_names` counts, and the number of profiles.
    fn estimate(
        &self,
        sources: &[MergeSource],
        count_names: impl Fn(&TenantBlock<'_>) -> Result<NameCounts, BlockError>,
    ) -> Result<(u64, u64), BlockError> {
        let parts = parts_by_tenant(sources, self.tenants);
        let mut profiles = 0;
        let mut planned = 0;
        let mut largest = 0;
        for (tenant, parts) in &parts {
            let mut counts = TenantCounts::default();
            for part in self.compared.iter().filter_map(|block| block.tenant_block(tenant).ok()) {
                counts.compared_buffers += header_buffers(part.meta.profiles.1.into());
            }
            for location in parts {
                let part = sources[location.input].block.tenant_block_at(location.tenant);
                counts.add(&part, &count_names(&part)?, self.order)?;
            }
            profiles += counts.profiles;
            planned += counts.profiles.div_ceil(8);
            largest = largest.max(counts.memory(self.order));
        }
        let files = sources.iter().flat_map(|source| source.block.meta().files.values());
        let of_compared = self.compared.iter().filter_map(|block| block.meta().files.get(PROFILES_FILE));
        let footers: u64 = files.chain(of_compared).map(estimate_footer_bytes).sum();
        Ok((BASE_BYTES + FOOTER_EXPANSION * footers + planned + largest, profiles))
    }
}

impl TenantCounts {
    /// Adds a part of which a merge takes some names, into rows of an order.
    fn add(&mut self, part: &TenantBlock<'_>, names: &NameCounts, order: RowOrder) -> Result<(), BlockError> {
        let TenantMeta { profiles, samples, .. } = *part.meta;
        self.names += names.memory();
        self.largest_read = self.largest_read.max(names.read_memory());
        self.profiles += u64::from(profiles.1);
        self.samples += samples;
        let buffers = input_buffers(profiles.1.into(), samples);
        self.buffers += buffers * hours_of(part, order);
        self.largest_buffers = self.largest_buffers.max(buffers);
        if has_known_tail(part, SAMPLES_FILE)? {
            self.add_optional_columns(part)?;
        }
        Ok(())
    }

    fn add_optional_columns(&mut self, part: &TenantBlock<'_>) -> Result<(), BlockError> {
        let table = part.block.open_table(SAMPLES_FILE)?;
        let columns = table.columns();
        self.has_spans |= columns.requests.is_any();
        if let Some(column) = columns.timestamps_index() {
            let groups = part.row_groups(SAMPLES_FILE).range();
            self.timestamps += groups.map(|group| table.values(group, column)).sum::<u64>();
        }
        Ok(())
    }

    fn memory(&self, order: RowOrder) -> u64 {
        let of_sample = WRITTEN_SAMPLE_BYTES + if self.has_spans { WRITTEN_SPAN_BYTES } else { 0 };
        let rows = self.samples.min(MAX_ROWS_PER_GROUP as u64);
        // A round reads a limited number of inputs. Those of later rounds may have full buffers.
        let largest = if self.buffers > MERGE_FAN_IN as u64 * self.largest_buffers {
            input_buffers(u64::MAX, u64::MAX)
        } else {
            self.largest_buffers
        };
        let mut buffers = self.buffers.min(MERGE_FAN_IN as u64 * largest);
        if order == RowOrder::Hour {
            // The tier of an hour is merged from the one of 5 minutes, hour by hour.
            buffers = buffers.max(HOURS_PER_DAY * input_buffers(self.profiles, self.samples));
        }
        self.names
            + self.largest_read
            + buffers
            + self.compared_buffers
            + self.profiles * PLANNED_PROFILE_BYTES
            + self.profiles.min(MAX_ROWS_PER_GROUP as u64) * WRITTEN_PROFILE_BYTES
            + rows * (of_sample + ROLLUP_ROW_BYTES)
            + self.timestamps.min(MAX_TIMESTAMPS_PER_GROUP as u64) * WRITTEN_TIMESTAMP_BYTES
    }
}

/// Returns the number of inputs that a part becomes: one for each hour if it has another order than the output.
fn hours_of(part: &TenantBlock<'_>, order: RowOrder) -> u64 {
    if part.block.meta().order == order {
        return 1;
    }
    let TenantMeta { min_time, max_time, .. } = *part.meta;
    let hours = RowOrder::Hour.hour(max_time).abs_diff(RowOrder::Hour.hour(min_time)) / HOUR_NANOS;
    (hours + 1).min(u64::from(part.meta.profiles.1)).max(1)
}

/// Returns the memory of pages and decoded batches of one input.
fn input_buffers(profiles: u64, samples: u64) -> u64 {
    header_buffers(profiles)
        + up_to(samples, MAX_ROWS_PER_PAGE) * PAGED_SAMPLE_BYTES
        + up_to(samples, READ_AHEAD_ROWS) * DECODED_SAMPLE_BYTES
        + samples.saturating_mul(size_of::<i64>() as u64).min(MAX_VALUE_DICTIONARY_BYTES)
}

/// Returns the part of that memory that profile headers take.
fn header_buffers(profiles: u64) -> u64 {
    up_to(profiles, MAX_ROWS_PER_PAGE) * PAGED_PROFILE_BYTES
        + up_to(profiles, PROFILE_BATCH_ROWS) * DECODED_PROFILE_BYTES
}

fn up_to(rows: u64, most: usize) -> u64 {
    rows.min(most as u64)
}

fn estimate_footer_bytes(file: &FileMeta) -> u64 {
    if file.tail_bytes == 0 { UNKNOWN_FOOTER_BYTES.min(file.bytes) } else { file.tail_bytes }
}

/// Returns whether `meta.json` holds the footer of a file.
fn has_known_tail(part: &TenantBlock<'_>, file: &str) -> Result<bool, BlockError> {
    Ok(!part.block.meta().file(file)?.tail.is_empty())
}
