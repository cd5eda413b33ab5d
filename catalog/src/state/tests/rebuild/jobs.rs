//! Which jobs count as finished when the catalog that recorded them is lost.

use athanor_chassis::Tier;

use super::super::*;
use crate::{JobParts, PartId, ShardLogRange, TenantSpan};

fn number(number: u128) -> BlockId {
    BlockId::from_number(number)
}

fn name(tenant: &str) -> TenantId {
    tenant.parse().unwrap()
}

fn span(tenant: &str) -> TenantSpan {
    TenantSpan {
        tenant: name(tenant),
        min_time: 5,
        max_time: 9,
        profiles: 1,
        samples: 1,
        sum: Some(1),
        newest_arrival: NOW,
    }
}

fn flushed(id: u128, from: u64, to: u64, tenants: &[&str]) -> BlockEntry {
    BlockEntry { tenants: tenants.iter().map(|tenant| span(tenant)).collect(), ..block(id, from, to) }
}

/// A job of one tenant or several, as its outputs describe it.
fn source(token: u64, outputs: &[u128], inputs: &[(u128, &str)]) -> JobSource {
    let parts = inputs.iter().map(|&(block, tenant)| PartId { block: number(block), tenant: name(tenant) });
    JobSource { token, outputs: outputs.iter().copied().map(number).collect(), inputs: parts.collect() }
}

fn merged(job: &JobSource, entry: BlockEntry) -> BucketBlock {
    let block = BlockEntry { level: 1, job: Some(job.token), ..entry };
    BucketBlock { block, job: Some(job.clone()) }
}

fn unmerged(block: BlockEntry) -> BucketBlock {
    BucketBlock { block, job: None }
}

/// The catalog at its last snapshot: two flushed blocks of two tenants, the first with three lost entries.
fn known() -> CatalogState {
    let mut state = opened();
    register(&mut state, BlockEntry { lost: 3, ..flushed(1, 0, 10, &["a", "b"]) });
    register(&mut state, flushed(2, 10, 20, &["a", "b"]));
    state
}

fn recover(snapshot: CatalogState, blocks: Vec<BucketBlock>) -> (CatalogState, RecoveryFindings) {
    let report = ShardReport { shard: 1, members: [7].into(), flushed: 20, ..ShardReport::default() };
    let snapshot = Some(snapshot);
    let input = RecoveryInput { snapshot, blocks, reports: vec![report], ..RecoveryInput::default() };
    CatalogState::recover(input).unwrap()
}

/// Returns the listed parts, as block numbers and names of tenants.
fn parts(state: &CatalogState) -> Vec<(u128, String)> {
    let parts = state
        .blocks()
        .flat_map(|block| block.tenants.iter().map(|span| (block.id.number(), span.tenant.to_string())));
    parts.collect()
}

fn expected(parts: &[(u128, &str)]) -> Vec<(u128, String)> {
    parts.iter().map(|&(block, tenant)| (block, tenant.to_owned())).collect()
}

fn gone(mut blocks: Vec<BucketBlock>, id: u128) -> Vec<BucketBlock> {
    blocks.retain(|found| found.block.id != number(id));
    blocks
}

/// Both blocks, and the outputs of a job that merged their rows of tenant a, one per window.
fn merged_twice() -> Vec<BucketBlock> {
    let job = source(90, &[11, 12], &[(1, "a"), (2, "a")]);
    vec![
        unmerged(flushed(1, 0, 10, &["a", "b"])),
        unmerged(flushed(2, 10, 20, &["a", "b"])),
        merged(&job, flushed(11, 0, 20, &["a"])),
        merged(&job, flushed(12, 0, 20, &["a"])),
    ]
}

#[test]
fn job_with_all_inputs_left_is_unfinished() {
    let (state, findings) = recover(known(), merged_twice());
    assert_eq!(parts(&state), expected(&[(1, "a"), (1, "b"), (2, "a"), (2, "b")]));
    assert_eq!(findings.skipped, [number(11), number(12)]);
    let without_snapshot = recover(opened(), merged_twice()).0;
    assert_eq!(parts(&without_snapshot), parts(&state));
}

#[test]
fn job_with_missing_input_is_finished_as_a_whole() {
    let (state, findings) = recover(known(), gone(merged_twice(), 2));
    // The other tenant's rows in the missing block are lost.
    assert_eq!(parts(&state), expected(&[(1, "b"), (11, "a"), (12, "a")]));
    assert_eq!((findings.gaps, findings.missing), (vec![(1, 10, 20)], vec![number(2)]));
    assert_eq!(findings.reinstated, [number(11), number(12)]);
    assert_eq!(state.blocks[&number(11)].lost, 0, "a listed block keeps its lost entries");
}

