//! Ids of spans and traces: kept with their samples through building and merging, and free where there are none.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use athanor_block::{
    Block, BlockBuilder, BlockFolder, LocalFolder, MemoryFolder, SpanContext, TenantBlock, merge,
};
use athanor_chassis::compute::ComputePool;
use athanor_profile::formats::pprof::{DecodeLimits, encode};
use athanor_profile::{Labels, Profile, SampleLabel, ValueType};

/// Stack, labels, value.
type Sample = (&'static str, &'static [(&'static str, &'static str)], i64);

const A: &str = "00000bac2a5ab0c7";
const B: &str = "F000000000000001";
const TRACE: &str = "0123456789abcdef0123456789abcdef";

const FIRST: &[Sample] = &[
    ("main;x", &[("span_id", A)], 1),
    ("main;x", &[("span_id", B), ("trace_id", TRACE)], 2),
    ("main;x", &[], 4),
    // Two rows that are one: equal stack and request.
    ("main;y", &[("profile_id", A)], 8),
    ("main;y", &[("span_id", A), ("profile_id", B)], 16),
];
const SECOND: &[Sample] = &[
    ("main;y", &[("span_id", A), ("thread", "t1")], 32),
    ("main", &[("span_id", "not an id")], 64),
    ("main", &[("span_id", "0000000000000000"), ("trace_id", "0123")], 128),
];
const PLAIN: &[Sample] = &[("main;x", &[], 256)];

fn profile(time: i64, samples: &[Sample]) -> Vec<u8> {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = time;
    for (stack, labels, value) in samples {
        let dictionary = &mut profile.dictionary;
        let stack = dictionary.intern_named_stack(stack.split(';'));
        let mut text = |text| dictionary.symbols.strings.intern(text);
        let labels: Vec<SampleLabel> = labels
            .iter()
            .map(|(key, value)| SampleLabel { key: text(key), text: text(value), number: 0, unit: 0 })
            .collect();
        let labels = dictionary.label_sets.intern(&dictionary.symbols.strings, &labels);
        profile.samples.push(stack, labels, &[*value]);
    }
    encode(&profile)
}

fn build(folder: &dyn BlockFolder, profiles: &[(i64, &[Sample])]) -> u64 {
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let mut builder = BlockBuilder::new("requests", DecodeLimits::default(), 1 << 20, &mut scratch);
    for (time, samples) in profiles {
        builder.add_pprof("acme", &Labels::default(), &profile(*time, samples)).unwrap();
    }
    let dropped = builder.counts().dropped_labels;
    builder.finish(folder).unwrap();
    dropped
}

fn open(folder: &MemoryFolder) -> Block {
    Block::open(Arc::new(folder.clone())).unwrap()
}

/// Totals by name of the rows that `wanted` picks.
fn totals(block: &Block, wanted: impl Fn(SpanContext) -> bool + Sync) -> BTreeMap<String, i64> {
    let part = block.tenant_block("acme").unwrap();
    let ranges = TenantBlock::sample_ranges(&part.read_all_profiles().unwrap(), |_| true);
    let totals = part.sum_by_stack_of_requests(&ranges, &ComputePool::inline(), wanted).unwrap();
    let names = part.read_names().unwrap();
    let symbols = &names.dictionary.symbols;
    let name = |stack: usize| {
        let path = names.dictionary.stacks.locations(names.stacks[stack]);
        let mut path: Vec<&str> =
            path.map(|location| symbols.function_name(symbols.lines(location)[0].function)).collect();
        path.reverse();
        path.join(";")
    };
    totals
        .iter()
        .enumerate()
        .filter(|total| *total.1 != 0)
        .map(|(stack, &total)| (name(stack), total))
        .collect()
}

fn expected(rows: &[(&str, i64)]) -> BTreeMap<String, i64> {
    rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn check(block: &Block) {
    block.verify(|_| {}).unwrap();
    let (a, b) = (0x0bac_2a5a_b0c7, 0xf000_0000_0000_0001);
    assert_eq!(totals(block, |of| of.span == a), expected(&[("main;x", 1), ("main;y", 56)]));
    assert_eq!(totals(block, |of| of.span == b), expected(&[("main;x", 2)]));
    let trace = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
    assert_eq!(totals(block, |of| of.trace == trace), expected(&[("main;x", 2)]));
    let none = totals(block, |of| of == SpanContext::default());
    assert_eq!(none, expected(&[("main", 192), ("main;x", 260)]));
    // x with A, x with B, x with none, y with A; y with A; main; x.
    assert_eq!(block.meta().samples(), 7);
}

#[test]
fn spans_and_traces_survive_building_and_merging() {
    let whole = MemoryFolder::default();
    // Two ids that are none, a third that is too short.
    assert_eq!(build(&whole, &[(1, FIRST), (2, SECOND), (3, PLAIN)]), 3);
    check(&open(&whole));
    let (one, two, merged) = (MemoryFolder::default(), MemoryFolder::default(), MemoryFolder::default());
    build(&one, &[(2, SECOND), (3, PLAIN)]);
    build(&two, &[(1, FIRST), (3, PLAIN)]);
    merge(&merged, "requests", &[open(&one), open(&two)]).unwrap();
    check(&open(&merged));
    for file in athanor_block::PARQUET_FILES {
        let all =
            |folder: &MemoryFolder| folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
        assert_eq!(all(&merged), all(&whole), "{file}");
    }
}

#[test]
fn without_them_there_is_no_column() {
    let (with, without) = (MemoryFolder::default(), MemoryFolder::default());
    build(&with, &[(1, &FIRST[..1])]);
    build(&without, &[(1, PLAIN)]);
    let text = |folder: &MemoryFolder| {
        let length = folder.length("samples.parquet").unwrap() as usize;
        String::from_utf8_lossy(&folder.read("samples.parquet", 0, length).unwrap()).into_owned()
    };
    assert!(text(&with).contains("span_id") && !text(&with).contains("trace_id"));
    assert!(!text(&without).contains("span_id"));
    assert_eq!(totals(&open(&without), |of| of == SpanContext::default()), expected(&[("main;x", 256)]));
}

#[test]
fn duckdb_reads_them() {
    #[expect(clippy::disallowed_methods, reason = "the test's own switch")]
    let python = std::env::var("ATHANOR_PYTHON").unwrap_or_else(|_| "python3".into());
    if !Command::new(&python)
        .args(["-c", "import duckdb"])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        println!("skip: duckdb_reads_them: no Python with DuckDB");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    build(&LocalFolder::open(folder.path()), &[(1, FIRST), (2, SECOND)]);
    let script = "import sys, duckdb\nfor row in duckdb.sql(f\"select span_id, lower(hex(trace_id)), sum(value) \
                  from '{sys.argv[1]}/samples.parquet' group by all order by all\").fetchall(): print(*row)";
    let output = Command::new(python).args(["-c", script]).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (a, b) = (0x0bac_2a5a_b0c7u64, 0xf000_0000_0000_0001u64);
    let expected = format!("{a} None 57\n{b} {TRACE} 2\nNone None 196\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}
