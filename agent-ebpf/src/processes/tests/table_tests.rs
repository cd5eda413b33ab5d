//! Tests of the table with real processes.

use std::process::Command;

use super::*;
use crate::cgroups::CgroupNames;
use crate::layout::StackKey;
use crate::processes::test_processes::{TestProcess, compile, new_request, new_table, wait_until};
use crate::processes::{ExecutableDetails, MappingKind, OpenError, ProcessFacts, ProcessStat};

fn stack_key(request: &ProcessRequest) -> StackKey {
    StackKey {
        hash: [0; 2],
        start_nanos: request.start_nanos,
        cgroup: 1,
        pid: request.pid,
        host_pid: request.pid,
        exec_id: request.exec_id,
        end: 0,
        comm: *b"sampled\0\0\0\0\0\0\0\0\0",
    }
}

fn facts(table: &mut ProcessTable, request: &ProcessRequest) -> Arc<ProcessFacts> {
    table.facts(&stack_key(request))
}

#[test]
fn own_process_loads_with_all_files() {
    let mut table = new_table();
    let request = new_request(std::process::id());
    let loaded = table.load(&request).unwrap();
    assert!(!loaded.is_kernel_thread);
    let address = own_process_loads_with_all_files as fn() as usize as u64;
    let own = table.resolve(&request, address).cloned().unwrap();
    assert_eq!(own.path.as_ref(), std::env::current_exe().unwrap().as_os_str().as_encoded_bytes());
    let mut vdso_bytes = 0;
    for mapping in loaded.mappings.iter().filter(|mapping| mapping.kind != MappingKind::Anonymous) {
        match table.open_mapping(&loaded.folder, mapping).unwrap() {
            MappedSource::File { stamp, file } => {
                assert_eq!(stamp.inode, mapping.inode);
                assert_eq!(file.metadata().unwrap().len(), stamp.bytes);
            }
            MappedSource::Memory(bytes) => {
                assert_eq!(bytes.get(..4), Some(&b"\x7fELF"[..]));
                vdso_bytes += bytes.len();
            }
        }
    }
    assert!(vdso_bytes > 0);
}

#[test]
fn other_start_is_another_process() {
    let mut table = new_table();
    let mut request = new_request(std::process::id());
    request.start_nanos += 1_000_000_000;
    assert!(matches!(table.load(&request), Err(ProcessError::Replaced { .. })));
}

#[test]
fn ended_process_is_reported() {
    let mut child = Command::new("true").spawn().unwrap();
    let request = new_request(child.id());
    child.wait().unwrap();
    let error = new_table().load(&request).unwrap_err();
    assert!(matches!(error, ProcessError::Ended { .. } | ProcessError::Replaced { .. }), "{error}");
}

#[test]
fn anonymous_memory_has_no_file() {
    let mut table = new_table();
    let loaded = table.load(&new_request(std::process::id())).unwrap();
    let mapping = Mapping::new(0x1000..0x2000, 0, b"//anon");
    let error = table.open_mapping(&loaded.folder, &mapping).unwrap_err();
    assert!(matches!(error, OpenError::Anonymous { start: 0x1000 }));
}

#[test]
fn facts_of_running_process_are_complete_and_shared() {
    let process =
        TestProcess::spawn(Command::new("sleep").arg("1000").env("ATHANOR_TEST", "yes").env("SECRET", "no"));
    process.wait_for_executable("sleep");
    let mut table = new_table();
    let request = new_request(process.pid());
    let first = facts(&mut table, &request);
    assert_eq!(&*first.comm, "sleep");
    assert_eq!(&*first.command_line, "sleep 1000");
    assert!(first.executable.ends_with("/sleep"), "{}", first.executable);
    assert_eq!(first.environment, [("ATHANOR_TEST".into(), "yes".into())]);
    assert_eq!(first.parent_pid, std::process::id());
    assert_eq!(first.user_id, Some(rustix::process::getuid().as_raw()));
    assert!(!first.is_kernel_thread);
    let own = CgroupMembership::parse(&std::fs::read("/proc/self/cgroup").unwrap());
    assert_eq!(first.cgroup.to_string(), own.path.unwrap());
    assert!(Arc::ptr_eq(&first, &facts(&mut table, &request)));
    table.end_window();
    assert!(Arc::ptr_eq(&first, &facts(&mut table, &request)));
    let details = ExecutableDetails { build_id: "ab".into(), is_static: Some(false), ..Default::default() };
    table.set_executable_details(&request, details);
    let second = facts(&mut table, &request);
    assert_eq!((&*second.build_id, second.is_static), ("ab", Some(false)));
}

