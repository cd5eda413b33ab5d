//! Decoder of the top-level fields and of the tables that samples refer to.

use super::entries::{
    RawFunction, RawLine, RawLocation, RawMapping, read_function, read_location, read_mapping,
    read_value_type,
};
use super::id_index::IdIndex;
use super::wire::{WireCursor, WireValue};
use super::{DecodeError, DecodeLimits, SenderInfo, check_limit};
use crate::data_model::dropped_counts::{DropReason, DroppedCounts};
use crate::data_model::identity::ContentHasher;
use crate::data_model::model::{Dictionary, ProfileHeader, Samples, ValueType};
use crate::data_model::symbols::{
    ELF_ADDRESSES_FLAG, LocationHasher, NO_ENTRY, StringTable, function_hash, mapping_hash,
};
use crate::encoding::hash::{self, ContentHash, vec_memory};
use crate::labeling::normalize::strip_shapes;
use samples::{EntryCache, SampleScratch, SampleSpan, WalkedStack};

mod samples;

/// Hash of a location with a dangling reference, if samples with it are dropped. Samples already read this
/// hash of every frame, so the check costs nothing more.
pub(super) const DANGLING_LOCATION_HASH: ContentHash = 0;

/// Result of decoding one profile. The next profile reuses its memory.
#[derive(Default)]
pub struct DecodedProfile {
    /// Header fields of the profile.
    pub header: ProfileHeader,
    /// Rows in the order sent. Equal rows are not added up yet.
    pub samples: Samples,
    /// Hasher of the canonical content.
    pub content: ContentHasher,
    /// Counts of dropped parts: dangling references, and excess over [`DecodeLimits::kept_depth`] and
    /// [`DecodeLimits::kept_text`].
    pub dropped: DroppedCounts,
}

/// Memory of a table entry, with its hash and its position by id.
const LOCATION_ENTRY_BYTES: usize = size_of::<RawLocation>() + size_of::<ContentHash>() + 12;
const FUNCTION_ENTRY_BYTES: usize = size_of::<RawFunction>() + size_of::<ContentHash>() + 8;
const MAPPING_ENTRY_BYTES: usize = size_of::<RawMapping>() + size_of::<ContentHash>() + 8;
const STRING_ENTRY_BYTES: usize = size_of::<(usize, usize)>() + size_of::<ContentHash>();
/// Includes the row that the sample becomes, and the memory for storing that row.
const SAMPLE_ENTRY_BYTES: usize = size_of::<(usize, usize)>() + size_of::<WalkedStack>() + 104;

/// Decoder of profiles, one after the other. Its memory is reused.
#[derive(Default)]
pub struct PprofDecoder {
    pub(super) strings: Vec<(usize, usize)>,
    pub(super) string_hashes: Vec<ContentHash>,
    pub(super) functions: Vec<RawFunction>,
    pub(super) function_ids: IdIndex,
    pub(super) function_hashes: Vec<ContentHash>,
    pub(super) mappings: Vec<RawMapping>,
    pub(super) mapping_ids: IdIndex,
    pub(super) mapping_hashes: Vec<ContentHash>,
    pub(super) locations: Vec<RawLocation>,
    pub(super) location_ids: IdIndex,
    pub(super) location_hashes: Vec<ContentHash>,
    /// Hashes of locations for the identity; empty if they equal the hashes for storage.
    pub(super) identity_hashes: Vec<ContentHash>,
    /// Dictionary id of each location, once a new stack needed it.
    pub(super) resolved: Vec<u32>,
    pub(super) lines: Vec<RawLine>,
    pub(super) samples: Vec<(usize, usize)>,
    /// Stacks in the order of the file. A stack may occur more than once.
    pub(super) walked: Vec<WalkedStack>,
    /// Maximum number of locations in a stack.
    pub(super) deepest: usize,
    /// Indexes of locations that were added above stacks, the root first.
    pub(super) roots: Vec<u32>,
    pub(super) known_stacks: EntryCache,
    pub(super) known_labels: EntryCache,
    pub(super) head: RawHeader,
    pub(super) row: SampleScratch,
    /// Set if names have shapes of Go's generic functions and keep them.
    pub(super) keeps_shapes: bool,
    pub(super) sender: SenderInfo,
    hasher: LocationHasher,
    /// Approximate memory of the current tables in bytes.
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
    fn comment(&mut self, text: u64, limits: &DecodeLimits) -> Result<(), DecodeError> {
        check_limit("comments", self.comments.len() + 1, limits.comments)?;
        self.comments.push(text as i64);
        Ok(())
    }
    /// Returns the string indexes of all its texts.
    fn texts(&self) -> impl Iterator<Item = i64> {
        let pairs = self.types.iter().chain(&self.period_type).flat_map(|&(kind, unit)| [kind, unit]);
        let remarks = [self.drop_frames, self.keep_frames, self.default_type, self.doc_url];
        pairs.chain(self.comments.iter().copied()).chain(remarks)
    }
}

