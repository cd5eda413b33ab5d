//! Symbols: strings, functions, mappings and locations, each stored once under a dense id.
//!
//! Every entry is found by its content hash, which covers the hashes of the entries that it refers to. Two
//! unrelated dictionaries thus give equal entries equal hashes, and a merge is a lookup.

use crate::encoding::hash::{self, ContentHash, PrehashedMap, vec_memory};

/// Id for "no such entry": the mapping of a location without one, the parent of a root frame.
pub const NO_ENTRY: u32 = u32::MAX;

/// Function with its names and source position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Human-readable name, as a string id.
    pub name: u32,
    /// Linker name, often mangled.
    pub system_name: u32,
    /// Path of the source file.
    pub filename: u32,
    /// Line at which the function starts, 0 if unknown.
    pub start_line: i64,
}

/// Binary or library that was mapped into the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Start address of the mapping. It differs between processes and is not part of the identity. The
    /// smallest one seen is kept.
    pub start: u64,
    /// Length of the mapped range.
    pub size: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Path of the file.
    pub filename: u32,
    /// Build id, as hex.
    pub build_id: u32,
    /// Symbolization by the sender, as bits in the order of pprof's `has_*` fields, and
    /// [`ELF_ADDRESSES_FLAG`].
    pub flags: u8,
}

/// Flag of a [`Mapping`] with locations that have virtual addresses of the ELF file, not of the process. The
/// mapping's start is not subtracted from them, so the file's symbols can be looked up by these addresses.
pub const ELF_ADDRESSES_FLAG: u8 = 1 << 4;

impl Mapping {
    /// Returns the address of a location as sent, from the stored address.
    pub fn sent_address(&self, stored: u64) -> u64 {
        if self.flags & ELF_ADDRESSES_FLAG != 0 { stored } else { stored.wrapping_add(self.start) }
    }
}

/// Source line within a location: the function and the position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Id of the function.
    pub function: u32,
    /// Line number, 0 if unknown.
    pub line: i64,
    /// Column, 0 if unknown.
    pub column: i64,
}

/// Instruction address with the lines inlined there, innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Id of the mapping, or [`NO_ENTRY`].
    pub mapping: u32,
    /// Address relative to the mapping's start. Without a mapping it is absolute. If the mapping has
    /// [`ELF_ADDRESSES_FLAG`], it is the address in the ELF file.
    pub address: u64,
    /// Set if identical code was folded, so that the names may be wrong.
    pub folded: bool,
    /// First entry in [`SymbolTable::lines`].
    first_line: u32,
    /// Number of lines of this location.
    line_count: u32,
}

/// Interned strings in one arena.
#[derive(Clone, Debug)]
pub struct StringTable {
    arena: String,
    ends: Vec<usize>,
    hashes: Vec<ContentHash>,
    ids: PrehashedMap<ContentHash, u32>,
}

impl Default for StringTable {
    fn default() -> Self {
        let mut strings = StringTable {
            arena: String::new(),
            ends: Vec::new(),
            hashes: Vec::new(),
            ids: PrehashedMap::default(),
        };
        strings.intern("");
        strings
    }
}

