//! Merging of any number of profiles into one, by adding into arrays.
//!
//! All inputs share one dictionary, so a row without labels is one addition at its stack id. The result does
//! not depend on the order of the inputs, except for header fields that take the first value.

use std::collections::BTreeSet;

use crate::data_model::dropped_counts::DroppedCounts;
use crate::data_model::model::{Dictionary, Profile, ProfileHeader, Samples, ValueType};
use crate::data_model::stack_copier::StackCopier;
use crate::data_model::symbols::NO_ENTRY;
use crate::encoding::hash::PrehashedMap;
use crate::formats::pprof::{DecodeError, DecodeLimits, DecodedProfile, Inflater, PprofDecoder};

/// Reason why a profile could not be merged.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MergeError {
    /// The profile could not be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The profiles have no sample type in common.
    #[error("profiles have no sample type in common: {} and {}", list(.left), list(.right))]
    Incompatible {
        /// Types merged so far.
        left: Vec<ValueType>,
        /// Types of the rejected profile.
        right: Vec<ValueType>,
    },
}

fn list(types: &[ValueType]) -> String {
    let names: Vec<String> = types.iter().map(|value| format!("{}/{}", value.kind, value.unit)).collect();
    format!("[{}]", names.join(", "))
}

/// Merger that sums profiles. A rejected profile does not affect the sums.
#[derive(Default)]
pub struct ProfileMerger {
    header: Option<ProfileHeader>,
    left_out: BTreeSet<ValueType>,
    /// Set if a sum passed 63 bits.
    has_wrapped: bool,
    dictionary: Dictionary,
    /// Values of rows without labels, by stack id.
    plain: Vec<i64>,
    /// Indexes of rows in `labelled_values`, by stack and label set.
    labelled: PrehashedMap<u64, u32>,
    labelled_values: Vec<i64>,
    /// Timestamps of rows that have any, by stack and label set.
    moments: PrehashedMap<u64, Vec<i64>>,
    inflater: Inflater,
    decoder: PprofDecoder,
    decoded: DecodedProfile,
}

impl ProfileMerger {
    /// Adds a pprof file: gzip, zstd or uncompressed.
    pub fn add_bytes(&mut self, bytes: &[u8], limits: &DecodeLimits) -> Result<DroppedCounts, MergeError> {
        let raw = self.inflater.inflate(bytes, limits.bytes)?;
        self.decoder.decode(raw, limits, &mut self.dictionary, &mut self.decoded)?;
        let decoded = std::mem::take(&mut self.decoded);
        let added = self.begin(&decoded.header).map(|columns| {
            let rows = decoded.samples.rows(decoded.header.types.len());
            for (row, (stack, labels, values)) in rows.enumerate() {
                self.add_row(stack, labels, values, &columns);
                self.add_moments(stack, labels, decoded.samples.moments.row_timestamps(row));
            }
            decoded.dropped
        });
        self.decoded = decoded;
        added
    }

    /// Adds a decoded profile.
    pub fn add(&mut self, profile: &Profile) -> Result<(), MergeError> {
        let columns = self.begin(&profile.header)?;
        let mut adopter = DictionaryRemapper::new(&profile.dictionary);
        let rows = profile.samples.rows(profile.header.types.len());
        for (row, (stack, labels, values)) in rows.enumerate() {
            let (stack, labels) = adopter.adopt(&mut self.dictionary, stack, labels);
            self.add_row(stack, labels, values, &columns);
            self.add_moments(stack, labels, profile.samples.moments.row_timestamps(row));
        }
        Ok(())
    }

    /// Adds the sums of another merger, so that halves can be merged in parallel.
    pub fn merge(&mut self, other: ProfileMerger) -> Result<(), MergeError> {
        match other.header {
            None => Ok(()),
            Some(_) => {
                self.left_out.extend(other.left_out.iter().cloned());
                self.has_wrapped |= other.has_wrapped;
                self.add(&other.finish())
            }
        }
    }

    /// Returns whether a sum passed 63 bits. The merged profile is wrong then.
    pub fn has_wrapped(&self) -> bool {
        self.has_wrapped
    }

    /// Returns the types that some profiles lack. The sums do not contain them.
    pub fn dropped_types(&self) -> impl Iterator<Item = &ValueType> {
        self.left_out.iter()
    }

