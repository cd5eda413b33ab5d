//! Random histories of registrations, jobs, retention and deletions, each ended by the loss of the catalog.

use std::collections::BTreeSet;

use athanor_chassis::Tier;

use super::super::*;
use super::model::{EventCounts, Model, Row};

fn is_in_gap(row: &Row, findings: &RecoveryFindings) -> bool {
    let holds = |(shard, from, to): &(ShardId, u64, u64)| {
        *shard == row.shard && *from < row.index && row.index <= *to
    };
    findings.gaps.iter().any(holds)
}

/// Returns the rows of blocks of a tier that retention removed. The snapshot names those of the first set.
fn removed_rows(model: &Model, snapshot: &CatalogState, tier: Tier) -> [BTreeSet<Row>; 2] {
    let is_named = |block: &BlockId| snapshot.tombstones.contains_key(block);
    let is_of_tier = |block: &BlockId| model.removed_tiers[block] == tier;
    [true, false].map(|named| {
        let removed = model.removed.iter().filter(|(block, _)| is_of_tier(block) && is_named(block) == named);
        removed.flat_map(|(_, rows)| rows.iter().cloned()).collect()
    })
}

/// Checks that no tier holds a row twice, or one that a part which is not covered holds. Returns the number of
/// covered rows that a tier lacks, without those of removed blocks.
fn check_tiers(model: &Model, state: &CatalogState, seed: u64) -> usize {
    let mut missing = 0;
    for tier in Tier::DOWNSAMPLED {
        let removed: BTreeSet<Row> =
            removed_rows(model, &CatalogState::default(), tier).into_iter().flatten().collect();
        for (row, counts) in model.count_tier_rows(state, tier) {
            assert!(counts.held <= 1, "seed {seed}: {row:?} is {} times in tier {tier}", counts.held);
            let is_doubled = counts.held > 0 && counts.uncovered > 0;
            assert!(!is_doubled, "seed {seed}: {row:?} is in tier {tier} and in an uncovered part");
            let is_missing = counts.covered > 0 && counts.held == 0 && !removed.contains(&row);
            missing += usize::from(is_missing);
        }
    }
    missing
}

/// Checks that the rebuilt catalog continues: shards register, and no old token is valid.
fn check_continues(model: &Model, state: &CatalogState, seed: u64) {
    assert!(state.revision > model.facts.revision, "seed {seed}");
    let mut after = state.clone();
    for job in &model.uploaded {
        let finish = CatalogCommand::FinishJob {
            token: job.token,
            outputs: job.outputs.clone(),
            dropped: Vec::new(),
            compared: Vec::new(),
        };
        let before = after.clone();
        let result = after.apply(before.now, finish);
        let is_ended = matches!(
            result,
            CommandResult::Refused(CommandError::ClaimEnded { .. }) | CommandResult::Changed(0)
        );
        assert!(is_ended && after == before, "seed {seed}: {result:?}");
    }
    for (shard, log) in &model.logs {
        let from = state.shards[shard].watermark;
        let number = (1 << 60) + u128::from(*shard);
        let block = BlockEntry { shard: *shard, ..super::super::block(number, from, log.end.max(from) + 1) };
        let to = block.to;
        assert_eq!(register(&mut after, block), CommandResult::Registered(to), "seed {seed}");
    }
}

/// INV-16: each row is in one part, whatever jobs were under way.
#[test]
fn rebuild_lists_each_row_once_with_unfinished_jobs() {
    let mut counts = EventCounts::default();
    for seed in 0..2000 {
        let mut model = Model::new(seed);
        for _ in 0..model.below(120) {
            model.step();
        }
        counts.finished += model.counts.finished;
        counts.unfinished += model.counts.unfinished;
        counts.deleted += model.counts.deleted;
        let snapshot = model.snapshots.last().cloned();
        let known = snapshot.clone().unwrap_or_default();
        let (state, findings) = CatalogState::recover(model.recovery_input(snapshot))
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(findings.gaps.is_empty() && findings.missing.is_empty(), "seed {seed}: {findings:?}");
        assert!(state.compaction.claims.is_empty() && state.compaction.failures.is_empty());
        let [named, unnamed] = removed_rows(&model, &known, Tier::Raw);
        assert_eq!(check_tiers(&model, &state, seed), 0, "seed {seed}: a tier lacks rows");
        for (row, count) in model.count_rows(&state) {
            match named.contains(&row) {
                true => assert_eq!(count, 0, "seed {seed}: {row:?} was removed"),
                false if unnamed.contains(&row) => assert!(count <= 1, "seed {seed}: {row:?}"),
                false => assert_eq!(count, 1, "seed {seed}: {row:?}"),
            }
        }
        for (shard, log) in &model.logs {
            assert!(state.shards[shard].watermark >= log.flushed, "seed {seed}: shard {shard}");
        }
        let lost = |state: &CatalogState| state.blocks().map(|block| block.lost).sum::<u64>();
        if model.removed.is_empty() {
            assert!(lost(&state) >= lost(&known), "seed {seed}: lost entries stay with their rows");
        }
        check_continues(&model, &state, seed);
    }
    assert!(counts.finished > 2500 && counts.unfinished > 2500 && counts.deleted > 1000, "{counts:?}");
}

/// INV-16: an older snapshot, and objects that are gone, cost rows at worst. No row counts twice.
#[test]
fn rebuild_from_older_snapshot_lists_no_row_twice() {
    let mut untold = 0;
    let mut lost = 0;
    for seed in 0..4000 {
        let mut model = Model::new(seed);
        for _ in 0..model.below(120) {
            model.step();
        }
        let left = model.below(model.snapshots.len() as u64 + 1) as usize;
        let snapshot = model.snapshots[..left].last().cloned();
        if model.below(2) == 0 {
            let damaged: Vec<BlockId> =
                model.bucket.keys().copied().filter(|_| model.below(12) == 0).collect();
            model.bucket.retain(|block, _| !damaged.contains(block));
        }
        let known = snapshot.clone().unwrap_or_default();
        let (state, findings) = CatalogState::recover(model.recovery_input(snapshot))
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let [named, unnamed] = removed_rows(&model, &known, Tier::Raw);
        check_tiers(&model, &state, seed);
        for (row, count) in model.count_rows(&state) {
            assert!(count <= 1, "seed {seed}: {row:?} is {count} times there");
            assert!(count == 0 || !named.contains(&row), "seed {seed}: {row:?} was removed");
            if count == 0 && !named.contains(&row) && !unnamed.contains(&row) {
                lost += 1;
                untold += usize::from(!is_in_gap(&row, &findings));
            }
        }
        assert!(state.blocks().all(|block| model.bucket.contains_key(&block.id)), "seed {seed}");
        check_continues(&model, &state, seed);
    }
    assert!(untold * 2 < lost, "{untold} of {lost} lost rows are in no gap");
}
