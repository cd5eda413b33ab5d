//! Tests of the state machine with records as the kernel sends them.

use super::*;
use crate::perf_events::{BuildId, LostRecord};

const TICK: u64 = 10_000_000;

/// History with records in the order of time.
struct Recorder {
    history: ProcessHistory,
    time_nanos: u64,
}

impl Recorder {
    fn new(max_processes: usize) -> Self {
        Self::with_memory(max_processes, 64 << 20)
    }

    fn with_memory(max_processes: usize, max_bytes: usize) -> Self {
        let history = ProcessHistory::new(max_processes, max_bytes, ClockTick::per_second(100));
        Self { history, time_nanos: 5_000 * TICK }
    }

    fn apply(&mut self, pid: u32, event: SidebandEvent<'_>) {
        self.time_nanos += 1000;
        let record = SidebandRecord { pid, tid: pid, time_nanos: self.time_nanos, event };
        self.history.apply_record(&record);
    }

    /// Returns the start of the child, as the kernel has it.
    fn fork(&mut self, parent_pid: u32, pid: u32) -> u64 {
        let start_nanos = self.time_nanos + 500;
        let time_nanos = self.time_nanos + 1000;
        let task = TaskRecord { pid, parent_pid, tid: pid, parent_tid: parent_pid, time_nanos };
        self.apply(parent_pid, SidebandEvent::Fork(task));
        start_nanos
    }

    fn exit(&mut self, pid: u32, tid: u32) {
        let time_nanos = self.time_nanos + 1000;
        let task = TaskRecord { pid, parent_pid: 1, tid, parent_tid: 1, time_nanos };
        self.apply(pid, SidebandEvent::Exit(task));
    }

    fn comm(&mut self, pid: u32, tid: u32, comm: &str, is_exec: bool) {
        self.apply(pid, SidebandEvent::Comm(CommRecord { pid, tid, is_exec, comm: comm.as_bytes() }));
    }

    fn mmap(&mut self, pid: u32, start: u64, path: &str) {
        let inode = MappedInode::BuildId(BuildId::from_bytes(path.as_bytes().get(..3).unwrap()).unwrap());
        let path = path.as_bytes();
        let mmap =
            MmapRecord { pid, tid: pid, start, bytes: 0x1000, offset: 0, inode, is_executable: true, path };
        self.apply(pid, SidebandEvent::Mmap(mmap));
    }

    fn exec(&mut self, pid: u32, path: &str) {
        self.comm(pid, pid, path.rsplit('/').next().unwrap(), true);
        self.mmap(pid, 0x1000, path);
        self.mmap(pid, 0x9000, "/lib/ld.so");
    }

    /// Name and executable of an image.
    fn image(&mut self, pid: u32, start_nanos: u64, exec_id: u32) -> Option<(String, String)> {
        let state = self.history.find(&ProcessRequest { pid, start_nanos, exec_id })?;
        let image = state.image_or_derive(exec_id, "");
        Some((image.comm.to_string(), image.executable.to_string()))
    }

    fn load(&mut self, request: ProcessRequest, executable: &str) {
        let mapping = Mapping::new(0x1000..0x2000, 0, executable.as_bytes());
        let snapshot = ProcessSnapshot {
            start_ticks: request.start_nanos / TICK,
            parent_pid: 1,
            comm: executable.rsplit('/').next().unwrap().into(),
            executable: executable.into(),
            cgroup: Some("/box".into()),
            mappings: Some(vec![mapping]),
            ..ProcessSnapshot::default()
        };
        self.history.apply_snapshot(&request, snapshot);
    }
}

fn names(comm: &str, executable: &str) -> Option<(String, String)> {
    Some((comm.to_owned(), executable.to_owned()))
}

#[test]
fn fork_record_after_a_request_changes_only_the_parent() {
    let mut recorder = Recorder::new(16);
    let start_nanos = recorder.time_nanos + 500;
    let request = ProcessRequest { pid: 7, start_nanos, exec_id: 3 };
    let snapshot = ProcessSnapshot {
        start_ticks: start_nanos / TICK,
        comm: "child".into(),
        ..ProcessSnapshot::default()
    };
    recorder.history.apply_snapshot(&request, snapshot);
    assert_eq!(recorder.fork(5, 7), start_nanos);
    assert_eq!(recorder.history.len(), 1);
    let state = recorder.history.find(&request).unwrap();
    assert_eq!((state.parent_pid, state.exited_in), (5, None));
    // The id is used once more, by a process that forks later.
    recorder.time_nanos += 2 * 1_000_000_000;
    recorder.fork(5, 7);
    assert_eq!(recorder.history.len(), 2);
}

