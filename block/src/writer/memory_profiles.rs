//! Writing a block from profiles in memory, in any order.
//!
//! Rows are visited twice: once to count the rows of each stack, then profile by profile in the block's
//! order.

use athanor_profile::SpanContext;
use athanor_profile::data_model::symbols::NO_ENTRY;
use athanor_profile::store_interface::series::{ProfileRow, ProfileSeries};
use athanor_profile::store_interface::source::{MemorySource, ProfileSource, SourceError};

use crate::format::duplicates::DuplicateIds;
use crate::format::error::BlockError;
use crate::format::folder::BlockFolder;
use crate::format::meta::{BlockMeta, BlockOrigin};
use crate::format::sample_rows::{OptionalColumns, ProfileRows, SampleRow, SpanContextColumns};
use crate::writer::write::BlockWriter;

/// Row of a profile in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRow<'h> {
    /// Stack index in the source.
    pub stack: u32,
    /// Span ID, 0 for none.
    pub span: u64,
    /// Trace ID, 0 for none.
    pub trace: u128,
    /// Value of the sample.
    pub value: i64,
    /// Timestamps of the samples in Unix nanoseconds, if known.
    pub moments: &'h [i64],
}

/// Profiles of one tenant in memory: a source with the span context of each row.
pub trait MemoryProfiles: ProfileSource {
    /// Visits the rows of profiles at ascending indexes. A profile may have several rows with equal stack.
    /// Rows with equal stack and span context are summed in the block.
    fn for_each_row(&self, picked: &[u32], each: &mut MemoryRowVisitor<'_>) -> Result<(), SourceError>;
}

/// Visitor that receives a row and the index of its profile.
pub type MemoryRowVisitor<'a> = dyn FnMut(u32, MemoryRow<'_>) + 'a;

impl MemoryProfiles for MemorySource {
    fn for_each_row(&self, picked: &[u32], each: &mut MemoryRowVisitor<'_>) -> Result<(), SourceError> {
        self.visit_span_rows(picked, &mut |place, stacks, values, requests| {
            for ((&stack, &value), &SpanContext { span, trace }) in stacks.iter().zip(values).zip(requests) {
                each(place, MemoryRow { stack, span, trace, value, moments: &[] });
            }
        })
    }
}

/// Writes a block into an empty folder. Tenants come ascending and once; series and profiles in any order.
/// Profiles without rows are left out, and so are series and tenants without profiles. A tenant keeps one
/// profile per ID, in whichever series the copies are [INV-20].
pub fn write_from_memory<'h>(
    folder: &dyn BlockFolder,
    id: &str,
    origin: Option<BlockOrigin>,
    parts: impl Iterator<Item = (&'h str, &'h dyn MemoryProfiles)>,
) -> Result<BlockMeta, BlockError> {
    let mut kept = Vec::new();
    let mut columns = OptionalColumns::default();
    let mut last = None;
    for (tenant, held) in parts {
        if last.is_some_and(|last| last >= tenant) {
            return Err(BlockError::Meta { why: format!("tenant {tenant:?} comes after {last:?}") });
        }
        last = Some(tenant);
        let part = OrderedProfiles::from_memory(held)?;
        columns = columns.union(part.columns);
        if !part.profiles.is_empty() {
            kept.push((tenant, part));
        }
    }
    let mut writer = BlockWriter::create(folder, id, columns)?;
    writer.set_origin(origin);
    for (tenant, part) in kept {
        part.write(&mut writer, tenant)?;
    }
    writer.finish()
}

/// Profiles of a tenant that are written to the block, in its order.
struct OrderedProfiles<'h> {
    held: &'h dyn MemoryProfiles,
    series: Vec<ProfileSeries>,
    /// Profiles with their index in the source.
    profiles: Vec<(ProfileRow, u32)>,
    /// Number of rows of each stack of the source.
    popularity: Vec<u64>,
    columns: OptionalColumns,
}

impl<'h> OrderedProfiles<'h> {
    fn from_memory(held: &'h dyn MemoryProfiles) -> Result<Self, BlockError> {
        let all = held.series()?;
        let profiles = held.profiles()?;
        let places = places_without_duplicates(&all, &profiles)?;
        let mut rows = vec![0u64; profiles.len()];
        let mut popularity = Vec::new();
        let mut columns = OptionalColumns::default();
        held.for_each_row(&places, &mut |place, row| {
            if popularity.len() <= row.stack as usize {
                popularity.resize(row.stack as usize + 1, 0);
            }
            popularity[row.stack as usize] += 1;
            rows[place as usize] += 1;
            let requests = SpanContextColumns { span: row.span != 0, trace: row.trace != 0 };
            columns =
                columns.union(OptionalColumns { requests, moments: !row.moments.is_empty(), counts: false });
        })?;
        let with_rows = places.into_iter().filter(|&place| rows[place as usize] > 0);
        let mut profiles: Vec<(ProfileRow, u32)> =
            with_rows.map(|place| (profiles[place as usize], place)).collect();
        let series = order_series(&all, &mut profiles)?;
        profiles.sort_unstable_by_key(|(row, _)| row.order());
        Ok(OrderedProfiles { held, series, profiles, popularity, columns })
    }

