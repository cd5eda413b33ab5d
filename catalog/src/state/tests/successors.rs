//! How shards of a slot follow each other.

use athanor_cluster::placement::MAX_SLOTS;

use super::*;

fn placement(members: [NodeId; 3]) -> ReplicaPlacement {
    let zones = (1..=9).map(|node| (node, format!("zone-{}", node % 3))).collect();
    ReplicaPlacement { members: members.into(), zones }
}

/// A slot whose shard, number 1, is open on nodes 1, 2 and 3.
fn cluster() -> CatalogState {
    let mut state = CatalogState::default();
    let settings = CatalogSettings { replication_factor: 3, ..CatalogSettings::default() };
    change(&mut state, CatalogCommand::UpdateSettings { expected: CatalogSettings::default(), settings });
    let ReplicaPlacement { members, zones } = placement([1, 2, 3]);
    change(&mut state, CatalogCommand::OpenSlots { count: 1, members: vec![members], zones });
    change(&mut state, CatalogCommand::Opened { shard: 1, inherited: HandoffSource::None, fenced: 1 });
    state
}

fn apply(state: &mut CatalogState, command: CatalogCommand) -> CommandResult {
    state.apply(NOW, command)
}

/// Applies a command that changes something, and again, when it changes nothing more.
fn change(state: &mut CatalogState, command: CatalogCommand) {
    let answer = apply(state, command.clone());
    assert!(
        !matches!(answer, CommandResult::Refused(_) | CommandResult::Changed(0)),
        "{command:?}: {answer:?}"
    );
    let after = state.clone();
    let again = apply(state, command.clone());
    assert!(!matches!(again, CommandResult::Refused(_)), "{command:?} again: {again:?}");
    assert_eq!(*state, after, "{command:?} again");
}

fn refused(state: &mut CatalogState, command: CatalogCommand) -> CommandError {
    let before = state.clone();
    match apply(state, command) {
        CommandResult::Refused(refused) => {
            assert_eq!(*state, before, "{refused}");
            refused
        }
        other => panic!("{other:?}"),
    }
}

fn phase(state: &CatalogState, shard: ShardId) -> ShardPhase {
    state.shard(shard).unwrap().phase.clone()
}

fn second() -> ShardId {
    shard_id(0, 2)
}

fn third() -> ShardId {
    shard_id(0, 3)
}

fn succeed(state: &mut CatalogState) {
    change(state, CatalogCommand::RequestSeal { shard: 1 });
    change(state, CatalogCommand::CreateSuccessor { shard: 1, placement: placement([4, 5, 6]) });
}

/// Shard 1 is sealed at 10 and the second one is open.
fn succeeded() -> CatalogState {
    let mut state = cluster();
    succeed(&mut state);
    change(&mut state, CatalogCommand::Sealed { shard: 1, last_index: 10, latest: 0 });
    let inherited = HandoffSource::DedupWindow { predecessor: 1, up_to: Some(10) };
    change(&mut state, CatalogCommand::Opened { shard: second(), inherited, fenced: 1 });
    state
}

#[test]
fn a_shard_hands_over_all_that_it_knows_and_retires_when_its_rows_lie_in_blocks() {
    let mut state = cluster();
    assert!(matches!(
        refused(&mut state, CatalogCommand::CreateSuccessor { shard: 1, placement: placement([4, 5, 6]) }),
        CommandError::WrongPhase { .. }
    ));
    change(&mut state, CatalogCommand::RequestSeal { shard: 1 });
    let seal = CatalogCommand::Sealed { shard: 1, last_index: 10, latest: 0 };
    assert_eq!(refused(&mut state, seal.clone()), CommandError::NoSuccessor { shard: 1 });
    change(&mut state, CatalogCommand::CreateSuccessor { shard: 1, placement: placement([4, 5, 6]) });
    let other = CatalogCommand::CreateSuccessor { shard: 1, placement: placement([7, 8, 9]) };
    assert_eq!(refused(&mut state, other), CommandError::HasSuccessor { shard: 1, successor: second() });
    assert_eq!(state.serving_shard(0).unwrap().id, 1, "it takes records until it has sealed");
    let open = |up_to| CatalogCommand::Opened {
        shard: second(),
        inherited: HandoffSource::DedupWindow { predecessor: 1, up_to },
        fenced: 1,
    };
    assert_eq!(
        refused(&mut state, open(None)),
        CommandError::HandoffUnfinished { shard: 1, successor: second() }
    );
    change(&mut state, CatalogCommand::RegisterBlock { block: block(1, 0, 4) });
    assert_eq!(
        refused(&mut state, CatalogCommand::Sealed { shard: 1, last_index: 3, latest: 0 }),
        CommandError::SealBehindWatermark { shard: 1, last_index: 3, watermark: 4 }
    );
    change(&mut state, seal);
    assert!(state.serving_shard(0).is_none());
    assert!(
        matches!(refused(&mut state, open(Some(9))), CommandError::HandoffSourceMismatch { .. }),
        "not all that it should"
    );
    let past = CatalogCommand::RegisterBlock { block: block(2, 4, 11) };
    assert_eq!(
        refused(&mut state, past),
        CommandError::PastSeal { block: BlockId::from_number(2), shard: 1, to: 11, last_index: 10 }
    );
    change(&mut state, CatalogCommand::RegisterBlock { block: block(3, 4, 8) });
    let retire = |rest_is_empty| CatalogCommand::RetireShard { shard: 1, rest_is_empty };
    assert_eq!(
        refused(&mut state, retire(Some(4))),
        CommandError::UnregisteredRows { shard: 1, watermark: 8, last_index: 10 }
    );
    assert_eq!(
        refused(&mut state, retire(Some(8))),
        CommandError::HandoffUnfinished { shard: 1, successor: second() }
    );
    change(&mut state, open(Some(10)));
    change(&mut state, retire(Some(8)));
    assert_eq!(
        (state.serving_shard(0).unwrap().id, state.list_blocks(&TenantId::anonymous(), 0, 9).shards.len()),
        (second(), 1)
    );
    assert_eq!(state.routing_view().shards.len(), 2, "who was away learns of it");
    state.apply(NOW.plus(TOMBSTONE_RETENTION), CatalogCommand::ExpireTombstones);
    assert_eq!((state.routing_view().shards.len(), state.routing_view().nodes.len()), (1, 3));
    assert_eq!(state.blocks().count(), 2);
}

