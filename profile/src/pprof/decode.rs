//! The walk: the top level, and the tables that samples refer to.

use super::entries::{
    RawFunction, RawLine, RawLocation, RawMapping, function, location, mapping, value_type,
};
use super::ids::Ids;
use super::samples::{Known, Row, Walked};
use super::walk::Sender;
use super::wire::{Cursor, Value};
use super::{DecodeError, Limits, within};
use crate::hash::{self, Hash, list_memory};
use crate::identity::Content;
use crate::model::{Dictionary, Header, Samples, ValueType};
use crate::normalise::without_shapes;
use crate::symbols::{ELF_ADDRESSES, LocationHasher, NONE, Strings, function_hash, mapping_hash};

/// Stands for the hash of a location that refers to something that is not there, where samples do not outlive that.
/// It lies where every frame looks anyway.
pub(super) const DANGLING: Hash = 0;

/// What was left out: what referred to nothing, and what was beyond what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Samples that name a location that is not there, or that [`Limits::drop_dangling`] drops.
    pub samples: usize,
    /// Lines that name a function that is not there.
    pub lines: usize,
    /// References to mappings that are not there.
    pub mappings: usize,
    /// Samples whose stacks lost leaves to [`Limits::kept_depth`].
    pub deep: usize,
    /// Texts that lost their beginning to [`Limits::kept_text`].
    pub long: usize,
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

/// What an entry takes, with its hash and its place by id.
const LOCATION: usize = size_of::<RawLocation>() + size_of::<Hash>() + 12;
const FUNCTION: usize = size_of::<RawFunction>() + size_of::<Hash>() + 8;
const MAPPING: usize = size_of::<RawMapping>() + size_of::<Hash>() + 8;
const TEXT: usize = size_of::<(usize, usize)>() + size_of::<Hash>();
/// With the row that it becomes, and where whoever stores it puts that.
const SAMPLE: usize = size_of::<(usize, usize)>() + size_of::<Walked>() + 104;

/// Walks profiles, one after the other, with memory that is used again.
#[derive(Default)]
pub struct Decoder {
    pub(super) strings: Vec<(usize, usize)>,
    pub(super) string_hashes: Vec<Hash>,
    pub(super) functions: Vec<RawFunction>,
    pub(super) function_ids: Ids,
    pub(super) function_hashes: Vec<Hash>,
    pub(super) mappings: Vec<RawMapping>,
    pub(super) mapping_ids: Ids,
    pub(super) mapping_hashes: Vec<Hash>,
    pub(super) locations: Vec<RawLocation>,
    pub(super) location_ids: Ids,
    pub(super) location_hashes: Vec<Hash>,
    /// Hashes by which locations are part of the identity; empty where these are those by which they are stored.
    pub(super) identity_hashes: Vec<Hash>,
    /// Where each location went in the dictionary, once a new stack asked for it.
    pub(super) resolved: Vec<u32>,
    pub(super) lines: Vec<RawLine>,
    pub(super) samples: Vec<(usize, usize)>,
    /// Stacks in the order of the file; a stack may be there more than once.
    pub(super) walked: Vec<Walked>,
    /// The most locations of a stack.
    pub(super) deepest: usize,
    /// Places of locations that were put above stacks, the root first.
    pub(super) roots: Vec<u32>,
    pub(super) known_stacks: Known,
    pub(super) known_labels: Known,
    pub(super) head: RawHeader,
    pub(super) row: Row,
    /// Whether names keep the shapes of Go's generic functions though they have some.
    pub(super) keeps_shapes: bool,
    pub(super) sender: Sender,
    hasher: LocationHasher,
    /// About how much memory the tables at hand take.
    tables: usize,
}

