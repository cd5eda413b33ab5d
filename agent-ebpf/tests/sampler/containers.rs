//! Containers without a runtime: cgroups with the names of each runtime, PID namespaces, and another root folder. The
//! test makes them, so it knows the truth.

mod cgroup_folder;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use athanor_agent_ebpf::layout::StackEnd;
use athanor_agent_ebpf::processes::{ContainerRuntime, ProcessFacts};
use athanor_agent_ebpf::sampler::Sampler;
use athanor_agent_ebpf::window::SampleWindow;
use athanor_chassis::{Clock, Random};

use crate::known_chains::{program_of_c, static_program, test_config};
use crate::programs::RunningProgram;
use crate::requirements::{can_sample, has_tool, reserve_host};
use crate::sampled_stacks::add_window;
use cgroup_folder::CgroupFolder;

const TEST: &str = "containers";
const OUTER_ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const INNER_ID: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
const POD_UID: &str = "5d3f2a10-7c41-4f7e-9a55-0c1d2e3f4a5b";
const HZ: u32 = 97;

/// Folder of a cgroup and the truth about a process inside.
struct CgroupCase {
    /// Path with `OUTER`, `INNER`, `POD` and `UID` for the ids. `UID` is that of a pod with underscores.
    path: &'static str,
    runtime: Option<ContainerRuntime>,
    id: &'static str,
    is_pod: bool,
    unit: &'static str,
}

const fn container(path: &'static str, runtime: ContainerRuntime) -> CgroupCase {
    CgroupCase { path, runtime: Some(runtime), id: INNER_ID, is_pod: false, unit: "" }
}

const fn pod(path: &'static str, runtime: ContainerRuntime) -> CgroupCase {
    CgroupCase { is_pod: true, ..container(path, runtime) }
}

const CASES: [CgroupCase; 8] = [
    pod(
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-INNER.scope",
        ContainerRuntime::Containerd,
    ),
    pod("kubepods.slice/kubepods-podUID.slice/crio-INNER.scope", ContainerRuntime::CriO),
    pod("kubepods/besteffort/podPOD/INNER", ContainerRuntime::Unknown),
    pod(
        "system.slice/docker-OUTER.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podUID.slice/cri-containerd-INNER.scope",
        ContainerRuntime::Containerd,
    ),
    container("system.slice/docker-INNER.scope", ContainerRuntime::Docker),
    container("docker/INNER", ContainerRuntime::Docker),
    container("machine.slice/libpod-INNER.scope", ContainerRuntime::Podman),
    CgroupCase {
        path: "system.slice/athanor-sampled.service",
        runtime: None,
        id: "",
        is_pod: false,
        unit: "athanor-sampled.service",
    },
];

#[test]
fn cgroups_of_each_runtime_name_their_container() {
    if !can_sample(TEST) {
        return;
    }
    let Some(program) = program_of_c().build(TEST) else { return };
    let Some(base) = CgroupFolder::mount_point() else {
        println!("skip: {TEST}: no cgroup2");
        return;
    };
    let _host = reserve_host();
    let mut sampler = start_sampler();
    let mut running = Vec::new();
    for case in &CASES {
        let uid = POD_UID.replace('-', "_");
        let path = case.path.replace("OUTER", OUTER_ID).replace("INNER", INNER_ID);
        let path = path.replace("POD", POD_UID).replace("UID", &uid);
        let folder = CgroupFolder::create(&base, &path);
        let child = folder.start_inside(&program, &["60"]);
        running.push((case, child, folder));
    }
    let facts = sample_facts(&mut sampler, 3);
    check_exec_ids(&facts);
    for (case, child, folder) in &running {
        let seen = facts.get(&child.pid()).unwrap_or_else(|| panic!("{}: no samples", case.path));
        let container = seen.container.as_ref();
        assert_eq!(container.map(|container| container.runtime), case.runtime, "{}: {seen:?}", case.path);
        assert_eq!(container.map_or("", |container| &container.id), case.id, "{}", case.path);
        let pod_uid = container.and_then(|container| container.pod_uid.as_deref());
        assert_eq!(pod_uid, case.is_pod.then_some(POD_UID), "{}", case.path);
        // The scope of a container is a unit too.
        let unit = Some(&*seen.systemd_unit).filter(|unit| !unit.ends_with(".scope")).unwrap_or_default();
        assert_eq!(unit, case.unit, "{}", case.path);
        assert!(seen.cgroup.ends_with(folder.path()), "{} of {}", seen.cgroup, folder.path());
    }
}

