//! Jobs that write downsampled tiers, and jobs that merge them.

use super::jobs::*;
use super::*;
use crate::{DropReason, DroppedRows};

fn id(number: u128) -> BlockId {
    BlockId::from_number(number)
}

/// Two blocks of tenant a in one shard.
fn two_blocks() -> CatalogState {
    let mut state = opened();
    for number in [1, 2] {
        let (from, to) = (number * 10 - 10, number * 10);
        let block = BlockEntry { tenants: spans(&["a"]), ..block(u128::from(number), from, to) };
        assert_eq!(register(&mut state, block), CommandResult::Registered(to));
    }
    state
}

/// Merges blocks 1 and 2 into covered block 10 of a level, and blocks 11 to 13 of the tiers.
fn cover_both(state: &mut CatalogState, level: u8) {
    let inputs = listed(state, &[1, 2]);
    let token = token(state, NOW, JobParts::from_entries(&inputs));
    let outputs = covered(merged(&inputs, 10..11, true, token), level, 11..20);
    assert_eq!(finish(state, token, outputs), CommandResult::Changed(6));
}

/// Applies a changed final merge of blocks 1 and 2 to a copy. It must change nothing.
fn refusal(change: impl Fn(&mut Vec<BlockEntry>, &mut Vec<DroppedRows>)) -> CommandError {
    let mut state = two_blocks();
    let inputs = listed(&state, &[1, 2]);
    let token = token(&mut state, NOW, JobParts::from_entries(&inputs));
    let mut outputs = covered(merged(&inputs, 10..11, true, token), 2, 11..20);
    let mut dropped = Vec::new();
    change(&mut outputs, &mut dropped);
    let before = state.clone();
    let command = CatalogCommand::FinishJob { token, outputs, dropped, compared: Vec::new() };
    let result = state.apply(NOW, command);
    assert_eq!(state, before);
    refused(result)
}

fn mismatch(change: impl Fn(&mut Vec<BlockEntry>)) -> OutputMismatch {
    match refusal(|outputs, _| change(outputs)) {
        CommandError::OutputMismatch { mismatch, .. } => mismatch,
        other => panic!("{other}"),
    }
}

/// Adds a covered block of tenant a with other rows, which no log range of block 1 or 2 contains.
fn add_covered(state: &mut CatalogState, number: u128, from: u64, min_time: i64, max_time: i64) {
    let watermark = from + 10;
    let span = TenantSpan { min_time, max_time, ..spans(&["a"]).remove(0) };
    let flushed = BlockEntry { tenants: vec![span], ..block(number, from, watermark) };
    assert_eq!(register(state, flushed), CommandResult::Registered(watermark));
    let inputs = listed(state, &[number]);
    let token = token(state, NOW, JobParts::from_entries(&inputs));
    let names = number * 10..number * 10 + 1;
    let outputs = covered(merged(&inputs, names, true, token), 3, number * 10 + 1..number * 10 + 4);
    let compared = state.blocks().filter(|block| block.is_covered).map(|block| block.id).collect();
    let command = CatalogCommand::FinishJob { token, outputs, dropped: Vec::new(), compared };
    assert_eq!(state.apply(NOW, command), CommandResult::Changed(5));
}

#[test]
fn final_merge_lists_its_rows_in_every_tier() {
    let mut state = two_blocks();
    cover_both(&mut state, 2);
    let tiers: Vec<(Tier, bool)> = state.blocks().map(|block| (block.tier, block.is_covered)).collect();
    let [five_minutes, one_hour, one_day] = Tier::DOWNSAMPLED.map(|tier| (tier, false));
    assert_eq!(tiers, [(Tier::Raw, true), five_minutes, one_hour, one_day]);
    let listing = state.list_blocks(&"a".parse().unwrap(), i64::MIN, i64::MAX);
    assert!(listing.blocks.iter().map(|block| (block.tier, block.is_covered)).eq(tiers));
    assert_eq!(CatalogState::decode(&state.encode()).unwrap(), state);
}

