//! Samples: conversion of stack, values and labels to a row of dense ids.

use std::ops::Range;

use super::{DANGLING_LOCATION_HASH, DecodedProfile, PprofDecoder};
use crate::data_model::dropped_counts::DropReason;
use crate::data_model::labels::{SampleLabel, sample_label_hash};
use crate::data_model::model::Dictionary;
use crate::data_model::stacks::StackTable;
use crate::data_model::symbols::{Function, Line, Mapping, NO_ENTRY};
use crate::encoding::hash::{self, ContentHash, PrehashedMap};
use crate::formats::pprof::entries::{
    RawFunction, RawLabel, RawMapping, TIMESTAMPS_FIELD, TRUNCATED_ROOT_NAME, read_label,
};
use crate::formats::pprof::wire::{WireCursor, WireValue};
use crate::formats::pprof::{DecodeError, DecodeLimits, TIMESTAMP_BYTES_LIMIT_NAME, check_limit};

/// Label set with its dictionary id, or stack with its number in the file.
#[derive(Clone, Copy, Default)]
pub(in crate::formats::pprof) struct CachedEntry {
    id: u32,
    /// Set if the stack was truncated to the kept depth.
    cut: bool,
    /// Hash of the entry's part in the identity.
    hash: ContentHash,
}

/// Stack of the file.
pub(in crate::formats::pprof) struct WalkedStack {
    hash: ContentHash,
    /// Index of the first sample with this stack.
    sample: u32,
    /// Dictionary id of the stack, once it was looked up.
    id: u32,
    /// Range of the roots that were added above the stack, in [`PprofDecoder::roots`].
    root: (u32, u32),
}

/// Cache of the stacks or label sets of one file, by their bytes. Equal bytes have equal meaning within a
/// file. Heap profiles and profiles with labels have many duplicates, which then need only one pass.
#[derive(Default)]
pub(in crate::formats::pprof) struct EntryCache {
    entries: PrehashedMap<ContentHash, CachedEntry>,
    asked: usize,
    found: usize,
}

impl EntryCache {
    pub(in crate::formats::pprof) fn clear(&mut self) {
        self.entries.clear();
        (self.asked, self.found) = (0, 0);
    }
    /// Returns the allocated bytes.
    pub(in crate::formats::pprof) fn memory(&self) -> usize {
        self.entries.allocation_size()
    }
    /// Returns whether the cache has enough hits. An insert costs as much as reading some twenty frames.
    fn is_effective(&self) -> bool {
        self.asked < 256 || self.found > self.asked / 8
    }
    fn find(&mut self, key: ContentHash) -> Option<CachedEntry> {
        self.asked += 1;
        let entry = self.entries.get(&key).copied();
        self.found += usize::from(entry.is_some());
        entry
    }
}

/// Buffers for one sample.
#[derive(Default)]
pub(in crate::formats::pprof) struct SampleScratch {
    /// Location id fields: a single one if packed, else one per id.
    locations: Vec<WireValue>,
    values: Vec<i64>,
    labels: Vec<(usize, usize)>,
    moments: Vec<i64>,
    /// Range of all label fields, if they are contiguous.
    label_span: Option<(usize, usize)>,
    /// Hashes of the locations, leaf first.
    hashes: Vec<ContentHash>,
    /// Identity hashes of the locations, if they differ.
    identity: Vec<ContentHash>,
    /// Dictionary ids of the locations, for new stacks only.
    path: Vec<u32>,
    raw_labels: Vec<RawLabel>,
    label_set: Vec<SampleLabel>,
}

