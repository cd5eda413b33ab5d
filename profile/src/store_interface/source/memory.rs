//! In-memory source that is built from decoded profiles.

use std::collections::HashMap;
use std::sync::Arc;

use super::{
    ProfileSource, SourceError, SourceNameVisitor, SourceReadSize, SourceRowVisitor, SourceSpanRowVisitor,
};
use crate::analysis::merge::DictionaryRemapper;
use crate::data_model::labels::Labels;
use crate::data_model::model::{Dictionary, Profile};
use crate::data_model::span_context::{self, SPAN_CONTEXT_LABELS, SpanContext};
use crate::encoding::hash::ContentHash;
use crate::store_interface::series::{ProfileRow, ProfileSeries};

/// Profiles in memory, for a few files and for tests of source readers.
#[derive(Default)]
pub struct MemorySource {
    dictionary: Dictionary,
    series: Vec<ProfileSeries>,
    series_ids: HashMap<ProfileSeries, u32>,
    profiles: Vec<ProfileRow>,
    /// Index of the first row of each profile.
    starts: Vec<usize>,
    stacks: Vec<u32>,
    values: Vec<i64>,
    requests: Vec<SpanContext>,
    /// Sum of the absolute values of all rows, saturated.
    magnitude: u64,
}

impl MemorySource {
    /// Adds a profile: one record for each of its types and each set of text labels on its samples. `id`
    /// distinguishes it from other profiles. Its records get ids derived from type and labels.
    pub fn add(&mut self, labels: &Labels, profile: &Profile, id: ContentHash) {
        let mut splits: HashMap<Labels, Vec<usize>> = HashMap::new();
        for (row, &set) in profile.samples.labels.iter().enumerate() {
            splits.entry(text_labels(&profile.dictionary, set, labels)).or_default().push(row);
        }
        if splits.is_empty() {
            splits.insert(Labels::default(), Vec::new());
        }
        let mut splits: Vec<(Labels, Vec<usize>)> = splits.into_iter().collect();
        splits.sort();
        let header = &profile.header;
        let width = header.types.len();
        // The dictionary is taken out, so that the loop can borrow it and `self`.
        let mut dictionary = std::mem::take(&mut self.dictionary);
        let mut adopter = DictionaryRemapper::new(&profile.dictionary);
        for (split, rows) in &splits {
            let mut of_series = labels.clone();
            split.iter().for_each(|(name, value)| of_series.set(name, value));
            for (column, value_type) in header.types.iter().enumerate() {
                let period_type = header.period_type.clone().unwrap_or_default();
                let series =
                    self.series_of(ProfileSeries::new(of_series.clone(), value_type.clone(), period_type));
                let start = self.stacks.len();
                for &row in rows {
                    let value = profile.samples.values[row * width + column];
                    if value != 0 {
                        let (stack, _) = adopter.adopt(&mut dictionary, profile.samples.stacks[row], 0);
                        self.stacks.push(stack);
                        self.values.push(value);
                        self.magnitude = self.magnitude.saturating_add(value.unsigned_abs());
                        self.requests.push(
                            span_context::span_context_from_labels(
                                &profile.dictionary,
                                profile.samples.labels[row],
                            )
                            .0,
                        );
                    }
                }
                self.starts.push(start);
                self.profiles.push(ProfileRow {
                    series,
                    time: header.time_nanos,
                    id: crate::data_model::identity::record_id(id, value_type, split, 0),
                    duration: header.duration_nanos,
                    period: header.period,
                    samples: (self.stacks.len() - start) as u32,
                });
            }
        }
        self.dictionary = dictionary;
    }

    fn series_of(&mut self, series: ProfileSeries) -> u32 {
        *self.series_ids.entry(series).or_insert_with_key(|series| {
            self.series.push(series.clone());
            self.series.len() as u32 - 1
        })
    }

    fn rows_of(&self, profile: u32) -> std::ops::Range<usize> {
        let start = self.starts[profile as usize];
        start..start + self.profiles[profile as usize].samples as usize
    }
}

