//! Any bytes as the segments of a log: it opens or says why not; what it reads is what the files say; and what is
//! appended then is there after the next start.
//!
//! The input is a script that writes frames under right checksums, some of them out of place, and then spoils bytes;
//! or, if the first byte is odd, the bytes of the segments themselves. What the files say is told by a reader of its
//! own here, which knows the layout and two rules: a frame names the one before it, and the log goes on in the next
//! segment where that one's first frame says so.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{ByteSize, Disk, Random};
use athanor_consensus::Log;
use athanor_consensus::log::{
    CommitMode, LogConfig, LogIdentity, LogOpenError, LogReadError, LogRecord, LogRecoveryReport,
};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const SEGMENT: u64 = 64 << 10;
const BLOCK: u64 = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"athlog\x01\n");
const EVERY_GROUP: u32 = u32::MAX;
/// What a row says, as far as it is looked at here.
const ENTRY: u32 = 1;
const MOVE: u32 = 2;
const TRUNCATE: u32 = 3;
const PURGE: u32 = 4;
const STATE: u32 = 5;
const EXTENT: u32 = 6;
/// Entries further apart than this are not compared: of a hole that large the log forgets what lies before it.
const NEAR: u64 = 1 << 16;

fn config() -> LogConfig {
    LogConfig {
        segment: ByteSize::bytes(SEGMENT),
        smallest: ByteSize::kib(16),
        commit: ByteSize::kib(16),
        spares: 0,
        reserve: ByteSize::bytes(0),
        waiting: ByteSize::mib(1),
        recent: ByteSize::bytes(0),
    }
}

fn open(disk: &MemoryDisk) -> Result<(Log, LogRecoveryReport), LogOpenError> {
    let identity = LogIdentity { cluster: 7, node: 1 };
    Log::open(Arc::new(disk.clone()), &Random::from_seed(3), identity, &config(), CommitMode::Hand)
}

/// The identity file of a log that has begun, and its salt.
fn identity() -> &'static (Vec<u8>, u64) {
    static IDENTITY: OnceLock<(Vec<u8>, u64)> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let disk = MemoryDisk::new();
        drop(open(&disk).expect("an empty folder opens"));
        let file = disk.read("identity").expect("it was written");
        let salt = word(&file, 5);
        (file, salt)
    })
}

fn word(bytes: &[u8], number: usize) -> u64 {
    let bytes = bytes.get(number * 8..number * 8 + 8).unwrap_or(&[0; 8]);
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn name(number: u64) -> String {
    format!("{number:012}.log")
}

// === what is written ===

/// The input, byte by byte; zeros behind its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, limit: u64) -> u64 {
        u64::from(self.byte()) % limit
    }

    /// A small number, mostly; else one from the far end of what a field takes.
    fn number(&mut self) -> u64 {
        match self.byte() {
            250 => (1 << 62) - 1,
            251 => u64::MAX,
            252 => 1 << 20,
            253 => u64::from(u32::MAX),
            small => u64::from(small % 40),
        }
    }
}

/// A row of a table, as it is written.
struct Row {
    kind: u32,
    group: u32,
    index: u64,
    term: u64,
    length: u32,
    sum: u32,
}

/// Segments on their way to a disk.
struct Segments {
    files: BTreeMap<u64, Vec<u8>>,
    salt: u64,
    at: u64,
    /// Position and sum of the frame before.
    before: (u64, u64),
}

