//! Members of a shard, of which one leads, one does not and one comes from a snapshot, say the same of every entry.

use athanor_catalog::BlockId;
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{ByteSize, Clock, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::delta::cumulative_tracker::DeltaLimits;
use crate::head_store::head::Head;
use crate::log::entry::{BatchUpload, ProfileRecord, TenantDictionaryDelta, UploadBatch};
use crate::window::RunFiles;

const COUNTING: DeltaLimits = DeltaLimits { bytes: ByteSize::mib(1), idle: Duration::from_secs(3600) };

/// What happens to a log.
#[derive(Clone, Debug)]
enum Event {
    /// A node begins to lead.
    Begin,
    /// It stores profiles with these ids, after a while; and is told that it did not, if the entry is lost.
    Batch {
        uploads: Vec<Vec<u8>>,
        pause: u64,
        lost: bool,
    },
    /// It ends its generation.
    End,
    /// It says that it lets go of what is over, or of a part of that.
    Cut {
        all: bool,
    },
    /// A table is proposed for profiles from a time on, or given up.
    Fence {
        version: u64,
        from: i64,
    },
    Void {
        version: u64,
    },
    /// A shard that was lost asks for ids; or retires.
    Settle {
        of: ShardId,
        ids: Vec<u8>,
    },
    Release {
        of: ShardId,
    },
    /// The log ends.
    Seal,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let uploads = vec(vec(0u8..12, 0..4), 0..4);
    let lost = prop::bool::weighted(0.1);
    let batch =
        (uploads, 0u64..40, lost).prop_map(|(uploads, pause, lost)| Event::Batch { uploads, pause, lost });
    let event = prop_oneof![
        1 => Just(Event::Begin),
        6 => batch,
        2 => Just(Event::End),
        1 => any::<bool>().prop_map(|all| Event::Cut { all }),
        1 => (2u64..5, 0i64..80).prop_map(|(version, from)| Event::Fence { version, from }),
        1 => (2u64..5).prop_map(|version| Event::Void { version }),
        1 => (7u32..9, vec(0u8..12, 0..4)).prop_map(|(of, ids)| Event::Settle { of, ids }),
        1 => (7u32..9).prop_map(|of| Event::Release { of }),
    ];
    let seals = prop::bool::weighted(0.2);
    (vec(event, 1..60), vec(Just(Event::Cut { all: true }), 0..3), seals).prop_map(
        |(mut events, last, seals)| {
            events.extend(seals.then_some(Event::Seal));
            events.extend(last);
            events
        },
    )
}

/// A log as its writers make it, and where it may be cut.
#[derive(Default)]
struct Writer {
    entries: BTreeMap<u64, Vec<u8>>,
    index: u64,
    token: u64,
    generation: Option<(u64, u64)>,
    stamp: u64,
    batches: BTreeMap<u64, UploadBatch>,
}

/// Seconds that ids are remembered.
const SPAN: u64 = 300;

impl Writer {
    fn write(&mut self, entry: Vec<u8>) -> u64 {
        self.index += 1;
        self.entries.insert(self.index, entry);
        self.index
    }

    fn begin(&mut self) {
        self.token += 1;
        self.generation = None;
        self.write(ShardLogEntry::encode_term_start(self.token, 1, self.stamp));
    }

    fn batch(&mut self, uploads: &[Vec<u8>], pause: u64, lost: bool) {
        self.token += 1;
        self.stamp += pause << 30;
        let (generation, sequence) = self.generation.unwrap_or((self.token, 0));
        // Profiles come later and later, with some that are late, by tables that are known by then, or not.
        let time = |id: u8| (self.index + u64::from(id)) as i64;
        let record = |id: &u8, time| ProfileRecord { id: u128::from(*id), time, ..ProfileRecord::default() };
        let records = |ids: &Vec<u8>| match ids.first() {
            Some(first) => ids.iter().map(|id| record(id, time(*first))).collect(),
            None => Vec::new(),
        };
        let routed = |ids: &Vec<u8>| 1 + u64::from(ids.first().copied().unwrap_or_default()) % 4;
        let admitted = |ids: &Vec<u8>| BatchUpload { tenant: 0, routed: routed(ids), records: records(ids) };
        let batch = UploadBatch {
            token: self.token,
            stamp: self.stamp,
            window: SPAN << 30,
            generation,
            sequence,
            tenants: vec![TenantDictionaryDelta {
                tenant: "acme".into(),
                ..TenantDictionaryDelta::default()
            }],
            uploads: uploads.iter().map(admitted).collect(),
            rows: Vec::new(),
        };
        self.generation = Some((generation, sequence + 1));
        match lost {
            // Raft puts something of its own into its place.
            true => self.index += 1,
            false => {
                let index = self.write(batch.encode());
                self.batches.insert(index, batch);
            }
        }
    }

    fn end(&mut self) {
        if let Some((generation, _)) = self.generation.take() {
            self.write(ShardLogEntry::encode_generation_end(generation));
        }
    }
}

fn machine(claim: &Arc<PendingTerm>) -> ShardStateMachine {
    let shelf = RunFiles::open(Arc::new(MemoryDisk::new()), 1, 1, 4).unwrap();
    let clock = Clock::manual(Timestamp::UNIX_EPOCH).0;
    ShardStateMachine::new(Arc::clone(claim), Arc::default(), clock, DedupWindow::new(shelf))
}

/// A member whose process leads whenever it can.
struct Leader {
    claim: Arc<PendingTerm>,
    machine: ShardStateMachine,
    clock: Clock,
    reign: Option<Arc<LeaderTerm>>,
}

impl Leader {
    fn new() -> Self {
        let claim = Arc::new(PendingTerm::default());
        let machine = machine(&claim);
        Self { claim, machine, clock: Clock::manual(Timestamp::UNIX_EPOCH).0, reign: None }
    }

    fn apply(&mut self, index: u64, bytes: &[u8], batch: Option<&UploadBatch>) -> ShardApplyResult {
        if let Ok(ShardLogEntry::TermStart { token, .. }) = ShardLogEntry::decode(bytes) {
            let reign = Arc::new(LeaderTerm::new(self.clock.clone(), COUNTING));
            self.claim.put(token, Arc::clone(&reign));
            self.reign = Some(reign);
        }
        if let (Some(reign), Some(batch)) = (&self.reign, batch) {
            let head = match batch.is_generation_start() {
                true => {
                    let head = Arc::new(Head::new(0));
                    head.set_generation(batch.generation);
                    reign.heads().start_head(Arc::clone(&head));
                    head
                }
                false => reign.heads().current(),
            };
            reign.put(batch.clone(), head);
        }
        self.machine.apply(index, bytes)
    }
}

/// All that a member says of its shard, but its reign.
#[derive(Debug, PartialEq)]
struct Said {
    open: Option<OpenGeneration>,
    generations: Vec<LogGeneration>,
    repeats: BTreeMap<u64, Vec<(u32, u32)>>,
    unreadable: Vec<u64>,
    cut: u64,
    stamp: u64,
    standing: ShardLogStatus,
    taken: Vec<InheritedId>,
}

fn state(machine: &ShardStateMachine) -> Said {
    let stamp = machine.window.lock().stamp();
    let ShardStateMachine { flushed: cut, open, generations, repeats, unreadable, status, inherited, .. } =
        machine;
    let standing = status.clone();
    let taken = inherited.iter().filter(|known| known.released.is_none()).copied().collect();
    let (generations, repeats, unreadable) = (generations.clone(), repeats.clone(), unreadable.clone());
    Said { open: *open, generations, repeats, unreadable, cut: *cut, stamp, standing, taken }
}

proptest! {
    #[test]
    fn members_say_the_same(events in events()) {
        let mut writer = Writer::default();
        let (mut leader, mut follower) = (Leader::new(), machine(&Arc::default()));
        let mut verdicts = BTreeMap::new();
        let mut snapshots = Vec::new();
        for event in events {
            match event {
                Event::Begin => writer.begin(),
                Event::Batch { uploads, pause, lost } => writer.batch(&uploads, pause, lost),
                Event::End => writer.end(),
                Event::Cut { all } => {
                    let over = follower.generations.iter().filter(|generation| generation.closed);
                    let over: Vec<u64> = over.map(|generation| generation.last).collect();
                    if let Some(to) = if all { over.last() } else { over.first() } {
                        let stamp = follower.window.lock().stamp_at(*to);
                        writer.write(ShardLogEntry::encode_flush_marker(*to, stamp, BlockId::from_number(7)));
                    }
                }
                Event::Fence { version, from } => drop(writer.write(ShardLogEntry::encode_fence(version, from, 0))),
                Event::Void { version } => drop(writer.write(ShardLogEntry::encode_fence_voided(version))),
                Event::Release { of } => drop(writer.write(ShardLogEntry::encode_hold_released(of))),
                Event::Seal => drop(writer.write(ShardLogEntry::encode_seal())),
                Event::Settle { of, ids } => {
                    let ids = ids.into_iter().map(u128::from).collect();
                    let (stamp, span) = (writer.stamp, SPAN << 30);
                    let (source, first, last) = (InheritSource::Reconciliation, false, false);
                    writer.write(InheritEntry { source, shard: of, first, last, stamp, retention: span, ids, inherited: vec![], held_for: vec![] }.encode());
                }
            }
            let Some(bytes) = writer.entries.get(&writer.index) else { continue };
            if verdicts.contains_key(&writer.index) {
                continue;
            }
            let said = follower.apply(writer.index, bytes);
            let led = leader.apply(writer.index, bytes, writer.batches.get(&writer.index));
            prop_assert_eq!(&said, &led);
            prop_assert_eq!(state(&follower), state(&leader.machine));
            if follower.flushed > snapshots.last().map_or(0, |(index, _)| *index) {
                let snapshot = follower.snapshot();
                let bytes = (snapshot.write)().unwrap();
                snapshots.push((snapshot.index, bytes));
            }
            verdicts.insert(writer.index, said);
        }
        // Files of ids are each member's own: of one that has none, only what its snapshot says is compared.
        if let Some((index, bytes)) = snapshots.pop() {
            let restored = RestoreContext { index, bytes: &bytes, alone: true, arrive: &mut || Ok(()) };
            follower.restore(restored).unwrap();
            prop_assert!(follower.window.lock().damage_count() == 0);
            for (at, entry) in writer.entries.range(index + 1..) {
                prop_assert_eq!(&follower.apply(*at, entry), &verdicts[at], "entry {}", at);
            }
            prop_assert_eq!(state(&follower), state(&leader.machine));
        }
    }
}

/// Entries as a member may send them that is broken: each kind, with odd numbers, some with a byte that is another.
fn odd_entries() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let number = || prop_oneof![4 => 0u64..40, 1 => Just(u64::MAX), 1 => any::<u64>()];
    let ids =
        || vec(0u8..12, 0..6).prop_map(|ids| ids.into_iter().map(ContentHash::from).collect::<Vec<_>>());
    let source = prop_oneof![
        Just(InheritSource::DedupWindow),
        Just(InheritSource::RegisteredBlocks),
        Just(InheritSource::Reconciliation)
    ];
    let (places, holds) = (vec((any::<u32>(), 0u32..9), 0..3), vec(0u32..9, 0..3));
    let inherit = (source, number(), number(), any::<[bool; 2]>(), ids(), places, holds);
    let inherit = inherit.prop_map(|(source, stamp, span, [first, last], ids, taken, holds)| {
        InheritEntry {
            source,
            shard: 9,
            first,
            last,
            stamp,
            retention: span,
            ids,
            inherited: taken,
            held_for: holds,
        }
        .encode()
    });
    let entry = prop_oneof![
        (number(), number()).prop_map(|(token, stamp)| ShardLogEntry::encode_term_start(token, 2, stamp)),
        (number(), any::<i64>(), number()).prop_map(|(token, time, routed)| batch(token, time, routed)),
        number().prop_map(ShardLogEntry::encode_generation_end),
        (number(), number()).prop_map(|(to, stamp)| ShardLogEntry::encode_flush_marker(
            to,
            stamp,
            BlockId::from_number(7)
        )),
        (number(), any::<i64>()).prop_map(|(version, from)| ShardLogEntry::encode_fence(version, from, 1)),
        number().prop_map(ShardLogEntry::encode_fence_voided),
        ids().prop_map(|ids| ShardLogEntry::encode_foreign_ids(&ids)),
        (0u32..9).prop_map(ShardLogEntry::encode_hold_released),
        inherit,
        vec(any::<u8>(), 0..40),
    ];
    let spoilt = (entry, prop::option::weighted(0.3, (any::<prop::sample::Index>(), 1u8..)));
    let spoilt = spoilt.prop_map(|(mut entry, spoils)| {
        if let Some((place, other)) = spoils.filter(|_| !entry.is_empty()) {
            let place = place.index(entry.len());
            entry[place] ^= other;
        }
        entry
    });
    vec(spoilt, 0..30)
}

