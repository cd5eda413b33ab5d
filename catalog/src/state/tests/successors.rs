//! How shards of a slot follow each other.

use athanor_cluster::placement::MAX_SLOTS;

use super::*;

fn choice(members: [NodeId; 3]) -> Choice {
    let zones = (1..=9).map(|node| (node, format!("zone-{}", node % 3))).collect();
    Choice { members: members.into(), zones }
}

/// A slot whose shard, number 1, is open on nodes 1, 2 and 3.
fn cluster() -> State {
    let mut state = State::default();
    let settings = Settings { copies: 3, ..Settings::default() };
    change(&mut state, Command::Configure { expected: Settings::default(), settings });
    let Choice { members, zones } = choice([1, 2, 3]);
    change(&mut state, Command::OpenSlots { count: 1, members: vec![members], zones });
    change(&mut state, Command::Opened { shard: 1, inherited: Inherits::Nothing, fenced: 1 });
    state
}

fn apply(state: &mut State, command: Command) -> Answer {
    state.apply(NOW, command)
}

/// Applies a command that changes something, and again, when it changes nothing more.
fn change(state: &mut State, command: Command) {
    let answer = apply(state, command.clone());
    assert!(!matches!(answer, Answer::Refused(_) | Answer::Changed(0)), "{command:?}: {answer:?}");
    let after = state.clone();
    let again = apply(state, command.clone());
    assert!(!matches!(again, Answer::Refused(_)), "{command:?} again: {again:?}");
    assert_eq!(*state, after, "{command:?} again");
}

fn refused(state: &mut State, command: Command) -> Refused {
    let before = state.clone();
    match apply(state, command) {
        Answer::Refused(refused) => {
            assert_eq!(*state, before, "{refused}");
            refused
        }
        other => panic!("{other:?}"),
    }
}

fn phase(state: &State, shard: ShardId) -> Phase {
    state.shard(shard).unwrap().phase.clone()
}

fn second() -> ShardId {
    shard_id(0, 2)
}

fn third() -> ShardId {
    shard_id(0, 3)
}

fn succeed(state: &mut State) {
    change(state, Command::Stop { shard: 1 });
    change(state, Command::Succeed { shard: 1, choice: choice([4, 5, 6]) });
}

/// Shard 1 is sealed at 10 and the second one is open.
fn succeeded() -> State {
    let mut state = cluster();
    succeed(&mut state);
    change(&mut state, Command::Sealed { shard: 1, at: 10, latest: 0 });
    let inherited = Inherits::Window { of: 1, upto: Some(10) };
    change(&mut state, Command::Opened { shard: second(), inherited, fenced: 1 });
    state
}

#[test]
fn a_shard_hands_over_all_that_it_knows_and_retires_when_its_rows_lie_in_blocks() {
    let mut state = cluster();
    assert!(matches!(
        refused(&mut state, Command::Succeed { shard: 1, choice: choice([4, 5, 6]) }),
        Refused::Phase { .. }
    ));
    change(&mut state, Command::Stop { shard: 1 });
    let seal = Command::Sealed { shard: 1, at: 10, latest: 0 };
    assert_eq!(refused(&mut state, seal.clone()), Refused::NoSuccessor { shard: 1 });
    change(&mut state, Command::Succeed { shard: 1, choice: choice([4, 5, 6]) });
    let other = Command::Succeed { shard: 1, choice: choice([7, 8, 9]) };
    assert_eq!(refused(&mut state, other), Refused::Succeeded { shard: 1, by: second() });
    assert_eq!(state.serving(0).unwrap().id, 1, "it takes records until it has sealed");
    let open =
        |upto| Command::Opened { shard: second(), inherited: Inherits::Window { of: 1, upto }, fenced: 1 };
    assert_eq!(refused(&mut state, open(None)), Refused::StillInherited { shard: 1, by: second() });
    change(&mut state, Command::Register { block: block(1, 0, 4) });
    assert_eq!(
        refused(&mut state, Command::Sealed { shard: 1, at: 3, latest: 0 }),
        Refused::SealBehind { shard: 1, at: 3, watermark: 4 }
    );
    change(&mut state, seal);
    assert!(state.serving(0).is_none());
    assert!(
        matches!(refused(&mut state, open(Some(9))), Refused::Inherited { .. }),
        "not all that it should"
    );
    let past = Command::Register { block: block(2, 4, 11) };
    assert_eq!(
        refused(&mut state, past),
        Refused::PastSeal { block: BlockId::from_number(2), shard: 1, to: 11, at: 10 }
    );
    change(&mut state, Command::Register { block: block(3, 4, 8) });
    let retire = |rest_is_empty| Command::Retire { shard: 1, rest_is_empty };
    assert_eq!(
        refused(&mut state, retire(Some(4))),
        Refused::Unregistered { shard: 1, watermark: 8, at: 10 }
    );
    assert_eq!(refused(&mut state, retire(Some(8))), Refused::StillInherited { shard: 1, by: second() });
    change(&mut state, open(Some(10)));
    change(&mut state, retire(Some(8)));
    assert_eq!(
        (state.serving(0).unwrap().id, state.listing(&TenantId::anonymous(), 0, 9).shards.len()),
        (second(), 1)
    );
    assert_eq!(state.view().shards.len(), 2, "who was away learns of it");
    state.apply(NOW.plus(REMEMBER), Command::Forget);
    assert_eq!((state.view().shards.len(), state.view().nodes.len()), (1, 3));
    assert_eq!(state.blocks().count(), 2);
}

