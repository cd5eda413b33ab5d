//! The walk: bytes to rows of dense ids.

use super::entries::{
    RawFunction, RawLine, RawLocation, RawMapping, function, location, mapping, value_type,
};
use super::ids::Ids;
use super::wire::{Cursor, Value};
use super::{DecodeError, Limits};
use crate::hash::{self, Hash};
use crate::identity::Content;
use crate::labels::SampleLabel;
use crate::model::{Dictionary, Header, Samples, ValueType};
use crate::stacks::Stacks;
use crate::symbols::{Function, Line, LocationHasher, Mapping, NONE, function_hash, mapping_hash};

/// What was left out because it referred to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Samples that name a location that is not there.
    pub samples: usize,
    /// Lines that name a function that is not there.
    pub lines: usize,
    /// References to mappings that are not there.
    pub mappings: usize,
}

/// What one profile's walk gives; kept and filled again for the next.
#[derive(Default)]
pub struct Decoded {
    /// What the profile says of itself.
    pub header: Header,
    /// Its rows, in the order sent, equal ones not yet added up.
    pub samples: Samples,
    /// The canonical content.
    pub content: Content,
    /// What was left out.
    pub dropped: Dropped,
}

/// Walks profiles, one after the other, with memory that is used again.
#[derive(Default)]
pub struct Decoder {
    strings: Vec<(usize, usize)>,
    string_hashes: Vec<Hash>,
    functions: Vec<RawFunction>,
    function_ids: Ids,
    function_hashes: Vec<Hash>,
    mappings: Vec<RawMapping>,
    mapping_ids: Ids,
    mapping_hashes: Vec<Hash>,
    locations: Vec<RawLocation>,
    location_ids: Ids,
    location_hashes: Vec<Hash>,
    /// Where each location went in the dictionary, once a new stack asked for it.
    resolved: Vec<u32>,
    lines: Vec<RawLine>,
    samples: Vec<(usize, usize)>,
    head: RawHeader,
    row: Row,
}

/// Scratch of one sample.
#[derive(Default)]
struct Row {
    path: Vec<u32>,
    hashes: Vec<Hash>,
    values: Vec<i64>,
    labels: Vec<(usize, usize)>,
    label_set: Vec<SampleLabel>,
}

impl Row {
    /// Adds a frame; false if there is no such location.
    #[inline(always)]
    fn frame(&mut self, id: u64, ids: &Ids, hashes: &[Hash]) -> bool {
        let Some(place) = ids.place(id) else { return false };
        self.path.push(place as u32);
        self.hashes.push(hashes[place]);
        true
    }
}

#[derive(Default)]
struct RawHeader {
    types: Vec<(i64, i64)>,
    period_type: Option<(i64, i64)>,
    period: i64,
    time_nanos: i64,
    duration_nanos: i64,
    comments: Vec<i64>,
    drop_frames: i64,
    keep_frames: i64,
    default_type: i64,
    doc_url: i64,
}

impl Decoder {
    /// Walks one uncompressed profile. Rows refer to `dictionary`, which may already hold other profiles.
    pub fn decode(
        &mut self,
        raw: &[u8],
        limits: &Limits,
        dictionary: &mut Dictionary,
        out: &mut Decoded,
    ) -> Result<(), DecodeError> {
        self.scan(raw, limits)?;
        self.hash_strings(raw)?;
        out.header = self.header(raw)?;
        out.dropped = Dropped::default();
        self.hash_tables(&mut out.dropped)?;
        out.samples.clear();
        out.content.reset(self.head.types.len());
        let samples = std::mem::take(&mut self.samples);
        let walked = (0..)
            .zip(&samples)
            .try_for_each(|(number, &range)| self.sample(raw, (number, range), limits, dictionary, out));
        self.samples = samples;
        walked
    }

    /// Visits the top-level fields in their order.
    fn scan(&mut self, raw: &[u8], limits: &Limits) -> Result<(), DecodeError> {
        self.strings.clear();
        self.functions.clear();
        self.mappings.clear();
        self.locations.clear();
        self.lines.clear();
        self.samples.clear();
        self.head = RawHeader::default();
        let mut cursor = Cursor::new(raw);
        while !cursor.is_done() {
            let (number, value) = cursor.field("the profile")?;
            self.top_field(number, value, &cursor)?;
            let grown = match number {
                2 => self.samples.len(),
                3 => self.mappings.len(),
                4 => self.locations.len().max(self.lines.len()),
                5 => self.functions.len(),
                6 => self.strings.len(),
                _ => 0,
            };
            // An entry of two bytes takes forty in memory: so count as the tables grow.
            if grown > limits.entries.min(limits.samples) {
                self.within(limits)?;
            }
        }
        if self.head.types.is_empty() {
            return Err(DecodeError::NoSampleType);
        }
        Ok(())
    }