#[test]
fn facts_of_kernel_thread_say_so() {
    if std::fs::read_to_string("/proc/2/comm").unwrap_or_default() != "kthreadd\n" {
        println!("skip: needs the initial PID namespace");
        return;
    }
    let mut table = new_table();
    let request = new_request(2);
    let facts = facts(&mut table, &request);
    assert!(facts.is_kernel_thread);
    assert_eq!(&*facts.comm, "kthreadd");
    let loaded = table.load(&request).unwrap();
    assert!(loaded.is_kernel_thread && loaded.mappings.is_empty());
}

#[test]
fn facts_of_invisible_process_have_name_of_sample() {
    let mut table = new_table();
    let request = ProcessRequest { pid: 0, start_nanos: 5, exec_id: 1 };
    let key = StackKey { host_pid: 77, ..stack_key(&request) };
    let facts = table.facts(&key);
    assert_eq!((&*facts.comm, facts.identity.host_pid), ("sampled", 77));
    assert!(!facts.is_kernel_thread);
    let kernel_thread = table.facts(&StackKey { exec_id: 0, ..key });
    assert!(kernel_thread.is_kernel_thread);
    assert_eq!(table.process_count(), 0);
}

#[test]
fn exec_without_record_has_facts_of_both_programs() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let script = "while [ ! -e \"$0\" ]; do sleep 0.01; done; exec sleep 1000";
    let process = TestProcess::spawn(Command::new("sh").args(["-c", script]).arg(&mark));
    process.wait_for_executable("sh");
    let mut table = new_table();
    let request = new_request(process.pid());
    table.load(&request).unwrap();
    assert_eq!(&*facts(&mut table, &request).comm, "sh");
    std::fs::write(&mark, "").unwrap();
    process.wait_for_executable("sleep");
    let later = ProcessRequest { exec_id: request.exec_id + 1, ..request };
    let sleep = facts(&mut table, &later);
    assert_eq!((&*sleep.comm, &*sleep.command_line), ("sleep", "sleep 1000"));
    assert_eq!(&*facts(&mut table, &request).comm, "sh");
    let program = table.load(&later).unwrap().mappings;
    assert!(program.iter().any(|mapping| mapping.path.ends_with(b"/sleep")));
}

#[test]
fn ended_process_keeps_facts_for_two_windows() {
    let process = TestProcess::spawn(Command::new("sleep").arg("1000"));
    process.wait_for_executable("sleep");
    let mut table = new_table();
    let request = new_request(process.pid());
    table.load(&request).unwrap();
    let before = facts(&mut table, &request);
    drop(process);
    assert!(table.load(&request).is_err());
    assert_eq!(facts(&mut table, &request), before);
    assert_eq!(table.end_window(), []);
    assert_eq!(facts(&mut table, &request), before);
    assert_eq!(table.end_window(), [RemovedProcess { pid: request.pid, is_evicted: false }]);
    assert_eq!(table.process_count(), 0);
}

#[test]
fn change_of_cgroup_is_seen_in_next_window() {
    let id = "3f2a9c0d1e4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeef";
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap();
    let mount = crate::processes::Mount::parse_all(&mounts).find(|mount| mount.file_system == b"cgroup2");
    let mount = mount.map(|mount| String::from_utf8(mount.mount_point).unwrap()).unwrap_or_default();
    let name = format!("athanor-{}.slice", std::process::id());
    let folder = format!("{mount}/{name}/docker-{id}.scope");
    if mount.is_empty() || std::fs::create_dir_all(&folder).is_err() {
        println!("skip: needs a writable cgroup2 hierarchy");
        return;
    }
    let process = TestProcess::spawn(Command::new("sleep").arg("1000"));
    process.wait_for_executable("sleep");
    let mut table = new_table();
    let request = new_request(process.pid());
    let before = facts(&mut table, &request);
    let moved = std::fs::write(format!("{folder}/cgroup.procs"), process.pid().to_string());
    table.end_window();
    let mut key = stack_key(&request);
    key.cgroup = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&folder).unwrap());
    let after = table.facts(&key);
    drop(process);
    wait_until("cgroup is empty", || std::fs::remove_dir(&folder).is_ok());
    std::fs::remove_dir(format!("{mount}/{name}")).unwrap();
    moved.unwrap();
    assert_ne!(before.cgroup, after.cgroup);
    assert_eq!(after.cgroup.to_string(), format!("/{name}/docker-{id}.scope"));
    let names = CgroupNames::from_path(&after.cgroup);
    assert_eq!(after.container, names.container);
    assert_eq!(after.container.as_ref().unwrap().id.as_ref(), id);
    assert_eq!(after.systemd_slice.to_string(), name);
}