#[test]
fn short_process_has_name_executable_and_cgroup_after_exit() {
    let mut recorder = Recorder::new(100);
    let parent = ProcessRequest { pid: 5, start_nanos: 7 * TICK + 3, exec_id: 40 };
    recorder.load(parent, "/bin/sh");
    let start_nanos = recorder.fork(5, 6);
    recorder.exec(6, "/bin/short");
    recorder.exit(6, 6);
    assert_eq!(recorder.image(6, start_nanos, 41), names("short", "/bin/short"));
    assert_eq!(recorder.image(6, start_nanos, 40), names("sh", "/bin/sh"));
    let request = ProcessRequest { pid: 6, start_nanos, exec_id: 41 };
    let state = recorder.history.find(&request).unwrap();
    assert_eq!(state.cgroup.as_deref(), Some("/box"));
    assert_eq!(state.parent_pid, 5);
    let mapping = recorder.history.resolve(&request, 0x9010).unwrap();
    assert_eq!(mapping.path.as_ref(), b"/lib/ld.so");
    assert_eq!(mapping.build_id.unwrap().as_bytes(), b"/li");
    // Facts stay for the window that ends and the next one, whose first samples may be of before the exit.
    recorder.history.end_window();
    assert!(recorder.history.find(&request).is_some());
    recorder.history.end_window();
    assert!(recorder.history.find(&request).is_none());
    assert!(recorder.history.find(&parent).is_some());
}

#[test]
fn reused_id_finds_process_by_start() {
    let mut recorder = Recorder::new(100);
    let first = recorder.fork(1, 9);
    recorder.exec(9, "/bin/first");
    recorder.exit(9, 9);
    let second = recorder.fork(1, 9);
    recorder.exec(9, "/bin/second");
    assert_eq!(recorder.image(9, first, 1), names("first", "/bin/first"));
    assert_eq!(recorder.image(9, second, 1), names("second", "/bin/second"));
    assert_eq!(recorder.image(9, second + 10_000, 1), None);
    assert_eq!(recorder.image(9, first, 1), names("first", "/bin/first"));
}

#[test]
fn second_process_of_id_is_found_although_first_was_never_sampled() {
    let mut recorder = Recorder::new(100);
    recorder.fork(1, 9);
    recorder.exit(9, 9);
    recorder.time_nanos += 3_000_000_000;
    let second = recorder.fork(1, 9);
    recorder.exec(9, "/bin/second");
    assert_eq!(recorder.image(9, second, 1), names("second", "/bin/second"));
}

#[test]
fn exec_ids_of_unknown_origin_follow_samples() {
    let mut recorder = Recorder::new(100);
    let start = recorder.fork(1, 9);
    recorder.exec(9, "/bin/a");
    // By the order of events this is the running image. A later id shows that it was the one before.
    assert_eq!(recorder.image(9, start, 70), names("a", "/bin/a"));
    assert_eq!(recorder.image(9, start, 71), names("a", "/bin/a"));
    recorder.exec(9, "/bin/b");
    assert_eq!(recorder.image(9, start, 72), names("b", "/bin/b"));
    assert_eq!(recorder.image(9, start, 71), names("a", "/bin/a"));
}

#[test]
fn name_of_sample_selects_image_of_unknown_exec_id() {
    let mut recorder = Recorder::new(100);
    let start_nanos = recorder.fork(1, 9);
    recorder.exec(9, "/bin/a");
    recorder.exec(9, "/bin/b");
    let request = ProcessRequest { pid: 9, start_nanos, exec_id: 33 };
    let state = recorder.history.find(&request).unwrap();
    assert_eq!(&*state.image_or_derive(33, "a").executable, "/bin/a");
    assert_eq!(recorder.image(9, start_nanos, 34), names("b", "/bin/b"));
}

#[test]
fn lost_exec_starts_unknown_image() {
    let mut recorder = Recorder::new(100);
    let request = ProcessRequest { pid: 5, start_nanos: 7 * TICK, exec_id: 40 };
    recorder.load(request, "/bin/old");
    assert_eq!(recorder.image(5, 7 * TICK, 43), names("", ""));
    assert_eq!(recorder.image(5, 7 * TICK, 40), names("old", "/bin/old"));
    let newer = ProcessRequest { exec_id: 44, ..request };
    recorder.load(newer, "/bin/new");
    assert_eq!(recorder.image(5, 7 * TICK, 44), names("new", "/bin/new"));
}

