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
    match state.apply(at, CatalogCommand::ExpireBlocks { retention: RETENTION, max_percent }) {
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
        state.block_ages(at, retention).overdue
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
fn short_retention_expires_as_fast_as_blocks_come() {
    let mut state = filled(40);
    let retention = HOUR * 8;
    let expire = |state: &mut CatalogState| {
        state.apply(NOW.plus(DAY), CatalogCommand::ExpireBlocks { retention, max_percent: Some(5) })
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
    assert_eq!(state.block_ages(late, RETENTION).expired.len(), 4);
    let forgotten = state.apply(late.plus(TOMBSTONE_RETENTION), CatalogCommand::ExpireTombstones);
    assert_eq!(forgotten, CommandResult::Changed(0), "an expired block is never forgotten");
    assert_eq!(
        state.apply(late, CatalogCommand::PurgeBlocks { blocks: vec![first] }),
        CommandResult::Changed(1)
    );
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
    state.apply(late, CatalogCommand::PurgeBlocks { blocks: (0..3).map(BlockId::from_number).collect() });
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
