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
    block.of_tenant(&tenant.parse().unwrap()).is_some()
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
    let rows = Rows::joined(inputs.iter().flat_map(BlockEntry::rows));
    let Rows { shard, epoch, from, to } = rows[0];
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
        further: rows[1..].to_vec(),
        tenants,
    };
    names.zip(parts).map(output).collect()
}

/// Two shards with two blocks each, of the tenants a and b.
fn filled() -> State {
    let mut state = State::default();
    let (members, zones) = (vec![[7].into(); 2], [(7, String::new())].into());
    state.apply(NOW, Command::OpenSlots { count: 2, members, zones });
    for (number, shard, from, to) in [(1, 1, 0, 10), (2, 1, 10, 30), (3, 2, 0, 5), (4, 2, 5, 6)] {
        let block = BlockEntry { shard, tenants: spans(&["a", "b"]), ..block(number, from, to) };
        assert_eq!(register(&mut state, block), Answer::Registered(to));
    }
    state
}

fn listed(state: &State, numbers: &[u128]) -> Vec<BlockEntry> {
    numbers.iter().map(|number| state.blocks[&BlockId::from_number(*number)].clone()).collect()
}

fn replace(state: &mut State, inputs: &[u128], outputs: Vec<BlockEntry>) -> Answer {
    let inputs = inputs.iter().map(|input| BlockId::from_number(*input)).collect();
    state.apply(NOW, Command::Replace { inputs, outputs })
}

fn numbers(state: &State, tenant: &str) -> Vec<u128> {
    let listing = state.listing(&tenant.parse().unwrap(), i64::MIN, i64::MAX);
    listing.blocks.iter().map(|block| block.id.number()).collect()
}

#[test]
fn blocks_take_the_places_of_others_at_once() {
    let mut state = filled();
    let revision = state.revision();
    let outputs = merged(&listed(&state, &[1, 2, 3]), 10..20, true);
    let rows = [Rows { shard: 1, epoch: 1, from: 0, to: 30 }, Rows { shard: 2, epoch: 1, from: 0, to: 5 }];
    assert!(outputs.iter().all(|output| output.rows().eq(rows)));
    assert_eq!(replace(&mut state, &[1, 2, 3], outputs.clone()), Answer::Changed(5));
    assert_eq!(state.revision(), revision + 1);
    assert_eq!((numbers(&state, "a"), numbers(&state, "b")), (vec![4, 10], vec![4, 11]));
    assert!(numbers(&state, "c").is_empty());
    // Their objects go when those do that were condemned, not before.
    let condemned: Vec<(u128, Timestamp)> = state.condemned().map(|(id, at)| (id.number(), at)).collect();
    assert_eq!(condemned, [(1, NOW), (2, NOW), (3, NOW)]);
    assert_eq!(replace(&mut state, &[1, 2, 3], outputs), Answer::Changed(0), "again changes nothing");
    assert_eq!(state.revision(), revision + 1);
    // Cutting goes on where it was.
    assert_eq!(register(&mut state, block(5, 30, 40)), Answer::Registered(40));
    assert_eq!(
        register(&mut state, block(1, 0, 10)),
        Answer::Refused(Refused::Condemned(BlockId::from_number(1)))
    );
    assert_eq!(State::decode(&state.encode()).unwrap(), state);
    // And so does merging.
    let outputs = merged(&listed(&state, &[4, 10, 11]), 20..30, false);
    assert_eq!((outputs[0].level, outputs[0].further.len()), (2, 1));
    assert_eq!(replace(&mut state, &[4, 10, 11], outputs), Answer::Changed(4));
    assert_eq!((numbers(&state, "a"), numbers(&state, "b")), (vec![20], vec![20]));
}

fn refusal(state: &State, inputs: &[u128], outputs: Vec<BlockEntry>) -> Refused {
    let mut after = state.clone();
    let Answer::Refused(refused) = replace(&mut after, inputs, outputs) else { panic!("it was done") };
    assert_eq!((after.revision, &after.blocks), (state.revision, &state.blocks));
    refused
}

