//! Plans of rows that arrive after their window was merged.

use std::time::Duration;

use super::{BlockSimulator, START_TIME, minutes, row};

const DAY_MINUTES: u64 = 24 * 60;

/// Simulation with a final block of the first day.
fn with_merged_day(bytes: u64) -> BlockSimulator {
    let mut simulator = BlockSimulator::new(START_TIME);
    for _ in 0..144 {
        simulator.advance(minutes(10));
        let time = simulator.input.now.minus(Duration::from_secs(60));
        simulator.flush(1, &[row("a", time, bytes / 144)]);
    }
    simulator.advance(minutes(13));
    simulator.run_until_idle();
    simulator.advance(minutes(47));
    simulator.run_until_idle();
    assert_eq!((simulator.rows_at(3).len(), simulator.raw_blocks().count()), (144, 1));
    simulator
}

#[test]
fn one_late_row_a_minute_does_not_rewrite_its_day() {
    let mut simulator = with_merged_day(144 << 20);
    for minute in 0..DAY_MINUTES {
        simulator.advance(minutes(1));
        simulator.flush(1, &[row("a", START_TIME.plus(minutes(minute)), 100)]);
        simulator.run_until_idle();
    }
    assert!(simulator.finished_jobs[&3] <= 1 + DAY_MINUTES / 8, "{:?}", simulator.finished_jobs);
    let passes = simulator.rows_at(3).into_iter().filter(|row| row.bytes > 100).map(|row| row.passes);
    assert_eq!(passes.max(), Some(2));
    assert!(simulator.rows_at(0).len() < 8);
    simulator.advance(minutes(2 * DAY_MINUTES));
    simulator.run_until_idle();
    assert_eq!(simulator.rows_at(3).len() as u64, 144 + DAY_MINUTES);
}

#[test]
fn late_rows_among_current_ones_do_not_rewrite_their_day() {
    let mut simulator = with_merged_day(144 << 20);
    for minute in 0..DAY_MINUTES {
        let time = simulator.input.now.plus(Duration::from_secs(30));
        simulator.advance(minutes(1));
        simulator.flush(1, &[row("a", START_TIME.plus(minutes(minute)), 100), row("a", time, 1000)]);
        simulator.run_until_idle();
    }
    let passes = simulator.rows_at(3).into_iter().filter(|row| row.bytes > 1000).map(|row| row.passes);
    assert_eq!(passes.max(), Some(2));
    assert!(simulator.finished_jobs[&3] <= 1 + DAY_MINUTES / 8, "{:?}", simulator.finished_jobs);
}

#[test]
fn late_rows_wait_for_a_tenth_of_their_window() {
    let mut simulator = with_merged_day(14_400);
    simulator.advance(minutes(10));
    simulator.flush(1, &[row("a", START_TIME.plus(minutes(5)), 1439)]);
    assert_eq!(simulator.run_until_idle(), 0);
    simulator.flush(1, &[row("a", START_TIME.plus(minutes(5)), 1)]);
    assert_eq!(simulator.run_until_idle(), 1);
}

#[test]
fn late_rows_wait_for_eight_parts_or_a_day() {
    let mut simulator = with_merged_day(144 << 20);
    for _ in 0..7 {
        simulator.advance(minutes(1));
        simulator.flush(1, &[row("a", START_TIME.plus(minutes(5)), 10)]);
    }
    assert_eq!(simulator.run_until_idle(), 0);
    simulator.flush(1, &[row("a", START_TIME.plus(minutes(5)), 10)]);
    assert_eq!(simulator.run_until_idle(), 1);
    simulator.flush(1, &[row("a", START_TIME.plus(minutes(5)), 10)]);
    simulator.advance(minutes(DAY_MINUTES).saturating_sub(Duration::from_nanos(1)));
    assert_eq!(simulator.run_until_idle(), 0);
    simulator.advance(Duration::from_nanos(1));
    assert_eq!(simulator.run_until_idle(), 1);
}

#[test]
fn late_rows_within_an_open_day_wait_at_level_1() {
    let mut simulator = BlockSimulator::new(START_TIME);
    simulator.advance(minutes(10));
    simulator.flush(1, &[row("a", START_TIME.plus(minutes(5)), 10_000)]);
    simulator.advance(minutes(2));
    assert_eq!(simulator.run_until_idle(), 1);
    simulator.flush(1, &[row("a", START_TIME.plus(minutes(5)), 10)]);
    simulator.advance(minutes(20));
    assert_eq!(simulator.run_until_idle(), 0);
    simulator.advance(minutes(DAY_MINUTES + 30));
    assert_eq!(simulator.run_until_idle(), 2);
    assert_eq!(simulator.rows_at(3).len(), 2);
}

#[test]
fn rows_that_expire_days_apart_do_not_merge() {
    let mut simulator = with_merged_day(1440);
    for _ in 0..3 {
        simulator.advance(minutes(2 * DAY_MINUTES));
        simulator.flush(1, &[row("a", START_TIME.plus(minutes(5)), 1000)]);
        simulator.run_until_idle();
    }
    simulator.advance(minutes(3 * DAY_MINUTES));
    simulator.run_until_idle();
    assert_eq!((simulator.raw_blocks().count(), simulator.rows_at(3).len()), (4, 147));
}

#[test]
fn rows_of_distant_times_are_merged_in_bounded_steps() {
    let mut simulator = BlockSimulator::new(START_TIME);
    let year_nanos = 365 * 86_400 * 1_000_000_000_i64;
    for _ in 0..100 {
        simulator.advance(minutes(1));
        let times = [i64::MIN, 0, 130 * year_nanos, i64::MAX].map(athanor_chassis::Timestamp::from_nanos);
        let rows: Vec<_> = times.iter().map(|time| row("a", *time, 10)).collect();
        simulator.flush(1, &rows);
    }
    for _ in 0..5 {
        simulator.run_until_idle();
        simulator.advance(minutes(DAY_MINUTES));
    }
    simulator.run_until_idle();
    assert_eq!((simulator.rows_at(3).len(), simulator.raw_blocks().count()), (400, 4));
}