#[test]
fn threads_are_no_processes() {
    let mut recorder = Recorder::new(100);
    let start = recorder.fork(1, 9);
    recorder.exec(9, "/bin/a");
    let time_nanos = recorder.time_nanos;
    let thread = TaskRecord { pid: 9, parent_pid: 9, tid: 10, parent_tid: 9, time_nanos };
    recorder.apply(9, SidebandEvent::Fork(thread));
    recorder.comm(9, 10, "worker", false);
    recorder.exit(9, 10);
    recorder.history.end_window();
    recorder.history.end_window();
    assert_eq!(recorder.history.len(), 1);
    assert_eq!(recorder.image(9, start, 1), names("a", "/bin/a"));
    recorder.comm(9, 9, "renamed", false);
    assert_eq!(recorder.image(9, start, 1), names("renamed", "/bin/a"));
}

#[test]
fn records_of_invisible_processes_are_ignored() {
    let mut recorder = Recorder::new(100);
    for pid in [0, u32::MAX] {
        recorder.fork(1, pid);
        recorder.exec(pid, "/bin/a");
        recorder.exit(pid, pid);
    }
    let inode = MappedInode::Inode { major: 0, minor: 0, inode: 0 };
    for (start, bytes) in [(u64::MAX, 2), (USER_ADDRESS_END, 1), (1, 0), (0, USER_ADDRESS_END + 1)] {
        let path = b"/a";
        let mmap = MmapRecord { pid: 5, tid: 5, start, bytes, offset: 0, inode, is_executable: true, path };
        recorder.apply(5, SidebandEvent::Mmap(mmap));
    }
    assert!(recorder.history.is_empty());
}

#[test]
fn changes_name_loaded_processes() {
    let mut recorder = Recorder::new(100);
    let loaded = ProcessRequest { pid: 5, start_nanos: 7 * TICK, exec_id: 40 };
    recorder.load(loaded, "/bin/a");
    recorder.fork(1, 6);
    recorder.mmap(6, 0x5000, "/lib/a.so");
    assert_eq!(recorder.history.take_changed(), []);
    recorder.mmap(5, 0x5000, "/lib/a.so");
    assert_eq!(recorder.history.take_changed(), [loaded]);
    assert_eq!(recorder.history.take_changed(), []);
    recorder.apply(0, SidebandEvent::Lost(LostRecord { count: 3 }));
    assert_eq!(recorder.history.take_changed(), [], "a loss does not load all processes at once");
    assert_eq!(recorder.history.loss_count(), 1);
    assert_eq!(recorder.history.loaded_request(5), Some(loaded));
    recorder.exec(5, "/bin/b");
    assert_eq!(recorder.history.take_changed(), [ProcessRequest { exec_id: 41, ..loaded }]);
    recorder.mmap(5, 0x7000, "/lib/b.so");
    recorder.load(ProcessRequest { exec_id: 41, ..loaded }, "/bin/b");
    assert_eq!(recorder.history.take_changed(), [], "a load has all changes");
    recorder.history.mark_ended(&loaded);
    assert_eq!(recorder.history.end_window(), []);
    assert_eq!(recorder.history.end_window(), [RemovedProcess { pid: 5, is_evicted: false }]);
}

#[test]
fn removed_id_that_is_loaded_under_other_process_is_not_reported() {
    let mut recorder = Recorder::new(100);
    let old = ProcessRequest { pid: 5, start_nanos: 7 * TICK, exec_id: 40 };
    recorder.load(old, "/bin/a");
    recorder.exit(5, 5);
    let start_nanos = recorder.fork(1, 5);
    recorder.load(ProcessRequest { pid: 5, start_nanos, exec_id: 2 }, "/bin/b");
    recorder.history.end_window();
    assert_eq!(recorder.history.end_window(), []);
    assert!(recorder.history.find(&old).is_none());
}

#[test]
fn fork_storm_stays_within_bounds_and_keeps_sampled_processes() {
    const MAX_PROCESSES: usize = 1000;
    const MAX_BYTES: usize = 2 << 20;
    let mut recorder = Recorder::with_memory(MAX_PROCESSES, MAX_BYTES);
    let mut sampled = Vec::new();
    for pid in 10..200 {
        let start_nanos = recorder.fork(1, pid);
        recorder.exec(pid, "/bin/sampled");
        sampled.push((pid, start_nanos));
        assert!(recorder.image(pid, start_nanos, 1).is_some());
    }
    for number in 0..20_000_u32 {
        let pid = 1000 + number % 7000;
        recorder.fork(1, pid);
        for start in 0..8 {
            recorder.mmap(pid, start << 20, "/lib/a.so");
        }
        recorder.exit(pid, pid);
        assert!(recorder.history.len() <= MAX_PROCESSES);
        assert!(recorder.history.memory() <= MAX_BYTES);
    }
    for (pid, start_nanos) in sampled {
        assert_eq!(recorder.image(pid, start_nanos, 1), names("sampled", "/bin/sampled"));
    }
}

