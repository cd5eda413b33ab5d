//! Build id of a file.

use std::fmt::{self, Write};

use super::bytes::ByteReader;
use super::file::ElfFile;
use super::read_at::ReadError;

const MAX_NOTES_BYTES: u64 = 64 << 10;
const MAX_NOTE_RANGES: usize = 32;
const MAX_BUILD_ID_BYTES: usize = 256;
/// Bytes of each end of the file that are hashed.
const HASHED_END_BYTES: u64 = 4096;
const HASH_BYTES: usize = 16;
const NOTE_GNU_BUILD_ID: u32 = 3;
const NOTE_GO_BUILD_ID: u32 = 4;
const SECTION_NOTES: u32 = 7;

/// Identity of the content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BuildId {
    /// Written by the linker.
    Gnu(Box<[u8]>),
    /// Text written by the Go linker.
    Go(Box<[u8]>),
    /// First half of the SHA-256 of the first 4 KiB, the last 4 KiB and the size in big endian.
    Hash([u8; HASH_BYTES]),
}

impl BuildId {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Gnu(bytes) | Self::Go(bytes) => bytes,
            Self::Hash(bytes) => bytes,
        }
    }
}

/// Writes the bytes in hex.
impl fmt::Display for BuildId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hex = String::with_capacity(self.bytes().len() * 2);
        for byte in self.bytes() {
            write!(hex, "{byte:02x}")?;
        }
        formatter.write_str(&hex)
    }
}

impl ElfFile {
    /// Returns the build id: of the linker, else of Go, else a hash of both ends and the size.
    ///
    /// # Errors
    ///
    /// Fails if the file has no build id and cannot be read.
    pub fn build_id(&self) -> Result<BuildId, ReadError> {
        read_build_id(self)
    }
}

/// Returns the build id of the linker, else of Go, else a hash.
fn read_build_id(file: &ElfFile) -> Result<BuildId, ReadError> {
    let segments = file.note_segments().map(|segment| (segment.offset, segment.file_size));
    let sections = file.sections().iter().filter(|section| section.kind == SECTION_NOTES);
    let ranges = segments.chain(sections.map(|section| (section.offset, section.size)));
    let mut go_id = None;
    for (offset, size) in ranges.take(MAX_NOTE_RANGES) {
        let Ok(notes) = file.source().read_vec(offset, size, MAX_NOTES_BYTES) else { continue };
        match find_build_id(&notes) {
            Some(BuildId::Gnu(id)) => return Ok(BuildId::Gnu(id)),
            Some(id) => go_id = go_id.or(Some(id)),
            None => {}
        }
    }
    match go_id {
        Some(id) => Ok(id),
        None => hash_ends(file),
    }
}

/// Returns the first build id of the linker in notes, else the first one of Go.
fn find_build_id(notes: &[u8]) -> Option<BuildId> {
    let mut reader = ByteReader::new(notes);
    let mut go_id = None;
    while let Some(note) = next_note(&mut reader) {
        if note.content.is_empty() || note.content.len() > MAX_BUILD_ID_BYTES {
            continue;
        }
        match (note.owner, note.kind) {
            (b"GNU\0", NOTE_GNU_BUILD_ID) => return Some(BuildId::Gnu(note.content.into())),
            (b"Go\0\0", NOTE_GO_BUILD_ID) => go_id = go_id.or(Some(BuildId::Go(note.content.into()))),
            _ => {}
        }
    }
    go_id
}

struct Note<'a> {
    owner: &'a [u8],
    kind: u32,
    content: &'a [u8],
}

/// Returns the next note, or None at the end and behind a damaged one.
fn next_note<'a>(reader: &mut ByteReader<'a>) -> Option<Note<'a>> {
    let owner_bytes = reader.u32()? as usize;
    let content_bytes = reader.u32()? as usize;
    let kind = reader.u32()?;
    let owner = take_aligned(reader, owner_bytes)?;
    let content = take_aligned(reader, content_bytes)?;
    Some(Note { owner: owner.get(..owner_bytes)?, kind, content: content.get(..content_bytes)? })
}

/// Takes a field and its padding to 4 bytes, which the last one may lack.
fn take_aligned<'a>(reader: &mut ByteReader<'a>, length: usize) -> Option<&'a [u8]> {
    let aligned = length.checked_next_multiple_of(4)?.min(reader.rest().len().max(length));
    reader.take(aligned)
}

fn hash_ends(file: &ElfFile) -> Result<BuildId, ReadError> {
    let source = file.source();
    let size = source.size();
    let first = source.read_up_to(0, HASHED_END_BYTES)?;
    let last = source.read_up_to(size.saturating_sub(HASHED_END_BYTES), HASHED_END_BYTES)?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    context.update(&first);
    context.update(&last);
    context.update(&size.to_be_bytes());
    let digest = context.finish();
    let mut hash = [0; HASH_BYTES];
    hash.iter_mut().zip(digest.as_ref()).for_each(|(target, byte)| *target = *byte);
    Ok(BuildId::Hash(hash))
}
