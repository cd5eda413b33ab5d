//! How a new table comes into force.

use athanor_cluster::placement::{MAX_TABLES, Table};

use super::*;

const AHEAD: i64 = (15 * 60 + 24 * 3600) * 1_000_000_000;

/// Two slots, shards 1 and 2, of one node.
fn slots() -> State {
    let mut state = State::default();
    let (members, zones) = (vec![[7].into(); 2], [(7, String::new())].into());
    state.apply(NOW, Command::OpenSlots { count: 2, members, zones });
    state
}

fn propose(state: &mut State, version: u64, from: i64) -> Answer {
    let table = Table::even(version, from, vec![0, 1]).unwrap();
    state.apply(NOW, Command::ProposeTable { table })
}

fn fence(state: &mut State, shard: ShardId, version: u64) -> Answer {
    state.apply(NOW, Command::Fenced { shard, version })
}

fn publish(state: &mut State, version: u64) -> Answer {
    state.apply(NOW, Command::PublishTable { version })
}

fn succeeds(state: &mut State, shard: ShardId, by: NodeId) {
    let choice = Choice { members: [by].into(), zones: [(by, String::new())].into() };
    state.apply(NOW, Command::Stop { shard });
    state.apply(NOW, Command::Succeed { shard, choice });
}

fn versions(state: &State) -> Vec<u64> {
    state.view().tables.iter().flat_map(tables::tables_of).map(Table::version).collect()
}

#[test]
fn a_table_is_published_when_every_shard_has_logged_its_fence() {
    let mut state = slots();
    let refused = Answer::Refused(Refused::TableTime { version: 2, from: AHEAD - 1, earliest: AHEAD });
    assert_eq!(propose(&mut state, 2, AHEAD - 1), refused);
    let refused = Answer::Refused(Refused::TableVersion { seen: 3, expected: 2 });
    assert_eq!(propose(&mut state, 3, AHEAD), refused);
    assert_eq!(propose(&mut state, 2, AHEAD), Answer::Changed(1));
    assert_eq!(propose(&mut state, 2, AHEAD), Answer::Changed(0), "again");
    assert_eq!(propose(&mut state, 3, AHEAD), Answer::Refused(Refused::TablePending { version: 2 }));
    assert_eq!(fence(&mut state, 1, 2), Answer::Changed(1));
    let waits = Answer::Refused(Refused::Fences { version: 2, missing: 1, first: 2 });
    assert_eq!(publish(&mut state, 2), waits);
    assert_eq!((fence(&mut state, 1, 2), fence(&mut state, 2, 2)), (Answer::Changed(0), Answer::Changed(1)));
    assert_eq!((publish(&mut state, 2), publish(&mut state, 2)), (Answer::Changed(1), Answer::Changed(0)));
    assert_eq!(versions(&state), [1, 2]);
    let same_time = Answer::Refused(Refused::TableTime { version: 3, from: AHEAD, earliest: AHEAD + 1 });
    assert_eq!(propose(&mut state, 3, AHEAD), same_time);
}

/// A shard may have logged the fence of the table that was given up, for another time than the next one's.
#[test]
fn a_version_is_never_proposed_twice() {
    let mut state = slots();
    propose(&mut state, 2, AHEAD);
    fence(&mut state, 1, 2);
    let refuse = |latest| Command::FenceRefused { shard: 2, version: 2, latest };
    assert_eq!(state.apply(NOW, refuse(AHEAD - 1)), Answer::Changed(0), "it could have logged it");
    assert_eq!(state.apply(NOW, refuse(AHEAD)), Answer::Changed(1));
    let used = Answer::Refused(Refused::TableVersion { seen: 2, expected: 3 });
    assert_eq!(propose(&mut state, 2, AHEAD + 5), used);
    assert_eq!(propose(&mut state, 3, AHEAD + 5), Answer::Changed(1));
    assert_eq!(state.view().pending.unwrap().needs, [1, 2].into());
    assert_eq!(
        fence(&mut state, 2, 2),
        Answer::Refused(Refused::NotPending { version: 2, pending: Some(3) })
    );
    let withdraw = |version| Command::WithdrawTable { version };
    assert_eq!(state.apply(NOW, withdraw(3)), Answer::Changed(1));
    assert_eq!(publish(&mut state, 3), Answer::Refused(Refused::NotPending { version: 3, pending: None }));
}

#[test]
fn a_shard_that_seals_without_the_fence_must_not_hold_profiles_of_the_new_time() {
    for (latest, given_up) in [(AHEAD - 1, false), (AHEAD, true)] {
        let mut state = slots();
        propose(&mut state, 2, AHEAD);
        fence(&mut state, 2, 2);
        succeeds(&mut state, 1, 8);
        state.apply(NOW, Command::Sealed { shard: 1, at: 0, latest });
        assert_eq!(state.view().pending.is_none(), given_up);
        let shard = shard_id(0, 2);
        let inherited = Inherits::Window { of: 1, upto: Some(0) };
        let opened = |fenced| Command::Opened { shard, inherited, fenced };
        if !given_up {
            let unfenced = Refused::Unfenced { shard, needed: 2, seen: 1 };
            assert_eq!(state.apply(NOW, opened(1)), Answer::Refused(unfenced));
            assert_eq!(publish(&mut state, 2), Answer::Changed(1), "who is opening takes nothing yet");
            assert_eq!(
                state.apply(NOW, opened(1)),
                Answer::Refused(Refused::Unfenced { shard, needed: 2, seen: 1 })
            );
        }
        assert_eq!(state.apply(NOW, opened(2)), Answer::Changed(1));
    }
}