#[test]
fn process_that_changes_its_cgroup_gets_new_facts() {
    if !can_sample(TEST) {
        return;
    }
    let Some(program) = program_of_c().build(TEST) else { return };
    let Some(base) = CgroupFolder::mount_point() else {
        println!("skip: {TEST}: no cgroup2");
        return;
    };
    let _host = reserve_host();
    let mut sampler = start_sampler();
    let child = RunningProgram::start(&program, &["60".into()]);
    let before = sample_facts(&mut sampler, 2);
    assert_eq!(before[&child.pid()].container, None);
    let folder = CgroupFolder::create(&base, &format!("system.slice/docker-{OUTER_ID}.scope"));
    folder.move_inside(child.pid());
    // The window of the move has both.
    sample_facts(&mut sampler, 2);
    let after = sample_facts(&mut sampler, 1);
    let container = after[&child.pid()].container.as_ref();
    assert_eq!(container.map(|container| &*container.id), Some(OUTER_ID), "{:?}", after[&child.pid()]);
    drop(child);
}

#[test]
fn processes_of_nested_pid_namespaces_have_pids_of_the_agent() {
    if !can_sample(TEST) || !has_tool(TEST, "unshare") {
        return;
    }
    let Some(program) = program_of_c().build(TEST) else { return };
    let _host = reserve_host();
    let mut sampler = start_sampler();
    let Some(base) = CgroupFolder::mount_point() else {
        println!("skip: {TEST}: no cgroup2");
        return;
    };
    let folder = CgroupFolder::create(&base, &format!("system.slice/docker-{OUTER_ID}.scope"));
    let _outer = start_nested(&program, &folder);
    let facts = sample_facts(&mut sampler, 3);
    let pid = find_nested(3, "chains");
    let seen = facts.get(&pid).unwrap_or_else(|| panic!("{pid} is sampled"));
    assert_eq!((&*seen.comm, seen.identity.host_pid), ("chains", host_pid_of(pid)), "{seen:?}");
    check_docker_facts(seen, OUTER_ID);
}

#[test]
fn agent_inside_of_a_pid_namespace_sees_its_processes_only() {
    if !can_sample(TEST) || !has_tool(TEST, "unshare") {
        return;
    }
    let Some(program) = program_of_c().build(TEST) else { return };
    if CgroupFolder::mount_point().is_none() {
        println!("skip: {TEST}: no cgroup2");
        return;
    }
    let _host = reserve_host();
    let outside = RunningProgram::start(&program, &["60".into()]);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "containers::nested_agent", "--nocapture"]);
    command.env("ATHANOR_TEST_PROGRAM", &program).env("ATHANOR_TEST_OUTSIDE", outside.pid().to_string());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "started by another test in a PID namespace"]
fn nested_agent() {
    let program = std::env::var_os("ATHANOR_TEST_PROGRAM").expect("the outer test starts this one");
    let mut sampler = start_sampler();
    let outside = std::env::var("ATHANOR_TEST_OUTSIDE").unwrap();
    let base = CgroupFolder::mount_point().expect("the outer test found it");
    let own_folder = CgroupFolder::create(&base, &format!("system.slice/docker-{INNER_ID}.scope"));
    let own = own_folder.start_inside(Path::new(&program), &["60"]);
    let nested_folder = CgroupFolder::create(&base, &format!("docker/{OUTER_ID}"));
    let _nested = start_nested(Path::new(&program), &nested_folder);
    let mut stacks = HashMap::new();
    let mut hidden = 0;
    let mut facts = HashMap::new();
    let mut hidden_facts = HashMap::new();
    for _ in 0..4 {
        sampler.run_for(Duration::from_secs(1));
        let window = sampler.close_window().unwrap();
        add_window(&mut stacks, &window);
        add_facts(&mut facts, &window);
        let processes = window.processes.iter().filter(|process| process.facts.identity.pid == 0);
        hidden_facts
            .extend(processes.map(|process| (process.facts.identity.host_pid, Arc::clone(&process.facts))));
        let stacks = window.stacks.iter().filter(|stack| stack.end == StackEnd::ProcessNotVisible);
        hidden += stacks.map(|stack| stack.samples).sum::<u64>();
    }
    let nested = find_nested(3, "chains");
    for (pid, id) in [(own.pid(), INNER_ID), (nested, OUTER_ID)] {
        let seen = facts.get(&pid).unwrap_or_else(|| panic!("{pid} is sampled"));
        assert_eq!(&*seen.comm, "chains");
        check_docker_facts(seen, id);
        let complete = stacks[&pid].after(20).filter(|stack| stack.end == StackEnd::Complete).count();
        assert!(complete > 0, "{pid} has complete stacks");
    }
    assert!(hidden > 20, "{hidden} samples of the process outside");
    let seen = &hidden_facts[&outside.parse::<u32>().unwrap()];
    assert!(&*seen.comm == "chains" && !seen.is_kernel_thread, "{seen:?}");
    for seen in hidden_facts.values().filter(|facts| facts.comm.starts_with("kworker/")) {
        assert!(seen.is_kernel_thread, "{seen:?}");
    }
}

