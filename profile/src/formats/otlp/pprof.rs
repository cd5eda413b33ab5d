//! Writer of pprof for the samples of one profile. Only entries that they refer to are written, numbered by
//! first use.
//!
//! Entries are written at their first use, so the writer only keeps their numbers. Stacks, attributes and
//! links repeat in many samples. They are encoded once and then copied.

use std::collections::HashMap;

use super::entry_numbers::{EncodedEntries, EntryNumbers};
use super::error::{PROFILE_BYTES_LIMIT_NAME, REQUEST_BYTES_LIMIT_NAME, check_limit};
use super::profile_header::{OtlpAttribute, OtlpProfileHeader, OtlpSampleMetric};
use super::sample::{self, OtlpSample};
use super::tables::{OtlpDictionary, OtlpTable};
use super::value::AnyValue;
use super::{BUILD_ID_ATTRIBUTES, OtlpError, OtlpLimits, OtlpViolation, OtlpViolations};
use crate::encoding::hex::encode_hex;
use crate::formats::pprof::wire::{
    WireCursor, WireValue, write_element, write_message, write_nested, write_number,
};
use crate::formats::pprof::{ELF_ADDRESSES_FIELD, TIMESTAMPS_FIELD};

/// Maximum number of frames in one stack.
const MAX_STACK_DEPTH: usize = 100_000;
/// Maximum number of inlined functions in one location.
const MAX_INLINED_LINES: usize = 10_000;
/// Maximum ratio between the bytes of entries that are read and the output of a request.
const MAX_READ_FACTOR: usize = 4;

/// Address range of a mapping in the process.
struct MappedRange {
    start: u64,
    limit: u64,
}

impl MappedRange {
    fn read(mut mapping: WireCursor<'_>) -> Result<Self, OtlpError> {
        let mut range = MappedRange { start: 0, limit: 0 };
        while !mapping.is_done() {
            match mapping.field("a mapping")? {
                (1, WireValue::Varint(start)) => range.start = start,
                (2, WireValue::Varint(limit)) => range.limit = limit,
                _ => {}
            }
        }
        Ok(range)
    }

    /// Returns whether an address is one of the process. No process has a mapping at 0. A limit that is not
    /// above the start is ignored.
    fn contains(&self, address: u64) -> bool {
        let is_below = address < self.limit || self.limit <= self.start;
        self.start != 0 && self.start <= address && is_below
    }
}

/// Writer of several pprof profiles, one after the other.
pub(super) struct OtlpPprofWriter<'t, 'a> {
    tables: &'t OtlpDictionary<'a>,
    bounds: OtlpLimits,
    /// Output bytes of the request so far, refused profiles included.
    pub(super) spent: usize,
    texts: EntryNumbers,
    functions: EntryNumbers,
    /// Numbers of mappings, two for each entry of the table, because some have addresses of both kinds.
    mappings: EntryNumbers,
    /// Address ranges of the mappings read so far.
    mapped: HashMap<u64, MappedRange>,
    locations: EntryNumbers,
    stacks: EncodedEntries,
    labels: EncodedEntries,
    links: EncodedEntries,
    /// Number of texts so far, the empty one included.
    count: u64,
    /// Numbers of the texts `span_id` and `trace_id`.
    keys: Option<(u64, u64)>,
    samples: Vec<u8>,
    entries: Vec<u8>,
    strings: Vec<u8>,
    /// Buffers for the current sample, stack and lines.
    scratch: Vec<u8>,
    frames: Vec<u8>,
    lines: Vec<u8>,
    pub(super) violations: OtlpViolations,
}

impl<'t, 'a> OtlpPprofWriter<'t, 'a> {
    pub(super) fn new(tables: &'t OtlpDictionary<'a>, bounds: &OtlpLimits) -> Self {
        let numbers = |table| EntryNumbers::new(tables.len(table));
        let pieces = |table| EncodedEntries::new(tables.len(table));
        // For most requests, the output is about as large as the input, in three parts.
        let part = || Vec::with_capacity(tables.bytes_of_request() / 4);
        OtlpPprofWriter {
            tables,
            bounds: *bounds,
            spent: 0,
            texts: numbers(OtlpTable::Strings),
            functions: numbers(OtlpTable::Functions),
            mappings: EntryNumbers::new(2 * tables.len(OtlpTable::Mappings)),
            mapped: HashMap::new(),
            locations: numbers(OtlpTable::Locations),
            stacks: pieces(OtlpTable::Stacks),
            labels: pieces(OtlpTable::Attributes),
            links: pieces(OtlpTable::Links),
            count: 1,
            keys: None,
            samples: part(),
            entries: part(),
            strings: part(),
            scratch: Vec::new(),
            frames: Vec::new(),
            lines: Vec::new(),
            violations: OtlpViolations::default(),
        }
    }

