//! Byte ranges of a merge: with all other bytes missing, the merge writes the same block.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::sync::Arc;

use athanor_block::{
    Block, BlockFolder, BlockMeta, FileRanges, INDEX_FILE, META_FILE, MemoryFolder, MemoryProfiles,
    MergeOutput, MergeSource, PAGE_BYTES, PARQUET_FILES, merge_into, summarize_rows, write_from_memory,
};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ValueType};

const TENANTS: [&str; 3] = ["acme", "globex", "initech"];

/// Profiles with names of several pages.
fn profiles(seed: u64) -> MemorySource {
    let mut source = MemorySource::default();
    for number in 0..6 {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.time_nanos = number;
        for stack in 0..6000u64 {
            let hash = (stack + 10_000 * seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let names = [format!("{hash:x}{:x}", hash.wrapping_mul(hash)), format!("f{stack}")];
            let stack = profile.dictionary.intern_named_stack(names.iter().map(String::as_str));
            profile.samples.push(stack, 0, &[(hash >> 8) as i64 * (number + 1)]);
        }
        let labels = Labels::new([("service_name".into(), format!("service-{}", number % 3))]);
        source.add(&labels, &profile, number as u128);
    }
    source
}

fn write_block() -> MemoryFolder {
    let sources: Vec<MemorySource> = (0..3).map(profiles).collect();
    let parts = TENANTS.iter().zip(&sources).map(|(tenant, source)| (*tenant, source as &dyn MemoryProfiles));
    let folder = MemoryFolder::default();
    write_from_memory(&folder, "input", None, parts).unwrap();
    folder
}

fn length(folder: &MemoryFolder, file: &str) -> usize {
    folder.length(file).unwrap() as usize
}

/// Copies some ranges of the files. All other bytes are zero.
fn copy_ranges(folder: &MemoryFolder, meta: &BlockMeta, ranges: &FileRanges) -> Block {
    let sparse = MemoryFolder::default();
    for file in PARQUET_FILES {
        sparse.tamper(file, |bytes| bytes.resize(length(folder, file), 0));
    }
    for (file, range) in ranges {
        assert!(range.start.is_multiple_of(PAGE_BYTES as u64));
        assert!(range.end.is_multiple_of(PAGE_BYTES as u64) || range.end == length(folder, file) as u64);
        let content = folder.read(file, range.start, (range.end - range.start) as usize).unwrap();
        sparse
            .tamper(file, |bytes| bytes[range.start as usize..range.end as usize].copy_from_slice(&content));
    }
    Block::with_meta(Arc::new(sparse), meta.clone()).unwrap()
}

fn merge_tenant(block: Block, tenants: Option<BTreeSet<String>>) -> MemoryFolder {
    let folder = MemoryFolder::default();
    let output = MergeOutput { id: "merged".to_owned(), tenants, ..MergeOutput::default() };
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let sources = vec![MergeSource::from(block)];
    merge_into(&folder, &output, sources, &mut scratch, &mut |_| ()).unwrap();
    folder
}

#[test]
fn fetched_ranges_are_enough_for_a_merge() {
    let folder = write_block();
    let whole = Block::open(Arc::new(folder.clone())).unwrap();
    let with_tails = whole.meta().clone();
    let mut without_tails = with_tails.clone();
    without_tails.files.values_mut().for_each(|file| file.tail.clear());
    let mut of_format_1 = without_tails.clone();
    of_format_1.files.values_mut().for_each(|file| file.tail_bytes = 0);
    let selections = [None, Some(BTreeSet::from(["globex".to_owned()]))];
    for (meta, tenants) in [&with_tails, &without_tails, &of_format_1]
        .into_iter()
        .flat_map(|meta| selections.iter().map(move |tenants| (meta, tenants)))
    {
        let tails = Block::with_meta(Arc::new(MemoryFolderLengths::of(&folder)), meta.clone());
        let tails = tails.unwrap().tail_ranges().unwrap();
        let ranges = copy_ranges(&folder, meta, &tails).byte_ranges_of(tenants.as_ref()).unwrap();
        assert!(ranges.iter().all(|(file, _)| *file != INDEX_FILE));
        let fetched = copy_ranges(&folder, meta, &ranges);
        let source = MergeSource { tenants: tenants.clone(), ..MergeSource::from(fetched.clone()) };
        assert!(!summarize_rows(&[source], 7).unwrap().tenants.is_empty());
        let sparse = merge_tenant(fetched, tenants.clone());
        let complete = merge_tenant(whole.clone(), tenants.clone());
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let bytes = |folder: &MemoryFolder| folder.read(file, 0, length(folder, file)).unwrap();
            assert_eq!(bytes(&sparse), bytes(&complete), "{file}");
        }
    }
    let bytes = |ranges: FileRanges| ranges.iter().map(|(_, range)| range.end - range.start).sum::<u64>();
    let of_tenant = bytes(whole.byte_ranges_of(selections[1].as_ref()).unwrap());
    let of_all = bytes(whole.byte_ranges_of(None).unwrap());
    assert!(of_tenant * 4 < of_all * 3, "{of_tenant} of {of_all} bytes are fetched for one of three tenants");
    assert!(whole.tail_ranges().unwrap().is_empty());
}

/// Folder that has the lengths of files and none of their bytes.
struct MemoryFolderLengths(Vec<(&'static str, u64)>);

impl MemoryFolderLengths {
    fn of(folder: &MemoryFolder) -> Self {
        MemoryFolderLengths(PARQUET_FILES.map(|file| (file, folder.length(file).unwrap())).to_vec())
    }
}

impl BlockFolder for MemoryFolderLengths {
    fn create(&self, _: &str) -> std::io::Result<Box<dyn std::io::Write + Send>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    fn read(&self, _: &str, _: u64, _: usize) -> std::io::Result<bytes::Bytes> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    fn length(&self, name: &str) -> std::io::Result<u64> {
        let of_file = self.0.iter().find(|(file, _)| *file == name);
        of_file.map(|(_, length)| *length).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}
