//! Damage behind right checksums: no panic, and no memory for rows that were only announced.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use athanor_block::{
    Block, BlockError, Builder, FILES, FORMAT, FileMeta, Folder, META, MemoryFolder, Meta, PAGE,
};
use athanor_chassis::compute::Compute;
use athanor_profile::pprof::{Limits, encode};
use athanor_profile::{Labels, generate};

fn build() -> MemoryFolder {
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn Folder>);
    let mut builder = Builder::new("test", Limits::default(), 1 << 30, &mut scratch);
    // Some say when samples were taken.
    for seed in 0..4 {
        let labels = Labels::new([("service_name".into(), format!("service-{}", seed % 2))]);
        builder.add_pprof("acme", &labels, &encode(&generate::arbitrary(seed))).unwrap();
    }
    let folder = MemoryFolder::default();
    builder.finish(&folder).unwrap();
    folder
}

fn meta_of(folder: &MemoryFolder) -> Meta {
    Meta::decode(&folder.read(META, 0, folder.length(META).unwrap() as usize).unwrap()).unwrap()
}

/// Changes a file and corrects its checksums.
fn tamper(folder: &MemoryFolder, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut meta = meta_of(folder);
    folder.tamper(file, |content| {
        change(content);
        let checksums = content.chunks(PAGE).map(crc32fast::hash).collect();
        meta.files
            .insert(file.into(), FileMeta { bytes: content.len() as u64, checksums, ..FileMeta::default() });
    });
    folder.tamper(META, |bytes| *bytes = meta.encode());
}

/// Reads all there is, first what does not look at every row.
fn read(folder: &MemoryFolder) -> Result<(), BlockError> {
    let block = Block::open(Arc::new(folder.clone()))?;
    for part in block.parts() {
        let half = part.meta.samples / 2;
        let ranges = [1..half, half + 1..part.meta.samples];
        let _ = (part.totals(&ranges, &Compute::inline()), part.services_calling("main"));
        let _ = part.moments(&ranges, |_, _| ());
    }
    block.verify(|_| {})
}

#[test]
fn a_wrong_byte_anywhere_is_refused_or_read() {
    let folder = build();
    read(&folder).unwrap();
    assert_eq!(meta_of(&folder).format, FORMAT, "it has all columns");
    for file in FILES {
        let length = folder.length(file).unwrap() as usize;
        for at in (0..length).step_by((length / 97).max(1)) {
            let flip = [0x01, 0x10, 0x80, 0xff][at % 4];
            tamper(&folder, file, |content| content[at] ^= flip);
            let _ = read(&folder);
            tamper(&folder, file, |content| content[at] ^= flip);
        }
    }
    read(&folder).unwrap();
}

#[test]
fn counts_that_no_file_could_hold_are_refused() {
    let changes: [fn(&mut Meta); 4] = [
        |meta| meta.tenants[0].profiles.1 = 1 << 30,
        |meta| (meta.tenants[0].nodes.1, meta.tenants[0].stacks) = (1 << 30, 1 << 30),
        |meta| meta.tenants[0].locations.1 = 1 << 30,
        |meta| meta.tenants[0].samples = u64::MAX,
    ];
    for change in changes {
        let folder = build();
        let mut meta = meta_of(&folder);
        change(&mut meta);
        folder.tamper(META, |bytes| *bytes = meta.encode());
        let error = read(&folder).unwrap_err().to_string();
        assert!(error.contains("cannot hold"), "{error}");
    }
}
