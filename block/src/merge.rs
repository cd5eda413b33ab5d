//! Streaming merge of blocks into one. Memory holds the names of one tenant, its profile headers, a batch of
//! each input's samples, the rows of one profile and one row group of the output.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use athanor_profile::Dictionary;
use athanor_profile::encoding::hash::ContentHash;

use crate::format::columns::TableReader;
use crate::format::duplicates::DuplicateIds;
use crate::format::error::BlockError;
use crate::format::folder::{BlockFolder, ScratchFactory};
use crate::format::meta::{BlockMeta, BlockOrigin, IdRange, SAMPLES_FILE};
use crate::format::sample_rows::{OptionalColumns, ProfileRows, SampleRow};
use crate::reader::read::{Block, TenantBlock};
use crate::reader::scan::{SampleBatch, SampleReaders, unknown_stack_error};
use crate::reader::timestamps::TimestampReader;
use crate::writer::write::BlockWriter;
use athanor_profile::store_interface::series::{ProfileRow, ProfileSeries};

/// Upper bound of blocks per merge. More blocks are merged in rounds, so memory does not grow with their
/// number.
pub const MERGE_FAN_IN: usize = 32;

/// Sample rows buffered per input.
const READ_AHEAD_ROWS: usize = 8 * 1024;

/// Returns how often each sample is read if `blocks` blocks are merged.
pub fn merge_round_count(mut blocks: usize) -> u64 {
    let mut rounds = 1;
    while blocks > MERGE_FAN_IN {
        blocks = blocks.div_ceil(MERGE_FAN_IN);
        rounds += 1;
    }
    rounds
}

/// Description of the block that a merge writes.
#[derive(Clone, Debug, Default)]
pub struct MergeOutput {
    /// ID of the block.
    pub id: String,
    /// Log ranges and inputs of the block, if it replaces blocks of the catalog.
    pub origin: Option<BlockOrigin>,
    /// Tenants to merge. None for all.
    pub tenants: Option<BTreeSet<String>>,
}

