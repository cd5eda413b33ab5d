//! Merged rows equal the plain list, whatever the level, windows and pieces.

use std::collections::BTreeSet;
use std::time::Duration;

use athanor_catalog::BlockEntry;
use athanor_chassis::ByteSize;
use athanor_compactor::{CompactorConfig, JobEnd, JobKind, JobOutcome};

use crate::world::{Row, SECOND, START, World, model, row};

const MINUTE: i64 = 60 * SECOND;
/// End of a window of ten minutes, of an hour and of a day.
const NOON: i64 = START / 86_400 * 86_400 * SECOND;

fn windows(blocks: &[BlockEntry]) -> Vec<(i64, i64)> {
    let span = |block: &BlockEntry| {
        let min = block.tenants.iter().map(|span| span.min_time).min().unwrap();
        (min, block.max_time())
    };
    let mut windows: Vec<(i64, i64)> = blocks.iter().map(span).collect();
    windows.sort_unstable();
    windows
}

/// Rows of several tenants and services, with copies that were pushed again, some under other label rules.
fn flushes() -> Vec<Vec<Row>> {
    let mut flushes = Vec::new();
    for flush in 0..4_u64 {
        let mut rows = Vec::new();
        for number in 0..30_u64 {
            let tenant = ["acme", "beta", "corp"][(number % 3) as usize];
            let service = format!("shop{}", number % 7);
            let id = flush * 20 + number;
            rows.push(row(tenant, &service, NOON + (id as i64 % 25) * MINUTE, id));
        }
        let renamed = rows.iter().filter(|row| row.id % 10 == 1).cloned();
        let renamed: Vec<Row> = renamed.map(|row| Row { service: "renamed".to_owned(), ..row }).collect();
        if flush % 2 == 1 {
            rows.retain(|row| row.id % 10 != 1);
            rows.extend(renamed);
        }
        flushes.push(rows);
    }
    flushes
}

#[tokio::test]
async fn merged_rows_equal_the_plain_list_at_each_level() {
    for (level, splits) in [(1, 1), (2, 1), (2, 3), (3, 1), (3, 5)] {
        let world = World::new().await;
        world.plan(level, splits);
        let flushes = flushes();
        for rows in &flushes {
            world.flush(rows).await;
        }
        let all: Vec<&[Row]> = flushes.iter().map(Vec::as_slice).collect();
        let outcomes = world.compact().await;
        assert!(outcomes.iter().all(|outcome| *outcome == JobOutcome::Finished), "{outcomes:?}");
        assert_eq!(world.rows().await, model(&all), "level {level}, {splits} pieces");
        for block in world.listed().await {
            assert_eq!(block.level, level);
            let keys = world.keys(block.id).await;
            let folder = block.folder_tenant().map_or("_shared".to_owned(), ToString::to_string);
            assert!(keys.iter().all(|key| key.starts_with(&format!("blocks/{folder}/"))), "{keys:?}");
            assert_eq!(keys.len(), 10);
        }
    }
}

#[tokio::test]
async fn rows_pass_several_levels_unchanged() {
    let world = World::new().await;
    let flushes = flushes();
    let all: Vec<&[Row]> = flushes.iter().map(Vec::as_slice).collect();
    for rows in &flushes {
        world.flush(rows).await;
    }
    for level in 1..=3 {
        world.plan(level, 1);
        world.compact().await;
        assert_eq!(world.rows().await, model(&all), "level {level}");
    }
    assert_eq!(world.listed().await.len(), 6, "two days of three tenants");
}

#[tokio::test]
async fn jobs_of_the_planner_end_in_one_block_per_tenant_and_day() {
    let world = World::new().await;
    world.plan_by_catalog();
    let flushes = flushes();
    let all: Vec<&[Row]> = flushes.iter().map(Vec::as_slice).collect();
    for rows in &flushes {
        world.flush(rows).await;
    }
    for hours in [1, 1, 24, 24, 24] {
        world.hand.advance(Duration::from_secs(hours * 3600));
        let outcomes = world.compact().await;
        assert!(outcomes.iter().all(|outcome| *outcome == JobOutcome::Finished), "{outcomes:?}");
        assert_eq!(world.rows().await, model(&all));
    }
    let listed = world.listed().await;
    assert!(listed.iter().all(|block| block.level == 3), "{listed:?}");
    let parts: BTreeSet<(String, i64)> = listed
        .iter()
        .map(|block| {
            let span = &block.tenants[0];
            (span.tenant.to_string(), (span.max_time - 1).div_euclid(24 * 60 * MINUTE))
        })
        .collect();
    assert_eq!(parts.len(), listed.len(), "{listed:?}");
}

#[tokio::test]
async fn profile_at_a_window_end_is_in_that_window_alone() {
    let world = World::new().await;
    let times = [NOON - 10 * MINUTE, NOON - 10 * MINUTE + 1, NOON, NOON + 1, NOON + 10 * MINUTE];
    let rows: Vec<Row> = times.iter().zip(0..).map(|(time, id)| row("acme", "shop", *time, id)).collect();
    world.flush(&rows).await;
    world.compact().await;
    assert_eq!(
        windows(&world.listed().await),
        [(times[0], times[0]), (times[1], times[2]), (times[3], times[4])]
    );
    assert_eq!(world.rows().await, model(&[&rows]));
}

