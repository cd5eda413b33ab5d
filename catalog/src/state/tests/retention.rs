//! Removal by age: what expires, how much per hour, what can be restored, what listings say.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// A state with blocks of an hour each, of two tenants in turn, all named at the epoch.
fn filled(count: u64) -> CatalogState {
    let mut state = opened();
    for number in 0..count {
        let mut entry = block(u128::from(number), number, number + 1);
        let begin = number as i64 * 100;
        (entry.tenants[0].min_time, entry.tenants[0].max_time) = (begin, begin + 99);
        if number % 2 == 1 {
            entry.tenants[0].tenant = "other".parse().unwrap();
        }
        assert_eq!(register(&mut state, entry), CommandResult::Registered(number + 1));
    }
    state
}

fn expire(state: &mut CatalogState, at: Timestamp, max_percent: Option<u8>) -> usize {
    match state.apply(
        at,
        CatalogCommand::ExpireBlocks { retention: RetentionPolicy::uniform(RETENTION), max_percent },
    ) {
        CommandResult::Changed(count) => count,
        other => panic!("{other:?}"),
    }
}

#[test]
fn block_expires_when_its_data_and_its_name_are_old() {
    let begin = Timestamp::from_seconds(1_700_000_000);
    let named = BlockId::new(begin, &athanor_chassis::Random::from_seed(1));
    let overdue = |max_time: i64, at: Timestamp, retention: Duration| {
        let mut state = opened();
        let mut entry = BlockEntry { id: named, ..block(1, 0, 10) };
        entry.tenants[0].max_time = max_time;
        assert_eq!(
            state.apply(begin, CatalogCommand::RegisterBlock { block: entry }),
            CommandResult::Registered(10)
        );
        state.block_ages(at, &RetentionPolicy::uniform(retention)).overdue
    };
    assert_eq!(overdue(9, begin.plus(DAY), DAY), 0);
    assert_eq!(overdue(9, begin.plus(DAY + Duration::from_millis(2)), DAY), 1);
    assert_eq!(overdue(9, begin.plus(DAY * 100), Duration::ZERO), 0, "zero keeps blocks for ever");
    assert_eq!(overdue(begin.plus(DAY).nanos(), begin.plus(DAY * 2), DAY), 0, "its data is younger");
}

#[test]
fn hour_expires_a_share_of_all_blocks_unless_an_operator_asks() {
    let mut state = filled(40);
    let late = NOW.plus(RETENTION + DAY);
    assert_eq!(expire(&mut state, late, Some(5)), 2);
    assert_eq!(expire(&mut state, late.plus(HOUR / 2), Some(5)), 0);
    assert_eq!(expire(&mut state, late.plus(HOUR), Some(5)), 2);
    assert_eq!(expire(&mut state, late.plus(HOUR), None), 36);
}

#[test]
fn changed_retention_expires_no_more_in_the_same_hour() {
    let mut state = filled(40);
    let late = NOW.plus(RETENTION + DAY);
    assert_eq!(expire(&mut state, late, Some(5)), 2);
    let changed = RETENTION + Duration::from_secs(1);
    let command =
        CatalogCommand::ExpireBlocks { retention: RetentionPolicy::uniform(changed), max_percent: Some(5) };
    assert_eq!(state.apply(late.plus(HOUR / 2), command.clone()), CommandResult::Changed(0));
    assert_eq!(state.apply(late.plus(HOUR), command), CommandResult::Changed(2));
}

#[test]
fn short_retention_expires_as_fast_as_blocks_come() {
    let mut state = filled(40);
    let retention = HOUR * 8;
    let expire = |state: &mut CatalogState| {
        state.apply(
            NOW.plus(DAY),
            CatalogCommand::ExpireBlocks {
                retention: RetentionPolicy::uniform(retention),
                max_percent: Some(5),
            },
        )
    };
    assert_eq!(expire(&mut state), CommandResult::Changed(10), "a quarter an hour: twice an eighth");
    assert_eq!(expire(&mut state), CommandResult::Changed(0));
}

