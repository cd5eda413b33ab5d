//! Merges of windows and partitions against plain lists of profiles: every row is in one output or counted as a
//! duplicate.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[path = "merging/records.rs"]
mod records;

use athanor_block::{
    Block, BlockFolder, MERGE_FAN_IN, META_FILE, MemoryFolder, MergeOutput, MergeResult, MergeSource,
    PARQUET_FILES, RowOrder, RowSelection, RowTotals, SeriesPartition, merge_into, partition_series,
    summarize_rows,
};
use athanor_chassis::window_end;
use proptest::prelude::*;
use records::{Record, STACK_COUNT, Sample, StoredRecord, block_of, records_of, series};

const TENANTS: [&str; 2] = ["acme", "globex"];

/// Totals by tenant.
type TenantTotals = BTreeMap<String, RowTotals>;

fn sample() -> impl Strategy<Value = Sample> {
    let timestamp = prop_oneof![3 => Just(None), 1 => any::<i64>().prop_map(Some)];
    let span = prop_oneof![3 => Just(0u64), 1 => 1u64..4];
    (0..STACK_COUNT, span, any::<i64>(), timestamp).prop_map(|(stack, span, value, timestamp)| Sample {
        stack,
        span,
        value,
        timestamp,
    })
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![9 => -30i64..30, 1 => prop::sample::select(vec![i64::MIN, i64::MIN + 1, i64::MAX])]
}

/// Records of few IDs, so that many are copies: in the same or another series, at the same or another time. Four IDs
/// are records of one profile.
fn record(ids: u128) -> impl Strategy<Value = Record> {
    let samples = prop::collection::vec(sample(), 1..7);
    (0usize..2, 0u32..4, time(), 0..ids, samples).prop_map(|(tenant, series, time, id, samples)| Record {
        tenant: TENANTS[tenant],
        series,
        time,
        id: id << 62,
        samples,
    })
}

fn sources(blocks: &[Block]) -> Vec<MergeSource> {
    blocks.iter().cloned().map(MergeSource::from).collect()
}

/// Merges into a folder in memory and verifies the block.
fn merge_rows(output: &MergeOutput, sources: &[MergeSource]) -> (MergeResult, MemoryFolder) {
    let folder = MemoryFolder::default();
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let result = merge_into(&folder, output, sources.to_vec(), &mut scratch, &mut |_| ()).unwrap();
    let block = open(&folder);
    block.verify(|_| ()).unwrap();
    assert_eq!(block.meta(), &result.meta);
    assert!(result.meta.tenants.iter().all(|part| part.profiles.1 > 0), "tenants without rows are left out");
    (result, folder)
}

fn open(folder: &MemoryFolder) -> Block {
    Block::open(Arc::new(folder.clone())).unwrap()
}

fn output_of(tenant: &str, rows: RowSelection) -> MergeOutput {
    let tenants = Some(BTreeSet::from([tenant.to_owned()]));
    MergeOutput { id: "merged".to_owned(), tenants, rows, ..MergeOutput::default() }
}

fn add_totals(totals: &mut TenantTotals, tenant: &str, rows: RowTotals) {
    totals.entry(tenant.to_owned()).or_default().add(rows);
}

fn totals_of(records: &[StoredRecord]) -> TenantTotals {
    let mut totals = TenantTotals::new();
    records.iter().for_each(|record| add_totals(&mut totals, &record.tenant, record.totals()));
    totals
}

/// Adds the totals that `meta.json` states.
fn add_stated(totals: &mut TenantTotals, block: &Block) {
    for part in &block.meta().tenants {
        let rows =
            RowTotals { profiles: u64::from(part.profiles.1), samples: part.samples, sum: part.sum.unwrap() };
        add_totals(totals, &part.tenant, rows);
    }
}

/// Kept rows and dropped duplicates of one output, by the rules on a plain list.
fn expected_merge(
    inputs: &[Vec<StoredRecord>],
    tenant: &str,
    rows: &RowSelection,
) -> (Vec<StoredRecord>, RowTotals) {
    let mut ids = BTreeSet::new();
    let mut kept = Vec::new();
    let mut dropped = RowTotals::default();
    let in_window = |record: &&StoredRecord| record.tenant == tenant && rows.has_time(record.time);
    for record in inputs.iter().flatten().filter(in_window) {
        let is_first = ids.insert(record.id);
        let has_series = |partition: &SeriesPartition| partition.contains(&record.series);
        match (rows.series.as_ref().is_none_or(has_series), is_first) {
            (false, _) => {}
            (true, true) => kept.push(record.clone()),
            (true, false) => dropped.add(record.totals()),
        }
    }
    kept.sort();
    (kept, dropped)
}