#[derive(Default)]
pub(super) struct RawHeader {
    pub(super) types: Vec<(i64, i64)>,
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

impl RawHeader {
    fn comment(&mut self, text: u64, limits: &Limits) -> Result<(), DecodeError> {
        within("comments", self.comments.len() + 1, limits.comments)?;
        self.comments.push(text as i64);
        Ok(())
    }
    /// The indexes of all its texts.
    fn texts(&self) -> impl Iterator<Item = i64> {
        let pairs = self.types.iter().chain(&self.period_type).flat_map(|&(kind, unit)| [kind, unit]);
        let remarks = [self.drop_frames, self.keep_frames, self.default_type, self.doc_url];
        pairs.chain(self.comments.iter().copied()).chain(remarks)
    }
}

impl Decoder {
    /// Bytes that it has taken. What is as large as one sample or the header is left out.
    pub(super) fn memory(&self) -> usize {
        let strings = list_memory(&self.strings) + list_memory(&self.string_hashes);
        let functions = list_memory(&self.functions) + list_memory(&self.function_hashes);
        let mappings = list_memory(&self.mappings) + list_memory(&self.mapping_hashes);
        let hashes = list_memory(&self.location_hashes) + list_memory(&self.identity_hashes);
        let locations = list_memory(&self.locations) + hashes;
        let lines = list_memory(&self.lines) + list_memory(&self.resolved);
        let samples = list_memory(&self.samples) + list_memory(&self.walked) + list_memory(&self.roots);
        let ids = self.function_ids.memory() + self.mapping_ids.memory() + self.location_ids.memory();
        let known = self.known_stacks.memory() + self.known_labels.memory();
        strings + functions + mappings + locations + lines + samples + ids + known
    }

    /// Walks one uncompressed profile. Rows refer to `dictionary`, which may already hold other profiles.
    pub fn decode(
        &mut self,
        raw: &[u8],
        limits: &Limits,
        dictionary: &mut Dictionary,
        out: &mut Decoded,
    ) -> Result<(), DecodeError> {
        self.walk(raw, limits, dictionary, out)?;
        self.look_up(raw, limits, dictionary, out)
    }

    /// All of [`decode`](Self::decode) but for stacks: until [`look_up`](Self::look_up), rows give their number in
    /// this file. Only labels of samples go into `labels`.
    pub(super) fn walk(
        &mut self,
        raw: &[u8],
        limits: &Limits,
        labels: &mut Dictionary,
        out: &mut Decoded,
    ) -> Result<(), DecodeError> {
        self.scan(raw, limits)?;
        out.dropped = Dropped::default();
        self.hash_strings(raw, limits, &mut out.dropped)?;
        out.header = self.header(raw, limits)?;
        self.hash_tables(limits, &mut out.dropped)?;
        self.hash_identity(raw, limits)?;
        self.walked.clear();
        self.roots.clear();
        self.deepest = 0;
        self.known_stacks.clear();
        self.known_labels.clear();
        out.samples.clear();
        out.content.reset(self.head.types.len());
        let samples = std::mem::take(&mut self.samples);
        let walked = (0..)
            .zip(&samples)
            .try_for_each(|(number, &range)| self.sample(raw, (number, range), limits, labels, out));
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
        self.tables = 0;
        let mut cursor = Cursor::new(raw);
        while !cursor.is_done() {
            let (number, value) = cursor.field("the profile")?;
            self.top_field((number, value), &cursor, limits)?;
        }
        if self.head.types.is_empty() {
            return Err(DecodeError::NoSampleType);
        }
        Ok(())
    }