#[test]
fn emptied_block_passes_on_lost_entries_and_gets_a_tombstone() {
    let job = source(90, &[11], &[(1, "a"), (1, "b"), (2, "a"), (2, "b")]);
    let later = source(95, &[13], &[(11, "a"), (11, "b")]);
    let blocks = vec![
        unmerged(flushed(1, 0, 10, &["a", "b"])),
        merged(&job, flushed(11, 0, 20, &["a", "b"])),
        merged(&later, flushed(13, 0, 20, &["a", "b"])),
    ];
    let (state, findings) = recover(known(), blocks.clone());
    assert_eq!(parts(&state), expected(&[(11, "a"), (11, "b")]), "the later job has its input");
    assert_eq!((state.blocks[&number(11)].lost, &findings.gaps), (3, &vec![]));
    let tombstone = &state.tombstones[&number(1)];
    let rows = ShardLogRange { shard: 1, epoch: 1, from: 0, to: 10 };
    assert_eq!((tombstone.flushed, tombstone.is_removed), (Some(rows), false));
    assert!(state.tombstones[&number(2)].is_removed);
    // The output of the first job was merged again, and is gone: nothing but a name in the last block is left.
    let (state, findings) = recover(known(), gone(blocks, 11));
    assert_eq!(parts(&state), expected(&[(13, "a"), (13, "b")]));
    assert_eq!((findings.gaps, findings.missing), (vec![], vec![]));
}

#[test]
fn chain_of_finished_jobs_leaves_the_last_outputs() {
    let first = source(90, &[11, 12], &[(1, "a"), (2, "a")]);
    let second = source(95, &[13], &[(11, "a")]);
    let blocks = gone(merged_twice(), 11);
    let blocks = blocks.into_iter().chain([merged(&second, flushed(13, 0, 20, &["a"]))]).collect();
    let (state, findings) = recover(known(), blocks);
    assert_eq!(parts(&state), expected(&[(1, "b"), (2, "b"), (12, "a"), (13, "a")]));
    assert_eq!((findings.gaps, findings.missing), (vec![], vec![]));
    assert!(state.compaction.finished.contains_key(&first.token));
}

#[test]
fn unwritten_outputs_and_a_missing_input_cost_the_input_only() {
    let (state, findings) = recover(known(), gone(gone(merged_twice(), 12), 2));
    assert_eq!(parts(&state), expected(&[(1, "a"), (1, "b")]));
    assert_eq!((findings.gaps, findings.missing), (vec![(1, 10, 20)], vec![number(2)]));
}

#[test]
fn missing_output_of_a_finished_job_is_a_gap() {
    let (state, findings) = recover(known(), gone(gone(gone(merged_twice(), 12), 2), 1));
    assert_eq!(parts(&state), expected(&[(11, "a")]));
    assert_eq!(findings.gaps, [(1, 0, 20)]);
    assert_eq!(findings.missing, [number(12), number(1), number(2)]);
}

#[test]
fn job_whose_part_was_claimed_later_never_finished() {
    let later = source(95, &[13], &[(2, "a")]);
    let blocks = gone(merged_twice(), 2).into_iter();
    let blocks = blocks.chain([merged(&later, flushed(13, 10, 20, &["a"]))]).collect();
    let (state, _) = recover(known(), blocks);
    assert_eq!(parts(&state), expected(&[(1, "a"), (1, "b"), (13, "a")]));
}

/// The output of a shared job covers the range of a part that another job took before.
#[test]
fn part_that_a_finished_job_excludes_belongs_to_a_finished_job() {
    let alone = source(95, &[13], &[(1, "a")]);
    let shared = source(90, &[14], &[(1, "b"), (2, "a"), (2, "b")]);
    let blocks = vec![
        unmerged(flushed(1, 0, 10, &["a", "b"])),
        merged(&alone, flushed(13, 0, 10, &["a"])),
        merged(&shared, flushed(14, 0, 20, &["a", "b"])),
    ];
    let (state, findings) = recover(known(), blocks);
    assert_eq!(parts(&state), expected(&[(13, "a"), (14, "a"), (14, "b")]));
    assert!(findings.gaps.is_empty());
}

