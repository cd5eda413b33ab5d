//! A catalogue that lost its voters, rebuilt from what is left of it.

use std::collections::BTreeSet;

use athanor_chassis::Random;
use athanor_cluster::placement::SlotTable;
use proptest::collection::vec;

use super::random::{begun, drawn, is_quiet, polite};
use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const SHARDS: [ShardId; 3] = [1, 2, 3];

/// A cluster whose catalogue will be lost: its true facts, and what outlives them.
struct World {
    random: Random,
    facts: CatalogState,
    snapshots: Vec<CatalogState>,
    bucket: BTreeMap<BlockId, BucketBlock>,
    logs: BTreeMap<ShardId, ShardLog>,
    next: u128,
    /// Blocks that were removed for their age.
    removed: Vec<BlockEntry>,
    /// How often blocks took the places of others, and how often those that were to stayed unknown.
    merged: [usize; 2],
}

#[derive(Default)]
struct ShardLog {
    /// The last entry.
    end: u64,
    /// Entries up to here may be gone from it.
    flushed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut facts = CatalogState::default();
        let members = vec![[7].into(), [8].into(), [9].into()];
        let zones = [7, 8, 9].map(|node| (node, String::new())).into();
        facts.apply(NOW, CatalogCommand::OpenSlots { count: 3, members, zones });
        let logs = SHARDS.map(|shard| (shard, ShardLog::default())).into();
        let (random, snapshots) = (Random::from_seed(seed), Vec::new());
        Self {
            random,
            facts,
            snapshots,
            bucket: BTreeMap::new(),
            logs,
            next: 1,
            removed: Vec::new(),
            merged: [0; 2],
        }
    }

    fn below(&self, n: u64) -> u64 {
        self.random.next_below(n.max(1))
    }

    /// Writes a block, which may stay unknown.
    fn write(&mut self, shard: ShardId, from: u64, to: u64) -> BlockEntry {
        self.next += 1;
        let tenants: BTreeSet<&str> = (from + 1..=to).map(tenant).collect();
        let tenants = replace::spans(&tenants.into_iter().collect::<Vec<_>>());
        let block = BlockEntry { shard, tenants, ..super::block(self.next, from, to) };
        self.bucket.insert(block.id, BucketBlock { block: block.clone(), inputs: Vec::new() });
        block
    }

    fn step(&mut self) {
        let shard = SHARDS[self.below(3) as usize];
        let watermark = self.facts.shards[&shard].watermark;
        let end = self.logs[&shard].end;
        match self.below(12) {
            0..=2 => self.logs.get_mut(&shard).unwrap().end += self.below(9),
            3..=5 if end > watermark => {
                let block = self.write(shard, watermark, watermark + 1 + self.below(end - watermark));
                let is_registered = self.below(3) > 0;
                if is_registered {
                    assert!(matches!(register(&mut self.facts, block), CommandResult::Registered(_)));
                }
            }
            // Who was deposed writes what others have written.
            6 if end > 0 => {
                let from = self.below(end);
                self.write(shard, from, from + 1 + self.below(end - from));
            }
            7..=8 => self.logs.get_mut(&shard).unwrap().flushed = watermark,
            9 => self.snapshots.push(self.facts.clone()),
            10 => self.remove(shard),
            11 => self.merge(),
            _ => {}
        }
    }

    /// The oldest block of a shard goes for its age, perhaps after its objects were removed.
    fn remove(&mut self, shard: ShardId) {
        let oldest =
            self.facts.blocks.values().filter(|block| block.shard == shard).min_by_key(|block| block.from);
        let Some(oldest) = oldest.cloned() else { return };
        self.facts.apply(NOW, CatalogCommand::TombstoneBlocks { blocks: vec![oldest.id] });
        if self.below(2) == 0 {
            self.bucket.remove(&oldest.id);
        }
        self.removed.push(oldest);
    }

    /// Blocks of any shards become one, or one for each tenant. Not all may be written, or they do not take the places of
    /// the old ones; of these some go, where all did.
    fn merge(&mut self) {
        let all: Vec<BlockEntry> = self.facts.blocks.values().cloned().collect();
        let count = 1 + self.below(4);
        let mut inputs: Vec<BlockEntry> = Vec::new();
        for _ in 0..count {
            let Some(input) = all.get(self.below(all.len() as u64) as usize) else { return };
            if !inputs.contains(input) {
                inputs.push(input.clone());
            }
        }
        let apart = self.below(2) == 0;
        let names = self.next + 1..self.next + 3;
        let outputs = replace::merged(&inputs, names, apart);
        self.next += outputs.len() as u64 as u128;
        let ids: Vec<BlockId> = inputs.iter().map(|input| input.id).collect();
        let stays = |other: &&BlockEntry| !ids.contains(&other.id);
        // Nobody makes what could not take their places.
        if all.iter().filter(stays).any(|other| outputs.iter().any(|output| output.conflicts_with(other))) {
            return;
        }
        let written = if self.below(4) == 0 { 1 } else { outputs.len() };
        for output in &outputs[..written] {
            self.bucket.insert(output.id, BucketBlock { block: output.clone(), inputs: ids.clone() });
        }
        if written < outputs.len() || self.below(4) == 0 {
            self.merged[1] += 1;
            return;
        }
        let count = ids.len() + outputs.len();
        let replace = CatalogCommand::ReplaceBlocks { inputs: ids.clone(), outputs };
        assert_eq!(self.facts.apply(NOW, replace), CommandResult::Changed(count));
        self.merged[0] += 1;
        for input in ids {
            if self.below(2) == 0 {
                self.bucket.remove(&input);
            }
        }
    }

    fn input(&self) -> RecoveryInput {
        // Newer snapshots may be damaged, or there may be none.
        let left = self.below(self.snapshots.len() as u64 + 1) as usize;
        let snapshot = self.snapshots[..left].last().cloned();
        let reports = |(shard, log): (&ShardId, &ShardLog)| ShardReport {
            shard: *shard,
            members: [u64::from(*shard) + 6].into(),
            flushed: log.flushed,
            fenced: 1,
            ..ShardReport::default()
        };
        let blocks = self.bucket.values().cloned().collect();
        let reports = self.logs.iter().map(reports).collect();
        RecoveryInput { snapshot, blocks, reports, at: NOW, retained_since: NOW }
    }
}

