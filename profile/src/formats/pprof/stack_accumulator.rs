//! Accumulator of stacks of plain names, which writes pprof directly.
//!
//! In some formats a frame has only a name. A name, its function and its location therefore share one number,
//! and a stack is kept in its pprof encoding. Only keys that are looked up are hashed, and no data is copied
//! twice.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::DecodeLimits;
use super::wire::{write_message, write_number};
use crate::data_model::model::{ProfileHeader, ValueType};
use crate::encoding::varint::put_varint;
use crate::formats::limits::{OverLimitError, check_limit};

/// Numbers of the profile fields that the accumulator writes.
mod field {
    pub(super) const SAMPLE_TYPE_FIELD: u64 = 1;
    pub(super) const SAMPLE_FIELD: u64 = 2;
    pub(super) const LOCATION_FIELD: u64 = 4;
    pub(super) const FUNCTION_FIELD: u64 = 5;
    pub(super) const STRING_TABLE_FIELD: u64 = 6;
    pub(super) const TIME_NANOS_FIELD: u64 = 9;
    pub(super) const DURATION_NANOS_FIELD: u64 = 10;
    pub(super) const PERIOD_TYPE_FIELD: u64 = 11;
    pub(super) const PERIOD_FIELD: u64 = 12;
}

/// Minimum bytes of a name in pprof beside its text: a string, a function and a location.
const MIN_NAME_BYTES: usize = 2 + 6 + 8;
/// Minimum bytes of a stack beside its frames: a sample with a value.
const MIN_STACK_BYTES: usize = 6;

/// Stacks with the totals of their values.
#[derive(Debug, Default)]
pub struct StackAccumulator {
    limits: DecodeLimits,
    names: InternedLists,
    /// Location numbers of each stack, leaf first and encoded as in pprof.
    stacks: InternedLists,
    totals: Vec<i64>,
    sum: i64,
    scratch: Vec<u8>,
}

/// Reason that a frame, a stack or a value cannot be added.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum StackAccumulatorError {
    /// Names, stacks or bytes over a limit.
    #[error("profile has {0}")]
    OverLimit(#[from] OverLimitError),
    /// The sum of all values does not fit into 63 bits.
    #[error("the profile's counts add up to over 63 bits")]
    Overflow,
}

/// Distinct byte lists, numbered from 0.
#[derive(Debug, Default)]
struct InternedLists {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    numbers: HashTable<u32>,
}

impl StackAccumulator {
    /// Creates an empty accumulator. Of `limits`, it enforces `samples` as the number of distinct stacks,
    /// `kept_depth`, and `bytes` for all names and stacks.
    pub fn new(limits: &DecodeLimits) -> Self {
        StackAccumulator { limits: *limits, ..StackAccumulator::default() }
    }

    /// Returns the number of frames that are kept of a stack.
    pub fn kept_depth(&self) -> usize {
        self.limits.kept_depth
    }

    /// Returns the number of a name, added if new.
    pub fn intern_frame(&mut self, name: &str) -> Result<u32, StackAccumulatorError> {
        let known = self.names.len();
        let at = self.names.number(name.as_bytes());
        if at as usize == known {
            self.check_bytes()?;
        }
        Ok(at + 1)
    }

    /// Returns the number of a stack, added if new. `root_first` lists the numbers of its frames.
    pub fn intern_stack(&mut self, root_first: &[u32]) -> Result<u32, StackAccumulatorError> {
        let kept = &root_first[..root_first.len().min(self.limits.kept_depth)];
        self.scratch.clear();
        kept.iter().rev().for_each(|&frame| put_varint(&mut self.scratch, u64::from(frame)));
        let at = self.stacks.number(&self.scratch);
        if at as usize == self.totals.len() {
            self.totals.push(0);
            check_limit("stacks", self.totals.len(), self.limits.samples)?;
            self.check_bytes()?;
        }
        Ok(at)
    }

    /// Adds a value to a stack. Values of 0 or less are ignored.
    pub fn add(&mut self, stack: u32, value: i64) -> Result<(), StackAccumulatorError> {
        if value > 0 {
            self.sum = self.sum.checked_add(value).ok_or(StackAccumulatorError::Overflow)?;
            self.totals[stack as usize] += value;
        }
        Ok(())
    }

