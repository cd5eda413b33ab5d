//! Memory of merges against its estimate. Each merge runs in a process of its own, from disk to disk.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use athanor_block::{
    Block, BlockFolder, LocalFolder, MemoryProfiles, MergeEstimate, MergeOutput, MergeSource, merge_into,
    write_from_memory,
};
use athanor_chassis::Tier;
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ValueType};

#[path = "downsampling/origin.rs"]
mod origin;
use origin::origin_of_tier;

/// Number of blocks of each merge.
const BLOCK_COUNT: u64 = 3;
/// Variable with the folder of the inputs, in the process that merges.
const FOLDER_VARIABLE: &str = "ATHANOR_TEST_MERGE_FOLDER";
/// Variable with the tier of the output.
const TIER_VARIABLE: &str = "ATHANOR_TEST_MERGE_TIER";
/// Name of the test that merges.
const MERGE_TEST: &str = "memory_of_a_merge_is_measured";
const RESULT_FILE: &str = "peak_bytes";

/// Shape of the inputs.
struct InputShape {
    name: &'static str,
    profiles: u64,
    samples_per_profile: u64,
    /// Number of different stacks of a block. No two blocks have a stack in common.
    stacks: u64,
}

fn write_inputs(shape: &InputShape, folder: &Path) {
    for number in 0..BLOCK_COUNT {
        let mut source = MemorySource::default();
        for place in 0..shape.profiles {
            let mut profile = Profile::default();
            profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
            profile.header.time_nanos = place as i64;
            for sample in 0..shape.samples_per_profile {
                let stack = (place * shape.samples_per_profile + sample) % shape.stacks;
                let leaf = format!("package-{number}/function-{stack}");
                let names = ["main", "run", leaf.as_str()];
                let stack = profile.dictionary.intern_named_stack(names.into_iter());
                profile.samples.push(stack, 0, &[((place + sample) % 1000) as i64 + 1]);
            }
            let labels = Labels::new([("service_name".into(), format!("service-{}", place % 7))]);
            source.add(&labels, &profile, u128::from(number * shape.profiles + place) << 64);
        }
        let folder = LocalFolder::create(folder.join(number.to_string())).unwrap();
        let parts = [("acme", &source as &dyn MemoryProfiles)];
        write_from_memory(&folder, "input", None, parts.into_iter()).unwrap();
    }
}

fn open_inputs(folder: &Path) -> Vec<MergeSource> {
    let open =
        |number: u64| Block::open(Arc::new(LocalFolder::open(folder.join(number.to_string())))).unwrap();
    (0..BLOCK_COUNT).map(|number| MergeSource::from(open(number))).collect()
}

fn status_bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Runs in the process that the other test starts. Alone it has nothing to measure.
#[test]
fn memory_of_a_merge_is_measured() {
    #[expect(clippy::disallowed_methods, reason = "the test's own variable")]
    let Ok(folder) = std::env::var(FOLDER_VARIABLE) else { return };
    let folder = Path::new(&folder);
    let sources = open_inputs(folder);
    #[expect(clippy::disallowed_methods, reason = "the test's own variable")]
    let tier: Tier = std::env::var(TIER_VARIABLE).unwrap().parse().unwrap();
    let output = LocalFolder::create(folder.join(tier.name())).unwrap();
    let mut scratch = || Err(std::io::ErrorKind::Unsupported.into());
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status_bytes("VmRSS:");
    let origin = (!tier.is_raw()).then(|| origin_of_tier("merged", tier));
    let making = MergeOutput { id: "merged".to_owned(), origin, tier, ..MergeOutput::default() };
    let merged =
        merge_into(&output as &dyn BlockFolder, &making, sources, &mut scratch, &mut |_| ()).unwrap();
    let peak = status_bytes("VmHWM:") - before;
    assert!(merged.meta.samples() > 0);
    fs::write(folder.join(RESULT_FILE), peak.to_string()).unwrap();
}

#[test]
fn estimate_is_above_the_memory_of_a_merge_and_near() {
    let shapes = [
        InputShape { name: "few rows", profiles: 5, samples_per_profile: 10, stacks: 10 },
        InputShape { name: "many profiles", profiles: 60_000, samples_per_profile: 1, stacks: 5 },
        InputShape { name: "many samples", profiles: 60, samples_per_profile: 5_000, stacks: 5_000 },
        InputShape { name: "many names", profiles: 4, samples_per_profile: 15_000, stacks: 60_000 },
    ];
    for shape in shapes {
        let folder = tempfile::tempdir().unwrap();
        write_inputs(&shape, folder.path());
        let inputs = open_inputs(folder.path());
        let estimate = MergeEstimate::default().memory(&inputs).unwrap();
        let compared: Vec<Block> = inputs.iter().map(|source| source.block.clone()).collect();
        let with_compared =
            MergeEstimate { compared: &compared, ..MergeEstimate::default() }.memory(&inputs).unwrap();
        assert!(with_compared > estimate, "IDs of other blocks take memory too");
        let of_raw = measure_merge(folder.path(), Tier::Raw);
        let of_buckets = measure_merge(folder.path(), Tier::FiveMinutes);
        println!("{}: estimate {estimate} bytes, measured {of_raw} and {of_buckets}", shape.name);
        let measured = of_raw.max(of_buckets);
        assert!(estimate >= measured, "{}: estimate {estimate} is below {measured}", shape.name);
        // Small merges take less than the fixed part of the estimate.
        assert!(estimate <= 4 * of_raw.max(4 << 20), "{}: {estimate} is far above {of_raw}", shape.name);
    }
}

/// Merges in another process, and returns its peak of memory in bytes.
fn measure_merge(folder: &Path, tier: Tier) -> u64 {
    let mut merge = Command::new(std::env::current_exe().unwrap());
    merge.args([MERGE_TEST, "--exact"]).env(FOLDER_VARIABLE, folder).env(TIER_VARIABLE, tier.name());
    assert!(merge.output().unwrap().status.success());
    fs::read_to_string(folder.join(RESULT_FILE)).unwrap().parse().unwrap()
}
