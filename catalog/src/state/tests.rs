//! What commands do, one after the other.

mod claims;
mod documents;
mod fences;
mod finish;
mod format;
mod jobs;
mod random;
mod rebuild;
mod retention;
mod row_model;
mod staging;
mod successors;
mod tiers;
mod tombstones;

use std::time::Duration;

use athanor_chassis::{TenantId, Tier};
use proptest::prelude::*;

use crate::state::*;
use crate::{JobParts, TenantSpan};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Rows of the anonymous tenant.
fn span() -> TenantSpan {
    TenantSpan {
        tenant: TenantId::anonymous(),
        min_time: 5,
        max_time: 9,
        profiles: 1,
        samples: 2,
        sum: Some(jobs::SUM),
        newest_arrival: Timestamp::UNIX_EPOCH,
    }
}

/// Purge of blocks whose last part expired until a time.
fn purge(expired_before: Timestamp, blocks: Vec<BlockId>) -> CatalogCommand {
    CatalogCommand::PurgeBlocks { blocks, expired_before }
}

fn block(number: u128, from: u64, to: u64) -> BlockEntry {
    let id = BlockId::from_number(number);
    BlockEntry {
        id,
        shard: 1,
        epoch: 1,
        from,
        to,
        bytes: 1,
        samples: 2,
        lost: 0,
        level: 0,
        additional_ranges: Vec::new(),
        tier: Tier::Raw,
        is_covered: false,
        job: None,
        tenants: vec![span()],
    }
}

fn opened() -> CatalogState {
    let mut state = CatalogState::default();
    state.apply(NOW, CatalogCommand::OpenShard { slot: 0, members: [7].into() });
    state
}

fn register(state: &mut CatalogState, block: BlockEntry) -> CommandResult {
    state.apply(NOW, CatalogCommand::RegisterBlock { block })
}

#[test]
fn a_range_registers_once_and_only_from_the_watermark_on() {
    let mut state = opened();
    assert_eq!(register(&mut state, block(1, 0, 10)), CommandResult::Registered(10));
    assert_eq!(register(&mut state, block(1, 0, 10)), CommandResult::Registered(10), "again changes nothing");
    let refused =
        CommandError::WatermarkMismatch { block: BlockId::from_number(2), shard: 1, from: 0, watermark: 10 };
    assert_eq!(register(&mut state, block(2, 0, 10)), CommandResult::Refused(refused));
    assert_eq!(register(&mut state, block(2, 10, 11)), CommandResult::Registered(11));
    assert_eq!(state.blocks().count(), 2);
}

#[test]
fn a_condemned_name_never_registers() {
    let mut state = opened();
    let condemn = |state: &mut CatalogState| {
        state.apply(
            NOW,
            CatalogCommand::TombstoneBlocks { blocks: vec![BlockId::from_number(7)], tenant: None },
        )
    };
    assert_eq!(condemn(&mut state), CommandResult::Changed(1));
    let refused = CommandResult::Refused(CommandError::Tombstoned(BlockId::from_number(7)));
    assert_eq!(register(&mut state, block(7, 0, 10)), refused);
    let blocks = vec![BlockId::from_number(7)];
    state.apply(NOW, CatalogCommand::RecordRemovedObjects { blocks });
    state.apply(NOW.plus(TOMBSTONE_RETENTION - Duration::from_secs(1)), CatalogCommand::ExpireTombstones);
    let remembered = state.tombstones().count();
    assert_eq!(remembered, 1, "two days are not over");
    assert_eq!(register(&mut state, block(7, 0, 10)), refused);
    let late = NOW.plus(TOMBSTONE_RETENTION);
    assert_eq!(state.apply(late, CatalogCommand::ExpireTombstones), CommandResult::Changed(1));
    let too_old = CommandError::BlockNameSkew { block: BlockId::from_number(7), now: late };
    assert_eq!(
        register(&mut state, block(7, 0, 10)),
        CommandResult::Refused(too_old),
        "time does not go back"
    );
}

