//! Plans over raw blocks and downsampled tiers.

use athanor_query::{HeatmapQuery, ProfileSelection, QueryKind, StackFilter, TimeGrid, TimeSeriesQuery};

use super::job_outputs::{HOUR_NANOS, flushed_block, merged_block};
use super::*;

const DAY_NANOS: i64 = 24 * HOUR_NANOS;

/// Covered raw block of some hours, each with its end.
fn covered_block(number: u128, hours: std::ops::Range<i64>) -> BlockEntry {
    let mut block = BlockEntry { is_covered: true, ..merged_block(number, 40, hours) };
    for span in &mut block.tenants {
        span.min_time += 1;
        span.max_time += 1;
    }
    block
}

/// Block of a downsampled tier with the rows of some hours. The end of a bucket is its time.
fn tier_block(number: u128, tier: Tier, hours: std::ops::Range<i64>) -> BlockEntry {
    let mut block = BlockEntry { tier, ..merged_block(number, 40, hours) };
    for span in &mut block.tenants {
        span.min_time = tier.bucket_end(span.min_time + 1);
        span.max_time = tier.bucket_end(span.max_time);
    }
    block
}

/// Two days of covered raw blocks and their tiers. Block ids begin with 10 for raw, 20, 30 and 40 for the tiers.
fn two_days() -> Vec<BlockEntry> {
    let mut blocks = Vec::new();
    for day in 0..2u8 {
        let hours = i64::from(day) * 24..i64::from(day) * 24 + 24;
        blocks.push(covered_block(10 + u128::from(day), hours.clone()));
        for tier in Tier::DOWNSAMPLED {
            let number = 10 + 10 * u128::from(tier.number()) + u128::from(day);
            blocks.push(tier_block(number, tier, hours.clone()));
        }
    }
    blocks
}

fn locations(blocks: Vec<BlockEntry>) -> DataLocations {
    DataLocations {
        views: Vec::new(),
        far: Vec::new(),
        blocks,
        removed: None,
        expired_until: BTreeMap::new(),
        warnings: Vec::new(),
        moved: Vec::new(),
    }
}

fn query(range: TimeRange, what: QueryKind) -> ProfileQuery {
    let selection = ProfileSelection { time: range, ..ProfileSelection::default() };
    ProfileQuery { selection, what, ..ProfileQuery::default() }
}

fn tree() -> QueryKind {
    QueryKind::Tree(StackFilter::default())
}

/// Rows after one time and until another.
fn rows(after: i64, until: i64) -> TimeRange {
    TimeRange { from: after + 1, to: until + 1 }
}

fn planned(locations: &DataLocations, query: &ProfileQuery) -> (TierPlan, DedupReport) {
    let tenant = TenantId::anonymous();
    let hints = DedupHints::default();
    let tiers = locations.plan_tiers(&tenant, query, &hints);
    let report = locations.telling(&tenant, query, &hints, &tiers);
    (tiers, report)
}

fn read_blocks(report: &DedupReport) -> Vec<u128> {
    report.wanted.iter().map(|target| target.block.number()).collect()
}

#[test]
fn whole_days_are_read_from_coarsest_tier() {
    let locations = locations(two_days());
    let (tiers, report) = planned(&locations, &query(rows(0, 2 * DAY_NANOS), tree()));
    assert_eq!(read_blocks(&report), [40, 41]);
    assert!(
        report.wanted.iter().all(|target| target.whole && target.ranges.is_empty() && target.tells.is_none())
    );
    assert_eq!(report.block_bytes, 2 * 1_000, "other blocks are not read");
    assert_eq!(tiers.resolution.to_string(), "1d 1970-01-01T00:00:00Z/1970-01-03T00:00:00Z");
}

#[test]
fn edges_are_read_from_finer_blocks_in_their_ranges() {
    let locations = locations(two_days());
    let after = 30 * HOUR_NANOS / 60;
    let (_, report) = planned(&locations, &query(rows(after, DAY_NANOS + 90), tree()));
    // The first day from its first half hour on, and the first nanoseconds of the second day.
    assert_eq!(read_blocks(&report), [20, 30, 11]);
    let ranges: Vec<&[TimeRange]> = report.wanted.iter().map(|target| &target.ranges[..]).collect();
    let expected = [rows(after, HOUR_NANOS), rows(HOUR_NANOS, DAY_NANOS), rows(DAY_NANOS, DAY_NANOS + 90)];
    assert_eq!(ranges, expected.each_ref().map(std::slice::from_ref));
    assert!(report.wanted.iter().all(|target| !target.whole && target.tells.is_none()));
}