proptest! {
    /// Whatever a member sends, the others make the same of it, and none ends.
    #[test]
    fn members_say_the_same_of_what_nobody_sends(entries in odd_entries()) {
        let (mut one, mut other) = (machine(&Arc::default()), machine(&Arc::default()));
        for (index, entry) in (1..).zip(&entries) {
            prop_assert_eq!(one.apply(index, entry), other.apply(index, entry));
        }
        let snapshot = one.snapshot();
        prop_assert!(snapshot.index <= entries.len() as u64);
        let (index, bytes) = (snapshot.index, (snapshot.write)().unwrap());
        let mut third = machine(&Arc::default());
        let restored = RestoreContext { index, bytes: &bytes, alone: true, arrive: &mut || Ok(()) };
        prop_assert_eq!(third.restore(restored), Ok(()));
        prop_assert_eq!(third.flushed_index(), one.flushed_index());
    }
}

#[test]
fn a_batch_is_read_only_behind_the_one_that_it_builds_on() {
    let mut writer = Writer::default();
    writer.begin();
    for lost in [false, true, false] {
        writer.batch(&[vec![1], vec![2]], 1, lost);
    }
    writer.end();
    writer.batch(&[vec![2]], 1, false);
    let mut machine = machine(&Arc::default());
    let said: Vec<ShardApplyResult> =
        writer.entries.iter().map(|(index, bytes)| machine.apply(*index, bytes)).collect();
    let new = |new: &[&[bool]]| {
        ShardApplyResult::Batch(new.iter().map(|new| UploadOutcome::Records(new.to_vec())).collect())
    };
    assert_eq!((&said[0], &said[1]), (&ShardApplyResult::Done, &new(&[&[true], &[true]])));
    assert!(matches!(said[2], ShardApplyResult::Unreadable(_)), "{:?}", said[2]);
    // The end is of a generation that goes on, for who was told that it was stored; what comes is of another.
    assert_eq!((&said[3], &said[4]), (&ShardApplyResult::Done, &new(&[&[false]])));
    assert_eq!((machine.unreadable(0..10), machine.generations(10).len()), (1, 2));
}