    /// Returns the merged profile, with rows in the order of their content hashes. Zero rows are dropped
    /// unless they have timestamps.
    pub fn finish(mut self) -> Profile {
        let header = self.header.take().unwrap_or_default();
        let width = header.types.len();
        let mut rows: Vec<(u32, u32, &[i64])> = Vec::new();
        if width > 0 {
            rows.extend((0..).zip(self.plain.chunks_exact(width)).map(|(stack, values)| (stack, 0, values)));
            rows.extend(self.labelled.iter().map(|(&key, &place)| {
                let start = place as usize * width;
                ((key >> 32) as u32, key as u32, &self.labelled_values[start..start + width])
            }));
        }
        rows.retain(|&(stack, labels, values)| {
            values.iter().any(|&value| value != 0) || self.moments.contains_key(&key(stack, labels))
        });
        let Dictionary { stacks, label_sets, .. } = &self.dictionary;
        rows.sort_unstable_by_key(|&(stack, labels, _)| (stacks.hash(stack), label_sets.hash(labels)));
        let mut samples = Samples::default();
        for (stack, labels, values) in rows {
            if let Some(mut moments) = self.moments.remove(&key(stack, labels)) {
                moments.sort_unstable();
                samples.moments.add(samples.len(), moments);
            }
            samples.push(stack, labels, values);
        }
        Profile { header, samples, dictionary: self.dictionary }
    }

    /// Merges a header and returns the columns of the new profile that are added.
    fn begin(&mut self, header: &ProfileHeader) -> Result<Vec<usize>, MergeError> {
        let Some(mine) = &mut self.header else {
            let mut first = header.clone();
            first.comments.clear();
            union(&mut first.comments, &header.comments);
            self.header = Some(first);
            return Ok((0..header.types.len()).collect());
        };
        let common = common_columns(&mine.types, &header.types);
        if common.is_empty() {
            return Err(MergeError::Incompatible { left: mine.types.clone(), right: header.types.clone() });
        }
        combine(mine, header);
        let (keep, take): (Vec<usize>, Vec<usize>) = common.into_iter().unzip();
        for (types, common) in [(&mine.types, &keep), (&header.types, &take)] {
            let rest = (0..types.len()).filter(|column| !common.contains(column));
            self.left_out.extend(rest.map(|column| types[column].clone()));
        }
        if keep.len() < mine.types.len() {
            let width = mine.types.len();
            mine.types = keep.iter().map(|&column| mine.types[column].clone()).collect();
            select(&mut self.plain, width, &keep);
            select(&mut self.labelled_values, width, &keep);
        }
        Ok(take)
    }

    fn add_row(&mut self, stack: u32, labels: u32, values: &[i64], columns: &[usize]) {
        let width = columns.len();
        let sums = if labels == 0 {
            let start = stack as usize * width;
            if self.plain.len() < start + width {
                self.plain.resize(self.dictionary.stacks.len() * width, 0);
            }
            &mut self.plain[start..start + width]
        } else {
            let next = (self.labelled_values.len() / width.max(1)) as u32;
            let place = *self.labelled.entry(key(stack, labels)).or_insert(next);
            if place == next {
                self.labelled_values.resize(self.labelled_values.len() + width, 0);
            }
            &mut self.labelled_values[place as usize * width..][..width]
        };
        for (sum, &column) in sums.iter_mut().zip(columns) {
            let (next, wraps) = sum.overflowing_add(values[column]);
            *sum = next;
            self.has_wrapped |= wraps;
        }
    }

    fn add_moments(&mut self, stack: u32, labels: u32, moments: &[i64]) {
        if !moments.is_empty() {
            self.moments.entry(key(stack, labels)).or_default().extend_from_slice(moments);
        }
    }
}

fn key(stack: u32, labels: u32) -> u64 {
    u64::from(stack) << 32 | u64::from(labels)
}

/// Mapping of stacks and label sets between dictionaries that copies each entry once.
pub(crate) struct DictionaryRemapper<'a> {
    from: &'a Dictionary,
    copier: StackCopier<'a>,
    stacks: Vec<u32>,
    labels: Vec<u32>,
}