#[test]
fn memory_of_sampled_processes_is_bounded() {
    const MAX_BYTES: usize = 1 << 20;
    let mut recorder = Recorder::with_memory(100_000, MAX_BYTES);
    let mut last_loaded = None;
    for pid in 1..200 {
        let request = ProcessRequest { pid, start_nanos: u64::from(pid) * TICK, exec_id: 1 };
        recorder.load(request, "/bin/a");
        for start in 2..200 {
            recorder.mmap(pid, start << 20, "/lib/a.so");
            assert!(recorder.history.memory() <= MAX_BYTES, "{} bytes", recorder.history.memory());
        }
        last_loaded = Some(request);
    }
    assert!(recorder.history.mappings_dropped() > 10_000);
    assert_eq!(recorder.history.len(), 199, "mappings go before processes");
    let last = last_loaded.unwrap();
    assert!(recorder.history.resolve(&last, 199 << 20).is_some(), "the last used one keeps them");
}

#[test]
fn mappings_that_forked_processes_share_count_once() {
    const MAX_BYTES: usize = 1 << 20;
    let mut recorder = Recorder::with_memory(100_000, MAX_BYTES);
    let parent = ProcessRequest { pid: 1, start_nanos: TICK, exec_id: 1 };
    recorder.load(parent, "/bin/a");
    for start in 2..1000 {
        recorder.mmap(1, start << 20, "/lib/a.so");
    }
    for pid in 2..1000 {
        recorder.fork(1, pid);
    }
    assert_eq!(recorder.history.mappings_dropped(), 0);
    assert!(recorder.history.resolve(&parent, 999 << 20).is_some());
}

#[test]
fn processes_are_removed_if_their_texts_exceed_the_memory() {
    const MAX_BYTES: usize = 1 << 20;
    let mut recorder = Recorder::with_memory(100_000, MAX_BYTES);
    for pid in 1..1000 {
        let request = ProcessRequest { pid, start_nanos: u64::from(pid) * TICK, exec_id: 1 };
        let snapshot = ProcessSnapshot {
            start_ticks: u64::from(pid),
            command_line: "x".repeat(4096).into(),
            ..ProcessSnapshot::default()
        };
        recorder.history.apply_snapshot(&request, snapshot);
        recorder.history.limit_memory();
        assert!(recorder.history.memory() <= MAX_BYTES, "{} bytes", recorder.history.memory());
        assert!(recorder.history.find(&request).is_some(), "the last used one stays");
    }
    assert!(recorder.history.len() > 100);
}

#[test]
fn kernel_thread_passes_on_and_exec_ends_it() {
    let mut recorder = Recorder::new(100);
    let snapshot = ProcessSnapshot {
        start_ticks: 0,
        is_kernel_thread: true,
        comm: "kthreadd".into(),
        ..Default::default()
    };
    recorder.history.add_parent(2, snapshot);
    let thread = recorder.fork(2, 50);
    let helper = recorder.fork(50, 51);
    recorder.exec(51, "/sbin/modprobe");
    let is_kernel_thread = |recorder: &mut Recorder, pid, start_nanos| {
        recorder.history.find(&ProcessRequest { pid, start_nanos, exec_id: 0 }).unwrap().is_kernel_thread
    };
    assert!(is_kernel_thread(&mut recorder, 50, thread));
    assert!(!is_kernel_thread(&mut recorder, 51, helper));
}

#[test]
fn descendants_have_the_oldest_ancestor_although_their_parents_ended() {
    let mut recorder = Recorder::new(100);
    recorder.load(ProcessRequest { pid: 5, start_nanos: 7 * TICK + 3, exec_id: 40 }, "/bin/make");
    let mut parent = 5;
    // No process between them is sampled, and each ends before its grandchild starts.
    for pid in 10..300 {
        recorder.fork(parent, pid);
        recorder.exec(pid, "/bin/sh");
        recorder.exit(parent, parent);
        recorder.history.end_window();
        parent = pid;
    }
    // A request of the last process is handled before the record of its fork.
    let start_nanos = recorder.time_nanos + 500;
    let request = ProcessRequest { pid: 300, start_nanos, exec_id: 3 };
    let snapshot = ProcessSnapshot { start_ticks: start_nanos / TICK, parent_pid: 1, ..Default::default() };
    recorder.history.apply_snapshot(&request, snapshot.clone());
    recorder.fork(parent, 300);
    assert_eq!(recorder.history.find(&request).unwrap().oldest_ancestor_pid, 5);
    // A parent that exited leaves its children to another one.
    recorder.history.apply_snapshot(&request, snapshot);
    let state = recorder.history.find(&request).unwrap();
    assert_eq!((state.parent_pid, state.oldest_ancestor_pid), (1, 5));
}
