//! A catalogue that lost its voters, rebuilt from what is left of it.

mod history;
mod jobs;
mod model;

use athanor_chassis::Tier;
use athanor_cluster::placement::SlotTable;
use proptest::collection::vec;

use super::random::{begun, drawn, is_quiet, polite};
use super::*;
use crate::PartId;

const HOUR: Duration = Duration::from_secs(3600);
#[test]
fn of_two_blocks_of_one_range_the_younger_is_taken() {
    let at = |number, from, to| BucketBlock { block: super::block(number, from, to), job: None };
    let blocks = vec![at(1, 0, 10), at(2, 0, 4), at(3, 4, 10), at(4, 10, 20), at(5, 10, 20), at(6, 15, 30)];
    let reports = ShardReport { shard: 1, members: [7].into(), flushed: 10, ..ShardReport::default() };
    let input = RecoveryInput { blocks, reports: vec![reports], ..RecoveryInput::default() };
    let (state, findings) = CatalogState::recover(input).unwrap();
    let ids: Vec<u128> = state.blocks.keys().map(|block| block.number()).collect();
    assert_eq!(ids, [2, 3, 5]);
    assert_eq!((state.shards[&1].watermark, findings.gaps), (20, vec![]));
    assert_eq!(findings.skipped.iter().map(|block| block.number()).collect::<Vec<_>>(), [1, 4, 6]);
}

#[test]
fn rebuild_without_a_snapshot_reads_expired_times_from_complete_tiers() {
    let shard = || ShardReport { shard: 1, members: [7].into(), flushed: 10, ..ShardReport::default() };
    let raw = BlockEntry { level: 3, is_covered: true, job: Some(7), ..super::block(10, 0, 10) };
    let tiers = Tier::DOWNSAMPLED.iter().zip(11..);
    let mut outputs: Vec<BlockEntry> =
        tiers.map(|(tier, number)| super::jobs::downsampled(&raw, *tier, number)).collect();
    let rebuilt = |outputs: &[BlockEntry]| {
        let mut state = opened();
        state.shards.get_mut(&1).unwrap().watermark = 10;
        for output in outputs {
            state.blocks.insert(output.id, output.clone());
        }
        state.derive_expired_times();
        state.list_blocks(&TenantId::anonymous(), 0, 0).expired_until
    };
    assert_eq!(rebuilt(&[&outputs[..], std::slice::from_ref(&raw)].concat()), BTreeMap::new());
    let end = Tier::FiveMinutes.bucket_end(9);
    assert_eq!(rebuilt(&outputs), [(Tier::Raw, end)].into(), "raw rows are gone");
    let expired = outputs.remove(1);
    assert_eq!(rebuilt(&outputs), [(Tier::Raw, end), (expired.tier, end)].into(), "two tiers lack rows");
    let input = RecoveryInput { reports: vec![shard()], ..RecoveryInput::default() };
    let (state, _) = CatalogState::recover(input).unwrap();
    assert_eq!(state.list_blocks(&TenantId::anonymous(), 0, 0).expired_until, BTreeMap::new());
}

#[test]
fn what_is_lost_is_told() {
    let at = |number, from, to| BucketBlock { block: super::block(number, from, to), job: None };
    let mut before = opened();
    register(&mut before, block(1, 0, 10));
    register(&mut before, block(2, 10, 20));
    let of_nobody = BucketBlock { block: BlockEntry { shard: 5, ..block(9, 0, 3) }, job: None };
    let blocks = vec![at(2, 10, 20), at(3, 25, 30), of_nobody];
    let reports = ShardReport { shard: 1, members: [7].into(), flushed: 40, ..ShardReport::default() };
    let input =
        RecoveryInput { snapshot: Some(before), blocks, reports: vec![reports], ..RecoveryInput::default() };
    let (state, findings) = CatalogState::recover(input).unwrap();
    assert_eq!(findings.gaps, [(1, 0, 10), (1, 20, 25), (1, 30, 40)]);
    assert_eq!(findings.missing, [BlockId::from_number(1)]);
    assert_eq!((findings.new_shards, findings.shards_without_log), (vec![5], vec![5]));
    assert_eq!(state.shards[&1].watermark, 40);
    assert_eq!((state.shards[&5].watermark, &state.shards[&5].members), (3, &[].into()));
    let listing = state.list_blocks(&TenantId::anonymous(), i64::MIN, i64::MAX);
    assert_eq!((listing.blocks.len(), listing.data_losses.len()), (3, 3));
    let odd = ShardReport { shard: 1 << 16, ..ShardReport::default() };
    let odd = RecoveryInput { reports: vec![odd], ..RecoveryInput::default() };
    assert_eq!(CatalogState::recover(odd).unwrap_err(), CatalogRecoveryError::NoShard(1 << 16));
    let one = ShardReport { shard: 1, members: [7].into(), ..ShardReport::default() };
    let two = ShardReport { shard: 1, members: [8].into(), ..ShardReport::default() };
    let said = RecoveryInput { reports: vec![one, two], ..RecoveryInput::default() };
    assert!(matches!(CatalogState::recover(said).unwrap_err(), CatalogRecoveryError::Contradiction(_)));
}