impl<'a> DictionaryRemapper<'a> {
    pub(crate) fn new(from: &'a Dictionary) -> Self {
        let stacks = vec![NO_ENTRY; from.stacks.len()];
        let labels = vec![NO_ENTRY; from.label_sets.len()];
        DictionaryRemapper { from, copier: StackCopier::new(from), stacks, labels }
    }
    pub(crate) fn adopt(&mut self, to: &mut Dictionary, stack: u32, labels: u32) -> (u32, u32) {
        let new_stack = &mut self.stacks[stack as usize];
        if *new_stack == NO_ENTRY {
            *new_stack = self.copier.copy_stack(stack, to);
        }
        let new_stack = *new_stack;
        (new_stack, self.labels(to, labels))
    }
    pub(crate) fn labels(&mut self, to: &mut Dictionary, labels: u32) -> u32 {
        let new = &mut self.labels[labels as usize];
        if *new == NO_ENTRY {
            *new = to.adopt_labels(self.from, labels);
        }
        *new
    }
}

/// Returns the pairs of columns with equal types, in the order of `left`. Of duplicate types, the n-th
/// matches the n-th.
fn common_columns(left: &[ValueType], right: &[ValueType]) -> Vec<(usize, usize)> {
    let mut taken = vec![false; right.len()];
    let mut pairs = Vec::new();
    for (at, wanted) in left.iter().enumerate() {
        if let Some(found) = (0..right.len()).find(|&column| !taken[column] && right[column] == *wanted) {
            taken[found] = true;
            pairs.push((at, found));
        }
    }
    pairs
}

/// Keeps the selected columns of every row.
fn select(values: &mut Vec<i64>, width: usize, keep: &[usize]) {
    let mut write = 0;
    for start in (0..values.len()).step_by(width) {
        for &column in keep {
            values[write] = values[start + column];
            write += 1;
        }
    }
    values.truncate(write);
}

/// Merges header fields other than types like `go tool pprof`. An unknown time is ignored. If the period
/// types differ, the result has none.
fn combine(mine: &mut ProfileHeader, other: &ProfileHeader) {
    if mine.time_nanos == 0 || (other.time_nanos != 0 && other.time_nanos < mine.time_nanos) {
        mine.time_nanos = other.time_nanos;
    }
    mine.duration_nanos = mine.duration_nanos.wrapping_add(other.duration_nanos);
    mine.period = mine.period.max(other.period);
    if mine.period_type != other.period_type {
        mine.period_type = None;
    }
    union(&mut mine.comments, &other.comments);
    let texts = [
        (&mut mine.drop_frames, &other.drop_frames),
        (&mut mine.keep_frames, &other.keep_frames),
        (&mut mine.default_type, &other.default_type),
        (&mut mine.doc_url, &other.doc_url),
    ];
    for (text, other) in texts {
        if text.is_empty() {
            text.clone_from(other);
        }
    }
}

