//! Blocks that take the places of others.

use std::collections::BTreeSet;
use std::ops::Range;

use athanor_chassis::Random;

use super::*;
use crate::TenantSpan;

/// One profile of each of these tenants.
pub(super) fn spans(tenants: &[&str]) -> Vec<TenantSpan> {
    let span =
        |tenant: &&str| TenantSpan { tenant: tenant.parse().unwrap(), min_time: 5, max_time: 9, profiles: 1 };
    tenants.iter().map(span).collect()
}

pub(super) fn has(block: &BlockEntry, tenant: &str) -> bool {
    block.tenant_span(&tenant.parse().unwrap()).is_some()
}

/// What is made of blocks, all in one or one for each tenant.
pub(super) fn merged(inputs: &[BlockEntry], names: Range<u128>, apart: bool) -> Vec<BlockEntry> {
    let mut tenants: BTreeMap<TenantId, TenantSpan> = BTreeMap::new();
    for span in inputs.iter().flat_map(|input| &input.tenants) {
        let all =
            tenants.entry(span.tenant.clone()).or_insert_with(|| TenantSpan { profiles: 0, ..span.clone() });
        all.profiles += span.profiles;
        (all.min_time, all.max_time) = (all.min_time.min(span.min_time), all.max_time.max(span.max_time));
    }
    let parts: Vec<Vec<TenantSpan>> = match apart {
        true => tenants.into_values().map(|span| vec![span]).collect(),
        false => vec![tenants.into_values().collect()],
    };
    let rows = ShardLogRange::join_adjacent(inputs.iter().flat_map(BlockEntry::log_ranges));
    let ShardLogRange { shard, epoch, from, to } = rows[0];
    let (mut lost, mut samples) =
        (inputs.iter().map(|input| input.lost).sum(), inputs.iter().map(|input| input.samples).sum());
    let level = 1 + inputs.iter().map(|input| input.level).max().unwrap();
    let output = |(name, tenants)| BlockEntry {
        id: BlockId::from_number(name),
        shard,
        epoch,
        from,
        to,
        bytes: 1,
        samples: std::mem::take(&mut samples),
        lost: std::mem::take(&mut lost),
        level,
        additional_ranges: rows[1..].to_vec(),
        tenants,
    };
    names.zip(parts).map(output).collect()
}

/// Two shards with two blocks each, of the tenants a and b.
fn filled() -> CatalogState {
    let mut state = CatalogState::default();
    let (members, zones) = (vec![[7].into(); 2], [(7, String::new())].into());
    state.apply(NOW, CatalogCommand::OpenSlots { count: 2, members, zones });
    for (number, shard, from, to) in [(1, 1, 0, 10), (2, 1, 10, 30), (3, 2, 0, 5), (4, 2, 5, 6)] {
        let block = BlockEntry { shard, tenants: spans(&["a", "b"]), ..block(number, from, to) };
        assert_eq!(register(&mut state, block), CommandResult::Registered(to));
    }
    state
}

fn listed(state: &CatalogState, numbers: &[u128]) -> Vec<BlockEntry> {
    numbers.iter().map(|number| state.blocks[&BlockId::from_number(*number)].clone()).collect()
}

fn replace(state: &mut CatalogState, inputs: &[u128], outputs: Vec<BlockEntry>) -> CommandResult {
    let inputs = inputs.iter().map(|input| BlockId::from_number(*input)).collect();
    state.apply(NOW, CatalogCommand::ReplaceBlocks { inputs, outputs })
}

fn numbers(state: &CatalogState, tenant: &str) -> Vec<u128> {
    let listing = state.list_blocks(&tenant.parse().unwrap(), i64::MIN, i64::MAX);
    listing.blocks.iter().map(|block| block.id.number()).collect()
}

