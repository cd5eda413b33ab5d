//! Which bytes of a block a question needs: so that whoever fetches them fetches no others.

use std::ops::Range;

use crate::error::BlockError;
use crate::meta::{FUNCTIONS, LOCATIONS, MAPPINGS, PROFILES, ROLLUP, SAMPLES, SERIES, STACKS};
use crate::read::Part;
use crate::source::{PartSource, ranges};

/// Bytes of files.
pub type Extents = Vec<(&'static str, Range<u64>)>;

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
        let of_requests = table.requests();
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