#[test]
fn snapshot_decides_about_jobs_that_it_knows() {
    let blocks = || gone(merged_twice(), 2);
    // The claim ended before the snapshot, without a result.
    let mut ended = known();
    ended.revision = 200;
    let (state, _) = recover(ended.clone(), blocks());
    assert_eq!(parts(&state), expected(&[(1, "a"), (1, "b")]));
    // It was under way.
    let claim = JobParts::from_entries(ended.blocks());
    let claimed = ended.apply(NOW, CatalogCommand::ClaimParts { worker: 7, parts: claim });
    assert_eq!(claimed, CommandResult::Claimed(201));
    let job = source(201, &[11], &[(1, "a"), (1, "b"), (2, "a"), (2, "b")]);
    let blocks =
        vec![unmerged(flushed(1, 0, 10, &["a", "b"])), merged(&job, flushed(11, 0, 20, &["a", "b"]))];
    let (mut state, _) = recover(ended, blocks);
    assert_eq!(parts(&state), expected(&[(11, "a"), (11, "b")]));
    assert!(state.compaction.claims.is_empty());
    let parts = JobParts::from_entries(state.blocks());
    let claimed = state.apply(NOW, CatalogCommand::ClaimParts { worker: 7, parts });
    assert!(matches!(claimed, CommandResult::Claimed(token) if token > 1_000_000), "{claimed:?}");
}

/// A removed block's rows are in the output of a job that never finished.
#[test]
fn deleted_rows_are_not_listed_again() {
    let mut snapshot = known();
    snapshot.apply(NOW, CatalogCommand::TombstoneBlocks { blocks: vec![number(2)], tenant: None });
    let (state, findings) = recover(snapshot, gone(merged_twice(), 2));
    assert_eq!(parts(&state), expected(&[(1, "a"), (1, "b")]));
    assert!(findings.gaps.is_empty());
}

/// Both blocks with one tenant, and the outputs of a final merge: block 11 and one block of each tier.
fn final_merge() -> Vec<BucketBlock> {
    let job = source(90, &[11, 12, 13, 14], &[(1, "a"), (2, "a")]);
    let output = |id, tier: Tier| {
        let block = BlockEntry { tier, is_covered: tier.is_raw(), ..flushed(id, 0, 20, &["a"]) };
        let found = merged(&job, block);
        BucketBlock { block: BlockEntry { level: 3, ..found.block }, ..found }
    };
    vec![
        unmerged(flushed(1, 0, 10, &["a"])),
        unmerged(flushed(2, 10, 20, &["a"])),
        output(11, Tier::Raw),
        output(12, Tier::FiveMinutes),
        output(13, Tier::OneHour),
        output(14, Tier::OneDay),
    ]
}

/// The catalog at its last snapshot: two flushed blocks of one tenant.
fn known_of_one_tenant() -> CatalogState {
    let mut state = opened();
    register(&mut state, flushed(1, 0, 10, &["a"]));
    register(&mut state, flushed(2, 10, 20, &["a"]));
    state
}

#[test]
fn finished_final_merge_is_listed_in_all_tiers() {
    for snapshot in [known_of_one_tenant(), opened()] {
        let (state, findings) = recover(snapshot, gone(final_merge(), 2));
        let listed: Vec<(u128, Tier, bool)> =
            state.blocks().map(|block| (block.id.number(), block.tier, block.is_covered)).collect();
        let expected = [
            (11, Tier::Raw, true),
            (12, Tier::FiveMinutes, false),
            (13, Tier::OneHour, false),
            (14, Tier::OneDay, false),
        ];
        assert_eq!(listed, expected);
        assert!(findings.gaps.is_empty() && findings.missing.is_empty(), "{findings:?}");
    }
}

#[test]
fn half_uploaded_final_merge_is_listed_in_no_tier() {
    for missing in 11..=14 {
        for snapshot in [known_of_one_tenant(), opened()] {
            let (state, findings) = recover(snapshot, gone(final_merge(), missing));
            assert_eq!(parts(&state), expected(&[(1, "a"), (2, "a")]));
            assert_eq!(findings.skipped.len(), 3);
        }
    }
}

#[test]
fn final_merge_whose_tier_was_merged_again_is_finished_in_all_tiers() {
    let later = source(95, &[15], &[(13, "a")]);
    let merged = merged(&later, flushed(15, 0, 20, &["a"]));
    let hours = BlockEntry { tier: Tier::OneHour, level: 4, ..merged.block };
    let hours = BucketBlock { block: hours, job: merged.job };
    let blocks = gone(final_merge(), 13).into_iter().chain([hours]).collect();
    let (state, findings) = recover(known_of_one_tenant(), blocks);
    assert_eq!(parts(&state), expected(&[(11, "a"), (12, "a"), (14, "a"), (15, "a")]));
    assert!(findings.gaps.is_empty() && findings.missing.is_empty(), "{findings:?}");
}

