//! Merge of one tenant's parts into a part of the output.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::sync::Arc;

use athanor_chassis::Tier;
use athanor_profile::Dictionary;
use athanor_profile::data_model::symbols::NO_ENTRY;
use athanor_profile::store_interface::series::{BucketCounts, ProfileSeries};
use parquet::data_type::Int32Type;

use crate::format::error::BlockError;
use crate::format::meta::{IdRange, SAMPLES_FILE};
use crate::format::row_order::{RowKey, RowOrder};
use crate::format::sample_rows::ProfileRows;
use crate::merge::downsample::{BucketBuilder, ProfileCounter};
use crate::merge::input::{MergeInput, TenantInput};
use crate::reader::profile_stream::{ProfileStream, StoredProfile};
use crate::reader::read::local_id;
use crate::writer::write::BlockWriter;

/// Series of the output, and for each input the index of its series. Series without rows have no index.
struct OutputSeries {
    all: Vec<ProfileSeries>,
    of_inputs: Vec<Vec<u32>>,
}

/// Heap entry: order of an input's next profile, and the input. The least comes first.
type MergeHeapEntry = Reverse<(RowKey, usize)>;

/// Description of the part that a merge of one tenant writes.
pub(crate) struct TenantOutput<'o> {
    pub(crate) tenant: &'o str,
    pub(crate) newest_arrival: u64,
    pub(crate) tier: Tier,
    pub(crate) order: RowOrder,
}

/// Writes the selected rows of a tenant, or adds them up by series and bucket. Inputs are in order of arrival, and
/// all of them or none have a downsampled tier.
pub(crate) fn merge_tenant(
    writer: &mut BlockWriter<'_>,
    output: &TenantOutput<'_>,
    inputs: &[TenantInput<'_>],
    progress: &mut dyn FnMut(u64),
) -> Result<(), BlockError> {
    let OutputSeries { all: series, of_inputs: series_of_inputs } = OutputSeries::read(inputs)?;
    let OutputStacks { dictionary, popularity, of_parts: stacks_of_parts } = OutputStacks::read(inputs)?;
    let mut out = writer.begin_tenant(output.tenant, &series, &dictionary, &popularity)?;
    out.set_newest_arrival(output.newest_arrival);
    drop((dictionary, popularity));
    let counts_profiles = !output.tier.is_raw() && inputs.iter().all(|input| !input.part.is_downsampled());
    let mut counter = match counts_profiles {
        true => Some(ProfileCounter::read(inputs, &series, &series_of_inputs)?),
        false => None,
    };
    let mut bucket = (!output.tier.is_raw()).then(|| BucketBuilder::new(output.tier, out.stack_count()));
    let mut open = Vec::with_capacity(inputs.len());
    let mut series_of_inputs = series_of_inputs.into_iter();
    for (part, mut stacks) in inputs_by_part(inputs).zip(stacks_of_parts) {
        let numbered = stacks.iter_mut().filter(|stack| **stack != NO_ENTRY);
        numbered.for_each(|stack| *stack = out.stack_number(*stack));
        let stacks: Arc<[u32]> = stacks.into();
        for (input, series) in part.iter().zip(&mut series_of_inputs) {
            open.push(MergeInput::open(input, Arc::clone(&stacks), series, out.columns(), output.order)?);
        }
    }
    let mut next: BinaryHeap<MergeHeapEntry> =
        open.iter().enumerate().filter_map(|(at, input)| Some(Reverse((input.next_order()?, at)))).collect();
    let mut of_profile = ProfileRows::default();
    while let Some(mut first) = next.peek_mut() {
        let Reverse((order, at)) = &mut *first;
        let input = &mut open[*at];
        let samples = input.next_samples();
        progress(u64::from(samples));
        match &mut bucket {
            None if out.takes_sums(samples) => {
                let profile = input.take_header()?;
                out.add_sums(profile, |sums| input.add_rows(samples, sums))?;
            }
            None => {
                let profile = input.take_profile(&mut of_profile)?;
                out.add_profile(profile, &mut of_profile)?;
            }
            Some(bucket) => {
                let profile = input.take_profile(&mut of_profile)?;
                let counts = match &mut counter {
                    Some(counter) => counter.count(profile.id, profile.series),
                    None => BucketCounts::from_row_id(profile.id),
                };
                bucket.add_profile(&mut out, &profile, counts, &of_profile.rows)?;
            }
        }
        match input.next_order() {
            Some(following) => *order = following,
            None => drop(PeekMut::pop(first)),
        }
    }
    if let Some(mut bucket) = bucket {
        bucket.flush(&mut out)?;
    }
    out.finish()
}

/// Returns the inputs by their part. Those of one part have rows of different hours.
fn inputs_by_part<'i, 'p>(inputs: &'i [TenantInput<'p>]) -> impl Iterator<Item = &'i [TenantInput<'p>]> {
    inputs.chunk_by(|left, right| left.source == right.source)
}