#[test]
fn expired_block_is_restorable_until_it_is_purged() {
    let mut state = filled(4);
    let late = NOW.plus(RETENTION + DAY);
    let [first, second] = [0, 1].map(BlockId::from_number);
    assert_eq!(expire(&mut state, late, None), 4);
    assert_eq!(state.block_ages(late, &RetentionPolicy::uniform(RETENTION)).expired.len(), 4);
    let forgotten = state.apply(late.plus(TOMBSTONE_RETENTION), CatalogCommand::ExpireTombstones);
    assert_eq!(forgotten, CommandResult::Changed(0), "an expired block is never forgotten");
    assert_eq!(state.apply(late, purge(late, vec![first])), CommandResult::Changed(1));
    let restore =
        |state: &mut CatalogState, blocks| state.apply(late, CatalogCommand::RestoreBlocks { blocks });
    assert_eq!(restore(&mut state, vec![first]), CommandResult::Refused(CommandError::NotExpired(first)));
    assert_eq!(restore(&mut state, vec![second]), CommandResult::Changed(1));
    assert_eq!(restore(&mut state, vec![second]), CommandResult::Changed(0), "again changes nothing");
    assert_eq!(restore(&mut state, Vec::new()), CommandResult::Changed(2));
    assert_eq!(state.blocks().count(), 3);
    let restored = state.time();
    assert_eq!(expire(&mut state, restored.plus(RETENTION), None), 0, "age counts from the restoration");
    assert_eq!(expire(&mut state, restored.plus(RETENTION + HOUR), None), 3);
}

#[test]
fn restore_skips_rows_that_a_listed_block_holds() {
    let mut state = filled(1);
    expire(&mut state, NOW.plus(RETENTION + DAY), None);
    // As after a rebuild, which found a block that was made of it later.
    let made = BlockEntry { level: 1, ..block(99, 0, 1) };
    state.blocks.insert(made.id, made);
    assert_eq!(
        state.apply(NOW, CatalogCommand::RestoreBlocks { blocks: Vec::new() }),
        CommandResult::Changed(0)
    );
}

fn removed(state: &CatalogState, tenant: &TenantId, from: i64, to: i64) -> Option<(i64, i64)> {
    state.list_blocks(tenant, from, to).removed.map(|times| (times.first, times.last))
}

#[test]
fn listing_names_removed_times_of_its_tenant_and_range_only() {
    let mut state = filled(5);
    let late = NOW.plus(RETENTION + DAY);
    let (one, other): (TenantId, TenantId) = (TenantId::anonymous(), "other".parse().unwrap());
    assert_eq!(removed(&state, &one, 0, i64::MAX), None);
    // Blocks 0, 1 and 2 expire.
    assert_eq!(expire(&mut state, late, Some(60)), 3);
    let check = |state: &CatalogState| {
        assert_eq!(removed(state, &one, 0, i64::MAX), Some((0, 299)));
        assert_eq!(removed(state, &other, 0, i64::MAX), Some((100, 199)));
        assert_eq!(removed(state, &one, 300, i64::MAX), None);
        assert_eq!(removed(state, &other, 200, i64::MAX), None);
        assert_eq!(removed(state, &"third".parse().unwrap(), 0, i64::MAX), None);
    };
    check(&state);
    state.apply(late, purge(late, (0..3).map(BlockId::from_number).collect()));
    check(&state);
    let state = CatalogState::decode(&state.encode()).unwrap();
    check(&state);
}

#[test]
fn restored_block_is_not_named_as_removed() {
    let mut state = filled(1);
    expire(&mut state, NOW.plus(RETENTION + DAY), None);
    assert!(state.list_blocks(&TenantId::anonymous(), 0, 99).removed.is_some());
    state.apply(NOW, CatalogCommand::RestoreBlocks { blocks: Vec::new() });
    assert_eq!(state.list_blocks(&TenantId::anonymous(), 0, 99).removed, None);
}

/// Merges block 0 of [`filled`] into covered block 10, and into blocks of the tiers.
fn cover_first(state: &mut CatalogState, level: u8) {
    let inputs = jobs::listed(state, &[0]);
    let token = jobs::token(state, NOW, JobParts::from_entries(&inputs));
    let outputs = jobs::covered(jobs::merged(&inputs, 10..11, true, token), level, 11..20);
    assert_eq!(jobs::finish(state, token, outputs), CommandResult::Changed(5));
}

