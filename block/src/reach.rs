//! Which bytes of a block a question needs: so that whoever fetches them fetches no others.

use std::ops::Range;

use athanor_profile::source::Extent;

use crate::error::BlockError;
use crate::folder::PAGE;
use crate::meta::{FUNCTIONS, LOCATIONS, MAPPINGS, PROFILES, ROLLUP, SAMPLES, SERIES, STACKS};
use crate::read::Part;
use crate::source::{PartSource, ranges};

/// Bytes of files.
pub type Extents = Vec<(&'static str, Range<u64>)>;

/// Pages that are so near to each other are fetched together: a request takes longer than what lies between.
pub const NEAR: u64 = PAGE as u64;
/// A file that is no longer is fetched whole.
const SMALL: u64 = PAGE as u64;
/// A footer is rarely longer.
const TAIL: u64 = PAGE as u64 / 4;

/// The end of a file of that length, where its footer is.
pub fn tail_of(length: u64) -> Range<u64> {
    length.saturating_sub(TAIL)..length
}

/// What is fetched for some ranges: whole pages, since those have checksums, and those near each other as one. `length`
/// is that of a file.
pub fn in_pages(extents: &[(&'static str, Range<u64>)], length: impl Fn(&str) -> u64) -> Extents {
    let page = PAGE as u64;
    let mut pages: Extents = extents
        .iter()
        .filter(|(_, range)| !range.is_empty())
        .map(|(file, range)| {
            let length = length(file);
            let end = range.end.div_ceil(page).saturating_mul(page).min(length);
            let whole = if length <= SMALL { 0..length } else { range.start / page * page..end };
            (*file, whole)
        })
        .filter(|(_, range)| !range.is_empty())
        .collect();
    pages.sort_unstable_by_key(|(file, range)| (*file, range.start));
    let mut joined: Extents = Vec::new();
    for (file, range) in pages {
        match joined.last_mut() {
            Some((last, before)) if *last == file && range.start <= before.end.saturating_add(NEAR) => {
                before.end = before.end.max(range.end);
            }
            _ => joined.push((file, range)),
        }
    }
    joined
}

/// What is wanted of each profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileColumns {
    /// Of which series it is, when it was taken, and how many rows it has.
    Brief,
    /// The sum of its values.
    Totals,
    /// Everything but that sum.
    All,
}

/// What is wanted of the rows of some profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Sums by stack: of whole series they are known.
    pub totals: bool,
    /// Sums by stack of each of several groups of them.
    pub groups: bool,
    /// The rows themselves.
    pub each: bool,
    /// To which request each belongs.
    pub requests: bool,
}

impl ProfileColumns {
    fn places(self) -> &'static [usize] {
        match self {
            ProfileColumns::Brief => &[0, 1, 2, 6],
            ProfileColumns::Totals => &[7],
            ProfileColumns::All => &[0, 1, 2, 3, 4, 5, 6],
        }
    }
}

impl Part<'_> {
    fn bytes_of_columns(&self, file: &'static str, columns: &[usize]) -> Result<Extents, BlockError> {
        let table = self.block.table(file)?;
        let mut extents = Extents::new();
        for group in self.groups(file).range() {
            let all = 0..table.rows(group)?;
            for &column in columns {
                let bytes = table.bytes_of_rows(group, column, std::slice::from_ref(&all))?;
                extents.extend(bytes.into_iter().map(|range| (file, range)));
            }
        }
        Ok(extents)
    }

    fn bytes_of_file(&self, file: &'static str) -> Result<Extents, BlockError> {
        let (range, _) = self.block.table(file)?.extent(self.groups(file))?;
        Ok(if range.is_empty() { Vec::new() } else { vec![(file, range)] })
    }

    fn bytes_of_rollup(&self, wanted: impl Fn(u32) -> bool) -> Result<Extents, BlockError> {
        let table = self.block.table(ROLLUP)?;
        let mut extents = Extents::new();
        for (group, rows) in self.rollup_rows(wanted)? {
            for column in 0..3 {
                let bytes = table.bytes_of_rows(group, column, &rows)?;
                extents.extend(bytes.into_iter().map(|range| (ROLLUP, range)));
            }
        }
        Ok(extents)
    }

    fn bytes_of_samples(&self, rows: &[Range<u64>], requests: bool) -> Result<Extents, BlockError> {
        let table = self.samples()?;
        let of_requests = table.columns().requests;
        let last = 2 + usize::from(of_requests.span) + usize::from(of_requests.trace);
        let columns = 1..=if requests { last } else { 2 };
        let mut extents = Extents::new();
        for (group, rows) in self.jobs(&table, rows)? {
            for column in columns.clone() {
                let bytes = table.bytes_of_rows(group, column, &rows)?;
                extents.extend(bytes.into_iter().map(|range| (SAMPLES, range)));
            }
        }
        Ok(extents)
    }
}