impl Segments {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let file = self.files.entry(at / SEGMENT).or_insert_with(|| vec![0; SEGMENT as usize]);
        let begin = (at % SEGMENT) as usize;
        let end = (begin + bytes.len()).min(file.len());
        file[begin..end].copy_from_slice(&bytes[..end - begin]);
    }

    /// One frame, most of the time where and as the log would write it.
    fn frame(&mut self, script: &mut Script<'_>) {
        let odd = script.byte();
        if odd % 8 == 7 {
            // As if the segment were full, or as if one were missing.
            self.at = (self.at / SEGMENT + 1 + u64::from(odd > 250)) * SEGMENT;
        }
        let mut rows = Vec::new();
        let mut payloads = Vec::new();
        let count = script.below(6);
        let mut lie = self.at + 64 + 32 * count;
        for _ in 0..count {
            let kind = 1 + script.below(9) as u32;
            let group = [1, 2, 3, 4, 5, EVERY_GROUP][script.below(6) as usize];
            let (index, term) = (script.number(), script.number());
            let has_payload = [ENTRY, MOVE, STATE].contains(&kind);
            let length = if has_payload { script.byte() as usize * 5 } else { 0 };
            let payload: Vec<u8> = (0..length).map(|place| (lie as usize + place) as u8).collect();
            let sum = if has_payload { xxh3_64_with_seed(&payload, lie ^ self.salt) as u32 } else { 0 };
            let said = if has_payload { length as u32 } else { script.number() as u32 };
            lie += length as u64;
            rows.push(Row { kind, group, index, term, length: said, sum });
            payloads.extend_from_slice(&payload);
        }
        let durable = match odd / 8 % 8 {
            0 => script.number().wrapping_mul(BLOCK),
            1 => u64::MAX,
            _ => self.at,
        };
        let before = match odd / 64 {
            3 => (script.number(), script.number()),
            _ => self.before,
        };
        let mut bytes = Vec::new();
        let counts = count << 32 | payloads.len() as u64;
        for word in [MAGIC, self.at, durable, self.salt, before.0, before.1, counts, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for row in &rows {
            bytes.extend_from_slice(&row.kind.to_le_bytes());
            bytes.extend_from_slice(&row.group.to_le_bytes());
            bytes.extend_from_slice(&row.index.to_le_bytes());
            bytes.extend_from_slice(&row.term.to_le_bytes());
            bytes.extend_from_slice(&row.length.to_le_bytes());
            bytes.extend_from_slice(&row.sum.to_le_bytes());
        }
        let sum = xxh3_64(&bytes);
        bytes[56..64].copy_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&payloads);
        if self.at % SEGMENT + bytes.len() as u64 > SEGMENT {
            self.at = (self.at / SEGMENT + 1) * SEGMENT;
            return;
        }
        self.put(self.at, &bytes);
        self.before = (self.at, sum);
        self.at += (bytes.len() as u64).next_multiple_of(BLOCK);
    }
}

/// The folder that an input stands for.
fn folder(input: &[u8]) -> (MemoryDisk, BTreeMap<u64, Vec<u8>>) {
    let (file, salt) = identity();
    let mut script = Script(input);
    let (way, first) =
        (script.byte(), [1, 1, 1, 2, 9, 0, 1 << 35, u64::MAX / SEGMENT][script.below(8) as usize]);
    let at = first.saturating_mul(SEGMENT);
    let mut segments = Segments { files: BTreeMap::new(), salt: *salt, at, before: (0, 0) };
    if way % 2 == 1 {
        for (number, bytes) in script.0.chunks(SEGMENT as usize / 4).enumerate() {
            let mut file = bytes.to_vec();
            file.resize(SEGMENT as usize, 0);
            segments.files.insert(first.saturating_add(number as u64), file);
        }
    } else if first < 1 << 40 {
        for _ in 0..script.below(24) {
            segments.frame(&mut script);
        }
        for change in script.0.chunks_exact(4).take(8) {
            let number = first + u64::from(change[0] % 4);
            let place = usize::from(u16::from_le_bytes([change[1], change[2]])) % SEGMENT as usize;
            if let Some(file) = segments.files.get_mut(&number) {
                file[place] ^= change[3];
            }
        }
    }
    let disk = MemoryDisk::new();
    disk.write("identity", file).expect("there is room");
    for (number, bytes) in &mut segments.files {
        // Shorter than it should be, now and then.
        if way > 200 {
            bytes.truncate(usize::from(way) * 300 % SEGMENT as usize);
        }
        disk.write(&name(*number), bytes).expect("there is room");
    }
    if way % 16 == 14 {
        for odd in ["7.log", "18446744073709551615.log", "18446744073709551615.spare", "x.log", "5.spare"] {
            disk.write(odd, b"what is this").expect("there is room");
        }
    }
    (disk, segments.files)
}

// === what the files say ===

/// What one group holds.
#[derive(Default)]
struct Group {
    entries: BTreeMap<u64, (u64, Vec<u8>)>,
    purged: Option<(u64, u64)>,
    state: Vec<u8>,
}

/// A frame with a right head and table.
struct Frame<'a> {
    next: u64,
    link: (u64, u64),
    before: (u64, u64),
    /// Each row with its payload, and whether that is whole.
    rows: Vec<(Row, &'a [u8], bool)>,
}