#[test]
fn blocks_take_the_places_of_others_at_once() {
    let mut state = filled();
    let revision = state.revision();
    let outputs = merged(&listed(&state, &[1, 2, 3]), 10..20, true);
    let rows = [
        ShardLogRange { shard: 1, epoch: 1, from: 0, to: 30 },
        ShardLogRange { shard: 2, epoch: 1, from: 0, to: 5 },
    ];
    assert!(outputs.iter().all(|output| output.log_ranges().eq(rows)));
    assert_eq!(replace(&mut state, &[1, 2, 3], outputs.clone()), CommandResult::Changed(5));
    assert_eq!(state.revision(), revision + 1);
    assert_eq!((numbers(&state, "a"), numbers(&state, "b")), (vec![4, 10], vec![4, 11]));
    assert!(numbers(&state, "c").is_empty());
    // Their objects go when those do that were condemned, not before.
    let tombstones: Vec<(u128, Timestamp)> = state.tombstones().map(|(id, at)| (id.number(), at)).collect();
    assert_eq!(tombstones, [(1, NOW), (2, NOW), (3, NOW)]);
    assert_eq!(replace(&mut state, &[1, 2, 3], outputs), CommandResult::Changed(0), "again changes nothing");
    assert_eq!(state.revision(), revision + 1);
    // Cutting goes on where it was.
    assert_eq!(register(&mut state, block(5, 30, 40)), CommandResult::Registered(40));
    assert_eq!(
        register(&mut state, block(1, 0, 10)),
        CommandResult::Refused(CommandError::Tombstoned(BlockId::from_number(1)))
    );
    assert_eq!(CatalogState::decode(&state.encode()).unwrap(), state);
    // And so does merging.
    let outputs = merged(&listed(&state, &[4, 10, 11]), 20..30, false);
    assert_eq!((outputs[0].level, outputs[0].additional_ranges.len()), (2, 1));
    assert_eq!(replace(&mut state, &[4, 10, 11], outputs), CommandResult::Changed(4));
    assert_eq!((numbers(&state, "a"), numbers(&state, "b")), (vec![20], vec![20]));
}

fn refusal(state: &CatalogState, inputs: &[u128], outputs: Vec<BlockEntry>) -> CommandError {
    let mut after = state.clone();
    let CommandResult::Refused(refused) = replace(&mut after, inputs, outputs) else { panic!("it was done") };
    assert_eq!((after.revision, &after.blocks), (state.revision, &state.blocks));
    refused
}

#[test]
fn what_was_replaced_or_never_was_is_not_replaced() {
    let mut state = filled();
    let outputs = |state: &CatalogState, name| merged(&listed(state, &[1, 2]), name..name + 9, false);
    let (one, other) = (outputs(&state, 10), outputs(&state, 20));
    let id = BlockId::from_number;
    assert_eq!(refusal(&state, &[1, 2, 9], one.clone()), CommandError::NotListed(id(9)));
    replace(&mut state, &[1, 2], one.clone());
    // Two who merge the same: the second one is told.
    assert_eq!(refusal(&state, &[1, 2], other), CommandError::NotListed(id(1)));
    let merged = merged(&listed(&state, &[3, 10]), 30..39, false);
    assert_eq!(replace(&mut state, &[3, 10], merged.clone()), CommandResult::Changed(3));
    // Whoever did not hear that it was done hears it, though its block has been replaced in its turn.
    assert_eq!(replace(&mut state, &[1, 2], one), CommandResult::Changed(0));
    assert_eq!(
        refusal(&state, &[3, 10], vec![listed(&state, &[4])[0].clone()]),
        CommandError::NotListed(id(3))
    );
    assert_eq!(
        register(
            &mut state,
            BlockEntry { id: id(40), from: 30, to: 31, additional_ranges: Vec::new(), ..merged[0].clone() }
        ),
        CommandResult::Refused(CommandError::MergedBlock(id(40)))
    );
}

#[test]
fn output_that_differs_from_its_inputs_is_rejected() {
    let state = filled();
    let inputs = [2, 3];
    let right = merged(&listed(&state, &inputs), 10..20, true);
    let refused = |change: &dyn Fn(&mut Vec<BlockEntry>)| {
        let mut outputs = right.clone();
        change(&mut outputs);
        match refusal(&state, &inputs, outputs) {
            CommandError::ReplacementMismatch { mismatch, .. } => mismatch,
            other => panic!("{other}"),
        }
    };
    let [a, c] = ["a", "c"].map(|tenant| tenant.parse::<TenantId>().unwrap());
    let id = BlockId::from_number;
    assert_eq!(refused(&|outputs| outputs[0].to += 1), ReplaceMismatch::LogRanges);
    assert_eq!(refused(&|outputs| outputs[1].additional_ranges.clear()), ReplaceMismatch::LogRanges);
    assert_eq!(refused(&|outputs| outputs[1].level = 2), ReplaceMismatch::Level(1));
    assert_eq!(refused(&|outputs| outputs[1].id = id(10)), ReplaceMismatch::IdInUse);
    assert_eq!(refused(&|outputs| outputs[1].id = id(4)), ReplaceMismatch::IdInUse);
    assert_eq!(
        refused(&|outputs| outputs[0].tenants[0].tenant = c.clone()),
        ReplaceMismatch::TenantCoverage(c.clone())
    );
    assert_eq!(
        refused(&|outputs| outputs[1].tenants = spans(&["a"])),
        ReplaceMismatch::TenantCoverage(a.clone())
    );
    assert_eq!(refused(&|outputs| outputs[0].tenants.clear()), ReplaceMismatch::TenantCoverage(a.clone()));
    let b: TenantId = "b".parse().unwrap();
    assert_eq!(refused(&|outputs| outputs.truncate(1)), ReplaceMismatch::TenantCoverage(b));
    assert_eq!(
        refused(&|outputs| outputs[0].tenants[0].min_time = 4),
        ReplaceMismatch::ProfileTimes(a.clone())
    );
    assert_eq!(
        refused(&|outputs| outputs[0].tenants[0].max_time = 8),
        ReplaceMismatch::ProfileTimes(a.clone())
    );
    assert_eq!(
        refused(&|outputs| outputs[0].tenants[0].profiles = 3),
        ReplaceMismatch::ProfileCount(a.clone())
    );
    assert_eq!(
        refused(&|outputs| outputs[0].tenants[0].profiles = 0),
        ReplaceMismatch::ProfileCount(a.clone())
    );
    assert_eq!(refused(&|outputs| outputs[1].samples += 1), ReplaceMismatch::SampleCount);
    assert_eq!(refused(&|outputs| outputs[1].lost += 1), ReplaceMismatch::LostEntries);
}

