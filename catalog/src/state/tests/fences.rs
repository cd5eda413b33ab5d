//! How a new table comes into force.

use athanor_cluster::placement::{MAX_TABLES, SlotTable};

use super::*;

const AHEAD: i64 = (15 * 60 + 24 * 3600) * 1_000_000_000;

/// Two slots, shards 1 and 2, of one node.
fn slots() -> CatalogState {
    let mut state = CatalogState::default();
    let (members, zones) = (vec![[7].into(); 2], [(7, String::new())].into());
    state.apply(NOW, CatalogCommand::OpenSlots { count: 2, members, zones });
    state
}

fn propose(state: &mut CatalogState, version: u64, from: i64) -> CommandResult {
    let table = SlotTable::with_all_slots(version, from, vec![0, 1]).unwrap();
    state.apply(NOW, CatalogCommand::ProposeTable { table })
}

fn fence(state: &mut CatalogState, shard: ShardId, version: u64) -> CommandResult {
    state.apply(NOW, CatalogCommand::Fenced { shard, version })
}

fn publish(state: &mut CatalogState, version: u64) -> CommandResult {
    state.apply(NOW, CatalogCommand::PublishTable { version })
}

fn succeeds(state: &mut CatalogState, shard: ShardId, by: NodeId) {
    let placement = ReplicaPlacement { members: [by].into(), zones: [(by, String::new())].into() };
    state.apply(NOW, CatalogCommand::RequestSeal { shard });
    state.apply(NOW, CatalogCommand::CreateSuccessor { shard, placement });
}

fn versions(state: &CatalogState) -> Vec<u64> {
    state
        .routing_view()
        .tables
        .iter()
        .flat_map(topology::tables::iter_tables)
        .map(SlotTable::version)
        .collect()
}

#[test]
fn a_table_is_published_when_every_shard_has_logged_its_fence() {
    let mut state = slots();
    let refused =
        CommandResult::Refused(CommandError::TableTooEarly { version: 2, from: AHEAD - 1, earliest: AHEAD });
    assert_eq!(propose(&mut state, 2, AHEAD - 1), refused);
    let refused = CommandResult::Refused(CommandError::TableVersionMismatch { seen: 3, expected: 2 });
    assert_eq!(propose(&mut state, 3, AHEAD), refused);
    assert_eq!(propose(&mut state, 2, AHEAD), CommandResult::Changed(1));
    assert_eq!(propose(&mut state, 2, AHEAD), CommandResult::Changed(0), "again");
    assert_eq!(
        propose(&mut state, 3, AHEAD),
        CommandResult::Refused(CommandError::TablePending { version: 2 })
    );
    assert_eq!(fence(&mut state, 1, 2), CommandResult::Changed(1));
    let waits = CommandResult::Refused(CommandError::FencesMissing { version: 2, missing: 1, first: 2 });
    assert_eq!(publish(&mut state, 2), waits);
    assert_eq!(
        (fence(&mut state, 1, 2), fence(&mut state, 2, 2)),
        (CommandResult::Changed(0), CommandResult::Changed(1))
    );
    assert_eq!(
        (publish(&mut state, 2), publish(&mut state, 2)),
        (CommandResult::Changed(1), CommandResult::Changed(0))
    );
    assert_eq!(versions(&state), [1, 2]);
    let same_time =
        CommandResult::Refused(CommandError::TableTooEarly { version: 3, from: AHEAD, earliest: AHEAD + 1 });
    assert_eq!(propose(&mut state, 3, AHEAD), same_time);
}

