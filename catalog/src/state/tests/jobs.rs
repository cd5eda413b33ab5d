//! Jobs for tests: outputs that a correct merge would write, claims and finishes.

use athanor_chassis::Tier;
use std::ops::Range;

use super::*;
use crate::TenantSpan;

/// Sum of values of each part in the tests.
pub(super) const SUM: u64 = u64::MAX / 2;

/// Returns spans with one profile of each tenant.
pub(super) fn spans(tenants: &[&str]) -> Vec<TenantSpan> {
    tenants.iter().map(|tenant| TenantSpan { tenant: tenant.parse().unwrap(), ..span() }).collect()
}

/// Returns the outputs of a job that merges all listed parts of the inputs and drops nothing: one for all
/// tenants, or one per tenant.
pub(super) fn merged(inputs: &[BlockEntry], names: Range<u128>, apart: bool, token: u64) -> Vec<BlockEntry> {
    let mut tenants: BTreeMap<TenantId, TenantSpan> = BTreeMap::new();
    for input in inputs {
        for span in &input.tenants {
            let newest_arrival = input.newest_arrival(span);
            let span = TenantSpan { newest_arrival, ..span.clone() };
            tenants.entry(span.tenant.clone()).and_modify(|all| add_span(all, &span)).or_insert(span);
        }
    }
    let parts: Vec<Vec<TenantSpan>> = match apart {
        true => tenants.into_values().map(|span| vec![span]).collect(),
        false => vec![tenants.into_values().collect()],
    };
    names.zip(parts).map(|(name, tenants)| output(inputs, name, tenants, token)).collect()
}

fn add_span(all: &mut TenantSpan, span: &TenantSpan) {
    all.min_time = all.min_time.min(span.min_time);
    all.max_time = all.max_time.max(span.max_time);
    all.profiles += span.profiles;
    all.samples += span.samples;
    all.sum = all.sum.zip(span.sum).map(|(one, other)| one.wrapping_add(other));
    all.newest_arrival = all.newest_arrival.max(span.newest_arrival);
}

/// Returns an output of the inputs' tier with these tenants, and the log ranges of the inputs that hold one of
/// them.
pub(super) fn output(inputs: &[BlockEntry], name: u128, tenants: Vec<TenantSpan>, token: u64) -> BlockEntry {
    let holds = |input: &&BlockEntry| tenants.iter().any(|span| input.tenant_span(&span.tenant).is_some());
    let rows =
        crate::ShardLogRange::join_adjacent(inputs.iter().filter(holds).flat_map(BlockEntry::log_ranges));
    let crate::ShardLogRange { shard, epoch, from, to } = rows[0];
    let tier = inputs[0].tier;
    let level = inputs.iter().map(|input| input.level).max().unwrap().max(1);
    BlockEntry {
        id: BlockId::from_number(name),
        shard,
        epoch,
        from,
        to,
        bytes: 1,
        samples: tenants.iter().map(|span| span.samples).sum(),
        lost: 0,
        level,
        additional_ranges: rows[1..].to_vec(),
        tier,
        is_covered: tier.is_raw() && level > 1,
        job: Some(token),
        tenants,
    }
}

/// Raises raw outputs of uncovered inputs to a level from 2 on. Returns them, covered, with a block of each tier
/// for each of them.
pub(super) fn covered(outputs: Vec<BlockEntry>, level: u8, tier_names: Range<u128>) -> Vec<BlockEntry> {
    let raw: Vec<BlockEntry> =
        outputs.into_iter().map(|output| BlockEntry { level, is_covered: true, ..output }).collect();
    let tiers = raw.iter().flat_map(|output| Tier::DOWNSAMPLED.map(|tier| (output, tier)));
    let tiers = tiers.zip(tier_names).map(|((output, tier), name)| downsampled(output, tier, name));
    let tiers: Vec<BlockEntry> = tiers.collect();
    raw.into_iter().chain(tiers).collect()
}