fn said(machine: &mut ShardStateMachine, index: &mut u64, entry: impl Into<Vec<u8>>) -> ShardApplyResult {
    *index += 1;
    machine.apply(*index, &entry.into())
}

fn batch(token: u64, time: i64, routed: u64) -> Vec<u8> {
    let records = vec![ProfileRecord { id: u128::from(token), time, ..ProfileRecord::default() }];
    let tenants = vec![TenantDictionaryDelta { tenant: "acme".into(), ..TenantDictionaryDelta::default() }];
    let uploads = vec![BatchUpload { tenant: 0, routed, records }];
    let batch =
        UploadBatch { token, generation: token, sequence: 0, tenants, uploads, ..UploadBatch::default() };
    batch.encode()
}

/// INV-05: a repeat of what came by the older table may go to another shard by the newer one, and the other way round.
#[test]
fn behind_a_fence_nothing_is_taken_that_was_placed_by_an_older_table() {
    let (mut machine, mut index) = (machine(&Arc::default()), 0);
    let mut apply = |entry: Vec<u8>| said(&mut machine, &mut index, entry);
    let taken = ShardApplyResult::Batch(vec![UploadOutcome::Records(vec![true])]);
    assert_eq!(apply(batch(1, 50, 1)), taken);
    assert_eq!(apply(ShardLogEntry::encode_fence(2, 50, 0)), ShardApplyResult::Fence { refused: Some(50) });
    assert_eq!(apply(ShardLogEntry::encode_fence(3, 60, 0)), ShardApplyResult::Fence { refused: None });
    assert_eq!(apply(batch(2, 59, 1)), taken);
    assert_eq!(apply(batch(3, 60, 2)), ShardApplyResult::Batch(vec![UploadOutcome::Stale { newest: 3 }]));
    assert_eq!(apply(batch(4, 60, 3)), taken);
    // It was not taken, so it is no repeat.
    assert_eq!(apply(batch(3, 60, 3)), taken);
    assert_eq!(apply(ShardLogEntry::encode_fence(4, 61, 0)), ShardApplyResult::Fence { refused: None });
    assert_eq!(apply(batch(5, 70, 3)), ShardApplyResult::Batch(vec![UploadOutcome::Stale { newest: 4 }]));
    assert_eq!(apply(ShardLogEntry::encode_fence_voided(4)), ShardApplyResult::Done);
    assert_eq!(apply(batch(5, 70, 3)), taken);
}

