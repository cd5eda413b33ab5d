//! Whatever is proposed, by however many at once: facts agree, voters agree, and a way leads out.

use athanor_cluster::placement::SlotTable;
use proptest::collection::vec;

use super::*;

const COPIES: u16 = 2;
const HOUR: Duration = Duration::from_secs(3600);

/// A command as it is drawn: a kind and numbers, which mean something by the facts that it meets.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    kind: u8,
    which: usize,
    number: u64,
    /// How much time has passed, in minutes; clocks of who proposes go back as well.
    pub(super) minutes: i64,
}

pub(super) fn drawn() -> impl Strategy<Value = Drawn> {
    // Most of the time little time passes, else nothing would be registered in time.
    let minutes = prop_oneof![8 => -2i64..5, 1 => Just(24 * 60), 1 => Just(49 * 60)];
    (0u8..95, 0usize..64, 0u64..64, minutes).prop_map(|(kind, which, number, minutes)| Drawn {
        kind,
        which,
        number,
        minutes,
    })
}

fn placement(number: u64) -> ReplicaPlacement {
    let zones = (0..10).map(|node| (node, (node % 3).to_string())).collect();
    ReplicaPlacement { members: [number % 10, (number + 1 + number / 10 % 2) % 10].into(), zones }
}

fn table(state: &CatalogState, number: u64) -> SlotTable {
    let version = (state.newest_proposed + 1).saturating_sub(u64::from(number.is_multiple_of(7)));
    let slots = state.shards.values().map(|shard| shard.slot).collect::<std::collections::BTreeSet<_>>();
    let slots = if number.is_multiple_of(11) { vec![0, 999] } else { slots.into_iter().collect() };
    let from = state.now.plus(HOUR * (25 - u32::from(number.is_multiple_of(13)))).nanos() + number as i64;
    SlotTable::with_all_slots(version, from, slots)
        .unwrap_or_else(|_| SlotTable::with_all_slots(version, from, vec![0]).unwrap())
}

fn new_block(state: &CatalogState, shard: &ShardEntry, number: u64) -> BlockEntry {
    let name = (state.now.millis().max(0) as u128) << 80 | u128::from(number % 16);
    let from = shard.watermark + u64::from(number.is_multiple_of(5));
    let (shard, epoch) = (shard.id, shard.epoch);
    BlockEntry { id: BlockId::from_number(name), shard, epoch, ..block(0, from, from + number % 4) }
}

/// A part of a block's tenants.
fn spans(offset: u64, count: u64) -> Vec<crate::TenantSpan> {
    let numbers = offset..offset + count;
    let span = |number: u64| {
        let tenant = format!("t{number}").parse().unwrap();
        crate::TenantSpan { tenant, ..super::span() }
    };
    numbers.map(span).collect()
}

/// A block as it is registered with what its shard has staged, most of the time.
fn staged(state: &CatalogState, block: &BlockEntry, number: u64) -> (BlockEntry, u64) {
    let block = BlockEntry { tenants: Vec::new(), ..block.clone() };
    match state.staged.get(&block.shard) {
        Some(staged) if !number.is_multiple_of(8) => {
            (BlockEntry { id: staged.block, ..block }, staged.tenants.len() as u64)
        }
        _ => (block, number % 5),
    }
}

fn part_of(block: BlockId) -> crate::PartId {
    crate::PartId { block, tenant: TenantId::anonymous() }
}

impl Drawn {
    fn shard(&self, state: &CatalogState) -> ShardEntry {
        let known = state.shards.values().nth(self.which % (state.shards.len() + 1));
        known.cloned().unwrap_or_else(|| ShardEntry {
            id: self.number as u32,
            slot: 0,
            epoch: 1,
            watermark: 0,
            members: [].into(),
            phase: ShardPhase::Open,
            fenced: 0,
            since: NOW,
        })
    }

    /// One that is registered, and one that is not yet.
    fn tombstones(&self, state: &CatalogState) -> Vec<BlockId> {
        let next = new_block(state, &self.shard(state), self.number).id;
        state.blocks().take(1).map(|block| block.id).chain([next]).collect()
    }

