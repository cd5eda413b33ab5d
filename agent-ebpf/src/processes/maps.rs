//! Streaming parser of `/proc/PID/maps` that keeps executable mappings.

use std::sync::Arc;

use crate::perf_events::BuildId;

/// Addresses from here on belong to the kernel, as does `[vsyscall]`.
pub const USER_ADDRESS_END: u64 = 1 << 56;
/// Escaped path of the maximum length, with all other fields.
const MAX_LINE_BYTES: usize = 20 * 1024;
/// Bytes of the mappings of one process with their paths.
const MAX_MAPPING_BYTES: usize = 4 << 20;
/// Mark of deleted files.
pub(super) const DELETED_SUFFIX: &[u8] = b" (deleted)";
/// Path of anonymous memory that processes share.
const SHARED_MEMORY_PATH: &[u8] = b"/dev/zero";
const SYSV_MEMORY_PREFIX: &[u8] = b"/SYSV";
const MEMFD_PREFIX: &[u8] = b"/memfd:";

/// Executable range of the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Offset of the start in the file.
    pub offset: u64,
    /// Source of the bytes.
    pub kind: MappingKind,
    /// Device of the file. Zero if only the build id is known.
    pub device: DeviceNumber,
    /// Inode of the file. 0 if only the build id is known.
    pub inode: u64,
    /// Build id, if the kernel reported it.
    pub build_id: Option<BuildId>,
    /// Path as the process sees it, without the mark of deleted files. May contain any byte but NUL.
    pub path: Arc<[u8]>,
    /// The path is marked as deleted.
    pub is_deleted: bool,
}

/// Source of the bytes of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MappingKind {
    /// File, also a deleted one and one in memory (memfd).
    File,
    /// Memory without a file.
    Anonymous,
    /// Code that the kernel maps into each process.
    Vdso,
}

/// Number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DeviceNumber {
    /// Major number. 0 for file systems without a block device.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Executable mappings of a process, by address, without overlap.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MappingList {
    /// Mappings.
    pub mappings: Vec<Mapping>,
    /// Lines without the form of a mapping, or out of order.
    pub malformed_lines: u64,
    /// Mappings above the maximum, which are not in the list.
    pub dropped_mappings: u64,
}

/// Parser that receives the file in parts of any size.
#[derive(Debug)]
pub struct MapsParser {
    max_mappings: usize,
    line: Vec<u8>,
    /// The line is longer than the maximum, and its rest is skipped.
    is_skipping: bool,
    list: MappingList,
    anonymous_count: usize,
    mapping_bytes: usize,
    last_end: u64,
}

// === impl Mapping ===

impl Mapping {
    /// Returns the mapping if the line describes an executable one.
    fn parse(line: &[u8]) -> Result<Option<Self>, MalformedLine> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let mut next_field = || fields.next().ok_or(MalformedLine);
        let (start, end) = parse_pair(next_field()?, '-')?;
        let permissions = next_field()?;
        let offset = parse_hex(next_field()?)?;
        let (major, minor) = parse_pair(next_field()?, ':')?;
        let inode = parse_decimal(next_field()?)?;
        if start >= end {
            return Err(MalformedLine);
        }
        if permissions.get(2) != Some(&b'x') || end > USER_ADDRESS_END {
            return Ok(None);
        }
        let path = fields.next().unwrap_or_default().trim_ascii_start();
        let device = DeviceNumber {
            major: u32::try_from(major).map_err(|_| MalformedLine)?,
            minor: u32::try_from(minor).map_err(|_| MalformedLine)?,
        };
        Ok(Some(Self::new(start..end, offset, &unescape_newlines(path)).with_inode(device, inode)))
    }

    /// Creates a mapping of a path as the kernel writes it.
    pub fn new(range: std::ops::Range<u64>, offset: u64, path: &[u8]) -> Self {
        let kind = MappingKind::from_path(path);
        let name = path.strip_suffix(DELETED_SUFFIX);
        let path = match kind {
            MappingKind::File => name.unwrap_or(path),
            MappingKind::Vdso => path,
            MappingKind::Anonymous => &[],
        };
        Self {
            start: range.start,
            end: range.end,
            offset: if kind == MappingKind::File { offset } else { 0 },
            kind,
            device: DeviceNumber::default(),
            inode: 0,
            build_id: None,
            path: path.into(),
            is_deleted: kind == MappingKind::File && name.is_some(),
        }
    }

    /// Adds the identity of the file.
    #[must_use]
    pub fn with_inode(mut self, device: DeviceNumber, inode: u64) -> Self {
        if self.kind == MappingKind::File {
            self.device = device;
            self.inode = inode;
        }
        self
    }

    /// Returns whether the file exists in memory only (memfd).
    pub fn is_memory_file(&self) -> bool {
        self.is_deleted && self.path.starts_with(MEMFD_PREFIX)
    }

    /// Returns whether the mapping contains an address.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

// === impl MappingKind ===

