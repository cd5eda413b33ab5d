//! The log on a disk that loses power, lies and rots; and each bug that such a disk has found.

mod bugs;
mod damage;
mod power;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use athanor_chassis::disk::{LocalDisk, MemoryDisk};
use athanor_chassis::{ErrorCode, ErrorCodeExt};

use super::*;

const IDENTITY: LogIdentity = LogIdentity { cluster: 7, node: 1 };
const SEGMENT: u64 = 64 << 10;

fn config() -> LogConfig {
    LogConfig {
        segment: ByteSize::bytes(SEGMENT),
        smallest: ByteSize::bytes(SEGMENT),
        commit: ByteSize::kib(16),
        spares: 1,
        reserve: ByteSize::bytes(0),
        waiting: ByteSize::mib(1),
        recent: ByteSize::kib(8),
    }
}

fn open(disk: &MemoryDisk) -> (Log, LogRecoveryReport) {
    try_open(disk).unwrap()
}

fn try_open(disk: &MemoryDisk) -> Result<(Log, LogRecoveryReport), LogOpenError> {
    try_open_with(disk, &config())
}

fn try_open_with(disk: &MemoryDisk, config: &LogConfig) -> Result<(Log, LogRecoveryReport), LogOpenError> {
    Log::open(Arc::new(disk.clone()), &Random::from_seed(3), IDENTITY, config, CommitMode::Hand)
}

/// Segments that are small at first.
fn growing() -> LogConfig {
    LogConfig { segment: ByteSize::kib(256), smallest: ByteSize::kib(64), ..config() }
}

/// Bytes of all files.
fn taken(disk: &MemoryDisk) -> u64 {
    disk.list().unwrap().iter().map(|file| disk.len(file).unwrap()).sum()
}

fn payload(group: u32, index: u64, term: u64, length: usize) -> Bytes {
    (0..length).map(|i| (index as usize * 31 + group as usize * 7 + term as usize + i) as u8).collect()
}

fn entry(group: u32, index: u64, term: u64, length: usize) -> LogRecord {
    LogRecord::Entry { group, index, term, data: payload(group, index, term, length) }
}

/// Hands in and commits; says whether it was acknowledged.
fn put(log: &Log, records: Vec<LogRecord>) -> bool {
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&acknowledged);
    log.submit(records, move |done| {
        seen.fetch_add(usize::from(done.is_ok()), Ordering::SeqCst);
    })
    .unwrap();
    while log.commit_once() {}
    acknowledged.load(Ordering::SeqCst) == 1
}

fn must(log: &Log, records: Vec<LogRecord>) {
    assert!(put(log, records));
}

/// What one group must hold.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    entries: BTreeMap<u64, (u64, Bytes)>,
    purged: Option<(u64, u64)>,
    state: Bytes,
}

type Models = BTreeMap<u32, Model>;

impl Model {
    fn next(&self) -> u64 {
        let last = self.entries.last_key_value().map(|(last, _)| last + 1);
        last.or(self.purged.map(|(index, _)| index + 1)).unwrap_or(1)
    }

    fn apply(&mut self, record: &LogRecord) {
        match record {
            LogRecord::Entry { index, term, data, .. } => {
                self.entries.split_off(index);
                self.entries.insert(*index, (*term, data.clone()));
            }
            LogRecord::Truncate { from, .. } => drop(self.entries.split_off(from)),
            LogRecord::Purge { index, term, .. } => {
                self.entries = self.entries.split_off(&(index + 1));
                self.purged = Some((*index, *term));
            }
            LogRecord::State { data, .. } => self.state = data.clone(),
        }
    }

    /// The first difference to what the log holds.
    fn differs(&self, log: &Log, group: u32) -> Option<String> {
        let held = log.group_state(group);
        if (held.purged, &held.state) != (self.purged, &self.state) {
            return Some(format!("group {group}: {held:?}, not {:?} {:?}", self.purged, self.state));
        }
        if held.end - held.first != self.entries.len() as u64 {
            return Some(format!("group {group}: {}..{} of {}", held.first, held.end, self.entries.len()));
        }
        self.entries.iter().find_map(|(index, (term, data))| {
            let expected = LogEntry { term: *term, data: data.clone() };
            match log.read(group, *index) {
                Ok(Some(found)) if found == expected => None,
                Ok(Some(found)) => {
                    let (found, size) = ((found.term, found.data.len()), (term, data.len()));
                    Some(format!("group {group} entry {index}: {found:?}, not {size:?}"))
                }
                other => Some(format!("group {group} entry {index}: {other:?}")),
            }
        })
    }
}