    /// Parts of two blocks, of which the first may be gone already.
    fn claim(&self, state: &CatalogState) -> CatalogCommand {
        let all: Vec<BlockEntry> = state.blocks().cloned().collect();
        let chosen = all.iter().skip(self.which % (all.len() + 1)).take(1 + self.number as usize % 2);
        let mut parts = JobParts::from_entries(chosen);
        if self.number.is_multiple_of(8) {
            parts = parts.iter().chain(state.tombstones().map(|(id, _)| part_of(id)).next()).collect();
        }
        CatalogCommand::ClaimParts { worker: self.number % 3, parts }
    }

    /// The token of some claim, or one that is finished or was never given.
    fn token(&self, state: &CatalogState) -> u64 {
        let compaction = &state.compaction;
        let tokens: Vec<u64> = compaction.claims.keys().chain(compaction.finished.keys()).copied().collect();
        tokens.get(self.which % (tokens.len() + 1)).copied().unwrap_or(self.number)
    }

    fn finish(&self, state: &CatalogState) -> CatalogCommand {
        let token = self.token(state);
        let parts = state.compaction.claims.get(&token).map(|claim| claim.parts.clone()).unwrap_or_default();
        let inputs = jobs::claimed_inputs(state, &parts);
        let name = (state.now.millis().max(0) as u128) << 80 | u128::from(100 + self.number);
        let apart = self.number.is_multiple_of(2);
        let mut outputs = match inputs.is_empty() {
            true => Vec::new(),
            false => jobs::merged(&inputs, name..name + 9, apart, token),
        };
        if let Some(output) = outputs.first_mut().filter(|_| self.number.is_multiple_of(9)) {
            output.tenants[0].profiles += 1;
        }
        if let Some(output) = outputs.first_mut().filter(|_| self.number.is_multiple_of(11)) {
            output.lost += 1;
        }
        CatalogCommand::FinishJob { token, outputs, dropped: Vec::new(), compared: Vec::new() }
    }

    fn of_jobs(&self, state: &CatalogState) -> CatalogCommand {
        let token = self.token(state);
        match self.kind {
            66..=68 | 81..=84 => self.finish(state),
            85..=88 => self.claim(state),
            89 => CatalogCommand::RenewLeases { worker: self.number % 3, tokens: vec![token, self.number] },
            90..=91 => CatalogCommand::FailJob {
                token,
                reason: "out of memory".to_owned(),
                culprit: state.blocks().next().filter(|_| self.number < 9).map(|block| part_of(block.id)),
            },
            92 => CatalogCommand::RetryParts { parts: Vec::new() },
            93 => CatalogCommand::PauseCompaction { paused: self.number.is_multiple_of(9) },
            _ => CatalogCommand::RecordRemovedObjects {
                blocks: state.tombstones().map(|(block, _)| block).take(3).collect(),
            },
        }
    }

    fn remove_by_age(&self, state: &CatalogState) -> CatalogCommand {
        match self.kind {
            69 => CatalogCommand::ExpireBlocks {
                retention: RetentionPolicy::uniform(HOUR),
                max_percent: (!self.number.is_multiple_of(3)).then_some(50),
            },
            70 => CatalogCommand::RestoreBlocks { blocks: Vec::new() },
            71 => CatalogCommand::RestoreBlocks { blocks: self.tombstones(state) },
            _ => purge(state.time(), state.tombstones().map(|(block, _)| block).take(2).collect()),
        }
    }

    fn of_shards(&self, state: &CatalogState) -> CatalogCommand {
        let (entry, number) = (self.shard(state), self.number);
        let (shard, placement) = (entry.id, placement(number));
        let newest = state.newest_shard(entry.slot).map_or(shard, |newest| newest.id);
        match self.kind {
            0..=2 => CatalogCommand::OpenSlots {
                count: 2,
                members: vec![placement.members.clone(); 2],
                zones: placement.zones,
            },
            3 => CatalogCommand::OpenShard { slot: (number % 5) as u32, members: placement.members },
            4 => CatalogCommand::AddSlot { slot: (number % 6) as u32, placement },
            5..=13 => {
                let inherited = match (&entry.phase, number % 9) {
                    (ShardPhase::Opening { source }, 1..) => *source,
                    _ => HandoffSource::RegisteredBlocks { predecessor: shard, up_to: number },
                };
                CatalogCommand::Opened {
                    shard,
                    inherited,
                    fenced: state.newest_fence_version().saturating_sub(u64::from(number.is_multiple_of(7))),
                }
            }
            14..=16 => CatalogCommand::RequestSeal { shard },
            17..=20 => CatalogCommand::CreateSuccessor { shard, placement },
            21..=24 => CatalogCommand::Sealed {
                shard,
                last_index: entry.watermark + number % 5,
                latest: number as i64,
            },
            25..=27 => CatalogCommand::MarkLost { shard, placement },
            _ => CatalogCommand::Reconciled { shard, last_index: entry.watermark + number % 5, with: newest },
        }
    }