/// Returns a block of a tier with all rows of a raw block.
pub(super) fn downsampled(raw: &BlockEntry, tier: Tier, name: u128) -> BlockEntry {
    let to_buckets = |span: &TenantSpan| TenantSpan {
        min_time: tier.bucket_end(span.min_time),
        max_time: tier.bucket_end(span.max_time),
        ..span.clone()
    };
    let tenants = raw.tenants.iter().map(to_buckets).collect();
    BlockEntry { id: BlockId::from_number(name), tier, is_covered: false, tenants, ..raw.clone() }
}

/// Returns the blocks of a claim, each with the claimed parts only.
pub(super) fn claimed_inputs(state: &CatalogState, parts: &JobParts) -> Vec<BlockEntry> {
    let restricted = |(id, tenants): (BlockId, std::collections::BTreeSet<&TenantId>)| {
        let block: &BlockEntry = state.blocks.get(&id)?;
        let mut block = block.clone();
        block.tenants.retain(|span| tenants.contains(&span.tenant));
        Some(block)
    };
    parts.tenants_by_block().into_iter().filter_map(restricted).collect()
}

/// Two shards with two blocks each, of the tenants a and b.
pub(super) fn filled() -> CatalogState {
    let mut state = CatalogState::default();
    let members = vec![[7].into(); 2];
    let zones = [(7, String::new())].into();
    state.apply(NOW, CatalogCommand::OpenSlots { count: 2, members, zones });
    for (number, shard, from, to) in [(1, 1, 0, 10), (2, 1, 10, 30), (3, 2, 0, 5), (4, 2, 5, 6)] {
        let block = BlockEntry { shard, tenants: spans(&["a", "b"]), samples: 4, ..block(number, from, to) };
        assert_eq!(register(&mut state, block), CommandResult::Registered(to));
    }
    state
}

pub(super) fn listed(state: &CatalogState, numbers: &[u128]) -> Vec<BlockEntry> {
    let block = |number: &u128| -> &BlockEntry { &state.blocks[&BlockId::from_number(*number)] };
    numbers.iter().map(|number| block(number).clone()).collect()
}

pub(super) fn part(number: u128, tenant: &str) -> crate::PartId {
    crate::PartId { block: BlockId::from_number(number), tenant: tenant.parse().unwrap() }
}

pub(super) fn parts(parts: &[(u128, &str)]) -> JobParts {
    parts.iter().map(|(number, tenant)| part(*number, tenant)).collect()
}

pub(super) fn claim(
    state: &mut CatalogState,
    at: Timestamp,
    worker: NodeId,
    parts: JobParts,
) -> CommandResult {
    state.apply(at, CatalogCommand::ClaimParts { worker, parts })
}

/// Claims parts for worker 1 and returns the token.
pub(super) fn token(state: &mut CatalogState, at: Timestamp, parts: JobParts) -> u64 {
    match claim(state, at, 1, parts) {
        CommandResult::Claimed(token) => token,
        other => panic!("{other:?}"),
    }
}

pub(super) fn finish(state: &mut CatalogState, token: u64, outputs: Vec<BlockEntry>) -> CommandResult {
    let at = state.time();
    state.apply(at, CatalogCommand::FinishJob { token, outputs, dropped: Vec::new(), compared: Vec::new() })
}

/// Claims all parts of some blocks and merges them.
pub(super) fn merge(state: &mut CatalogState, numbers: &[u128], names: Range<u128>, apart: bool) -> u64 {
    let inputs = listed(state, numbers);
    let at = state.time();
    let token = token(state, at, JobParts::from_entries(&inputs));
    let outputs = merged(&inputs, names, apart, token);
    let finished = finish(state, token, outputs);
    assert!(matches!(finished, CommandResult::Changed(1..)), "{finished:?}");
    token
}

pub(super) fn refused(result: CommandResult) -> CommandError {
    match result {
        CommandResult::Refused(refused) => refused,
        other => panic!("{other:?}"),
    }
}

/// Returns the blocks that list a tenant.
pub(super) fn numbers(state: &CatalogState, tenant: &str) -> Vec<u128> {
    let listing = state.list_blocks(&tenant.parse().unwrap(), i64::MIN, i64::MAX);
    listing.blocks.iter().map(|block| block.id.number()).collect()
}