    fn write(self, writer: &mut BlockWriter<'_>, tenant: &str) -> Result<(), BlockError> {
        let OrderedProfiles { held, series, profiles, popularity, .. } = self;
        let mut begun = None;
        let mut writer = Some(writer);
        held.visit_names(&mut |dictionary, stacks| {
            let Some(writer) = writer.take() else { return };
            let mut by_stack = vec![0u64; dictionary.stacks.len()];
            for (&stack, &rows) in stacks.iter().zip(&popularity) {
                by_stack[stack as usize] += rows;
            }
            let part = writer.begin_tenant(tenant, &series, dictionary, &by_stack);
            begun = Some(part.map(|part| {
                let numbers: Vec<u32> = stacks.iter().map(|&stack| part.stack_number(stack)).collect();
                (part, numbers)
            }));
        })?;
        let (mut part, numbers) = begun.unwrap_or_else(|| Err(damaged("source has no names")))?;
        let mut has_names = true;
        let mut of_profile = ProfileRows::default();
        for (profile, place) in profiles {
            of_profile.clear();
            let ProfileRows { rows, requests, moments } = &mut of_profile;
            held.for_each_row(
                &[place],
                &mut |_, MemoryRow { stack, span, trace, value, moments: times }| {
                    let number = numbers.get(stack as usize).copied().filter(|&number| number != NO_ENTRY);
                    has_names &= number.is_some();
                    let request = requests.intern(SpanContext { span, trace });
                    moments.add(rows.len(), times.iter().copied());
                    rows.push(SampleRow { stack: number.unwrap_or_default(), request, value });
                },
            )?;
            if !has_names {
                return Err(damaged("rows have stacks without names, or changed during the read"));
            }
            part.add_profile(profile, &mut of_profile)?;
        }
        part.finish()
    }
}

/// Returns the indexes of the profiles that are kept, ascending.
fn places_without_duplicates(all: &[ProfileSeries], profiles: &[ProfileRow]) -> Result<Vec<u32>, BlockError> {
    // A copy without rows must not replace a copy with rows.
    let with_rows = (0u32..).zip(profiles).filter(|(_, row)| row.samples > 0);
    let mut places: Vec<u32> = with_rows.map(|(place, _)| place).collect();
    let id = |place: u32| profiles[place as usize].id;
    let prefixes = places.iter().map(|&place| DuplicateIds::prefix(id(place)));
    let mut duplicates = DuplicateIds::from_prefixes(prefixes.collect());
    if duplicates.is_empty() {
        return Ok(places);
    }
    // Of copies the least by series and time is kept, so the result does not depend on the order in memory.
    let mut order: Vec<u32> = (0..all.len() as u32).collect();
    order.sort_unstable_by(|&left, &right| all[left as usize].cmp(&all[right as usize]));
    let mut ranks = vec![0u32; all.len()];
    (0u32..).zip(&order).for_each(|(rank, &place)| ranks[place as usize] = rank);
    if places.iter().any(|&place| profiles[place as usize].series as usize >= ranks.len()) {
        return Err(unknown_series());
    }
    places.sort_by_key(|&place| {
        let row = &profiles[place as usize];
        (ranks[row.series as usize], row.time)
    });
    places.retain(|&place| duplicates.take_first(id(place)));
    places.sort_unstable();
    Ok(places)
}

fn unknown_series() -> BlockError {
    damaged("a profile has an unknown series")
}

/// Returns the series that have a profile, in order, and renumbers the series of the profiles.
fn order_series(
    all: &[ProfileSeries],
    profiles: &mut [(ProfileRow, u32)],
) -> Result<Vec<ProfileSeries>, BlockError> {
    let mut places = vec![None; all.len()];
    for (row, _) in profiles.iter() {
        let place = places.get_mut(row.series as usize);
        *place.ok_or_else(unknown_series)? = Some(0);
    }
    let mut order: Vec<usize> = (0..all.len()).filter(|&at| places[at].is_some()).collect();
    order.sort_unstable_by(|&left, &right| all[left].cmp(&all[right]));
    (0u32..).zip(&order).for_each(|(new, &old)| places[old] = Some(new));
    for (row, _) in profiles {
        row.series = places[row.series as usize].unwrap_or_default();
    }
    Ok(order.into_iter().map(|old| all[old].clone()).collect())
}

fn damaged(why: &str) -> BlockError {
    BlockError::Held(SourceError::Damaged(why.into()))
}
