//! Writing a block from profiles in memory, in whatever order they are held.
//!
//! Rows are asked for twice: once to count how often each stack occurs, then profile by profile in the block's order.

use athanor_profile::Request;
use athanor_profile::series::{ProfileRow, Series};
use athanor_profile::source::{MemorySource, Source, SourceError};
use athanor_profile::symbols::NONE;

use crate::duplicates::DuplicateIds;
use crate::error::BlockError;
use crate::folder::Folder;
use crate::meta::{Meta, Origin};
use crate::request::{OptionalColumns, ProfileRows, RequestColumns, Row};
use crate::write::Writer;

/// A row of a profile in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldRow<'h> {
    /// Its stack in the source.
    pub stack: u32,
    /// Id of its span, 0 for none.
    pub span: u64,
    /// Id of its trace, 0 for none.
    pub trace: u128,
    /// Its value.
    pub value: i64,
    /// When it was measured, Unix nanoseconds, where that is known.
    pub moments: &'h [i64],
}

/// One tenant's profiles in memory: a source that knows which request each row belongs to.
pub trait Held: Source {
    /// The rows of some profiles, given by their places, ascending. A profile may have several rows of equal stack;
    /// those of equal stack and request are added up in the block.
    fn each_row(&self, picked: &[u32], each: &mut EachRow<'_>) -> Result<(), SourceError>;
}

/// Takes a row and the place of its profile.
pub type EachRow<'a> = dyn FnMut(u32, HeldRow<'_>) + 'a;

impl Held for MemorySource {
    fn each_row(&self, picked: &[u32], each: &mut EachRow<'_>) -> Result<(), SourceError> {
        self.rows_of_requests(picked, &mut |place, stacks, values, requests| {
            for ((&stack, &value), &Request { span, trace }) in stacks.iter().zip(values).zip(requests) {
                each(place, HeldRow { stack, span, trace, value, moments: &[] });
            }
        })
    }
}

/// Writes a block into an empty folder. Tenants come ascending, each once; series and profiles in any order. Profiles
/// without rows are left out, and so is what then has no profile. Of profiles of one id a tenant keeps one, in whichever series the
/// copies are [INV-20].
pub fn write_held<'h>(
    folder: &dyn Folder,
    id: &str,
    origin: Option<Origin>,
    parts: impl Iterator<Item = (&'h str, &'h dyn Held)>,
) -> Result<Meta, BlockError> {
    let mut kept = Vec::new();
    let mut columns = OptionalColumns::default();
    let mut last = None;
    for (tenant, held) in parts {
        if last.is_some_and(|last| last >= tenant) {
            return Err(BlockError::Meta { why: format!("tenant {tenant:?} comes after {last:?}") });
        }
        last = Some(tenant);
        let part = Kept::of(held)?;
        columns = columns.or(part.columns);
        if !part.profiles.is_empty() {
            kept.push((tenant, part));
        }
    }
    let mut writer = Writer::create(folder, id, columns)?;
    writer.cut_from(origin);
    for (tenant, part) in kept {
        part.write(&mut writer, tenant)?;
    }
    writer.finish()
}

/// What of a tenant's profiles goes into the block, in its order.
struct Kept<'h> {
    held: &'h dyn Held,
    series: Vec<Series>,
    /// Profiles with their places in the source.
    profiles: Vec<(ProfileRow, u32)>,
    /// Rows of each stack of the source.
    popularity: Vec<u64>,
    columns: OptionalColumns,
}

impl<'h> Kept<'h> {
    fn of(held: &'h dyn Held) -> Result<Self, BlockError> {
        let (all, profiles) = (held.series()?, held.profiles()?);
        let places = places_without_duplicates(&all, &profiles)?;
        let mut rows = vec![0u64; profiles.len()];
        let mut popularity = Vec::new();
        let mut columns = OptionalColumns::default();
        held.each_row(&places, &mut |place, row| {
            if popularity.len() <= row.stack as usize {
                popularity.resize(row.stack as usize + 1, 0);
            }
            popularity[row.stack as usize] += 1;
            rows[place as usize] += 1;
            let requests = RequestColumns { span: row.span != 0, trace: row.trace != 0 };
            columns = columns.or(OptionalColumns { requests, moments: !row.moments.is_empty() });
        })?;
        let with_rows = places.into_iter().filter(|&place| rows[place as usize] > 0);
        let mut profiles: Vec<(ProfileRow, u32)> =
            with_rows.map(|place| (profiles[place as usize], place)).collect();
        let series = order_series(&all, &mut profiles)?;
        profiles.sort_unstable_by_key(|(row, _)| row.order());
        Ok(Kept { held, series, profiles, popularity, columns })
    }