#[test]
fn a_lost_shard_registers_nothing_before_it_has_settled_with_who_serves_its_slot() {
    let mut state = cluster();
    change(&mut state, Command::Register { block: block(1, 0, 4) });
    change(&mut state, Command::Lose { shard: 1, choice: choice([4, 5, 6]) });
    assert_eq!(phase(&state, 1), Phase::Lost { kept: 4 });
    let listing = state.listing(&TenantId::anonymous(), 0, 9);
    assert_eq!((listing.partial, listing.shards.len()), (vec![1], 2));
    let register = Command::Register { block: block(2, 4, 8) };
    let error = refused(&mut state, register.clone()).to_string();
    assert_eq!(
        error,
        "shard 1 is lost after 4: only shards that are open, closing or sealed register blocks; a lost one has to \
         settle first"
    );
    assert!(matches!(refused(&mut state, Command::Raise { shard: 1, to: 9 }), Refused::Phase { .. }));
    let settle = |with| Command::Settled { shard: 1, at: 8, with };
    let unheard = Refused::SettledWith { shard: 1, with: second(), serving: None };
    assert_eq!(refused(&mut state, settle(second())), unheard, "it does not know yet what lies in blocks");
    let inherited = Inherits::Blocks { of: 1, upto: 4 };
    change(&mut state, Command::Opened { shard: second(), inherited, fenced: 1 });
    change(&mut state, settle(second()));
    change(&mut state, register);
    change(&mut state, Command::Retire { shard: 1, rest_is_empty: None });
    assert!(state.listing(&TenantId::anonymous(), 0, 9).partial.is_empty());
}

#[test]
fn a_successor_forgets_what_it_copied_when_its_predecessor_is_lost_meanwhile() {
    for sealed in [false, true] {
        let mut state = cluster();
        succeed(&mut state);
        if sealed {
            change(&mut state, Command::Sealed { shard: 1, at: 10, latest: 0 });
        }
        change(&mut state, Command::Lose { shard: 1, choice: choice([7, 8, 9]) });
        let blocks = Inherits::Blocks { of: 1, upto: 0 };
        assert_eq!(phase(&state, second()), Phase::Opening { inherits: blocks });
        assert_eq!(state.shard(second()).unwrap().members, [4, 5, 6].into());
        let window = Inherits::Window { of: 1, upto: sealed.then_some(10) };
        let open = |inherited| Command::Opened { shard: second(), inherited, fenced: 1 };
        assert!(matches!(refused(&mut state, open(window)), Refused::Inherited { .. }));
        change(&mut state, open(blocks));
    }
}