#[test]
fn uncovered_blocks_are_read_in_addition_and_compared_with_covered_raw_ones() {
    let mut blocks = two_days();
    blocks.push(flushed_block(1, 47..48));
    blocks.push(flushed_block(2, 49..50));
    let locations = locations(blocks);
    let (tiers, report) = planned(&locations, &query(rows(-1, 50 * HOUR_NANOS), tree()));
    assert_eq!(read_blocks(&report), [40, 11, 21, 31, 1, 2]);
    let of = |number: u128| report.wanted.iter().find(|target| target.block.number() == number).unwrap();
    assert_eq!(of(31).ranges, [rows(DAY_NANOS, 46 * HOUR_NANOS)]);
    assert!(of(31).tells.is_none() && of(40).tells.is_none());
    let bucket_nanos = Tier::FiveMinutes.bucket_nanos();
    assert_eq!(of(21).ranges, [rows(46 * HOUR_NANOS, 47 * HOUR_NANOS - bucket_nanos)]);
    assert_eq!(of(11).ranges, [rows(47 * HOUR_NANOS - bucket_nanos, 50 * HOUR_NANOS)]);
    assert!(of(11).tells.is_some() && of(1).tells.is_some(), "both may hold the same profiles");
    assert!(of(1).whole && of(2).whole && of(2).tells.is_none());
    assert!(tiers.unreported_until < Some(47 * HOUR_NANOS));
}

#[test]
fn points_are_read_from_tier_that_fits_their_grid() {
    let locations = locations(two_days());
    let tiers = |start: i64, step: i64| {
        let steps = TimeGrid { start, step, count: (2 * DAY_NANOS / step) as u64 };
        let what = QueryKind::Points(TimeSeriesQuery { steps, ..TimeSeriesQuery::default() });
        read_blocks(&planned(&locations, &query(rows(0, 2 * DAY_NANOS), what)).1)
    };
    assert_eq!(tiers(DAY_NANOS, DAY_NANOS), [40, 41]);
    assert_eq!(tiers(HOUR_NANOS, HOUR_NANOS), [30, 31]);
    assert_eq!(tiers(HOUR_NANOS / 4, HOUR_NANOS / 4), [20, 21]);
    assert_eq!(tiers(HOUR_NANOS / 60, HOUR_NANOS / 60), [10, 11]);
}

#[test]
fn single_profiles_come_from_raw_blocks_and_missing_ones_are_stated() {
    let mut locations = locations(two_days());
    let heat = query(rows(0, 2 * DAY_NANOS), QueryKind::Heat(HeatmapQuery::default()));
    let (tiers, report) = planned(&locations, &heat);
    assert_eq!((read_blocks(&report), tiers.single_profiles_since), (vec![10, 11], None));
    locations.blocks.retain(|block| block.id.number() != 10);
    locations.expired_until.insert(Tier::Raw, DAY_NANOS - 1);
    let (tiers, report) = planned(&locations, &heat);
    assert_eq!(read_blocks(&report), [11]);
    assert_eq!(
        tiers.single_profiles_since.map(downsampled_before).unwrap(),
        "single profiles exist since 1970-01-02T00:00:00.000Z; older data is downsampled"
    );
    // Other queries read tiers instead, at any range.
    let (tiers, report) = planned(&locations, &query(rows(90, DAY_NANOS - HOUR_NANOS), tree()));
    assert_eq!(read_blocks(&report), [20, 30]);
    assert_eq!(tiers.single_profiles_since, None);
}

#[test]
fn provenance_depends_on_blocks_and_on_expired_tiers() {
    let mut locations = locations(two_days());
    let before = locations.made_of(TimeRange::default()).unwrap();
    locations.blocks.reverse();
    assert_eq!(locations.made_of(TimeRange::default()), Some(before));
    locations.expired_until.insert(Tier::Raw, 5);
    let expired = locations.made_of(TimeRange::default()).unwrap();
    assert_ne!(expired, before);
    locations.blocks.push(flushed_block(1, 0..1));
    assert_ne!(locations.made_of(TimeRange::default()), Some(expired));
}

#[test]
fn data_time_range_is_that_of_raw_blocks_and_of_expired_profiles() {
    let blocks = two_days();
    let enclosing = |blocks: &[BlockEntry], expired_until| {
        let times = block_times(blocks, &TenantId::anonymous(), expired_until);
        (times.iter().map(|times| times.0).min(), times.iter().map(|times| times.1).max())
    };
    let raw: Vec<BlockEntry> = blocks.iter().filter(|block| block.tier.is_raw()).cloned().collect();
    assert_eq!(enclosing(&blocks, None), enclosing(&raw, None), "buckets widen no range");
    let rest: Vec<BlockEntry> = blocks.iter().filter(|block| !block.tier.is_raw()).cloned().collect();
    assert_eq!(enclosing(&rest, None), (None, None));
    let expired_until = 20 * HOUR_NANOS + 7;
    assert_eq!(enclosing(&rest, Some(expired_until)), (Some(1), Some(expired_until)));
}