#[test]
fn a_lost_shard_registers_nothing_before_it_has_settled_with_who_serves_its_slot() {
    let mut state = cluster();
    change(&mut state, CatalogCommand::RegisterBlock { block: block(1, 0, 4) });
    change(&mut state, CatalogCommand::MarkLost { shard: 1, placement: placement([4, 5, 6]) });
    assert_eq!(phase(&state, 1), ShardPhase::Lost { watermark: 4 });
    let listing = state.list_blocks(&TenantId::anonymous(), 0, 9);
    assert_eq!((listing.partial, listing.shards.len()), (vec![1], 2));
    let register = CatalogCommand::RegisterBlock { block: block(2, 4, 8) };
    let error = refused(&mut state, register.clone()).to_string();
    assert_eq!(
        error,
        "shard 1 is lost at watermark 4: only open, sealing and sealed shards register blocks; a lost shard has to \
         reconcile its ids first"
    );
    assert!(matches!(
        refused(&mut state, CatalogCommand::AdvanceWatermark { shard: 1, to: 9 }),
        CommandError::WrongPhase { .. }
    ));
    let settle = |with| CatalogCommand::Reconciled { shard: 1, last_index: 8, with };
    let unheard = CommandError::ReconciledWithWrongShard { shard: 1, with: second(), serving: None };
    assert_eq!(refused(&mut state, settle(second())), unheard, "it does not know yet what lies in blocks");
    let inherited = HandoffSource::RegisteredBlocks { predecessor: 1, up_to: 4 };
    change(&mut state, CatalogCommand::Opened { shard: second(), inherited, fenced: 1 });
    change(&mut state, settle(second()));
    change(&mut state, register);
    change(&mut state, CatalogCommand::RetireShard { shard: 1, rest_is_empty: None });
    assert!(state.list_blocks(&TenantId::anonymous(), 0, 9).partial.is_empty());
}

#[test]
fn a_successor_forgets_what_it_copied_when_its_predecessor_is_lost_meanwhile() {
    for sealed in [false, true] {
        let mut state = cluster();
        succeed(&mut state);
        if sealed {
            change(&mut state, CatalogCommand::Sealed { shard: 1, last_index: 10, latest: 0 });
        }
        change(&mut state, CatalogCommand::MarkLost { shard: 1, placement: placement([7, 8, 9]) });
        let blocks = HandoffSource::RegisteredBlocks { predecessor: 1, up_to: 0 };
        assert_eq!(phase(&state, second()), ShardPhase::Opening { source: blocks });
        assert_eq!(state.shard(second()).unwrap().members, [4, 5, 6].into());
        let window = HandoffSource::DedupWindow { predecessor: 1, up_to: sealed.then_some(10) };
        let open = |inherited| CatalogCommand::Opened { shard: second(), inherited, fenced: 1 };
        assert!(matches!(refused(&mut state, open(window)), CommandError::HandoffSourceMismatch { .. }));
        change(&mut state, open(blocks));
    }
}

#[test]
fn a_sealed_shard_settles_anew_when_who_knew_its_ids_is_lost() {
    let mut state = succeeded();
    change(&mut state, CatalogCommand::MarkLost { shard: second(), placement: placement([7, 8, 9]) });
    assert_eq!(phase(&state, 1), ShardPhase::Lost { watermark: 0 });
    let inherited = HandoffSource::RegisteredBlocks { predecessor: second(), up_to: 0 };
    change(&mut state, CatalogCommand::Opened { shard: third(), inherited, fenced: 1 });
    let settle = |with| CatalogCommand::Reconciled { shard: 1, last_index: 10, with };
    assert!(matches!(refused(&mut state, settle(second())), CommandError::ReconciledWithWrongShard { .. }));
    change(&mut state, settle(third()));
    change(&mut state, CatalogCommand::RegisterBlock { block: block(1, 0, 10) });
    // All its ids lie in blocks now, where the next one finds them.
    change(&mut state, CatalogCommand::MarkLost { shard: third(), placement: placement([1, 2, 3]) });
    assert_eq!(
        (phase(&state, 1), phase(&state, second())),
        (ShardPhase::Sealed { last_index: 10 }, ShardPhase::Lost { watermark: 0 })
    );
}

