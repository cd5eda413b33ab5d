//! Finished jobs: swap of parts for outputs, conservation of rows, refusals.

use athanor_chassis::Random;

use super::jobs::*;
use super::*;
use crate::{DropReason, DroppedRows, ShardLogRange, TenantSpan};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn finished_job_swaps_parts_at_once() {
    let mut state = filled();
    let inputs = listed(&state, &[1, 2, 3]);
    let token = token(&mut state, NOW, JobParts::from_entries(&inputs));
    let outputs = merged(&inputs, 10..20, true, token);
    let revision = state.revision();
    let rows = [
        ShardLogRange { shard: 1, epoch: 1, from: 0, to: 30 },
        ShardLogRange { shard: 2, epoch: 1, from: 0, to: 5 },
    ];
    assert!(outputs.iter().all(|output| output.log_ranges().eq(rows)));
    assert_eq!(finish(&mut state, token, outputs.clone()), CommandResult::Changed(8));
    assert_eq!(state.revision(), revision + 1);
    assert_eq!((numbers(&state, "a"), numbers(&state, "b")), (vec![4, 10], vec![4, 11]));
    assert!(numbers(&state, "c").is_empty());
    let tombstones: Vec<u128> = state.tombstones().map(|(id, _)| id.number()).collect();
    assert_eq!(tombstones, [1, 2, 3]);
    assert_eq!(CatalogState::decode(&state.encode()).unwrap(), state);
    // Flushes go on where they were.
    assert_eq!(register(&mut state, block(5, 30, 40)), CommandResult::Registered(40));
    assert_eq!(
        register(&mut state, block(1, 0, 10)),
        CommandResult::Refused(CommandError::Tombstoned(BlockId::from_number(1)))
    );
    // And so do merges.
    merge(&mut state, &[4, 10, 11], 20..30, false);
    assert_eq!((numbers(&state, "a"), numbers(&state, "b")), (vec![20], vec![20]));
}

#[test]
fn retry_of_finished_job_changes_nothing_though_its_outputs_were_merged() {
    let mut state = filled();
    let inputs = listed(&state, &[1, 2]);
    let token = token(&mut state, NOW, JobParts::from_entries(&inputs));
    let outputs = merged(&inputs, 10..11, false, token);
    assert_eq!(finish(&mut state, token, outputs.clone()), CommandResult::Changed(5));
    let after = state.clone();
    assert_eq!(finish(&mut state, token, outputs.clone()), CommandResult::Changed(0));
    assert_eq!(state, after);
    merge(&mut state, &[3, 10], 20..21, false);
    assert_eq!(finish(&mut state, token, outputs.clone()), CommandResult::Changed(0));
    assert_eq!(numbers(&state, "a"), [4, 20]);
    // The token is dropped after a day, and the claim is gone.
    let late = NOW.plus(FINISHED_TOKEN_RETENTION);
    assert_eq!(state.apply(late, CatalogCommand::ExpireTombstones), CommandResult::Changed(2));
    assert_eq!(refused(finish(&mut state, token, outputs)), CommandError::ClaimEnded { token });
}

#[test]
fn multi_tenant_block_stays_listed_for_its_other_tenants() {
    let mut state = filled();
    let job = parts(&[(1, "a"), (2, "a")]);
    let inputs = claimed_inputs(&state, &job);
    let token = token(&mut state, NOW, job);
    assert_eq!(finish(&mut state, token, merged(&inputs, 10..11, false, token)), CommandResult::Changed(3));
    assert_eq!((numbers(&state, "a"), numbers(&state, "b")), (vec![3, 4, 10], vec![1, 2, 3, 4]));
    assert_eq!(state.tombstones().count(), 0);
    let first = &listed(&state, &[1])[0];
    assert_eq!((first.tenants.len(), first.samples), (1, 2));
    // The part was removed, so no job finds it.
    let again = claim(&mut state, NOW, 1, parts(&[(1, "a")]));
    assert_eq!(refused(again), CommandError::PartNotListed(part(1, "a")));
    merge(&mut state, &[1, 2], 20..21, false);
    assert_eq!((numbers(&state, "a"), numbers(&state, "b")), (vec![3, 4, 10], vec![3, 4, 20]));
    assert_eq!(state.tombstones().count(), 2);
}