    /// Takes a field in. An entry of two bytes may take eighty in memory: so each is counted before there is room for it.
    fn top_field(
        &mut self,
        field: (u64, Value),
        cursor: &Cursor<'_>,
        limits: &Limits,
    ) -> Result<(), DecodeError> {
        match field {
            (1, Value::Bytes(start, end)) => {
                within("sample types", self.head.types.len() + 1, limits.types)?;
                self.head.types.push(value_type(cursor.range(start, end))?);
            }
            (2, Value::Bytes(start, end)) => {
                within("samples", self.samples.len() + 1, limits.samples)?;
                self.takes(SAMPLE, limits)?;
                self.samples.push((start, end));
            }
            (3, Value::Bytes(start, end)) => {
                within("mappings", self.mappings.len() + 1, limits.entries)?;
                self.takes(MAPPING, limits)?;
                let mapping = mapping(cursor.range(start, end))?;
                let flags = mapping.flags | if self.sender.has_elf_addresses { ELF_ADDRESSES } else { 0 };
                self.mappings.push(RawMapping { flags, ..mapping });
            }
            (4, Value::Bytes(start, end)) => {
                within("locations", self.locations.len() + 1, limits.entries)?;
                self.takes(LOCATION, limits)?;
                let location = location(cursor.range(start, end), &mut self.lines, limits)?;
                self.takes(location.line_count as usize * size_of::<RawLine>(), limits)?;
                self.locations.push(location);
            }
            (5, Value::Bytes(start, end)) => {
                within("functions", self.functions.len() + 1, limits.entries)?;
                self.takes(FUNCTION, limits)?;
                self.functions.push(function(cursor.range(start, end))?);
            }
            (6, Value::Bytes(start, end)) => {
                within("strings", self.strings.len() + 1, limits.entries)?;
                self.takes(TEXT, limits)?;
                self.strings.push((start, end));
            }
            (11, Value::Bytes(start, end)) => {
                self.head.period_type = Some(value_type(cursor.range(start, end))?);
            }
            (1..=6 | 11, _) => {
                return Err(DecodeError::Malformed {
                    at: cursor.at(),
                    why: "a table entry that is no message",
                });
            }
            field => return self.head_field(field, cursor, limits),
        }
        Ok(())
    }

    /// Takes a field in that there is once, or a comment.
    fn head_field(
        &mut self,
        field: (u64, Value),
        cursor: &Cursor<'_>,
        limits: &Limits,
    ) -> Result<(), DecodeError> {
        match field {
            (7, Value::Varint(text)) => self.head.drop_frames = text as i64,
            (8, Value::Varint(text)) => self.head.keep_frames = text as i64,
            (9, Value::Varint(time)) => self.head.time_nanos = time as i64,
            (10, Value::Varint(duration)) => self.head.duration_nanos = duration as i64,
            (12, Value::Varint(period)) => self.head.period = period as i64,
            (13, Value::Varint(comment)) => self.head.comment(comment, limits)?,
            (13, Value::Bytes(start, end)) => {
                let mut packed = cursor.range(start, end);
                while !packed.is_done() {
                    self.head.comment(packed.varint("a comment")?, limits)?;
                }
            }
            (14, Value::Varint(text)) => self.head.default_type = text as i64,
            (15, Value::Varint(text)) => self.head.doc_url = text as i64,
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

    /// Counts memory before it is taken.
    fn takes(&mut self, bytes: usize, limits: &Limits) -> Result<(), DecodeError> {
        self.tables += bytes;
        within("bytes of tables in memory", self.tables, limits.tables)
    }

    fn hash_strings(
        &mut self,
        raw: &[u8],
        limits: &Limits,
        dropped: &mut Dropped,
    ) -> Result<(), DecodeError> {
        if self.strings.first().is_some_and(|&(start, end)| start != end) || self.strings.is_empty() {
            return Err(DecodeError::NoEmptyString);
        }
        self.string_hashes.clear();
        // Mostly they lie one after the other and all are ASCII, which is seen at once.
        let whole = self.strings.first().zip(self.strings.last()).map(|(first, last)| first.0..last.1);
        let ascii = whole.and_then(|range| raw.get(range)).is_some_and(<[u8]>::is_ascii);
        for (index, (start, end)) in self.strings.iter_mut().enumerate() {
            let text = &raw[*start..*end];
            if !ascii && !text.is_ascii() && std::str::from_utf8(text).is_err() {
                return Err(DecodeError::NotUtf8 { index });
            }
            if text.len() > limits.kept_text {
                dropped.long += 1;
                let cut = text.len() - limits.kept_text;
                // No byte that begins a character looks like one within.
                *start += cut + text[cut..].iter().take_while(|&&byte| byte & 0xc0 == 0x80).count();
            }
            self.string_hashes.push(hash::bytes(&raw[*start..*end]));
        }
        Ok(())
    }

    pub(super) fn index(&self, index: i64, what: &'static str) -> Result<usize, DecodeError> {
        let length = self.strings.len();
        usize::try_from(index).ok().filter(|&place| place < length).ok_or(DecodeError::OutOfRange {
            what,
            table: "strings",
            index,
            length,
        })
    }

    pub(super) fn text<'a>(
        &self,
        raw: &'a [u8],
        index: i64,
        what: &'static str,
    ) -> Result<&'a str, DecodeError> {
        let index = self.index(index, what)?;
        let (start, end) = self.strings[index];
        std::str::from_utf8(&raw[start..end]).map_err(|_| DecodeError::NotUtf8 { index })
    }