#[test]
fn output_whose_tier_does_not_fit_its_job_is_refused() {
    assert_eq!(mismatch(|outputs| outputs[0].is_covered = false), OutputMismatch::NotCovered);
    assert_eq!(mismatch(|outputs| outputs[1].is_covered = true), OutputMismatch::UnexpectedCoverage);
    assert_eq!(mismatch(|outputs| outputs[1].level = 3), OutputMismatch::JobLevel(2));
    assert_eq!(mismatch(|outputs| outputs[0].level = 4), OutputMismatch::Level(1));
    let at_level_1 = |outputs: &mut Vec<BlockEntry>| outputs.iter_mut().for_each(|output| output.level = 1);
    assert_eq!(mismatch(at_level_1), OutputMismatch::UnexpectedCoverage);
    let uncovered_at_level_1 = |outputs: &mut Vec<BlockEntry>| {
        at_level_1(outputs);
        outputs[0].is_covered = false;
    };
    assert_eq!(mismatch(uncovered_at_level_1), OutputMismatch::UnexpectedTier(Tier::FiveMinutes));
    let without_raw = |outputs: &mut Vec<BlockEntry>| drop(outputs.remove(0));
    assert_eq!(mismatch(without_raw), OutputMismatch::UnexpectedTier(Tier::FiveMinutes));
    let a: TenantId = "a".parse().unwrap();
    for change in [(|span| span.min_time = 5) as fn(&mut TenantSpan), |span| span.max_time *= 2] {
        let changed = |outputs: &mut Vec<BlockEntry>| change(&mut outputs[1].tenants[0]);
        assert_eq!(mismatch(changed), OutputMismatch::BucketTimes(a.clone()));
    }
}

#[test]
fn each_tier_conserves_the_rows_of_the_uncovered_inputs() {
    let lost = |tier: Tier, count: ConservedCount, outputs: u64| {
        let inputs = if count == ConservedCount::Sum { SUM.wrapping_mul(2) } else { 2 };
        CommandError::TierNotConserved {
            tier,
            tenant: "a".parse().unwrap(),
            count,
            inputs,
            outputs,
            dropped: 0,
        }
    };
    for (index, tier) in Tier::DOWNSAMPLED.into_iter().enumerate() {
        let changed =
            |change: fn(&mut TenantSpan)| refusal(|outputs, _| change(&mut outputs[index + 1].tenants[0]));
        assert_eq!(changed(|span| span.profiles = 1), lost(tier, ConservedCount::Profiles, 1));
        assert_eq!(changed(|span| span.profiles = 3), lost(tier, ConservedCount::Profiles, 3));
        assert_eq!(changed(|span| span.sum = Some(7)), lost(tier, ConservedCount::Sum, 7));
        let absent = refusal(|outputs, _| drop(outputs.remove(index + 1)));
        assert_eq!(absent, lost(tier, ConservedCount::Profiles, 0));
    }
}

#[test]
fn dropped_rows_count_as_those_of_covered_or_uncovered_inputs() {
    let drop_one = |is_covered: bool| {
        refusal(|outputs, dropped| {
            let rows = DroppedRows {
                tenant: "a".parse().unwrap(),
                reason: DropReason::Duplicate,
                profiles: 1,
                samples: 2,
                sum: SUM,
                is_covered,
            };
            dropped.push(rows);
            let kept = &mut outputs[0].tenants[0];
            (kept.profiles, kept.samples, kept.sum) = (1, 2, Some(SUM));
            outputs[0].samples = 2;
        })
    };
    let tenant: TenantId = "a".parse().unwrap();
    let too_many = CommandError::TooManyCoveredDropped { tenant: tenant.clone(), dropped: 1, inputs: 0 };
    assert_eq!(drop_one(true), too_many);
    let doubled = CommandError::TierNotConserved {
        tier: Tier::FiveMinutes,
        tenant,
        count: ConservedCount::Profiles,
        inputs: 2,
        outputs: 2,
        dropped: 1,
    };
    assert_eq!(drop_one(false), doubled, "the tiers hold the dropped row");
}