#[test]
fn a_sealed_shard_settles_anew_when_who_knew_its_ids_is_lost() {
    let mut state = succeeded();
    change(&mut state, Command::Lose { shard: second(), choice: choice([7, 8, 9]) });
    assert_eq!(phase(&state, 1), Phase::Lost { kept: 0 });
    let inherited = Inherits::Blocks { of: second(), upto: 0 };
    change(&mut state, Command::Opened { shard: third(), inherited, fenced: 1 });
    let settle = |with| Command::Settled { shard: 1, at: 10, with };
    assert!(matches!(refused(&mut state, settle(second())), Refused::SettledWith { .. }));
    change(&mut state, settle(third()));
    change(&mut state, Command::Register { block: block(1, 0, 10) });
    // All its ids lie in blocks now, where the next one finds them.
    change(&mut state, Command::Lose { shard: third(), choice: choice([1, 2, 3]) });
    assert_eq!(
        (phase(&state, 1), phase(&state, second())),
        (Phase::Sealed { at: 10 }, Phase::Lost { kept: 0 })
    );
}

#[test]
fn a_shard_that_is_lost_before_it_opens_is_replaced() {
    let mut state = cluster();
    succeed(&mut state);
    change(&mut state, Command::Lose { shard: second(), choice: choice([7, 8, 9]) });
    assert!(matches!(phase(&state, second()), Phase::Retired { abandoned: false, .. }));
    assert_eq!(phase(&state, third()), Phase::Opening { inherits: Inherits::Window { of: 1, upto: None } });
    change(&mut state, Command::Sealed { shard: 1, at: 10, latest: 0 });
    let inherited = Inherits::Window { of: 1, upto: Some(10) };
    change(&mut state, Command::Opened { shard: third(), inherited, fenced: 1 });
}

#[test]
fn what_is_abandoned_is_told() {
    let mut state = succeeded();
    assert!(matches!(
        refused(&mut state, Command::Lose { shard: 1, choice: choice([7, 8, 9]) }),
        Refused::Phase { .. }
    ));
    change(&mut state, Command::Abandon { shard: 1 });
    let listing = state.listing(&TenantId::anonymous(), 0, 9);
    assert_eq!((listing.partial, listing.shards.len()), (vec![1], 1));
    assert_eq!(listing.scars[0].wound, Wound::Abandoned { shard: 1, after: 0 });
    assert!(matches!(refused(&mut state, Command::Abandon { shard: second() }), Refused::Phase { .. }));
    state.apply(NOW.plus(REMEMBER), Command::Forget);
    assert_eq!(state.view().shards.len(), 2, "a scar names it");
    state.apply(NOW.plus(REMEMBER), Command::Heal { before: NOW.plus(REMEMBER) });
    state.apply(NOW.plus(REMEMBER), Command::Forget);
    assert_eq!(state.view().shards.len(), 1);

    let mut state = succeeded();
    change(&mut state, Command::Register { block: block(1, 0, 10) });
    assert_eq!(refused(&mut state, Command::Abandon { shard: 1 }), Refused::NothingToAbandon { shard: 1 });
}

#[test]
fn members_are_as_many_as_asked_for_in_zones_of_their_own_and_have_room() {
    let mut state = cluster();
    change(&mut state, Command::Stop { shard: 1 });
    let mut succeed = |choice| refused(&mut state, Command::Succeed { shard: 1, choice });
    let two = Choice { members: [4, 5].into(), ..choice([4, 5, 6]) };
    assert_eq!(succeed(two), Refused::Copies { slot: 0, seen: 2, wanted: 3 });
    assert_eq!(succeed(choice([4, 5, 12])), Refused::Stranger { node: 12 });
    assert_eq!(succeed(choice([1, 4, 5])), Refused::Crowded { slot: 0, seen: 2, possible: 3 });
    for slot in 1..=63 {
        change(&mut state, Command::AddSlot { slot, choice: choice([1, 2, 3]) });
    }
    let full = Command::AddSlot { slot: 64, choice: choice([1, 5, 6]) };
    assert_eq!(refused(&mut state, full), Refused::NodeFull { node: 1 });
    let beyond = Command::AddSlot { slot: MAX_SLOTS, choice: choice([4, 5, 6]) };
    assert_eq!(refused(&mut state, beyond), Refused::NoSlot { slot: 4096 });
    let again = Command::AddSlot { slot: 9, choice: choice([4, 5, 6]) };
    assert_eq!(refused(&mut state, again), Refused::SlotTaken { slot: 9, shard: shard_id(9, 1) });
    // What nobody could choose better is taken.
    let zones = [(4, String::new()), (5, String::new()), (6, String::new())].into();
    let nowhere = Choice { members: [4, 5, 6].into(), zones };
    change(&mut state, Command::AddSlot { slot: 64, choice: nowhere });
}