#[test]
fn parent_of_first_record_gives_child_its_cgroup_and_program() {
    use crate::perf_events::TaskRecord;
    let parent = TestProcess::spawn(Command::new("sleep").arg("1000"));
    parent.wait_for_executable("sleep");
    let mut table = new_table();
    let pid = 4_000_001;
    let parent_pid = parent.pid();
    let task = TaskRecord { pid, parent_pid, tid: pid, parent_tid: parent_pid, time_nanos: 1_000_000 };
    let event = SidebandEvent::Fork(task);
    table.apply_record(&SidebandRecord { pid: parent_pid, tid: parent_pid, time_nanos: 1_000_000, event });
    let facts = facts(&mut table, &ProcessRequest { pid, start_nanos: 999_000, exec_id: 3 });
    assert_eq!((&*facts.comm, facts.parent_pid), ("sleep", parent_pid));
    assert!(facts.executable.ends_with("/sleep"));
    assert!(!facts.cgroup.is_empty());
}

#[test]
fn process_in_inner_pid_namespace_loads_by_outer_id() {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "sleep", "1000"]);
    let outer = TestProcess::spawn(&mut command);
    let children = format!("/proc/{0}/task/{0}/children", outer.pid());
    let child = || -> Option<u32> { std::fs::read_to_string(&children).ok()?.trim().parse().ok() };
    let outer_runs = || {
        let stat = std::fs::read(format!("/proc/{}/stat", outer.pid())).unwrap_or_default();
        ProcessStat::parse(&stat).is_some_and(|stat| !stat.is_zombie())
    };
    let has_started = || {
        let comm = child().and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        comm.is_some_and(|comm| comm == "sleep\n") || !outer_runs()
    };
    wait_until("process in namespace runs", has_started);
    let Some(pid) = child() else {
        println!("skip: needs CAP_SYS_ADMIN for a PID namespace");
        return;
    };
    let mut table = new_table();
    let request = new_request(pid);
    let loaded = table.load(&request).unwrap();
    let pids = loaded.folder.status().unwrap().namespace_pids;
    assert_eq!((pids.first(), pids.last()), (Some(&pid), Some(&1)));
    assert!(pids.len() >= 2);
    assert_eq!(&*facts(&mut table, &request).command_line, "sleep 1000");
}

/// The main thread ends, another one goes on.
const MAIN_THREAD_ENDS: &str = r#"
#include <pthread.h>
#include <unistd.h>
static void *wait(void *mark) { while (1) pause(); return mark; }
int main(void) { pthread_t thread; pthread_create(&thread, 0, wait, 0); pthread_exit(0); }
"#;

#[test]
fn process_whose_main_thread_ended_has_mappings() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), MAIN_THREAD_ENDS) else {
        println!("skip: needs a C compiler");
        return;
    };
    let process = TestProcess::spawn(&mut Command::new(program));
    let proc_folder = ProcFolder::open("/proc".as_ref()).unwrap();
    let folder = proc_folder.open_process(process.pid()).unwrap();
    wait_until("main thread has ended", || folder.stat().unwrap().is_zombie());
    let loaded = new_table().load(&new_request(process.pid())).unwrap();
    assert!(loaded.mappings.iter().any(|mapping| mapping.path.ends_with(b"/compiled")));
}