/// Merges all windows of all tenants in pieces, and compares each output with the plain list and the totals of all
/// of them with the inputs.
fn check_windows(blocks: &[Block], width: i64, pieces: usize, order: RowOrder) {
    let sources = sources(blocks);
    let inputs: Vec<Vec<StoredRecord>> = blocks.iter().map(records_of).collect();
    let mut of_inputs = TenantTotals::new();
    blocks.iter().for_each(|block| add_stated(&mut of_inputs, block));
    assert_eq!(of_inputs, totals_of(&inputs.concat()));
    let mut of_outputs = TenantTotals::new();
    for (tenant, windows) in summarize_rows(&sources, width).unwrap().tenants {
        for (end, summary) in windows {
            let window = RowSelection::from_window_end(end, width);
            let in_window =
                |record: &&StoredRecord| record.tenant == tenant && window_end(record.time, width) == end;
            let mut expected = RowTotals::default();
            inputs.iter().flatten().filter(in_window).for_each(|record| expected.add(record.totals()));
            assert_eq!(summary, expected);
            let partitions = partition_series(&sources, &tenant, &window, pieces).unwrap();
            assert!((1..=pieces).contains(&partitions.len()));
            let mut piece_of_profiles = BTreeMap::new();
            for (piece, partition) in partitions.into_iter().enumerate() {
                let rows = RowSelection { series: Some(partition), ..window.clone() };
                let output = MergeOutput { order, ..output_of(&tenant, rows.clone()) };
                let (result, folder) = merge_rows(&output, &sources);
                let (kept, dropped) = expected_merge(&inputs, &tenant, &rows);
                let block = open(&folder);
                let mut stored = records_of(&block);
                stored.sort();
                assert_eq!(stored, kept);
                for record in &kept {
                    let of_profile = *piece_of_profiles
                        .entry((record.series.service().to_owned(), record.id >> 64))
                        .or_insert(piece);
                    assert_eq!(of_profile, piece, "records of a profile and service are in one piece");
                }
                assert!(!kept.is_empty(), "no partition is empty");
                assert_eq!(result.duplicates.get(&tenant).copied().unwrap_or_default().total(), dropped);
                add_stated(&mut of_outputs, &block);
                result
                    .duplicates
                    .iter()
                    .for_each(|(tenant, rows)| add_totals(&mut of_outputs, tenant, rows.total()));
            }
        }
    }
    assert_eq!(of_inputs, of_outputs);
}

fn order() -> impl Strategy<Value = RowOrder> {
    prop::sample::select(vec![RowOrder::Series, RowOrder::Hour])
}

