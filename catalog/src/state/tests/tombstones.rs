//! Tombstones: lifetime, removal of objects, folder and log range of their blocks.

use super::jobs::*;
use super::*;
use crate::{Catalog, InMemoryCatalog, ShardLogRange};
use athanor_chassis::Clock;

fn removed(state: &mut CatalogState, at: Timestamp, numbers: &[u128]) -> CommandResult {
    let blocks = numbers.iter().map(|number| BlockId::from_number(*number)).collect();
    state.apply(at, CatalogCommand::RecordRemovedObjects { blocks })
}

fn tombstone(state: &CatalogState, number: u128) -> Option<Tombstone> {
    state.tombstones.get(&BlockId::from_number(number)).cloned()
}

#[test]
fn removal_is_recorded_in_bulk_and_one_stuck_block_keeps_only_its_own_tombstone() {
    let mut state = filled();
    merge(&mut state, &[1, 2, 3], 10..11, false);
    assert_eq!(removed(&mut state, NOW, &[1, 3, 4, 99]), CommandResult::Changed(2));
    assert_eq!(removed(&mut state, NOW, &[1, 3]), CommandResult::Changed(0), "a retry changes nothing");
    let early = NOW.plus(TOMBSTONE_RETENTION - Duration::from_secs(1));
    state.apply(early, CatalogCommand::ExpireTombstones);
    assert_eq!(state.tombstones().count(), 3);
    let late = NOW.plus(TOMBSTONE_RETENTION);
    assert_eq!(state.apply(late, CatalogCommand::ExpireTombstones), CommandResult::Changed(2));
    assert!(tombstone(&state, 2).is_some_and(|tombstone| !tombstone.is_removed));
    assert_eq!(state.tombstones().count(), 1);
    assert_eq!(removed(&mut state, late, &[2]), CommandResult::Changed(1));
    assert_eq!(state.apply(late, CatalogCommand::ExpireTombstones), CommandResult::Changed(1));
}

#[test]
fn objects_of_a_restorable_block_are_not_recorded_as_removed() {
    let mut state = filled();
    let late = NOW.plus(Duration::from_secs(10));
    let retention = Duration::from_secs(5);
    state.apply(
        late,
        CatalogCommand::ExpireBlocks { retention: RetentionPolicy::uniform(retention), max_percent: None },
    );
    assert_eq!(removed(&mut state, late, &[1]), CommandResult::Changed(0));
    state.apply(late, purge(late, vec![BlockId::from_number(1)]));
    assert_eq!(removed(&mut state, late, &[1]), CommandResult::Changed(1));
}

#[test]
fn tombstone_names_the_folder_and_the_flushed_range_of_its_block() {
    let mut state = filled();
    let job = parts(&[(1, "a"), (2, "a")]);
    let inputs = claimed_inputs(&state, &job);
    let token = token(&mut state, NOW, job);
    let outputs = merged(&inputs, 10..11, false, token);
    finish(&mut state, token, covered(outputs, 2, 11..20));
    merge(&mut state, &[1, 2], 20..21, false);
    merge(&mut state, &[10], 30..31, false);
    let owner: TenantId = "orphan".parse().unwrap();
    let blocks = vec![BlockId::from_number(20), BlockId::from_number(40)];
    state.apply(NOW, CatalogCommand::TombstoneBlocks { blocks, tenant: Some(owner.clone()) });
    let flushed = Some(ShardLogRange { shard: 1, epoch: 1, from: 0, to: 10 });
    let of = |tenant: Option<&str>, flushed| Tombstone {
        since: NOW,
        tenant: tenant.map(|tenant| tenant.parse().unwrap()),
        flushed,
        is_removed: false,
    };
    assert_eq!(tombstone(&state, 1), Some(of(None, flushed)));
    assert_eq!(tombstone(&state, 10), Some(of(Some("a"), None)));
    assert_eq!(tombstone(&state, 20), Some(of(None, None)), "a listed block knows its folder");
    assert_eq!(tombstone(&state, 40), Some(of(Some(owner.as_str()), None)));
    assert_eq!(CatalogState::decode(&state.encode()).unwrap(), state);
}

/// INV-13: a lost shard's successor finds the ids of its slot after they were merged.
#[tokio::test]
async fn blocks_of_a_slot_are_the_flushed_ones_though_they_were_merged() {
    let (clock, _hand) = Clock::manual(NOW);
    let catalog = InMemoryCatalog::new(clock);
    *catalog.state() = filled();
    merge(&mut catalog.state(), &[1, 3], 10..11, false);
    let of_slot = async |slot| {
        let blocks = catalog.blocks_of_slot(slot, NOW).await.unwrap();
        assert!(blocks.iter().all(|block| block.tenants.is_empty() && block.level == 0));
        blocks.iter().map(|block| (block.id.number(), block.from, block.to)).collect::<Vec<_>>()
    };
    assert_eq!(of_slot(0).await, [(1, 0, 10), (2, 10, 30)]);
    assert_eq!(of_slot(1).await, [(3, 0, 5), (4, 5, 6)]);
    removed(&mut catalog.state(), NOW, &[1]);
    assert_eq!(of_slot(0).await, [(2, 10, 30)]);
    assert!(catalog.blocks_of_slot(0, NOW.plus(Duration::from_secs(1))).await.unwrap().is_empty());
}