/// Applies a changed finish of blocks 2 and 3 to a copy. It must change nothing.
fn refusal(
    state: &CatalogState,
    change: &dyn Fn(&mut Vec<BlockEntry>, &mut Vec<DroppedRows>),
) -> CommandError {
    let mut after = state.clone();
    let inputs = listed(state, &[2, 3]);
    let token = token(&mut after, NOW, JobParts::from_entries(&inputs));
    let before = after.clone();
    let mut outputs = merged(&inputs, 10..20, true, token);
    let mut dropped = Vec::new();
    change(&mut outputs, &mut dropped);
    let result =
        after.apply(NOW, CatalogCommand::FinishJob { token, outputs, dropped, compared: Vec::new() });
    assert_eq!(after, before);
    refused(result)
}

#[test]
fn output_that_does_not_match_its_inputs_is_refused() {
    let state = filled();
    let mismatch =
        |change: &dyn Fn(&mut Vec<BlockEntry>)| match refusal(&state, &|outputs, _| change(outputs)) {
            CommandError::OutputMismatch { mismatch, .. } => mismatch,
            other => panic!("{other}"),
        };
    let [a, c] = ["a", "c"].map(|tenant| tenant.parse::<TenantId>().unwrap());
    let id = BlockId::from_number;
    let token = state.revision() + 1;
    assert_eq!(mismatch(&|outputs| outputs[0].to += 1), OutputMismatch::LogRanges);
    assert_eq!(mismatch(&|outputs| outputs[1].additional_ranges.clear()), OutputMismatch::LogRanges);
    assert_eq!(mismatch(&|outputs| outputs[1].level = 0), OutputMismatch::Level(1));
    assert_eq!(mismatch(&|outputs| outputs[1].level = 4), OutputMismatch::Level(1));
    assert_eq!(mismatch(&|outputs| outputs[1].id = id(10)), OutputMismatch::IdInUse);
    assert_eq!(mismatch(&|outputs| outputs[1].id = id(4)), OutputMismatch::IdInUse);
    assert_eq!(mismatch(&|outputs| outputs[0].id = id(0)), OutputMismatch::OlderThanInput(id(3)));
    assert_eq!(mismatch(&|outputs| outputs[0].job = None), OutputMismatch::Token(token));
    assert_eq!(mismatch(&|outputs| outputs[0].job = Some(token + 1)), OutputMismatch::Token(token));
    assert_eq!(mismatch(&|outputs| outputs[0].lost = 1), OutputMismatch::LostEntries);
    assert_eq!(mismatch(&|outputs| outputs[0].samples += 1), OutputMismatch::SampleCount);
    assert_eq!(mismatch(&|outputs| outputs[0].tenants.clear()), OutputMismatch::TenantCount(0));
    let several = |outputs: &mut Vec<BlockEntry>| {
        let mut other = outputs.remove(1);
        outputs[0].tenants.append(&mut other.tenants);
        outputs[0].samples += other.samples;
        outputs[0].level = 2;
    };
    assert_eq!(mismatch(&several), OutputMismatch::TenantCount(2));
    let unknown = |outputs: &mut Vec<BlockEntry>| outputs[0].tenants[0].tenant = c.clone();
    assert_eq!(mismatch(&unknown), OutputMismatch::UnknownTenant(c.clone()));
    let repeated = |outputs: &mut Vec<BlockEntry>| {
        let span = outputs[0].tenants[0].clone();
        outputs[0].samples += span.samples;
        outputs[0].tenants.push(span);
    };
    assert_eq!(mismatch(&repeated), OutputMismatch::UnknownTenant(a.clone()));
    for change in [
        (|span| span.min_time = 4) as fn(&mut TenantSpan),
        |span| span.max_time = 10,
        |span| span.min_time = span.max_time + 1,
    ] {
        let changed = |outputs: &mut Vec<BlockEntry>| change(&mut outputs[0].tenants[0]);
        assert_eq!(mismatch(&changed), OutputMismatch::ProfileTimes(a.clone()));
    }
    for change in [(|span| span.profiles = 0) as fn(&mut TenantSpan), |span| span.sum = None] {
        let changed = |outputs: &mut Vec<BlockEntry>| change(&mut outputs[0].tenants[0]);
        assert_eq!(mismatch(&changed), OutputMismatch::MissingTotals(a.clone()));
    }
    let late = |outputs: &mut Vec<BlockEntry>| outputs[0].tenants[0].newest_arrival = NOW.plus(HOUR);
    assert_eq!(mismatch(&late), OutputMismatch::NewestArrival(a));
}