#[tokio::test]
async fn copy_that_arrived_first_is_kept_across_series_and_pieces() {
    for splits in [1, 2, 7] {
        let world = World::new().await;
        world.plan(2, splits);
        let first: Vec<Row> = (0..8).map(|id| row("acme", &format!("a{id}"), NOON + id as i64, id)).collect();
        let second = first.iter().map(|row| Row { service: format!("z{}", row.id), ..row.clone() });
        let second: Vec<Row> = second.chain([row("acme", "other", NOON, 99)]).collect();
        world.flush(&first).await;
        world.flush(&second).await;
        let compactor = world.compactor(CompactorConfig::default());
        assert_eq!(compactor.run_once().await.unwrap(), JobOutcome::Finished);
        assert_eq!(world.rows().await, model(&[&first, &second]), "{splits} pieces");
        let stats = compactor.stats();
        assert_eq!(stats.duplicates, 8);
        let finished = JobKind { level: 2, end: JobEnd::Finished };
        assert_eq!((stats.jobs[&finished], stats.running_jobs), (1, 0));
        assert!(stats.read_bytes > 0 && stats.written_bytes > 0, "{stats:?}");
    }
}

#[tokio::test]
async fn profiles_of_any_year_are_merged_in_one_job() {
    for level in 1..=3 {
        let world = World::new().await;
        world.plan(level, 1);
        let year = 365 * 86_400 * SECOND;
        let far = [0, 1, -1, i64::MIN, i64::MIN + 1, i64::MAX, 130 * year, NOON];
        let spread = (0..150).map(|number| number * year / 2 - 10 * year);
        let times: Vec<i64> = far.into_iter().chain(spread).collect();
        let rows: Vec<Row> = times.iter().zip(0..).map(|(time, id)| row("acme", "shop", *time, id)).collect();
        world.flush(&rows[..80]).await;
        world.flush(&rows[80..]).await;
        assert_eq!(world.compact().await, [JobOutcome::Finished]);
        assert_eq!(world.rows().await, model(&[&rows]));
        assert!(world.listed().await.len() <= 64);
    }
}

#[tokio::test]
async fn sums_beyond_64_bits_are_conserved() {
    let world = World::new().await;
    let extreme =
        |id| Row { values: vec![i64::MAX, i64::MAX, i64::MIN + 5], ..row("acme", "shop", NOON, id) };
    let rows: Vec<Row> = (0..5).map(extreme).collect();
    world.flush(&rows).await;
    world.flush(&rows[2..]).await;
    assert_eq!(world.compact().await, [JobOutcome::Finished]);
    assert_eq!(world.rows().await, model(&[&rows]));
}

#[tokio::test]
async fn block_of_ten_thousand_tenants_is_merged() {
    let world = World::new().await;
    let rows: Vec<Row> =
        (0..10_000).map(|id| row(&format!("t{id:05}"), "shop", NOON + 1 + id as i64, id)).collect();
    world.flush(&rows).await;
    // Each tenant has row groups of its own, so the footers alone need more than the default.
    let max_merge_memory_bytes = ByteSize::mib(512);
    let config = CompactorConfig { max_merge_memory_bytes, ..CompactorConfig::default() };
    let outcome = world.compactor(config).run_once().await.unwrap();
    assert_eq!(outcome, JobOutcome::Finished);
    let listed = world.listed().await;
    assert_eq!((listed.len(), listed[0].tenants.len()), (1, 10_000));
    assert_eq!(listed[0].level, 1);
}

#[tokio::test]
async fn merge_beyond_the_memory_limit_fails_with_estimate_and_limit() {
    let world = World::new().await;
    world.flush(&[row("acme", "shop", NOON, 1)]).await;
    let config = CompactorConfig { max_merge_memory_bytes: ByteSize::kib(1), ..CompactorConfig::default() };
    let outcome = world.compactor(config).run_once().await.unwrap();
    let JobOutcome::Failed { reason, culprit: None } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("compactor.max_merge_memory_bytes is 1KiB"), "{reason}");
}

#[tokio::test]
async fn job_beyond_the_scratch_space_fails_with_estimate_and_limit() {
    let world = World::new().await;
    world.flush(&[row("acme", "shop", NOON, 1)]).await;
    let config = CompactorConfig { max_scratch_bytes: ByteSize::kib(1), ..CompactorConfig::default() };
    let outcome = world.compactor(config).run_once().await.unwrap();
    let JobOutcome::Failed { reason, culprit: None } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("compactor.max_scratch_bytes is 1KiB"), "{reason}");
}

#[tokio::test]
async fn job_beyond_the_memory_limit_is_split_by_series() {
    let world = World::new().await;
    let services = ["bank", "cart", "mail", "shop"];
    let many_names = |(id, service)| Row { values: vec![1; 30_000], ..row("acme", service, NOON, id as u64) };
    let rows: Vec<Row> = services.into_iter().enumerate().map(many_names).collect();
    world.flush(&rows).await;
    world.flush(&rows[1..]).await;
    world.plan(2, 1);
    let run = async |limit| {
        let config = CompactorConfig { max_merge_memory_bytes: limit, ..CompactorConfig::default() };
        world.compactor(config).run_once().await.unwrap()
    };
    let JobOutcome::Failed { reason, culprit: None } = run(ByteSize::mib(30)).await else {
        panic!("no piece fits into 30 MiB")
    };
    assert!(reason.contains("max_merge_memory_bytes is 30MiB"), "{reason}");
    assert_eq!(run(ByteSize::mib(100)).await, JobOutcome::Finished);
    let raw = world.listed().await.into_iter().filter(|entry| entry.tier.is_raw()).count();
    assert!((2..=4).contains(&raw), "{raw} raw blocks");
    assert_eq!(world.rows().await, model(&[&rows]));
}
