//! Claims of parts: leases, tokens, failures, quarantine.

use super::jobs::*;
use super::*;
use crate::compaction::PartFailures;

const SECOND: Duration = Duration::from_secs(1);

fn after_lease(state: &CatalogState) -> Timestamp {
    state.time().plus(JOB_LEASE)
}

fn fail(state: &mut CatalogState, token: u64, culprit: Option<crate::PartId>) -> CommandResult {
    let at = state.time();
    state.apply(at, CatalogCommand::FailJob { token, reason: "out of memory".to_owned(), culprit })
}

fn failures(state: &CatalogState, number: u128, tenant: &str) -> PartFailures {
    state.compaction.part_failures(&part(number, tenant)).cloned().unwrap()
}

#[test]
fn part_is_under_one_running_lease() {
    let mut state = filled();
    let first = token(&mut state, NOW, parts(&[(1, "a"), (2, "a")]));
    assert_eq!(first, state.revision());
    let taken = CommandError::PartClaimed { part: part(2, "a"), token: first };
    assert_eq!(refused(claim(&mut state, NOW, 2, parts(&[(2, "a"), (3, "a")]))), taken);
    // Other tenants of the same blocks, and other blocks, are free.
    assert!(matches!(claim(&mut state, NOW, 2, parts(&[(1, "b"), (2, "b")])), CommandResult::Claimed(_)));
    assert!(matches!(claim(&mut state, NOW, 3, parts(&[(3, "a")])), CommandResult::Claimed(_)));
    let last_second = NOW.plus(JOB_LEASE - SECOND);
    assert_eq!(refused(claim(&mut state, last_second, 2, parts(&[(2, "a")]))), taken);
    assert!(matches!(
        claim(&mut state, NOW.plus(JOB_LEASE), 2, parts(&[(2, "a")])),
        CommandResult::Claimed(_)
    ));
    assert_eq!(state.compaction.claims.len(), 3);
}

#[test]
fn retry_of_claim_returns_its_token() {
    let mut state = filled();
    let first = token(&mut state, NOW, parts(&[(1, "a")]));
    let before = state.clone();
    assert_eq!(claim(&mut state, NOW, 1, parts(&[(1, "a")])), CommandResult::Claimed(first));
    assert_eq!(state, before);
    let taken = CommandError::PartClaimed { part: part(1, "a"), token: first };
    assert_eq!(refused(claim(&mut state, NOW, 2, parts(&[(1, "a")]))), taken, "another worker");
    // After its lease the claim is a new one, and the first one has failed.
    let late = after_lease(&state);
    let second = token(&mut state, late, parts(&[(1, "a")]));
    assert_ne!(first, second);
    assert_eq!(failures(&state, 1, "a").count, 1);
}

#[test]
fn claim_of_unusable_parts_is_refused() {
    let mut state = filled();
    let unlisted = claim(&mut state, NOW, 1, parts(&[(1, "a"), (1, "c")]));
    assert_eq!(refused(unlisted), CommandError::PartNotListed(part(1, "c")));
    assert_eq!(
        refused(claim(&mut state, NOW, 1, parts(&[(9, "a")]))),
        CommandError::PartNotListed(part(9, "a"))
    );
    assert_eq!(
        refused(claim(&mut state, NOW, 1, JobParts::default())),
        CommandError::InvalidJobParts { seen: 0 }
    );
    let right = parts(&[(1, "a"), (2, "a")]);
    let mut unordered = right.clone();
    unordered.blocks.reverse();
    let mut repeated = right.clone();
    repeated.tenants.values_mut().for_each(|indexes| indexes.push(1));
    let mut without_block = right.clone();
    without_block.tenants.values_mut().for_each(|indexes| indexes.push(2));
    let mut unused_block = right;
    unused_block.tenants.values_mut().for_each(|indexes| indexes.truncate(1));
    for invalid in [unordered, repeated, without_block, unused_block] {
        let error = refused(claim(&mut state, NOW, 1, invalid));
        assert!(matches!(error, CommandError::InvalidJobParts { .. }), "{error}");
    }
    let many = (0..=crate::MAX_JOB_PARTS as u128).map(|number| part(number, "a")).collect();
    assert_eq!(
        refused(claim(&mut state, NOW, 1, many)),
        CommandError::InvalidJobParts { seen: crate::MAX_JOB_PARTS + 1 }
    );
}

#[test]
fn paused_compaction_claims_nothing_and_finishes_running_jobs() {
    let mut state = filled();
    let inputs = listed(&state, &[1]);
    let first = token(&mut state, NOW, JobParts::from_entries(&inputs));
    let pause =
        |state: &mut CatalogState, paused| state.apply(NOW, CatalogCommand::PauseCompaction { paused });
    assert_eq!(pause(&mut state, true), CommandResult::Changed(1));
    assert_eq!(pause(&mut state, true), CommandResult::Changed(0));
    assert_eq!(refused(claim(&mut state, NOW, 1, parts(&[(3, "a")]))), CommandError::CompactionPaused);
    let renewed =
        state.apply(NOW.plus(SECOND), CatalogCommand::RenewLeases { worker: 1, tokens: vec![first] });
    assert_eq!(renewed, CommandResult::Changed(1));
    let outputs = merged(&inputs, 10..11, false, first);
    assert_eq!(finish(&mut state, first, outputs), CommandResult::Changed(3));
    assert_eq!(pause(&mut state, false), CommandResult::Changed(1));
    assert!(matches!(claim(&mut state, NOW, 1, parts(&[(3, "a")])), CommandResult::Claimed(_)));
}

