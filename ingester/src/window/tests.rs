//! A window against a naive set: on disks that lose power, fill up and rot.

use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{Disk, Random};
use athanor_profile::encoding::hash;

use super::*;

/// What ages are counted in.
const TICK: u64 = 1 << STAMP_AGE_BITS;

fn on(disk: &MemoryDisk, batch: usize) -> Arc<Mutex<DedupWindow>> {
    Arc::new(Mutex::new(DedupWindow::new(RunFiles::open(Arc::new(disk.clone()), 1, 1, batch).unwrap())))
}

fn window() -> DedupWindow {
    DedupWindow::new(RunFiles::open(Arc::new(MemoryDisk::new()), 1, 1, 100).unwrap())
}

fn id(number: u64) -> ContentHash {
    hash::hash_bytes(&number.to_le_bytes())
}

#[test]
fn a_repeat_is_known_until_its_stamp_is_old() {
    let mut window = window();
    // All is in blocks at once.
    window.set_flushed(0, 0, u64::MAX);
    window.advance(1, 100 * TICK, 50 * TICK, false);
    assert!(window.insert(1, 7) && !window.insert(2, 7) && !window.contains_applied(7));
    window.mark_applied(1);
    assert!(window.contains_applied(7) && !window.contains_applied(8));
    window.advance(3, 150 * TICK, 50 * TICK, false);
    assert!(window.contains(7) && !window.insert(3, 7));
    window.advance(4, 151 * TICK, 50 * TICK, false);
    assert!(!window.contains(7) && window.insert(4, 7));
    window.advance(5, 10 * TICK, 50 * TICK, false);
    assert_eq!(window.stamp(), 151 * TICK, "stamps never go back");
    window.advance(6, 152 * TICK, 200 * TICK, false);
    window.advance(7, 250 * TICK, 50 * TICK, false);
    assert!(window.contains(7), "the longest span holds for all");
    window.advance(8, 360 * TICK, 50 * TICK, false);
    window.advance(9, 361 * TICK, 500 * TICK, false);
    assert!(!window.contains(7), "what was forgotten stays so");
}

#[test]
fn a_snapshot_holds_the_ids_up_to_its_label() {
    for batch in [1, 100] {
        let disk = MemoryDisk::new();
        let window = on(&disk, batch);
        for index in 1..=5 {
            window.lock().advance(index, index * 10 * TICK, 1000 * TICK, false);
            window.lock().insert(index, id(index));
        }
        let bytes = DedupWindow::capture(&window, 3).write().unwrap();
        let read = on(&disk, batch);
        read.lock().restore(3, true, &mut CodecReader::new(&bytes)).unwrap();
        let mut read = read.lock();
        assert_eq!(
            (read.len_at(0), read.stamp(), read.contains_applied(id(3)), read.contains(id(4))),
            (3, 30 * TICK, true, false)
        );
        for cut in 0..bytes.len() {
            assert!(read.restore(3, true, &mut CodecReader::new(&bytes[..cut])).is_err());
        }
        assert!(read.contains(id(3)), "what cannot be read changes nothing");
    }
}

/// What the log says.
enum Said {
    Ids { stamp: u64, span: u64, ids: Vec<ContentHash>, new: Vec<bool> },
    Cut(u64, u64),
}

/// All that ever was, and the verdicts that follow from it.
#[derive(Default)]
struct Naive {
    arrivals: Vec<(ContentHash, u64)>,
    stamp: u64,
    span: u64,
    horizon: u64,
    /// The stamp of the last cut.
    floor: u64,
}

impl Naive {
    fn admit(&mut self, stamp: u64, span: u64, ids: &[ContentHash]) -> Vec<bool> {
        (self.stamp, self.span) = (self.stamp.max(stamp), self.span.max(span));
        self.horizon = self.horizon.max(self.stamp.saturating_sub(self.span).min(self.floor));
        let oldest = age(self.horizon);
        let admit = |&id: &ContentHash| {
            let new = !self.arrivals.iter().any(|(other, stamp)| *other == id && age(*stamp) >= oldest);
            self.arrivals.extend(new.then_some((id, self.stamp)));
            new
        };
        ids.iter().map(admit).collect()
    }
}