    /// Returns whether no value was added.
    pub fn is_empty(&self) -> bool {
        self.sum == 0
    }

    /// Writes the stacks as pprof with the header's only type and values times `factor`. Returns `None` if
    /// these do not fit into 63 bits.
    pub fn write(&self, header: &ProfileHeader, factor: i64) -> Option<Vec<u8>> {
        self.sum.checked_mul(factor)?;
        let names = self.names.len() as u64;
        let mut out = Vec::with_capacity(self.bytes() + 8 * self.names.len() + 8 * self.totals.len());
        let mut texts = vec![""];
        texts.extend(self.names.iter().map(|name| std::str::from_utf8(name).unwrap_or_default()));
        for value_type in &header.types {
            value_type_of(&mut out, field::SAMPLE_TYPE_FIELD, value_type, &mut texts);
        }
        let mut content = Vec::new();
        for (stack, &total) in self.stacks.iter().zip(&self.totals).filter(|(_, total)| **total > 0) {
            content.clear();
            if !stack.is_empty() {
                write_message(&mut content, 1, stack);
            }
            write_number(&mut content, 2, (total * factor) as u64);
            write_message(&mut out, field::SAMPLE_FIELD, &content);
        }
        for id in 1..=names {
            content.clear();
            write_number(&mut content, 1, id);
            write_number(&mut content, 2, id);
            write_message(&mut out, field::FUNCTION_FIELD, &content);
        }
        let mut line = Vec::new();
        for id in 1..=names {
            content.clear();
            line.clear();
            write_number(&mut content, 1, id);
            write_number(&mut line, 1, id);
            write_message(&mut content, 4, &line);
            write_message(&mut out, field::LOCATION_FIELD, &content);
        }
        write_number(&mut out, field::TIME_NANOS_FIELD, header.time_nanos as u64);
        write_number(&mut out, field::DURATION_NANOS_FIELD, header.duration_nanos as u64);
        if let Some(period_type) = &header.period_type {
            value_type_of(&mut out, field::PERIOD_TYPE_FIELD, period_type, &mut texts);
        }
        write_number(&mut out, field::PERIOD_FIELD, header.period as u64);
        texts.iter().for_each(|text| write_message(&mut out, field::STRING_TABLE_FIELD, text.as_bytes()));
        Some(out)
    }

    /// Returns a lower bound of the size as pprof, at most a few bytes too low.
    fn bytes(&self) -> usize {
        let names = &self.names;
        let stacks = &self.stacks;
        names.bytes.len() + names.len() * MIN_NAME_BYTES + stacks.bytes.len() + stacks.len() * MIN_STACK_BYTES
    }

    fn check_bytes(&self) -> Result<(), OverLimitError> {
        check_limit("bytes", self.bytes(), self.limits.bytes)
    }
}

fn value_type_of<'a>(out: &mut Vec<u8>, field: u64, value_type: &'a ValueType, texts: &mut Vec<&'a str>) {
    let mut content = Vec::new();
    for (at, text) in [(1, &value_type.kind), (2, &value_type.unit)] {
        write_number(&mut content, at, texts.len() as u64);
        texts.push(text);
    }
    write_message(out, field, &content);
}

// === impl InternedLists ===

impl InternedLists {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| list(&self.bytes, &self.ends, at))
    }

    /// Returns the number of a list, added if new.
    fn number(&mut self, content: &[u8]) -> u32 {
        let InternedLists { bytes, ends, numbers } = self;
        let hash = xxh3_64(content);
        if let Some(&at) = numbers.find(hash, |&at| list(bytes, ends, at as usize) == content) {
            return at;
        }
        let at = ends.len() as u32;
        bytes.extend_from_slice(content);
        ends.push(bytes.len());
        numbers.insert_unique(hash, at, |&at| xxh3_64(list(bytes, ends, at as usize)));
        at
    }
}