    /// The text of an index, as the dictionary knows it.
    pub(super) fn intern(&self, raw: &[u8], index: i64, strings: &mut Strings) -> Result<u32, DecodeError> {
        // Many entries may have one long text: it is looked at once.
        let hash = self.string_hashes[self.index(index, "a name")?];
        match strings.find_hashed(hash) {
            Some(id) => Ok(id),
            None => Ok(strings.intern_hashed(hash, self.text(raw, index, "a name")?)),
        }
    }

    fn header(&self, raw: &[u8], limits: &Limits) -> Result<Header, DecodeError> {
        let mut length = 0;
        for index in self.head.texts().filter_map(|index| usize::try_from(index).ok()) {
            length += self.strings.get(index).map_or(0, |&(start, end)| end - start);
            within("bytes of text in the header", length, limits.header)?;
        }
        let value_type = |(kind, unit): (i64, i64)| -> Result<ValueType, DecodeError> {
            let kind = self.text(raw, kind, "a sample type")?;
            Ok(ValueType::new(kind, self.text(raw, unit, "a sample type's unit")?))
        };
        let head = &self.head;
        // Nothing depends on these texts, and some writers get their indexes wrong.
        let remark = |index| self.text(raw, index, "a remark").ok().map(str::to_owned);
        Ok(Header {
            types: head.types.iter().copied().map(value_type).collect::<Result<_, _>>()?,
            period_type: head.period_type.map(value_type).transpose()?,
            period: head.period,
            time_nanos: head.time_nanos,
            duration_nanos: head.duration_nanos,
            comments: head.comments.iter().filter_map(|&text| remark(text)).collect(),
            drop_frames: remark(head.drop_frames).unwrap_or_default(),
            keep_frames: remark(head.keep_frames).unwrap_or_default(),
            default_type: remark(head.default_type).unwrap_or_default(),
            doc_url: remark(head.doc_url).unwrap_or_default(),
        })
    }

    /// Hashes every function, mapping and location once.
    fn hash_tables(&mut self, limits: &Limits, dropped: &mut Dropped) -> Result<(), DecodeError> {
        self.function_ids.build("function", self.functions.iter().map(|entry| entry.id))?;
        self.mapping_ids.build("mapping", self.mappings.iter().map(|entry| entry.id))?;
        self.location_ids.build("location", self.locations.iter().map(|entry| entry.id))?;
        let mut hashes = std::mem::take(&mut self.function_hashes);
        self.hash_functions(&self.string_hashes, &mut hashes)?;
        self.function_hashes = hashes;
        let mut hashes = std::mem::take(&mut self.mapping_hashes);
        self.hash_mappings(&self.string_hashes, u8::MAX, &mut hashes)?;
        self.mapping_hashes = hashes;
        self.location_hashes.clear();
        self.resolved.clear();
        self.resolved.resize(self.locations.len(), NONE);
        for location in &mut self.locations {
            let before = (dropped.mappings, dropped.lines);
            let mapping = self.mapping_ids.place(location.mapping_id);
            if mapping.is_none() && location.mapping_id != 0 {
                dropped.mappings += 1;
            }
            if let Some(place) = mapping.filter(|&place| self.mappings[place].flags & ELF_ADDRESSES == 0) {
                location.address = location.address.wrapping_sub(self.mappings[place].start);
            }
            let mapping = mapping.map_or(0, |place| self.mapping_hashes[place]);
            self.hasher.start(mapping, location.address, location.folded);
            let first = location.first_line as usize;
            for line in &self.lines[first..first + location.line_count as usize] {
                match self.function_ids.place(line.function_id) {
                    Some(place) => self.hasher.line(self.function_hashes[place], line.line, line.column),
                    None => dropped.lines += 1,
                }
            }
            let dangling = limits.drop_dangling && before != (dropped.mappings, dropped.lines);
            self.location_hashes.push(if dangling { DANGLING } else { self.hasher.finish() });
        }
        Ok(())
    }

