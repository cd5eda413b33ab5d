//! Merges into downsampled tiers against plain sums over lists of profiles.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[path = "downsampling/buckets.rs"]
mod buckets;
#[path = "downsampling/origin.rs"]
mod origin;
#[path = "merging/records.rs"]
mod records;

use athanor_block::{
    Block, BlockError, BlockFolder, DuplicateTotals, MERGE_FAN_IN, META_FILE, MemoryFolder, MergeOutput,
    MergeResult, MergeSource, PARQUET_FILES, RowOrder, RowSelection, RowTotals, TenantBlockSource,
    merge_into, partition_series, summarize_rows,
};
use athanor_chassis::Tier;
use athanor_chassis::compute::ComputePool;
use athanor_profile::store_interface::series::{BucketCounts, ProfileRow};
use athanor_profile::store_interface::source::ProfileSource;
use buckets::{Buckets, add_buckets, buckets_of, buckets_of_records};
use origin::origin_of_tier;
use proptest::prelude::*;
use records::{Record, SERIES_COUNT, STACK_COUNT, Sample, StoredRecord, block_of, records_of};

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Start of a day.
const START: i64 = 19_700 * DAY;

/// Inputs of a merge as plain lists.
#[derive(Clone, Debug)]
struct Inputs {
    /// Profiles of each source, and whether it is covered. Covered ones come first.
    sources: Vec<(bool, Vec<Record>)>,
    /// Profiles of blocks to compare IDs with.
    compared: Vec<Vec<Record>>,
}

fn value() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => -50i64..50,
        1 => any::<i64>(),
        2 => i64::MAX - 3..=i64::MAX,
        1 => i64::MIN..i64::MIN + 3,
    ]
}

fn sample() -> impl Strategy<Value = Sample> {
    let timestamp = prop_oneof![4 => Just(None), 1 => any::<i64>().prop_map(Some)];
    let span = prop_oneof![3 => Just(0u64), 1 => 1u64..4];
    (0..STACK_COUNT, span, value(), timestamp).prop_map(|(stack, span, value, timestamp)| Sample {
        stack,
        span,
        value,
        timestamp,
    })
}

/// Times at and beside the ends of buckets of all tiers, and the first and last times.
fn time() -> impl Strategy<Value = i64> {
    let width = prop::sample::select(vec![300 * SECOND, 3_600 * SECOND, DAY]);
    let boundary = (prop::sample::select(vec![0, START]), width, -3i64..3, -1i64..2)
        .prop_map(|(start, width, count, beside)| start + width * count + beside);
    prop_oneof![
        8 => boundary,
        2 => START..START + DAY,
        1 => prop::sample::select(vec![i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX]),
    ]
}

/// Records of few profiles. All records of a profile have its time, each in a series of its own.
fn record(times: Vec<i64>) -> impl Strategy<Value = Record> {
    let samples = prop::collection::vec(sample(), 1..6);
    (0..times.len(), 0..SERIES_COUNT, any::<bool>(), samples).prop_map(
        move |(profile, series, is_acme, samples)| Record {
            tenant: if is_acme { "acme" } else { "globex" },
            series,
            time: times[profile],
            id: (profile as u128 + 1) << 64 | u128::from(series + 1),
            samples,
        },
    )
}

fn inputs(most_sources: usize) -> impl Strategy<Value = Inputs> {
    let records = |times: &Vec<i64>, most| prop::collection::vec(record(times.clone()), 0..most);
    prop::collection::vec(time(), 1..10).prop_flat_map(move |times| {
        let source = (any::<bool>(), records(&times, 12));
        let sources = prop::collection::vec(source, most_sources / 2..most_sources);
        let compared = prop::collection::vec(records(&times, 4), 0..3);
        (sources, compared, any::<bool>()).prop_map(|(mut sources, compared, has_large_values)| {
            let records = sources.iter_mut().flat_map(|(_, records)| records);
            for sample in records.flat_map(|record| &mut record.samples) {
                sample.value = if has_large_values { sample.value } else { sample.value % 1000 };
            }
            sources.sort_by_key(|(is_covered, _)| !is_covered);
            Inputs { sources, compared }
        })
    })
}

fn sources_of(inputs: &Inputs) -> Vec<MergeSource> {
    let source = |(is_covered, records): &(bool, Vec<Record>)| MergeSource {
        is_covered: *is_covered,
        ..MergeSource::from(block_of(records))
    };
    inputs.sources.iter().map(source).collect()
}