/// A shard may have logged the fence of the table that was given up, for another time than the next one's.
#[test]
fn a_version_is_never_proposed_twice() {
    let mut state = slots();
    propose(&mut state, 2, AHEAD);
    fence(&mut state, 1, 2);
    let refuse = |latest| CatalogCommand::FenceRejected { shard: 2, version: 2, latest };
    assert_eq!(state.apply(NOW, refuse(AHEAD - 1)), CommandResult::Changed(0), "it could have logged it");
    assert_eq!(state.apply(NOW, refuse(AHEAD)), CommandResult::Changed(1));
    let used = CommandResult::Refused(CommandError::TableVersionMismatch { seen: 2, expected: 3 });
    assert_eq!(propose(&mut state, 2, AHEAD + 5), used);
    assert_eq!(propose(&mut state, 3, AHEAD + 5), CommandResult::Changed(1));
    assert_eq!(state.routing_view().pending.unwrap().unfenced, [1, 2].into());
    assert_eq!(
        fence(&mut state, 2, 2),
        CommandResult::Refused(CommandError::TableNotPending { version: 2, pending: Some(3) })
    );
    let withdraw = |version| CatalogCommand::WithdrawTable { version };
    assert_eq!(state.apply(NOW, withdraw(3)), CommandResult::Changed(1));
    assert_eq!(
        publish(&mut state, 3),
        CommandResult::Refused(CommandError::TableNotPending { version: 3, pending: None })
    );
}

#[test]
fn a_shard_that_seals_without_the_fence_must_not_hold_profiles_of_the_new_time() {
    for (latest, given_up) in [(AHEAD - 1, false), (AHEAD, true)] {
        let mut state = slots();
        propose(&mut state, 2, AHEAD);
        fence(&mut state, 2, 2);
        succeeds(&mut state, 1, 8);
        state.apply(NOW, CatalogCommand::Sealed { shard: 1, last_index: 0, latest });
        assert_eq!(state.routing_view().pending.is_none(), given_up);
        let shard = shard_id(0, 2);
        let inherited = HandoffSource::DedupWindow { predecessor: 1, up_to: Some(0) };
        let opened = |fenced| CatalogCommand::Opened { shard, inherited, fenced };
        if !given_up {
            let unfenced = CommandError::MissingFence { shard, needed: 2, seen: 1 };
            assert_eq!(state.apply(NOW, opened(1)), CommandResult::Refused(unfenced));
            assert_eq!(publish(&mut state, 2), CommandResult::Changed(1), "who is opening takes nothing yet");
            assert_eq!(
                state.apply(NOW, opened(1)),
                CommandResult::Refused(CommandError::MissingFence { shard, needed: 2, seen: 1 })
            );
        }
        assert_eq!(state.apply(NOW, opened(2)), CommandResult::Changed(1));
    }
}

#[test]
fn no_table_is_proposed_while_a_shard_is_lost() {
    let mut state = slots();
    propose(&mut state, 2, AHEAD);
    let placement = ReplicaPlacement { members: [8].into(), zones: [(8, String::new())].into() };
    state.apply(NOW, CatalogCommand::MarkLost { shard: 1, placement });
    assert!(state.routing_view().pending.is_none());
    assert_eq!(propose(&mut state, 3, AHEAD), CommandResult::Refused(CommandError::ShardLost { shard: 1 }));
    state.apply(NOW, CatalogCommand::AbandonShard { shard: 1 });
    assert_eq!(propose(&mut state, 3, AHEAD), CommandResult::Changed(1));
    let unknown = SlotTable::with_all_slots(4, AHEAD, vec![0, 5]).unwrap();
    state.apply(NOW, CatalogCommand::WithdrawTable { version: 3 });
    let unserved = CommandResult::Refused(CommandError::SlotWithoutShard { version: 4, slot: 5 });
    assert_eq!(state.apply(NOW, CatalogCommand::ProposeTable { table: unknown }), unserved);
}