fn apply(models: &mut Models, records: &[LogRecord]) {
    for record in records {
        let group = match record {
            LogRecord::Entry { group, .. }
            | LogRecord::Truncate { group, .. }
            | LogRecord::Purge { group, .. }
            | LogRecord::State { group, .. } => *group,
        };
        models.entry(group).or_default().apply(record);
    }
}

fn differs(log: &Log, models: &Models) -> Option<String> {
    let empty = Model::default();
    let groups = log.groups().into_iter().chain(models.keys().copied());
    groups.into_iter().find_map(|group| models.get(&group).unwrap_or(&empty).differs(log, group))
}

/// Some change that a group could see.
fn step(models: &Models, random: &Random, term: u64) -> Vec<LogRecord> {
    let group = random.next_below(5) as u32;
    let empty = Model::default();
    let model = models.get(&group).unwrap_or(&empty);
    let keys: Vec<u64> = model.entries.keys().copied().collect();
    match random.next_below(12) {
        // Group 0 is the slow one that never purges what it has.
        0 | 1 if group > 0 && !keys.is_empty() => {
            let index = keys[random.next_below(keys.len() as u64) as usize];
            vec![LogRecord::Purge { group, index, term: model.entries[&index].0 }]
        }
        2 if keys.len() > 2 => {
            let from = keys[keys.len() - 1 - random.next_below(2) as usize];
            let mut records = vec![LogRecord::Truncate { group, from }];
            records.extend((random.next_below(2) == 0).then(|| entry(group, from, term, 40)));
            records
        }
        // An entry in place of one that is held.
        3 if keys.len() > 2 => {
            vec![entry(group, keys[keys.len() - 2], term, random.next_below(300) as usize)]
        }
        4 | 5 => vec![LogRecord::State { group, data: random.next_u64().to_le_bytes().to_vec().into() }],
        // A snapshot of what others have.
        6 if group == 4 => vec![LogRecord::Purge { group, index: model.next() + 5, term }],
        _ if group > 0 || keys.len() < 20 => {
            let length = |random: &Random| match random.next_below(4) {
                0 => 0,
                1 => random.next_below(6_000) as usize,
                _ => random.next_below(200) as usize,
            };
            (0..=random.next_below(3)).map(|n| entry(group, model.next() + n, term, length(random))).collect()
        }
        _ => vec![LogRecord::State { group, data: Bytes::from_static(b"same") }],
    }
}

// --- what needs no faults ---

#[test]
fn what_waits_is_seen_at_once_and_what_replaces_it_too() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&disk);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut models = Models::new();
    let batches = [
        vec![entry(1, 0, 1, 10), entry(1, 1, 1, 0), entry(1, 2, 1, 7)],
        vec![entry(1, 1, 2, 8)],
        vec![LogRecord::State { group: 1, data: "a".into() }, entry(1, 2, 2, 9), entry(1, 3, 2, 9)],
        vec![LogRecord::Truncate { group: 1, from: 3 }, entry(2, 5, 1, 3)],
        vec![
            LogRecord::Purge { group: 1, index: 0, term: 1 },
            LogRecord::State { group: 1, data: "b".into() },
        ],
        vec![LogRecord::Purge { group: 2, index: 9, term: 4 }, entry(2, 10, 4, 3)],
    ];
    for (number, batch) in batches.iter().enumerate() {
        let order = Arc::clone(&order);
        log.submit(batch.clone(), move |done| order.lock().push((number, done.is_ok()))).unwrap();
        apply(&mut models, batch);
        assert_eq!(differs(&log, &models), None, "after {number}");
        assert!(number % 3 != 1 || log.commit_once());
        assert_eq!(differs(&log, &models), None, "committed after {number}");
    }
    while log.commit_once() {}
    assert_eq!(*order.lock(), (0..6).map(|number| (number, true)).collect::<Vec<_>>());
    assert_eq!(log.read(1, 0).unwrap(), None);
    let held = log.group_state(2);
    assert_eq!((held.first, held.end, held.last, held.purged), (10, 11, Some((10, 4)), Some((9, 4))));
    drop(log);
    let (log, recovery) = open(&disk.restart());
    assert_eq!((differs(&log, &models), recovery.damage, recovery.cut), (None, vec![], None));
    assert_eq!(log.groups(), [1, 2]);
}