    /// Hashes all functions, given the hashes of all texts.
    fn hash_functions(&self, strings: &[Hash], hashes: &mut Vec<Hash>) -> Result<(), DecodeError> {
        hashes.clear();
        for function in &self.functions {
            let name = strings[self.index(function.name, "a function's name")?];
            let system = strings[self.index(function.system_name, "a function's system name")?];
            let file = strings[self.index(function.filename, "a function's file")?];
            hashes.push(function_hash(name, system, file, function.start_line));
        }
        Ok(())
    }

    /// Hashes all mappings with those of their flags that are in `flags`.
    fn hash_mappings(&self, strings: &[Hash], flags: u8, hashes: &mut Vec<Hash>) -> Result<(), DecodeError> {
        hashes.clear();
        for mapping in &self.mappings {
            let file = strings[self.index(mapping.filename, "a mapping's file")?];
            let build = strings[self.index(mapping.build_id, "a mapping's build id")?];
            let size = mapping.limit.wrapping_sub(mapping.start);
            hashes.push(mapping_hash(size, mapping.offset, file, build, mapping.flags & flags));
        }
        Ok(())
    }

    /// Hashes locations as they are part of the identity [INV-01], where that differs from how they are stored:
    /// addresses are relative to the start of the mapping, whatever their kind, and names are without the shapes of
    /// Go's generic functions, whatever the language. So a retry is recognized by each version, and however it was
    /// sent.
    fn hash_identity(&mut self, raw: &[u8], limits: &Limits) -> Result<(), DecodeError> {
        self.identity_hashes.clear();
        let has_elf_addresses = self.mappings.iter().any(|mapping| mapping.flags & ELF_ADDRESSES != 0);
        if !has_elf_addresses && !self.keeps_shapes {
            return Ok(());
        }
        self.takes((self.locations.len() + self.strings.len()) * size_of::<Hash>(), limits)?;
        let text = |&(start, end): &(usize, usize)| std::str::from_utf8(&raw[start..end]).unwrap_or_default();
        let strings: Vec<Hash> =
            self.strings.iter().map(|range| hash::bytes(without_shapes(text(range)).as_bytes())).collect();
        let (mut functions, mut mappings) = (Vec::new(), Vec::new());
        self.hash_functions(&strings, &mut functions)?;
        self.hash_mappings(&strings, !ELF_ADDRESSES, &mut mappings)?;
        for (location, &stored) in self.locations.iter().zip(&self.location_hashes) {
            if stored == DANGLING {
                self.identity_hashes.push(DANGLING);
                continue;
            }
            let mapping = self.mapping_ids.place(location.mapping_id);
            let relative = match mapping.map(|place| &self.mappings[place]) {
                Some(mapping) if mapping.flags & ELF_ADDRESSES != 0 => {
                    location.address.wrapping_sub(mapping.start)
                }
                _ => location.address,
            };
            self.hasher.start(mapping.map_or(0, |place| mappings[place]), relative, location.folded);
            let first = location.first_line as usize;
            for line in &self.lines[first..first + location.line_count as usize] {
                if let Some(place) = self.function_ids.place(line.function_id) {
                    self.hasher.line(functions[place], line.line, line.column);
                }
            }
            self.identity_hashes.push(self.hasher.finish());
        }
        Ok(())
    }
}
