//! Arbitrary bytes as call frame information: an error, or rows in order that are the same each time.
//!
//! The first byte determines where in the file the bytes are.
#![no_main]

use std::sync::Arc;

use athanor_agent_ebpf::elf::{ElfFile, MemoryImage};
use athanor_agent_ebpf::layout::{ROWS_PER_CHUNK, UnwindRow};
use athanor_agent_ebpf::unwind_rows::RowSource;
use libfuzzer_sys::fuzz_target;

#[path = "../unwind_file.rs"]
mod unwind_file;
use unwind_file::FrameLayout;

/// Pages before the call frame information, and a few others.
const PAGES: [u32; 6] = [0, 1, 2, 0xf, 0x10, u32::MAX];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, content)) = bytes.split_first() else { return };
    let layout = match first % 3 {
        0 => FrameLayout::WithHeader,
        1 => FrameLayout::WithoutTable,
        _ => FrameLayout::DebugFrame,
    };
    let file = Arc::new(MemoryImage(unwind_file::build(layout, content)));
    let file = ElfFile::open(file).expect("valid headers");
    let Ok(source) = RowSource::open(&file) else { return };
    for page in PAGES {
        match source.rows_of_page(page) {
            Ok(rows) => {
                check_order(&rows);
                assert_eq!(source.rows_of_page(page).expect("rows as before"), rows);
            }
            Err(error) => assert!(error.to_string().len() < 1000),
        }
    }
});

fn check_order(rows: &[UnwindRow]) {
    assert!(rows.len() <= ROWS_PER_CHUNK as usize);
    assert!(rows.first().is_none_or(|row| row.pc == 0));
    for pair in rows.windows(2) {
        assert!(pair[0].pc < pair[1].pc);
        assert_ne!(UnwindRow { pc: 0, ..pair[0] }, UnwindRow { pc: 0, ..pair[1] });
    }
}