impl PprofDecoder {
    /// Returns the allocated bytes. Buffers as large as one sample or the header are not counted.
    pub(super) fn memory(&self) -> usize {
        let strings = vec_memory(&self.strings) + vec_memory(&self.string_hashes);
        let functions = vec_memory(&self.functions) + vec_memory(&self.function_hashes);
        let mappings = vec_memory(&self.mappings) + vec_memory(&self.mapping_hashes);
        let hashes = vec_memory(&self.location_hashes) + vec_memory(&self.identity_hashes);
        let locations = vec_memory(&self.locations) + hashes;
        let lines = vec_memory(&self.lines) + vec_memory(&self.resolved);
        let samples = vec_memory(&self.samples) + vec_memory(&self.walked) + vec_memory(&self.roots);
        let ids = self.function_ids.memory() + self.mapping_ids.memory() + self.location_ids.memory();
        let known = self.known_stacks.memory() + self.known_labels.memory();
        strings + functions + mappings + locations + lines + samples + ids + known
    }

    /// Decodes one uncompressed profile. Rows refer to `dictionary`, which may already hold other profiles.
    pub fn decode(
        &mut self,
        raw: &[u8],
        limits: &DecodeLimits,
        dictionary: &mut Dictionary,
        out: &mut DecodedProfile,
    ) -> Result<(), DecodeError> {
        self.walk(raw, limits, dictionary, out)?;
        self.resolve_stacks(raw, limits, dictionary, out)
    }

    /// Does all of [`decode`](Self::decode) except for stacks. Until [`resolve_stacks`](Self::resolve_stacks)
    /// is called, rows hold stack numbers of this file. Only labels of samples are added to `labels`.
    pub(super) fn walk(
        &mut self,
        raw: &[u8],
        limits: &DecodeLimits,
        labels: &mut Dictionary,
        out: &mut DecodedProfile,
    ) -> Result<(), DecodeError> {
        self.scan(raw, limits)?;
        out.dropped = DroppedCounts::default();
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
        let walked = (0..).zip(&samples).try_for_each(|(number, &(start, end))| {
            self.read_sample(raw, SampleSpan { number, start, end }, limits, labels, out)
        });
        self.samples = samples;
        walked
    }

    /// Visits the top-level fields in the order of the file.
    fn scan(&mut self, raw: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
        self.strings.clear();
        self.functions.clear();
        self.mappings.clear();
        self.locations.clear();
        self.lines.clear();
        self.samples.clear();
        self.head = RawHeader::default();
        self.tables = 0;
        let mut cursor = WireCursor::new(raw);
        while !cursor.is_done() {
            let (number, value) = cursor.field("the profile")?;
            self.read_top_field((number, value), &cursor, limits)?;
        }
        if self.head.types.is_empty() {
            return Err(DecodeError::NoSampleType);
        }
        Ok(())
    }