/// A leader whose clock is ahead names blocks of days to come, which would register when they are forgotten.
#[test]
fn a_name_of_days_to_come_does_not_register() {
    let mut state = opened();
    let named = |hours: u64| {
        BlockId::new(NOW.plus(Duration::from_secs(hours * 3600)), &athanor_chassis::Random::from_seed(1))
    };
    let ahead = BlockEntry { id: named(25), ..block(1, 0, 10) };
    let refused = CommandError::BlockNameSkew { block: ahead.id, now: NOW };
    assert_eq!(register(&mut state, ahead), CommandResult::Refused(refused));
    assert_eq!(
        register(&mut state, BlockEntry { id: named(24), ..block(1, 0, 10) }),
        CommandResult::Registered(10)
    );
}

#[test]
fn a_listing_holds_what_overlaps() {
    let mut state = opened();
    register(&mut state, block(1, 0, 10));
    let count = |from, to| state.list_blocks(&TenantId::anonymous(), from, to).blocks.len();
    assert_eq!((count(0, 4), count(0, 5), count(9, 20), count(10, 20)), (0, 1, 1, 0));
    assert!(state.list_blocks(&"other".parse().unwrap(), 0, 20).blocks.is_empty());
    assert_eq!(state.list_blocks(&TenantId::anonymous(), 0, 0).shards[0].watermark, 10);
}

#[test]
fn what_a_block_lacks_is_told_to_everybody_while_it_lives() {
    let mut state = opened();
    register(&mut state, BlockEntry { lost: 3, ..block(1, 0, 10) });
    register(&mut state, block(2, 10, 20));
    let other: TenantId = "other".parse().unwrap();
    let lost = |from, to| state.list_blocks(&other, from, to).lost;
    assert_eq!((lost(0, 4), lost(10, 20)), (3, 3));
    state.apply(NOW, CatalogCommand::TombstoneBlocks { blocks: vec![BlockId::from_number(1)], tenant: None });
    assert_eq!(state.list_blocks(&other, 0, 20).lost, 0);
}

#[test]
fn a_slot_has_one_open_shard() {
    let mut state = opened();
    let mut open = |slot| match state.apply(NOW, CatalogCommand::OpenShard { slot, members: [7].into() }) {
        CommandResult::Shard(shard) => shard,
        other => panic!("{other:?}"),
    };
    let (again, other) = (open(0), open(5));
    assert_eq!((again.id, other.id, other.slot), (1, 6, 5));
    assert_eq!((shard_id(5, 3), decode_shard_id(shard_id(5, 3))), (2 << 16 | 6, Some((5, 3))));
    assert_eq!((decode_shard_id(0), decode_shard_id(1 << 16)), (None, None));
}

#[test]
fn a_shard_of_no_slot_or_epoch_contradicts_itself() {
    for (slot, epoch) in [(0, 0), (0, 2), (u32::MAX, 1), (1 << 16, 1), (0, u32::MAX)] {
        let mut state = opened();
        let shard = state.shards.get_mut(&1).unwrap();
        (shard.slot, shard.epoch) = (slot, epoch);
        assert!(state.check().is_err(), "{slot} {epoch}");
    }
}

#[test]
fn slots_are_opened_together_and_once() {
    let mut state = CatalogState::default();
    let open = |state: &mut CatalogState, count: u32| {
        let (members, zones) = (vec![[7].into(); count as usize], [(7, String::new())].into());
        state.apply(NOW, CatalogCommand::OpenSlots { count, members, zones })
    };
    assert_eq!(
        (open(&mut state, 3), open(&mut state, 5)),
        (CommandResult::Changed(3), CommandResult::Changed(0))
    );
    let view = state.routing_view();
    let shards: Vec<(ShardId, bool)> =
        view.shards.iter().map(|shard| (shard.id, shard.phase == ShardPhase::Open)).collect();
    assert_eq!(shards, [(1, true), (2, true), (3, true)]);
    assert!(view.shards.iter().all(|shard| shard.members == [7].into()));
    assert_eq!((view.tables.unwrap().table_at(0).slots(), view.revision), (&[0, 1, 2][..], 1));
}