/// Returns the text labels of a sample that its series does not have.
fn text_labels(dictionary: &Dictionary, set: u32, of_series: &Labels) -> Labels {
    let text = |id| dictionary.symbols.strings.get(id);
    let of_sample = dictionary.label_sets.get(set).iter().map(|label| (text(label.key), text(label.text)));
    let promoted =
        of_sample.filter(|(name, _)| !SPAN_CONTEXT_LABELS.contains(name) && of_series.get(name).is_none());
    Labels::new(promoted.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

impl ProfileSource for MemorySource {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        Ok(self.series.as_slice().into())
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(self.profiles.as_slice().into())
    }
    fn max_sum(&self, _picked: &[u32]) -> Result<Option<u64>, SourceError> {
        Ok(Some(self.magnitude))
    }
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        let mut totals = vec![0i64; self.dictionary.stacks.len()];
        for row in picked.iter().flat_map(|&profile| self.rows_of(profile)) {
            let total = &mut totals[self.stacks[row] as usize];
            *total = total.wrapping_add(self.values[row]);
        }
        Ok(totals)
    }
    fn visit_rows(&self, picked: &[u32], each: &mut SourceRowVisitor<'_>) -> Result<(), SourceError> {
        for &profile in picked {
            let rows = self.rows_of(profile);
            each(profile, &self.stacks[rows.clone()], &self.values[rows]);
        }
        Ok(())
    }
    fn visit_span_rows(
        &self,
        picked: &[u32],
        each: &mut SourceSpanRowVisitor<'_>,
    ) -> Result<(), SourceError> {
        for &profile in picked {
            let rows = self.rows_of(profile);
            each(profile, &self.stacks[rows.clone()], &self.values[rows.clone()], &self.requests[rows]);
        }
        Ok(())
    }
    fn read_size(&self, picked: &[u32], _whole: bool) -> Result<SourceReadSize, SourceError> {
        let series: usize = self.series.iter().map(ProfileSeries::memory).sum();
        let rows: usize = picked.iter().map(|&profile| self.rows_of(profile).len() * ROW_BYTES).sum();
        Ok(SourceReadSize {
            is_block: false,
            index: (series + size_of_val(&self.profiles[..])) as u64,
            rows: rows as u64,
            names: self.dictionary.memory() as u64,
        })
    }
    fn visit_names(&self, read: &mut SourceNameVisitor<'_>) -> Result<(), SourceError> {
        let same: Vec<u32> = (0..self.dictionary.stacks.len() as u32).collect();
        read(&self.dictionary, &same);
        Ok(())
    }
}

/// Bytes of one row in memory.
const ROW_BYTES: usize = size_of::<u32>() + size_of::<i64>() + size_of::<SpanContext>();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_tree::tree::Tree;
    use crate::generate::arbitrary_profile;

    #[test]
    fn records_hold_what_the_profile_held() {
        for seed in 0..50 {
            let profile = arbitrary_profile(seed);
            let mut source = MemorySource::default();
            source.add(&Labels::default(), &profile, 1);
            for (column, value_type) in profile.header.types.iter().enumerate() {
                let (series, profiles) = (source.series().unwrap(), source.profiles().unwrap());
                let is_it = |row: &ProfileRow| series[row.series as usize].value_type == *value_type;
                let picked: Vec<u32> =
                    (0..).zip(profiles.iter()).filter(|(_, row)| is_it(row)).map(|(at, _)| at).collect();
                // A type that occurs twice makes one series of two columns.
                let columns = profile.header.types.iter().filter(|other| *other == value_type).count();
                if columns > 1 || picked.is_empty() {
                    continue;
                }
                let totals = source.totals(&picked).unwrap();
                let mut by_rows = vec![0i64; totals.len()];
                let mut add = |_: u32, stacks: &[u32], values: &[i64]| {
                    for (&stack, &value) in stacks.iter().zip(values) {
                        by_rows[stack as usize] = by_rows[stack as usize].wrapping_add(value);
                    }
                };
                source.visit_rows(&picked, &mut add).unwrap();
                assert_eq!(by_rows, totals);
                let mut tree = Tree::default();
                source
                    .visit_names(&mut |dictionary, stacks| {
                        assert_eq!(stacks.len(), totals.len());
                        tree = Tree::from_totals(dictionary, &totals);
                    })
                    .unwrap();
                assert_eq!(tree.total(), profile.total(column));
            }
        }
    }
}