fn frame(files: &BTreeMap<u64, Vec<u8>>, at: u64, salt: u64) -> Option<Frame<'_>> {
    let file = files.get(&(at / SEGMENT))?;
    let bytes = file.get((at % SEGMENT) as usize..)?;
    let (counts, end) = (word(bytes, 6), SEGMENT - at % SEGMENT);
    let (count, payload) = (counts >> 32, counts & 0xffff_ffff);
    let table = 64 + 32 * count;
    let total = (table + payload).next_multiple_of(BLOCK);
    let fits = word(bytes, 0) == MAGIC && word(bytes, 1) == at && word(bytes, 3) == salt && total <= end;
    let mut head = bytes.get(..table as usize).filter(|_| fits)?.to_vec();
    let sum = word(&head, 7);
    head[56..64].fill(0);
    if xxh3_64(&head) != sum {
        return None;
    }
    let half = |place: usize| u32::from_le_bytes(head[place..place + 4].try_into().expect("four bytes"));
    let (mut rows, mut lie) = (Vec::new(), table);
    for place in (64..table as usize).step_by(32) {
        let (kind, group, length, sum) = (half(place), half(place + 4), half(place + 24), half(place + 28));
        let (index, term) = (word(&head, place / 8 + 1), word(&head, place / 8 + 2));
        if !(1..=9).contains(&kind) || index >= 1 << 62 || (kind == EXTENT && term >= 1 << 62) {
            return None;
        }
        let (mut payload, mut whole) = (&bytes[..0], true);
        if [ENTRY, MOVE, STATE].contains(&kind) {
            let end = lie + u64::from(length);
            let found = bytes.get(lie as usize..end as usize);
            whole = found.is_some_and(|found| xxh3_64_with_seed(found, (at + lie) ^ salt) as u32 == sum);
            payload = found.unwrap_or(&[]);
            lie = end;
        }
        rows.push((Row { kind, group, index, term, length, sum }, payload, whole));
    }
    let before = (word(bytes, 4), word(bytes, 5));
    (lie == table + payload).then_some(Frame { next: at + total, link: (at, sum), before, rows })
}

fn apply(groups: &mut BTreeMap<u32, Group>, frame: &Frame<'_>) {
    for (row, payload, _) in
        frame.rows.iter().filter(|(row, ..)| row.group != EVERY_GROUP && row.kind <= EXTENT)
    {
        let group = groups.entry(row.group).or_default();
        match row.kind {
            ENTRY => {
                group.entries.split_off(&row.index);
                group.entries.insert(row.index, (row.term, payload.to_vec()));
            }
            MOVE => drop(group.entries.insert(row.index, (row.term, payload.to_vec()))),
            TRUNCATE => drop(group.entries.split_off(&row.index)),
            EXTENT => drop(group.entries.split_off(&row.term)),
            PURGE => {
                group.entries = group.entries.split_off(&(row.index + 1));
                group.purged = group.purged.max(Some((row.index, row.term)));
            }
            _ => group.state = payload.to_vec(),
        }
    }
}

/// All that can be read from the start to the end without passing over damage; nothing if it says that entries are
/// far apart.
fn walk(files: &BTreeMap<u64, Vec<u8>>, salt: u64) -> Option<BTreeMap<u32, Group>> {
    let mut groups = BTreeMap::new();
    let Some(first) = files.keys().next() else { return Some(groups) };
    let (mut at, mut last) = (first * SEGMENT, None);
    loop {
        let follows = |frame: &Frame<'_>| last.is_none_or(|last| frame.before == last);
        let whole = |frame: &Frame<'_>| frame.rows.iter().all(|(.., whole)| *whole);
        let here = frame(files, at, salt).filter(|frame| follows(frame) && whole(frame));
        let next = || {
            let (at, _) = last?;
            frame(files, (at / SEGMENT + 1) * SEGMENT, salt).filter(|frame| follows(frame) && whole(frame))
        };
        let Some(frame) = here.or_else(next) else { break };
        let far = |row: &Row| row.index.max(if row.kind == EXTENT { row.term } else { 0 }) > NEAR;
        if frame.rows.iter().any(|(row, ..)| far(row)) {
            return None;
        }
        apply(&mut groups, &frame);
        (at, last) = (frame.next, Some(frame.link));
    }
    for group in groups.values_mut() {
        // Nothing up to the mark is needed, wherever it was said.
        group.entries = group.entries.split_off(&group.purged.map_or(0, |(index, _)| index + 1));
    }
    Some(groups)
}

/// What any frame anywhere says of entries: group, index, term and payload.
fn said(files: &BTreeMap<u64, Vec<u8>>, salt: u64) -> BTreeSet<(u32, u64, u64, &[u8])> {
    let places = files
        .keys()
        .flat_map(|number| (0..SEGMENT / BLOCK).map(move |block| number * SEGMENT + block * BLOCK));
    let frames = places.filter_map(|at| frame(files, at, salt));
    let rows = frames.flat_map(|frame| frame.rows);
    rows.filter(|(row, _, whole)| *whole && [ENTRY, MOVE].contains(&row.kind))
        .map(|(row, payload, _)| (row.group, row.index, row.term, payload))
        .collect()
}