    /// Reads a field. An entry of two bytes may take eighty in memory, so memory is charged before it is
    /// allocated.
    fn read_top_field(
        &mut self,
        field: (u64, WireValue),
        cursor: &WireCursor<'_>,
        limits: &DecodeLimits,
    ) -> Result<(), DecodeError> {
        match field {
            (1, WireValue::Bytes(start, end)) => {
                check_limit("sample types", self.head.types.len() + 1, limits.types)?;
                self.head.types.push(read_value_type(cursor.range(start, end))?);
            }
            (2, WireValue::Bytes(start, end)) => {
                check_limit("samples", self.samples.len() + 1, limits.samples)?;
                self.charge_memory(SAMPLE_ENTRY_BYTES, limits)?;
                self.samples.push((start, end));
            }
            (3, WireValue::Bytes(start, end)) => {
                check_limit("mappings", self.mappings.len() + 1, limits.entries)?;
                self.charge_memory(MAPPING_ENTRY_BYTES, limits)?;
                let mapping = read_mapping(cursor.range(start, end))?;
                let flags =
                    mapping.flags | if self.sender.has_elf_addresses { ELF_ADDRESSES_FLAG } else { 0 };
                self.mappings.push(RawMapping { flags, ..mapping });
            }
            (4, WireValue::Bytes(start, end)) => {
                check_limit("locations", self.locations.len() + 1, limits.entries)?;
                self.charge_memory(LOCATION_ENTRY_BYTES, limits)?;
                let location = read_location(cursor.range(start, end), &mut self.lines, limits)?;
                self.charge_memory(location.line_count as usize * size_of::<RawLine>(), limits)?;
                self.locations.push(location);
            }
            (5, WireValue::Bytes(start, end)) => {
                check_limit("functions", self.functions.len() + 1, limits.entries)?;
                self.charge_memory(FUNCTION_ENTRY_BYTES, limits)?;
                self.functions.push(read_function(cursor.range(start, end))?);
            }
            (6, WireValue::Bytes(start, end)) => {
                check_limit("strings", self.strings.len() + 1, limits.entries)?;
                self.charge_memory(STRING_ENTRY_BYTES, limits)?;
                self.strings.push((start, end));
            }
            (11, WireValue::Bytes(start, end)) => {
                self.head.period_type = Some(read_value_type(cursor.range(start, end))?);
            }
            (1..=6 | 11, _) => {
                return Err(DecodeError::Malformed {
                    at: cursor.position(),
                    why: "a table entry that is not a message",
                });
            }
            field => return self.read_header_field(field, cursor, limits),
        }
        Ok(())
    }