#[test]
fn rows_of_each_tenant_are_conserved() {
    let state = filled();
    let b: TenantId = "b".parse().unwrap();
    let lost = |count: ConservedCount, outputs: u64| {
        let inputs = match count {
            ConservedCount::Profiles => 2,
            ConservedCount::Samples => 4,
            ConservedCount::Sum => SUM.wrapping_mul(2),
        };
        CommandError::RowsNotConserved { tenant: b.clone(), count, inputs, outputs, dropped: 0 }
    };
    let change_span = |change: fn(&mut TenantSpan)| {
        refusal(&state, &|outputs, _| {
            change(&mut outputs[1].tenants[0]);
            outputs[1].samples = outputs[1].tenants[0].samples;
        })
    };
    assert_eq!(change_span(|span| span.profiles = 1), lost(ConservedCount::Profiles, 1));
    assert_eq!(change_span(|span| span.profiles = 3), lost(ConservedCount::Profiles, 3));
    assert_eq!(change_span(|span| span.samples = 3), lost(ConservedCount::Samples, 3));
    assert_eq!(change_span(|span| span.sum = Some(7)), lost(ConservedCount::Sum, 7));
    // Equal totals over all tenants do not help.
    let moved = refusal(&state, &|outputs, _| {
        outputs[0].tenants[0].profiles = 1;
        outputs[1].tenants[0].profiles = 3;
    });
    assert!(
        matches!(moved, CommandError::RowsNotConserved { count: ConservedCount::Profiles, .. }),
        "{moved}"
    );
    // A tenant without an output has lost all.
    assert_eq!(refusal(&state, &|outputs, _| outputs.truncate(1)), lost(ConservedCount::Profiles, 0));
    let everything = refusal(&state, &|outputs, _| outputs.clear());
    assert!(matches!(everything, CommandError::RowsNotConserved { .. }), "{everything}");
    // Dropped rows that were written as well.
    let dropped = |tenant: &str, profiles| DroppedRows {
        tenant: tenant.parse().unwrap(),
        reason: DropReason::Duplicate,
        profiles,
        samples: 0,
        sum: 0,
        is_covered: false,
    };
    let twice = refusal(&state, &|_, rows| rows.push(dropped("b", 1)));
    let expected = CommandError::RowsNotConserved {
        tenant: b.clone(),
        count: ConservedCount::Profiles,
        inputs: 2,
        outputs: 2,
        dropped: 1,
    };
    assert_eq!(twice, expected);
    let stated_twice = refusal(&state, &|_, rows| rows.extend([dropped("b", 1), dropped("b", 1)]));
    assert_eq!(stated_twice, CommandError::InvalidDroppedRows(b));
    let unknown = refusal(&state, &|_, rows| rows.push(dropped("c", 1)));
    assert_eq!(unknown, CommandError::InvalidDroppedRows("c".parse().unwrap()));
}

/// Blocks of format 1 do not state sums.
#[test]
fn sum_of_inputs_that_do_not_all_state_it_is_not_compared() {
    let mut state = opened();
    let old = TenantSpan { sum: None, ..span() };
    register(&mut state, BlockEntry { tenants: vec![old], ..block(1, 0, 10) });
    register(&mut state, block(2, 10, 20));
    let inputs = listed(&state, &[1, 2]);
    let token = token(&mut state, NOW, JobParts::from_entries(&inputs));
    let mut outputs = merged(&inputs, 10..11, false, token);
    assert_eq!(outputs[0].tenants[0].sum, None);
    outputs[0].tenants[0].sum = Some(12);
    assert_eq!(finish(&mut state, token, outputs), CommandResult::Changed(3));
}

