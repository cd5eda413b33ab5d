//! `check --host` on made-up hosts.

use std::os::unix::fs::symlink;

use athanor_agent_ebpf::kernel::CapabilitySet;

use crate::sampling::host_check::{HostState, format_findings};

fn good_host() -> HostState {
    HostState {
        architecture: "x86_64".to_owned(),
        capabilities: CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_PTRACE,
        has_btf: true,
        perf_event_paranoid: "2".to_owned(),
        lockdown: "none [integrity] confidentiality".to_owned(),
        has_cgroups: true,
        has_kernel_addresses: true,
        is_own_proc: true,
        pid_namespace: "pid:[4026531836]".to_owned(),
    }
}

#[test]
fn good_host_has_no_findings() {
    assert_eq!(good_host().findings(), []);
    assert_eq!(format_findings(&[]), "the host can be sampled\n");
}

#[test]
fn each_missing_thing_has_one_line_with_the_way_to_get_it() {
    type Change = fn(&mut HostState);
    let cases: [(Change, &str, &str); 11] = [
        (|host| host.architecture = "aarch64".to_owned(), "missing: architecture aarch64", "sampler.enabled"),
        (
            |host| host.capabilities.remove(CapabilitySet::BPF),
            "missing: capability CAP_BPF",
            "AmbientCapabilities",
        ),
        (
            |host| host.capabilities.remove(CapabilitySet::SYS_PTRACE),
            "missing: capability CAP_SYS_PTRACE",
            "root",
        ),
        (|host| host.has_btf = false, "missing: BTF", "CONFIG_DEBUG_INFO_BTF"),
        (|host| host.perf_event_paranoid.clear(), "missing: perf events", "CONFIG_PERF_EVENTS"),
        (
            |host| host.lockdown = "none integrity [confidentiality]".to_owned(),
            "missing: lockdown",
            "lockdown=",
        ),
        (|host| host.is_own_proc = false, "missing: /proc", "hostPID: true"),
        (|host| host.pid_namespace = "pid:[4026532000]".to_owned(), "limited: PID namespace", "--pid=host"),
        (
            |host| host.perf_event_paranoid = "3".to_owned(),
            "limited: perf_event_paranoid is 3",
            "sysctl kernel.perf_event_paranoid=2",
        ),
        (|host| host.has_cgroups = false, "limited: cgroups", "mount cgroup2"),
        (|host| host.has_kernel_addresses = false, "limited: kallsyms", "CAP_SYSLOG"),
    ];
    for (change, start, way_out) in cases {
        let mut host = good_host();
        change(&mut host);
        let text = format_findings(&host.findings());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with(start) && lines[0].contains(way_out), "{text}");
        assert_eq!(lines[1] == "the host can be sampled", start.starts_with("limited"), "{text}");
    }
    let mut host = good_host();
    host.perf_event_paranoid = "4".to_owned();
    host.capabilities = CapabilitySet::empty();
    let text = format_findings(&host.findings());
    assert!(
        text.contains("perf_event_paranoid is 4")
            && text.ends_with("the host cannot be sampled: 4 missing\n")
    );
}

#[test]
fn state_is_read_from_files_of_the_host() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("proc/77/mounts", "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    symlink("77", root.path().join("proc/self")).unwrap();
    std::fs::create_dir_all(root.path().join("proc/77/ns")).unwrap();
    symlink("pid:[4026531836]", root.path().join("proc/77/ns/pid")).unwrap();
    write("proc/kallsyms", "0000000000000000 T first\nffffffff81000000 T second\n");
    write("proc/sys/kernel/perf_event_paranoid", "2\n");
    write("sys/kernel/btf/vmlinux", "");
    write("sys/kernel/security/lockdown", "[none] integrity\n");
    let state = HostState::read(root.path(), 77).unwrap();
    let expected = HostState {
        architecture: state.architecture.clone(),
        capabilities: state.capabilities,
        perf_event_paranoid: "2".to_owned(),
        lockdown: "[none] integrity".to_owned(),
        ..good_host()
    };
    assert_eq!(state, expected);
    assert!(!HostState::read(root.path(), 78).unwrap().is_own_proc);
    let nothing = HostState::read(&root.path().join("nothing"), 77).unwrap();
    assert!(
        !nothing.has_btf && !nothing.has_cgroups && !nothing.has_kernel_addresses && !nothing.is_own_proc
    );
}
