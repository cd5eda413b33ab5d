//! What a question would read: asked before it is asked.

use std::collections::BTreeSet;

use athanor_profile::ProfileSource;
use athanor_profile::hash::ContentHash;
use athanor_profile::source::SourceReadSize;

use crate::partial::MAP_ENTRY_OVERHEAD_BYTES;
use crate::profile_query::{ProfileQueryError, ProfileSelection};
use crate::run::{MatchedProfiles, series_labels};

/// What a merge of the profiles that are meant would read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryCost {
    /// Of what lies in memory.
    pub heads: SourceCost,
    /// Of what lies in blocks.
    pub blocks: SourceCost,
}

/// What is read of sources of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCost {
    /// How many of them may hold something.
    pub sources: u64,
    /// The series that are meant, by their labels: some may lie in several sources.
    pub series: BTreeSet<ContentHash>,
    /// How many profiles are meant.
    pub profiles: u64,
    /// Their rows.
    pub samples: u64,
    /// Bytes of series and profiles.
    pub index_bytes: u64,
    /// Bytes of rows and their sums.
    pub row_bytes: u64,
    /// Bytes of names.
    pub name_bytes: u64,
}

impl SourceCost {
    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.index_bytes.saturating_add(self.row_bytes).saturating_add(self.name_bytes)
    }

    /// What is counted, by place on the wire.
    pub(crate) fn to_numbers(&self) -> [u64; 6] {
        let SourceCost { sources, series: _, profiles, samples, index_bytes, row_bytes, name_bytes } = *self;
        [sources, profiles, samples, index_bytes, row_bytes, name_bytes]
    }

    pub(crate) fn from_numbers(series: BTreeSet<ContentHash>, numbers: [u64; 6]) -> Self {
        let [sources, profiles, samples, index_bytes, row_bytes, name_bytes] = numbers;
        SourceCost { sources, series, profiles, samples, index_bytes, row_bytes, name_bytes }
    }

    fn add(mut self, mut other: SourceCost) -> SourceCost {
        let one = self.to_numbers();
        let two = other.to_numbers();
        let mut series = std::mem::take(&mut self.series);
        series.append(&mut other.series);
        SourceCost::from_numbers(series, std::array::from_fn(|place| one[place].saturating_add(two[place])))
    }
}

impl QueryCost {
    /// Adds what other sources have.
    pub(crate) fn merge(self, other: QueryCost) -> QueryCost {
        QueryCost { heads: self.heads.add(other.heads), blocks: self.blocks.add(other.blocks) }
    }
    /// How many entries it takes.
    pub(crate) fn entry_count(&self) -> usize {
        self.heads.series.len() + self.blocks.series.len()
    }
    /// About how many bytes it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entry_count() * (MAP_ENTRY_OVERHEAD_BYTES + size_of::<ContentHash>())
    }
}

/// What a merge of this source would read. Whether something is meant is found out by reading series and profiles, so
/// these are read anyhow.
pub(crate) fn estimate_cost(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    source: &dyn ProfileSource,
) -> Result<QueryCost, ProfileQueryError> {
    let whole = picked.profiles.iter().all(|profile| selection.time.contains(profile.time));
    let SourceReadSize { is_block, index, rows, names } = source.read_size(&picked.places, whole)?;
    let meant = picked.rows();
    let samples = meant.map(|row| u64::from(row.samples)).sum();
    let size = SourceCost {
        sources: 1,
        series: picked.matched_series().map(|series| series_labels(series).hash()).collect(),
        profiles: picked.places.len() as u64,
        samples,
        index_bytes: index,
        row_bytes: rows,
        name_bytes: names,
    };
    Ok(match is_block {
        true => QueryCost { blocks: size, ..QueryCost::default() },
        false => QueryCost { heads: size, ..QueryCost::default() },
    })
}