fn kept_days(raw: u32, five_minutes: u32, one_hour: u32, one_day: u32) -> TierRetention {
    TierRetention {
        raw: DAY * raw,
        five_minutes: DAY * five_minutes,
        one_hour: DAY * one_hour,
        one_day: DAY * one_day,
    }
}

fn policy(default: TierRetention) -> RetentionPolicy {
    RetentionPolicy { default, tenants: BTreeMap::new() }
}

fn listed_tiers(state: &CatalogState) -> Vec<Tier> {
    state.blocks().map(|block| block.tier).collect()
}

#[test]
fn each_tier_expires_by_its_own_retention() {
    let mut state = filled(1);
    cover_first(&mut state, 3);
    let retention = policy(kept_days(7, 30, 90, 0));
    let mut expire = |days: u32| {
        let at = NOW.plus(DAY * days + DAY);
        let command = CatalogCommand::ExpireBlocks { retention: retention.clone(), max_percent: None };
        state.apply(at, command);
        listed_tiers(&state)
    };
    assert_eq!(expire(6), Tier::ALL);
    assert_eq!(expire(8), Tier::DOWNSAMPLED);
    assert_eq!(expire(31), [Tier::OneHour, Tier::OneDay]);
    assert_eq!(expire(91), [Tier::OneDay]);
    assert_eq!(expire(4000), [Tier::OneDay], "zero keeps blocks for ever");
}

#[test]
fn uncovered_rows_stay_while_a_tier_is_kept_longer() {
    let mut state = filled(2);
    let late = NOW.plus(DAY * 8);
    let report = |state: &CatalogState, retention: TierRetention| {
        let report = state.block_ages(late, &policy(retention));
        (report.overdue, report.kept_for_tiers)
    };
    assert_eq!(report(&state, kept_days(7, 7, 7, 7)), (2, 0));
    assert_eq!(report(&state, kept_days(7, 1, 7, 7)), (2, 0));
    assert_eq!(report(&state, kept_days(7, 7, 8, 7)), (0, 2));
    assert_eq!(report(&state, kept_days(7, 7, 7, 0)), (0, 2), "a tier is kept for ever");
    assert_eq!(report(&state, kept_days(0, 0, 0, 0)), (0, 0));
    let oldest = state.block_ages(late, &policy(kept_days(7, 7, 8, 7))).oldest_kept_for_tiers;
    assert_eq!(oldest, Some(Timestamp::from_nanos(99)));
    let retention = policy(kept_days(7, 7, 8, 7));
    let command = CatalogCommand::ExpireBlocks { retention: retention.clone(), max_percent: None };
    assert_eq!(state.clone().apply(late, command.clone()), CommandResult::Changed(0));
    cover_first(&mut state, 3);
    let expired = state.apply(late, command);
    assert_eq!(expired, CommandResult::Changed(2), "raw, and the tier of 5 minutes");
    assert_eq!(state.block_ages(late, &retention).kept_for_tiers, 1);
}

/// Catalog with one flushed block of tenants a and b, and a policy that keeps rows of a as given and those of
/// others for a week.
fn shared_block() -> CatalogState {
    let mut state = opened();
    let shared = BlockEntry { tenants: jobs::spans(&["a", "b"]), samples: 4, ..block(1, 0, 10) };
    register(&mut state, shared);
    state
}

fn with_a(retention: TierRetention) -> RetentionPolicy {
    RetentionPolicy { default: kept_days(7, 7, 7, 7), tenants: [("a".parse().unwrap(), retention)].into() }
}

fn expire_with(state: &mut CatalogState, days: u32, retention: RetentionPolicy) -> CommandResult {
    let command = CatalogCommand::ExpireBlocks { retention, max_percent: None };
    state.apply(NOW.plus(DAY * days), command)
}

fn listed_tenants(state: &CatalogState) -> Vec<&str> {
    state.blocks().flat_map(|block| &block.tenants).map(|span| span.tenant.as_str()).collect()
}