    fn within(&self, limits: &Limits) -> Result<(), DecodeError> {
        let tables = [
            ("strings", self.strings.len()),
            ("functions", self.functions.len()),
            ("mappings", self.mappings.len()),
            ("locations", self.locations.len()),
            ("lines", self.lines.len()),
        ];
        for (what, seen) in tables {
            if seen > limits.entries {
                return Err(DecodeError::OverLimit { what, seen, limit: limits.entries });
            }
        }
        if self.samples.len() > limits.samples {
            let (seen, limit) = (self.samples.len(), limits.samples);
            return Err(DecodeError::OverLimit { what: "samples", seen, limit });
        }
        Ok(())
    }

    fn top_field(&mut self, number: u64, value: Value, cursor: &Cursor<'_>) -> Result<(), DecodeError> {
        match (number, value) {
            (1, Value::Bytes(start, end)) => self.head.types.push(value_type(cursor.range(start, end))?),
            (2, Value::Bytes(start, end)) => self.samples.push((start, end)),
            (3, Value::Bytes(start, end)) => self.mappings.push(mapping(cursor.range(start, end))?),
            (4, Value::Bytes(start, end)) => {
                let location = location(cursor.range(start, end), &mut self.lines)?;
                self.locations.push(location);
            }
            (5, Value::Bytes(start, end)) => self.functions.push(function(cursor.range(start, end))?),
            (6, Value::Bytes(start, end)) => self.strings.push((start, end)),
            (7, Value::Varint(text)) => self.head.drop_frames = text as i64,
            (8, Value::Varint(text)) => self.head.keep_frames = text as i64,
            (9, Value::Varint(time)) => self.head.time_nanos = time as i64,
            (10, Value::Varint(duration)) => self.head.duration_nanos = duration as i64,
            (11, Value::Bytes(start, end)) => {
                self.head.period_type = Some(value_type(cursor.range(start, end))?);
            }
            (12, Value::Varint(period)) => self.head.period = period as i64,
            (13, Value::Varint(comment)) => self.head.comments.push(comment as i64),
            (13, Value::Bytes(start, end)) => {
                let mut packed = cursor.range(start, end);
                while !packed.is_done() {
                    self.head.comments.push(packed.varint("a comment")? as i64);
                }
            }
            (14, Value::Varint(text)) => self.head.default_type = text as i64,
            (15, Value::Varint(text)) => self.head.doc_url = text as i64,
            (1..=6 | 11, _) => {
                return Err(DecodeError::Malformed {
                    at: cursor.at(),
                    why: "a table entry that is no message",
                });
            }
            (7..=15, _) => {
                return Err(DecodeError::Malformed {
                    at: cursor.at(),
                    why: "a header field that is no number",
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn hash_strings(&mut self, raw: &[u8]) -> Result<(), DecodeError> {
        if self.strings.first().is_some_and(|&(start, end)| start != end) || self.strings.is_empty() {
            return Err(DecodeError::NoEmptyString);
        }
        self.string_hashes.clear();
        for (index, &(start, end)) in self.strings.iter().enumerate() {
            let text = &raw[start..end];
            if std::str::from_utf8(text).is_err() {
                return Err(DecodeError::NotUtf8 { index });
            }
            self.string_hashes.push(hash::bytes(text));
        }
        Ok(())
    }

    fn index(&self, index: i64, what: &'static str) -> Result<usize, DecodeError> {
        let length = self.strings.len();
        usize::try_from(index).ok().filter(|&place| place < length).ok_or(DecodeError::OutOfRange {
            what,
            table: "strings",
            index,
            length,
        })
    }

    fn text<'a>(&self, raw: &'a [u8], index: i64, what: &'static str) -> Result<&'a str, DecodeError> {
        let index = self.index(index, what)?;
        let (start, end) = self.strings[index];
        std::str::from_utf8(&raw[start..end]).map_err(|_| DecodeError::NotUtf8 { index })
    }

    fn header(&self, raw: &[u8]) -> Result<Header, DecodeError> {
        let value_type = |(kind, unit): (i64, i64)| -> Result<ValueType, DecodeError> {
            let kind = self.text(raw, kind, "a sample type")?;
            Ok(ValueType::new(kind, self.text(raw, unit, "a sample type's unit")?))
        };
        let head = &self.head;
        let comments = head.comments.iter().map(|&text| Ok(self.text(raw, text, "a comment")?.to_owned()));
        Ok(Header {
            types: head.types.iter().copied().map(value_type).collect::<Result<_, _>>()?,
            period_type: head.period_type.map(value_type).transpose()?,
            period: head.period,
            time_nanos: head.time_nanos,
            duration_nanos: head.duration_nanos,
            comments: comments.collect::<Result<_, _>>()?,
            drop_frames: self.text(raw, head.drop_frames, "drop_frames")?.to_owned(),
            keep_frames: self.text(raw, head.keep_frames, "keep_frames")?.to_owned(),
            default_type: self.text(raw, head.default_type, "default_sample_type")?.to_owned(),
            doc_url: self.text(raw, head.doc_url, "doc_url")?.to_owned(),
        })
    }

    /// Hashes every function, mapping and location once.
    fn hash_tables(&mut self, dropped: &mut Dropped) -> Result<(), DecodeError> {
        self.function_ids.build("function", self.functions.iter().map(|entry| entry.id))?;
        self.mapping_ids.build("mapping", self.mappings.iter().map(|entry| entry.id))?;
        self.location_ids.build("location", self.locations.iter().map(|entry| entry.id))?;
        self.function_hashes.clear();
        for function in &self.functions {
            let name = self.string_hashes[self.index(function.name, "a function's name")?];
            let system = self.string_hashes[self.index(function.system_name, "a function's system name")?];
            let file = self.string_hashes[self.index(function.filename, "a function's file")?];
            self.function_hashes.push(function_hash(name, system, file, function.start_line));
        }
        self.mapping_hashes.clear();
        for mapping in &self.mappings {
            let file = self.string_hashes[self.index(mapping.filename, "a mapping's file")?];
            let build = self.string_hashes[self.index(mapping.build_id, "a mapping's build id")?];
            let size = mapping.limit.wrapping_sub(mapping.start);
            self.mapping_hashes.push(mapping_hash(size, mapping.offset, file, build, mapping.flags));
        }
        self.location_hashes.clear();
        self.resolved.clear();
        self.resolved.resize(self.locations.len(), NONE);
        let mut hasher = LocationHasher::default();
        for location in &mut self.locations {
            let mapping = self.mapping_ids.place(location.mapping_id);
            if mapping.is_none() && location.mapping_id != 0 {
                dropped.mappings += 1;
            }
            if let Some(place) = mapping {
                location.address = location.address.wrapping_sub(self.mappings[place].start);
            }
            let mapping = mapping.map_or(0, |place| self.mapping_hashes[place]);
            hasher.start(mapping, location.address, location.folded);
            let first = location.first_line as usize;
            for line in &self.lines[first..first + location.line_count as usize] {
                match self.function_ids.place(line.function_id) {
                    Some(place) => hasher.line(self.function_hashes[place], line.line, line.column),
                    None => dropped.lines += 1,
                }
            }
            self.location_hashes.push(hasher.finish());
        }
        Ok(())
    }

    /// Walks one sample and adds its row.
    fn sample(
        &mut self,
        raw: &[u8],
        (number, (start, end)): (usize, (usize, usize)),
        limits: &Limits,
        dictionary: &mut Dictionary,
        out: &mut Decoded,
    ) -> Result<(), DecodeError> {
        let complete = self.sample_fields(Cursor::new(raw).range(start, end))?;
        let expected = self.head.types.len();
        if self.row.values.len() != expected {
            return Err(DecodeError::ValueCount { sample: number, seen: self.row.values.len(), expected });
        }
        let counts =
            [("labels", self.row.labels.len(), limits.labels), ("frames", self.row.path.len(), limits.depth)];
        for (what, seen, limit) in counts {
            if seen > limit {
                return Err(DecodeError::OverLimit { what, seen, limit });
            }
        }
        if !complete {
            out.dropped.samples += 1;
            return Ok(());
        }
        let labels = if self.row.labels.is_empty() { 0 } else { self.labels(raw, dictionary)? };
        let stack_hash = Stacks::hash_of(&self.row.hashes);
        let stack = match dictionary.stacks.find(stack_hash) {
            Some(stack) => stack,
            None => self.new_stack(raw, stack_hash, dictionary)?,
        };
        let labels_hash = if labels == 0 { 0 } else { dictionary.label_sets.hash(labels) };
        out.content.add(stack_hash, labels_hash, &self.row.values);
        out.samples.push(stack, labels, &self.row.values);
        Ok(())
    }

    /// Reads a sample into the scratch row; false if it names a location that is not there.
    fn sample_fields(&mut self, mut cursor: Cursor<'_>) -> Result<bool, DecodeError> {
        let Decoder { row, location_ids, location_hashes, .. } = self;
        row.path.clear();
        row.hashes.clear();
        row.values.clear();
        row.labels.clear();
        let mut complete = true;
        while !cursor.is_done() {
            match cursor.field("a sample")? {
                (1, Value::Varint(id)) => complete &= row.frame(id, location_ids, location_hashes),
                (1, Value::Bytes(start, end)) => {
                    let mut packed = cursor.range(start, end);
                    row.path.reserve(end - start);
                    row.hashes.reserve(end - start);
                    while !packed.is_done() {
                        complete &= row.frame(packed.varint("a stack")?, location_ids, location_hashes);
                    }
                }
                (2, Value::Varint(value)) => row.values.push(value as i64),
                (2, Value::Bytes(start, end)) => {
                    let mut packed = cursor.range(start, end);
                    while !packed.is_done() {
                        row.values.push(packed.varint("a value")? as i64);
                    }
                }
                (3, Value::Bytes(start, end)) => row.labels.push((start, end)),
                (1..=3, _) => {
                    return Err(DecodeError::Malformed {
                        at: cursor.at(),
                        why: "a sample field of a wrong type",
                    });
                }
                _ => {}
            }
        }
        Ok(complete)
    }

    fn labels(&mut self, raw: &[u8], dictionary: &mut Dictionary) -> Result<u32, DecodeError> {
        let mut set = std::mem::take(&mut self.row.label_set);
        set.clear();
        for &(start, end) in &self.row.labels {
            let (mut key, mut text, mut number, mut unit) = (0, 0, 0, 0);
            let mut cursor = Cursor::new(raw).range(start, end);
            while !cursor.is_done() {
                match cursor.field("a label")? {
                    (1, Value::Varint(index)) => key = index as i64,
                    (2, Value::Varint(index)) => text = index as i64,
                    (3, Value::Varint(value)) => number = value as i64,
                    (4, Value::Varint(index)) => unit = index as i64,
                    _ => {}
                }
            }
            let mut intern = |index: i64, what| -> Result<u32, DecodeError> {
                let hash = self.string_hashes[self.index(index, what)?];
                Ok(dictionary.symbols.strings.intern_hashed(hash, self.text(raw, index, what)?))
            };
            let label = SampleLabel {
                key: intern(key, "a label's name")?,
                text: intern(text, "a label's text")?,
                number: if text == 0 { number } else { 0 },
                unit: intern(unit, "a label's unit")?,
            };
            // A label that says nothing is no label.
            if label.text != 0 || label.number != 0 || label.unit != 0 {
                set.push(label);
            }
        }
        let id = dictionary.label_sets.intern(&dictionary.symbols.strings, &set);
        self.row.label_set = set;
        Ok(id)
    }

    fn new_stack(&mut self, raw: &[u8], hash: Hash, dictionary: &mut Dictionary) -> Result<u32, DecodeError> {
        let mut path = std::mem::take(&mut self.row.path);
        for place in &mut path {
            let index = *place as usize;
            if self.resolved[index] == NONE {
                self.resolved[index] = self.resolve(raw, index, dictionary)?;
            }
            *place = self.resolved[index];
        }
        let stack = dictionary.stacks.intern_hashed(hash, path.iter().rev().copied());
        self.row.path = path;
        Ok(stack)
    }

    /// Copies a location and its names to the dictionary.
    fn resolve(&self, raw: &[u8], place: usize, dictionary: &mut Dictionary) -> Result<u32, DecodeError> {
        let symbols = &mut dictionary.symbols;
        if let Some(id) = symbols.find_location(self.location_hashes[place]) {
            return Ok(id);
        }
        let location = &self.locations[place];
        let mapping = match self.mapping_ids.place(location.mapping_id) {
            None => NONE,
            Some(mapping) => {
                let RawMapping { start, limit, offset, flags, .. } = self.mappings[mapping];
                let filename =
                    symbols.strings.intern(self.text(raw, self.mappings[mapping].filename, "a file")?);
                let build_id =
                    symbols.strings.intern(self.text(raw, self.mappings[mapping].build_id, "a build id")?);
                let size = limit.wrapping_sub(start);
                symbols.mapping(Mapping { start, size, offset, filename, build_id, flags })
            }
        };
        let first = location.first_line as usize;
        let mut lines = Vec::with_capacity(location.line_count as usize);
        for line in &self.lines[first..first + location.line_count as usize] {
            let Some(function) = self.function_ids.place(line.function_id) else { continue };
            let function = match symbols.find_function(self.function_hashes[function]) {
                Some(id) => id,
                None => {
                    let RawFunction { name, system_name, filename, start_line, .. } =
                        self.functions[function];
                    let mut intern = |index| -> Result<u32, DecodeError> {
                        Ok(symbols.strings.intern(self.text(raw, index, "a function")?))
                    };
                    let (name, system_name) = (intern(name)?, intern(system_name)?);
                    let filename = intern(filename)?;
                    symbols.function(Function { name, system_name, filename, start_line })
                }
            };
            lines.push(Line { function, line: line.line, column: line.column });
        }
        Ok(symbols.location(mapping, location.address, location.folded, &lines))
    }
}
