//! Facts that a file tells of its making.

use super::bytes::ByteReader;
use super::file::ElfFile;
use super::header::Segment;

const MAX_COMMENT_BYTES: u64 = 4 << 10;
const MAX_COMPILER_BYTES: usize = 128;
const MAX_DYNAMIC_BYTES: u64 = 64 << 10;
const DYNAMIC_END: u64 = 0;
const DYNAMIC_NEEDED: u64 = 1;
/// Start of the build information of Go, aligned to 16 bytes.
const GO_MAGIC: &[u8] = b"\xff Go buildinf:";
const GO_HEADER_BYTES: u64 = 32;
const GO_FLAG_INLINE: u8 = 2;
const GO_FLAG_BIG_ENDIAN: u8 = 1;
/// Bytes of a data segment in which Go's build information is looked for if there are no section headers.
const MAX_GO_SEARCH_BYTES: u64 = 1 << 20;

/// Compiler and kind of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// `go1.22.1`, `rustc version 1.95.0 (…)`, `GCC: (Debian …)`. Empty if unknown.
    pub compiler: String,
    /// The file is complete without a dynamic linker and other files.
    pub is_static: bool,
    /// The file has no symbol table, or only the one of the dynamic linker.
    pub is_stripped: bool,
}

impl ElfFile {
    /// Returns what the file tells of its making.
    pub fn facts(&self) -> FileFacts {
        read_facts(self)
    }
}

/// Reads the facts. Damaged parts are unknown.
fn read_facts(file: &ElfFile) -> FileFacts {
    let go_version = read_go_version(file).unwrap_or_default();
    let compiler = if go_version.is_empty() { read_comment(file).unwrap_or_default() } else { go_version };
    FileFacts {
        compiler,
        is_static: !file.has_interpreter() && !needs_libraries(file),
        is_stripped: file.section(".symtab").is_none(),
    }
}

fn needs_libraries(file: &ElfFile) -> bool {
    let Some(dynamic) = file.dynamic_segment() else { return false };
    let length = dynamic.file_size.min(MAX_DYNAMIC_BYTES);
    let Ok(bytes) = file.source().read_up_to(dynamic.offset, length) else { return false };
    let tags = bytes.chunks_exact(16).filter_map(|entry| ByteReader::new(entry).u64());
    tags.take_while(|tag| *tag != DYNAMIC_END).any(|tag| tag == DYNAMIC_NEEDED)
}

/// Returns the text of `.comment` that names the language of most of the code: rustc before C compilers and linkers.
fn read_comment(file: &ElfFile) -> Option<String> {
    let section = file.section(".comment").filter(|section| !section.is_compressed())?;
    let length = section.size.min(MAX_COMMENT_BYTES);
    let bytes = file.source().read_up_to(section.offset, length).ok()?;
    let texts: Vec<&[u8]> = bytes.split(|byte| *byte == 0).filter(|text| !text.is_empty()).collect();
    let is_rust = |text: &&&[u8]| text.starts_with(b"rustc");
    let is_linker = |text: &&&[u8]| text.starts_with(b"Linker:");
    let chosen = texts
        .iter()
        .find(is_rust)
        .or_else(|| texts.iter().find(|text| !is_linker(text)))
        .or_else(|| texts.first())?;
    Some(bounded_text(chosen))
}

fn bounded_text(bytes: &[u8]) -> String {
    let head = bytes.get(..MAX_COMPILER_BYTES).unwrap_or(bytes);
    String::from_utf8_lossy(head).into_owned()
}

fn read_go_version(file: &ElfFile) -> Option<String> {
    let address = find_go_info(file)?;
    let header = file.read_address(address, GO_HEADER_BYTES).ok()?;
    let flags = *header.get(15)?;
    if flags & GO_FLAG_INLINE != 0 {
        let text_address = address.checked_add(GO_HEADER_BYTES)?;
        let bytes = file.read_address(text_address, MAX_COMPILER_BYTES as u64).ok()?;
        let mut reader = ByteReader::new(&bytes);
        let length = usize::try_from(reader.uleb128()?).ok()?;
        return Some(bounded_text(reader.rest().get(..length)?));
    }
    // Until Go 1.17, the address of a string is at byte 16. x86-64 has 8-byte addresses in little endian.
    if *header.get(14)? != 8 || flags & GO_FLAG_BIG_ENDIAN != 0 {
        return None;
    }
    let string_address = ByteReader::new(header.get(16..)?).u64()?;
    let string = file.read_address(string_address, 16).ok()?;
    let mut reader = ByteReader::new(&string);
    let text_address = reader.u64()?;
    let length = reader.u64()?.min(MAX_COMPILER_BYTES as u64);
    let text = file.read_address(text_address, length).ok()?;
    Some(bounded_text(&text))
}

/// Returns the address of Go's build information: its own section, else near the start of a data segment.
fn find_go_info(file: &ElfFile) -> Option<u64> {
    if let Some(section) = file.section(".go.buildinfo") {
        let start = file.read_address(section.address, GO_MAGIC.len() as u64).ok()?;
        return (start == GO_MAGIC).then_some(section.address);
    }
    if !file.sections().is_empty() {
        return None;
    }
    file.segments().iter().filter(|segment| segment.is_writable()).find_map(|data| search_go_info(file, data))
}

fn search_go_info(file: &ElfFile, segment: &Segment) -> Option<u64> {
    let length = segment.file_size.min(MAX_GO_SEARCH_BYTES);
    let bytes = file.source().read_up_to(segment.offset, length).ok()?;
    let position = bytes.chunks(16).position(|chunk| chunk.starts_with(GO_MAGIC))?;
    segment.address.checked_add(position as u64 * 16)
}
