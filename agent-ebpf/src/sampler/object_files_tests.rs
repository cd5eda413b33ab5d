//! Tests of files with equal and different content.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::elf::test_image::{CODE_ADDRESS, TestImage, note};
use crate::processes::DeviceNumber;

const MAX_BYTES: u64 = 1 << 20;

/// File on disk with a number that makes its stamp unique.
fn source(bytes: &[u8], number: u64) -> MappedSource {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let status = file.metadata().unwrap();
    let stamp = FileStamp {
        device: DeviceNumber { major: 8, minor: 1 },
        inode: status.ino(),
        bytes: status.size(),
        modified_nanos: 0,
        changed_nanos: i128::from(number),
    };
    MappedSource::File { file, stamp }
}

fn intern(files: &mut ObjectFiles, bytes: &[u8], number: u64) -> FileId {
    let mapping = Mapping::new(CODE_ADDRESS..CODE_ADDRESS + 0x1000, 0x1000, b"/lib/a.so");
    files.intern(source(bytes, number), &mapping, number).unwrap()
}

/// Image with a build id of the linker.
fn image(build_id: u8, code: Vec<u8>) -> TestImage {
    TestImage { code, notes: note(b"GNU\0", 3, &[build_id; 20]), ..TestImage::default() }
}

/// Image with `.eh_frame` of this many entries and no search table.
fn image_without_table(build_id: u8, entries: u32) -> TestImage {
    // Version 1 without augmentation: alignments 1 and -8, return address in register 16.
    let mut section = vec![12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0, 0, 0];
    for number in 0..entries {
        let common_distance = section.len() as u32 + 4;
        section.extend(20_u32.to_le_bytes());
        section.extend(common_distance.to_le_bytes());
        section.extend((CODE_ADDRESS + u64::from(number)).to_le_bytes());
        section.extend(1_u64.to_le_bytes());
    }
    TestImage { sections: vec![(".eh_frame", 1, 2, 0, section)], ..image(build_id, vec![0x90; 64]) }
}

#[test]
fn copied_build_id_and_size_do_not_pass_for_the_original() {
    let mut files = ObjectFiles::new(MAX_BYTES);
    let original = image(1, vec![0x90; 5000]).build();
    let copy = image(1, vec![0xcc; 5000]).build();
    assert_eq!(original.len(), copy.len());
    let first = intern(&mut files, &original, 1);
    assert_ne!(intern(&mut files, &copy, 2), first);
    assert_eq!(intern(&mut files, &original, 3), first, "equal content has one number");
}

#[test]
fn build_id_of_one_open_file_finds_it() {
    let mut files = ObjectFiles::new(MAX_BYTES);
    let hex = "01".repeat(20);
    assert_eq!(files.find_by_build_id(&hex), None);
    let first = intern(&mut files, &image(1, vec![0x90; 5000]).build(), 1);
    assert_eq!(files.find_by_build_id(&hex), Some(first));
    let second = intern(&mut files, &image(1, vec![0xcc; 5000]).build(), 2);
    assert_eq!(files.find_by_build_id(&hex), None, "which of the two is unknown");
    files.close(second);
    assert_eq!(files.find_by_build_id(&hex), Some(first));
    files.close(first);
    assert!(files.open_by_build_id.is_empty());
}

#[test]
fn stamps_of_one_file_are_bounded() {
    let mut files = ObjectFiles::new(MAX_BYTES);
    let bytes = image(1, vec![0x90; 5000]).build();
    for number in 0..200 {
        intern(&mut files, &bytes, number);
    }
    assert_eq!(files.files.len(), 1);
    assert_eq!(files.by_stamp.len(), MAX_STAMPS_PER_FILE);
    let file = files.files.values().next().unwrap();
    assert!(file.stamps.iter().all(|stamp| stamp.changed_nanos >= 200 - MAX_STAMPS_PER_FILE as i128));
}

#[test]
fn open_files_are_bounded_in_bytes() {
    let mut files = ObjectFiles::new(MAX_BYTES);
    let mut last = FileId(0);
    for number in 0..40 {
        last = intern(&mut files, &image_without_table(number, 10_000).build(), number.into());
        assert!(files.open_bytes <= MAX_BYTES, "{} bytes of {number}", files.open_bytes);
        let rows = &files.files[&last].opened.as_ref().unwrap().rows;
        assert_eq!(rows.memory_bytes() / 16, 10_000 + size_of::<RowSource>() as u64 / 16);
    }
    assert!(files.is_open(last));
    assert!(files.open_count >= 3, "{}", files.open_count);
    assert_eq!(files.refused_indexes(), 0);
    assert!(files.memory() >= files.open_bytes);
}

#[test]
fn files_without_samples_are_closed_first() {
    let mut files = ObjectFiles::new(MAX_BYTES);
    // In the first window, and the later ones have the same rank by their use.
    let sampled = intern(&mut files, &image_without_table(100, 10_000).build(), 0);
    files.touch(sampled, 0);
    for number in 0..40 {
        let file = image_without_table(number, 10_000).build();
        let mapping = Mapping::new(CODE_ADDRESS..CODE_ADDRESS + 0x1000, 0x1000, b"/lib/a.so");
        files.intern(source(&file, 1 + u64::from(number)), &mapping, 0).unwrap();
    }
    assert!(files.is_open(sampled));
}

#[test]
fn index_above_its_share_is_refused_and_the_file_stays_open() {
    let mut files = ObjectFiles::new(MAX_BYTES);
    let id = intern(&mut files, &image_without_table(1, 40_000).build(), 1);
    assert!(files.is_open(id), "it has names");
    assert_eq!(files.refused_indexes(), 1);
    assert!(files.open_bytes < 64 << 10, "{}", files.open_bytes);
}

#[test]
fn section_headers_count() {
    let mut files = ObjectFiles::new(MAX_BYTES);
    let plain = image(1, vec![0x90; 64]);
    intern(&mut files, &plain.build(), 1);
    let before = files.open_bytes;
    let sections = (0..2000).map(|_| (".a_name_of_some_length", 1, 0, 0, Vec::new())).collect();
    intern(&mut files, &TestImage { sections, ..image(2, vec![0x90; 64]) }.build(), 2);
    assert!(files.open_bytes - before > 2 * before + 2000 * 80, "{}", files.open_bytes);
}
