//! Which bytes of a block a question needs: so that whoever fetches them fetches no others.

use std::ops::Range;

use athanor_profile::source::SourceReadSize;

use crate::error::BlockError;
use crate::folder::PAGE_BYTES;
use crate::meta::{
    FUNCTIONS_FILE, LOCATIONS_FILE, MAPPINGS_FILE, PROFILES_FILE, ROLLUP_FILE, SAMPLES_FILE, SERIES_FILE,
    STACKS_FILE,
};
use crate::read::TenantBlock;
use crate::source::{TenantBlockSource, sample_ranges};

/// Bytes of files.
pub type FileRanges = Vec<(&'static str, Range<u64>)>;

/// Pages that are so near to each other are fetched together: a request takes longer than what lies between.
pub const MAX_FETCH_GAP_BYTES: u64 = PAGE_BYTES as u64;
/// A file that is no longer is fetched whole.
const SMALL_FILE_BYTES: u64 = PAGE_BYTES as u64;
/// A footer is rarely longer.
const FOOTER_TAIL_BYTES: u64 = PAGE_BYTES as u64 / 4;

/// The end of a file of that length, where its footer is.
pub fn footer_range(length: u64) -> Range<u64> {
    length.saturating_sub(FOOTER_TAIL_BYTES)..length
}

/// What is fetched for some ranges: whole pages, since those have checksums, and those near each other as one. `length`
/// is that of a file.
pub fn align_to_pages(extents: &[(&'static str, Range<u64>)], length: impl Fn(&str) -> u64) -> FileRanges {
    let page = PAGE_BYTES as u64;
    let mut pages: FileRanges = extents
        .iter()
        .filter(|(_, range)| !range.is_empty())
        .map(|(file, range)| {
            let length = length(file);
            let end = range.end.div_ceil(page).saturating_mul(page).min(length);
            let whole = if length <= SMALL_FILE_BYTES { 0..length } else { range.start / page * page..end };
            (*file, whole)
        })
        .filter(|(_, range)| !range.is_empty())
        .collect();
    pages.sort_unstable_by_key(|(file, range)| (*file, range.start));
    let mut joined: FileRanges = Vec::new();
    for (file, range) in pages {
        match joined.last_mut() {
            Some((last, before))
                if *last == file && range.start <= before.end.saturating_add(MAX_FETCH_GAP_BYTES) =>
            {
                before.end = before.end.max(range.end);
            }
            _ => joined.push((file, range)),
        }
    }
    joined
}

/// What is wanted of each profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileProjection {
    /// Of which series it is, when it was taken, and how many rows it has.
    Brief,
    /// The sum of its values.
    Totals,
    /// Everything but that sum.
    All,
}

/// What is wanted of the rows of some profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowProjection {
    /// Sums by stack: of whole series they are known.
    pub totals: bool,
    /// Sums by stack of each of several groups of them.
    pub groups: bool,
    /// The rows themselves.
    pub each: bool,
    /// To which request each belongs.
    pub requests: bool,
}

impl ProfileProjection {
    fn column_indexes(self) -> &'static [usize] {
        match self {
            ProfileProjection::Brief => &[0, 1, 2, 6],
            ProfileProjection::Totals => &[7],
            ProfileProjection::All => &[0, 1, 2, 3, 4, 5, 6],
        }
    }
}

impl TenantBlock<'_> {
    fn bytes_of_columns(&self, file: &'static str, columns: &[usize]) -> Result<FileRanges, BlockError> {
        let table = self.block.open_table(file)?;
        let mut extents = FileRanges::new();
        for group in self.row_groups(file).range() {
            let all = 0..table.rows(group)?;
            for &column in columns {
                let bytes = table.bytes_of_rows(group, column, std::slice::from_ref(&all))?;
                extents.extend(bytes.into_iter().map(|range| (file, range)));
            }
        }
        Ok(extents)
    }

    fn bytes_of_file(&self, file: &'static str) -> Result<FileRanges, BlockError> {
        let (range, _) = self.block.open_table(file)?.group_range(self.row_groups(file))?;
        Ok(if range.is_empty() { Vec::new() } else { vec![(file, range)] })
    }

    fn bytes_of_rollup(&self, wanted: impl Fn(u32) -> bool) -> Result<FileRanges, BlockError> {
        let table = self.block.open_table(ROLLUP_FILE)?;
        let mut extents = FileRanges::new();
        for (group, rows) in self.plan_rollup_scan(wanted)? {
            for column in 0..3 {
                let bytes = table.bytes_of_rows(group, column, &rows)?;
                extents.extend(bytes.into_iter().map(|range| (ROLLUP_FILE, range)));
            }
        }
        Ok(extents)
    }

    fn bytes_of_samples(&self, rows: &[Range<u64>], requests: bool) -> Result<FileRanges, BlockError> {
        let table = self.samples_table()?;
        let of_requests = table.columns().requests;
        let last = 2 + usize::from(of_requests.span) + usize::from(of_requests.trace);
        let columns = 1..=if requests { last } else { 2 };
        let mut extents = FileRanges::new();
        for (group, rows) in self.plan_scan(&table, rows)? {
            for column in columns.clone() {
                let bytes = table.bytes_of_rows(group, column, &rows)?;
                extents.extend(bytes.into_iter().map(|range| (SAMPLES_FILE, range)));
            }
        }
        Ok(extents)
    }
}