#[test]
fn merge_of_covered_and_late_rows_adds_the_late_rows_to_the_tiers() {
    let mut state = two_blocks();
    cover_both(&mut state, 2);
    let late = BlockEntry { tenants: spans(&["a"]), ..block(20, 20, 30) };
    register(&mut state, late.clone());
    let inputs = listed(&state, &[10, 20]);
    let token = token(&mut state, NOW, JobParts::from_entries(&inputs));
    let raw = merged(&inputs, 30..31, true, token);
    let all = covered(raw.clone(), 2, 31..40);
    let first = refused(finish(&mut state, token, all));
    let inputs_of_tier = CommandError::TierNotConserved {
        tier: Tier::FiveMinutes,
        tenant: "a".parse().unwrap(),
        count: ConservedCount::Profiles,
        inputs: 1,
        outputs: 3,
        dropped: 0,
    };
    assert_eq!(first, inputs_of_tier, "the covered rows are in the tiers already");
    let mut outputs = covered(raw, 2, 31..40);
    for output in &mut outputs[1..] {
        let span = &mut output.tenants[0];
        (span.profiles, span.samples, span.sum) = (1, 2, Some(SUM));
        output.samples = 2;
    }
    assert_eq!(finish(&mut state, token, outputs), CommandResult::Changed(6));
    assert_eq!(state.blocks().filter(|block| !block.tier.is_raw()).count(), 6);
}

#[test]
fn rows_are_compared_with_covered_blocks_of_their_times() {
    let mut state = two_blocks();
    add_covered(&mut state, 3, 20, 5, 9);
    add_covered(&mut state, 4, 30, 9, 12);
    add_covered(&mut state, 5, 40, 10, 12);
    let inputs = listed(&state, &[1, 2]);
    let mut next_output = 60;
    let mut finish_with = |state: &mut CatalogState, compared: &[u128]| {
        let token = token(state, NOW, JobParts::from_entries(&inputs));
        let first = next_output;
        next_output += 10;
        let outputs = covered(merged(&inputs, first..first + 1, true, token), 2, first + 1..first + 10);
        let compared = compared.iter().copied().map(id).collect();
        let dropped = Vec::new();
        state.apply(NOW, CatalogCommand::FinishJob { token, outputs, dropped, compared })
    };
    let refusals = [(&[][..], 30, 60), (&[30], 40, 70), (&[40, 50], 30, 80)];
    for (compared, missing, refused_output) in refusals {
        assert_eq!(finish_with(&mut state, compared), CommandResult::NotCompared(id(missing)));
        assert!(state.tombstones.contains_key(&id(refused_output)), "the outputs never register");
        assert_eq!(state.compaction.claims.len(), 0, "the claim ends without a failure");
        assert_eq!(state.compaction.failed_part_count(), 0);
    }
    let too_many: Vec<u128> = (0..=crate::MAX_COMPARED_BLOCKS as u128).collect();
    let seen = too_many.len();
    let too_many = refused(finish_with(&mut state, &too_many));
    assert_eq!(too_many, CommandError::TooManyCompared { seen });
    assert_eq!(finish_with(&mut state, &[30, 40]), CommandResult::Changed(6), "block 50 is later");
}

#[tokio::test]
async fn client_gets_an_uncompared_block_as_refusal() {
    use crate::{Catalog, CatalogError, InMemoryCatalog};
    let (clock, _) = athanor_chassis::Clock::manual(NOW);
    let catalog = InMemoryCatalog::new(clock);
    let mut state = two_blocks();
    add_covered(&mut state, 3, 20, 5, 9);
    let inputs = listed(&state, &[1, 2]);
    *catalog.state() = state;
    let token = catalog.claim_parts(1, JobParts::from_entries(&inputs)).await.unwrap();
    let outputs = covered(merged(&inputs, 60..61, true, token), 2, 61..70);
    let refused = catalog.finish_job(token, outputs, Vec::new(), Vec::new()).await.unwrap_err();
    assert!(
        matches!(refused, CatalogError::Refused(CommandError::NotCompared { block }) if block == id(30)),
        "{refused}"
    );
}

#[test]
fn parts_of_two_tiers_are_not_claimed_together() {
    let mut state = two_blocks();
    cover_both(&mut state, 2);
    let mixed = refused(claim(&mut state, NOW, 1, parts(&[(10, "a"), (11, "a")])));
    let expected =
        CommandError::MixedTiers { part: part(11, "a"), tier: Tier::FiveMinutes, expected: Tier::Raw };
    assert_eq!(mixed, expected);
}