#[test]
fn finish_after_its_lease_is_accepted_if_nobody_else_claimed() {
    let mut state = filled();
    let inputs = listed(&state, &[1, 2]);
    let first = token(&mut state, NOW, JobParts::from_entries(&inputs));
    let late = after_lease(&state).plus(SECOND);
    state.apply(late, CatalogCommand::ExpireTombstones);
    assert_eq!(finish(&mut state, first, merged(&inputs, 10..11, false, first)), CommandResult::Changed(5));
    assert_eq!(state.compaction.failed_part_count(), 0);
}

#[test]
fn finish_after_another_claim_is_refused() {
    let mut state = filled();
    let inputs = listed(&state, &[1, 2]);
    let first = token(&mut state, NOW, JobParts::from_entries(&inputs));
    let late = after_lease(&state);
    let CommandResult::Claimed(second) = claim(&mut state, late, 2, parts(&[(2, "a")])) else {
        panic!("not claimed")
    };
    let ended = CommandError::ClaimEnded { token: first };
    let before = state.clone();
    assert_eq!(refused(finish(&mut state, first, merged(&inputs, 10..11, false, first))), ended);
    // Neither does another token help, nor one that nobody got.
    let stolen = finish(&mut state, second, merged(&inputs, 10..11, false, first));
    assert!(matches!(refused(stolen), CommandError::OutputMismatch { .. }));
    let invented = CommandError::ClaimEnded { token: 99 };
    assert_eq!(refused(finish(&mut state, 99, merged(&inputs, 10..11, false, 99))), invented);
    assert_eq!(refused(fail(&mut state, first, None)), ended);
    assert_eq!(state, before);
    // Each part of the superseded job has failed once.
    assert_eq!((failures(&state, 1, "a").count, failures(&state, 2, "b").count), (1, 1));
    assert_eq!(failures(&state, 1, "a").reason, "lease expired");
}

#[test]
fn one_command_renews_all_leases_of_a_worker() {
    let mut state = filled();
    let first = token(&mut state, NOW, parts(&[(1, "a")]));
    let second = token(&mut state, NOW, parts(&[(2, "a")]));
    let CommandResult::Claimed(foreign) = claim(&mut state, NOW, 2, parts(&[(3, "a")])) else {
        panic!("not claimed")
    };
    let renew = |state: &mut CatalogState, at: Timestamp, worker| {
        state.apply(at, CatalogCommand::RenewLeases { worker, tokens: vec![first, second, foreign, 99] })
    };
    // One that ran out is renewed as long as nobody claimed its part.
    let late = after_lease(&state).plus(SECOND);
    assert_eq!(renew(&mut state, late, 1), CommandResult::Changed(2));
    let before = state.clone();
    assert_eq!(renew(&mut state, late, 1), CommandResult::Changed(2), "a retry changes nothing");
    assert_eq!(state, before);
    let taken = CommandError::PartClaimed { part: part(1, "a"), token: first };
    assert_eq!(refused(claim(&mut state, late, 2, parts(&[(1, "a")]))), taken);
    assert!(matches!(claim(&mut state, late, 1, parts(&[(3, "a")])), CommandResult::Claimed(_)));
    assert_eq!(renew(&mut state, late, 2), CommandResult::Changed(0));
}

#[test]
fn job_is_halved_down_to_one_part_which_is_quarantined() {
    let mut state = filled();
    let all = [(1, "a"), (2, "a"), (3, "a"), (4, "a")];
    for (size, expected) in [(4, 2), (2, 1), (1, 1)] {
        for count in 1..=3 {
            let token = token(&mut state, NOW, parts(&all[..size]));
            fail(&mut state, token, None);
            let first = failures(&state, 1, "a");
            let is_last = count == MAX_PART_FAILURES;
            assert_eq!(first.max_parts == expected || size == 1, is_last || size == 1, "{size} {count}");
            assert_eq!(first.is_quarantined, is_last && size == 1);
        }
    }
    assert_eq!((failures(&state, 3, "a").max_parts, failures(&state, 2, "a").max_parts), (2, 1));
    let quarantined = CommandError::PartQuarantined(part(1, "a"));
    assert_eq!(refused(claim(&mut state, NOW, 1, parts(&all[..2]))), quarantined);
    assert_eq!(numbers(&state, "a"), [1, 2, 3, 4], "queries still read it");
    let retry = |state: &mut CatalogState, parts| state.apply(NOW, CatalogCommand::RetryParts { parts });
    assert_eq!(retry(&mut state, vec![part(1, "a"), part(1, "b")]), CommandResult::Changed(1));
    assert!(matches!(claim(&mut state, NOW, 1, parts(&all[..1])), CommandResult::Claimed(_)));
    assert_eq!(retry(&mut state, Vec::new()), CommandResult::Changed(3));
    assert_eq!(retry(&mut state, Vec::new()), CommandResult::Changed(0));
}