    fn write(self, writer: &mut Writer<'_>, tenant: &str) -> Result<(), BlockError> {
        let Kept { held, series, profiles, popularity, .. } = self;
        let mut begun = None;
        let mut writer = Some(writer);
        held.names(&mut |dictionary, stacks| {
            let Some(writer) = writer.take() else { return };
            let mut by_stack = vec![0u64; dictionary.stacks.len()];
            for (&stack, &rows) in stacks.iter().zip(&popularity) {
                by_stack[stack as usize] += rows;
            }
            let part = writer.tenant(tenant, &series, dictionary, &by_stack);
            begun = Some(part.map(|part| {
                let numbers: Vec<u32> = stacks.iter().map(|&stack| part.number(stack)).collect();
                (part, numbers)
            }));
        })?;
        let (mut part, numbers) = begun.unwrap_or_else(|| Err(damaged("it has no names")))?;
        let mut has_names = true;
        let mut of_profile = ProfileRows::default();
        for (profile, place) in profiles {
            of_profile.clear();
            let ProfileRows { rows, requests, moments } = &mut of_profile;
            held.each_row(&[place], &mut |_, HeldRow { stack, span, trace, value, moments: times }| {
                let number = numbers.get(stack as usize).copied().filter(|&number| number != NONE);
                has_names &= number.is_some();
                let request = requests.intern(Request { span, trace });
                moments.add(rows.len(), times.iter().copied());
                rows.push(Row { stack: number.unwrap_or_default(), request, value });
            })?;
            if !has_names {
                return Err(damaged("rows are of stacks that have no name, or change while they are read"));
            }
            part.profile(profile, &mut of_profile)?;
        }
        part.finish()
    }
}

/// The places of the profiles that are kept, ascending.
fn places_without_duplicates(all: &[Series], profiles: &[ProfileRow]) -> Result<Vec<u32>, BlockError> {
    // A copy without rows must not take the place of one that has some.
    let has_rows = |row: &&ProfileRow| row.samples > 0;
    let with_rows = || (0u32..).zip(profiles).filter(|(_, row)| has_rows(row));
    if DuplicateIds::find(profiles.iter().filter(has_rows)).is_empty() {
        return Ok(with_rows().map(|(place, _)| place).collect());
    }
    // Copies are compared by the order of their series, which is not that of the source.
    let mut order: Vec<u32> = (0..all.len() as u32).collect();
    order.sort_unstable_by(|&left, &right| all[left as usize].cmp(&all[right as usize]));
    let mut ranks = vec![0; all.len()];
    (0u32..).zip(&order).for_each(|(rank, &place)| ranks[place as usize] = rank);
    let ranked = |(place, row): (u32, &ProfileRow)| -> Result<(u32, ProfileRow), BlockError> {
        let rank = ranks.get(row.series as usize).ok_or_else(unknown_series)?;
        Ok((place, ProfileRow { series: *rank, ..*row }))
    };
    let ranked = with_rows().map(ranked).collect::<Result<Vec<_>, _>>()?;
    let mut duplicates = DuplicateIds::find(ranked.iter().map(|(_, row)| row));
    Ok(ranked.iter().filter(|(_, row)| duplicates.take(row)).map(|(place, _)| *place).collect())
}

fn unknown_series() -> BlockError {
    damaged("a profile is of a series that is not there")
}

/// The series that have a profile, in order; profiles then name them by their new places.
fn order_series(all: &[Series], profiles: &mut [(ProfileRow, u32)]) -> Result<Vec<Series>, BlockError> {
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