/// Writes the rows of a block in an order.
fn in_order(block: Block, order: RowOrder) -> Block {
    let output = MergeOutput { id: "ordered".to_owned(), order, ..MergeOutput::default() };
    let (result, folder) = merge_rows(&output, &sources(std::slice::from_ref(&block)));
    assert_eq!((result.meta.order, result.meta.format), (order, if order == RowOrder::Hour { 3 } else { 2 }));
    open(&folder)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn inputs_are_outputs_plus_duplicates(
        inputs in prop::collection::vec((prop::collection::vec(record(12), 0..12), order()), 1..6),
        width in prop_oneof![1i64..25, Just(i64::MAX)],
        pieces in 1usize..5,
        order in order(),
    ) {
        let blocks: Vec<Block> =
            inputs.iter().map(|(records, order)| in_order(block_of(records), *order)).collect();
        check_windows(&blocks, width, pieces, order);
    }

    #[test]
    fn equal_rows_make_equal_bytes(
        records in prop::collection::vec(prop::collection::vec(record(12), 1..12), 1..4),
        rows_between in -20i64..20,
        order in order(),
    ) {
        let rows = RowSelection { after: i64::MIN, until: rows_between, series: None };
        let output = MergeOutput { order, ..output_of("acme", rows.clone()) };
        // Rows that are not selected change the numbers within an input. Their optional columns would stay.
        let is_selected = |record: &Record| record.tenant == "acme" && rows.has_time(record.time);
        let without_options = |record: &Record| {
            let mut plain = record.clone();
            plain.samples.iter_mut().for_each(|sample| *sample = Sample { span: 0, timestamp: None, ..*sample });
            if is_selected(record) { record.clone() } else { plain }
        };
        // In one input the least copy by series is kept, whatever is selected of it.
        let unique = |records: &Vec<Record>| {
            let mut ids = BTreeSet::new();
            let first = |record: &&Record| ids.insert((record.tenant, record.id));
            records.iter().filter(first).map(without_options).collect::<Vec<_>>()
        };
        let mixed: Vec<Vec<Record>> = records.iter().map(unique).collect();
        let selected = |records: &Vec<Record>| records.iter().filter(|record| is_selected(record)).rev().cloned().collect();
        let pure: Vec<Vec<Record>> = mixed.iter().map(selected).collect();
        let merged = |inputs: &[Vec<Record>]| {
            let blocks: Vec<Block> = inputs.iter().map(|records| block_of(records)).collect();
            merge_rows(&output, &sources(&blocks)).1
        };
        let left = merged(&mixed);
        let right = merged(&pure);
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let bytes = |folder: &MemoryFolder| folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
            prop_assert_eq!(bytes(&left), bytes(&right), "{}", file);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn rounds_keep_the_order_of_sources(
        records in prop::collection::vec(prop::collection::vec(record(40), 1..4), MERGE_FAN_IN + 1..MERGE_FAN_IN + 9),
        order in order(),
    ) {
        let blocks: Vec<Block> = records.iter().map(|records| block_of(records)).collect();
        check_windows(&blocks, 40, 2, order);
    }
}

fn plain_record(series: u32, time: i64, id: u128, value: i64) -> Record {
    let samples = vec![Sample { stack: 1, span: 0, value, timestamp: None }];
    Record { tenant: "acme", series, time, id, samples }
}

#[test]
fn copy_of_first_source_is_kept_whatever_its_series() {
    let later = block_of(&[plain_record(0, 5, 7, 1), plain_record(0, 6, 8, 2)]);
    let earlier = block_of(&[plain_record(3, 5, 7, 4)]);
    let kept_in_series_3 = |blocks: &[Block]| {
        let (result, folder) = merge_rows(&output_of("acme", RowSelection::default()), &sources(blocks));
        assert_eq!(result.duplicates["acme"].uncovered.profiles, 1);
        let stored = records_of(&open(&folder));
        assert_eq!(stored.iter().map(|record| record.id).collect::<BTreeSet<_>>(), [7, 8].into());
        stored.iter().any(|record| record.series == series(3))
    };
    assert!(kept_in_series_3(&[earlier.clone(), later.clone()]));
    assert!(!kept_in_series_3(&[later, earlier]));
}

#[test]
fn tenants_outside_the_selection_do_not_take_part() {
    let record = |tenant, id| Record { tenant, ..plain_record(0, 5, id, 1) };
    let blocks = [block_of(&[record("acme", 1), record("globex", 2)]), block_of(&[record("acme", 3)])];
    let mut sources = sources(&blocks);
    sources[0].tenants = Some(BTreeSet::from(["globex".to_owned()]));
    let newest_arrival = BTreeMap::from([("globex".to_owned(), 9)]);
    let output = MergeOutput { id: "merged".to_owned(), newest_arrival, ..MergeOutput::default() };
    let (result, folder) = merge_rows(&output, &sources);
    let ids: Vec<u128> = records_of(&open(&folder)).iter().map(|record| record.id).collect();
    assert_eq!(ids, [3, 2]);
    let arrivals: Vec<u64> = result.meta.tenants.iter().map(|part| part.newest_arrival).collect();
    assert_eq!(arrivals, [0, 9]);
}

/// Samples over several row groups, of which whole ones are skipped.
#[test]
fn skipped_rows_over_row_groups_do_not_shift_later_ones() {
    const SAMPLES_PER_PROFILE: u64 = 220_000;
    let record = |time: i64| {
        let sample = |span: u64| Sample {
            stack: (span % 3) as u32,
            span: span + 1,
            value: time * 1_000_000 + span as i64,
            timestamp: span.is_multiple_of(90_000).then_some(span as i64),
        };
        Record {
            samples: (0..SAMPLES_PER_PROFILE).map(sample).collect(),
            ..plain_record(0, time, time as u128, 0)
        }
    };
    let block = block_of(&[1, 2, 3, 4, 5, 6].map(record));
    let sources = sources(std::slice::from_ref(&block));
    let expected = records_of(&block);
    for end in [1, 4, 6] {
        let rows = RowSelection::from_window_end(end, 1);
        let (_, folder) = merge_rows(&output_of("acme", rows), &sources);
        assert!(records_of(&open(&folder)) == expected[end as usize - 1..end as usize], "window {end}");
    }
}