/// Maps many pages, every other one executable.
const MANY_MAPPINGS: &str = r#"
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>
int main(int count, char **arguments) {
    const long pages = 60000;
    int file = open(arguments[1], O_RDONLY);
    char *start = mmap(0, pages * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long page = 0; page < pages; page += 2)
        if (mmap(start + page * 4096, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED)
            return 1;
    creat(arguments[2], 0600);
    pause();
}
"#;

#[test]
fn process_with_sixty_thousand_mappings_loads() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), MANY_MAPPINGS) else {
        println!("skip: needs a C compiler");
        return;
    };
    let mark = folder.path().join("mark");
    let process = TestProcess::spawn(Command::new(&program).arg(&program).arg(&mark));
    wait_until("memory is mapped", || mark.exists());
    let mut table = new_table();
    let request = new_request(process.pid());
    let loaded = table.load(&request).unwrap();
    let count = loaded.mappings.iter().filter(|mapping| mapping.path.ends_with(b"/compiled")).count();
    assert!(count >= 30_000, "{count}");
    let last = loaded.mappings.iter().rfind(|mapping| mapping.path.ends_with(b"/compiled")).unwrap();
    assert_eq!(table.resolve(&request, last.end - 1), Some(last));
}

#[test]
fn records_of_two_rings_apply_in_order_of_time() {
    let encode = |record_type: u32, misc: u16, body: &[u8], time_nanos: u64| {
        let size = u16::try_from(8 + body.len() + 16).unwrap();
        let header = [&record_type.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes()].concat();
        let ids = [4_000_002_u32, 4_000_002].map(u32::to_ne_bytes).concat();
        [&header[..], body, &ids, &time_nanos.to_ne_bytes()].concat()
    };
    let ids = [4_000_002_u32, 4_000_002].map(u32::to_ne_bytes).concat();
    let exec = encode(3, 1 << 13, &[&ids[..], b"program\0"].concat(), 2_000_000);
    let fork_ids = [4_000_002_u32, 1, 4_000_002, 1].map(u32::to_ne_bytes).concat();
    let fork = encode(7, 0, &[&fork_ids[..], &1_000_000_u64.to_ne_bytes()].concat(), 1_000_000);
    let late_name = encode(3, 0, &[&ids[..], b"late\0\0\0\0"].concat(), u64::MAX);
    let mut table = new_table();
    for record in [&exec, &late_name, &fork] {
        assert_eq!(table.receive_record(record), Ok(0));
    }
    assert_eq!(table.take_changed(), []);
    let facts = facts(&mut table, &ProcessRequest { pid: 4_000_002, start_nanos: 999_000, exec_id: 3 });
    assert_eq!((&*facts.comm, facts.parent_pid), ("program", 1));
}

#[test]
fn id_of_cgroup_gives_each_stack_its_path() {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap();
    let mount = crate::processes::Mount::parse_all(&mounts).find(|mount| mount.file_system == b"cgroup2");
    let mount = mount.map(|mount| String::from_utf8(mount.mount_point).unwrap()).unwrap_or_default();
    let name = format!("athanor-ids-{}.slice", std::process::id());
    let folder = |unit: &str| format!("{mount}/{name}/{unit}");
    if mount.is_empty() || std::fs::create_dir_all(folder("a.service")).is_err() {
        println!("skip: needs a writable cgroup2 hierarchy");
        return;
    }
    std::fs::create_dir(folder("b.service")).unwrap();
    let mut table = new_table();
    // The layout v2, also on a machine with a hybrid one.
    table.cgroups = CgroupIndex::new(format!("41 31 0:38 / {mount} rw - cgroup2 cgroup2 rw\n").as_bytes());
    let mut facts_in = |unit: &str| {
        let mut key = stack_key(&ProcessRequest { pid: 4_000_003, start_nanos: 5, exec_id: 1 });
        key.cgroup = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(folder(unit)).unwrap());
        table.facts(&key)
    };
    let found = ["a.service", "b.service", "a.service"].map(&mut facts_in);
    std::fs::remove_dir(folder("a.service")).unwrap();
    std::fs::remove_dir(folder("b.service")).unwrap();
    std::fs::remove_dir(folder("")).unwrap();
    assert_eq!(found.each_ref().map(|facts| &*facts.systemd_unit), ["a.service", "b.service", "a.service"]);
    assert_eq!(&*found[1].cgroup, format!("/{name}/b.service"));
    assert_eq!(&*found[0].systemd_slice, name);
}