#[test]
fn many_batches_make_one_commit_and_large_ones_several() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&disk);
    let before = disk.operations();
    for index in 1..=8 {
        log.submit(vec![entry(1, index, 1, 1_000)], |_| ()).unwrap();
    }
    while log.commit_once() {}
    assert_eq!(disk.operations() - before, 2, "one write and one sync");
    for index in 9..=12 {
        log.submit(vec![entry(1, index, 1, 9_000)], |_| ()).unwrap();
    }
    while log.commit_once() {}
    assert!(log.read(1, 12).unwrap().is_some());
}

#[test]
fn what_cannot_be_is_refused_and_says_why() {
    let (log, _) = open(&MemoryDisk::new());
    must(&log, vec![entry(1, 1, 1, 4), entry(1, 2, 1, 4)]);
    must(&log, vec![LogRecord::Purge { group: 1, index: 1, term: 1 }]);
    let refused = |records| log.submit(records, |_| panic!("refused")).unwrap_err();
    assert_eq!(refused(vec![entry(1, 4, 1, 4)]).to_string(), "group 1 rejected entry 4: the next index is 3");
    assert_eq!(refused(vec![entry(1, 1, 2, 4)]).to_string(), "group 1 rejected entry 1: the index is purged");
    assert!(matches!(refused(vec![entry(1, 3, 1, 40_000)]), LogError::TooLarge { .. }));
    let state = LogRecord::State { group: 1, data: vec![0; 513].into() };
    assert!(matches!(refused(vec![state]), LogError::TooLarge { .. }));
    let groups = |count: u32| (10..10 + count).map(|group| entry(group, 1, 1, 1)).collect::<Vec<_>>();
    assert!(matches!(refused(groups(40)), LogError::TooManyGroups { .. }));
    for index in 3..=122 {
        log.submit(vec![entry(1, index, 1, 8_000)], |_| ()).unwrap();
    }
    let busy = (123..1600).find_map(|index| log.submit(vec![entry(1, index, 1, 8_000)], |_| ()).err());
    assert!(matches!(busy, Some(LogError::Busy { .. })), "{busy:?}");
    while log.commit_once() {}
    log.close();
    assert_eq!(log.submit(vec![entry(9, 1, 1, 1)], |_| ()).unwrap_err(), LogError::Closed);
}

#[test]
fn below_the_reserve_entries_are_refused_and_what_frees_space_is_not() {
    let disk = MemoryDisk::new();
    let reserve = LogConfig { reserve: ByteSize::kib(256), ..config() };
    let log =
        Log::open(Arc::new(disk.clone()), &Random::from_seed(1), IDENTITY, &reserve, CommitMode::Inline)
            .unwrap()
            .0;
    log.submit(vec![entry(1, 1, 1, 100)], |done| done.unwrap()).unwrap();
    disk.set_capacity(Some(3 * SEGMENT));
    assert!(matches!(log.admit(), Err(LogError::Full { .. })), "raft still writes, others do not");
    disk.set_capacity(Some(2 * SEGMENT));
    assert!(log.admit_relief(0).is_ok(), "what is laid out takes no space of the disk");
    assert!(
        matches!(log.admit_relief(SEGMENT / 4), Err(LogError::Full { .. })),
        "it does not fit into what is laid out"
    );
    let submit = |index| log.submit(vec![entry(1, index, 1, 4_000)], |done| done.unwrap());
    let (last, error) = (2..100).find_map(|index| Some((index, submit(index).err()?))).unwrap();
    assert_eq!(error.code(), ErrorCode::Exhausted);
    assert!(last > 8, "a prepared file is used: {last}");
    assert!(matches!(log.admit_relief(0), Err(LogError::Full { .. })));
    assert!(log.read(1, 1).unwrap().is_some() && log.failure().is_none());
    log.submit(vec![LogRecord::Purge { group: 1, index: 1, term: 1 }], |done| done.unwrap()).unwrap();
    disk.set_capacity(None);
    submit(last).unwrap();
}