/// INV-12.
#[test]
fn a_cut_of_what_comes_after_it_is_none() {
    let mut machine = machine(&Arc::default());
    let cut = |to| ShardLogEntry::encode_flush_marker(to, 1, BlockId::from_number(7));
    assert!(matches!(machine.apply(4, &cut(4)), ShardApplyResult::Unreadable(_)));
    assert!(matches!(machine.apply(5, &cut(u64::MAX)), ShardApplyResult::Unreadable(_)));
    assert_eq!(
        (machine.flushed_index(), machine.apply(6, &cut(3)), machine.flushed_index()),
        (0, ShardApplyResult::Done, 3)
    );
}

#[test]
fn a_sealed_shard_takes_nothing() {
    let (mut machine, mut index) = (machine(&Arc::default()), 0);
    let mut apply = |entry: Vec<u8>| said(&mut machine, &mut index, entry);
    apply(batch(1, 50, 1));
    for _ in 0..2 {
        assert_eq!(apply(ShardLogEntry::encode_seal()), ShardApplyResult::Sealed { at: 2, latest: Some(50) });
    }
    assert!(matches!(apply(batch(2, 51, 1)), ShardApplyResult::Refused(_)));
    let (source, first, last) = (InheritSource::Reconciliation, false, false);
    let inherit = InheritEntry {
        source,
        shard: 9,
        first,
        last,
        stamp: 0,
        retention: 0,
        ids: vec![5],
        inherited: vec![],
        held_for: vec![],
    };
    assert!(matches!(apply(inherit.encode()), ShardApplyResult::Refused(_)));
    let whole = LogGeneration { token: 1, first: 1, last: 2, closed: true };
    assert_eq!(machine.generations(10), [whole]);
}

