//! Blocks with more tenants than one command names.

use crate::{Catalog, InMemoryCatalog, MAX_TENANTS_PER_COMMAND};
use athanor_chassis::Clock;

use super::*;

fn name(number: usize) -> TenantId {
    format!("{number:0150}").parse().unwrap()
}

fn spans(numbers: std::ops::Range<usize>) -> Vec<TenantSpan> {
    numbers.map(|number| TenantSpan { tenant: name(number), ..span() }).collect()
}

fn stage(state: &mut CatalogState, number: u128, offset: u64, tenants: Vec<TenantSpan>) -> CommandResult {
    let block = BlockId::from_number(number);
    state.apply(NOW, CatalogCommand::StageTenants { shard: 1, block, offset, tenants })
}

fn register_staged_block(state: &mut CatalogState, number: u128, tenants: u64) -> CommandResult {
    let block = BlockEntry { tenants: Vec::new(), ..block(number, 0, 10) };
    state.apply(NOW, CatalogCommand::RegisterStagedBlock { block, tenants })
}

#[test]
fn staged_block_exists_when_all_tenants_are_named() {
    let mut state = opened();
    let otherwise =
        |staged, named| CommandError::StagedTenantsMismatch { block: BlockId::from_number(1), staged, named };
    assert_eq!(register_staged_block(&mut state, 1, 9), CommandResult::Refused(otherwise(0, 9)));
    assert_eq!(stage(&mut state, 1, 2, spans(2..4)), CommandResult::Refused(otherwise(0, 2)));
    assert_eq!(stage(&mut state, 1, 0, spans(0..4)), CommandResult::Staged(4));
    assert_eq!(stage(&mut state, 1, 0, spans(0..4)), CommandResult::Staged(4), "again changes nothing");
    assert_eq!(stage(&mut state, 1, 3, spans(3..6)), CommandResult::Staged(6), "an overlap is appended once");
    assert_eq!(register_staged_block(&mut state, 1, 9), CommandResult::Refused(otherwise(6, 9)));
    assert_eq!(state.list_blocks(&name(5), 0, 20).blocks.len(), 0);
    // A voter that begins with a snapshot in between knows the same.
    state = CatalogState::decode(&state.encode()).unwrap();
    assert_eq!(stage(&mut state, 1, 6, spans(6..9)), CommandResult::Staged(9));
    assert_eq!(register_staged_block(&mut state, 1, 9), CommandResult::Registered(10));
    assert_eq!(
        register_staged_block(&mut state, 1, 9),
        CommandResult::Registered(10),
        "again changes nothing"
    );
    assert_eq!(stage(&mut state, 1, 0, spans(0..4)), CommandResult::Registered(10));
    let block = state.blocks().next().unwrap();
    assert_eq!(block.tenants, spans(0..9));
    assert!((0..9).all(|number| state.list_blocks(&name(number), 0, 20).blocks.len() == 1));
    assert!(state.staged.is_empty());
    state.check().unwrap();
}

#[test]
fn staged_tenants_end_with_their_block() {
    let mut state = opened();
    let number = 5;
    stage(&mut state, number, 0, spans(0..4));
    // The next leader uploads a block of its own.
    assert_eq!(stage(&mut state, number + 1, 0, spans(0..3)), CommandResult::Staged(3));
    assert!(matches!(
        register_staged_block(&mut state, number, 4),
        CommandResult::Refused(CommandError::StagedTenantsMismatch { .. })
    ));
    state.apply(
        NOW,
        CatalogCommand::TombstoneBlocks { blocks: vec![BlockId::from_number(number + 1)], tenant: None },
    );
    assert!(state.staged.is_empty());
    let tombstones = CommandError::Tombstoned(BlockId::from_number(number + 1));
    assert_eq!(stage(&mut state, number + 1, 0, spans(0..3)), CommandResult::Refused(tombstones));
    // Nobody comes back for it.
    stage(&mut state, number, 0, spans(0..4));
    state.apply(NOW.plus(MAX_BLOCK_NAME_SKEW), CatalogCommand::ExpireTombstones);
    assert_eq!(state.staged.len(), 1);
    state.apply(NOW.plus(MAX_BLOCK_NAME_SKEW + Duration::from_secs(1)), CatalogCommand::ExpireTombstones);
    assert!(state.staged.is_empty());
}

#[test]
fn staged_block_is_recalled_into_its_gap() {
    let mut state = opened();
    state.apply(NOW, CatalogCommand::AdvanceWatermark { shard: 1, to: 10 });
    stage(&mut state, 1, 0, spans(0..4));
    let block = BlockEntry { tenants: Vec::new(), ..block(1, 0, 10) };
    assert_eq!(
        state.apply(NOW, CatalogCommand::ReinstateStagedBlock { block, tenants: 4 }),
        CommandResult::Registered(10)
    );
    assert_eq!(state.list_blocks(&name(3), 0, 20).blocks.len(), 1);
    assert!(state.data_losses.is_empty() && state.staged.is_empty());
}

#[test]
fn largest_part_fits_into_a_command() {
    let span = |number| TenantSpan {
        tenant: name(number),
        min_time: i64::MIN,
        max_time: i64::MIN,
        profiles: u64::MAX,
        samples: u64::MAX,
        sum: Some(u64::MAX),
        newest_arrival: Timestamp::from_nanos(i64::MIN),
    };
    let tenants = (0..MAX_TENANTS_PER_COMMAND).map(span).collect();
    let block = BlockId::from_number(u128::MAX);
    let command = CatalogCommand::StageTenants { shard: u32::MAX, block, offset: u64::MAX, tenants };
    let bytes = CatalogLogEntry { time: Timestamp::from_nanos(i64::MAX), command }.encode().len();
    assert!(bytes < 768 << 10, "{bytes} bytes");
}

#[tokio::test]
async fn retry_of_registration_stages_only_what_is_missing() {
    let (clock, _hand) = Clock::manual(NOW);
    let catalog = InMemoryCatalog::new(clock);
    catalog.open_shard(0, 7).await.unwrap();
    let all = 2 * MAX_TENANTS_PER_COMMAND + 1;
    let many = BlockEntry { tenants: spans(0..all), ..block(1, 0, 10) };
    stage(&mut catalog.state(), 1, 0, spans(0..MAX_TENANTS_PER_COMMAND + 7));
    let before = catalog.state().revision();
    assert_eq!(catalog.register_block(many.clone()).await.unwrap(), 10);
    // The first part is known and one is missing.
    assert_eq!(catalog.state().revision() - before, 2);
    assert_eq!(catalog.register_block(many).await.unwrap(), 10);
    assert_eq!(catalog.list_blocks(&name(all - 1), 0, 20).await.unwrap().blocks.len(), 1);
}