fn other_order(order: RowOrder) -> RowOrder {
    match order {
        RowOrder::Series => RowOrder::Hour,
        RowOrder::Hour => RowOrder::Series,
    }
}

fn order() -> impl Strategy<Value = RowOrder> {
    prop::sample::select(vec![RowOrder::Series, RowOrder::Hour])
}

fn output_of(tier: Tier, rows: RowSelection, compared: &[Block]) -> MergeOutput {
    MergeOutput {
        id: "merged".to_owned(),
        origin: Some(origin_of_tier("merged", tier)),
        rows,
        tier,
        compared: compared.to_vec(),
        ..MergeOutput::default()
    }
}

fn try_merge(
    output: &MergeOutput,
    sources: &[MergeSource],
) -> Result<(MergeResult, MemoryFolder), BlockError> {
    let folder = MemoryFolder::default();
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let result = merge_into(&folder, output, sources.to_vec(), &mut scratch, &mut |_| ())?;
    Ok((result, folder))
}

fn open(folder: &MemoryFolder) -> Block {
    Block::open(Arc::new(folder.clone())).unwrap()
}

/// Merges into memory and verifies the block.
fn merge_rows(output: &MergeOutput, sources: &[MergeSource]) -> (MergeResult, Block) {
    let (result, folder) = try_merge(output, sources).unwrap();
    let block = open(&folder);
    block.verify(|_| ()).unwrap();
    assert_eq!(block.meta(), &result.meta);
    assert_eq!(block.meta().tier(), output.tier);
    (result, block)
}

/// Rows of a merge by the rules on plain lists.
#[derive(Default)]
struct ExpectedMerge {
    kept_of_covered: Vec<StoredRecord>,
    kept_of_uncovered: Vec<StoredRecord>,
    dropped: BTreeMap<String, DuplicateTotals>,
}

fn expected_merge(sources: &[MergeSource], compared: &[Block], rows: &RowSelection) -> ExpectedMerge {
    let mut expected = ExpectedMerge::default();
    let mut ids: BTreeSet<(String, u128)> = BTreeSet::new();
    let in_window = |block: &Block| {
        let mut all = records_of(block);
        all.retain(|record| rows.has_time(record.time));
        all
    };
    for is_covered in [true, false] {
        let of_kind = sources.iter().filter(|source| source.is_covered == is_covered);
        for record in of_kind.flat_map(|source| in_window(&source.block)) {
            let is_first = ids.insert((record.tenant.clone(), record.id));
            if rows.series.as_ref().is_some_and(|partition| !partition.contains(&record.series)) {
                continue;
            }
            match (is_first, is_covered) {
                (true, true) => expected.kept_of_covered.push(record),
                (true, false) => expected.kept_of_uncovered.push(record),
                (false, is_covered) => {
                    let dropped = expected.dropped.entry(record.tenant.clone()).or_default();
                    let of_kind = if is_covered { &mut dropped.covered } else { &mut dropped.uncovered };
                    of_kind.add(record.totals());
                }
            }
        }
        let of_compared = compared.iter().flat_map(in_window);
        ids.extend(of_compared.map(|record| (record.tenant, record.id)));
    }
    expected
}

/// Profiles and sums that `meta.json` states, by tenant.
fn stated_totals(block: &Block) -> BTreeMap<String, (u64, u64)> {
    let parts = block.meta().tenants.iter();
    parts.map(|part| (part.tenant.clone(), (part.profile_count(), part.sum.unwrap()))).collect()
}

/// Checks that uncovered inputs are the rows of the tier plus uncovered duplicates.
fn check_conservation(sources: &[MergeSource], output: &MergeOutput, merged: &(MergeResult, Block)) {
    let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_covered) {
        let mut selected = records_of(&source.block);
        selected.retain(|record| {
            let has_series =
                output.rows.series.as_ref().is_none_or(|partition| partition.contains(&record.series));
            output.rows.has_time(record.time) && has_series
        });
        for record in selected {
            let RowTotals { profiles, sum, .. } = record.totals();
            let of_tenant = expected.entry(record.tenant).or_default();
            *of_tenant = (of_tenant.0 + profiles, of_tenant.1.wrapping_add(sum));
        }
    }
    let (result, block) = merged;
    let mut seen = stated_totals(block);
    for (tenant, dropped) in &result.duplicates {
        let RowTotals { profiles, sum, .. } = dropped.uncovered;
        if profiles > 0 {
            let of_tenant = seen.entry(tenant.clone()).or_default();
            *of_tenant = (of_tenant.0 + profiles, of_tenant.1.wrapping_add(sum));
        }
    }
    assert_eq!(seen, expected);
}