/// Merges any number of blocks into an empty folder, and reports the number of read samples to `progress`.
pub fn merge_all(
    folder: &dyn BlockFolder,
    id: &str,
    blocks: Vec<Block>,
    scratch: &mut ScratchFactory<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<BlockMeta, BlockError> {
    merge_into(
        folder,
        &MergeOutput { id: id.to_owned(), ..MergeOutput::default() },
        blocks,
        scratch,
        progress,
    )
}

/// Merges any number of blocks, or the rows of some tenants, into an empty folder. A tenant keeps one profile
/// per ID, in whichever series the copies are [INV-20].
pub fn merge_into(
    folder: &dyn BlockFolder,
    making: &MergeOutput,
    mut blocks: Vec<Block>,
    scratch: &mut ScratchFactory<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<BlockMeta, BlockError> {
    let between = MergeOutput { origin: None, ..making.clone() };
    while blocks.len() > MERGE_FAN_IN {
        let mut merged = Vec::new();
        for round in blocks.chunks(MERGE_FAN_IN) {
            let folder: Arc<dyn BlockFolder> =
                scratch().map_err(BlockError::io("scratch folder of a run"))?;
            merge_round(folder.as_ref(), &between, round, progress)?;
            merged.push(Block::open(folder)?);
        }
        blocks = merged;
    }
    merge_round(folder, making, &blocks, progress)
}

/// Merges blocks into an empty folder. Profiles with equal ID are kept once [INV-20].
pub fn merge(folder: &dyn BlockFolder, id: &str, blocks: &[Block]) -> Result<BlockMeta, BlockError> {
    merge_round(folder, &MergeOutput { id: id.to_owned(), ..MergeOutput::default() }, blocks, &mut |_| ())
}

fn merge_round(
    folder: &dyn BlockFolder,
    making: &MergeOutput,
    blocks: &[Block],
    progress: &mut dyn FnMut(u64),
) -> Result<BlockMeta, BlockError> {
    let all = blocks.iter().flat_map(|block| &block.meta().tenants).map(|part| part.tenant.as_str());
    let is_wanted = |tenant: &&str| making.tenants.as_ref().is_none_or(|wanted| wanted.contains(*tenant));
    let tenants: BTreeSet<&str> = all.filter(is_wanted).collect();
    let mut columns = OptionalColumns::default();
    for block in blocks {
        columns = columns.union(block.open_table(SAMPLES_FILE)?.columns());
    }
    let mut writer = BlockWriter::create(folder, &making.id, columns)?;
    writer.set_origin(making.origin.clone());
    for tenant in tenants {
        let parts: Vec<TenantBlock<'_>> =
            blocks.iter().filter_map(|block| block.tenant_block(tenant).ok()).collect();
        merge_tenant(&mut writer, tenant, &parts, progress)?;
    }
    writer.finish()
}

fn merge_tenant(
    writer: &mut BlockWriter<'_>,
    tenant: &str,
    parts: &[TenantBlock<'_>],
    progress: &mut dyn FnMut(u64),
) -> Result<(), BlockError> {
    let mut dictionary = Dictionary::default();
    let (all_series, profiles) = read_index(parts)?;
    let mut duplicates = DuplicateIds::find(profiles.iter().flatten());
    let (series, output_series) = used_series(all_series, &profiles, &duplicates);
    let mut popularity: Vec<u64> = Vec::new();
    let mut of_leaf = Vec::new();
    let mut of_inputs = Vec::with_capacity(parts.len());
    for part in parts {
        let stacks = part.intern_names(&mut dictionary, &mut of_leaf)?;
        popularity.resize(dictionary.stacks.len(), 0);
        let rollup = part.read_rollup()?;
        for (&stack, &samples) in rollup.stack.iter().zip(&rollup.samples) {
            popularity[stacks[stack as usize] as usize] += u64::from(samples);
        }
        of_inputs.push(stacks);
    }
    let mut out = writer.begin_tenant(tenant, &series, &dictionary, &popularity)?;
    drop(dictionary);
    let mut inputs = Vec::with_capacity(parts.len());
    for ((part, mut stacks), profiles) in parts.iter().zip(of_inputs).zip(profiles) {
        stacks.iter_mut().for_each(|stack| *stack = out.stack_number(*stack));
        inputs.push(MergeInput::open(part, stacks, profiles)?);
    }
    let mut next: BinaryHeap<MergeHeapEntry> = inputs
        .iter()
        .enumerate()
        .filter_map(|(at, input)| Some(Reverse((input.peek_profile()?.order(), at))))
        .collect();
    let mut of_profile = ProfileRows::default();
    while let Some(Reverse((_, at))) = next.pop() {
        let input = &mut inputs[at];
        let mut profile = input.take_profile(&mut of_profile)?;
        progress(of_profile.rows.len() as u64);
        if duplicates.take_kept(&profile) {
            profile.series = output_series[profile.series as usize];
            out.add_profile(profile, &mut of_profile)?;
        }
        if let Some(profile) = input.peek_profile() {
            next.push(Reverse((profile.order(), at)));
        }
    }
    out.finish()
}

/// Reads the series of all parts in order, and the profiles of each part, renumbered to those series.
fn read_index(parts: &[TenantBlock<'_>]) -> Result<(Vec<ProfileSeries>, Vec<Vec<ProfileRow>>), BlockError> {
    let mut places: BTreeMap<ProfileSeries, u32> = BTreeMap::new();
    let mut series_of_parts = Vec::with_capacity(parts.len());
    for part in parts {
        let series = part.read_series()?;
        places.extend(series.iter().map(|series| (series.clone(), 0)));
        series_of_parts.push(series);
    }
    (0u32..).zip(places.values_mut()).for_each(|(next, place)| *place = next);
    let mut profiles_of_parts = Vec::with_capacity(parts.len());
    for (part, series) in parts.iter().zip(series_of_parts) {
        let places: Vec<u32> = series.iter().map(|series| places[series]).collect();
        let mut profiles = part.read_all_profiles()?;
        profiles.iter_mut().for_each(|profile| profile.series = places[profile.series as usize]);
        profiles_of_parts.push(profiles);
    }
    Ok((places.into_keys().collect(), profiles_of_parts))
}

/// Drops series of which all profiles are dropped duplicates. Returns the remaining series, and for each old
/// index the new one.
fn used_series(
    all_series: Vec<ProfileSeries>,
    profiles: &[Vec<ProfileRow>],
    duplicates: &DuplicateIds,
) -> (Vec<ProfileSeries>, Vec<u32>) {
    let mut is_used = vec![false; all_series.len()];
    for profile in profiles.iter().flatten().filter(|profile| duplicates.is_kept(profile)) {
        is_used[profile.series as usize] = true;
    }
    let mut used = Vec::new();
    let mut places = Vec::with_capacity(all_series.len());
    for (series, is_used) in all_series.into_iter().zip(is_used) {
        places.push(used.len() as u32);
        if is_used {
            used.push(series);
        }
    }
    (used, places)
}

/// Heap entry: order of an input's next profile, and the input. The least comes first.
type MergeHeapEntry = Reverse<((u32, i64, ContentHash), usize)>;

/// Profiles and sample rows of one input, in order.
struct MergeInput {
    profiles: std::vec::IntoIter<ProfileRow>,
    table: Arc<TableReader>,
    groups: std::ops::Range<usize>,
    columns: Option<(SampleReaders, usize)>,
    /// Timestamps of the batch's row group. A row may have many timestamps, so they are read only when
    /// needed.
    moments: Option<TimestampReader>,
    batch: SampleBatch,
    at: usize,
    /// ID range of the input's stacks.
    run: IdRange,
    /// Output stack of each input stack.
    merged: Vec<u32>,
}

impl MergeInput {
    fn open(part: &TenantBlock<'_>, merged: Vec<u32>, profiles: Vec<ProfileRow>) -> Result<Self, BlockError> {
        Ok(MergeInput {
            profiles: profiles.into_iter(),
            table: part.samples_table()?,
            groups: part.row_groups(SAMPLES_FILE).range(),
            columns: None,
            moments: None,
            batch: SampleBatch::default(),
            at: 0,
            run: IdRange(part.meta.nodes.0, part.meta.stacks),
            merged,
        })
    }

    fn peek_profile(&self) -> Option<&ProfileRow> {
        self.profiles.as_slice().first()
    }

    /// Returns the next profile and replaces `of_profile` by its rows.
    fn take_profile(&mut self, of_profile: &mut ProfileRows) -> Result<ProfileRow, BlockError> {
        of_profile.clear();
        let ProfileRows { rows, requests, moments } = of_profile;
        let profile = self.profiles.next().expect("the caller peeked");
        let mut missing = profile.samples as usize;
        rows.reserve(missing.min(READ_AHEAD_ROWS));
        while missing > 0 {
            if self.at == self.batch.stacks.len() {
                self.refill()?;
            }
            let count = missing.min(self.batch.stacks.len() - self.at);
            let range = self.at..self.at + count;
            for (&stack, &value) in
                self.batch.stacks[range.clone()].iter().zip(&self.batch.values[range.clone()])
            {
                let place = (stack as u32).wrapping_sub(self.run.0) as usize;
                let Some(&stack) = self.merged.get(place) else { return Err(unknown_stack_error(stack)) };
                rows.push(SampleRow { stack, request: 0, value });
            }
            if let Some(named) = self.batch.requests.get(range) {
                let first = rows.len() - count;
                let pairs = rows[first..].iter_mut().zip(named);
                pairs.for_each(|(row, &request)| row.request = requests.intern(request));
            }
            if let Some(reader) = &mut self.moments {
                let mut row = rows.len() - count;
                reader.read(count, |times| {
                    moments.add(row, times.iter().copied());
                    row += 1;
                    Ok(())
                })?;
            }
            self.at += count;
            missing -= count;
        }
        Ok(profile)
    }

    fn refill(&mut self) -> Result<(), BlockError> {
        let (mut columns, left) = match self.columns.take() {
            Some(columns) => columns,
            None => {
                let group =
                    self.groups.next().ok_or_else(|| BlockError::corrupt(SAMPLES_FILE, "too few rows"))?;
                self.moments = TimestampReader::open(&self.table, group)?;
                let requests = self.table.columns().requests;
                (SampleReaders::open(&self.table, group, requests)?, self.table.rows(group)?)
            }
        };
        let count = READ_AHEAD_ROWS.min(left);
        columns.read(count, &mut self.batch)?;
        self.at = 0;
        if left > count {
            self.columns = Some((columns, left - count));
        }
        Ok(())
    }
}