/// Prepared files go from a full disk. The last one stays where the log may need it.
#[test]
fn full_disk_releases_prepared_files() {
    let disk = MemoryDisk::new();
    let settings = LogConfig { spares: 3, ..config() };
    let log =
        Log::open(Arc::new(disk.clone()), &Random::from_seed(1), IDENTITY, &settings, CommitMode::Inline)
            .unwrap()
            .0;
    assert!(!log.release_spare(), "there is space");
    // Beside files of the log there are a few bytes that say whose it is.
    let hold = |files: u64| disk.set_capacity(Some(files * SEGMENT + 4096));
    hold(4);
    assert!(log.release_spare());
    assert!(!log.release_spare(), "now there is space");
    hold(3);
    assert!(log.release_spare());
    log.close();
    assert!(!release_spare(&disk).unwrap(), "who starts keeps the last one");
    hold(2);
    assert!(log.release_spare(), "the current segment has space");
    assert!(!log.release_spare(), "there is none");
}

#[test]
fn another_nodes_folder_is_refused() {
    let disk = MemoryDisk::new();
    drop(open(&disk));
    let ask = |disk: &MemoryDisk, cluster, node| {
        let identity = LogIdentity { cluster, node };
        Log::open(Arc::new(disk.clone()), &Random::from_seed(1), identity, &config(), CommitMode::Hand)
            .unwrap_err()
    };
    assert!(matches!(ask(&disk, 7, 2), LogOpenError::Foreign { .. }));
    assert_eq!(ask(&disk, 8, 1).code(), ErrorCode::Conflict);
    disk.flip_bit("identity", 20, 1);
    assert!(matches!(ask(&disk, 7, 1), LogOpenError::BadIdentity));
    disk.remove("identity").unwrap();
    assert!(matches!(ask(&disk, 7, 1), LogOpenError::NoIdentity));

    let disk = MemoryDisk::new();
    drop(open(&disk));
    disk.remove("000000000001.log").unwrap();
    assert!(matches!(ask(&disk, 7, 1), LogOpenError::Missing));
    let small = LogConfig { segment: ByteSize::kib(32), ..config() };
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    assert!(matches!(
        Log::open(disk, &Random::from_seed(1), IDENTITY, &small, CommitMode::Hand),
        Err(LogOpenError::SmallSegments { .. })
    ));
}

#[test]
fn files_that_a_log_would_not_name_are_left_alone() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&disk);
    must(&log, vec![entry(1, 1, 1, 100)]);
    drop(log);
    let foreign = ["7.log", "18446744073709551615.log", "18446744073709551615.spare", "5.spare", "x.spare"];
    for name in foreign {
        disk.write(name, b"of somebody else").unwrap();
    }
    let (log, recovery) = open(&disk);
    assert_eq!((recovery.damage, log.group_state(1).last), (vec![], Some((1, 1))));
    must(&log, vec![entry(1, 2, 1, 100)]);
    for name in foreign {
        assert_eq!(disk.read(name).unwrap(), b"of somebody else", "{name}");
    }
}

#[test]
fn a_failed_sync_is_final_and_reads_go_on() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&disk);
    must(&log, vec![entry(1, 1, 1, 100)]);
    disk.fail_syncs(1);
    assert!(!put(&log, vec![entry(1, 2, 1, 100)]));
    let error = log.submit(vec![entry(1, 3, 1, 100)], |_| ()).unwrap_err();
    assert!(error.to_string().contains("the disk failed to sync"), "{error}");
    assert_eq!(log.admit().unwrap_err().code(), ErrorCode::Internal);
    assert!(log.read(1, 1).unwrap().is_some());
    drop(log);
    let (log, _) = open(&disk.crash(1));
    assert!(log.read(1, 1).unwrap().is_some());
}