#[test]
fn output_with_unusable_id_or_range_is_rejected() {
    let mut state = filled();
    let inputs = [2, 3];
    let right = merged(&listed(&state, &inputs), 10..20, true);
    let id = BlockId::from_number;
    let named = BlockId::new(NOW.plus(Duration::from_secs(25 * 3600)), &Random::from_seed(1));
    let ahead = |mut outputs: Vec<BlockEntry>| {
        outputs[0].id = named;
        outputs
    };
    assert_eq!(
        refusal(&state, &inputs, ahead(right.clone())),
        CommandError::BlockNameSkew { block: named, now: NOW }
    );
    let nothing = CommandError::ReplacementSize { inputs: 2, outputs: 0, seen: 2 };
    assert_eq!(refusal(&state, &inputs, Vec::new()), nothing);
    let many = vec![right[0].clone(); MAX_REPLACED / 4 + 1];
    assert!(matches!(refusal(&state, &inputs, many), CommandError::ReplacementSize { .. }));
    // Equal ids are dropped, so there may be fewer.
    let mut fewer = right;
    fewer[0].tenants[0].profiles = 1;
    fewer[0].samples = 1;
    assert_eq!(replace(&mut state, &inputs, fewer), CommandResult::Changed(4));
    assert_eq!(
        refusal(&state, &[1], merged(&listed(&state, &[1]), 1..2, false)),
        CommandError::ReplacementMismatch { block: id(1), mismatch: ReplaceMismatch::IdInUse }
    );
    let mut before = merged(&listed(&state, &[10]), 5..6, false);
    assert_eq!(
        refusal(&state, &[10], before.clone()),
        CommandError::ReplacementMismatch { block: id(5), mismatch: ReplaceMismatch::OlderThanInput(id(10)) }
    );
    // What is to hold a range of which another tenant's rows are elsewhere.
    before = merged(&listed(&state, &[1, 10]), 50..60, false);
    assert_eq!(
        refusal(&state, &[1, 10], before),
        CommandError::ReplacementMismatch { block: id(50), mismatch: ReplaceMismatch::OverlapsBlock(id(11)) }
    );
    state.apply(NOW, CatalogCommand::TombstoneBlocks { blocks: vec![id(60)] });
    assert_eq!(
        refusal(&state, &[1], merged(&listed(&state, &[1]), 60..61, false)),
        CommandError::Tombstoned(id(60))
    );
}

