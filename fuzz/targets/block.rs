//! A block with one file changed behind right checksums: refused or read, never a panic.
//!
//! The input: which block, which file, then changes of three bytes each (place, place, new value); or, if the
//! first byte is odd, the whole file. One file more than there are stands for the counts in `meta.json`.
#![no_main]

use std::sync::{Arc, Once, OnceLock};

use athanor_block::{
    Block, BlockBuilder, BlockError, BlockFolder, BlockMeta, FileMeta, META_FILE, MemoryFolder, PAGE_BYTES,
    PARQUET_FILES,
};
use athanor_chassis::compute::ComputePool;
use athanor_profile::formats::pprof::{DecodeLimits, encode};
use athanor_profile::{Labels, generate::arbitrary_profile};
use libfuzzer_sys::fuzz_target;

struct Sound {
    meta: BlockMeta,
    files: Vec<Vec<u8>>,
}

fn sound(seed: u64) -> Sound {
    let folder = MemoryFolder::default();
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let mut builder = BlockBuilder::new("fuzz", DecodeLimits::default(), 1 << 30, &mut scratch);
    for number in 0..6 {
        let tenant = ["acme", "globex"][number as usize % 2];
        let labels = Labels::new([("service_name".into(), format!("service-{}", number % 3))]);
        builder
            .add_pprof(tenant, &labels, &encode(&arbitrary_profile(seed * 6 + number)))
            .expect("it is sound");
    }
    let meta = builder.finish(&folder).expect("memory takes all");
    let read = |file: &&str| folder.read(file, 0, folder.length(file)? as usize).map(|bytes| bytes.to_vec());
    Sound { meta, files: PARQUET_FILES.iter().map(read).collect::<Result<_, _>>().expect("it was written") }
}

fn read_all(folder: MemoryFolder) -> Result<(), BlockError> {
    let block = Block::open(Arc::new(folder))?;
    let verified = block.verify(|_| {});
    // Each of these may be called on a block that was not verified.
    for part in block.tenant_blocks() {
        let _ = (part.read_names(), part.read_series(), part.services_calling("main"));
        let _ = part.sum_rollup(|_| true);
        if part.read_all_profiles().is_ok() {
            let samples = part.meta.samples;
            let ranges = [1..samples / 2, samples / 2 + 1..samples];
            let _ = part.sum_by_stack(&ranges, &ComputePool::inline());
            let _ = part.read_timestamps(&ranges, |_, _| ());
        }
    }
    verified
}

/// Changes what the last tenant is said to have: which count, and its bits.
fn recount(meta: &mut BlockMeta, changes: &[u8]) {
    let last = meta.tenants.last_mut().expect("every block has tenants");
    for change in changes.chunks_exact(3) {
        let count = u32::from(change[2]) << (change[1] % 24);
        match change[0] % 17 {
            0 => last.series.1 = count,
            1 => last.profiles.1 = count,
            2 => last.nodes.1 = count,
            3 => last.locations.1 = count,
            4 => last.functions.1 = count,
            5 => last.mappings.1 = count,
            6 => last.stacks = count,
            7 => last.samples = count.into(),
            file => last.groups[usize::from(file) - 8].1 = count,
        }
    }
}

fn change(content: &mut [u8], changes: &[u8]) {
    for change in changes.chunks_exact(3) {
        let at = u16::from_le_bytes([change[0], change[1]]) as usize % content.len();
        content[at] = change[2];
    }
}

fuzz_target!(|bytes: &[u8]| {
    static HOOK: Once = Once::new();
    // The fuzzer's own hook ends the process even if a panic is caught; one that is not caught still ends it.
    HOOK.call_once(|| drop(std::panic::take_hook()));
    static BLOCKS: OnceLock<Vec<Sound>> = OnceLock::new();
    let blocks = BLOCKS.get_or_init(|| (0..4).map(sound).collect());
    let [which, file, rest @ ..] = bytes else { return };
    let block = &blocks[(which / 2) as usize % blocks.len()];
    let folder = MemoryFolder::default();
    for (file, sound) in PARQUET_FILES.iter().zip(&block.files) {
        folder.tamper(file, |bytes| bytes.clone_from(sound));
    }
    let mut meta = block.meta.clone();
    match PARQUET_FILES.get(*file as usize % (PARQUET_FILES.len() + 1)) {
        None => recount(&mut meta, rest),
        Some(file) => folder.tamper(file, |content| {
            if which % 2 == 1 {
                *content = rest.to_vec();
            } else {
                change(content, rest);
            }
            let checksums = content.chunks(PAGE_BYTES).map(crc32fast::hash).collect();
            meta.files.insert(
                (*file).into(),
                FileMeta { bytes: content.len() as u64, checksums, ..FileMeta::default() },
            );
        }),
    }
    folder.tamper(META_FILE, |bytes| *bytes = meta.encode());
    let _ = read_all(folder);
});