struct World {
    random: Random,
    disk: MemoryDisk,
    window: Arc<Mutex<DedupWindow>>,
    batch: usize,
    naive: Naive,
    /// By index, from 1 on.
    log: Vec<Said>,
    cut: u64,
    /// The newest snapshot that is durable.
    snapshot: Option<(u64, Vec<u8>)>,
    filed: u64,
    merged: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let (random, disk) = (Random::from_seed(seed), MemoryDisk::new());
        let batch = 1 + random.next_below(20) as usize;
        let window = on(&disk, batch);
        let (naive, log, snapshot) = (Naive::default(), Vec::new(), None);
        Self { random, disk, window, batch, naive, log, cut: 0, snapshot, filed: 0, merged: 0 }
    }

    fn entry(&mut self) {
        let random = &self.random;
        let stamp = self.naive.stamp + random.next_below(4 * TICK);
        let span = [10, 10, 10, 40][random.next_below(4) as usize] * TICK;
        let some = |_| id(random.next_below(40 + 4 * self.log.len() as u64));
        let ids: Vec<ContentHash> = (0..random.next_below(12)).map(some).collect();
        let new = self.naive.admit(stamp, span, &ids);
        let said = Said::Ids { stamp, span, ids, new };
        apply(&self.window, self.log.len() as u64 + 1, &said);
        self.log.push(said);
    }

    /// A cut and its snapshot, while others go on. False if the power went.
    fn cut(&mut self) -> bool {
        let index = self.log.len() as u64;
        self.cut += self.random.next_below(index - self.cut + 1);
        let stamps = self.log[..self.cut as usize].iter().filter_map(|said| match said {
            Said::Ids { stamp, .. } => Some(*stamp),
            Said::Cut(..) => None,
        });
        let stamp = stamps.max().unwrap_or_default();
        self.naive.floor = self.naive.floor.max(stamp);
        let said = Said::Cut(self.cut, stamp);
        apply(&self.window, index + 1, &said);
        self.log.push(said);
        let captured = DedupWindow::capture(&self.window, self.cut);
        self.filed += u64::from(!captured.records.is_empty());
        for _ in 0..self.random.next_below(3) {
            self.entry();
        }
        match self.random.next_below(6) {
            0 => self.disk.lose_power_after(self.random.next_below(8)),
            1 => self.disk.set_capacity(Some(0)),
            _ => {}
        }
        let files = self.window.lock().runs.len();
        let lives = self.write(captured, files);
        self.disk.lose_power_after(u64::MAX);
        lives
    }

    fn write(&mut self, captured: WindowSnapshot, files: usize) -> bool {
        let written = captured.write();
        self.disk.set_capacity(None);
        if self.disk.list().is_err() {
            return false;
        }
        let Ok(bytes) = written else { return true };
        self.merged += u64::from(self.window.lock().runs.len() < files);
        self.snapshot = Some((self.cut, bytes));
        if self.random.next_below(4) > 0 {
            DedupWindow::remove_unused_files(&self.window);
            let Ok(mut files) = self.disk.list() else { return false };
            let window = self.window.lock();
            let mut named: Vec<String> =
                window.runs.iter().map(|run| window.shelf.file(run.name.number)).collect();
            files.sort();
            named.sort();
            assert_eq!(files, named);
            assert!(window.runs.windows(2).all(|pair| pair[0].records >= pair[1].records));
        }
        true
    }

    /// The power goes, and the log is read again.
    fn crash(&mut self) {
        self.disk = self.disk.crash(self.random.next_u64());
        self.window = on(&self.disk, self.batch);
        let mut label = 0;
        if let Some((to, bytes)) = &self.snapshot {
            label = *to;
            self.window.lock().restore(*to, true, &mut CodecReader::new(bytes)).unwrap();
        }
        for (index, said) in (1..).zip(&self.log).filter(|(index, _)| *index > label) {
            apply(&self.window, index, said);
        }
        assert_eq!(self.window.lock().damage_count(), 0);
    }
}

fn apply(window: &Arc<Mutex<DedupWindow>>, index: u64, said: &Said) {
    let mut window = window.lock();
    match said {
        Said::Ids { stamp, span, ids, new } => {
            window.advance(index, *stamp, *span, false);
            assert_eq!(&window.insert_all(index, ids), new, "entry {index}");
            window.mark_applied(index);
            assert!(ids.iter().all(|id| window.contains_applied(*id)));
        }
        Said::Cut(cut, stamp) => window.set_flushed(index, *cut, *stamp),
    }
}

