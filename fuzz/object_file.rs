//! Object files around the bytes of a fuzzer.

use std::sync::Arc;

use athanor_agent_ebpf::elf::{ElfFile, MemoryImage};

/// Address of the first byte of code.
pub const CODE_ADDRESS: u64 = 0x1000;
/// Bytes of code.
pub const CODE_BYTES: u64 = 0x2_0000;
const HEADER_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
/// Address of the first byte of data.
const DATA_ADDRESS: u64 = 0x10_0000;

/// Section of a file that is built.
pub struct BuiltSection<'a> {
    pub name: &'a str,
    pub content: &'a [u8],
    /// Index of another section, counted from 1 after `.text`.
    pub link: u32,
}

/// Builds a file with code, and with these sections in one segment of data. Section headers are optional.
pub fn build(sections: &[BuiltSection<'_>], has_headers: bool) -> ElfFile {
    let data_offset = HEADER_BYTES + 2 * SEGMENT_BYTES;
    let mut file = vec![0; data_offset as usize];
    let mut names = b"\0.text\0".to_vec();
    // Name, type, address, offset, size, link.
    let mut headers = vec![[0; 6], [1, 1, CODE_ADDRESS, 0, CODE_BYTES, 0]];
    for section in sections {
        file.resize(file.len().next_multiple_of(8), 0);
        let offset = file.len() as u64;
        let address = DATA_ADDRESS + offset;
        let size = section.content.len() as u64;
        headers.push([names.len() as u64, 1, address, offset, size, u64::from(section.link)]);
        file.extend(section.content);
        names.extend(section.name.bytes());
        names.push(0);
    }
    let data_bytes = file.len() as u64 - data_offset;
    headers.push([0, 3, 0, file.len() as u64, names.len() as u64, 0]);
    file.extend(&names);
    let headers_offset = file.len() as u64;
    for [name, kind, address, offset, size, link] in &headers {
        file.extend((*name as u32).to_le_bytes());
        file.extend((*kind as u32).to_le_bytes());
        [0, *address, *offset, *size].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend((*link as u32).to_le_bytes());
        file.extend([0; 20]);
    }
    let section_count = if has_headers { headers.len() as u16 } else { 0 };
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    [CODE_ADDRESS, HEADER_BYTES, headers_offset].iter().for_each(|word| header.extend(word.to_le_bytes()));
    header.extend([0; 4]);
    let halves = [64, 56, 2, 64, section_count, section_count.saturating_sub(1)];
    halves.iter().for_each(|half| header.extend(half.to_le_bytes()));
    let segments =
        [(5u32, CODE_ADDRESS, 0, CODE_BYTES), (4, DATA_ADDRESS + data_offset, data_offset, data_bytes)];
    for (flags, address, offset, size) in segments {
        header.extend(1u32.to_le_bytes());
        header.extend(flags.to_le_bytes());
        [offset, address, address, size, size, 8].iter().for_each(|word| header.extend(word.to_le_bytes()));
    }
    file[..header.len()].copy_from_slice(&header);
    ElfFile::open(Arc::new(MemoryImage(file))).expect("the headers are valid")
}