fn list<'a>(bytes: &'a [u8], ends: &[usize], at: usize) -> &'a [u8] {
    let start = at.checked_sub(1).map_or(0, |before| ends[before]);
    &bytes[start..ends[at]]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::call_tree::tree::Tree;
    use crate::data_model::model::Profile;
    use crate::formats::folded;
    use crate::formats::pprof::{decode, encode};

    fn tally(
        stacks: &[(&str, i64)],
        limits: &DecodeLimits,
    ) -> Result<StackAccumulator, StackAccumulatorError> {
        let mut tally = StackAccumulator::new(limits);
        for (stack, value) in stacks {
            let path: Result<Vec<u32>, _> = stack.split(';').map(|name| tally.intern_frame(name)).collect();
            let stack = tally.intern_stack(&path?)?;
            tally.add(stack, *value)?;
        }
        Ok(tally)
    }

    fn header() -> ProfileHeader {
        ProfileHeader {
            types: vec![ValueType::new("cpu", "nanoseconds")],
            period_type: Some(ValueType::new("cpu", "nanoseconds")),
            period: 7,
            time_nanos: 5,
            duration_nanos: 6,
            ..ProfileHeader::default()
        }
    }

    #[test]
    fn what_is_written_reads_as_what_was_added() {
        let stacks = [("main;run", 5), ("main;idle", 1), ("main;run", 3), ("main;none", 0), (";", 2)];
        let tally = tally(&stacks, &DecodeLimits::default()).unwrap();
        let written = tally.write(&header(), 10).unwrap();
        let (profile, dropped) = decode(&written, &DecodeLimits::default()).unwrap();
        assert_eq!(profile.header, header());
        assert_eq!(dropped, Default::default());
        assert_eq!(folded::write(&Tree::from_profile(&profile, 0)), "; 20\nmain;idle 10\nmain;run 80\n");
        assert_eq!(profile.samples.len(), 3);
    }

    #[test]
    fn nothing_is_an_empty_profile_and_a_stack_may_have_no_frame() {
        let mut tally = StackAccumulator::default();
        assert!(tally.is_empty());
        tally.limits.samples = 1;
        let empty = tally.intern_stack(&[]).unwrap();
        tally.add(empty, 3).unwrap();
        let (profile, _) = decode(&tally.write(&header(), 1).unwrap(), &DecodeLimits::default()).unwrap();
        assert_eq!((profile.total(0), profile.dictionary.frame_names(0).len()), (3, 0));
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let limits = DecodeLimits { samples: 2, bytes: 90, kept_depth: 2, ..DecodeLimits::default() };
        assert_eq!(tally(&[("a;b;c", 1), ("a;b;d", 2), ("b", 1)], &limits).unwrap().stacks.len(), 2);
        let long = "x".repeat(75);
        for (stacks, expected) in [
            (&[("a", 1), ("b", 1), ("c", 1)][..], "profile has 3 stacks, the limit is 2"),
            (&[(&long, 1)], "profile has 91 bytes, the limit is 90"),
            (&[("a", i64::MAX), ("b", 1)], "the profile's counts add up to over 63 bits"),
        ] {
            assert_eq!(tally(stacks, &limits).unwrap_err().to_string(), expected);
        }
        assert_eq!(tally(&[("a", i64::MAX / 2)], &limits).unwrap().write(&header(), 3), None);
    }

    proptest! {
        #[test]
        fn it_writes_what_a_dictionary_does(
            stacks in prop::collection::vec((prop::collection::vec("[a-c]{0,2}", 1..5), 1i64..100), 0..20),
        ) {
            let joined: Vec<(String, i64)> = stacks.iter().map(|(path, value)| (path.join(";"), *value)).collect();
            let borrowed: Vec<(&str, i64)> = joined.iter().map(|(path, value)| (path.as_str(), *value)).collect();
            let tally = tally(&borrowed, &DecodeLimits::default()).unwrap();
            let mut profile = Profile { header: header(), ..Profile::default() };
            for (stack, value) in &borrowed {
                let stack = profile.dictionary.intern_named_stack(stack.split(';'));
                profile.samples.push(stack, 0, &[*value]);
            }
            profile.compact();
            let read = |bytes: &[u8]| Tree::from_profile(&decode(bytes, &DecodeLimits::default()).unwrap().0, 0);
            prop_assert_eq!(read(&tally.write(&header(), 1).unwrap()), read(&encode(&profile)));
        }
    }
}
