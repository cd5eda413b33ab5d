//! Order of jobs, and shares of tenants.

use super::{BlockSimulator, START_TIME, minutes, row};
use crate::compaction::CompactionJob;

const BYTES_PER_GIB: u64 = 1 << 30;

fn first_tenants(jobs: &[CompactionJob]) -> Vec<String> {
    jobs.iter().map(|job| job.inputs[0].tenants[0].tenant.to_string()).collect()
}

/// Simulation in which one tenant has six jobs and, if asked for, another tenant has one later.
fn with_busy_tenant(has_other: bool) -> BlockSimulator {
    let mut simulator = BlockSimulator::new(START_TIME);
    for window in 0..6 {
        let time = START_TIME.plus(minutes(10 * window + 5));
        simulator.advance(minutes(10));
        simulator.flush(1, &[row("busy", time, BYTES_PER_GIB)]);
    }
    if has_other {
        simulator.flush(2, &[row("other", START_TIME.plus(minutes(55)), BYTES_PER_GIB)]);
    }
    simulator.advance(minutes(12));
    simulator
}

#[test]
fn tenant_holds_half_of_the_workers_while_another_waits() {
    let mut simulator = with_busy_tenant(true);
    for _ in 0..2 {
        let jobs = simulator.plan(100);
        assert_eq!(first_tenants(&jobs)[0], "busy");
        simulator.claim(&jobs[0]);
    }
    let jobs = simulator.plan(100);
    assert_eq!(first_tenants(&jobs), ["other"]);
    simulator.claim(&jobs[0]);
    assert_eq!(first_tenants(&simulator.plan(100)), ["busy"; 4]);
}

#[test]
fn jobs_of_one_response_exceed_no_share() {
    let simulator = with_busy_tenant(true);
    assert_eq!(first_tenants(&simulator.plan(100)), ["busy", "busy", "other"]);
}

#[test]
fn tenant_holds_all_workers_if_no_other_waits() {
    let mut simulator = with_busy_tenant(false);
    for _ in 0..4 {
        let job = simulator.plan(1).remove(0);
        simulator.claim(&job);
    }
    assert_eq!(simulator.plan(100).len(), 2);
}

#[test]
fn expired_lease_frees_its_share_and_its_parts() {
    let mut simulator = with_busy_tenant(true);
    let jobs = simulator.plan(2);
    for job in &jobs {
        simulator.claim(job);
    }
    simulator.advance(minutes(1));
    assert_eq!(simulator.plan(2), jobs);
}

#[test]
fn small_job_precedes_large_job_of_the_same_time() {
    let mut simulator = BlockSimulator::new(START_TIME);
    simulator.advance(minutes(5));
    simulator.flush(1, &[row("a-large", START_TIME, 8 * BYTES_PER_GIB)]);
    simulator.flush(2, &[row("b-small", START_TIME, 1000)]);
    simulator.advance(minutes(12));
    assert_eq!(first_tenants(&simulator.plan(100)), ["b-small", "a-large"]);
}

#[test]
fn large_job_precedes_small_jobs_after_waiting() {
    let mut simulator = BlockSimulator::new(START_TIME);
    simulator.advance(minutes(5));
    simulator.flush(1, &[row("large", START_TIME.plus(minutes(1)), 15 * BYTES_PER_GIB)]);
    simulator.advance(minutes(12));
    simulator.flush(2, &[row("small", START_TIME.plus(minutes(15)), 1000)]);
    simulator.advance(minutes(10));
    simulator.flush(2, &[row("new", START_TIME.plus(minutes(25)), 1000)]);
    simulator.advance(minutes(15));
    assert_eq!(first_tenants(&simulator.plan(100)), ["small", "large", "new"]);
}

#[test]
fn response_has_at_most_the_requested_jobs() {
    let mut simulator = with_busy_tenant(false);
    assert_eq!(simulator.plan(0), []);
    assert_eq!(simulator.plan(4).len(), 4);
    assert_eq!(simulator.status().waiting_jobs, 6);
    assert_eq!(simulator.status().waiting_bytes, 6 * BYTES_PER_GIB);
    simulator.input.is_paused = true;
    assert_eq!(simulator.plan(4), []);
}