#[test]
fn what_was_replaced_or_never_was_is_not_replaced() {
    let mut state = filled();
    let outputs = |state: &State, name| merged(&listed(state, &[1, 2]), name..name + 9, false);
    let (one, other) = (outputs(&state, 10), outputs(&state, 20));
    let id = BlockId::from_number;
    assert_eq!(refusal(&state, &[1, 2, 9], one.clone()), Refused::NotListed(id(9)));
    replace(&mut state, &[1, 2], one.clone());
    // Two who merge the same: the second one is told.
    assert_eq!(refusal(&state, &[1, 2], other), Refused::NotListed(id(1)));
    let merged = merged(&listed(&state, &[3, 10]), 30..39, false);
    assert_eq!(replace(&mut state, &[3, 10], merged.clone()), Answer::Changed(3));
    // Whoever did not hear that it was done hears it, though its block has been replaced in its turn.
    assert_eq!(replace(&mut state, &[1, 2], one), Answer::Changed(0));
    assert_eq!(refusal(&state, &[3, 10], vec![listed(&state, &[4])[0].clone()]), Refused::NotListed(id(3)));
    assert_eq!(
        register(
            &mut state,
            BlockEntry { id: id(40), from: 30, to: 31, further: Vec::new(), ..merged[0].clone() }
        ),
        Answer::Refused(Refused::Made(id(40)))
    );
}

#[test]
fn blocks_take_no_place_but_that_of_their_inputs() {
    let mut state = filled();
    let inputs = [2, 3];
    let right = merged(&listed(&state, &inputs), 10..20, true);
    let refused = |change: &dyn Fn(&mut Vec<BlockEntry>)| {
        let mut outputs = right.clone();
        change(&mut outputs);
        match refusal(&state, &inputs, outputs) {
            Refused::Unlike { why, .. } => why,
            other => panic!("{other}"),
        }
    };
    let [a, c] = ["a", "c"].map(|tenant| tenant.parse::<TenantId>().unwrap());
    let id = BlockId::from_number;
    assert_eq!(refused(&|outputs| outputs[0].to += 1), Unlike::Rows);
    assert_eq!(refused(&|outputs| outputs[1].further.clear()), Unlike::Rows);
    assert_eq!(refused(&|outputs| outputs[1].level = 2), Unlike::Level(1));
    assert_eq!(refused(&|outputs| outputs[1].id = id(10)), Unlike::Name);
    assert_eq!(refused(&|outputs| outputs[1].id = id(4)), Unlike::Name);
    assert_eq!(refused(&|outputs| outputs[0].tenants[0].tenant = c.clone()), Unlike::Tenant(c.clone()));
    assert_eq!(refused(&|outputs| outputs[1].tenants = spans(&["a"])), Unlike::Tenant(a.clone()));
    assert_eq!(refused(&|outputs| outputs[0].tenants.clear()), Unlike::Tenant(a.clone()));
    let b: TenantId = "b".parse().unwrap();
    assert_eq!(refused(&|outputs| outputs.truncate(1)), Unlike::Tenant(b));
    assert_eq!(refused(&|outputs| outputs[0].tenants[0].min_time = 4), Unlike::Time(a.clone()));
    assert_eq!(refused(&|outputs| outputs[0].tenants[0].max_time = 8), Unlike::Time(a.clone()));
    assert_eq!(refused(&|outputs| outputs[0].tenants[0].profiles = 3), Unlike::Profiles(a.clone()));
    assert_eq!(refused(&|outputs| outputs[0].tenants[0].profiles = 0), Unlike::Profiles(a.clone()));
    assert_eq!(refused(&|outputs| outputs[1].samples += 1), Unlike::Samples);
    assert_eq!(refused(&|outputs| outputs[1].lost += 1), Unlike::Lost);
    let named = BlockId::new(NOW.plus(Duration::from_secs(25 * 3600)), &Random::seeded(1));
    let ahead = |mut outputs: Vec<BlockEntry>| {
        outputs[0].id = named;
        outputs
    };
    assert_eq!(refusal(&state, &inputs, ahead(right.clone())), Refused::NameTime { block: named, now: NOW });
    let nothing = Refused::Replaces { inputs: 2, outputs: 0, seen: 2 };
    assert_eq!(refusal(&state, &inputs, Vec::new()), nothing);
    let many = vec![right[0].clone(); MAX_REPLACED / 4 + 1];
    assert!(matches!(refusal(&state, &inputs, many), Refused::Replaces { .. }));
    // Equal ids are dropped, so there may be fewer.
    let mut fewer = right;
    fewer[0].tenants[0].profiles = 1;
    fewer[0].samples = 1;
    assert_eq!(replace(&mut state, &inputs, fewer), Answer::Changed(4));
    assert_eq!(
        refusal(&state, &[1], merged(&listed(&state, &[1]), 1..2, false)),
        Refused::Unlike { block: id(1), why: Unlike::Name }
    );
    let mut before = merged(&listed(&state, &[10]), 5..6, false);
    assert_eq!(
        refusal(&state, &[10], before.clone()),
        Refused::Unlike { block: id(5), why: Unlike::Older(id(10)) }
    );
    // What is to hold a range of which another tenant's rows are elsewhere.
    before = merged(&listed(&state, &[1, 10]), 50..60, false);
    assert_eq!(
        refusal(&state, &[1, 10], before),
        Refused::Unlike { block: id(50), why: Unlike::Holds(id(11)) }
    );
    state.apply(NOW, Command::Condemn { blocks: vec![id(60)] });
    assert_eq!(
        refusal(&state, &[1], merged(&listed(&state, &[1]), 60..61, false)),
        Refused::Condemned(id(60))
    );
}