#[test]
fn each_part_expires_by_the_retention_of_its_tenant() {
    let report = |days: u32, retention: TierRetention| {
        let report = shared_block().block_ages(NOW.plus(DAY * days), &with_a(retention));
        (report.overdue, report.kept_for_tiers)
    };
    assert_eq!(report(7, kept_days(10, 10, 10, 10)), (0, 0));
    assert_eq!(report(8, kept_days(10, 10, 10, 10)), (1, 0), "the part of b");
    assert_eq!(report(6, kept_days(5, 5, 5, 5)), (1, 0), "the part of a");
    assert_eq!(report(4000, kept_days(0, 0, 0, 0)), (1, 0));
    assert_eq!(report(6, kept_days(5, 20, 5, 5)), (0, 1), "its tier of 5 minutes is kept longer");
    let mut state = shared_block();
    let policy = with_a(kept_days(2, 2, 2, 2));
    assert_eq!(expire_with(&mut state, 3, policy.clone()), CommandResult::Changed(1));
    assert_eq!(listed_tenants(&state), ["b"]);
    assert!(state.tombstones().next().is_none(), "the block stays listed for b");
    assert_eq!(removed(&state, &"a".parse().unwrap(), 0, 99), Some((5, 9)));
    assert_eq!(removed(&state, &"b".parse().unwrap(), 0, 99), None);
    assert_eq!(expire_with(&mut state, 7, policy.clone()), CommandResult::Changed(0));
    assert_eq!(expire_with(&mut state, 8, policy.clone()), CommandResult::Changed(1));
    assert_eq!(state.tombstones().count(), 1);
    let ages = state.block_ages(state.time(), &policy);
    assert_eq!((ages.restorable, ages.expired[0].since), (1, NOW.plus(DAY * 8)), "since the last part");
    let state = CatalogState::decode(&state.encode()).unwrap();
    assert_eq!(state.block_ages(state.time(), &policy), ages);
}

#[test]
fn restored_part_joins_its_block_and_ages_alone() {
    let mut state = shared_block();
    let before = state.blocks().next().unwrap().clone();
    let policy = with_a(kept_days(2, 2, 2, 2));
    expire_with(&mut state, 3, policy.clone());
    let restore = CatalogCommand::RestoreBlocks { blocks: vec![before.id] };
    assert_eq!(state.apply(state.time(), restore.clone()), CommandResult::Changed(1));
    assert_eq!(state.apply(state.time(), restore.clone()), CommandResult::Changed(0), "a retry");
    let restored = state.blocks().next().unwrap();
    assert_eq!(listed_tenants(&state), ["a", "b"]);
    assert_eq!((restored.bytes, restored.samples), (before.bytes, before.samples));
    assert_eq!(expire_with(&mut state, 5, policy.clone()), CommandResult::Changed(0), "a counts from day 3");
    assert_eq!(expire_with(&mut state, 6, policy.clone()), CommandResult::Changed(1));
    assert_eq!(expire_with(&mut state, 8, policy), CommandResult::Changed(1), "b was not restored");
    // All parts are restored together, under the tombstone of the block.
    assert_eq!(state.apply(state.time(), restore), CommandResult::Changed(1));
    assert_eq!(listed_tenants(&state), ["a", "b"]);
    assert_eq!(state.tombstones().count(), 0);
}

#[test]
fn purged_part_is_never_listed_again() {
    let mut state = shared_block();
    let id = BlockId::from_number(1);
    expire_with(&mut state, 3, with_a(kept_days(2, 2, 2, 2)));
    let purge = purge(state.time(), vec![id]);
    assert_eq!(state.apply(state.time(), purge), CommandResult::Changed(1));
    assert_eq!(removed(&state, &"a".parse().unwrap(), 0, 99), Some((5, 9)));
    let restore = CatalogCommand::RestoreBlocks { blocks: vec![id] };
    assert_eq!(state.apply(state.time(), restore), CommandResult::Changed(0));
    assert_eq!(listed_tenants(&state), ["b"]);
}