#[test]
fn the_log_is_bounded_while_one_group_is_slow() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&disk);
    let mut models = Models::new();
    let mut step = |records: Vec<LogRecord>| {
        apply(&mut models, &records);
        must(&log, records);
        let usage = log.usage();
        assert!(usage.segments as u64 * SEGMENT <= 2 * usage.live + 3 * SEGMENT, "{usage:?}");
    };
    step((1..=30).map(|index| entry(9, index, 1, if index % 4 == 0 { 0 } else { 700 })).collect());
    for index in 1..=2_000 {
        step(vec![entry(1, index, 1, 2_000), entry(2, index, 3, 100)]);
        step((1..=2).map(|group| LogRecord::Purge { group, index, term: 1 }).collect());
    }
    assert_eq!(differs(&log, &models), None);
    let files = disk.list().unwrap();
    assert!(files.len() <= 8, "{files:?}");
    let before = log.usage();
    drop(log);
    let (log, recovery) = open(&disk.restart());
    assert_eq!((differs(&log, &models), recovery.damage), (None, vec![]));
    assert_eq!(log.usage().live, before.live);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test of threads")]
fn a_thread_commits_for_many_and_a_real_folder_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = || Arc::new(LocalDisk::open(folder.path()).unwrap());
    let open = || Log::open(disk(), &Random::system(), IDENTITY, &config(), CommitMode::Thread).unwrap();
    let (log, _) = open();
    std::thread::scope(|scope| {
        for group in 1..=8 {
            let log = &log;
            scope.spawn(move || {
                let (tell, told) = std::sync::mpsc::channel();
                for index in 1..=100 {
                    let tell = tell.clone();
                    log.submit(vec![entry(group, index, 1, 500)], move |done| tell.send(done).unwrap())
                        .unwrap();
                    assert_eq!(log.read(group, index).unwrap().unwrap().data, payload(group, index, 1, 500));
                }
                (1..=100).for_each(|_| told.recv().unwrap().unwrap());
            });
        }
    });
    log.close();
    drop(log);
    let (log, recovery) = open();
    assert_eq!(recovery.damage, vec![]);
    for group in 1..=8 {
        assert_eq!(log.group_state(group).last, Some((100, 1)));
        assert_eq!(log.read(group, 57).unwrap().unwrap().data, payload(group, 57, 1, 500));
    }
}

#[test]
fn empty_log_takes_little_disk() {
    let disk = MemoryDisk::new();
    let (log, _) = try_open_with(&disk, &LogConfig::default()).unwrap();
    must(&log, vec![entry(1, 1, 1, 100)]);
    assert!(taken(&disk) < 11 << 20, "{}", taken(&disk));
}

#[test]
fn segments_grow_with_what_lives_and_shrink_at_start() {
    let disk = MemoryDisk::new();
    let size = 1 << 20;
    let config =
        LogConfig { segment: ByteSize::bytes(size), smallest: ByteSize::kib(128), spares: 2, ..growing() };
    let (log, _) = try_open_with(&disk, &config).unwrap();
    let largest = |disk: &MemoryDisk| {
        let files = disk.list().unwrap();
        files.iter().map(|file| disk.len(file).unwrap()).max().unwrap()
    };
    let mut sizes = vec![largest(&disk)];
    for index in 1..=800 {
        must(&log, vec![entry(1, index, 1, 10_000)]);
        assert!(log.usage().capacity <= 2 * log.usage().live + 4 * largest(&disk), "entry {index}");
        sizes.extend(Some(largest(&disk)).filter(|size| sizes.last() != Some(size)));
    }
    assert_eq!(sizes, [128 << 10, 256 << 10, 512 << 10, 1 << 20]);
    must(&log, vec![LogRecord::Purge { group: 1, index: 799, term: 1 }]);
    drop(log);
    let (log, recovery) = try_open_with(&disk, &config).unwrap();
    assert_eq!((recovery.damage, recovery.cut), (vec![], None));
    assert_eq!(log.read(1, 800).unwrap().unwrap().data, payload(1, 800, 1, 10_000));
    assert!(taken(&disk) < 3 * size, "{}", taken(&disk));
}

#[test]
fn first_entry_may_be_larger_than_first_segment() {
    let disk = MemoryDisk::new();
    let (log, _) = try_open_with(&disk, &growing()).unwrap();
    for index in 1..=3 {
        must(&log, vec![entry(1, index, 1, 100_000)]);
    }
    let disk = disk.crash(1);
    drop(log);
    let (log, recovery) = try_open_with(&disk, &growing()).unwrap();
    assert_eq!(recovery.damage, vec![]);
    for index in 1..=3 {
        assert_eq!(log.read(1, index).unwrap().unwrap().data, payload(1, index, 1, 100_000));
    }
}