#[test]
fn tables_are_forgotten_when_no_profile_may_have_their_time() {
    let mut state = slots();
    for version in 2..=MAX_TABLES as u64 {
        propose(&mut state, version, AHEAD + version as i64);
        fence(&mut state, 1, version);
        fence(&mut state, 2, version);
        assert_eq!(publish(&mut state, version), CommandResult::Changed(1));
    }
    let full = CommandResult::Refused(CommandError::LimitReached {
        resource: LimitedResource::Tables,
        limit: MAX_TABLES,
    });
    assert_eq!(propose(&mut state, 65, AHEAD * 2), full);
    let before = AHEAD + 5;
    let forget = |state: &mut CatalogState, at| state.apply(at, CatalogCommand::ExpireTables { before });
    let at = Timestamp::from_nanos(before).plus(MAX_CLOCK_SKEW).plus(Duration::from_secs(10));
    assert_eq!(
        forget(&mut state, at),
        CommandResult::Refused(CommandError::TableStillNeeded { latest: None })
    );
    let (expected, oldest_accepted) = (CatalogSettings::default(), Duration::from_secs(10));
    let settings = CatalogSettings { oldest_accepted, ..CatalogSettings::default() };
    assert_eq!(
        state.apply(NOW, CatalogCommand::UpdateSettings { expected, settings }),
        CommandResult::Changed(1)
    );
    assert_eq!(forget(&mut state, at), CommandResult::Changed(3));
    assert_eq!(versions(&state)[0], 4, "which holds from just before");
    let early = CatalogCommand::ExpireTables { before: before + 1 };
    assert_eq!(
        state.apply(NOW, early),
        CommandResult::Refused(CommandError::TableStillNeeded { latest: Some(before) })
    );
}

#[test]
fn rates_voters_and_settings_are_kept_within_their_bounds() {
    let mut state = slots();
    let rate = |service: &str, rate| CatalogCommand::SetServiceRates {
        changed: [(TenantId::anonymous(), [(service.to_owned(), rate)].into())].into(),
    };
    for (service, bytes, changes) in [("a", 5, 1), ("a", 5, 0), ("a", 6, 1), ("b", 0, 0), ("a", 0, 1)] {
        assert_eq!(
            state.apply(NOW, rate(service, bytes)),
            CommandResult::Changed(changes),
            "{service} {bytes}"
        );
    }
    assert!(state.service_rates().is_empty());
    let many = (0..=MAX_SERVICES).map(|service| (service.to_string(), 1)).collect();
    let many = CatalogCommand::SetServiceRates { changed: [(TenantId::anonymous(), many)].into() };
    let full = CommandError::LimitReached { resource: LimitedResource::Services, limit: MAX_SERVICES };
    assert_eq!(state.apply(NOW, many), CommandResult::Refused(full));
    for node in 0..MAX_VOTERS as u64 {
        state.apply(NOW, CatalogCommand::AddVoter { node, address: "here".to_owned() });
    }
    let mut add = |node, address: &str| {
        state.apply(NOW, CatalogCommand::AddVoter { node, address: address.to_owned() })
    };
    let full = CommandResult::Refused(CommandError::LimitReached {
        resource: LimitedResource::Voters,
        limit: MAX_VOTERS,
    });
    assert_eq!(
        (add(99, "there"), add(0, "here"), add(0, "there")),
        (full, CommandResult::Changed(0), CommandResult::Changed(1))
    );
    assert_eq!(state.apply(NOW, CatalogCommand::RemoveVoter { node: 0 }), CommandResult::Changed(1));
    let first = CatalogSettings::default();
    let none = CatalogSettings { replication_factor: 0, ..CatalogSettings::default() };
    let configure = |expected: &CatalogSettings, settings: &CatalogSettings| CatalogCommand::UpdateSettings {
        expected: expected.clone(),
        settings: settings.clone(),
    };
    let mut apply = |expected, settings| state.apply(NOW, configure(expected, settings));
    assert_eq!(
        apply(&first, &none),
        CommandResult::Refused(CommandError::InvalidReplicationFactor { seen: 0 })
    );
    let three = CatalogSettings { replication_factor: 3, ..CatalogSettings::default() };
    assert_eq!(apply(&none, &three), CommandResult::Refused(CommandError::SettingsChanged));
    assert_eq!(apply(&first, &three), CommandResult::Changed(1));
}