#[test]
fn no_table_is_proposed_while_a_shard_is_lost() {
    let mut state = slots();
    propose(&mut state, 2, AHEAD);
    let choice = Choice { members: [8].into(), zones: [(8, String::new())].into() };
    state.apply(NOW, Command::Lose { shard: 1, choice });
    assert!(state.view().pending.is_none());
    assert_eq!(propose(&mut state, 3, AHEAD), Answer::Refused(Refused::ShardLost { shard: 1 }));
    state.apply(NOW, Command::Abandon { shard: 1 });
    assert_eq!(propose(&mut state, 3, AHEAD), Answer::Changed(1));
    let unknown = Table::even(4, AHEAD, vec![0, 5]).unwrap();
    state.apply(NOW, Command::WithdrawTable { version: 3 });
    let unserved = Answer::Refused(Refused::TableSlot { version: 4, slot: 5 });
    assert_eq!(state.apply(NOW, Command::ProposeTable { table: unknown }), unserved);
}

#[test]
fn tables_are_forgotten_when_no_profile_may_have_their_time() {
    let mut state = slots();
    for version in 2..=MAX_TABLES as u64 {
        propose(&mut state, version, AHEAD + version as i64);
        fence(&mut state, 1, version);
        fence(&mut state, 2, version);
        assert_eq!(publish(&mut state, version), Answer::Changed(1));
    }
    let full = Answer::Refused(Refused::TooMany { what: Bounded::Tables, limit: MAX_TABLES });
    assert_eq!(propose(&mut state, 65, AHEAD * 2), full);
    let before = AHEAD + 5;
    let forget = |state: &mut State, at| state.apply(at, Command::ForgetTables { before });
    let at = Timestamp::from_nanos(before).plus(CLOCKS).plus(Duration::from_secs(10));
    assert_eq!(forget(&mut state, at), Answer::Refused(Refused::StillAccepted { latest: None }));
    let (expected, oldest_accepted) = (Settings::default(), Duration::from_secs(10));
    let settings = Settings { oldest_accepted, ..Settings::default() };
    assert_eq!(state.apply(NOW, Command::Configure { expected, settings }), Answer::Changed(1));
    assert_eq!(forget(&mut state, at), Answer::Changed(3));
    assert_eq!(versions(&state)[0], 4, "which holds from just before");
    let early = Command::ForgetTables { before: before + 1 };
    assert_eq!(state.apply(NOW, early), Answer::Refused(Refused::StillAccepted { latest: Some(before) }));
}

#[test]
fn rates_voters_and_settings_are_kept_within_their_bounds() {
    let mut state = slots();
    let rate = |service: &str, rate| Command::Rates {
        changed: [(TenantId::anonymous(), [(service.to_owned(), rate)].into())].into(),
    };
    for (service, bytes, changes) in [("a", 5, 1), ("a", 5, 0), ("a", 6, 1), ("b", 0, 0), ("a", 0, 1)] {
        assert_eq!(state.apply(NOW, rate(service, bytes)), Answer::Changed(changes), "{service} {bytes}");
    }
    assert!(state.rates().is_empty());
    let many = (0..=MAX_SERVICES).map(|service| (service.to_string(), 1)).collect();
    let many = Command::Rates { changed: [(TenantId::anonymous(), many)].into() };
    let full = Refused::TooMany { what: Bounded::Services, limit: MAX_SERVICES };
    assert_eq!(state.apply(NOW, many), Answer::Refused(full));
    for node in 0..MAX_VOTERS as u64 {
        state.apply(NOW, Command::AddVoter { node, address: "here".to_owned() });
    }
    let mut add =
        |node, address: &str| state.apply(NOW, Command::AddVoter { node, address: address.to_owned() });
    let full = Answer::Refused(Refused::TooMany { what: Bounded::Voters, limit: MAX_VOTERS });
    assert_eq!(
        (add(99, "there"), add(0, "here"), add(0, "there")),
        (full, Answer::Changed(0), Answer::Changed(1))
    );
    assert_eq!(state.apply(NOW, Command::RemoveVoter { node: 0 }), Answer::Changed(1));
    let first = Settings::default();
    let none = Settings { copies: 0, ..Settings::default() };
    let configure = |expected: &Settings, settings: &Settings| Command::Configure {
        expected: expected.clone(),
        settings: settings.clone(),
    };
    let mut apply = |expected, settings| state.apply(NOW, configure(expected, settings));
    assert_eq!(apply(&first, &none), Answer::Refused(Refused::NoCopies { seen: 0 }));
    let three = Settings { copies: 3, ..Settings::default() };
    assert_eq!(apply(&none, &three), Answer::Refused(Refused::SettingsChanged));
    assert_eq!(apply(&first, &three), Answer::Changed(1));
}