impl PartSource {
    /// The bytes of its series. The footer of their file must be there.
    pub fn bytes_of_series(&self) -> Result<Extents, BlockError> {
        self.part().bytes_of_file(SERIES)
    }

    /// The bytes of its profiles. The footer of their file must be there.
    pub fn bytes_of_profiles(&self, columns: ProfileColumns) -> Result<Extents, BlockError> {
        self.part().bytes_of_columns(PROFILES, columns.places())
    }

    /// The bytes of its names. The footers of their files must be there.
    pub fn bytes_of_names(&self) -> Result<Extents, BlockError> {
        let part = self.part();
        let files = [STACKS, LOCATIONS, FUNCTIONS, MAPPINGS].map(|file| part.bytes_of_file(file));
        Ok(files.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// What a merge of some profiles fetches, where nothing is kept of the block; `whole` says whether they are all of their
    /// time. Footers, series and profiles must be there.
    pub(crate) fn bytes_of_merge(&self, picked: &[u32], whole: bool) -> Result<Extent, BlockError> {
        let meta = self.part().block.meta();
        let length = |file: &str| meta.file(file).map_or(0, |of| of.bytes);
        let bytes = |mut extents: Extents, files: &[&'static str]| {
            // Mostly meta.json has them.
            let footers = files.iter().filter(|file| meta.file(file).is_ok_and(|of| of.tail.is_empty()));
            extents.extend(footers.map(|&file| (file, tail_of(length(file)))));
            in_pages(&extents, length).iter().map(|(_, range)| range.end - range.start).sum::<u64>()
        };
        let mut index = self.bytes_of_series()?;
        index.extend(self.bytes_of_profiles(ProfileColumns::Brief)?);
        let (rows, names) = match picked.is_empty() {
            true => Default::default(),
            false => {
                let totals = Rows { totals: true, ..Rows::default() };
                (self.bytes_of_rows(picked, totals)?, self.bytes_of_names()?)
            }
        };
        Ok(Extent {
            is_block: true,
            index: self.part().block.bytes_of_meta()? + bytes(index, &[SERIES, PROFILES]),
            rows: bytes(rows, if whole { &[ROLLUP] } else { &[ROLLUP, SAMPLES] }),
            names: bytes(names, &[STACKS, LOCATIONS, FUNCTIONS, MAPPINGS]),
        })
    }

    /// The bytes of the rows of some profiles, given by their places, ascending. Footers and profiles must be there.
    pub fn bytes_of_rows(&self, picked: &[u32], wanted: Rows) -> Result<Extents, BlockError> {
        let part = self.part();
        let profiles = self.brief()?;
        let whole = self.whole_series(profiles, picked);
        let mut extents = Extents::new();
        let is_whole = |series: u32| whole.get(series as usize).copied().flatten() == Some(true);
        let all_whole = whole.iter().all(|whole| *whole != Some(false));
        if wanted.totals && (all_whole || wanted.groups) {
            extents.extend(part.bytes_of_rollup(is_whole)?);
        }
        if wanted.each || wanted.totals && !all_whole {
            extents.extend(part.bytes_of_samples(&ranges(profiles, picked)?, wanted.requests)?);
        }
        Ok(extents)
    }
}