#[test]
fn block_is_purged_only_if_its_last_part_expired_before_the_given_time() {
    let mut state = shared_block();
    let id = BlockId::from_number(1);
    let [first, last] = [NOW.plus(DAY * 3), NOW.plus(DAY * 8)];
    expire_with(&mut state, 3, with_a(kept_days(2, 2, 2, 2)));
    expire_with(&mut state, 8, with_a(kept_days(2, 2, 2, 2)));
    assert_eq!(state.apply(last, purge(first, vec![id])), CommandResult::Changed(0), "b expired on day 8");
    let restore = CatalogCommand::RestoreBlocks { blocks: vec![id] };
    assert_eq!(state.clone().apply(last, restore.clone()), CommandResult::Changed(1));
    assert_eq!(state.apply(last, purge(last, vec![id])), CommandResult::Changed(1));
    assert_eq!(state.apply(last, restore), CommandResult::Refused(CommandError::NotExpired(id)));
}

#[test]
fn purge_of_an_older_version_has_no_time() {
    let bytes = br#"{"format":2,"time":0,"command":{"purge_blocks":{"blocks":[]}}}"#;
    let entry = CatalogLogEntry::decode(bytes).unwrap();
    assert_eq!(entry.command, purge(Timestamp::from_nanos(i64::MAX), Vec::new()));
    assert_eq!(CatalogLogEntry::decode(&entry.encode()).unwrap(), entry);
}

#[test]
fn expiration_of_a_part_ends_its_claim_alone() {
    let mut state = shared_block();
    let input = state.blocks().next().unwrap().clone();
    let part = |tenant: &str| {
        let tenants = input.tenants.iter().filter(|span| span.tenant.as_str() == tenant).cloned().collect();
        BlockEntry { tenants, ..input.clone() }
    };
    let late = NOW.plus(DAY * 3);
    let of_a = jobs::token(&mut state, late, JobParts::from_entries([&part("a")]));
    let of_b = jobs::token(&mut state, late, JobParts::from_entries([&part("b")]));
    expire_with(&mut state, 3, with_a(kept_days(2, 2, 2, 2)));
    let name = BlockId::earliest_at(late).number();
    let outputs = jobs::merged(&[part("a")], name..name + 1, false, of_a);
    let ended = CommandResult::Refused(CommandError::ClaimEnded { token: of_a });
    assert_eq!(jobs::finish(&mut state, of_a, outputs), ended);
    let outputs = jobs::merged(&[part("b")], name + 1..name + 2, false, of_b);
    assert_eq!(jobs::finish(&mut state, of_b, outputs), CommandResult::Changed(2));
    // The block has no listed part left. Its objects stay while the part of a can be restored.
    assert!(state.removal_report(late, late).restorable.contains(&input.id));
    let restore = CatalogCommand::RestoreBlocks { blocks: Vec::new() };
    assert_eq!(state.apply(late, restore), CommandResult::Changed(1));
    assert_eq!(listed_tenants(&state), ["a", "b"]);
}

#[test]
fn short_retention_of_a_tenant_expires_no_more_of_others() {
    let mut state = filled(80);
    let short = TierRetention::uniform(HOUR * 2);
    let retention = RetentionPolicy {
        default: TierRetention::uniform(RETENTION),
        tenants: [("other".parse().unwrap(), short)].into(),
    };
    let command = CatalogCommand::ExpireBlocks { retention, max_percent: Some(5) };
    let late = NOW.plus(RETENTION + DAY);
    assert_eq!(state.apply(late, command.clone()), CommandResult::Changed(42), "40 of one, 2 of the other");
    assert_eq!(state.apply(late, command.clone()), CommandResult::Changed(0));
    assert_eq!(state.apply(late.plus(HOUR), command), CommandResult::Changed(2));
    assert_eq!(listed_tenants(&state).len(), 36);
}

