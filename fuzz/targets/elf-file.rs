//! Arbitrary bytes as an ELF file: refused, or its facts are bounded, its addresses lead into it, and its rows are in
//! order.
#![no_main]

use std::sync::Arc;

use athanor_agent_ebpf::elf::{ElfFile, MemoryImage};
use athanor_agent_ebpf::unwind_rows::RowSource;
use libfuzzer_sys::fuzz_target;

const MAX_FACT_BYTES: usize = 1024;
const MAX_PAGES: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let size = bytes.len() as u64;
    let file = match ElfFile::open(Arc::new(MemoryImage(bytes.to_vec()))) {
        Ok(file) => file,
        Err(error) => return assert!(error.to_string().len() < MAX_FACT_BYTES),
    };
    assert!(file.facts().compiler.len() <= MAX_FACT_BYTES);
    assert!(file.build_id().is_ok_and(|id| (1..=256).contains(&id.bytes().len())));
    for segment in file.segments() {
        let read = file.read_address(segment.address, 100).unwrap_or_default();
        assert!(read.len() as u64 <= size.min(100));
        file.bias_of(segment.address, segment.offset, segment.file_size);
    }
    for section in file.sections() {
        let read = file.read_section(section, size);
        assert!(read.is_err() || read.is_ok_and(|read| read.len() as u64 == section.size));
    }
    let Ok(source) = RowSource::open(&file) else { return };
    let mut pages = source.all_pages();
    pages.truncate(MAX_PAGES);
    pages.push((file.entry() >> 16) as u32);
    for page in pages {
        let rows = source.rows_of_page(page).unwrap_or_default();
        assert!(rows.first().is_none_or(|row| row.pc == 0));
        assert!(rows.is_sorted_by(|before, after| before.pc < after.pc));
    }
});