    /// Reads a field of the header, or a comment.
    fn read_header_field(
        &mut self,
        field: (u64, WireValue),
        cursor: &WireCursor<'_>,
        limits: &DecodeLimits,
    ) -> Result<(), DecodeError> {
        match field {
            (7, WireValue::Varint(text)) => self.head.drop_frames = text as i64,
            (8, WireValue::Varint(text)) => self.head.keep_frames = text as i64,
            (9, WireValue::Varint(time)) => self.head.time_nanos = time as i64,
            (10, WireValue::Varint(duration)) => self.head.duration_nanos = duration as i64,
            (12, WireValue::Varint(period)) => self.head.period = period as i64,
            (13, WireValue::Varint(comment)) => self.head.comment(comment, limits)?,
            (13, WireValue::Bytes(start, end)) => {
                let mut packed = cursor.range(start, end);
                while !packed.is_done() {
                    self.head.comment(packed.varint("a comment")?, limits)?;
                }
            }
            (14, WireValue::Varint(text)) => self.head.default_type = text as i64,
            (15, WireValue::Varint(text)) => self.head.doc_url = text as i64,
            (7..=15, _) => {
                return Err(DecodeError::Malformed {
                    at: cursor.position(),
                    why: "a header field that is not a number",
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Charges memory before it is allocated.
    fn charge_memory(&mut self, bytes: usize, limits: &DecodeLimits) -> Result<(), DecodeError> {
        self.tables += bytes;
        check_limit("bytes of tables in memory", self.tables, limits.tables)
    }

    fn hash_strings(
        &mut self,
        raw: &[u8],
        limits: &DecodeLimits,
        dropped: &mut DroppedCounts,
    ) -> Result<(), DecodeError> {
        if self.strings.first().is_some_and(|&(start, end)| start != end) || self.strings.is_empty() {
            return Err(DecodeError::NoEmptyString);
        }
        self.string_hashes.clear();
        // Usually all texts are contiguous and ASCII, and one check covers them.
        let whole = self.strings.first().zip(self.strings.last()).map(|(first, last)| first.0..last.1);
        let ascii = whole.and_then(|range| raw.get(range)).is_some_and(<[u8]>::is_ascii);
        for (index, (start, end)) in self.strings.iter_mut().enumerate() {
            let text = &raw[*start..*end];
            if !ascii && !text.is_ascii() && std::str::from_utf8(text).is_err() {
                return Err(DecodeError::NotUtf8 { index });
            }
            if text.len() > limits.kept_text {
                dropped.add(DropReason::LongText, 1);
                let cut = text.len() - limits.kept_text;
                // The first byte of a UTF-8 character never has the bit pattern of the others.
                *start += cut + text[cut..].iter().take_while(|&&byte| byte & 0xc0 == 0x80).count();
            }
            self.string_hashes.push(hash::hash_bytes(&raw[*start..*end]));
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

    /// Returns the dictionary id of a text, and adds the text if it is new.
    pub(super) fn intern(
        &self,
        raw: &[u8],
        index: i64,
        strings: &mut StringTable,
    ) -> Result<u32, DecodeError> {
        // Many entries may refer to one long text. Its bytes are read only once.
        let hash = self.string_hashes[self.index(index, "a name")?];
        match strings.find_hashed(hash) {
            Some(id) => Ok(id),
            None => Ok(strings.intern_hashed(hash, self.text(raw, index, "a name")?)),
        }
    }

    fn header(&self, raw: &[u8], limits: &DecodeLimits) -> Result<ProfileHeader, DecodeError> {
        let mut length = 0;
        for index in self.head.texts().filter_map(|index| usize::try_from(index).ok()) {
            length += self.strings.get(index).map_or(0, |&(start, end)| end - start);
            check_limit("bytes of text in the header", length, limits.header)?;
        }
        let value_type = |(kind, unit): (i64, i64)| -> Result<ValueType, DecodeError> {
            let kind = self.text(raw, kind, "a sample type")?;
            Ok(ValueType::new(kind, self.text(raw, unit, "a sample type's unit")?))
        };
        let head = &self.head;
        // These texts do not affect the samples, and some writers get their indexes wrong.
        let remark = |index| self.text(raw, index, "a remark").ok().map(str::to_owned);
        Ok(ProfileHeader {
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
    fn hash_tables(&mut self, limits: &DecodeLimits, dropped: &mut DroppedCounts) -> Result<(), DecodeError> {
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
        self.resolved.resize(self.locations.len(), NO_ENTRY);
        for location in &mut self.locations {
            let dropped_before = *dropped;
            let mapping = self.mapping_ids.position(location.mapping_id);
            if mapping.is_none() && location.mapping_id != 0 {
                dropped.add(DropReason::DanglingMapping, 1);
            }
            if let Some(place) = mapping.filter(|&place| self.mappings[place].flags & ELF_ADDRESSES_FLAG == 0)
            {
                location.address = location.address.wrapping_sub(self.mappings[place].start);
            }
            let mapping = mapping.map_or(0, |place| self.mapping_hashes[place]);
            self.hasher.start(mapping, location.address, location.folded);
            let first = location.first_line as usize;
            for line in &self.lines[first..first + location.line_count as usize] {
                match self.function_ids.position(line.function_id) {
                    Some(place) => self.hasher.add_line(self.function_hashes[place], line.line, line.column),
                    None => dropped.add(DropReason::DanglingLine, 1),
                }
            }
            let dangling = limits.drop_dangling && dropped_before != *dropped;
            self.location_hashes.push(if dangling { DANGLING_LOCATION_HASH } else { self.hasher.finish() });
        }
        Ok(())
    }

    /// Hashes all functions, given the hashes of all texts.
    fn hash_functions(
        &self,
        strings: &[ContentHash],
        hashes: &mut Vec<ContentHash>,
    ) -> Result<(), DecodeError> {
        hashes.clear();
        for function in &self.functions {
            let name = strings[self.index(function.name, "a function's name")?];
            let system = strings[self.index(function.system_name, "a function's system name")?];
            let file = strings[self.index(function.filename, "a function's file")?];
            hashes.push(function_hash(name, system, file, function.start_line));
        }
        Ok(())
    }

    /// Hashes all mappings with only the flags that are in `flags`.
    fn hash_mappings(
        &self,
        strings: &[ContentHash],
        flags: u8,
        hashes: &mut Vec<ContentHash>,
    ) -> Result<(), DecodeError> {
        hashes.clear();
        for mapping in &self.mappings {
            let file = strings[self.index(mapping.filename, "a mapping's file")?];
            let build = strings[self.index(mapping.build_id, "a mapping's build id")?];
            let size = mapping.limit.wrapping_sub(mapping.start);
            hashes.push(mapping_hash(size, mapping.offset, file, build, mapping.flags & flags));
        }
        Ok(())
    }

    /// Hashes locations for the identity [INV-01], if that differs from storage. Addresses are relative to
    /// the start of the mapping, whatever their kind. Names have no shapes of Go's generic functions,
    /// whatever the language. Every version thus recognizes a retry, however it was sent.
    fn hash_identity(&mut self, raw: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
        self.identity_hashes.clear();
        let has_elf_addresses = self.mappings.iter().any(|mapping| mapping.flags & ELF_ADDRESSES_FLAG != 0);
        if !has_elf_addresses && !self.keeps_shapes {
            return Ok(());
        }
        self.charge_memory((self.locations.len() + self.strings.len()) * size_of::<ContentHash>(), limits)?;
        let text = |&(start, end): &(usize, usize)| std::str::from_utf8(&raw[start..end]).unwrap_or_default();
        let strings: Vec<ContentHash> =
            self.strings.iter().map(|range| hash::hash_bytes(strip_shapes(text(range)).as_bytes())).collect();
        let mut functions = Vec::new();
        let mut mappings = Vec::new();
        self.hash_functions(&strings, &mut functions)?;
        self.hash_mappings(&strings, !ELF_ADDRESSES_FLAG, &mut mappings)?;
        for (location, &stored) in self.locations.iter().zip(&self.location_hashes) {
            if stored == DANGLING_LOCATION_HASH {
                self.identity_hashes.push(DANGLING_LOCATION_HASH);
                continue;
            }
            let mapping = self.mapping_ids.position(location.mapping_id);
            let relative = match mapping.map(|place| &self.mappings[place]) {
                Some(mapping) if mapping.flags & ELF_ADDRESSES_FLAG != 0 => {
                    location.address.wrapping_sub(mapping.start)
                }
                _ => location.address,
            };
            self.hasher.start(mapping.map_or(0, |place| mappings[place]), relative, location.folded);
            let first = location.first_line as usize;
            for line in &self.lines[first..first + location.line_count as usize] {
                if let Some(place) = self.function_ids.position(line.function_id) {
                    self.hasher.add_line(functions[place], line.line, line.column);
                }
            }
            self.identity_hashes.push(self.hasher.finish());
        }
        Ok(())
    }
}