#[test]
fn what_a_shard_calls_registered_and_nobody_knows_is_a_gap_until_its_blocks_are_found() {
    let mut state = opened();
    register(&mut state, block(1, 0, 10));
    let raise =
        |state: &mut CatalogState, to| state.apply(NOW, CatalogCommand::AdvanceWatermark { shard: 1, to });
    assert_eq!(
        (raise(&mut state, 10), raise(&mut state, 40)),
        (CommandResult::Changed(0), CommandResult::Changed(1))
    );
    // Whoever cuts goes on behind the gap.
    assert_eq!(register(&mut state, block(5, 40, 50)), CommandResult::Registered(50));
    let gaps = |state: &CatalogState| -> Vec<(u64, u64)> {
        let data_losses = state.list_blocks(&TenantId::anonymous(), 0, 0).data_losses;
        data_losses
            .iter()
            .map(|record| match record.loss {
                DataLoss::MissingBlocks { shard: 1, from, to } => (from, to),
                _ => panic!("{record:?}"),
            })
            .collect()
    };
    let recall = |state: &mut CatalogState, block| state.apply(NOW, CatalogCommand::ReinstateBlock { block });
    for (other, from, to) in [(6, 5, 20), (7, 30, 45), (8, 45, 50), (9, 30, 30)] {
        assert!(
            matches!(recall(&mut state, block(other, from, to)), CommandResult::Refused(_)),
            "{from}..{to}"
        );
    }
    state.apply(NOW, CatalogCommand::TombstoneBlocks { blocks: vec![BlockId::from_number(4)], tenant: None });
    let tombstones = CommandResult::Refused(CommandError::Tombstoned(BlockId::from_number(4)));
    assert_eq!(recall(&mut state, block(4, 20, 30)), tombstones);
    assert_eq!(recall(&mut state, block(3, 20, 30)), CommandResult::Registered(50));
    assert_eq!(recall(&mut state, block(3, 20, 30)), CommandResult::Registered(50), "again changes nothing");
    assert_eq!(
        recall(&mut state, block(2, 20, 30)),
        CommandResult::Refused(CommandError::NotInGap(BlockId::from_number(2)))
    );
    assert_eq!((gaps(&state), state.blocks().count()), (vec![(10, 20), (30, 40)], 3));
    assert_eq!(
        state.apply(NOW, CatalogCommand::CloseGap { shard: 1, from: 10, to: 15 }),
        CommandResult::Changed(1)
    );
    assert_eq!(
        state.apply(NOW, CatalogCommand::CloseGap { shard: 1, from: 10, to: 15 }),
        CommandResult::Changed(0)
    );
    assert_eq!(gaps(&state), [(30, 40), (15, 20)]);
    assert_eq!(CatalogState::decode(&state.encode()).unwrap(), state);
}