#[test]
fn what_was_made_is_recalled_into_the_gap_that_it_left() {
    let mut state = filled();
    let outputs = merged(&listed(&state, &[1, 2, 3]), 10..20, true);
    let mut lost = CatalogState::default();
    lost.apply(NOW, CatalogCommand::OpenShard { slot: 0, members: [7].into() });
    lost.apply(NOW, CatalogCommand::OpenShard { slot: 1, members: [7].into() });
    let recall = |state: &mut CatalogState, block: &BlockEntry| {
        state.apply(NOW, CatalogCommand::ReinstateBlock { block: block.clone() })
    };
    lost.apply(NOW, CatalogCommand::AdvanceWatermark { shard: 1, to: 40 });
    let no_gap = |block: &BlockEntry| CommandResult::Refused(CommandError::NotInGap(block.id));
    assert_eq!(recall(&mut lost, &outputs[0]), no_gap(&outputs[0]), "one of its ranges is in no gap");
    lost.apply(NOW, CatalogCommand::AdvanceWatermark { shard: 2, to: 6 });
    for output in &outputs {
        assert!(matches!(recall(&mut lost, output), CommandResult::Registered(_)));
    }
    assert_eq!((numbers(&lost, "a"), numbers(&lost, "b")), (vec![10], vec![11]));
    let whole = merged(&listed(&state, &[1, 2, 3]), 20..30, false);
    assert_eq!(recall(&mut lost, &whole[0]), no_gap(&whole[0]));
    let first = listed(&state, &[1]);
    assert_eq!(recall(&mut lost, &first[0]), no_gap(&first[0]));
    let gaps = lost.list_blocks(&TenantId::anonymous(), 0, 0).data_losses.len();
    assert_eq!(gaps, 2, "behind both");
    replace(&mut state, &[1, 2, 3], outputs);
}

/// How each row that was cut is listed: by (shard, entry, tenant).
fn rows_of(state: &CatalogState) -> BTreeMap<(ShardId, u64, String), usize> {
    let mut rows = BTreeMap::new();
    for block in state.blocks.values() {
        for ShardLogRange { shard, from, to, .. } in block.log_ranges() {
            for (entry, span) in
                (from..to).flat_map(|entry| block.tenants.iter().map(move |span| (entry, span)))
            {
                *rows.entry((shard, entry, span.tenant.to_string())).or_default() += 1;
            }
        }
    }
    rows
}

/// Whoever cuts, merges, repeats and comes late: each row is in one listed block from when it is cut until it is removed.
#[test]
fn each_row_is_in_one_listed_block_whatever_is_replaced() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..400 {
        let random = Random::from_seed(seed);
        let (mut state, mut next) = (filled(), 5);
        let mut proposed: Vec<CatalogCommand> = Vec::new();
        let mut cut: BTreeSet<_> = rows_of(&state).into_keys().collect();
        for _ in 0..60 {
            next += 3;
            let all: Vec<BlockEntry> = state.blocks.values().cloned().collect();
            let command = match random.next_below(8) {
                0..=2 => {
                    let shard = 1 + random.next_below(2) as u32;
                    let from = state.shards[&shard].watermark;
                    let tenants = spans(&["a", "b", "c"][..1 + random.next_below(3) as usize]);
                    let block =
                        BlockEntry { shard, tenants, ..block(next, from, from + 1 + random.next_below(5)) };
                    CatalogCommand::RegisterBlock { block }
                }
                // One that was proposed before, since its answer was lost or it comes late.
                3 if !proposed.is_empty() => {
                    proposed[random.next_below(proposed.len() as u64) as usize].clone()
                }
                _ => {
                    let pick = |_| all[random.next_below(all.len() as u64) as usize].clone();
                    let mut inputs: Vec<BlockEntry> = (0..1 + random.next_below(4)).map(pick).collect();
                    inputs.sort_unstable_by_key(|input| input.id);
                    inputs.dedup();
                    let outputs = merged(&inputs, next..next + 3, random.next_below(2) == 0);
                    CatalogCommand::ReplaceBlocks {
                        inputs: inputs.iter().map(|input| input.id).collect(),
                        outputs,
                    }
                }
            };
            proposed.push(command.clone());
            let is_replace = matches!(command, CatalogCommand::ReplaceBlocks { .. });
            let answer = state.apply(NOW, command);
            state.check().unwrap();
            let rows = rows_of(&state);
            assert!(rows.values().all(|count| *count == 1), "seed {seed}");
            match (is_replace, &answer) {
                (false, _) => cut.extend(rows.keys().cloned()),
                (true, CommandResult::Changed(0)) => *seen.entry("again").or_default() += 1,
                (true, CommandResult::Changed(_)) => *seen.entry("done").or_default() += 1,
                (true, _) => *seen.entry("refused").or_default() += 1,
            }
            // What a tenant has in a range is known by who cut it: no merge gives a tenant rows, or takes them.
            let of_cut: BTreeSet<_> = rows.keys().map(|(shard, entry, _)| (*shard, *entry)).collect();
            assert!(cut.iter().all(|(shard, entry, _)| of_cut.contains(&(*shard, *entry))), "seed {seed}");
            assert!(cut.iter().all(|row| rows.contains_key(row)), "seed {seed}: a row is gone");
        }
    }
    assert!(seen.len() == 3 && seen.values().all(|count| *count > 300), "{seen:?}");
}