#[test]
fn what_was_made_is_recalled_into_the_gap_that_it_left() {
    let mut state = filled();
    let outputs = merged(&listed(&state, &[1, 2, 3]), 10..20, true);
    let mut lost = State::default();
    lost.apply(NOW, Command::OpenShard { slot: 0, members: [7].into() });
    lost.apply(NOW, Command::OpenShard { slot: 1, members: [7].into() });
    let recall =
        |state: &mut State, block: &BlockEntry| state.apply(NOW, Command::Recall { block: block.clone() });
    lost.apply(NOW, Command::Raise { shard: 1, to: 40 });
    let no_gap = |block: &BlockEntry| Answer::Refused(Refused::NoGap(block.id));
    assert_eq!(recall(&mut lost, &outputs[0]), no_gap(&outputs[0]), "one of its ranges is in no gap");
    lost.apply(NOW, Command::Raise { shard: 2, to: 6 });
    for output in &outputs {
        assert!(matches!(recall(&mut lost, output), Answer::Registered(_)));
    }
    assert_eq!((numbers(&lost, "a"), numbers(&lost, "b")), (vec![10], vec![11]));
    let whole = merged(&listed(&state, &[1, 2, 3]), 20..30, false);
    assert_eq!(recall(&mut lost, &whole[0]), no_gap(&whole[0]));
    let first = listed(&state, &[1]);
    assert_eq!(recall(&mut lost, &first[0]), no_gap(&first[0]));
    let gaps = lost.listing(&TenantId::anonymous(), 0, 0).scars.len();
    assert_eq!(gaps, 2, "behind both");
    replace(&mut state, &[1, 2, 3], outputs);
}

/// How each row that was cut is listed: by (shard, entry, tenant).
fn rows_of(state: &State) -> BTreeMap<(ShardId, u64, String), usize> {
    let mut rows = BTreeMap::new();
    for block in state.blocks.values() {
        for Rows { shard, from, to, .. } in block.rows() {
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
        let random = Random::seeded(seed);
        let (mut state, mut next) = (filled(), 5);
        let mut proposed: Vec<Command> = Vec::new();
        let mut cut: BTreeSet<_> = rows_of(&state).into_keys().collect();
        for _ in 0..60 {
            next += 3;
            let all: Vec<BlockEntry> = state.blocks.values().cloned().collect();
            let command = match random.below(8) {
                0..=2 => {
                    let shard = 1 + random.below(2) as u32;
                    let from = state.shards[&shard].watermark;
                    let tenants = spans(&["a", "b", "c"][..1 + random.below(3) as usize]);
                    let block =
                        BlockEntry { shard, tenants, ..block(next, from, from + 1 + random.below(5)) };
                    Command::Register { block }
                }
                // One that was proposed before, since its answer was lost or it comes late.
                3 if !proposed.is_empty() => proposed[random.below(proposed.len() as u64) as usize].clone(),
                _ => {
                    let pick = |_| all[random.below(all.len() as u64) as usize].clone();
                    let mut inputs: Vec<BlockEntry> = (0..1 + random.below(4)).map(pick).collect();
                    inputs.sort_unstable_by_key(|input| input.id);
                    inputs.dedup();
                    let outputs = merged(&inputs, next..next + 3, random.below(2) == 0);
                    Command::Replace { inputs: inputs.iter().map(|input| input.id).collect(), outputs }
                }
            };
            proposed.push(command.clone());
            let is_replace = matches!(command, Command::Replace { .. });
            let answer = state.apply(NOW, command);
            state.check().unwrap();
            let rows = rows_of(&state);
            assert!(rows.values().all(|count| *count == 1), "seed {seed}");
            match (is_replace, &answer) {
                (false, _) => cut.extend(rows.keys().cloned()),
                (true, Answer::Changed(0)) => *seen.entry("again").or_default() += 1,
                (true, Answer::Changed(_)) => *seen.entry("done").or_default() += 1,
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
