//! Tiers hold the sums of all covered raw rows, each row once.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::Tier;
use athanor_compactor::JobOutcome;

use crate::world::{Row, SECOND, START, World, model, row};

const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
/// End of an hour and of a day.
const MIDNIGHT: i64 = START / 86_400 * 86_400 * SECOND;

/// Rows of two services in an hour and a half, one every three minutes, with ids from a number on.
fn rows_from(first: u64) -> Vec<Row> {
    let rows = (0..30_u64).map(|number| {
        let service = format!("shop{}", number % 2);
        row("acme", &service, MIDNIGHT + (number as i64 * 3 + 1) * MINUTE, first + number)
    });
    rows.collect()
}

async fn finish_all(world: &World) {
    let outcomes = world.compact().await;
    assert!(outcomes.iter().all(|outcome| *outcome == JobOutcome::Finished), "{outcomes:?}");
}

#[tokio::test]
async fn final_merge_writes_all_tiers_and_a_ten_minute_merge_none() {
    let world = World::new().await;
    let rows = rows_from(0);
    world.flush(&rows).await;
    world.plan(1, 1);
    finish_all(&world).await;
    assert!(world.catalog.inner.state().blocks().all(|block| block.tier.is_raw() && !block.is_covered));
    world.plan(2, 1);
    finish_all(&world).await;
    assert_eq!(world.rows().await, model(&[&rows]));
    assert!(world.listed().await.iter().all(|block| block.is_covered));
    for tier in Tier::DOWNSAMPLED {
        assert_eq!(world.listed_of_tier(tier).await.len(), 2, "one of each hour in tier {tier}");
    }
}

#[tokio::test]
async fn tier_merges_add_up_buckets_of_several_hours() {
    let world = World::new().await;
    let rows = rows_from(0);
    world.flush(&rows).await;
    world.plan(2, 1);
    finish_all(&world).await;
    for tier in Tier::DOWNSAMPLED {
        for level in [3, 4] {
            world.plan_tier(tier, level, 1);
            finish_all(&world).await;
            assert_eq!(world.listed_of_tier(tier).await.len(), 1, "tier {tier} at level {level}");
            assert_eq!(world.rows().await, model(&[&rows]));
        }
    }
}

#[tokio::test]
async fn late_rows_enter_the_tiers_without_the_covered_rows_of_their_job() {
    let world = World::new().await;
    let (rows, late) = (rows_from(0), rows_from(20));
    world.flush(&rows).await;
    world.plan(2, 1);
    finish_all(&world).await;
    // Ten of the late rows are copies of covered ones with other times.
    world.flush(&late).await;
    world.plan(3, 1);
    finish_all(&world).await;
    assert_eq!(world.listed().await.len(), 1, "covered and late rows of the day are merged");
    assert_eq!(world.rows().await.len(), 50);
}

#[tokio::test]
async fn copy_of_a_row_in_a_covered_block_outside_of_the_job_is_dropped() {
    let world = World::new().await;
    let rows = rows_from(0);
    world.flush(&rows).await;
    world.plan(2, 1);
    finish_all(&world).await;
    let mut late = rows[..7].to_vec();
    late.extend(rows_from(100));
    world.flush(&late).await;
    // The covered blocks have the level of the job, which takes lower ones.
    finish_all(&world).await;
    assert_eq!(world.rows().await, model(&[&rows, &late]));
    let covered = world.listed().await.iter().filter(|block| block.is_covered).count();
    assert_eq!(covered, 4, "no covered block was merged again");
}

#[tokio::test]
async fn job_without_rows_that_are_new_adds_nothing_to_the_tiers() {
    let world = World::new().await;
    let rows = rows_from(0);
    for _ in 0..2 {
        world.flush(&rows).await;
        world.plan(2, 1);
        finish_all(&world).await;
        assert_eq!(world.rows().await, model(&[&rows]));
    }
    assert_eq!(world.listed().await.len(), 2);
}

#[tokio::test]
async fn rows_that_another_job_covers_meanwhile_are_compared() {
    let world = Arc::new(World::new().await);
    let rows = rows_from(0);
    world.flush(&rows).await;
    world.plan(2, 1);
    let other = world.flush(&rows).await;
    // Each block becomes a job of its own, and the second one finishes first.
    world.catalog.hidden.lock().insert(other);
    let racing = Arc::clone(&world);
    *world.catalog.job_before_finish.lock() = Some(Box::pin(async move {
        racing.catalog.hidden.lock().clear();
        finish_all(&racing).await;
    }));
    assert_eq!(world.compact().await, [JobOutcome::ClaimEnded, JobOutcome::Finished], "it is planned again");
    assert_eq!(world.rows().await, model(&[&rows]));
}

#[tokio::test]
async fn days_of_the_planner_end_in_one_block_of_each_tier() {
    let world = World::new().await;
    world.plan_by_catalog();
    let mut all = Vec::new();
    for day in 0..3_i64 {
        for hour in 0..4_i64 {
            let rows = rows_from((day * 1000 + hour * 100) as u64).into_iter();
            let rows: Vec<Row> =
                rows.map(|row| Row { time: row.time + day * 24 * HOUR + hour * HOUR, ..row }).collect();
            world.flush(&rows).await;
            all.push(rows);
            world.hand.advance(Duration::from_secs(3600));
            finish_all(&world).await;
        }
        world.hand.advance(Duration::from_secs(20 * 3600));
        finish_all(&world).await;
    }
    world.hand.advance(Duration::from_secs(40 * 24 * 3600));
    finish_all(&world).await;
    let flushes: Vec<&[Row]> = all.iter().map(Vec::as_slice).collect();
    assert_eq!(world.rows().await, model(&flushes));
    assert!(world.listed().await.iter().all(|block| block.is_covered));
    for tier in [Tier::OneHour, Tier::OneDay] {
        let listed = world.listed_of_tier(tier).await;
        assert!(listed.len() <= 2 && listed.iter().all(|block| block.level == 4), "{listed:?}");
    }
}