#[test]
fn a_shard_that_is_lost_before_it_opens_is_replaced() {
    let mut state = cluster();
    succeed(&mut state);
    change(&mut state, CatalogCommand::MarkLost { shard: second(), placement: placement([7, 8, 9]) });
    assert!(matches!(phase(&state, second()), ShardPhase::Retired { abandoned: false, .. }));
    assert_eq!(
        phase(&state, third()),
        ShardPhase::Opening { source: HandoffSource::DedupWindow { predecessor: 1, up_to: None } }
    );
    change(&mut state, CatalogCommand::Sealed { shard: 1, last_index: 10, latest: 0 });
    let inherited = HandoffSource::DedupWindow { predecessor: 1, up_to: Some(10) };
    change(&mut state, CatalogCommand::Opened { shard: third(), inherited, fenced: 1 });
}

#[test]
fn what_is_abandoned_is_told() {
    let mut state = succeeded();
    assert!(matches!(
        refused(&mut state, CatalogCommand::MarkLost { shard: 1, placement: placement([7, 8, 9]) }),
        CommandError::WrongPhase { .. }
    ));
    change(&mut state, CatalogCommand::AbandonShard { shard: 1 });
    let listing = state.list_blocks(&TenantId::anonymous(), 0, 9);
    assert_eq!((listing.partial, listing.shards.len()), (vec![1], 1));
    assert_eq!(listing.data_losses[0].loss, DataLoss::AbandonedShard { shard: 1, after: 0 });
    assert!(matches!(
        refused(&mut state, CatalogCommand::AbandonShard { shard: second() }),
        CommandError::WrongPhase { .. }
    ));
    state.apply(NOW.plus(TOMBSTONE_RETENTION), CatalogCommand::ExpireTombstones);
    assert_eq!(state.routing_view().shards.len(), 2, "a record names it");
    state.apply(
        NOW.plus(TOMBSTONE_RETENTION),
        CatalogCommand::ClearDataLoss { before: NOW.plus(TOMBSTONE_RETENTION) },
    );
    state.apply(NOW.plus(TOMBSTONE_RETENTION), CatalogCommand::ExpireTombstones);
    assert_eq!(state.routing_view().shards.len(), 1);

    let mut state = succeeded();
    change(&mut state, CatalogCommand::RegisterBlock { block: block(1, 0, 10) });
    assert_eq!(
        refused(&mut state, CatalogCommand::AbandonShard { shard: 1 }),
        CommandError::NothingToAbandon { shard: 1 }
    );
}

#[test]
fn members_are_as_many_as_asked_for_in_zones_of_their_own_and_have_room() {
    let mut state = cluster();
    change(&mut state, CatalogCommand::RequestSeal { shard: 1 });
    let mut succeed =
        |placement| refused(&mut state, CatalogCommand::CreateSuccessor { shard: 1, placement });
    let two = ReplicaPlacement { members: [4, 5].into(), ..placement([4, 5, 6]) };
    assert_eq!(succeed(two), CommandError::ReplicationFactorMismatch { slot: 0, seen: 2, wanted: 3 });
    assert_eq!(succeed(placement([4, 5, 12])), CommandError::NotACandidate { node: 12 });
    assert_eq!(succeed(placement([1, 4, 5])), CommandError::TooFewZones { slot: 0, seen: 2, possible: 3 });
    for slot in 1..=63 {
        change(&mut state, CatalogCommand::AddSlot { slot, placement: placement([1, 2, 3]) });
    }
    let full = CatalogCommand::AddSlot { slot: 64, placement: placement([1, 5, 6]) };
    assert_eq!(refused(&mut state, full), CommandError::NodeFull { node: 1 });
    let beyond = CatalogCommand::AddSlot { slot: MAX_SLOTS, placement: placement([4, 5, 6]) };
    assert_eq!(refused(&mut state, beyond), CommandError::InvalidSlot { slot: 4096 });
    let again = CatalogCommand::AddSlot { slot: 9, placement: placement([4, 5, 6]) };
    assert_eq!(refused(&mut state, again), CommandError::SlotTaken { slot: 9, shard: shard_id(9, 1) });
    // What nobody could choose better is taken.
    let zones = [(4, String::new()), (5, String::new()), (6, String::new())].into();
    let nowhere = ReplicaPlacement { members: [4, 5, 6].into(), zones };
    change(&mut state, CatalogCommand::AddSlot { slot: 64, placement: nowhere });
}