/// Checks that a bucket has a second row only if its sums may pass 63 bits.
fn check_row_count(records: &[StoredRecord], buckets: &Buckets, block: &Block) {
    let values = records.iter().flat_map(|record| record.values.values());
    let is_small = values.map(|value| u128::from(value.unsigned_abs())).sum::<u128>() <= i64::MAX as u128;
    let rows: usize = block.meta().tenants.iter().map(|part| part.profiles.1 as usize).sum();
    assert!(if is_small { rows == buckets.len() } else { rows >= buckets.len() });
}

/// Checks all tiers. The raw block and the finest tier have the given order, and the next one the other order.
fn check_tiers(sources: &[MergeSource], compared: &[Block], rows: RowSelection, order: RowOrder) {
    let expected = expected_merge(sources, compared, &rows);
    let raw_output = MergeOutput { order, ..output_of(Tier::Raw, rows.clone(), compared) };
    let (result, raw) = merge_rows(&raw_output, sources);
    let mut kept = [expected.kept_of_covered.as_slice(), &expected.kept_of_uncovered].concat();
    let mut stored = records_of(&raw);
    kept.sort();
    stored.sort();
    assert_eq!(stored, kept);
    assert_eq!(result.duplicates, expected.dropped);

    let mut previous: Option<Block> = None;
    for tier in Tier::DOWNSAMPLED {
        let of_tier = buckets_of_records(&expected.kept_of_uncovered, tier);
        let order = match tier {
            Tier::OneHour => other_order(order),
            Tier::OneDay => RowOrder::Series,
            _ => order,
        };
        let output = MergeOutput { order, ..output_of(tier, rows.clone(), compared) };
        let merged = merge_rows(&output, sources);
        assert_eq!(merged.1.meta().order, order);
        assert_eq!(buckets_of(&merged.1), of_tier, "{tier:?} of the sources");
        assert_eq!(merged.0.duplicates, expected.dropped);
        check_row_count(&expected.kept_of_uncovered, &of_tier, &merged.1);
        check_conservation(sources, &output, &merged);
        let all_rows = MergeOutput { order, ..output_of(tier, RowSelection::default(), &[]) };
        if expected.kept_of_covered.is_empty() {
            let (_, of_raw) = merge_rows(&all_rows, &[raw.clone().into()]);
            assert_eq!(buckets_of(&of_raw), of_tier, "{tier:?} of the merged raw rows");
        }
        let block = match previous {
            Some(finer) => merge_rows(&all_rows, &[finer.into()]).1,
            None => merged.1,
        };
        assert_eq!(buckets_of(&block), of_tier, "{tier:?} of the finer tier");
        previous = Some(block);
    }
}

fn blocks_of(lists: &[Vec<Record>]) -> Vec<Block> {
    lists.iter().map(|records| block_of(records)).collect()
}