#[test]
fn dropped_rows_count_as_written_and_a_job_may_drop_all() {
    let mut state = filled();
    let job = parts(&[(1, "a"), (2, "a")]);
    let inputs = claimed_inputs(&state, &job);
    let first = token(&mut state, NOW, job);
    let mut outputs = merged(&inputs, 10..11, false, first);
    let kept = &mut outputs[0].tenants[0];
    kept.profiles = 1;
    kept.samples = 2;
    kept.sum = Some(SUM);
    outputs[0].samples = 2;
    let dropped = |reason, samples| DroppedRows {
        tenant: "a".parse().unwrap(),
        reason,
        profiles: 1,
        samples,
        sum: SUM,
        is_covered: false,
    };
    let duplicate = vec![dropped(DropReason::Duplicate, 2)];
    let command =
        CatalogCommand::FinishJob { token: first, outputs, dropped: duplicate, compared: Vec::new() };
    assert_eq!(state.apply(NOW, command), CommandResult::Changed(3));
    // Retention takes the rest.
    let last = token(&mut state, NOW, parts(&[(10, "a")]));
    let expired = vec![dropped(DropReason::Expired, 2)];
    let command = CatalogCommand::FinishJob {
        token: last,
        outputs: Vec::new(),
        dropped: expired,
        compared: Vec::new(),
    };
    assert_eq!(state.apply(NOW, command), CommandResult::Changed(1));
    assert_eq!(numbers(&state, "a"), [3, 4]);
    assert!(state.tombstones().any(|(id, _)| id.number() == 10));
}

#[test]
fn output_of_several_tenants_takes_all_their_parts_of_the_blocks() {
    let mut state = filled();
    let job = parts(&[(1, "a"), (1, "b"), (2, "a")]);
    let inputs = claimed_inputs(&state, &job);
    let job_token = token(&mut state, NOW, job);
    let shared = merged(&inputs, 10..11, false, job_token);
    let overlap = CommandError::OutputMismatch {
        block: BlockId::from_number(10),
        mismatch: OutputMismatch::OverlapsBlock(BlockId::from_number(2)),
    };
    assert_eq!(refused(finish(&mut state, job_token, shared)), overlap);
    let apart = merged(&inputs, 10..12, true, job_token);
    assert_eq!(finish(&mut state, job_token, apart), CommandResult::Changed(5));
    assert_eq!((numbers(&state, "a"), numbers(&state, "b")), (vec![3, 4, 10], vec![2, 3, 4, 11]));
}

#[test]
fn output_with_unusable_id_or_too_many_outputs_is_refused() {
    let mut state = filled();
    let id = BlockId::from_number;
    let ahead = BlockId::new(NOW.plus(HOUR * 25), &Random::from_seed(1));
    let skewed = refusal(&state, &|outputs, _| outputs[0].id = ahead);
    assert_eq!(skewed, CommandError::BlockNameSkew { block: ahead, now: NOW });
    let many = refusal(&state, &|outputs, _| *outputs = vec![outputs[0].clone(); 65]);
    assert_eq!(many, CommandError::TooManyOutputs { seen: 65 });
    state.apply(NOW, CatalogCommand::TombstoneBlocks { blocks: vec![id(11)], tenant: None });
    assert_eq!(refusal(&state, &|_, _| ()), CommandError::Tombstoned(id(11)));
    let merged = BlockEntry { level: 1, job: Some(1), ..block(40, 30, 31) };
    assert_eq!(refused(register(&mut state, merged)), CommandError::MergedBlock(id(40)));
}