    fn stage(&self, state: &CatalogState) -> CatalogCommand {
        let (entry, number) = (self.shard(state), self.number);
        match self.kind {
            73..=76 => CatalogCommand::StageTenants {
                shard: entry.id,
                block: new_block(state, &entry, number).id,
                offset: number % 3,
                tenants: spans(number % 3, number % 7),
            },
            77 => {
                let (block, tenants) = staged(state, &new_block(state, &entry, number), number);
                CatalogCommand::RegisterStagedBlock { block, tenants }
            }
            _ => {
                let block =
                    BlockEntry { from: number % 9, to: number % 9 + 1, ..new_block(state, &entry, number) };
                let (block, tenants) = staged(state, &block, number);
                CatalogCommand::ReinstateStagedBlock { block, tenants }
            }
        }
    }

    pub(super) fn command(&self, state: &CatalogState) -> CatalogCommand {
        let (entry, number) = (self.shard(state), self.number);
        let shard = entry.id;
        let version = state.newest_proposed + u64::from(number.is_multiple_of(8));
        match self.kind {
            0..=32 => self.of_shards(state),
            33 => CatalogCommand::AbandonShard { shard },
            34..=36 => CatalogCommand::RetireShard {
                shard,
                rest_is_empty: (number.is_multiple_of(2)).then_some(entry.watermark),
            },
            37..=38 => CatalogCommand::ProposeTable { table: table(state, number) },
            39..=42 => CatalogCommand::Fenced { shard, version },
            43 => CatalogCommand::FenceRejected { shard, version, latest: i64::MAX },
            44 => CatalogCommand::WithdrawTable { version },
            45..=48 => CatalogCommand::PublishTable { version },
            49 => CatalogCommand::ExpireTables { before: state.now.minus(HOUR * 3).nanos() },
            50 => CatalogCommand::SetServiceRates {
                changed: [(TenantId::anonymous(), [("a".to_owned(), number)].into())].into(),
            },
            51 => CatalogCommand::AddVoter { node: number, address: "here".to_owned() },
            52 => CatalogCommand::RemoveVoter { node: number },
            53..=57 => CatalogCommand::RegisterBlock { block: new_block(state, &entry, number) },
            58 => CatalogCommand::AdvanceWatermark { shard, to: entry.watermark + number % 3 },
            59 => CatalogCommand::ReinstateBlock {
                block: BlockEntry {
                    from: number % 9,
                    to: number % 9 + 1,
                    ..new_block(state, &entry, number)
                },
            },
            60 => CatalogCommand::CloseGap { shard, from: number % 9, to: number % 9 + 1 },
            61 => CatalogCommand::RecordDataLoss { loss: DataLoss::ForgottenIds { shard, to: number } },
            62..=63 => CatalogCommand::TombstoneBlocks { blocks: self.tombstones(state), tenant: None },
            64..=65 => CatalogCommand::PutTenantDocument {
                tenant: TenantId::anonymous(),
                name: (number % 3).to_string(),
                expected: (!number.is_multiple_of(4))
                    .then(|| state.tenant_documents(&TenantId::anonymous()))
                    .and_then(|mut documents| documents.remove(&(number % 3).to_string()))
                    .map(|document| document.text),
                text: (!number.is_multiple_of(5)).then(|| number.to_string()),
            },
            66..=68 | 81..=94 => self.of_jobs(state),
            69..=72 => self.remove_by_age(state),
            73..=78 => self.stage(state),
            _ if number.is_multiple_of(2) => CatalogCommand::ClearDataLoss { before: state.now.minus(HOUR) },
            _ => CatalogCommand::ExpireTombstones,
        }
    }
}