#[test]
fn expiration_of_an_older_version_has_one_duration() {
    let bytes = br#"{"format":2,"time":0,"command":{"expire_blocks":{"retention":{"secs":86400,"nanos":0},"max_percent":5}}}"#;
    let entry = CatalogLogEntry::decode(bytes).unwrap();
    let retention = RetentionPolicy::uniform(DAY);
    assert_eq!(entry.command, CatalogCommand::ExpireBlocks { retention, max_percent: Some(5) });
    assert_eq!(CatalogLogEntry::decode(&entry.encode()).unwrap(), entry);
    let mut state = filled(1);
    assert_eq!(state.apply(NOW.plus(DAY * 2), entry.command), CommandResult::Changed(1));
}

#[test]
fn snapshot_of_an_older_version_names_purged_times() {
    let encoded = String::from_utf8(CatalogState::default().encode()).unwrap();
    let empty = r#""purged_of_others":{"uncovered":null,"by_tier":{}}"#;
    let old = encoded.replacen(empty, r#""purged_of_others":{"first":3,"last":7}"#, 1);
    assert_ne!(old, encoded);
    let state = CatalogState::decode(old.as_bytes()).unwrap();
    assert_eq!(removed(&state, &TenantId::anonymous(), 0, 99), Some((3, 7)));
    let none = encoded.replacen(empty, r#""purged_of_others":null"#, 1);
    assert_eq!(CatalogState::decode(none.as_bytes()).unwrap(), CatalogState::default());
}

#[test]
fn listing_names_the_latest_removed_time_of_each_tier() {
    let mut state = filled(1);
    cover_first(&mut state, 3);
    let tenant = TenantId::anonymous();
    let end = |tier: Tier| tier.bucket_end(99);
    let expire = |state: &mut CatalogState, retention: TierRetention| {
        let retention = policy(retention);
        state.apply(NOW.plus(DAY * 8), CatalogCommand::ExpireBlocks { retention, max_percent: None });
    };
    // The listed range does not matter.
    let until = |state: &CatalogState| state.list_blocks(&tenant, 5000, 6000).expired_until;
    assert_eq!(until(&state), BTreeMap::new());
    expire(&mut state, kept_days(6, 0, 0, 0));
    assert_eq!(until(&state), [(Tier::Raw, 99)].into());
    assert_eq!(removed(&state, &tenant, 0, 99), None, "the tiers hold the rows");
    expire(&mut state, kept_days(6, 6, 6, 0));
    let finer =
        [(Tier::Raw, 99), (Tier::FiveMinutes, end(Tier::FiveMinutes)), (Tier::OneHour, end(Tier::OneHour))];
    assert_eq!(until(&state), finer.into());
    assert_eq!(removed(&state, &tenant, 0, 99), None);
    expire(&mut state, kept_days(6, 6, 6, 6));
    let check = |state: &CatalogState| {
        assert_eq!(until(state).len(), 4);
        assert_eq!(until(state)[&Tier::OneDay], end(Tier::OneDay));
        assert_eq!(removed(state, &tenant, 0, 99), Some((0, 99)), "no tier holds them");
        assert_eq!(removed(state, &tenant, 100, i64::MAX), None);
        assert_eq!(state.list_blocks(&"other".parse().unwrap(), 0, 99).expired_until, BTreeMap::new());
    };
    check(&state);
    let blocks = (10..14).map(BlockId::from_number).collect();
    assert_eq!(state.apply(NOW, purge(state.time(), blocks)), CommandResult::Changed(4));
    check(&state);
    check(&CatalogState::decode(&state.encode()).unwrap());
}

#[test]
fn purged_times_of_many_tenants_share_one_range_per_tier() {
    let mut retention = Retention::default();
    for number in 0..MAX_PURGED_TENANTS + 2 {
        let tenant: TenantId = format!("t{number:06}").parse().unwrap();
        let time = number as i64;
        let tenants = vec![TenantSpan { tenant, min_time: time, max_time: time, ..span() }];
        let entry = BlockEntry { level: 3, tier: Tier::OneHour, tenants, ..block(1, 0, 1) };
        retention.record_purged(&entry);
    }
    let until = |name: &str| retention.expired_until(&name.parse().unwrap());
    assert_eq!(until("t000000"), [(Tier::OneHour, 1)].into());
    assert_eq!(until("t000001"), [(Tier::OneHour, 1)].into());
    assert_eq!(until("t000002"), [(Tier::OneHour, 2)].into());
}