// === what must hold ===

type Seen = BTreeMap<(u32, u64), Option<(u64, Bytes)>>;

/// Entries near the ends of what each group holds; nothing stands for one that is lost.
fn seen(log: &Log) -> Seen {
    let mut seen = Seen::new();
    for group in log.groups() {
        let held = log.group_state(group);
        let near = (held.first..held.end.min(held.first + 300))
            .chain(held.end.saturating_sub(300).max(held.first)..held.end);
        for index in near {
            match log.read(group, index) {
                Ok(entry) => {
                    let entry = entry.expect("held entries are there or lost");
                    seen.insert((group, index), Some((entry.term, entry.data)));
                }
                Err(LogReadError::Lost { .. }) => drop(seen.insert((group, index), None)),
                Err(error) => panic!("memory does not fail: {error}"),
            }
        }
    }
    seen
}

fn agrees(log: &Log, recovery: &LogRecoveryReport, files: &BTreeMap<u64, Vec<u8>>, salt: u64) {
    let said = said(files, salt);
    for ((group, index), entry) in &seen(log) {
        let Some((term, data)) = entry else {
            assert!(
                log.group_state(*group).hurt,
                "entry {index} of group {group} is lost, and the group is not hurt"
            );
            continue;
        };
        assert!(
            said.contains(&(*group, *index, *term, data)),
            "entry {index} of group {group} is from nowhere"
        );
    }
    if !recovery.damage.is_empty() {
        return;
    }
    for (number, group) in walk(files, salt).unwrap_or_default() {
        let held = log.group_state(number);
        assert_eq!((held.purged, &held.state[..]), (group.purged, &group.state[..]));
        for (index, (term, data)) in group.entries {
            match log.read(number, index) {
                Ok(Some(found)) => assert_eq!((found.term, &found.data[..]), (term, &data[..])),
                other => panic!("entry {index} of group {number} is {other:?}"),
            }
        }
    }
}

/// Hands in one entry behind the last one of a group, with its state.
fn append(log: &Log, group: u32) -> Option<(u64, Bytes)> {
    let index = log.group_state(group).end;
    if index > 1 << 60 {
        return None;
    }
    let data = Bytes::from(format!("entry {index} of group {group}"));
    let state = LogRecord::State { group, data: data.clone() };
    let (tell, told) = std::sync::mpsc::channel();
    let entry = LogRecord::Entry { group, index, term: 77, data: data.clone() };
    log.submit(vec![entry, state], move |done| tell.send(done).expect("somebody listens"))
        .expect("it follows");
    while log.commit_once() {}
    told.recv().expect("it was told").expect("it is durable");
    Some((index, data))
}

fuzz_target!(|input: &[u8]| {
    let salt = identity().1;
    let (disk, files) = folder(input);
    let Ok((log, recovery)) = open(&disk) else { return };
    agrees(&log, &recovery, &files, salt);
    let oldest = || disk.list().ok()?.into_iter().find(|name| name.ends_with(".log"));
    let (before, first) = (seen(&log), oldest());
    let hurt: Vec<u32> = log.groups().into_iter().filter(|group| log.group_state(*group).hurt).collect();
    // No group has the number that stands for all.
    let groups: BTreeSet<u32> =
        log.groups().into_iter().filter(|group| *group != EVERY_GROUP).chain([9]).collect();
    let appended: Vec<_> =
        groups.into_iter().filter_map(|group| Some((group, append(&log, group)?))).collect();
    log.close();
    let whole = first == oldest();
    drop(log);

    let (log, _) = open(&disk.restart()).expect("it opened before");
    for group in hurt {
        assert!(log.group_state(group).hurt, "group {group} forgot its loss: {:?}", log.group_state(group));
    }
    // The segments here do not begin with the marks with which a log begins its own: one that goes takes them along,
    // and frames that followed nothing may follow nothing again.
    if !whole {
        return;
    }
    for (group, (index, data)) in appended {
        let found = log.read(group, index).expect("it was durable").expect("it was durable");
        assert_eq!((found.term, &found.data, &log.group_state(group).state), (77, &data, &data));
    }
    let after = |group, index| log.read(group, index).ok().flatten().map(|entry| (entry.term, entry.data));
    for ((group, index), entry) in before {
        assert_eq!(after(group, index), entry, "entry {index} of group {group} changed");
    }
});