impl SampleScratch {
    /// Sorts the fields of a sample by kind. Location ids are not read yet.
    fn read(
        &mut self,
        sample: usize,
        mut cursor: WireCursor<'_>,
        limits: &DecodeLimits,
    ) -> Result<(), DecodeError> {
        self.locations.clear();
        self.values.clear();
        self.labels.clear();
        self.moments.clear();
        while !cursor.is_done() {
            let at = cursor.position();
            match cursor.field("a sample")? {
                (1, ids @ (WireValue::Varint(_) | WireValue::Bytes(..))) => {
                    check_limit("frames", self.locations.len() + 1, limits.depth)?;
                    self.locations.push(ids);
                }
                (2, WireValue::Varint(value)) => self.value(value, limits)?,
                (2, WireValue::Bytes(start, end)) => {
                    let mut packed = cursor.range(start, end);
                    while !packed.is_done() {
                        self.value(packed.varint("a value")?, limits)?;
                    }
                }
                (3, WireValue::Bytes(start, end)) => {
                    self.label_span = match (self.label_span, self.labels.is_empty()) {
                        (_, true) => Some((at, end)),
                        (Some((first, last)), _) if last == at => Some((first, end)),
                        _ => None,
                    };
                    self.labels.push((start, end));
                    let seen = self.labels.len();
                    let limit = limits.labels;
                    if seen > limit {
                        return Err(DecodeError::SampleLabels { sample, seen, limit });
                    }
                }
                (1..=3, _) => {
                    let why = "a sample field of a wrong type";
                    return Err(DecodeError::Malformed { at: cursor.position(), why });
                }
                (TIMESTAMPS_FIELD, WireValue::Bytes(start, end)) => {
                    let (times, rest) = cursor.range(start, end).remaining().as_chunks();
                    if !rest.is_empty() {
                        let why = "timestamps of a sample that do not have eight bytes each";
                        return Err(DecodeError::Malformed { at: start, why });
                    }
                    self.moments.extend(times.iter().map(|time| i64::from_le_bytes(*time)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn value(&mut self, value: u64, limits: &DecodeLimits) -> Result<(), DecodeError> {
        check_limit("values of a sample", self.values.len() + 1, limits.types)?;
        self.values.push(value as i64);
        Ok(())
    }
}

/// Place of one sample in the file.
#[derive(Clone, Copy)]
pub(in crate::formats::pprof) struct SampleSpan {
    pub(in crate::formats::pprof) number: usize,
    pub(in crate::formats::pprof) start: usize,
    pub(in crate::formats::pprof) end: usize,
}

impl PprofDecoder {
    /// Reads one sample and adds its row.
    pub(in crate::formats::pprof) fn read_sample(
        &mut self,
        raw: &[u8],
        SampleSpan { number, start, end }: SampleSpan,
        limits: &DecodeLimits,
        labels: &mut Dictionary,
        out: &mut DecodedProfile,
    ) -> Result<(), DecodeError> {
        self.row.read(number, WireCursor::new(raw).range(start, end), limits)?;
        let expected = self.head.types.len();
        let seen = self.row.values.len();
        if seen != expected {
            return Err(DecodeError::ValueCount { sample: number, seen, expected });
        }
        let Some(stack) = self.stack(raw, number as u32, limits)? else {
            out.dropped.add(DropReason::DanglingSample, 1);
            return Ok(());
        };
        let labels = match self.row.labels.is_empty() {
            true => CachedEntry::default(),
            false => self.labels(raw, labels)?,
        };
        out.dropped.add(DropReason::DeepStack, stack.cut.into());
        let SampleScratch { values, moments, .. } = &self.row;
        out.content.add(stack.hash, labels.hash, values, moments);
        out.samples.moments.add(out.samples.len(), moments.iter().copied());
        out.samples.push(stack.id, labels.id, values);
        // Each type becomes a separate profile with all timestamps.
        let bytes = out.samples.moments.len().saturating_mul(expected * size_of::<i64>());
        check_limit(TIMESTAMP_BYTES_LIMIT_NAME, bytes, limits.bytes)
    }

    /// Looks up all stacks of the file at once, and replaces the stack numbers in the rows with the ids.
    ///
    /// A large dictionary does not fit into the processor's caches. Independent lookups overlap. A lookup
    /// after each decoded stack would stall the decoder.
    pub(in crate::formats::pprof) fn resolve_stacks(
        &mut self,
        raw: &[u8],
        limits: &DecodeLimits,
        dictionary: &mut Dictionary,
        out: &mut DecodedProfile,
    ) -> Result<(), DecodeError> {
        for stack in &mut self.walked {
            stack.id = dictionary.stacks.find(stack.hash).unwrap_or(NO_ENTRY);
        }
        for at in 0..self.walked.len() {
            if self.walked[at].id == NO_ENTRY {
                self.walked[at].id = self.new_stack(raw, at, limits, dictionary)?;
            }
        }
        out.samples.stacks.iter_mut().for_each(|stack| *stack = self.walked[*stack as usize].id);
        Ok(())
    }

    /// Returns the stack of the row by its number in the file. Returns `None` if a location is missing or
    /// dangles.
    fn stack(
        &mut self,
        raw: &[u8],
        sample: u32,
        limits: &DecodeLimits,
    ) -> Result<Option<CachedEntry>, DecodeError> {
        let [WireValue::Bytes(start, end)] = self.row.locations[..] else {
            return self.walk_stack(raw, sample, limits);
        };
        if !self.known_stacks.is_effective() {
            return self.walk_stack(raw, sample, limits);
        }
        let key = hash::hash_bytes(&raw[start..end]);
        if let Some(stack) = self.known_stacks.find(key) {
            return Ok(Some(stack));
        }
        let stack = self.walk_stack(raw, sample, limits)?;
        if let Some(stack) = stack {
            self.known_stacks.entries.insert(key, stack);
        }
        Ok(stack)
    }

    fn walk_stack(
        &mut self,
        raw: &[u8],
        sample: u32,
        limits: &DecodeLimits,
    ) -> Result<Option<CachedEntry>, DecodeError> {
        let PprofDecoder { row, location_ids, location_hashes, identity_hashes, .. } = self;
        row.hashes.clear();
        row.identity.clear();
        let mut complete = true;
        for &ids in &row.locations {
            each_id(raw, ids, |id| {
                let place = location_ids.position(id);
                let hash = place.map_or(DANGLING_LOCATION_HASH, |place| location_hashes[place]);
                complete &= hash != DANGLING_LOCATION_HASH;
                check_limit("frames", row.hashes.len() + 1, limits.depth)?;
                row.hashes.push(hash);
                row.identity.extend(place.and_then(|place| identity_hashes.get(place)));
                Ok(())
            })?;
        }
        if !complete {
            return Ok(None);
        }
        self.deepest = self.deepest.max(self.row.hashes.len());
        let kept = self.row.hashes.len().saturating_sub(limits.kept_depth);
        let hash = StackTable::stack_hash(&self.row.hashes[kept..]);
        let id = self.walked.len() as u32;
        self.walked.push(WalkedStack { hash, sample, id: NO_ENTRY, root: (0, 0) });
        let identity = if self.row.identity.is_empty() {
            hash
        } else {
            StackTable::stack_hash(&self.row.identity[kept..])
        };
        Ok(Some(CachedEntry { id, cut: kept > 0, hash: identity }))
    }

    /// Returns the label set of the row.
    fn labels(&mut self, raw: &[u8], dictionary: &mut Dictionary) -> Result<CachedEntry, DecodeError> {
        let Some((start, end)) = self.row.label_span.filter(|_| self.known_labels.is_effective()) else {
            return self.walk_labels(raw, dictionary);
        };
        let key = hash::hash_bytes(&raw[start..end]);
        if let Some(labels) = self.known_labels.find(key) {
            return Ok(labels);
        }
        let labels = self.walk_labels(raw, dictionary)?;
        self.known_labels.entries.insert(key, labels);
        Ok(labels)
    }

    /// Reads the labels of the row. As with stacks, only the texts of a new set are copied.
    fn walk_labels(&mut self, raw: &[u8], dictionary: &mut Dictionary) -> Result<CachedEntry, DecodeError> {
        let mut labels = std::mem::take(&mut self.row.raw_labels);
        labels.clear();
        let mut hash: ContentHash = 0;
        // The decoder has checked that the table begins with the empty string.
        let empty = self.string_hashes[0];
        for &(start, end) in &self.row.labels {
            let mut label = read_label(WireCursor::new(raw).range(start, end))?;
            let key = self.string_hashes[self.index(label.key, "a label's name")?];
            let text = self.index(label.text, "a label's text")?;
            let unit = self.index(label.unit, "a label's unit")?;
            if text != 0 {
                label.number = 0;
            }
            // A label with no value is dropped.
            let text = self.string_hashes[text];
            let unit = self.string_hashes[unit];
            if text == empty && label.number == 0 && unit == empty {
                continue;
            }
            hash = hash.wrapping_add(sample_label_hash(key, text, label.number, unit));
            labels.push(label);
        }
        let id = match dictionary.label_sets.find(hash) {
            Some(id) => id,
            None => self.new_labels(raw, &labels, dictionary)?,
        };
        self.row.raw_labels = labels;
        Ok(CachedEntry { id, cut: false, hash })
    }

    fn new_labels(
        &mut self,
        raw: &[u8],
        labels: &[RawLabel],
        dictionary: &mut Dictionary,
    ) -> Result<u32, DecodeError> {
        let mut set = std::mem::take(&mut self.row.label_set);
        set.clear();
        let strings = &mut dictionary.symbols.strings;
        for label in labels {
            let mut intern = |index| self.intern(raw, index, strings);
            let key = intern(label.key)?;
            let text = intern(label.text)?;
            let unit = intern(label.unit)?;
            set.push(SampleLabel { key, text, number: label.number, unit });
        }
        let id = dictionary.label_sets.intern(strings, &set);
        self.row.label_set = set;
        Ok(id)
    }

    fn new_stack(
        &mut self,
        raw: &[u8],
        at: usize,
        limits: &DecodeLimits,
        dictionary: &mut Dictionary,
    ) -> Result<u32, DecodeError> {
        let mut path = std::mem::take(&mut self.row.path);
        path.clear();
        self.places_of(raw, at, limits, &mut path)?;
        let WalkedStack { hash, root: (start, end), .. } = self.walked[at];
        path.extend(self.roots[start as usize..end as usize].iter().rev());
        path.drain(..path.len().saturating_sub(limits.kept_depth));
        for place in &mut path {
            let index = *place as usize;
            if self.resolved[index] == NO_ENTRY {
                self.resolved[index] = self.resolve(raw, index, dictionary)?;
            }
            *place = self.resolved[index];
        }
        let stack = dictionary.stacks.intern_hashed(hash, path.iter().rev().copied());
        self.row.path = path;
        Ok(stack)
    }

    /// Appends the indexes of a stack's locations, leaf first.
    pub(in crate::formats::pprof) fn places_of(
        &mut self,
        raw: &[u8],
        at: usize,
        limits: &DecodeLimits,
        places: &mut Vec<u32>,
    ) -> Result<(), DecodeError> {
        let number = self.walked[at].sample as usize;
        let (start, end) = self.samples[number];
        self.row.read(number, WireCursor::new(raw).range(start, end), limits)?;
        for &ids in &self.row.locations {
            each_id(raw, ids, |id| {
                places.extend(self.location_ids.position(id).map(|place| place as u32));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Adds roots above a stack. `own` lists the stack's own locations from the root. Returns `false` if the
    /// stack would exceed the kept depth.
    pub(in crate::formats::pprof) fn put_root(
        &mut self,
        at: usize,
        own: &[u32],
        root: Range<usize>,
        kept_depth: usize,
    ) -> bool {
        if own.len() + root.len() > kept_depth {
            return false;
        }
        let hashes = &mut self.row.hashes;
        hashes.clear();
        let leaf_first = own.iter().rev().chain(self.roots[root.clone()].iter().rev());
        hashes.extend(leaf_first.map(|&place| self.location_hashes[place as usize]));
        let stack = &mut self.walked[at];
        (stack.hash, stack.root) = (StackTable::stack_hash(hashes), (root.start as u32, root.end as u32));
        true
    }

    /// Copies a location and its names to the dictionary.
    fn resolve(&self, raw: &[u8], place: usize, dictionary: &mut Dictionary) -> Result<u32, DecodeError> {
        let symbols = &mut dictionary.symbols;
        if let Some(id) = symbols.find_location(self.location_hashes[place]) {
            return Ok(id);
        }
        // This index is past the file's locations: it is the marker of a truncated stack.
        if place == self.locations.len() {
            return Ok(dictionary.intern_named_location(TRUNCATED_ROOT_NAME));
        }
        let location = &self.locations[place];
        let mapping = match self.mapping_ids.position(location.mapping_id) {
            None => NO_ENTRY,
            Some(mapping) => {
                let RawMapping { start, limit, offset, filename, build_id, flags, .. } =
                    self.mappings[mapping];
                let filename = self.intern(raw, filename, &mut symbols.strings)?;
                let build_id = self.intern(raw, build_id, &mut symbols.strings)?;
                let size = limit.wrapping_sub(start);
                symbols.intern_mapping(Mapping { start, size, offset, filename, build_id, flags })
            }
        };
        let first = location.first_line as usize;
        let mut lines = Vec::with_capacity(location.line_count as usize);
        for line in &self.lines[first..first + location.line_count as usize] {
            let Some(function) = self.function_ids.position(line.function_id) else { continue };
            let function = match symbols.find_function(self.function_hashes[function]) {
                Some(id) => id,
                None => {
                    let RawFunction { name, system_name, filename, start_line, .. } =
                        self.functions[function];
                    let mut intern = |index| self.intern(raw, index, &mut symbols.strings);
                    let name = intern(name)?;
                    let system_name = intern(system_name)?;
                    let filename = intern(filename)?;
                    symbols.intern_function(Function { name, system_name, filename, start_line })
                }
            };
            lines.push(Line { function, line: line.line, column: line.column });
        }
        Ok(symbols.intern_location(mapping, location.address, location.folded, &lines))
    }
}

/// Visits the ids of one location field.
#[inline(always)]
fn each_id(
    raw: &[u8],
    ids: WireValue,
    mut visit: impl FnMut(u64) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    match ids {
        WireValue::Varint(id) => visit(id)?,
        WireValue::Bytes(start, end) => {
            let mut packed = WireCursor::new(raw).range(start, end);
            while !packed.is_done() {
                visit(packed.varint("a stack")?)?;
            }
        }
        WireValue::Fixed(..) => {}
    }
    Ok(())
}