/// INV-13: the answer to a question may be lost, and what was half copied is not known by whoever has it.
#[test]
fn who_asks_again_is_answered_alike_and_what_was_half_copied_is_forgotten() {
    let (mut machine, mut index) = (machine(&Arc::default()), 0);
    let mut apply = |source, of, (first, last), ids: &[u128]| {
        let inherit = InheritEntry {
            source,
            shard: of,
            first,
            last,
            stamp: 0,
            retention: u64::MAX,
            ids: ids.to_vec(),
            inherited: vec![],
            held_for: vec![],
        };
        said(&mut machine, &mut index, inherit.encode())
    };
    apply(InheritSource::DedupWindow, 7, (true, false), &[100, 101]);
    apply(InheritSource::RegisteredBlocks, 7, (true, true), &[102]);
    let held = |held: &[bool]| ShardApplyResult::Inherited(held.to_vec());
    for _ in 0..2 {
        assert_eq!(
            apply(InheritSource::Reconciliation, 7, (false, false), &[100, 102, 103]),
            held(&[false, true, false])
        );
    }
    assert_eq!(apply(InheritSource::Reconciliation, 8, (false, false), &[103]), held(&[true]));
    assert_eq!(
        said(&mut machine, &mut index, batch(103, 5, 1)),
        ShardApplyResult::Batch(vec![UploadOutcome::Records(vec![false])])
    );
    assert_eq!(machine.log_status().holds, [7, 8].into());
    assert_eq!(machine.log_status().inherited, Some((InheritSource::RegisteredBlocks, 7)));
    let again = InheritEntry {
        source: InheritSource::DedupWindow,
        shard: 7,
        first: true,
        last: true,
        stamp: 0,
        retention: 0,
        ids: vec![],
        inherited: vec![],
        held_for: vec![],
    };
    said(&mut machine, &mut index, batch(104, 5, 1));
    assert!(matches!(said(&mut machine, &mut index, again.encode()), ShardApplyResult::Refused(_)));
}

/// Whoever leads anew does not know the names that were said, and cuts what is over.
#[test]
fn a_beginning_ends_what_was_open() {
    let mut writer = Writer::default();
    writer.batch(&[vec![1]], 1, false);
    let open = writer.generation;
    writer.begin();
    writer.generation = open;
    writer.batch(&[vec![2]], 1, false);
    let mut machine = machine(&Arc::default());
    let said: Vec<ShardApplyResult> =
        writer.entries.iter().map(|(index, bytes)| machine.apply(*index, bytes)).collect();
    assert!(matches!(said[2], ShardApplyResult::Unreadable(_)), "{:?}", said[2]);
    assert_eq!(machine.generations(9), [LogGeneration { token: 1, first: 1, last: 1, closed: true }]);
}
