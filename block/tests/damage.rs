//! Damage behind right checksums: no panic, and no memory for rows that were only announced.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use athanor_block::{
    Block, BlockBuilder, BlockError, BlockFolder, BlockMeta, FileMeta, META_FILE, MemoryFolder,
    MemoryProfiles, MergeOutput, PAGE_BYTES, PARQUET_FILES, PROFILES_FILE, merge, merge_into,
    write_from_memory,
};
use athanor_chassis::Tier;
use athanor_chassis::compute::ComputePool;
use athanor_profile::formats::pprof::{DecodeLimits, encode};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ValueType, generate};

#[path = "downsampling/origin.rs"]
mod origin;
use origin::origin_of_tier;

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
    assert_eq!(meta_of(&folder).format, 2, "the format of rows by series");
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

/// Number of profiles in the one row of the block. Its bytes occur nowhere else.
const BUCKET_PROFILES: u128 = 777;

/// A block of a downsampled tier with one row.
fn build_bucket() -> MemoryFolder {
    let mut source = MemorySource::default();
    for id in 0..BUCKET_PROFILES {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.time_nanos = 1_700_000_000_000_000_000;
        let stack = profile.dictionary.intern_named_stack(["main", "work"].into_iter());
        profile.samples.push(stack, 0, &[5]);
        source.add(&Labels::default(), &profile, id << 64);
    }
    let raw = MemoryFolder::default();
    let parts = [("acme", &source as &dyn MemoryProfiles)];
    write_from_memory(&raw, "raw", None, parts.into_iter()).unwrap();
    let folder = MemoryFolder::default();
    let output = MergeOutput {
        id: "bucket".to_owned(),
        origin: Some(origin_of_tier("bucket", Tier::FiveMinutes)),
        tier: Tier::FiveMinutes,
        ..MergeOutput::default()
    };
    let sources = vec![Block::open(Arc::new(raw)).unwrap().into()];
    let mut scratch = || Err(std::io::ErrorKind::Unsupported.into());
    merge_into(&folder, &output, sources, &mut scratch, &mut |_| ()).unwrap();
    folder
}

fn change_meta(folder: &MemoryFolder, change: impl FnOnce(&mut BlockMeta)) {
    let mut meta = meta_of(folder);
    change(&mut meta);
    folder.tamper(META_FILE, |bytes| *bytes = meta.encode());
}

#[test]
fn wrong_byte_in_a_block_of_buckets_is_refused_or_read() {
    let folder = build_bucket();
    read(&folder).unwrap();
    for file in PARQUET_FILES {
        for at in 0..folder.length(file).unwrap() as usize {
            let flip = [0x01, 0x10, 0x80, 0xff][at % 4];
            tamper(&folder, file, |content| content[at] ^= flip);
            let _ = read(&folder);
            let open = Block::open(Arc::new(folder.clone()))
                .map(|block| merge(&MemoryFolder::default(), "m", &[block]));
            assert!(
                open.is_err() || open.is_ok_and(|merged| merged.is_err()),
                "raw rows are made of no buckets"
            );
            tamper(&folder, file, |content| content[at] ^= flip);
        }
    }
    read(&folder).unwrap();
}

#[test]
fn counts_that_contradict_each_other_are_rejected() {
    let rejected = |change: &dyn Fn(&MemoryFolder)| {
        let folder = build_bucket();
        change(&folder);
        read(&folder).unwrap_err().to_string()
    };
    let records = (BUCKET_PROFILES as u64).to_le_bytes();
    let few = rejected(&|folder| replace(folder, PROFILES_FILE, &records, &776u64.to_le_bytes()));
    assert!(few.contains("a row counts 777 profiles and 776 records"), "{few}");
    let negative = rejected(&|folder| replace(folder, PROFILES_FILE, &records, &(-1i64).to_le_bytes()));
    assert!(negative.contains("a row counts 777 profiles and -1 records"), "{negative}");
    let more = rejected(&|folder| replace(folder, PROFILES_FILE, &records, &778u64.to_le_bytes()));
    assert!(more.contains("rows add up 778 profiles, meta.json lists 777"), "{more}");
    let listed = rejected(&|folder| change_meta(folder, |meta| meta.tenants[0].records = 7));
    assert!(listed.contains("rows add up 777 profiles, meta.json lists 7"), "{listed}");
}

#[test]
fn tier_that_contradicts_the_rows_is_rejected() {
    let folder = build_bucket();
    change_meta(&folder, |meta| meta.origin.as_mut().unwrap().tier = Tier::OneDay);
    let longer = read(&folder).unwrap_err().to_string();
    assert!(longer.contains("is not the end of a bucket of tier 1d"), "{longer}");
    change_meta(&folder, |meta| {
        meta.origin.as_mut().unwrap().tier = Tier::Raw;
        meta.tenants[0].records = 0;
    });
    let counted = read(&folder).unwrap_err().to_string();
    assert!(counted.contains("the file has counts of profiles, its tier is raw"), "{counted}");
    let single = build();
    change_meta(&single, |meta| {
        meta.origin = Some(origin_of_tier("test", Tier::OneHour));
        meta.tenants[0].records = u64::from(meta.tenants[0].profiles.1);
    });
    let uncounted = read(&single).unwrap_err().to_string();
    assert!(uncounted.contains("the file has no counts of profiles, its tier is 1h"), "{uncounted}");
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