#[test]
fn outputs_of_a_lost_job_are_reinstated_together_or_not_at_all() {
    let mut state = opened();
    register(&mut state, block(1, 0, 10));
    state.apply(NOW, CatalogCommand::AdvanceWatermark { shard: 1, to: 40 });
    let output = |number: u128, tier: Tier, to: u64| {
        let is_covered = tier.is_raw();
        BlockEntry { level: 3, tier, is_covered, job: Some(7), ..block(number, 20, to) }
    };
    let whole =
        || vec![output(2, Tier::Raw, 30), output(3, Tier::FiveMinutes, 30), output(4, Tier::OneHour, 30)];
    let recall =
        |state: &mut CatalogState, outputs| state.apply(NOW, CatalogCommand::ReinstateJob { outputs });
    // One of them reaches beyond the gap.
    let before = state.clone();
    let refused = recall(&mut state, [whole(), vec![output(5, Tier::OneDay, 45)]].concat());
    assert!(matches!(refused, CommandResult::Refused(CommandError::NotInGap(_))), "{refused:?}");
    let of_two_jobs = [whole(), vec![BlockEntry { job: Some(8), ..output(5, Tier::OneDay, 30) }]].concat();
    let refused = recall(&mut state, of_two_jobs);
    assert_eq!(refused, CommandResult::Refused(CommandError::NotOfJob(BlockId::from_number(5))));
    assert_eq!(state, before);
    assert_eq!(recall(&mut state, whole()), CommandResult::Changed(3));
    assert_eq!(recall(&mut state, whole()), CommandResult::Changed(0), "a retry changes nothing");
    assert_eq!(state.blocks().count(), 4);
    // Another job with the same rows is refused as a whole.
    let other = whole().into_iter().map(|block| BlockEntry {
        id: BlockId::from_number(block.id.number() + 10),
        job: Some(9),
        ..block
    });
    assert!(matches!(recall(&mut state, other.collect()), CommandResult::Refused(_)));
    assert_eq!(state.blocks().count(), 4);
}

#[test]
fn damage_is_remembered_once_and_until_it_is_forgotten() {
    let mut state = opened();
    let at = |seconds| Timestamp::from_seconds(seconds);
    let mark = |state: &mut CatalogState, loss, seconds| {
        state.apply(at(seconds), CatalogCommand::RecordDataLoss { loss })
    };
    let ids = |to| DataLoss::ForgottenIds { shard: 1, to };
    assert_eq!(mark(&mut state, ids(6), 4), CommandResult::Changed(1));
    assert_eq!(mark(&mut state, ids(7), 5), CommandResult::Changed(1), "in its place");
    assert_eq!(mark(&mut state, ids(7), 6), CommandResult::Changed(0));
    assert_eq!(mark(&mut state, DataLoss::UnknownLogRange { from: 2, to: 9 }, 8), CommandResult::Changed(1));
    assert_eq!(
        state.apply(at(8), CatalogCommand::ClearDataLoss { before: at(5) }),
        CommandResult::Changed(0)
    );
    assert_eq!(
        state.apply(at(8), CatalogCommand::ClearDataLoss { before: at(6) }),
        CommandResult::Changed(1)
    );
    assert_eq!(state.list_blocks(&TenantId::anonymous(), 0, 0).data_losses.len(), 1);
}

proptest! {
    #[test]
    fn blocks_of_a_shard_are_a_chain(tries in prop::collection::vec((0u128..6, 0u64..5, 0u64..5, any::<bool>()), 0..40)) {
        let mut state = opened();
        for (number, from, to, condemn) in tries {
            let command = if condemn {
                CatalogCommand::TombstoneBlocks { blocks: vec![BlockId::from_number(number)], tenant: None }
            } else {
                CatalogCommand::RegisterBlock { block: block(number, from, to) }
            };
            let CatalogLogEntry { time, command } = CatalogLogEntry::decode(&CatalogLogEntry { time: NOW, command }.encode()).unwrap();
            state.apply(time, command);
            let mut ranges: Vec<_> = state.blocks().map(|block| (block.from, block.to)).collect();
            ranges.sort_unstable();
            prop_assert!(ranges.iter().all(|(from, to)| from < to));
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            let shard = &state.list_blocks(&TenantId::anonymous(), 0, 0).shards[0];
            prop_assert!(ranges.iter().all(|range| range.1 <= shard.watermark));
            prop_assert!(state.blocks().all(|block| !state.tombstones().any(|(id, _)| id == block.id)));
            prop_assert_eq!(&CatalogState::decode(&state.encode()).unwrap(), &state);
        }
    }
}
