//! Files that are built to do harm: errors instead of panics, and bounds of work.

use std::sync::Arc;

use proptest::prelude::*;

use super::frame_builder::{FrameBuilder, open_rows};
use super::naive::assert_well_formed;
use crate::elf::test_image::{CODE_ADDRESS, TestImage};
use crate::elf::{ElfFile, MemoryImage};
use crate::layout::CfaRule;
use crate::unwind_rows::{RowError, RowSource};

const CODE_PAGE: u32 = (CODE_ADDRESS >> 16) as u32;

fn builder() -> FrameBuilder {
    let mut builder = FrameBuilder::new();
    for index in 0..20 {
        builder.entry(CODE_ADDRESS + index * 0x40, 0x38, &[0x44, 0x0e, 16, 0x86, 2, 0x44, 0x0d, 6]);
    }
    builder
}

/// Opens a file and builds some pages.
fn build_pages(bytes: Vec<u8>) -> usize {
    let Ok(file) = ElfFile::open(Arc::new(MemoryImage(bytes))) else { return 0 };
    let Ok(source) = RowSource::open(&file) else { return 0 };
    let mut row_count = 0;
    let pages = source.all_pages();
    for page in pages.iter().take(4).copied().chain([0, CODE_PAGE, CODE_PAGE + 1, u32::MAX]) {
        let Ok(rows) = source.rows_of_page(page) else { continue };
        assert_well_formed(&rows);
        row_count += rows.len();
    }
    row_count
}

proptest! {
    #[test]
    fn damaged_files_do_not_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30), end in any::<prop::sample::Index>(), with_table: bool) {
        let builder = builder();
        let image = builder.image(with_table);
        let frame_bytes = image.frame.len();
        let mut bytes = image.build();
        let frame_start = bytes.len() - frame_bytes;
        for (number, (position, byte)) in changes.iter().enumerate() {
            let position = if number % 8 == 7 { position.index(400) } else { frame_start + position.index(frame_bytes) };
            bytes[position] = *byte;
        }
        build_pages(bytes.clone());
        bytes.truncate(end.index(bytes.len()));
        build_pages(bytes);
    }
}

#[test]
fn file_without_damage_has_rows() {
    assert_eq!(build_pages(builder().image(true).build()), 2 * 80);
}

#[test]
fn count_beyond_the_table_falls_back_to_a_scan() {
    let image = builder().image(true);
    let expected = open_rows(&image).rows_of_page(CODE_PAGE).unwrap();
    assert_eq!(expected.len(), 80);
    let mut damaged = image.clone();
    let (header, _) = damaged.frame_header.unwrap();
    let count = header as usize + 8;
    damaged.frame[count..count + 4].fill(0xff);
    assert_eq!(open_rows(&damaged).rows_of_page(CODE_PAGE).unwrap(), expected);
}

#[test]
fn entry_that_is_its_own_common_entry_is_skipped() {
    let mut builder = builder();
    builder.entry(CODE_ADDRESS + 0x1000, 0x10, &[]);
    let (_, position) = *builder.entries.last().unwrap();
    let id = position as usize + 4;
    builder.bytes[id..id + 4].copy_from_slice(&4u32.to_le_bytes());
    let rows = open_rows(&builder.image(true)).rows_of_page(CODE_PAGE).unwrap();
    assert_eq!(rows.len(), 80);
    assert_eq!(rows[79].rule & 15, CfaRule::None as u8);
}

#[test]
fn pointer_to_pointer_is_refused() {
    let mut builder = FrameBuilder::new();
    // Encoding in the common entry: after length, id, version, augmentation, alignments, register, size.
    assert_eq!(builder.bytes[16], 0x1b);
    builder.bytes[16] = 0x9b;
    builder.entry(CODE_ADDRESS, 0x10, &[]);
    assert_eq!(open_rows(&builder.image(true)).rows_of_page(CODE_PAGE).unwrap(), []);
}

#[test]
fn long_programs_end_in_an_error() {
    let mut builder = FrameBuilder::new();
    // Saves and restores registers at every second byte.
    let program = [0x0a, 0x0b, 0x41, 0x0e, 16, 0x41, 0x0e, 8].repeat(20_000);
    for index in 0..400 {
        builder.entry(CODE_ADDRESS + index, 0x4000, &program);
    }
    let source = open_rows(&builder.image(true));
    let error = source.rows_of_page(CODE_PAGE).unwrap_err();
    assert!(matches!(error, RowError::TooLarge { what: "bytes of programs", .. }), "{error}");
}

#[test]
fn table_of_one_address_ends_in_an_error() {
    let mut builder = builder();
    let entry = builder.entries[0];
    builder.entries = vec![entry; 70_000];
    let error = open_rows(&builder.image(true)).rows_of_page(CODE_PAGE).unwrap_err();
    assert!(matches!(error, RowError::TooLarge { what: "entries", .. }), "{error}");
}

#[test]
fn rows_at_every_byte_end_in_an_error() {
    let mut builder = FrameBuilder::new();
    let program = [0x41, 0x0e, 16, 0x41, 0x0e, 8].repeat(8_000);
    for index in 0..4 {
        builder.entry(CODE_ADDRESS + index * 0x4000, 0x4000, &program);
    }
    let error = open_rows(&builder.image(true)).rows_of_page(CODE_PAGE).unwrap_err();
    assert!(matches!(error, RowError::TooLarge { what: "rows", .. }), "{error}");
}

#[test]
fn unsorted_table_makes_sorted_rows() {
    let mut image = builder().image(true);
    let (header, _) = image.frame_header.unwrap();
    let table = header as usize + 12;
    let (first, last) = image.frame[table..table + 160].split_at_mut(80);
    first.swap_with_slice(last);
    let rows = open_rows(&image).rows_of_page(CODE_PAGE).unwrap();
    assert_well_formed(&rows);
}

#[test]
fn file_that_was_truncated_is_an_error() {
    let file = tempfile::tempfile().unwrap();
    let bytes = builder().image(true).build();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    let bounded = crate::elf::BoundedFile::new(file.try_clone().unwrap()).unwrap();
    let source = RowSource::open(&ElfFile::open(Arc::new(bounded)).unwrap()).unwrap();
    assert!(!source.rows_of_page(CODE_PAGE).unwrap().is_empty());
    file.set_len(0x1000).unwrap();
    assert!(matches!(source.rows_of_page(CODE_PAGE), Err(RowError::Read(_))));
}

#[test]
fn file_without_information_has_no_rows() {
    let image = TestImage { code: vec![0x90; 0x100], ..TestImage::default() };
    let source = open_rows(&image);
    assert_eq!(source.rows_of_page(CODE_PAGE).unwrap(), []);
    assert!(source.is_small());
}
