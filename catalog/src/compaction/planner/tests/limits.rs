//! Limits of jobs, and parts that jobs leave out.

use std::collections::BTreeSet;
use std::sync::Arc;

use athanor_chassis::{Tier, Timestamp};

use super::{BlockSimulator, NewRow, START_TIME, minutes, row, tenant};
use crate::block::{BlockEntry, BlockId, PartId, TenantSpan};
use crate::compaction::planner::plan_jobs;
use crate::compaction::{CompactionJob, JobRequest, MAX_JOB_PARTS, PartFailures};

/// Simulation with closed blocks of three small tenants.
fn with_small_tenants(blocks: u32) -> BlockSimulator {
    let mut simulator = BlockSimulator::new(START_TIME);
    simulator.advance(minutes(5));
    for shard in 0..blocks {
        let rows: Vec<NewRow> =
            ["a", "b", "c"].map(|name| row(name, START_TIME.plus(minutes(1)), 100)).into();
        simulator.flush(shard, &rows);
    }
    simulator.advance(minutes(10));
    simulator
}

fn failures(max_parts: u32, is_quarantined: bool) -> PartFailures {
    PartFailures { count: 0, max_parts, is_quarantined, reason: String::from("failed"), at: START_TIME }
}

fn tenant_names(jobs: &[CompactionJob]) -> Vec<Vec<String>> {
    let names = |job: &CompactionJob| job.parts().tenants.keys().map(ToString::to_string).collect();
    jobs.iter().map(names).collect()
}

#[test]
fn tenant_with_quarantined_part_is_merged_alone() {
    let mut simulator = with_small_tenants(4);
    let block = simulator.input.blocks[1].id;
    let part = PartId { block, tenant: tenant("b") };
    simulator.input.failures.insert(part.clone(), failures(1, true));
    let jobs = simulator.plan(10);
    assert_eq!(
        tenant_names(&jobs).into_iter().collect::<BTreeSet<_>>(),
        [vec![String::from("a"), String::from("c")], vec![String::from("b")]].into()
    );
    assert_eq!(jobs.iter().map(|job| job.parts().len()).sum::<usize>(), 11);
    for job in &jobs {
        simulator.run(job);
    }
    assert_eq!(simulator.plan(10), []);
    simulator.input.failures.remove(&part);
    simulator.advance(minutes(24 * 60));
    assert!(simulator.run_until_idle() > 0);
    assert_eq!(simulator.rows_at(0).len(), 0);
}

#[test]
fn tenant_with_claimed_part_is_merged_alone() {
    let mut simulator = with_small_tenants(4);
    let mut job = simulator.plan(1).remove(0);
    job.inputs.truncate(1);
    job.inputs[0].tenants.retain(|span| span.tenant == tenant("a"));
    let token = simulator.claim(&job);
    let others = simulator.plan(10);
    assert_eq!(others.iter().map(|job| job.parts().len()).sum::<usize>(), 11);
    for other in &others {
        assert_eq!(tenant_names(std::slice::from_ref(other))[0].contains(&String::from("a")), {
            other.parts().tenants.len() == 1
        });
        simulator.run(other);
    }
    simulator.finish(token, &job);
    assert_eq!(simulator.rows_at(1).len(), 12);
}

#[test]
fn failing_parts_are_merged_in_smaller_jobs() {
    let mut simulator = with_small_tenants(10);
    simulator.input.workers = 100;
    for _ in 0..10 {
        for job in simulator.plan(100) {
            let token = simulator.claim(&job);
            simulator.fail(token);
        }
    }
    let jobs = simulator.plan(100);
    assert_eq!(jobs.len(), 30);
    assert!(jobs.iter().all(|job| job.parts().len() == 1));
}

#[test]
fn job_of_many_tenants_is_cut_by_tenant() {
    let mut simulator = BlockSimulator::new(START_TIME);
    simulator.advance(minutes(5));
    for shard in 0..20 {
        let rows: Vec<NewRow> =
            (0..1000).map(|number| row(&format!("t{number}"), START_TIME.plus(minutes(1)), 100)).collect();
        simulator.flush(shard, &rows);
    }
    simulator.advance(minutes(10));
    let jobs = simulator.plan(10);
    let sizes: Vec<usize> = jobs.iter().map(|job| job.parts().len()).collect();
    assert_eq!((sizes.iter().sum::<usize>(), sizes.len()), (20_000, 2));
    assert!(sizes.iter().all(|size| *size <= MAX_JOB_PARTS));
    for job in &jobs {
        simulator.run(job);
    }
    assert_eq!(simulator.rows_at(1).len(), 20_000);
}

#[test]
fn jobs_are_cut_to_the_bytes_of_the_worker() {
    let mut simulator = BlockSimulator::new(START_TIME);
    simulator.input.settings.shared_below_bytes = 0;
    simulator.advance(minutes(5));
    for bytes in [40, 40, 40, 500] {
        simulator.flush(1, &[row("a", START_TIME.plus(minutes(1)), bytes)]);
    }
    simulator.advance(minutes(10));
    let request = JobRequest { worker: 1, max_bytes: 100, limit: 10 };
    let jobs = plan_jobs(&simulator.input, &request);
    let mut bytes: Vec<u64> = jobs.iter().map(|job| job.bytes).collect();
    bytes.sort_unstable();
    assert_eq!(bytes, [40, 80, 500]);
}

#[test]
fn window_larger_than_a_job_ends_in_several_final_blocks() {
    let mut simulator = BlockSimulator::new(START_TIME);
    let settings = &mut simulator.input.settings;
    settings.hour_from_bytes = 100;
    settings.max_block_bytes = 100;
    settings.max_job_bytes = 250;
    for minute in 0..90 {
        simulator.advance(minutes(1));
        simulator.flush(1, &[row("a", START_TIME.plus(minutes(minute + 1)), 20)]);
        simulator.run_until_idle();
    }
    simulator.advance(minutes(3 * 24 * 60));
    simulator.run_until_idle();
    assert_eq!(simulator.rows_at(2).len(), 90);
    let passes = simulator.rows_at(2).iter().map(|row| row.passes).max();
    assert!(passes <= Some(4), "{passes:?}");
}

/// Entry of a merged block with one row of a tenant.
fn merged_entry(number: u64, time: Timestamp) -> BlockEntry {
    let name = format!("t{}", number % 1000);
    let span = TenantSpan {
        tenant: tenant(&name),
        min_time: time.nanos(),
        max_time: time.nanos(),
        profiles: 1,
        samples: 1,
        sum: Some(0),
        newest_arrival: time,
    };
    BlockEntry {
        id: BlockId::from_number(BlockId::earliest_at(time).number() + u128::from(number)),
        shard: 1,
        epoch: 1,
        from: number,
        to: number + 1,
        bytes: 1000,
        samples: 1,
        lost: 0,
        level: 1,
        additional_ranges: Vec::new(),
        tier: Tier::Raw,
        is_covered: false,
        job: Some(number),
        tenants: vec![span],
    }
}

#[test]
fn hundred_thousand_blocks_of_a_thousand_tenants_are_planned() {
    let mut simulator = BlockSimulator::new(START_TIME.plus(minutes(2 * 24 * 60)));
    let blocks = (0..100_000).map(|number| merged_entry(number, START_TIME.plus(minutes(number % 1440 + 1))));
    simulator.input.blocks = blocks.map(Arc::new).collect();
    let status = simulator.status();
    assert_eq!((status.waiting_jobs, status.waiting_bytes), (1000, 100_000_000));
    assert_eq!(simulator.plan(100).len(), 100);
}