/// Merges two blocks of the hour tier at a level. The change is applied to the output.
fn merge_hours(level: u8, change: impl Fn(&mut BlockEntry)) -> CommandResult {
    let mut state = two_blocks();
    cover_both(&mut state, 2);
    add_covered(&mut state, 3, 20, 10, 12);
    let inputs = listed(&state, &[12, 32]);
    let token = token(&mut state, NOW, JobParts::from_entries(&inputs));
    let output = merged(&inputs, 50..51, true, token).remove(0);
    let mut output = BlockEntry { tier: Tier::OneHour, level, ..output };
    change(&mut output);
    let result = finish(&mut state, token, vec![output]);
    state.check().unwrap();
    result
}

#[test]
fn merge_of_a_tier_conserves_profiles_and_sum_and_may_add_up_samples() {
    assert_eq!(merge_hours(3, |_| ()), CommandResult::Changed(3));
    assert_eq!(merge_hours(4, |_| ()), CommandResult::Changed(3));
    let set_samples = |samples: u64| {
        move |output: &mut BlockEntry| {
            output.samples = samples;
            output.tenants[0].samples = samples;
        }
    };
    assert_eq!(merge_hours(3, set_samples(1)), CommandResult::Changed(3));
    let lost = |result: CommandResult, expected: ConservedCount| match refused(result) {
        CommandError::RowsNotConserved { count, .. } => assert_eq!(count, expected),
        other => panic!("{other}"),
    };
    lost(merge_hours(3, set_samples(7)), ConservedCount::Samples);
    lost(merge_hours(3, |output| output.tenants[0].profiles -= 1), ConservedCount::Profiles);
    lost(merge_hours(3, |output| output.tenants[0].sum = Some(1)), ConservedCount::Sum);
}

#[test]
fn merge_of_a_tier_writes_that_tier_at_level_3_or_4() {
    let mismatch = |result: CommandResult| match refused(result) {
        CommandError::OutputMismatch { mismatch, .. } => mismatch,
        other => panic!("{other}"),
    };
    assert_eq!(mismatch(merge_hours(2, |_| ())), OutputMismatch::TierLevel(3));
    assert_eq!(mismatch(merge_hours(5, |_| ())), OutputMismatch::TierLevel(3));
    let of_tier = |tier: Tier| move |output: &mut BlockEntry| output.tier = tier;
    assert_eq!(mismatch(merge_hours(3, of_tier(Tier::OneDay))), OutputMismatch::Tier(Tier::OneHour));
    assert_eq!(mismatch(merge_hours(3, of_tier(Tier::Raw))), OutputMismatch::Tier(Tier::OneHour));
    let marked = merge_hours(3, |output| output.is_covered = true);
    assert_eq!(mismatch(marked), OutputMismatch::UnexpectedCoverage);
    let moved = merge_hours(3, |output| output.tenants[0].max_time += Tier::OneHour.bucket_nanos());
    assert_eq!(mismatch(moved), OutputMismatch::BucketTimes("a".parse().unwrap()));
}

#[test]
fn flushed_block_is_neither_downsampled_nor_covered() {
    let mut state = opened();
    let wrong = [
        BlockEntry { tier: Tier::OneDay, ..block(1, 0, 10) },
        BlockEntry { is_covered: true, ..block(1, 0, 10) },
    ];
    for block in wrong {
        assert_eq!(refused(register(&mut state, block)), CommandError::InvalidTier(id(1)));
    }
}

#[test]
fn finish_of_an_older_version_is_read() {
    let bytes = br#"{"format":2,"time":0,"command":{"finish_job":{"token":7,"outputs":[],"dropped":[{"tenant":"a","reason":"expired","profiles":1,"samples":2,"sum":3}]}}}"#;
    let entry = CatalogLogEntry::decode(bytes).unwrap();
    let CatalogCommand::FinishJob { compared, dropped, .. } = &entry.command else { panic!("{entry:?}") };
    assert!(compared.is_empty() && !dropped[0].is_covered);
    assert_eq!(entry.encode(), bytes);
}