#[test]
fn lost_entries_move_when_the_last_part_of_their_block_is_merged() {
    let mut state = opened();
    let two = spans(&["a", "b"]);
    register(&mut state, BlockEntry { lost: 3, tenants: two.clone(), ..block(1, 0, 10) });
    register(&mut state, BlockEntry { lost: 4, tenants: two, ..block(2, 10, 20) });
    let lost = |state: &CatalogState, numbers: &[u128]| -> Vec<u64> {
        listed(state, numbers).iter().map(|block| block.lost).collect()
    };
    let job = parts(&[(1, "a"), (2, "a")]);
    let inputs = claimed_inputs(&state, &job);
    let first = token(&mut state, NOW, job);
    finish(&mut state, first, merged(&inputs, 10..11, false, first));
    assert_eq!(lost(&state, &[1, 2, 10]), [3, 4, 0]);
    merge(&mut state, &[1, 2], 20..21, false);
    assert_eq!(lost(&state, &[10, 20]), [0, 7]);
    merge(&mut state, &[10, 20], 30..32, true);
    assert_eq!(lost(&state, &[30, 31]), [7, 0]);
}

#[test]
fn lost_entries_stay_although_all_rows_of_a_job_are_duplicates() {
    let mut state = opened();
    register(&mut state, BlockEntry { lost: 3, ..block(1, 0, 10) });
    register(&mut state, BlockEntry { lost: 4, ..block(2, 10, 20) });
    let inputs = listed(&state, &[1]);
    let token = token(&mut state, NOW, JobParts::from_entries(&inputs));
    let TenantSpan { tenant, profiles, samples, sum, .. } = inputs[0].tenants[0].clone();
    let reason = DropReason::Duplicate;
    let sum = sum.unwrap_or_default();
    let dropped = vec![DroppedRows { tenant, reason, profiles, samples, sum, is_covered: false }];
    let command = CatalogCommand::FinishJob { token, outputs: Vec::new(), dropped, compared: Vec::new() };
    assert_eq!(state.apply(NOW, command), CommandResult::Changed(1));
    assert_eq!(state.list_blocks(&TenantId::anonymous(), 0, 0).lost, 7);
    assert_eq!(listed(&state, &[2])[0].lost, 7);
}

#[test]
fn merge_does_not_restart_the_age_of_its_rows() {
    let begin = Timestamp::from_seconds(1_700_000_000);
    let named =
        |at: Timestamp, number: u128| BlockId::from_number(BlockId::earliest_at(at).number() + number);
    let mut state = opened();
    let input = BlockEntry { id: named(begin, 1), ..block(1, 0, 10) };
    state.apply(begin, CatalogCommand::RegisterBlock { block: input.clone() });
    let later = begin.plus(HOUR * 23);
    let token = token(&mut state, later, JobParts::from_entries([&input]));
    let output = merged(&[input], 10..11, false, token).remove(0);
    assert_eq!(output.tenants[0].newest_arrival, begin);
    let output = BlockEntry { id: named(later, 2), ..output };
    assert_eq!(finish(&mut state, token, vec![output]), CommandResult::Changed(2));
    let overdue =
        |hours: u32| state.block_ages(begin.plus(HOUR * hours), &RetentionPolicy::uniform(HOUR * 24)).overdue;
    assert_eq!((overdue(24), overdue(25)), (0, 1));
}

#[test]
fn merged_block_inherits_the_newest_restoration_of_its_tenants() {
    let mut state = filled();
    let retention = HOUR * 48;
    let expired = NOW.plus(HOUR * 50);
    state.apply(
        expired,
        CatalogCommand::ExpireBlocks { retention: RetentionPolicy::uniform(retention), max_percent: None },
    );
    let restore = |state: &mut CatalogState, at: Timestamp, number: u128| {
        let blocks = vec![BlockId::from_number(number)];
        assert_eq!(state.apply(at, CatalogCommand::RestoreBlocks { blocks }), CommandResult::Changed(1));
    };
    restore(&mut state, expired, 1);
    restore(&mut state, expired.plus(HOUR), 2);
    let inputs = listed(&state, &[1, 2]);
    let token = token(&mut state, expired.plus(HOUR), JobParts::from_entries(&inputs));
    let name = BlockId::earliest_at(state.time()).number();
    assert!(matches!(
        finish(&mut state, token, merged(&inputs, name..name + 1, false, token)),
        CommandResult::Changed(5)
    ));
    let overdue = |state: &CatalogState, hours: u32| {
        state.block_ages(NOW.plus(HOUR * hours), &RetentionPolicy::uniform(retention)).overdue
    };
    assert_eq!((overdue(&state, 51 + 48), overdue(&state, 51 + 49)), (0, 1));
}