    /// Adds a sample to the current pprof.
    pub(super) fn sample(
        &mut self,
        sample: &OtlpSample,
        value: i64,
        skipped: impl Fn(u64) -> bool,
    ) -> Result<(), OtlpError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        if self.stacks.get(sample.stack).is_none() {
            self.stack(sample.stack)?;
        }
        scratch.extend_from_slice(self.stacks.get(sample.stack).unwrap_or_default());
        write_element(&mut scratch, 2, value as u64);
        for &attribute in sample.attributes.iter().filter(|&&attribute| !skipped(attribute)) {
            if self.labels.get(attribute).is_none() {
                self.label(attribute)?;
            }
            scratch.extend_from_slice(self.labels.get(attribute).unwrap_or_default());
        }
        if self.links.get(sample.link).is_none() {
            self.link(sample.link)?;
        }
        scratch.extend_from_slice(self.links.get(sample.link).unwrap_or_default());
        if !sample.times.is_empty() {
            write_message(&mut scratch, TIMESTAMPS_FIELD, &sample.times);
        }
        write_message(&mut self.samples, 2, &scratch);
        self.scratch = scratch;
        self.check()
    }

    /// Returns the pprof of all samples since the last call.
    pub(super) fn finish(
        &mut self,
        head: &OtlpProfileHeader<'_>,
        counted: &OtlpSampleMetric<'_>,
        comments: &[&[u8]],
    ) -> Result<Vec<u8>, OtlpError> {
        let value_type = |writer: &mut Self, (kind, unit): (&[u8], &[u8])| {
            let mut content = Vec::new();
            write_number(&mut content, 1, writer.own_text(kind)?);
            write_number(&mut content, 2, writer.own_text(unit)?);
            Ok::<_, OtlpError>(content)
        };
        let mut ending = Vec::new();
        let kind = value_type(self, counted.kind)?;
        write_number(&mut ending, 9, head.time);
        write_number(&mut ending, 10, head.duration.min(i64::MAX as u64));
        if !counted.period_kind.0.is_empty() {
            let period_kind = value_type(self, counted.period_kind)?;
            write_message(&mut ending, 11, &period_kind);
            write_number(&mut ending, 12, head.period as u64);
        }
        for comment in comments {
            write_number(&mut ending, 13, self.own_text(comment)?);
        }
        self.check()?;
        let length = self.samples.len() + self.entries.len() + self.strings.len() + ending.len();
        let mut out = Vec::with_capacity(length + kind.len() + 6);
        write_message(&mut out, 1, &kind);
        out.extend_from_slice(&self.samples);
        out.extend_from_slice(&self.entries);
        // The empty text is written right before the others. All texts are then contiguous and can be checked
        // for ASCII at once.
        write_message(&mut out, 6, &[]);
        out.extend_from_slice(&self.strings);
        out.extend_from_slice(&ending);
        self.clear();
        Ok(out)
    }

    /// Counts output bytes outside of profiles, such as labels, against the budget.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), OtlpError> {
        self.spent = self.spent.saturating_add(bytes);
        self.check()
    }

    /// Drops the state of the current pprof. Its bytes stay counted.
    pub(super) fn clear(&mut self) {
        self.spent += self.samples.len() + self.entries.len() + self.strings.len();
        [&mut self.texts, &mut self.functions, &mut self.mappings, &mut self.locations]
            .into_iter()
            .for_each(EntryNumbers::clear);
        [&mut self.stacks, &mut self.labels, &mut self.links].into_iter().for_each(EncodedEntries::clear);
        [&mut self.samples, &mut self.entries, &mut self.strings].into_iter().for_each(Vec::clear);
        (self.count, self.keys) = (1, None);
    }

    /// Returns an error if the profile or the request is over its limit.
    pub(super) fn check(&self) -> Result<(), OtlpError> {
        let length = self.samples.len() + self.entries.len() + self.strings.len();
        self.check_length(length)?;
        let seen = (self.spent + length).max(self.tables.visited_bytes() / MAX_READ_FACTOR);
        if seen > self.bounds.total {
            let what = REQUEST_BYTES_LIMIT_NAME;
            let limit = self.bounds.total;
            let way_out = " (64 times the request and limits.max_profile_size_bytes, at most limits.ingestion_body_limit): send \
                           smaller batches";
            return Err(OtlpError::OverLimit { what, seen, limit, way_out });
        }
        Ok(())
    }

    fn check_length(&self, seen: usize) -> Result<(), OtlpError> {
        if seen > self.bounds.profile {
            let way_out = " (limits.max_profile_size_bytes): profile for a shorter time";
            return Err(OtlpError::OverLimit {
                what: PROFILE_BYTES_LIMIT_NAME,
                seen,
                limit: self.bounds.profile,
                way_out,
            });
        }
        Ok(())
    }

    /// Writes the locations of a stack in the encoding of samples.
    fn stack(&mut self, index: u64) -> Result<(), OtlpError> {
        let Some(mut stack) = self.tables.entry(OtlpTable::Stacks, index, "a sample")? else { return Ok(()) };
        let mut locations = std::mem::take(&mut self.frames);
        let mut depth = 0;
        locations.clear();
        while !stack.is_done() {
            let (1, value) = stack.field("a stack")? else { continue };
            let mut numbers = match value {
                WireValue::Bytes(start, end) => self.tables.cursor(start, end),
                WireValue::Varint(location) => {
                    self.frame(location, &mut locations, &mut depth)?;
                    continue;
                }
                WireValue::Fixed(..) => continue,
            };
            while !numbers.is_done() {
                let location = numbers.varint("a stack")?;
                self.frame(location, &mut locations, &mut depth)?;
            }
        }
        self.stacks.add(index, |piece| {
            if !locations.is_empty() {
                write_message(piece, 1, &locations);
            }
        });
        self.frames = locations;
        Ok(())
    }

    #[inline(always)]
    fn frame(&mut self, location: u64, out: &mut Vec<u8>, depth: &mut usize) -> Result<(), OtlpError> {
        *depth += 1;
        check_limit("frames in a stack", *depth, MAX_STACK_DEPTH)?;
        let known = match self.locations.get(location) {
            Some(known) => known,
            None => self.location(location)?,
        };
        if known != 0 {
            crate::encoding::codec::put_varint(out, known);
        }
        Ok(())
    }

    /// Writes a location and returns its id; 0 for none.
    fn location(&mut self, index: u64) -> Result<u64, OtlpError> {
        let tables = self.tables;
        let Some(mut location) = tables.entry(OtlpTable::Locations, index, "a stack")? else { return Ok(0) };
        if index == 0 && location.is_done() {
            return Ok(0);
        }
        let id = self.locations.add(index);
        let mut mapping = 0;
        let mut address = 0;
        let mut count = 0;
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        let mut attributes = Vec::new();
        while !location.is_done() {
            match location.field("a location")? {
                (1, WireValue::Varint(index)) => mapping = index,
                (2, WireValue::Varint(at)) => address = at,
                (3, WireValue::Bytes(start, end)) => {
                    count += 1;
                    check_limit("lines of a location", count, MAX_INLINED_LINES)?;
                    self.line(tables.cursor(start, end), &mut lines)?;
                }
                (4, value) => sample::attributes(value, tables, &mut attributes)?,
                _ => {}
            }
        }
        // Locations in pprof have no attributes.
        for there in attributes.into_iter().filter_map(|index| tables.contains(OtlpTable::Attributes, index))
        {
            self.violations.add(OtlpViolation::IgnoredAttribute, u64::from(there));
            self.violations.add(OtlpViolation::DanglingAttribute, u64::from(!there));
        }
        let mapping = self.mapping(mapping, address)?;
        write_nested(&mut self.entries, 4, |out| {
            write_number(out, 1, id);
            write_number(out, 2, mapping);
            write_number(out, 3, address);
            out.extend_from_slice(&lines);
        });
        self.lines = lines;
        // A stack may have many locations with many entries each.
        self.check()?;
        Ok(id)
    }

    /// Writes a line of a location, if it has a function.
    fn line(&mut self, mut line: WireCursor<'a>, out: &mut Vec<u8>) -> Result<(), OtlpError> {
        let mut function = 0;
        let mut at = 0;
        let mut column = 0;
        while !line.is_done() {
            match line.field("a line")? {
                (1, WireValue::Varint(index)) => function = index,
                (2, WireValue::Varint(number)) => at = number,
                (3, WireValue::Varint(number)) => column = number,
                _ => {}
            }
        }
        let function = match self.functions.get(function) {
            Some(known) => known,
            None => self.function(function)?,
        };
        if function != 0 {
            write_nested(out, 4, |out| {
                write_number(out, 1, function);
                write_number(out, 2, at);
                write_number(out, 3, column);
            });
        }
        Ok(())
    }

    /// Writes a function and returns its id; 0 for none.
    fn function(&mut self, index: u64) -> Result<u64, OtlpError> {
        let Some(mut function) = self.tables.entry(OtlpTable::Functions, index, "a line")? else {
            return Ok(0);
        };
        if index == 0 && function.is_done() {
            return Ok(0);
        }
        let id = self.functions.add(index);
        // Name, system name, file and start line. If a field is repeated, the last one wins.
        let mut fields = [0; 4];
        while !function.is_done() {
            match function.field("a function")? {
                (field @ 1..=3, WireValue::Varint(text)) => {
                    fields[field as usize - 1] = self.text(text, "a function")?;
                }
                (4, WireValue::Varint(line)) => fields[3] = line,
                _ => {}
            }
        }
        write_nested(&mut self.entries, 5, |out| {
            write_number(out, 1, id);
            // Field numbers in pprof are one higher than the OTLP ones.
            (2..).zip(fields).for_each(|(field, value)| write_number(out, field, value));
        });
        Ok(id)
    }

    /// Writes the mapping of an address and returns its id; 0 for none.
    ///
    /// The protocol has no field for the kind of addresses. The writer takes an address outside of the mapped
    /// range for one of the ELF file: the eBPF profiler sends such addresses.
    fn mapping(&mut self, index: u64, address: u64) -> Result<u64, OtlpError> {
        let key =
            |range: &MappedRange| index.saturating_mul(2).saturating_add(u64::from(!range.contains(address)));
        if let Some(known) = self.mapped.get(&index).and_then(|range| self.mappings.get(key(range))) {
            return Ok(known);
        }
        let Some(mut mapping) = self.tables.entry(OtlpTable::Mappings, index, "a location")? else {
            return Ok(0);
        };
        if index == 0 && mapping.is_done() {
            return Ok(0);
        }
        let range = MappedRange::read(mapping)?;
        let is_mapped = range.contains(address);
        let id = self.mappings.add(key(&range));
        self.mapped.insert(index, range);
        let mut content = Vec::new();
        let mut attributes = Vec::new();
        write_number(&mut content, 1, id);
        write_number(&mut content, ELF_ADDRESSES_FIELD, u64::from(!is_mapped));
        while !mapping.is_done() {
            match mapping.field("a mapping")? {
                // Field numbers in pprof are one higher than the OTLP ones.
                (field @ 1..=3, WireValue::Varint(value)) => write_number(&mut content, field + 1, value),
                (4, WireValue::Varint(text)) => {
                    let text = self.text(text, "a mapping")?;
                    write_number(&mut content, 5, text);
                }
                (5, value) => sample::attributes(value, self.tables, &mut attributes)?,
                _ => {}
            }
        }
        self.attributes_of_mapping(&attributes, &mut content)?;
        write_message(&mut self.entries, 3, &content);
        Ok(id)
    }

    /// Writes the build id of a mapping, and the flags for which of its names are known.
    fn attributes_of_mapping(&mut self, attributes: &[u64], content: &mut Vec<u8>) -> Result<(), OtlpError> {
        const MAPPING_FLAG_ATTRIBUTES: [&[u8]; 4] = [
            b"pprof.mapping.has_functions",
            b"pprof.mapping.has_filenames",
            b"pprof.mapping.has_line_numbers",
            b"pprof.mapping.has_inline_frames",
        ];
        let mut builds = [const { None }; BUILD_ID_ATTRIBUTES.len()];
        for &index in attributes {
            let Ok(Some(entry)) = self.tables.entry(OtlpTable::Attributes, index, "a mapping") else {
                self.violations.add(OtlpViolation::DanglingAttribute, 1);
                continue;
            };
            let OtlpAttribute { pair, .. } = OtlpAttribute::read(entry, self.tables)?;
            if let Some(rank) = BUILD_ID_ATTRIBUTES.iter().position(|key| key.as_bytes() == pair.key) {
                builds[rank] = Some(pair.value.to_text(self.tables)?);
            } else if let Some(flag) = MAPPING_FLAG_ATTRIBUTES.iter().position(|key| *key == pair.key) {
                write_number(
                    content,
                    7 + flag as u64,
                    u64::from(matches!(pair.value, AnyValue::Truth(true))),
                );
            } else {
                self.violations.add(OtlpViolation::IgnoredAttribute, u64::from(!pair.key.is_empty()));
            }
        }
        if let Some(build) = builds.into_iter().flatten().find(|build| !build.is_empty()) {
            write_number(content, 6, self.own_text(&build)?);
        }
        Ok(())
    }

    /// Writes an attribute in the encoding of sample labels.
    fn label(&mut self, index: u64) -> Result<(), OtlpError> {
        let tables = self.tables;
        let Some(entry) = tables.entry(OtlpTable::Attributes, index, "a sample")? else { return Ok(()) };
        let OtlpAttribute { pair, key, unit } = OtlpAttribute::read(entry, tables)?;
        let mut piece = Vec::new();
        let mut content = Vec::new();
        let unit = self.text(unit, "the unit of an attribute")?;
        match pair.value {
            // A number with a unit is a measurement. A number without one, such as a thread id, is a name.
            AnyValue::Integer(value) if unit != 0 => {
                write_number(&mut content, 3, value as u64);
                write_number(&mut content, 4, unit);
            }
            AnyValue::Named(text) => {
                write_number(&mut content, 2, self.text(text, "the value of an attribute")?)
            }
            value => {
                let text = value.to_text(tables)?;
                write_number(&mut content, 2, self.own_text(&text)?);
            }
        }
        if !pair.key.is_empty() && !content.is_empty() {
            let key = self.text(key, "the key of an attribute")?;
            write_number(&mut content, 1, key);
            write_message(&mut piece, 3, &content);
        }
        self.labels.add(index, |pieces| pieces.extend_from_slice(&piece));
        Ok(())
    }

    /// Writes a link in the encoding of sample labels.
    fn link(&mut self, index: u64) -> Result<(), OtlpError> {
        let Some(mut link) = self.tables.entry(OtlpTable::Links, index, "a sample")? else { return Ok(()) };
        let mut trace = &[][..];
        let mut span = &[][..];
        while !link.is_done() {
            match link.field("a link")? {
                (1, WireValue::Bytes(start, end)) => trace = self.tables.bytes(start, end),
                (2, WireValue::Bytes(start, end)) => span = self.tables.bytes(start, end),
                _ => {}
            }
        }
        let mut piece = Vec::new();
        let is_malformed = |id: &[u8], length| !id.is_empty() && id.len() != length;
        self.violations
            .add(OtlpViolation::MalformedLink, u64::from(is_malformed(trace, 16) || is_malformed(span, 8)));
        let is_id = |id: &[u8], length| id.len() == length && id.iter().any(|&byte| byte != 0);
        for (id, length, is_span) in [(span, 8, true), (trace, 16, false)] {
            if !is_id(id, length) {
                continue;
            }
            let (span_key, trace_key) = self.keys()?;
            let mut content = Vec::new();
            write_number(&mut content, 1, if is_span { span_key } else { trace_key });
            write_number(&mut content, 2, self.own_text(encode_hex(id).as_bytes())?);
            write_message(&mut piece, 3, &content);
        }
        self.links.add(index, |pieces| pieces.extend_from_slice(&piece));
        Ok(())
    }

    fn keys(&mut self) -> Result<(u64, u64), OtlpError> {
        if let Some(keys) = self.keys {
            return Ok(keys);
        }
        let keys = (self.own_text(b"span_id")?, self.own_text(b"trace_id")?);
        self.keys = Some(keys);
        Ok(keys)
    }

    /// Returns the number of a text in the table.
    fn text(&mut self, index: u64, what: &'static str) -> Result<u64, OtlpError> {
        if let Some(known) = self.texts.get(index) {
            return Ok(known);
        }
        let text = self.tables.text(index, what)?;
        let number = self.own_text(text)?;
        if number != 0 {
            self.texts.put(index, number);
        }
        Ok(number)
    }

    /// Writes a text if it fits into the limit, and returns its number.
    fn own_text(&mut self, text: &[u8]) -> Result<u64, OtlpError> {
        if text.is_empty() {
            return Ok(0);
        }
        self.check_length(self.strings.len() + text.len())?;
        write_message(&mut self.strings, 6, text);
        self.count += 1;
        Ok(self.count - 1)
    }
}