/// Checks what exec ids tell of hidden processes: those of programs are never 0, those of threads of the kernel always.
fn check_exec_ids(facts: &HashMap<u32, Arc<ProcessFacts>>) {
    for seen in facts.values() {
        let exec_id = seen.identity.exec_id;
        assert!(!seen.is_kernel_thread || exec_id == 0, "{seen:?}");
        assert!(seen.executable.is_empty() || exec_id != 0, "{seen:?}");
    }
}

fn check_docker_facts(seen: &ProcessFacts, id: &str) {
    let container = seen.container.as_ref();
    assert_eq!(container.map(|container| &*container.id), Some(id), "{seen:?}");
    assert_eq!(container.map(|container| container.runtime), Some(ContainerRuntime::Docker), "{seen:?}");
    assert!(seen.executable.ends_with("/chains"), "{seen:?}");
}

#[test]
fn program_below_another_root_has_its_names() {
    if !can_sample(TEST) || !has_tool(TEST, "chroot") {
        return;
    }
    let Some(program) = static_program().build(TEST) else { return };
    let _host = reserve_host();
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("inner")).unwrap();
    std::fs::copy(&program, root.path().join("inner/sampled")).unwrap();
    let mut sampler = start_sampler();
    let mut command = Command::new("chroot");
    let child = RunningProgram::spawn(command.arg(root.path()).args(["/inner/sampled", "60"]));
    let mut stacks = HashMap::new();
    let mut facts = HashMap::new();
    for _ in 0..3 {
        sampler.run_for(Duration::from_secs(1));
        let window = sampler.close_window().unwrap();
        add_window(&mut stacks, &window);
        add_facts(&mut facts, &window);
    }
    assert_eq!(&*facts[&child.pid()].executable, "/inner/sampled");
    let chain = ["main", "use_recursion", "descend"];
    assert!(stacks[&child.pid()].all().any(|stack| stack.has_in_order(&chain)), "{:?}", stacks[&child.pid()]);
}

fn start_sampler() -> Sampler {
    Sampler::start(test_config(HZ), Clock::system(), Random::system()).unwrap()
}

/// Samples some windows of one second. Returns the facts of the last window of each process.
fn sample_facts(sampler: &mut Sampler, windows: usize) -> HashMap<u32, Arc<ProcessFacts>> {
    let mut facts = HashMap::new();
    for _ in 0..windows {
        sampler.run_for(Duration::from_secs(1));
        add_facts(&mut facts, &sampler.close_window().unwrap());
    }
    facts
}

fn add_facts(facts: &mut HashMap<u32, Arc<ProcessFacts>>, window: &SampleWindow) {
    for process in &window.processes {
        facts.insert(process.facts.identity.pid, Arc::clone(&process.facts));
    }
}

/// Starts a program two PID namespaces below this one, in a cgroup.
fn start_nested(program: &Path, folder: &CgroupFolder) -> RunningProgram {
    let program = program.to_str().unwrap();
    let inner = ["unshare", "--pid", "--fork", "--kill-child", program, "60"];
    let arguments = [&["--pid", "--fork", "--kill-child"][..], &inner].concat();
    folder.start_inside(Path::new("unshare"), &arguments)
}

/// Returns the pid, seen from here, of a process that has `levels` pids.
fn find_nested(levels: usize, comm: &str) -> u32 {
    for entry in std::fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        let Ok(status) = std::fs::read_to_string(path.join("status")) else { continue };
        let pids: Vec<&str> = value_of(&status, "NSpid:").split_ascii_whitespace().collect();
        if value_of(&status, "Name:") == comm && pids.len() == levels {
            return pids[0].parse().unwrap();
        }
    }
    panic!("no process {comm} with {levels} pids");
}

/// Returns the pid in the initial namespace as far as this namespace tells: the same, if it is the initial one.
fn host_pid_of(pid: u32) -> u32 {
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    assert_eq!(value_of(&own, "NSpid:").split_ascii_whitespace().count(), 1);
    pid
}

fn value_of<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}
