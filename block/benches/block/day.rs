//! A tenth of a day's block against a block of that tenth alone.

use std::hint::black_box;
use std::sync::Arc;

use athanor_block::{
    Block, BlockFolder, MemoryFolder, MemoryProfiles, MergeOutput, MergeSource, RowOrder, TenantBlockSource,
    merge_into, write_from_memory,
};
use athanor_chassis::compute::ComputePool;
use athanor_profile::encoding::hash::hash_bytes;
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};

use crate::{best_by, cpu};

const SERIES: i64 = 400;
const STACKS: usize = 300;
const SAMPLES: i64 = 60;
/// Midnight of the day in Unix nanoseconds.
const DAY_START: i64 = 1_750_032_000 * 1_000_000_000;

/// Profiles of a day: a few rows of many series, as a fleet of small processes has.
fn day(range: std::ops::Range<i64>) -> MemorySource {
    let mut held = MemorySource::default();
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    let stacks: Vec<u32> = (0..STACKS)
        .map(|stack| {
            profile.dictionary.intern_named_stack(["main", format!("work_{stack}").as_str()].into_iter())
        })
        .collect();
    for series in 0..SERIES {
        let labels = Labels::new([
            ("pod".into(), format!("pod-{series:03}")),
            ("service_name".into(), "fleet".into()),
        ]);
        for minute in range.clone().step_by(5) {
            profile.samples.clear();
            for row in 0..SAMPLES {
                let hash = hash_bytes(&[series, minute, row].map(i64::to_le_bytes).concat()) as u64;
                let stack = stacks[(hash % STACKS as u64) as usize];
                profile.samples.push(stack, 0, &[10_000_000 * (1 + (hash >> 32) as i64 % 9)]);
            }
            profile.header.time_nanos = DAY_START + (minute * 60 + series % 60) * 1_000_000_000;
            held.add(&labels, &profile, ((series * 2_000 + minute) as u128) << 64);
        }
    }
    held
}

/// A tenth of a day in the block of the day, in both orders of rows, and in a block of its own.
pub fn tenth_of_a_day() {
    let written = |held: &MemorySource, order| {
        let flushed = MemoryFolder::default();
        let parts = [("fleet", held as &dyn MemoryProfiles)].into_iter();
        write_from_memory(&flushed, "flushed", None, parts).unwrap();
        let folder = MemoryFolder::default();
        let output = MergeOutput { id: "day".to_owned(), order, ..MergeOutput::default() };
        let source = MergeSource::from(Block::open(Arc::new(flushed)).unwrap());
        let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
        merge_into(&folder, &output, vec![source], &mut scratch, &mut |_| ()).unwrap();
        Arc::new(Block::open(Arc::new(folder)).unwrap())
    };
    let tenth = 12 * 60..12 * 60 + 144;
    let whole = day(0..1440);
    let alone = written(&day(tenth.clone()), RowOrder::Series);
    // Without the first profiles, because whole series are added up from the roll-up.
    let [start, end] = [tenth.start + 5, tenth.end].map(|minute| DAY_START + minute * 60 * 1_000_000_000);
    let measure = |block: &Arc<Block>| {
        let source = TenantBlockSource::new(Arc::clone(block), "fleet", ComputePool::inline()).unwrap();
        let rows = source.profiles().unwrap();
        let picked: Vec<u32> = (0u32..)
            .zip(rows.iter())
            .filter(|(_, row)| (start..end).contains(&row.time))
            .map(|(place, _)| place)
            .collect();
        let read = source.read_size(&picked, false).unwrap().rows;
        (best_by(cpu, 9, || drop(black_box(source.totals(&picked).unwrap()))), read)
    };
    let (floor, floor_bytes) = measure(&alone);
    for order in [RowOrder::Series, RowOrder::Hour] {
        let (time, bytes) = measure(&written(&whole, order));
        println!(
            "a tenth of a day by {order:?}: {:.1} times the processor time of a block of it alone, {:.1} times the bytes (goal 1.1)",
            time.as_secs_f64() / floor.as_secs_f64(),
            bytes as f64 / floor_bytes as f64
        );
    }
}