#[test]
fn job_of_a_thousand_tenants_and_twelve_blocks_fits_into_a_command() {
    let mut state = opened();
    let name = |number: usize| format!("tenant-{number:030}");
    let names: Vec<String> = (0..1000).map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for number in 1..=12_u64 {
        let block = BlockEntry { tenants: spans(&names), ..block(u128::from(number), number - 1, number) };
        assert_eq!(register(&mut state, block), CommandResult::Registered(number));
    }
    let inputs: Vec<BlockEntry> = state.blocks().cloned().collect();
    let parts = JobParts::from_entries(&inputs);
    assert_eq!(parts.len(), 12_000);
    let size =
        |command: &CatalogCommand| CatalogLogEntry { time: NOW, command: command.clone() }.encode().len();
    let command = CatalogCommand::ClaimParts { worker: 1, parts };
    assert!(size(&command) < 1 << 20, "{}", size(&command));
    let CommandResult::Claimed(token) = state.apply(NOW, command) else { panic!("not claimed") };
    let outputs = merged(&inputs, 100..101, false, token);
    let dropped = |tenant: &&str| DroppedRows {
        tenant: tenant.parse().unwrap(),
        reason: DropReason::Duplicate,
        profiles: 0,
        samples: 0,
        sum: 0,
        is_covered: false,
    };
    let dropped = names.iter().map(dropped).collect();
    let command = CatalogCommand::FinishJob { token, outputs, dropped, compared: Vec::new() };
    assert!(size(&command) < 1 << 20, "{}", size(&command));
    assert_eq!(state.apply(NOW, command), CommandResult::Changed(12_001));
    assert_eq!((state.blocks().count(), state.tombstones().count()), (1, 12));
}

#[test]
fn merged_block_is_reinstated_into_the_gap_that_it_left() {
    let state = filled();
    let inputs = listed(&state, &[1, 2, 3]);
    let outputs = merged(&inputs, 10..20, true, 9);
    let mut lost = CatalogState::default();
    lost.apply(NOW, CatalogCommand::OpenShard { slot: 0, members: [7].into() });
    lost.apply(NOW, CatalogCommand::OpenShard { slot: 1, members: [7].into() });
    let reinstate = |state: &mut CatalogState, block: &BlockEntry| {
        state.apply(NOW, CatalogCommand::ReinstateBlock { block: block.clone() })
    };
    lost.apply(NOW, CatalogCommand::AdvanceWatermark { shard: 1, to: 40 });
    let no_gap = |block: &BlockEntry| CommandResult::Refused(CommandError::NotInGap(block.id));
    assert_eq!(reinstate(&mut lost, &outputs[0]), no_gap(&outputs[0]), "one of its ranges is in no gap");
    lost.apply(NOW, CatalogCommand::AdvanceWatermark { shard: 2, to: 6 });
    for output in &outputs {
        assert!(matches!(reinstate(&mut lost, output), CommandResult::Registered(_)));
    }
    assert_eq!((numbers(&lost, "a"), numbers(&lost, "b")), (vec![10], vec![11]));
    // Another window of the same job holds other rows. A block of another job may hold the same ones.
    let window = BlockEntry { id: BlockId::from_number(20), ..outputs[0].clone() };
    assert!(matches!(reinstate(&mut lost, &window), CommandResult::Registered(_)));
    let other = merged(&inputs, 30..31, false, 12);
    assert_eq!(reinstate(&mut lost, &other[0]), no_gap(&other[0]));
    assert_eq!(reinstate(&mut lost, &inputs[0]), no_gap(&inputs[0]));
    let gaps = lost.list_blocks(&TenantId::anonymous(), 0, 0).data_losses.len();
    assert_eq!(gaps, 2, "after both");
}