impl StringTable {
    /// Returns the id of `text`, added if new. The empty string has id 0.
    pub fn intern(&mut self, text: &str) -> u32 {
        self.intern_hashed(hash::hash_bytes(text.as_bytes()), text)
    }
    /// Interns like [`intern`](Self::intern), with a known hash.
    pub fn intern_hashed(&mut self, hash: ContentHash, text: &str) -> u32 {
        *self.ids.entry(hash).or_insert_with(|| {
            self.arena.push_str(text);
            self.ends.push(self.arena.len());
            self.hashes.push(hash);
            self.ends.len() as u32 - 1
        })
    }
    /// Returns the text of an id.
    pub fn get(&self, id: u32) -> &str {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.arena[start..self.ends[id]]
    }
    /// Returns the id of `text`, if the table has it.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.ids.get(&hash::hash_bytes(text.as_bytes())).copied()
    }
    /// Returns the id of a text by its hash.
    pub fn find_hashed(&self, hash: ContentHash) -> Option<u32> {
        self.ids.get(&hash).copied()
    }
    /// Returns the content hash of an id.
    pub fn hash(&self, id: u32) -> ContentHash {
        self.hashes[id as usize]
    }
    /// Returns the number of strings, the empty one included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// Returns false: the empty string is always present.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// Returns the bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.arena.len()
    }
    /// Returns the bytes of text of an id and all later ones.
    pub(crate) fn bytes_from(&self, id: usize) -> usize {
        self.arena.len() - id.checked_sub(1).map_or(0, |before| self.ends[before])
    }
    fn memory(&self) -> usize {
        let texts = self.arena.capacity() + vec_memory(&self.ends);
        texts + vec_memory(&self.hashes) + self.ids.allocation_size()
    }
}

/// Interned entries of one kind, with their content hashes.
#[derive(Clone, Debug)]
struct InternTable<T> {
    entries: Vec<T>,
    hashes: Vec<ContentHash>,
    ids: PrehashedMap<ContentHash, u32>,
}

impl<T> Default for InternTable<T> {
    fn default() -> Self {
        InternTable { entries: Vec::new(), hashes: Vec::new(), ids: PrehashedMap::default() }
    }
}

impl<T> InternTable<T> {
    fn memory(&self) -> usize {
        vec_memory(&self.entries) + vec_memory(&self.hashes) + self.ids.allocation_size()
    }
    fn intern(&mut self, hash: ContentHash, entry: impl FnOnce() -> T) -> u32 {
        *self.ids.entry(hash).or_insert_with(|| {
            self.entries.push(entry());
            self.hashes.push(hash);
            self.entries.len() as u32 - 1
        })
    }
}

/// Tables of strings, functions, mappings and locations.
#[derive(Clone, Debug, Default)]
pub struct SymbolTable {
    /// Texts of all entries.
    pub strings: StringTable,
    functions: InternTable<Function>,
    mappings: InternTable<Mapping>,
    locations: InternTable<Location>,
    lines: Vec<Line>,
}

const FUNCTION_DOMAIN: u64 = 1;
const MAPPING_DOMAIN: u64 = 2;
const LOCATION_DOMAIN: u64 = 3;

/// Characters of a build id that are shown. They suffice to distinguish builds of one binary.
const SHOWN_BUILD_ID_CHARS: usize = 8;

/// Name of all addresses without a known binary. Graphs show them as one frame.
pub const UNKNOWN_BINARY_NAME: &str = "[unknown]";

/// Returns the name of a binary: `libc.so.6@1a2b3c4d`, its file name and the beginning of its build id. Empty
/// if neither is known.
pub fn binary_name(path: &str, build_id: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    if build_id.is_empty() {
        return file.to_owned();
    }
    let shown: String = build_id.chars().take(SHOWN_BUILD_ID_CHARS).collect();
    format!("{file}@{shown}")
}

/// Returns the name of an address without symbols: `libc.so.6@1a2b3c4d+0x1234`. Addresses of two builds have
/// different names.
pub fn address_name(binary: &str, address: u64) -> String {
    if binary.is_empty() { format!("0x{address:x}") } else { format!("{binary}+0x{address:x}") }
}

/// Returns the hash of a function with these text hashes.
pub fn function_hash(
    name: ContentHash,
    system_name: ContentHash,
    filename: ContentHash,
    start_line: i64,
) -> ContentHash {
    let mut content = [0; 56];
    content[..16].copy_from_slice(&name.to_le_bytes());
    content[16..32].copy_from_slice(&system_name.to_le_bytes());
    content[32..48].copy_from_slice(&filename.to_le_bytes());
    content[48..].copy_from_slice(&start_line.to_le_bytes());
    hash::hash_tagged(FUNCTION_DOMAIN, &content)
}

