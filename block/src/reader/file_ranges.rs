//! Byte ranges that a query needs of a block, so that a client fetches no others.

use std::collections::BTreeSet;
use std::ops::Range;

use athanor_profile::store_interface::source::SourceReadSize;

use crate::format::error::BlockError;
use crate::format::meta::{
    FUNCTIONS_FILE, INDEX_FILE, LOCATIONS_FILE, MAPPINGS_FILE, PAGE_BYTES, PARQUET_FILES, PROFILES_FILE,
    ROLLUP_FILE, SAMPLES_FILE, SERIES_FILE, STACKS_FILE,
};
use crate::reader::read::{Block, ProfileProjection, TenantBlock};
use crate::reader::source::{TenantBlockSource, sample_ranges};

/// Byte ranges by file.
pub type FileRanges = Vec<(&'static str, Range<u64>)>;

/// Gap up to which pages are fetched together, because a further request costs more than the bytes in
/// between.
pub const MAX_FETCH_GAP_BYTES: u64 = PAGE_BYTES as u64;
/// Size up to which a file is fetched whole.
const SMALL_FILE_BYTES: u64 = PAGE_BYTES as u64;
/// Assumed size of a footer, which is rarely exceeded.
const FOOTER_TAIL_BYTES: u64 = PAGE_BYTES as u64 / 4;

/// Returns the range at the end of a file of the given length that holds its footer.
pub fn footer_range(length: u64) -> Range<u64> {
    length.saturating_sub(FOOTER_TAIL_BYTES)..length
}

/// Rounds ranges to whole pages, which have checksums, and joins pages close to each other. `length` returns
/// the length of a file.
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

/// Returns the files that a merge reads.
fn merged_files() -> impl Iterator<Item = &'static str> {
    PARQUET_FILES.into_iter().filter(|file| *file != INDEX_FILE)
}

fn is_wanted_part(part: &TenantBlock<'_>, tenants: Option<&BTreeSet<String>>) -> bool {
    tenants.is_none_or(|tenants| tenants.contains(&part.meta.tenant))
}

impl Block {
    /// Returns the page-aligned byte ranges of the file tails that `meta.json` does not hold, for a merge. A file
    /// with a tail of unknown length, in a block of format 1, is returned whole.
    pub fn tail_ranges(&self) -> Result<FileRanges, BlockError> {
        let mut extents = FileRanges::new();
        for file in merged_files() {
            let of_file = self.meta().file(file)?;
            if of_file.tail.is_empty() {
                let tail_bytes = if of_file.tail_bytes == 0 { of_file.bytes } else { of_file.tail_bytes };
                extents.push((file, of_file.bytes.saturating_sub(tail_bytes)..of_file.bytes));
            }
        }
        Ok(self.align_ranges(&extents))
    }

    /// Returns the page-aligned byte ranges that a merge of some tenants reads, those of all tenants for none. The
    /// [tails](Self::tail_ranges) must be present and are included. So a client can fetch only these ranges into
    /// sparse files. `index.parquet` is not read, but its length is checked.
    pub fn byte_ranges_of(&self, tenants: Option<&BTreeSet<String>>) -> Result<FileRanges, BlockError> {
        let mut extents = self.tail_ranges()?;
        for part in self.tenant_blocks().filter(|part| is_wanted_part(part, tenants)) {
            for file in merged_files() {
                extents.extend(part.bytes_of_file(file)?);
            }
        }
        Ok(self.align_ranges(&extents))
    }

    /// Returns the page-aligned byte ranges that a merge reads of a block in
    /// [`MergeOutput::compared`](crate::MergeOutput::compared): the headers of the tenants' profiles. The
    /// [tails](Self::tail_ranges) must be present.
    pub fn byte_ranges_of_ids(&self, tenants: Option<&BTreeSet<String>>) -> Result<FileRanges, BlockError> {
        let mut extents = FileRanges::new();
        for part in self.tenant_blocks().filter(|part| is_wanted_part(part, tenants)) {
            extents.extend(part.bytes_of_file(PROFILES_FILE)?);
        }
        Ok(self.align_ranges(&extents))
    }

    fn align_ranges(&self, extents: &[(&'static str, Range<u64>)]) -> FileRanges {
        align_to_pages(extents, |file| self.meta().file(file).map_or(0, |of_file| of_file.bytes))
    }
}

/// Rows of selected profiles that a query needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowProjection {
    /// Sums by stack. For whole series the roll-up has them.
    pub totals: bool,
    /// Sums by stack for each of several groups of profiles.
    pub groups: bool,
    /// Individual rows of the profiles.
    pub each: bool,
    /// Span context of each row.
    pub requests: bool,
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
    /// Returns the byte ranges of the series. The footer of the file must be present.
    pub fn bytes_of_series(&self) -> Result<FileRanges, BlockError> {
        self.tenant_block().bytes_of_file(SERIES_FILE)
    }

    /// Returns the byte ranges of the profiles. The footer of the file must be present.
    pub fn bytes_of_profiles(&self, columns: ProfileProjection) -> Result<FileRanges, BlockError> {
        let part = self.tenant_block();
        part.bytes_of_columns(PROFILES_FILE, columns.column_indexes(part.is_downsampled()))
    }

    /// Returns the byte ranges of the names. The footers of the files must be present.
    pub fn bytes_of_names(&self) -> Result<FileRanges, BlockError> {
        let part = self.tenant_block();
        let files =
            [STACKS_FILE, LOCATIONS_FILE, FUNCTIONS_FILE, MAPPINGS_FILE].map(|file| part.bytes_of_file(file));
        Ok(files.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Returns the size of the fetch that merges some profiles without a cache. `whole` states that they are
    /// all profiles of their time. Footers, series and profiles must be present.
    pub(crate) fn bytes_of_merge(&self, picked: &[u32], whole: bool) -> Result<SourceReadSize, BlockError> {
        let meta = self.tenant_block().block.meta();
        let length = |file: &str| meta.file(file).map_or(0, |of| of.bytes);
        let bytes = |mut extents: FileRanges, files: &[&'static str]| {
            // Usually `meta.json` holds the footers.
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

    /// Returns the byte ranges of the rows of profiles at ascending indexes. Footers and profiles must be
    /// present.
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
