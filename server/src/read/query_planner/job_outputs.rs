//! Plans over merged blocks: outputs of one job report no ids to each other.

use std::collections::BTreeSet;

use athanor_catalog::{BlockId, TenantSpan};
use athanor_query::{ExcludedIds, ProfileSelection, QueryKind, StackFilter};

use super::*;

pub(super) const HOUR_NANOS: i64 = 3_600_000_000_000;
const JOB: u64 = 40;

/// Entry of a merged block with profiles of some hours.
pub(super) fn merged_block(number: u128, job: u64, hours: std::ops::Range<i64>) -> BlockEntry {
    let span = TenantSpan {
        tenant: TenantId::anonymous(),
        min_time: hours.start * HOUR_NANOS,
        max_time: hours.end * HOUR_NANOS - 1,
        profiles: 10,
        samples: 20,
        sum: Some(30),
        newest_arrival: Timestamp::from_nanos(hours.end * HOUR_NANOS),
    };
    BlockEntry {
        id: BlockId::from_number(number),
        shard: 1,
        epoch: 1,
        from: 0,
        to: 100,
        bytes: 1_000,
        samples: 20,
        lost: 0,
        level: 2,
        additional_ranges: Vec::new(),
        tier: Tier::Raw,
        is_covered: false,
        job: Some(job),
        tenants: vec![span],
    }
}

/// Entry of a flushed block with profiles of some hours.
pub(super) fn flushed_block(number: u128, hours: std::ops::Range<i64>) -> BlockEntry {
    BlockEntry { level: 0, job: None, ..merged_block(number, 0, hours) }
}

/// Reports of a plan that reads these blocks, and no heads.
fn dedup_report(blocks: Vec<BlockEntry>, hints: &DedupHints) -> DedupReport {
    let locations = DataLocations {
        views: Vec::new(),
        far: Vec::new(),
        blocks,
        removed: None,
        expired_until: BTreeMap::new(),
        warnings: Vec::new(),
        moved: Vec::new(),
    };
    let selection = ProfileSelection { time: TimeRange::default(), ..ProfileSelection::default() };
    let what = QueryKind::Tree(StackFilter::default());
    let query = ProfileQuery { selection, what, ..ProfileQuery::default() };
    let tenant = TenantId::anonymous();
    let tiers = locations.plan_tiers(&tenant, &query, hints);
    locations.telling(&tenant, &query, hints, &tiers)
}

fn reporting_blocks(report: &DedupReport) -> Vec<u128> {
    report.wanted.iter().filter(|target| target.tells.is_some()).map(|target| target.block.number()).collect()
}

#[test]
fn outputs_of_one_job_report_no_ids() {
    let outputs = (1..=5).map(|number| merged_block(number, JOB, 0..2)).collect();
    let report = dedup_report(outputs, &DedupHints::default());
    assert!(reporting_blocks(&report).is_empty());
    assert_eq!(report.untold, Some(2 * HOUR_NANOS - 1));
    assert!(report.wanted.iter().all(|target| target.in_tenant_folder && target.whole));
}

#[test]
fn blocks_of_different_jobs_report_ids_of_shared_times() {
    let mut blocks: Vec<BlockEntry> = (1..=2).map(|number| merged_block(number, JOB, 0..2)).collect();
    blocks.push(merged_block(3, JOB, 2..4));
    blocks.push(merged_block(4, JOB + 1, 1..2));
    let report = dedup_report(blocks, &DedupHints::default());
    assert_eq!(reporting_blocks(&report), [1, 2, 4], "block 3 has profiles of other times");
    let second_hour = Some(TimeRange { from: HOUR_NANOS, to: 2 * HOUR_NANOS });
    assert_eq!(report.wanted[0].tells, second_hour);
    assert_eq!(report.wanted[3].tells, Some(TimeRange::default()));
}

#[test]
fn flushed_block_and_job_outputs_report_ids() {
    let mut blocks: Vec<BlockEntry> = (1..=2).map(|number| merged_block(number, JOB, 0..1)).collect();
    blocks.push(flushed_block(3, 0..1));
    let report = dedup_report(blocks, &DedupHints::default());
    assert_eq!(reporting_blocks(&report), [1, 2, 3]);
    let folders: Vec<bool> = report.wanted.iter().map(|target| target.in_tenant_folder).collect();
    assert_eq!(folders, [true, true, false]);
    // Flushed blocks share times with each other.
    let report = dedup_report(vec![flushed_block(3, 0..1), flushed_block(4, 0..1)], &DedupHints::default());
    assert_eq!(reporting_blocks(&report), [3, 4]);
}

#[test]
fn job_output_with_exclusions_reports_all_ids() {
    let mut hints = DedupHints::default();
    let excluded = ExcludedIds::new(BTreeSet::from([7]));
    hints.doubles = Arc::new([(SourceId::Block(2), excluded)].into_iter().collect());
    let outputs = (1..=3).map(|number| merged_block(number, JOB, 0..1)).collect();
    let report = dedup_report(outputs, &hints);
    assert_eq!(reporting_blocks(&report), [2]);
    assert_eq!(report.wanted[1].tells, Some(TimeRange::default()));
}