/// Whose profiles an entry has.
fn tenant(entry: u64) -> &'static str {
    if entry.is_multiple_of(3) { "b" } else { "a" }
}

/// Every entry is in one block or in its shard's log, and in no two; but for what was removed, or is told as lost.
fn holds(
    world: &World,
    state: &CatalogState,
    findings: &RecoveryFindings,
    tombstones: &BTreeMap<BlockId, Timestamp>,
) {
    for (shard, log) in &world.logs {
        let watermark = state.shards[shard].watermark;
        assert!(watermark >= log.flushed, "shard {shard}: its log may lack what lies before {}", log.flushed);
        for entry in 1..=log.end.max(watermark) {
            let has = |from: u64, to: u64| from < entry && entry <= to;
            let holds = |block: &BlockEntry| {
                block.log_ranges().any(|rows| rows.shard == *shard && has(rows.from, rows.to))
            };
            let mut held = state.blocks.values().filter(|block| holds(block));
            let with_rows = held.clone().filter(|block| replace::has(block, tenant(entry))).count();
            let has_flushed_block = held.any(|block| block.level == 0);
            let count = with_rows + usize::from(entry > watermark);
            let is_told = findings.gaps.iter().any(|(of, from, to)| of == shard && has(*from, *to));
            let is_whole =
                world.removed.iter().all(|block| block.log_ranges().all(|rows| rows.shard != *shard));
            let was_removed = world.removed.iter().any(holds);
            assert!(count <= 1, "entry {entry} of shard {shard} is {count} times there");
            assert!(
                !has_flushed_block || count == 1,
                "entry {entry} of shard {shard} is in a block without its tenant"
            );
            // Of what was made, what was removed for its age and what was never to be there look alike.
            let is_doubtful = !is_whole && world.merged[1] > 0;
            assert!(
                count == 1 || is_told || was_removed || is_doubtful,
                "entry {entry} of shard {shard} is nowhere"
            );
            // Where blocks were removed, one that was never registered may fill more than those that were.
            assert!(!is_told || !is_whole, "entry {entry} of shard {shard} is there, and told as lost");
        }
    }
    assert!(
        state.blocks.keys().all(|block| !tombstones.contains_key(block) && world.bucket.contains_key(block))
    );
    for block in state.blocks.values() {
        // One that was made may stay beside those that were made of it for other tenants.
        let inputs = world.bucket[&block.id].inputs.iter().filter_map(|input| state.blocks.get(input));
        assert!(inputs.into_iter().all(|input| !input.conflicts_with(block)));
    }
}

#[test]
fn every_entry_is_there_once_whatever_lies_in_the_bucket() {
    let mut merged = [0; 2];
    for seed in 0..3000 {
        let mut world = World::new(seed);
        for _ in 0..world.below(80) {
            world.step();
        }
        merged = [0, 1].map(|place| merged[place] + world.merged[place]);
        let input = world.input();
        let before = input.snapshot.clone().unwrap_or_default();
        let (state, findings) =
            CatalogState::recover(input).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        println!("seed {seed}");
        holds(&world, &state, &findings, &before.tombstones);
        assert!(state.revision > world.facts.revision);
        // Who serves goes on where the blocks end.
        let mut after = state.clone();
        for (shard, log) in &world.logs {
            let from = state.shards[shard].watermark;
            let block = BlockEntry { shard: *shard, ..super::block(1 << 60, from, log.end.max(from) + 1) };
            let id = BlockId::from_number(block.id.number() + u128::from(*shard));
            assert_eq!(
                register(&mut after, BlockEntry { id, ..block.clone() }),
                CommandResult::Registered(block.to)
            );
        }
    }
    assert!(merged.iter().all(|count| *count > 1000), "{merged:?}");
}

#[test]
fn of_two_blocks_of_one_range_the_younger_is_taken() {
    let at = |number, from, to| BucketBlock { block: super::block(number, from, to), inputs: Vec::new() };
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
fn what_is_lost_is_told() {
    let at = |number, from, to| BucketBlock { block: super::block(number, from, to), inputs: Vec::new() };
    let mut before = opened();
    register(&mut before, block(1, 0, 10));
    register(&mut before, block(2, 10, 20));
    let of_nobody = BucketBlock { block: BlockEntry { shard: 5, ..block(9, 0, 3) }, inputs: Vec::new() };
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
        let inputs = |block: &BlockEntry| (block.level > 0).then_some(BlockId::from_number(1));
        let blocks = truth.blocks.values();
        let blocks =
            blocks.map(|block| BucketBlock { block: block.clone(), inputs: inputs(block).into_iter().collect() });
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