impl TenantBlockSource {
    /// The bytes of its series. The footer of their file must be there.
    pub fn bytes_of_series(&self) -> Result<FileRanges, BlockError> {
        self.tenant_block().bytes_of_file(SERIES_FILE)
    }

    /// The bytes of its profiles. The footer of their file must be there.
    pub fn bytes_of_profiles(&self, columns: ProfileProjection) -> Result<FileRanges, BlockError> {
        self.tenant_block().bytes_of_columns(PROFILES_FILE, columns.column_indexes())
    }

    /// The bytes of its names. The footers of their files must be there.
    pub fn bytes_of_names(&self) -> Result<FileRanges, BlockError> {
        let part = self.tenant_block();
        let files =
            [STACKS_FILE, LOCATIONS_FILE, FUNCTIONS_FILE, MAPPINGS_FILE].map(|file| part.bytes_of_file(file));
        Ok(files.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// What a merge of some profiles fetches, where nothing is kept of the block; `whole` says whether they are all of their
    /// time. Footers, series and profiles must be there.
    pub(crate) fn bytes_of_merge(&self, picked: &[u32], whole: bool) -> Result<SourceReadSize, BlockError> {
        let meta = self.tenant_block().block.meta();
        let length = |file: &str| meta.file(file).map_or(0, |of| of.bytes);
        let bytes = |mut extents: FileRanges, files: &[&'static str]| {
            // Mostly meta.json has them.
            let footers = files.iter().filter(|file| meta.file(file).is_ok_and(|of| of.tail.is_empty()));
            extents.extend(footers.map(|&file| (file, footer_range(length(file)))));
            align_to_pages(&extents, length).iter().map(|(_, range)| range.end - range.start).sum::<u64>()
        };
        let mut index = self.bytes_of_series()?;
        index.extend(self.bytes_of_profiles(ProfileProjection::Brief)?);
        let (rows, names) = match picked.is_empty() {
            true => Default::default(),
            false => {
                let totals = RowProjection { totals: true, ..RowProjection::default() };
                (self.bytes_of_rows(picked, totals)?, self.bytes_of_names()?)
            }
        };
        Ok(SourceReadSize {
            is_block: true,
            index: self.tenant_block().block.bytes_of_meta()? + bytes(index, &[SERIES_FILE, PROFILES_FILE]),
            rows: bytes(rows, if whole { &[ROLLUP_FILE] } else { &[ROLLUP_FILE, SAMPLES_FILE] }),
            names: bytes(names, &[STACKS_FILE, LOCATIONS_FILE, FUNCTIONS_FILE, MAPPINGS_FILE]),
        })
    }

    /// The bytes of the rows of some profiles, given by their places, ascending. Footers and profiles must be there.
    pub fn bytes_of_rows(&self, picked: &[u32], wanted: RowProjection) -> Result<FileRanges, BlockError> {
        let part = self.tenant_block();
        let profiles = self.brief_profile_rows()?;
        let whole = self.fully_selected_series(profiles, picked);
        let mut extents = FileRanges::new();
        let is_whole = |series: u32| whole.get(series as usize).copied().flatten() == Some(true);
        let all_whole = whole.iter().all(|whole| *whole != Some(false));
        if wanted.totals && (all_whole || wanted.groups) {
            extents.extend(part.bytes_of_rollup(is_whole)?);
        }
        if wanted.each || wanted.totals && !all_whole {
            extents.extend(part.bytes_of_samples(&sample_ranges(profiles, picked)?, wanted.requests)?);
        }
        Ok(extents)
    }
}