/// Returns the hash of a mapping, which covers all fields except the start address.
pub fn mapping_hash(
    size: u64,
    offset: u64,
    filename: ContentHash,
    build_id: ContentHash,
    flags: u8,
) -> ContentHash {
    let mut content = [0; 49];
    content[..8].copy_from_slice(&size.to_le_bytes());
    content[8..16].copy_from_slice(&offset.to_le_bytes());
    content[16..32].copy_from_slice(&filename.to_le_bytes());
    content[32..48].copy_from_slice(&build_id.to_le_bytes());
    content[48] = flags;
    hash::hash_tagged(MAPPING_DOMAIN, &content)
}

/// Hasher of a location, fed in parts.
#[derive(Default)]
pub struct LocationHasher(Vec<u8>);

impl LocationHasher {
    /// Starts a location. `mapping` is 0 if it has none.
    pub fn start(&mut self, mapping: ContentHash, address: u64, folded: bool) {
        let mut content = [0; 25];
        content[..16].copy_from_slice(&mapping.to_le_bytes());
        content[16..24].copy_from_slice(&address.to_le_bytes());
        content[24] = u8::from(folded);
        self.0.clear();
        self.0.extend_from_slice(&content);
    }
    /// Adds the next line, innermost first.
    pub fn add_line(&mut self, function: ContentHash, line: i64, column: i64) {
        let mut content = [0; 32];
        content[..16].copy_from_slice(&function.to_le_bytes());
        content[16..24].copy_from_slice(&line.to_le_bytes());
        content[24..].copy_from_slice(&column.to_le_bytes());
        self.0.extend_from_slice(&content);
    }
    /// Returns the hash of the location.
    pub fn finish(&self) -> ContentHash {
        hash::hash_tagged(LOCATION_DOMAIN, &self.0)
    }
}