fn selection() -> impl Strategy<Value = RowSelection> {
    prop_oneof![
        2 => Just(RowSelection::default()),
        1 => (-1i64..3).prop_map(|days| RowSelection::from_window_end(START + days * DAY, DAY)),
        1 => (-5i64..5).prop_map(|hours| RowSelection::from_window_end(hours * 3_600 * SECOND, 3_600 * SECOND)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_tier_is_the_sum_of_uncovered_rows(inputs in inputs(6), rows in selection(), order in order()) {
        check_tiers(&sources_of(&inputs), &blocks_of(&inputs.compared), rows, order);
    }

    #[test]
    fn pieces_of_a_window_split_the_tiers_too(inputs in inputs(5), pieces in 2usize..4, order in order()) {
        let sources = sources_of(&inputs);
        let window = RowSelection::default();
        for partition in partition_series(&sources, "acme", &window, pieces).unwrap() {
            let rows = RowSelection { series: Some(partition), ..window.clone() };
            check_tiers(&sources, &blocks_of(&inputs.compared), rows, order);
        }
    }

    #[test]
    fn merge_of_one_tier_adds_up_rows_of_its_blocks(inputs in inputs(6), tier in prop::sample::select(Tier::DOWNSAMPLED.to_vec())) {
        let output = output_of(tier, RowSelection::default(), &[]);
        let mut expected = Buckets::new();
        let mut blocks = Vec::new();
        for source in sources_of(&inputs) {
            let (_, block) = merge_rows(&output, &[MergeSource { is_covered: false, ..source }]);
            add_buckets(&mut expected, buckets_of(&block));
            blocks.push(MergeSource::from(block));
        }
        let (result, merged) = merge_rows(&output, &blocks);
        prop_assert_eq!(buckets_of(&merged), expected);
        prop_assert!(result.duplicates.is_empty(), "rows of tiers are no duplicates");
        let mut stated = BTreeMap::new();
        for (tenant, (profiles, sum)) in blocks.iter().flat_map(|source| stated_totals(&source.block)) {
            let of_tenant: &mut (u64, u64) = stated.entry(tenant).or_default();
            *of_tenant = (of_tenant.0 + profiles, of_tenant.1.wrapping_add(sum));
        }
        prop_assert_eq!(stated_totals(&merged), stated);
    }

    #[test]
    fn equal_inputs_of_a_tier_make_equal_bytes(inputs in inputs(5)) {
        let compared = blocks_of(&inputs.compared);
        for tier in Tier::DOWNSAMPLED {
            let output = output_of(tier, RowSelection::default(), &compared);
            let merged = [(); 2].map(|()| try_merge(&output, &sources_of(&inputs)).unwrap().1);
            for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
                let bytes = |folder: &MemoryFolder| folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
                prop_assert_eq!(bytes(&merged[0]), bytes(&merged[1]), "{}", file);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn rounds_count_each_profile_once(inputs in inputs(MERGE_FAN_IN * 2 + 12), order in order()) {
        check_tiers(&sources_of(&inputs), &blocks_of(&inputs.compared), RowSelection::default(), order);
    }
}

fn record_at(series: u32, time: i64, profile: u128, value: i64) -> Record {
    let samples = vec![Sample { stack: 1, span: 0, value, timestamp: None }];
    Record { tenant: "acme", series, time, id: profile << 64 | u128::from(series), samples }
}

fn downsample(records: &[Record], tier: Tier) -> Block {
    merge_rows(&output_of(tier, RowSelection::default(), &[]), &[block_of(records).into()]).1
}

fn rows_of(block: &Block) -> Vec<ProfileRow> {
    block.tenant_block("acme").unwrap().read_all_profiles().unwrap()
}

#[test]
fn query_of_a_tier_returns_bucket_ends_and_counts() {
    let records = [
        record_at(0, START + 1, 1, 10),
        record_at(0, START + 300 * SECOND, 2, 20),
        record_at(0, START + 300 * SECOND + 1, 3, 40),
        // Another record of the first profile, and one of another value type.
        record_at(1, START + 1, 1, 100),
        record_at(4, START + 1, 1, 1000),
    ];
    let raw = block_of(&records);
    let block = downsample(&records, Tier::FiveMinutes);
    let part = TenantBlockSource::new(Arc::new(block), "acme", ComputePool::inline()).unwrap();
    let source: &dyn ProfileSource = &part;
    assert!(source.is_downsampled() && source.has_distinct_ids().unwrap());
    let brief = source.brief_profiles().unwrap();
    let counted = |rows: &[ProfileRow]| {
        let row = |row: &ProfileRow| {
            let BucketCounts { records, profiles } = BucketCounts::from_row_id(row.id);
            (row.series, (row.time - START) / SECOND, records, profiles)
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let expected = [(0, 300, 2, 2), (0, 600, 1, 1), (1, 300, 1, 1), (2, 300, 1, 0)];
    assert_eq!(counted(&brief), expected);
    assert_eq!(counted(&source.profiles().unwrap()), expected);
    assert_eq!(source.totals(&[0, 1, 2, 3]).unwrap(), [1170]);
    assert_eq!(source.totals(&[0, 2]).unwrap(), [1030]);
    assert_eq!(source.profile_totals().unwrap().unwrap()[..], [30, 40, 1000, 100]);
    let summary = summarize_rows(&[part_block(&records)], DAY).unwrap();
    let of_day = summary.tenants["acme"][&(START + DAY)];
    assert_eq!((of_day.profiles, of_day.sum), (5, 1170), "a row counts its records");
    let raw = TenantBlockSource::new(Arc::new(raw), "acme", ComputePool::inline()).unwrap();
    assert!(!raw.is_downsampled());
}

fn part_block(records: &[Record]) -> MergeSource {
    downsample(records, Tier::OneHour).into()
}

#[test]
fn bucket_whose_sum_would_pass_63_bits_has_two_rows() {
    let records = [1u128, 2, 3].map(|profile| record_at(0, START + 5, profile, i64::MAX / 2));
    let block = downsample(&records, Tier::OneDay);
    let rows = rows_of(&block);
    let counts: Vec<u64> = rows.iter().map(|row| BucketCounts::from_row_id(row.id).records).collect();
    assert_eq!((rows.len(), counts), (2, vec![2, 1]));
    assert!(rows.iter().all(|row| row.time == START + DAY));
    assert_eq!(
        block.tenant_block("acme").unwrap().read_profile_totals().unwrap(),
        [i64::MAX - 1, i64::MAX / 2]
    );
    let small = downsample(&[1u128, 2, 3].map(|profile| record_at(0, START + 5, profile, 7)), Tier::OneDay);
    assert_eq!(rows_of(&small).len(), 1);
}

#[test]
fn row_that_a_compared_block_holds_is_dropped_from_uncovered_sources_only() {
    let held = block_of(&[record_at(0, START + 5, 1, 10)]);
    let covered = MergeSource { is_covered: true, ..block_of(&[record_at(0, START + 5, 1, 10)]).into() };
    let late = MergeSource::from(block_of(&[record_at(0, START + 5, 1, 10), record_at(0, START + 6, 2, 4)]));
    let raw = output_of(Tier::Raw, RowSelection::default(), std::slice::from_ref(&held));
    let (result, block) = merge_rows(&raw, &[covered.clone(), late.clone()]);
    let dropped = RowTotals { profiles: 1, samples: 1, sum: 10 };
    let expected = DuplicateTotals { covered: RowTotals::default(), uncovered: dropped };
    assert_eq!(result.duplicates["acme"], expected);
    assert_eq!(rows_of(&block).len(), 2);
    // Without a covered source the row is in no output.
    let (result, block) = merge_rows(&raw, std::slice::from_ref(&late));
    assert_eq!((result.duplicates["acme"], rows_of(&block).len()), (expected, 1));
    // The covered copy stays, in whichever order the sources come.
    let (result, _) = merge_rows(&output_of(Tier::Raw, RowSelection::default(), &[]), &[late, covered]);
    assert_eq!(result.duplicates["acme"], expected);
}

#[test]
fn merge_of_covered_rows_into_a_tier_has_no_tenants() {
    let covered = MergeSource { is_covered: true, ..block_of(&[record_at(0, START + 5, 1, 10)]).into() };
    let (result, _) = merge_rows(&output_of(Tier::OneHour, RowSelection::default(), &[]), &[covered]);
    assert!(result.meta.tenants.is_empty() && result.duplicates.is_empty());
}

#[test]
fn tiers_that_do_not_fit_together_are_rejected() {
    let records = [record_at(0, START + 5, 1, 10)];
    let raw = MergeSource::from(block_of(&records));
    let hour = MergeSource::from(downsample(&records, Tier::OneHour));
    let rejected = |output: &MergeOutput, sources: &[MergeSource]| match try_merge(output, sources) {
        Err(error @ BlockError::TierMismatch { .. }) => error.to_string(),
        other => panic!("not rejected: {:?}", other.map(|merged| merged.0)),
    };
    let output = |tier| output_of(tier, RowSelection::default(), &[]);
    let error = rejected(&output(Tier::Raw), std::slice::from_ref(&hour));
    assert_eq!(error, "merge into tier raw is not possible: an input has tier 1h");
    let error = rejected(&output(Tier::FiveMinutes), std::slice::from_ref(&hour));
    assert!(error.contains("tier 5m is not possible: an input has tier 1h"), "{error}");
    let error = rejected(&output(Tier::OneDay), &[raw.clone(), hour.clone()]);
    assert!(error.contains("some inputs have tier raw and others"), "{error}");
    let error = rejected(&MergeOutput { origin: None, ..output(Tier::OneDay) }, std::slice::from_ref(&raw));
    assert!(error.contains("the origin of the output has tier raw"), "{error}");
    let compared = output_of(Tier::Raw, RowSelection::default(), &[hour.block]);
    let error = rejected(&compared, &[raw]);
    assert!(error.contains("block merged to compare ids with has tier 1h"), "{error}");
}