pub(super) fn begun() -> CatalogState {
    let mut state = CatalogState::default();
    let settings = CatalogSettings {
        replication_factor: COPIES,
        oldest_accepted: HOUR,
        newest_accepted: Duration::ZERO,
    };
    state.apply(NOW, CatalogCommand::UpdateSettings { expected: CatalogSettings::default(), settings });
    state
}

/// What the controller and the leaders of all shards that there are would propose, each by what it sees.
pub(super) fn polite(view: &RoutingView, fresh: &mut u64) -> Vec<CatalogCommand> {
    let serving =
        |slot| view.shards.iter().find(|other| other.slot == slot && other.serves()).map(|other| other.id);
    let copied = |of| view.shards.iter().any(|other| other.copies_ids_from(of));
    let needed = view.pending.as_ref().map(|pending| pending.table.version());
    let newest = view.tables.as_ref().map_or(0, |tables| tables.table_at(i64::MAX).version());
    let mut commands = Vec::new();
    for entry in &view.shards {
        let shard = entry.id;
        let command = match &entry.phase {
            ShardPhase::Opening { source: HandoffSource::DedupWindow { up_to: None, .. } }
            | ShardPhase::Retired { .. } => {
                continue;
            }
            ShardPhase::Opening { source } => {
                CatalogCommand::Opened { shard, inherited: *source, fenced: needed.unwrap_or(newest) }
            }
            ShardPhase::Open => match needed {
                Some(version) => CatalogCommand::Fenced { shard, version },
                None => continue,
            },
            ShardPhase::Sealing if copied(shard) => {
                CatalogCommand::Sealed { shard, last_index: entry.watermark + 2, latest: 0 }
            }
            ShardPhase::Sealing => {
                let members = (0..u64::from(COPIES)).map(|more| *fresh + more).collect();
                let zones = (0..u64::from(COPIES)).map(|more| (*fresh + more, more.to_string())).collect();
                *fresh += u64::from(COPIES);
                CatalogCommand::CreateSuccessor { shard, placement: ReplicaPlacement { members, zones } }
            }
            ShardPhase::Lost { watermark } => match serving(entry.slot) {
                Some(with) => CatalogCommand::Reconciled { shard, last_index: watermark + 2, with },
                None => continue,
            },
            ShardPhase::Sealed { .. } => {
                CatalogCommand::RetireShard { shard, rest_is_empty: Some(entry.watermark) }
            }
        };
        commands.push(command);
    }
    commands.extend(needed.map(|version| CatalogCommand::PublishTable { version }));
    commands
}

pub(super) fn is_quiet(view: &RoutingView) -> bool {
    let over = |shard: &ShardEntry| matches!(shard.phase, ShardPhase::Open | ShardPhase::Retired { .. });
    view.pending.is_none() && view.shards.iter().all(over)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// One voter applies what was decided, one reads it from a log, one begins with a snapshot in between.
    #[test]
    fn voters_agree_and_facts_hold(draws in vec(drawn(), 0..120), snapshot in 0usize..120) {
        let (mut one, mut at) = (begun(), NOW.plus(HOUR));
        let mut other = one.clone();
        for (step, drawn) in draws.into_iter().enumerate() {
            at = Timestamp::from_nanos(at.nanos() + drawn.minutes * 60 * 1_000_000_000);
            let logged = CatalogLogEntry { time: at, command: drawn.command(&one) };
            let read = CatalogLogEntry::decode(&logged.encode()).unwrap();
            prop_assert_eq!(&read, &logged);
            let before = one.clone();
            let answer = one.apply(logged.time, logged.command);
            prop_assert_eq!(&other.apply(read.time, read.command), &answer);
            if step == snapshot {
                other = CatalogState::decode(&other.encode()).unwrap();
            }
            prop_assert_eq!(&other, &one);
            prop_assert_eq!(one.check(), Ok(()));
            prop_assert!(one.now >= before.now && one.revision - before.revision <= 1);
            if let CommandResult::Refused(_) = answer {
                prop_assert_eq!(one.revision, before.revision);
            }
            for (id, shard) in &before.shards {
                let Some(after) = one.shards.get(id) else { continue };
                prop_assert!(shard.fenced <= after.fenced && shard.watermark <= after.watermark);
                prop_assert!(shard.members == after.members || shard.members.is_empty());
                prop_assert!(!shard.is_retired() || shard == after, "what is over stays so");
            }
            let text = serde_json::to_vec(&one.routing_view()).unwrap();
            prop_assert_eq!(serde_json::from_slice::<RoutingView>(&text).unwrap(), one.routing_view());
        }
    }

    /// From wherever others left it, a controller and leaders that see what is there bring every slot to an open shard.
    #[test]
    fn a_way_leads_out(draws in vec(drawn(), 0..120)) {
        let (mut state, mut at) = (begun(), NOW.plus(HOUR));
        for drawn in draws {
            at = Timestamp::from_nanos(at.nanos() + drawn.minutes * 60 * 1_000_000_000);
            state.apply(at, drawn.command(&state));
        }
        let mut fresh = 1000;
        // To stop, to succeed, to seal, to open, to settle and to retire.
        for round in 0..8 {
            let view = state.routing_view();
            if is_quiet(&view) {
                break;
            }
            prop_assert!(round < 7, "{:?}", view.shards);
            for command in polite(&view, &mut fresh) {
                let answer = state.apply(at, command.clone());
                let is_overtaken = matches!(
                    answer,
                    CommandResult::Refused(CommandError::FencesMissing { .. } | CommandError::HandoffUnfinished { .. } | CommandError::TableNotPending { .. })
                );
                prop_assert!(is_overtaken || !matches!(answer, CommandResult::Refused(_)), "{command:?}: {answer:?}");
            }
        }
        let slots: std::collections::BTreeSet<u32> = state.shards.values().map(|shard| shard.slot).collect();
        prop_assert!(slots.into_iter().all(|slot| state.serving_shard(slot).is_some()));
    }
}