fn union(comments: &mut Vec<String>, more: &[String]) {
    for comment in more {
        if !comments.contains(comment) {
            comments.push(comment.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::pprof;

    fn profile(types: &[&str], rows: &[(&str, &[i64])]) -> Profile {
        let mut profile = Profile::default();
        profile.header.types = types.iter().map(|kind| ValueType::new(kind, "count")).collect();
        for (stack, values) in rows {
            let stack = profile.dictionary.intern_named_stack(stack.split(';'));
            profile.samples.push(stack, 0, values);
        }
        profile
    }
    fn value(profile: &Profile, path: &str) -> Vec<i64> {
        let stack = profile.dictionary.clone().intern_named_stack(path.split(';'));
        let rows = profile.samples.rows(profile.header.types.len());
        rows.filter(|row| row.0 == stack).flat_map(|row| row.2.to_vec()).collect()
    }

    #[test]
    fn stacks_meet_whatever_file_they_came_in() {
        let left = profile(&["samples"], &[("main;work", &[253]), ("main;idle", &[26]), ("gone", &[3])]);
        let right = profile(&["samples"], &[("main;idle", &[24]), ("main;work", &[257]), ("gone", &[-3])]);
        let mut merger = ProfileMerger::default();
        merger.add(&left).unwrap();
        merger.add_bytes(&pprof::encode(&right), &DecodeLimits::default()).unwrap();
        let merged = merger.finish();
        assert_eq!(value(&merged, "main;work"), [510]);
        assert_eq!(value(&merged, "main;idle"), [50]);
        assert_eq!(merged.samples.len(), 2, "rows that add up to zero are dropped");
    }

    #[test]
    fn order_and_halves_make_no_difference() {
        let parts: Vec<Profile> = (1..6)
            .map(|n| {
                profile(&["samples"], &[("a;b", &[n]), ("a", &[2 * n]), (["x", "y"][n as usize % 2], &[n])])
            })
            .collect();
        let merge = |order: &[usize]| {
            let mut merger = ProfileMerger::default();
            order.iter().for_each(|&at| merger.add(&parts[at]).unwrap());
            merger
        };
        let whole = pprof::encode(&merge(&[0, 1, 2, 3, 4]).finish());
        assert_eq!(whole, pprof::encode(&merge(&[4, 2, 0, 1, 3]).finish()));
        let mut half = merge(&[3, 1]);
        half.merge(ProfileMerger::default()).unwrap();
        half.merge(merge(&[0, 4, 2])).unwrap();
        assert_eq!(whole, pprof::encode(&half.finish()));
    }

    #[test]
    fn moments_stay_with_their_rows_whatever_the_order() {
        let parts = [(3, &[30, 10][..]), (-3, &[10, 20]), (4, &[]), (0, &[])].map(|(value, moments)| {
            let mut one = profile(&["samples"], &[("a", &[value]), ("b", &[1])]);
            let mut samples = Samples::default();
            for (row, (stack, labels, values)) in one.samples.rows(1).enumerate() {
                samples.push(stack, labels, values);
                samples.moments.add(row, [moments, &[7]][row].iter().copied());
            }
            one.samples = samples;
            one
        });
        let merge = |order: &[usize]| {
            let mut merger = ProfileMerger::default();
            order.iter().for_each(|&at| merger.add(&parts[at]).unwrap());
            merger
        };
        let mut halves = merge(&[0, 1]);
        halves.merge(merge(&[3, 2])).unwrap();
        let whole = halves.finish();
        assert_eq!(pprof::encode(&whole), pprof::encode(&merge(&[2, 1, 3, 0]).finish()));
        let mut moments: Vec<&[i64]> = (0..2).map(|row| whole.samples.moments.row_timestamps(row)).collect();
        moments.sort_unstable();
        assert_eq!(moments, [&[7, 7, 7, 7][..], &[10, 10, 20, 30]]);
    }

    #[test]
    fn differing_types_are_intersected_also_for_what_was_added_before() {
        let mut merger = ProfileMerger::default();
        merger
            .add(&profile(&["objects", "space", "extra"], &[("a", &[1, 10, 100]), ("b", &[2, 20, 200])]))
            .unwrap();
        merger.add(&profile(&["space", "objects"], &[("b", &[30, 3])])).unwrap();
        let refused = merger.add(&profile(&["cpu"], &[("a", &[1])])).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "profiles have no sample type in common: [objects/count, space/count] and [cpu/count]"
        );
        assert_eq!(merger.dropped_types().map(|left| left.kind.as_str()).collect::<Vec<_>>(), ["extra"]);
        let mut whole = ProfileMerger::default();
        whole.add(&profile(&["space", "more"], &[("b", &[0, 1])])).unwrap();
        whole.merge(merger).unwrap();
        assert_eq!(
            whole.dropped_types().map(|left| left.kind.as_str()).collect::<Vec<_>>(),
            ["extra", "more", "objects"]
        );
        let mut merger = ProfileMerger::default();
        merger
            .add(&profile(&["objects", "space", "extra"], &[("a", &[1, 10, 100]), ("b", &[2, 20, 200])]))
            .unwrap();
        merger.add(&profile(&["space", "objects"], &[("b", &[30, 3])])).unwrap();
        let merged = merger.finish();
        assert_eq!(
            merged.header.types,
            [ValueType::new("objects", "count"), ValueType::new("space", "count")]
        );
        assert_eq!((value(&merged, "a"), value(&merged, "b")), (vec![1, 10], vec![5, 50]));
    }

    #[test]
    fn headers_are_combined() {
        let with = |time_nanos, duration_nanos, period, comment: &str, doc_url: &str| {
            let mut one = profile(&["samples"], &[]);
            let comments = vec![comment.to_owned()];
            let types = one.header.types.clone();
            let doc_url = doc_url.to_owned();
            one.header = ProfileHeader {
                types,
                time_nanos,
                duration_nanos,
                period,
                comments,
                doc_url,
                ..ProfileHeader::default()
            };
            one
        };
        let mut merger = ProfileMerger::default();
        for one in [with(0, 1, 5, "x", ""), with(90, 2, 9, "y", "u"), with(70, 4, 7, "x", "v")] {
            merger.add(&one).unwrap();
        }
        let header = merger.finish().header;
        assert_eq!((header.time_nanos, header.duration_nanos, header.period), (70, 7, 9));
        assert_eq!((header.comments, header.doc_url.as_str()), (vec!["x".to_owned(), "y".to_owned()], "u"));
    }
}