#[test]
fn second_upload_of_a_job_is_listed_instead_of_the_first() {
    let first = source(90, &[11, 12], &[(1, "a"), (2, "a")]);
    let second = source(90, &[15, 16], &[(1, "a"), (2, "a")]);
    let blocks = vec![
        merged(&first, flushed(11, 0, 20, &["a"])),
        merged(&second, flushed(15, 0, 20, &["a"])),
        merged(&second, flushed(16, 0, 20, &["a"])),
    ];
    assert_eq!(parts(&recover(known(), blocks).0), expected(&[(15, "a"), (16, "a")]));
}

/// A merged block whose registration was lost returns only into a gap, beside blocks of other rows.
#[test]
fn merged_block_is_reinstated_unless_it_may_share_rows() {
    let mut state = opened();
    state.apply(NOW, CatalogCommand::AdvanceWatermark { shard: 1, to: 20 });
    let at = |min_time, max_time| vec![TenantSpan { min_time, max_time, ..span("a") }];
    let output = |id, token, tenants| {
        let entry = BlockEntry { level: 1, job: Some(token), tenants, ..block(id, 0, 20) };
        CatalogCommand::ReinstateBlock { block: entry }
    };
    let registered = CommandResult::Registered(20);
    assert_eq!(state.apply(NOW, output(13, 95, at(11, 15))), registered);
    assert_eq!(state.apply(NOW, output(14, 95, at(11, 20))), registered, "of the same job");
    assert_eq!(state.apply(NOW, output(12, 90, at(5, 10))), registered, "of another window");
    let refused = CommandResult::Refused(CommandError::NotInGap(number(11)));
    assert_eq!(state.apply(NOW, output(11, 90, at(5, 11))), refused, "was merged into a listed block");
    let flushed = CatalogCommand::ReinstateBlock { block: flushed(11, 0, 10, &["a"]) };
    assert_eq!(state.apply(NOW, flushed), refused);
}

/// Half of the flushed blocks are gone, and each part was merged twice. The number of examined parts and
/// blocks grows with the number of blocks.
#[test]
fn rebuild_examines_each_part_and_range_a_few_times() {
    const MINUTES: u64 = 1600;
    let slots: u32 = 64;
    let mut found = Vec::new();
    let mut next = 0;
    let mut id = || {
        next += 1;
        next
    };
    let mut days: BTreeMap<&str, Vec<(u128, &str)>> = BTreeMap::new();
    let ranges = |from, to| (1..=slots).map(move |shard| ShardLogRange { shard, epoch: 1, from, to });
    let entry = |id: u128, from: u64, to: u64, tenants: &[&str]| BlockEntry {
        additional_ranges: ranges(from, to).skip(1).collect(),
        ..flushed(id, from, to, tenants)
    };
    for window in 0..MINUTES / 10 {
        let mut inputs = Vec::new();
        for minute in window * 10..window * 10 + 10 {
            for shard in 1..=slots {
                let id = id();
                inputs.extend([(id, "a"), (id, "b")]);
                if minute % 2 == 0 {
                    let block = BlockEntry { shard, ..flushed(id, minute, minute + 1, &["a", "b"]) };
                    found.push(unmerged(block));
                }
            }
        }
        let output = id();
        for tenant in ["a", "b"] {
            days.entry(tenant).or_default().push((output, tenant));
        }
        let job = source(1 + window, &[output], &inputs);
        found.push(merged(&job, entry(output, window * 10, window * 10 + 10, &["a", "b"])));
    }
    for (token, (tenant, inputs)) in (1000..).zip(&days) {
        let output = id();
        let job = source(token, &[output], inputs);
        found.push(merged(&job, entry(output, 0, MINUTES, &[tenant])));
    }
    let present = found.iter().map(|found| found.block.id).collect();
    let listed = BTreeMap::new();
    let inventory = JobInventory { found: &found, listed: &listed, present: &present, retained_since: NOW };
    let finished = inventory.find_finished_jobs();
    assert_eq!(finished.by_token.len(), 160, "all but the last two");
    assert!(finished.examined < 10 * next as usize, "{} for {next} blocks", finished.examined);
    let input = RecoveryInput { blocks: found, ..RecoveryInput::default() };
    let (state, findings) = CatalogState::recover(input).unwrap();
    assert_eq!((state.blocks().count(), findings.gaps.len()), (160, 0));
}
