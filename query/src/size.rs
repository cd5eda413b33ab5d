//! What a question would read: asked before it is asked.

use std::collections::BTreeSet;

use athanor_profile::Source;
use athanor_profile::hash::Hash;
use athanor_profile::source::Extent;

use crate::ask::{AskError, Selection};
use crate::partial::NODE;
use crate::run::{Picked, series_labels};

/// What a merge of the profiles that are meant would read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Of what lies in memory.
    pub heads: Size,
    /// Of what lies in blocks.
    pub blocks: Size,
}

/// What is read of sources of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// How many of them may hold something.
    pub sources: u64,
    /// The series that are meant, by their labels: some may lie in several sources.
    pub series: BTreeSet<Hash>,
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

impl Size {
    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.index_bytes.saturating_add(self.row_bytes).saturating_add(self.name_bytes)
    }

    /// What is counted, by place on the wire.
    pub(crate) fn numbers(&self) -> [u64; 6] {
        let Size { sources, series: _, profiles, samples, index_bytes, row_bytes, name_bytes } = *self;
        [sources, profiles, samples, index_bytes, row_bytes, name_bytes]
    }

    pub(crate) fn of(series: BTreeSet<Hash>, numbers: [u64; 6]) -> Self {
        let [sources, profiles, samples, index_bytes, row_bytes, name_bytes] = numbers;
        Size { sources, series, profiles, samples, index_bytes, row_bytes, name_bytes }
    }

    fn add(mut self, mut other: Size) -> Size {
        let (one, two) = (self.numbers(), other.numbers());
        let mut series = std::mem::take(&mut self.series);
        series.append(&mut other.series);
        Size::of(series, std::array::from_fn(|place| one[place].saturating_add(two[place])))
    }
}

impl Sizes {
    /// Adds what other sources have.
    pub(crate) fn merge(self, other: Sizes) -> Sizes {
        Sizes { heads: self.heads.add(other.heads), blocks: self.blocks.add(other.blocks) }
    }
    /// How many entries it takes.
    pub(crate) fn entries(&self) -> usize {
        self.heads.series.len() + self.blocks.series.len()
    }
    /// About how many bytes it takes.
    pub(crate) fn memory(&self) -> usize {
        self.entries() * (NODE + size_of::<Hash>())
    }
}

/// What a merge of this source would read. Whether something is meant is found out by reading series and profiles, so
/// these are read anyhow.
pub(crate) fn sizes(picked: &Picked, selection: &Selection, source: &dyn Source) -> Result<Sizes, AskError> {
    let whole = picked.profiles.iter().all(|profile| selection.time.contains(profile.time));
    let Extent { is_block, index, rows, names } = source.extent(&picked.places, whole)?;
    let meant = picked.rows();
    let samples = meant.map(|row| u64::from(row.samples)).sum();
    let size = Size {
        sources: 1,
        series: picked.seen().map(|series| series_labels(series).hash()).collect(),
        profiles: picked.places.len() as u64,
        samples,
        index_bytes: index,
        row_bytes: rows,
        name_bytes: names,
    };
    Ok(match is_block {
        true => Sizes { blocks: size, ..Sizes::default() },
        false => Sizes { heads: size, ..Sizes::default() },
    })
}