#[test]
fn a_table_that_all_have_fenced_may_have_been_published_and_is() {
    let mut state = CatalogState::default();
    let zones = [7, 8].map(|node| (node, String::new()));
    let members = vec![[7].into(), [8].into()];
    state.apply(NOW, CatalogCommand::OpenSlots { count: 2, members, zones: zones.into() });
    let table = SlotTable::with_all_slots(2, NOW.plus(HOUR * 30).nanos(), vec![0]).unwrap();
    state.apply(NOW, CatalogCommand::ProposeTable { table: table.clone() });
    let reports = |fences: [u64; 2], table: Option<&SlotTable>| {
        [1, 2].map(|shard| ShardReport {
            shard,
            members: [u64::from(shard) + 6].into(),
            fenced: fences[shard as usize - 1],
            tables: table.cloned().into_iter().collect(),
            ..ShardReport::default()
        })
    };
    for (fences, seen, expected) in [([1, 2], None, 1), ([2, 2], None, 2), ([2, 1], Some(&table), 2)] {
        let reports = reports(fences, seen).into();
        let input = RecoveryInput { snapshot: Some(state.clone()), reports, ..RecoveryInput::default() };
        let (rebuilt, _) = CatalogState::recover(input).unwrap();
        assert_eq!((rebuilt.newest_table_version(), &rebuilt.pending), (expected, &None), "{fences:?}");
        assert_eq!(rebuilt.newest_proposed, 2, "its version is not proposed again for another time");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Whatever shards became since the snapshot, and whoever does not tell of it: facts hold, and a way leads out.
    #[test]
    fn rebuilt_facts_agree_and_go_on(
        draws in vec(drawn(), 0..100),
        snapshot in 0usize..100,
        silent in vec(any::<bool>(), 32),
        tells in any::<bool>(),
    ) {
        let (mut truth, mut at) = (begun(), NOW.plus(HOUR));
        let mut before = None;
        for (step, drawn) in draws.into_iter().enumerate() {
            at = Timestamp::from_nanos(at.nanos() + drawn.minutes * 60 * 1_000_000_000);
            truth.apply(at, drawn.command(&truth));
            if step == snapshot {
                before = Some(truth.clone());
            }
        }
        let reports = truth.shards.values().zip(&silent).filter(|(shard, silent)| !shard.is_retired() && !**silent);
        let reports = reports.map(|(shard, _)| ShardReport {
            node: None,
            shard: shard.id,
            members: shard.members.clone(),
            flushed: shard.watermark,
            sealed: match shard.phase {
                ShardPhase::Sealed { last_index } => Some(last_index),
                _ => None,
            },
            fenced: shard.fenced,
            inherited: match shard.phase {
                // Not yet as a whole.
                ShardPhase::Opening { source: HandoffSource::DedupWindow { up_to: None, .. } } => None,
                ShardPhase::Opening { source } if tells => Some(source),
                _ => None,
            },
            accepted_profiles: tells.then_some(!matches!(shard.phase, ShardPhase::Opening { .. })),
            tables: truth.tables.iter().map(|tables| tables.table_at(i64::MAX).clone()).collect(),
        });
        let reports = reports.collect();
        // Its inputs are gone, so the job of a merged block finished.
        let gone = || PartId { block: BlockId::from_number(1), tenant: TenantId::anonymous() };
        let blocks = truth.blocks().map(|block| BucketBlock {
            block: block.clone(),
            job: block.job.map(|token| JobSource {
                token,
                outputs: vec![block.id],
                inputs: [gone()].into_iter().collect(),
            }),
        });
        let blocks = blocks.collect();
        let input = RecoveryInput { snapshot: before, blocks, reports, at, retained_since: NOW };
        let (mut state, _) = CatalogState::recover(input).unwrap();
        for (id, shard) in &truth.shards {
            if let (Some(rebuilt), false) = (state.shards.get(id), shard.is_retired()) {
                prop_assert!(rebuilt.watermark >= shard.watermark || silent.iter().any(|silent| *silent));
            }
        }
        let mut fresh = 1000;
        for round in 0..9 {
            let view = state.routing_view();
            if is_quiet(&view) {
                break;
            }
            prop_assert!(round < 8, "{:?}", view.shards);
            for command in polite(&view, &mut fresh) {
                state.apply(at, command);
            }
        }
    }
}

/// A slot whose first shard is to be followed, and what its two shards say; the snapshot is of before.
fn followed(first: ShardReport, second: ShardReport) -> Result<CatalogState, CatalogRecoveryError> {
    let mut state = opened();
    state.apply(NOW, CatalogCommand::RequestSeal { shard: 1 });
    let first = ShardReport { shard: 1, members: [7].into(), fenced: 1, ..first };
    let second = ShardReport { shard: shard_id(0, 2), members: [8].into(), fenced: 1, ..second };
    let reports = vec![first, second];
    CatalogState::recover(RecoveryInput { snapshot: Some(state), reports, ..RecoveryInput::default() })
        .map(|(state, _)| state)
}

/// INV-12, INV-16: what is open takes repeats of what it does not know.
#[test]
fn a_successor_that_has_taken_nothing_inherits_before_it_opens() {
    let (first, second) = (1, shard_id(0, 2));
    let sealed = ShardReport { sealed: Some(10), accepted_profiles: Some(true), ..ShardReport::default() };
    let fresh = ShardReport { accepted_profiles: Some(false), ..ShardReport::default() };
    let state = followed(sealed.clone(), fresh.clone()).unwrap();
    let phase = |state: &CatalogState, shard| state.shards[&shard].phase.clone();
    assert_eq!(phase(&state, first), ShardPhase::Sealed { last_index: 10 });
    let window =
        |up_to| ShardPhase::Opening { source: HandoffSource::DedupWindow { predecessor: first, up_to } };
    assert_eq!(phase(&state, second), window(Some(10)));
    // It copies while the other has not ended.
    let state =
        followed(ShardReport { accepted_profiles: Some(true), ..ShardReport::default() }, fresh).unwrap();
    assert_eq!((phase(&state, first), phase(&state, second)), (ShardPhase::Sealing, window(None)));
    let open = ShardReport {
        accepted_profiles: Some(true),
        inherited: Some(HandoffSource::DedupWindow { predecessor: first, up_to: None }),
        ..ShardReport::default()
    };
    let state = followed(sealed, open).unwrap();
    assert_eq!(
        (phase(&state, first), phase(&state, second)),
        (ShardPhase::Sealed { last_index: 10 }, ShardPhase::Open)
    );
}

/// INV-13, INV-16: what only blocks told of the one before, that one has to settle.
#[test]
fn who_was_lost_and_has_sealed_since_settles() {
    let sealed = ShardReport { sealed: Some(10), accepted_profiles: Some(true), ..ShardReport::default() };
    let inherited = Some(HandoffSource::RegisteredBlocks { predecessor: 1, up_to: 0 });
    for taken in [true, false] {
        let by = ShardReport { accepted_profiles: Some(taken), inherited, ..ShardReport::default() };
        let state = followed(sealed.clone(), by).unwrap();
        assert_eq!(state.shards[&1].phase, ShardPhase::Lost { watermark: 0 }, "{taken}");
    }
}

/// INV-13, INV-16: taken for lost, it would hear that all of its records are held, by one that has only their ids.
#[test]
fn who_was_copied_as_a_whole_must_say_where_it_ended() {
    let by = ShardReport {
        accepted_profiles: Some(true),
        inherited: Some(HandoffSource::DedupWindow { predecessor: 1, up_to: None }),
        ..ShardReport::default()
    };
    let refused =
        followed(ShardReport { accepted_profiles: Some(true), ..ShardReport::default() }, by).unwrap_err();
    assert_eq!(refused, CatalogRecoveryError::Unsealed { shard: 1, successor: shard_id(0, 2) });
}

/// INV-16: neither the snapshot nor its node tells of a shard, but the one that copies its ids.
#[test]
fn who_is_silent_is_known_by_who_copies_its_ids() {
    let (second, third) = (shard_id(0, 2), shard_id(0, 3));
    let inherited = Some(HandoffSource::DedupWindow { predecessor: second, up_to: Some(4) });
    let told = ShardReport {
        shard: third,
        members: [9].into(),
        fenced: 1,
        accepted_profiles: Some(false),
        inherited,
        ..ShardReport::default()
    };
    let reports = vec![told];
    let (state, findings) = CatalogState::recover(RecoveryInput {
        snapshot: Some(opened()),
        reports,
        ..RecoveryInput::default()
    })
    .unwrap();
    assert_eq!(state.shards[&second].phase, ShardPhase::Sealed { last_index: 4 });
    assert!(findings.shards_without_log.contains(&second));
}