/// Stacks of the output.
struct OutputStacks {
    dictionary: Dictionary,
    /// Number of rows of each stack.
    popularity: Vec<u64>,
    /// Stack of each stack of a part.
    of_parts: Vec<Vec<u32>>,
}

impl OutputStacks {
    /// Reads the names of each part once, for all of its hours.
    fn read(inputs: &[TenantInput<'_>]) -> Result<Self, BlockError> {
        let mut dictionary = Dictionary::default();
        let mut popularity: Vec<u64> = Vec::new();
        let mut of_leaf = Vec::new();
        let mut of_parts = Vec::new();
        for part in inputs_by_part(inputs) {
            let mut rows = part[0].count_rows_by_stack()?;
            for input in &part[1..] {
                rows.iter_mut().zip(input.count_rows_by_stack()?).for_each(|(sum, count)| *sum += count);
            }
            let stacks = part[0].part.intern_names(&mut dictionary, &mut of_leaf, |stack| rows[stack] > 0)?;
            popularity.resize(dictionary.stacks.len(), 0);
            for (&stack, &count) in stacks.iter().zip(&rows).filter(|(stack, _)| **stack != NO_ENTRY) {
                popularity[stack as usize] += count;
            }
            of_parts.push(stacks);
        }
        Ok(OutputStacks { dictionary, popularity, of_parts })
    }
}

impl OutputSeries {
    /// Reads the series of each part once, for all of its hours.
    fn read(inputs: &[TenantInput<'_>]) -> Result<Self, BlockError> {
        let mut places: BTreeMap<ProfileSeries, u32> = BTreeMap::new();
        let mut of_parts = Vec::new();
        for part in inputs_by_part(inputs) {
            let is_used = |place: usize| part.iter().any(|input| input.rows.has_series(place));
            let all = part[0].part.read_series()?.into_iter().enumerate();
            let used: Vec<Option<ProfileSeries>> =
                all.map(|(place, series)| is_used(place).then_some(series)).collect();
            places.extend(used.iter().flatten().map(|series| (series.clone(), 0)));
            of_parts.push(used);
        }
        (0u32..).zip(places.values_mut()).for_each(|(next, place)| *place = next);
        let place =
            |series: &Option<ProfileSeries>| series.as_ref().map_or(NO_ENTRY, |series| places[series]);
        let mut of_inputs = Vec::with_capacity(inputs.len());
        for (part, used) in inputs_by_part(inputs).zip(of_parts) {
            let of_part: Vec<u32> = used.iter().map(place).collect();
            of_inputs.extend(part.iter().map(|_| of_part.clone()));
        }
        Ok(OutputSeries { of_inputs, all: places.into_keys().collect() })
    }
}

impl TenantInput<'_> {
    /// Returns the number of selected rows of each stack. For whole series the roll-up has them, else the
    /// stacks of the selected rows are read.
    fn count_rows_by_stack(&self) -> Result<Vec<u64>, BlockError> {
        let mut counts = vec![0u64; self.part.meta.stacks as usize];
        if self.rows.has_whole_series() {
            self.part.for_each_rollup_count(|series, stack, samples| {
                if self.rows.has_series(series as usize) {
                    counts[stack as usize] += u64::from(samples);
                }
            })?;
            return Ok(counts);
        }
        let table = self.part.samples_table()?;
        let stacks = IdRange(self.part.meta.nodes.0, self.part.meta.stacks);
        for (group, ranges) in self.part.plan_scan(&table, &self.sample_ranges()?)? {
            self.part.check_cancelled()?;
            for stack in table.read_column_rows::<Int32Type>(group, 1, &ranges)? {
                counts[local_id(SAMPLES_FILE, stack, stacks)? as usize] += 1;
            }
        }
        Ok(counts)
    }

    /// Returns the rows of `samples.parquet`, relative to the part, of the selected profiles.
    fn sample_ranges(&self) -> Result<Vec<Range<u64>>, BlockError> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut profiles = ProfileStream::open(&self.part)?;
        let mut place = 0;
        let mut start = 0;
        while let Some(StoredProfile { row, .. }) = profiles.next_profile()? {
            let end = start + u64::from(row.samples);
            if self.rows.contains(place, row.time) {
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => ranges.push(start..end),
                }
            }
            start = end;
            place += 1;
        }
        Ok(ranges)
    }
}