impl SymbolTable {
    /// Returns the allocated bytes.
    pub(crate) fn memory(&self) -> usize {
        let tables = self.functions.memory() + self.mappings.memory() + self.locations.memory();
        self.strings.memory() + tables + vec_memory(&self.lines)
    }
    /// Returns the id of a function, added if new.
    pub fn intern_function(&mut self, function: Function) -> u32 {
        let hash = function_hash(
            self.strings.hash(function.name),
            self.strings.hash(function.system_name),
            self.strings.hash(function.filename),
            function.start_line,
        );
        self.functions.intern(hash, || function)
    }
    /// Returns the id of a function by its hash.
    pub fn find_function(&self, hash: ContentHash) -> Option<u32> {
        self.functions.ids.get(&hash).copied()
    }
    /// Returns the id of a mapping, added if new.
    pub fn intern_mapping(&mut self, mapping: Mapping) -> u32 {
        let hash = mapping_hash(
            mapping.size,
            mapping.offset,
            self.strings.hash(mapping.filename),
            self.strings.hash(mapping.build_id),
            mapping.flags,
        );
        let id = self.mappings.intern(hash, || mapping);
        let known = &mut self.mappings.entries[id as usize];
        known.start = known.start.min(mapping.start);
        id
    }
    /// Returns the id of a location, added if new.
    pub fn intern_location(&mut self, mapping: u32, address: u64, folded: bool, lines: &[Line]) -> u32 {
        let mut hasher = LocationHasher::default();
        let mapping_hash = if mapping == NO_ENTRY { 0 } else { self.mappings.hashes[mapping as usize] };
        hasher.start(mapping_hash, address, folded);
        for line in lines {
            hasher.add_line(self.functions.hashes[line.function as usize], line.line, line.column);
        }
        let first_line = self.lines.len() as u32;
        let id = self.locations.intern(hasher.finish(), || Location {
            mapping,
            address,
            folded,
            first_line,
            line_count: lines.len() as u32,
        });
        if self.locations.entries[id as usize].first_line == first_line {
            self.lines.extend_from_slice(lines);
        }
        id
    }
    /// Returns the id of a location by its hash.
    pub fn find_location(&self, hash: ContentHash) -> Option<u32> {
        self.locations.ids.get(&hash).copied()
    }
    /// Returns all functions, by id.
    pub fn functions(&self) -> &[Function] {
        &self.functions.entries
    }
    /// Returns all mappings, by id.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings.entries
    }
    /// Returns all locations, by id.
    pub fn locations(&self) -> &[Location] {
        &self.locations.entries
    }
    /// Returns the content hash of a location.
    pub fn location_hash(&self, location: u32) -> ContentHash {
        self.locations.hashes[location as usize]
    }
    /// Returns the number of lines of a location and all later ones.
    pub(crate) fn lines_from(&self, location: usize) -> usize {
        self.locations.entries.get(location).map_or(0, |first| self.lines.len() - first.first_line as usize)
    }
    /// Returns the lines of a location, innermost first.
    pub fn lines(&self, location: u32) -> &[Line] {
        let location = &self.locations.entries[location as usize];
        let first = location.first_line as usize;
        &self.lines[first..first + location.line_count as usize]
    }
    /// Returns the name of a function.
    pub fn function_name(&self, function: u32) -> &str {
        self.strings.get(self.functions.entries[function as usize].name)
    }
    /// Returns the name of a location that has no lines: its binary and address.
    pub fn address_name(&self, location: u32) -> String {
        let entry = &self.locations.entries[location as usize];
        address_name(&self.known_binary(entry.mapping), entry.address)
    }
    /// Returns the name that graphs show for a location that has no lines: its binary.
    pub fn binary_name(&self, location: u32) -> String {
        let name = self.known_binary(self.locations.entries[location as usize].mapping);
        if name.is_empty() { UNKNOWN_BINARY_NAME.to_owned() } else { name }
    }
    /// Returns the name of a mapping's binary, empty if it is not known.
    pub(crate) fn known_binary(&self, mapping: u32) -> String {
        let Some(mapping) = self.mappings.entries.get(mapping as usize) else { return String::new() };
        binary_name(self.strings.get(mapping.filename), self.strings.get(mapping.build_id))
    }
    /// Returns the address of a location as sent.
    pub fn sent_address(&self, location: &Location) -> u64 {
        let mapping = self.mappings.entries.get(location.mapping as usize);
        mapping.map_or(location.address, |mapping| mapping.sent_address(location.address))
    }
    /// Copies a location with all entries that it refers to from another dictionary.
    pub fn adopt_location(&mut self, from: &SymbolTable, location: u32) -> u32 {
        if let Some(id) = self.find_location(from.location_hash(location)) {
            return id;
        }
        let source = from.locations.entries[location as usize];
        let mapping = match source.mapping {
            NO_ENTRY => NO_ENTRY,
            mapping => self.adopt_mapping(from, mapping),
        };
        let lines: Vec<Line> = from
            .lines(location)
            .iter()
            .map(|line| Line { function: self.adopt_function(from, line.function), ..*line })
            .collect();
        self.intern_location(mapping, source.address, source.folded, &lines)
    }
    /// Copies a mapping from another dictionary.
    pub fn adopt_mapping(&mut self, from: &SymbolTable, mapping: u32) -> u32 {
        let source = from.mappings.entries[mapping as usize];
        let filename = self.strings.intern(from.strings.get(source.filename));
        let build_id = self.strings.intern(from.strings.get(source.build_id));
        self.intern_mapping(Mapping { filename, build_id, ..source })
    }
    /// Copies a function from another dictionary.
    pub fn adopt_function(&mut self, from: &SymbolTable, function: u32) -> u32 {
        if let Some(id) = self.find_function(from.functions.hashes[function as usize]) {
            return id;
        }
        let source = from.functions.entries[function as usize];
        let name = self.strings.intern(from.strings.get(source.name));
        let system_name = self.strings.intern(from.strings.get(source.system_name));
        let filename = self.strings.intern(from.strings.get(source.filename));
        self.intern_function(Function { name, system_name, filename, start_line: source.start_line })
    }
}