#[test]
fn known_culprit_alone_is_counted_and_quarantined() {
    let mut state = filled();
    for _ in 0..3 {
        let token = token(&mut state, NOW, parts(&[(1, "a"), (2, "a"), (3, "a")]));
        fail(&mut state, token, Some(part(2, "a")));
    }
    assert_eq!(state.compaction.failed_part_count(), 1);
    assert!(failures(&state, 2, "a").is_quarantined);
    let token = token(&mut state, NOW, parts(&[(1, "a"), (3, "a")]));
    // One that is not in the job is unknown.
    fail(&mut state, token, Some(part(4, "a")));
    assert_eq!(state.compaction.failed_part_count(), 3);
}

#[test]
fn third_expired_lease_limits_the_part_instead_of_claiming_it() {
    let mut state = filled();
    token(&mut state, NOW, parts(&[(1, "a")]));
    for expected in [1, 2] {
        let late = after_lease(&state);
        token(&mut state, late, parts(&[(1, "a")]));
        assert_eq!(failures(&state, 1, "a").count, expected);
    }
    let revision = state.revision();
    let late = after_lease(&state);
    let limit = CommandResult::FailureLimit(part(1, "a"));
    assert_eq!(claim(&mut state, late, 1, parts(&[(1, "a"), (2, "a")])), limit);
    assert_eq!(state.revision(), revision + 1);
    assert!(state.compaction.claims.is_empty() && failures(&state, 1, "a").is_quarantined);
}

#[test]
fn reason_of_failure_is_truncated_between_characters() {
    let mut state = filled();
    let token = token(&mut state, NOW, parts(&[(1, "a")]));
    let reason = format!("a{}", "ä".repeat(400));
    state.apply(NOW, CatalogCommand::FailJob { token, reason: reason.clone(), culprit: None });
    let kept = failures(&state, 1, "a").reason;
    assert!(kept.len() == 299 && reason.starts_with(&kept));
}

#[test]
fn finished_job_forgets_the_failures_of_its_parts() {
    let mut state = filled();
    let inputs = listed(&state, &[1, 2]);
    let first = token(&mut state, NOW, JobParts::from_entries(&inputs));
    fail(&mut state, first, None);
    assert_eq!(state.compaction.failed_part_count(), 4);
    merge(&mut state, &[1, 2], 10..11, false);
    assert_eq!(state.compaction.failed_part_count(), 0);
}

#[test]
fn removed_block_ends_claims_on_its_parts_without_a_failure() {
    let remove = [
        CatalogCommand::TombstoneBlocks { blocks: vec![BlockId::from_number(2)], tenant: None },
        CatalogCommand::ExpireBlocks { retention: RetentionPolicy::uniform(SECOND), max_percent: None },
    ];
    for command in remove {
        let mut state = filled();
        let inputs = listed(&state, &[1, 2]);
        let failed = token(&mut state, NOW, parts(&[(2, "a")]));
        fail(&mut state, failed, None);
        let first = token(&mut state, NOW, JobParts::from_entries(&inputs));
        state.apply(NOW.plus(SECOND * 2), command);
        let ended = CommandError::ClaimEnded { token: first };
        assert_eq!(refused(finish(&mut state, first, merged(&inputs, 10..11, false, first))), ended);
        assert_eq!(refused(fail(&mut state, first, None)), ended);
        let at = state.time();
        let renewed = state.apply(at, CatalogCommand::RenewLeases { worker: 1, tokens: vec![first] });
        assert_eq!(renewed, CommandResult::Changed(0));
        assert_eq!(state.compaction.failed_part_count(), 0);
        // A restored block can be claimed again, under another token.
        if state.apply(at, CatalogCommand::RestoreBlocks { blocks: Vec::new() }) == CommandResult::Changed(4)
        {
            assert!(matches!(claim(&mut state, at, 2, parts(&[(2, "a")])), CommandResult::Claimed(_)));
            assert_eq!(refused(finish(&mut state, first, merged(&inputs, 10..11, false, first))), ended);
        }
    }
}

#[test]
fn failures_of_at_most_twenty_thousand_parts_are_recorded() {
    let mut state = opened();
    let names: Vec<String> = (0..12_000).map(|number| format!("tenant-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for number in [1_u64, 2] {
        let block = BlockEntry { tenants: spans(&names), ..block(u128::from(number), number - 1, number) };
        assert_eq!(register(&mut state, block), CommandResult::Registered(number));
        let inputs = listed(&state, &[u128::from(number)]);
        let token = token(&mut state, NOW, JobParts::from_entries(&inputs));
        fail(&mut state, token, None);
    }
    assert_eq!(state.compaction.failed_part_count(), MAX_FAILED_PARTS);
    // The other parts can be claimed as before.
    merge(&mut state, &[2], 10..11, false);
    assert_eq!(state.compaction.failed_part_count(), 12_000);
}
