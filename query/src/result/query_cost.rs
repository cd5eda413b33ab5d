//! Cost estimate of a query before it runs.

use std::collections::BTreeSet;

use athanor_profile::encoding::hash::ContentHash;

use crate::result::memory_size::MAP_ENTRY_OVERHEAD_BYTES;

/// Estimated reads of a merge of the selected profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryCost {
    /// Cost of sources in memory.
    pub heads: SourceCost,
    /// Cost of blocks.
    pub blocks: SourceCost,
}

/// Estimated reads of all sources of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCost {
    /// Number of sources that may hold selected profiles.
    pub sources: u64,
    /// Label hashes of the selected series. One series may exist in several sources.
    pub series: BTreeSet<ContentHash>,
    /// Number of selected profiles.
    pub profiles: u64,
    /// Number of sample rows of the selected profiles.
    pub samples: u64,
    /// Bytes of series and profiles.
    pub index_bytes: u64,
    /// Bytes of rows and their sums.
    pub row_bytes: u64,
    /// Bytes of function and file names.
    pub name_bytes: u64,
}

impl SourceCost {
    /// Returns the sum of all bytes.
    pub fn bytes(&self) -> u64 {
        self.index_bytes.saturating_add(self.row_bytes).saturating_add(self.name_bytes)
    }

    /// Returns the counts in wire order.
    pub(crate) fn to_numbers(&self) -> [u64; 6] {
        let SourceCost { sources, series: _, profiles, samples, index_bytes, row_bytes, name_bytes } = *self;
        [sources, profiles, samples, index_bytes, row_bytes, name_bytes]
    }

    pub(crate) fn from_numbers(series: BTreeSet<ContentHash>, numbers: [u64; 6]) -> Self {
        let [sources, profiles, samples, index_bytes, row_bytes, name_bytes] = numbers;
        SourceCost { sources, series, profiles, samples, index_bytes, row_bytes, name_bytes }
    }

    /// Removes what a read of another time range of the same source reads as well.
    fn remove_shared_reads(&mut self, other: &SourceCost) {
        self.sources = self.sources.saturating_sub(other.sources);
        self.index_bytes = self.index_bytes.saturating_sub(other.index_bytes);
        self.name_bytes = self.name_bytes.saturating_sub(other.name_bytes);
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
    /// Adds the cost of other sources.
    pub(crate) fn merge(self, other: QueryCost) -> QueryCost {
        QueryCost { heads: self.heads.add(other.heads), blocks: self.blocks.add(other.blocks) }
    }
    /// Adds the cost of another time range of the same source.
    pub(crate) fn merge_range(self, mut other: QueryCost) -> QueryCost {
        other.heads.remove_shared_reads(&self.heads);
        other.blocks.remove_shared_reads(&self.blocks);
        self.merge(other)
    }
    /// Returns the number of entries for the limit.
    pub(crate) fn entry_count(&self) -> usize {
        self.heads.series.len() + self.blocks.series.len()
    }
    /// Returns the approximate memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entry_count() * (MAP_ENTRY_OVERHEAD_BYTES + size_of::<ContentHash>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_one_source_share_index_and_names() {
        let cost = |series: &[ContentHash], numbers| QueryCost {
            blocks: SourceCost::from_numbers(series.iter().copied().collect(), numbers),
            ..QueryCost::default()
        };
        let first = cost(&[1, 2], [1, 5, 50, 700, 40, 300]);
        let second = cost(&[2, 3], [1, 2, 20, 700, 10, 0]);
        let merged = cost(&[1, 2, 3], [1, 7, 70, 700, 50, 300]);
        assert_eq!(first.clone().merge_range(second.clone()), merged);
        assert_eq!(second.merge_range(first), merged);
    }
}