impl MappingKind {
    fn from_path(path: &[u8]) -> Self {
        let name = path.strip_suffix(DELETED_SUFFIX).unwrap_or(path);
        let is_memory = name == SHARED_MEMORY_PATH || name.starts_with(SYSV_MEMORY_PREFIX);
        if path == b"[vdso]" {
            Self::Vdso
        } else if path.starts_with(b"/") && !path.starts_with(b"//") && !is_memory {
            Self::File
        } else {
            Self::Anonymous
        }
    }
}

// === impl MapsParser ===

impl MapsParser {
    /// Creates a parser that keeps up to `max_mappings` executable mappings. At most half of them are anonymous, so
    /// that files at high addresses have their place.
    pub fn new(max_mappings: usize) -> Self {
        Self {
            max_mappings,
            line: Vec::new(),
            is_skipping: false,
            list: MappingList::default(),
            anonymous_count: 0,
            mapping_bytes: 0,
            last_end: 0,
        }
    }

    /// Parses the next part of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, tail) = rest.split_at(end);
            rest = tail.get(1..).unwrap_or_default();
            if self.line.is_empty() && !self.is_skipping {
                self.parse_line(line);
            } else {
                self.extend_line(line);
                self.end_line();
            }
        }
        self.extend_line(rest);
    }

    /// Ends the file and returns its mappings.
    pub fn finish(mut self) -> MappingList {
        if !self.line.is_empty() || self.is_skipping {
            self.end_line();
        }
        self.list
    }

    fn extend_line(&mut self, part: &[u8]) {
        if self.line.len().saturating_add(part.len()) > MAX_LINE_BYTES {
            self.is_skipping = true;
            self.line.clear();
        }
        if !self.is_skipping {
            self.line.extend_from_slice(part);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_skipping) {
            self.list.malformed_lines += 1;
        } else {
            self.parse_line(&line);
        }
        self.line = line;
        self.line.clear();
    }

    fn parse_line(&mut self, line: &[u8]) {
        match Mapping::parse(line) {
            Ok(Some(mapping)) if mapping.start >= self.last_end => {
                self.last_end = mapping.end;
                self.add(mapping);
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(MalformedLine) => self.list.malformed_lines += 1,
        }
    }

    /// Adds a mapping. Neighboring anonymous ones become one, and equal paths of neighbors share their memory.
    fn add(&mut self, mut mapping: Mapping) {
        let mut path_bytes = mapping.path.len();
        if let Some(last) = self.list.mappings.last_mut() {
            let are_anonymous = last.kind == MappingKind::Anonymous && mapping.kind == MappingKind::Anonymous;
            if are_anonymous && last.end == mapping.start {
                last.end = mapping.end;
                return;
            }
            if last.path == mapping.path {
                mapping.path = Arc::clone(&last.path);
                path_bytes = 0;
            }
        }
        let is_anonymous = mapping.kind == MappingKind::Anonymous;
        let bytes = self.mapping_bytes + size_of::<Mapping>() + path_bytes;
        let has_capacity = bytes <= MAX_MAPPING_BYTES && self.list.mappings.len() < self.max_mappings;
        if has_capacity && (!is_anonymous || self.anonymous_count < self.max_mappings / 2) {
            self.mapping_bytes = bytes;
            self.anonymous_count += usize::from(is_anonymous);
            self.list.mappings.push(mapping);
        } else {
            self.list.dropped_mappings += 1;
        }
    }
}

/// Line without the form of a mapping.
#[derive(Debug)]
struct MalformedLine;

fn parse_hex(text: &[u8]) -> Result<u64, MalformedLine> {
    parse_number(text, 16)
}

fn parse_decimal(text: &[u8]) -> Result<u64, MalformedLine> {
    parse_number(text, 10)
}

fn parse_number(text: &[u8], radix: u32) -> Result<u64, MalformedLine> {
    let text = std::str::from_utf8(text).map_err(|_| MalformedLine)?;
    if text.starts_with('+') {
        return Err(MalformedLine);
    }
    u64::from_str_radix(text, radix).map_err(|_| MalformedLine)
}

fn parse_pair(text: &[u8], separator: char) -> Result<(u64, u64), MalformedLine> {
    let text = std::str::from_utf8(text).map_err(|_| MalformedLine)?;
    let (first, second) = text.split_once(separator).ok_or(MalformedLine)?;
    Ok((parse_hex(first.as_bytes())?, parse_hex(second.as_bytes())?))
}

/// Replaces `\012`, the form of a line break in a path. The kernel escapes nothing else there, so a path with
/// these four characters in it looks the same. It is then opened by other means than its path, or not at all.
fn unescape_newlines(path: &[u8]) -> Vec<u8> {
    const ESCAPED_NEWLINE: &[u8] = b"\\012";
    let mut unescaped = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(ESCAPED_NEWLINE) {
            unescaped.push(b'\n');
            rest = tail;
        } else {
            unescaped.push(first);
            rest = tail;
        }
    }
    unescaped
}

#[cfg(test)]
#[path = "tests/maps_tests.rs"]
mod tests;