#[test]
fn verdicts_are_those_of_a_naive_set_whatever_the_disk_does() {
    let (mut filed, mut merged) = (0, 0);
    for seed in 0..400 {
        let mut world = World::new(seed);
        for _ in 0..60 + world.random.next_below(60) {
            let lives = match world.random.next_below(12) {
                0..=7 => {
                    world.entry();
                    true
                }
                8..=10 => world.cut(),
                _ => false,
            };
            if !lives {
                world.crash();
            }
        }
        (filed, merged) = (filed + world.filed, merged + world.merged);
    }
    assert!(filed > 1000 && merged > 300, "{filed} {merged}");
}

/// A window of which all ids lie in files, and its snapshot.
fn filed(disk: &MemoryDisk, batches: u64, each: u64) -> (Arc<Mutex<DedupWindow>>, Vec<u8>) {
    let window = on(disk, 1);
    let mut bytes = Vec::new();
    for index in 1..=batches {
        window.lock().advance(index, index * TICK, 1000 * TICK, false);
        let ids: Vec<ContentHash> = (index * each..(index + 1) * each).map(id).collect();
        window.lock().insert_all(index, &ids);
        bytes = DedupWindow::capture(&window, index).write().unwrap();
        DedupWindow::remove_unused_files(&window);
    }
    (window, bytes)
}

#[test]
fn an_id_in_a_file_takes_two_bytes_of_memory_and_no_reading_where_it_is_new() {
    let disk = MemoryDisk::new();
    let (window, _) = filed(&disk, 12, 10_000);
    let mut window = window.lock();
    let size: usize = window.runs.iter().map(|run| run.size()).sum();
    assert!(size < 2 * 120_000 && window.runs.len() < 6, "{size} bytes, {} files", window.runs.len());
    assert_eq!((window.recent.len(), window.len_at(0)), (0, 120_000));
    assert!((10_000..130_000).all(|number| window.contains(id(number))));
    // A page that is read is found to be gone.
    for name in disk.list().unwrap() {
        disk.remove(&name).unwrap();
    }
    assert!((200_000..220_000).all(|number| !window.contains(id(number))));
    assert!(window.damage_count() < 200, "{} of 20000 were looked for in files", window.damage_count());
}

#[test]
fn damage_of_a_file_is_counted_and_hurts_only_what_it_held() {
    let disk = MemoryDisk::new();
    let (window, bytes) = filed(&disk, 1, 1000);
    let name = disk.list().unwrap().remove(0);
    assert!(disk.flip_bit(&name, 4096 + 100, 2));
    let unknown = || {
        let mut window = window.lock();
        let unknown = (1000..2000).filter(|&number| !window.contains(id(number))).count();
        (unknown, window.damage_count())
    };
    assert_eq!(unknown(), (204, 204));
    window.lock().clear_damage_count();
    // What a merge cannot read is counted as well.
    window.lock().insert_all(2, &(5000..6500).map(id).collect::<Vec<_>>());
    DedupWindow::capture(&window, 2).write().unwrap();
    {
        let window = window.lock();
        assert_eq!((window.runs.len(), window.damage_count(), window.len_at(0)), (1, 1, 2296));
    }
    // Where counts and filters are damaged, nothing of the file is believed.
    let length = disk.len(&name).unwrap();
    for (at, lost) in [(length - 1, 1), (length - 70, 1), (length - 60, 1), (200, 0)] {
        assert!(disk.flip_bit(&name, at, 0));
        let read = on(&disk, 1);
        read.lock().restore(1, true, &mut CodecReader::new(&bytes)).unwrap();
        assert_eq!(read.lock().damage_count(), lost, "{at} of {length}");
        assert!(disk.flip_bit(&name, at, 0));
    }
    disk.remove(&name).unwrap();
    window.lock().restore(1, true, &mut CodecReader::new(&bytes)).unwrap();
    assert_eq!(unknown(), (1000, 1));
}

/// Its sums may be sound and it may come from another member: whoever asks it must not fail over it.
#[test]
fn a_file_without_a_filter_is_damaged() {
    let words = [u64::from_le_bytes(*b"athids\x01\n"), 7, 0, 0, 0, 0, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let sum = hash::hash_tagged(hash::hash_bytes(&[]) as u64, &bytes) as u64;
    bytes.extend(sum.to_le_bytes());
    let disk = MemoryDisk::new();
    disk.write("ids", &bytes).unwrap();
    let opened = SortedRun::open(&disk, "ids".to_owned(), RunName { number: 7, sum });
    let found = opened.map(|run| run.find(&disk, id(1)));
    assert!(matches!(found, Err(sorted_run::RunError::Damaged { .. })), "{found:?}");
}
