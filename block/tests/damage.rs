//! Damage behind right checksums: no panic, and no memory for rows that were only announced.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use athanor_block::{
    Block, BlockBuilder, BlockError, BlockFolder, BlockMeta, FORMAT_VERSION, FileMeta, META_FILE,
    MemoryFolder, MemoryProfiles, PAGE_BYTES, PARQUET_FILES, PROFILES_FILE, merge, write_from_memory,
};
use athanor_chassis::compute::ComputePool;
use athanor_profile::formats::pprof::{DecodeLimits, encode};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ValueType, generate};

fn build() -> MemoryFolder {
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let mut builder = BlockBuilder::new("test", DecodeLimits::default(), 1 << 30, &mut scratch);
    // Some say when samples were taken.
    for seed in 0..4 {
        let labels = Labels::new([("service_name".into(), format!("service-{}", seed % 2))]);
        builder.add_pprof("acme", &labels, &encode(&generate::arbitrary_profile(seed))).unwrap();
    }
    let folder = MemoryFolder::default();
    builder.finish(&folder).unwrap();
    folder
}

fn meta_of(folder: &MemoryFolder) -> BlockMeta {
    BlockMeta::decode(&folder.read(META_FILE, 0, folder.length(META_FILE).unwrap() as usize).unwrap())
        .unwrap()
}

/// Changes a file and corrects its checksums.
fn tamper(folder: &MemoryFolder, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut meta = meta_of(folder);
    folder.tamper(file, |content| {
        change(content);
        let checksums = content.chunks(PAGE_BYTES).map(crc32fast::hash).collect();
        meta.files
            .insert(file.into(), FileMeta { bytes: content.len() as u64, checksums, ..FileMeta::default() });
    });
    folder.tamper(META_FILE, |bytes| *bytes = meta.encode());
}

/// Reads all there is, first what does not look at every row.
fn read(folder: &MemoryFolder) -> Result<(), BlockError> {
    let block = Block::open(Arc::new(folder.clone()))?;
    for part in block.tenant_blocks() {
        let half = part.meta.samples / 2;
        let ranges = [1..half, half + 1..part.meta.samples];
        let _ = (part.sum_by_stack(&ranges, &ComputePool::inline()), part.services_calling("main"));
        let _ = part.read_timestamps(&ranges, |_, _| ());
    }
    block.verify(|_| {})
}

#[test]
fn a_wrong_byte_anywhere_is_refused_or_read() {
    let folder = build();
    read(&folder).unwrap();
    assert_eq!(meta_of(&folder).format, FORMAT_VERSION, "it has all columns");
    for file in PARQUET_FILES {
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

/// Changes a block so that both profiles have the id of the first, and nothing states that ids are distinct.
fn duplicate_ids(folder: &MemoryFolder) {
    let block = Block::open(Arc::new(folder.clone())).unwrap();
    let rows = block.tenant_block("acme").unwrap().read_all_profiles().unwrap();
    let ids: Vec<[u8; 16]> = rows.iter().map(|row| row.id.to_be_bytes()).collect();
    assert_eq!(ids.len(), 2);
    replace(folder, PROFILES_FILE, &ids[1], &ids[0]);
}

/// Replaces the first occurrence of some bytes in a file by as many others.
fn replace(folder: &MemoryFolder, file: &str, from: &[u8], to: &[u8]) {
    tamper(folder, file, |content| {
        let place = content.windows(from.len()).position(|window| window == from).unwrap();
        content[place..place + from.len()].copy_from_slice(to);
    });
}

/// A block of one upload and of its retry after the label rules changed.
fn with_a_copy_in_each_of_two_series() -> MemoryFolder {
    let mut source = MemorySource::default();
    for (id, pod) in [(1, "a"), (2, "b")] {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.time_nanos = 1_700_000_000_000_000_000;
        let stack = profile.dictionary.intern_named_stack(["main", "work"].into_iter());
        profile.samples.push(stack, 0, &[5]);
        source.add(&Labels::new([("pod".into(), pod.into())]), &profile, id);
    }
    let folder = MemoryFolder::default();
    write_from_memory(&folder, "duplicates", None, [("acme", &source as &dyn MemoryProfiles)].into_iter())
        .unwrap();
    duplicate_ids(&folder);
    folder
}

/// INV-20, in blocks of versions that kept an id once in each series.
#[test]
fn block_of_earlier_version_with_duplicates_merges_to_one_copy_each() {
    let folder = with_a_copy_in_each_of_two_series();
    let refused = read(&folder).unwrap_err().to_string();
    assert!(refused.contains("two rows have the same id"), "{refused}");
    replace(&folder, PROFILES_FILE, b"athanor.distinct_ids", b"athanor.distinct_idz");
    read(&folder).unwrap();
    let old = Block::open(Arc::new(folder)).unwrap();
    assert!(!old.tenant_block("acme").unwrap().has_distinct_ids().unwrap());
    let merged = MemoryFolder::default();
    merge(&merged, "merged", &[old]).unwrap();
    read(&merged).unwrap();
    let merged = Block::open(Arc::new(merged)).unwrap();
    let part = merged.tenant_block("acme").unwrap();
    assert!(part.has_distinct_ids().unwrap());
    assert_eq!(
        (part.read_all_profiles().unwrap().len(), part.read_series().unwrap().len(), part.meta.samples),
        (1, 1, 1)
    );
    assert_eq!(part.read_series().unwrap()[0].labels().get("pod"), Some("a"), "the least series keeps it");
}

#[test]
fn counts_that_no_file_could_hold_are_refused() {
    let changes: [fn(&mut BlockMeta); 4] = [
        |meta| meta.tenants[0].profiles.1 = 1 << 30,
        |meta| (meta.tenants[0].nodes.1, meta.tenants[0].stacks) = (1 << 30, 1 << 30),
        |meta| meta.tenants[0].locations.1 = 1 << 30,
        |meta| meta.tenants[0].samples = u64::MAX,
    ];
    for change in changes {
        let folder = build();
        let mut meta = meta_of(&folder);
        change(&mut meta);
        folder.tamper(META_FILE, |bytes| *bytes = meta.encode());
        let error = read(&folder).unwrap_err().to_string();
        assert!(error.contains("cannot hold"), "{error}");
    }
}