/// Phases, results and refusals that random commands have to reach.
const EXPECTED_EVENTS: [&str; 42] = [
    "Opening",
    "Open",
    "Sealing",
    "Sealed",
    "Lost",
    "Retired",
    "2 tables",
    "Replaced",
    "WatermarkMismatch",
    "PastSeal",
    "Tombstoned",
    "UnknownShard",
    "NotInGap",
    "PartNotListed",
    "PartClaimed",
    "InvalidJobParts",
    "CompactionPaused",
    "ClaimEnded",
    "OutputMismatch",
    "RowsNotConserved",
    "Claimed",
    "EmptyRange",
    "Staged",
    "StagedTenantsMismatch",
    "WrongPhase",
    "SlotTaken",
    "TooFewZones",
    "NoSuccessor",
    "HasSuccessor",
    "HandoffSourceMismatch",
    "HandoffUnfinished",
    "MissingFence",
    "ReconciledWithWrongShard",
    "UnregisteredRows",
    "TablePending",
    "ShardLost",
    "TableVersionMismatch",
    "TableTooEarly",
    "SlotWithoutShard",
    "TableNotPending",
    "DocumentChanged",
    "FencesMissing",
];

/// The draws reach what they are for.
#[test]
fn random_commands_reach_every_phase() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..500 {
        let draws = vec(drawn(), 120).new_tree(&mut runner).unwrap().current();
        let (mut state, mut at) = (begun(), NOW.plus(HOUR));
        for drawn in draws {
            at = Timestamp::from_nanos(at.nanos() + drawn.minutes * 60 * 1_000_000_000);
            let result = match state.apply(at, drawn.command(&state)) {
                CommandResult::Refused(refused) => format!("{refused:?}"),
                result => format!("{result:?}"),
            };
            *seen.entry(kind(&result)).or_default() += 1;
            for shard in state.shards.values() {
                *seen.entry(kind(&format!("{:?}", shard.phase))).or_default() += 1;
            }
            if state.blocks().any(|block| block.tenants.iter().any(|span| span.tenant.as_str() == "t1")) {
                *seen.entry("Staged".to_owned()).or_default() += 1;
            }
            if state.blocks().any(|block| block.level > 0) {
                *seen.entry("Replaced".to_owned()).or_default() += 1;
            }
            let tables =
                state.tables.as_ref().map_or(0, |tables| topology::tables::iter_tables(tables).count());
            *seen.entry(format!("{tables} tables")).or_default() += 1;
        }
    }
    for expected in EXPECTED_EVENTS {
        assert!(seen.contains_key(expected), "{expected} not in {seen:?}");
    }
}

fn kind(debug: &str) -> String {
    debug.split([' ', '(']).next().unwrap_or_default().to_owned()
}
