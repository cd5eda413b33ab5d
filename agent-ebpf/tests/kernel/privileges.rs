//! Capabilities, users and PID namespaces.

use athanor_agent_ebpf::kernel::{
    Capabilities, CapabilitySet, KernelConfig, KernelSampler, SideSampling, drop_capabilities_except,
    effective_capabilities,
};
use athanor_agent_ebpf::layout::StackEnd;
use athanor_chassis::Random;

use crate::support::{ChildProcess, WindowReader, expect_success, has_privileges, load, wait_for};

/// Returns whether CAP_PERFMON is enough for perf events. Prints a line if not.
fn is_perfmon_enough() -> bool {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let is_enough = level.trim().parse::<i32>().unwrap() <= 2;
    if !is_enough {
        println!("skip: kernel.perf_event_paranoid is {level}");
    }
    is_enough
}

/// Another user without groups.
const OTHER_USER: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

#[test]
fn sampler_without_capabilities_names_them() {
    if !has_privileges() {
        return;
    }
    let through = [&OTHER_USER[..], &["--inh-caps=-all", "--bounding-set=-all"]].concat();
    let text = expect_success("privileges::load_reports_missing_capabilities", &through);
    let is_skipped = text.is_empty();
    assert!(is_skipped || text.contains("missing CAP_BPF and CAP_PERFMON; run as root or grant"), "{text}");
}

#[test]
#[ignore = "runs in a process without capabilities, started by another test"]
fn load_reports_missing_capabilities() {
    let error = KernelSampler::load(&KernelConfig::default(), Random::from_seed(1)).err().unwrap();
    println!("{error}");
}

#[test]
fn three_capabilities_are_enough_for_another_user() {
    if has_privileges() && is_perfmon_enough() {
        let kept = "+bpf,+perfmon,+sys_ptrace";
        let sets = [format!("--inh-caps=-all,{kept}"), format!("--ambient-caps=-all,{kept}")];
        let through = [&OTHER_USER[..], &[sets[0].as_str(), sets[1].as_str()]].concat();
        expect_success("privileges::sample_every_process", &through);
    }
}

#[test]
fn capabilities_that_are_not_kept_are_dropped() {
    if has_privileges() && is_perfmon_enough() {
        expect_success("privileges::drop_capabilities_and_sample", &[]);
    }
}

#[test]
#[ignore = "drops capabilities; started by another test in a process of its own"]
fn drop_capabilities_and_sample() {
    drop_capabilities_except(Capabilities::REQUIRED).unwrap();
    assert_eq!(effective_capabilities().unwrap(), Capabilities::REQUIRED);
    sample_every_process();
    let error = drop_capabilities_except(CapabilitySet::SYS_ADMIN);
    assert!(error.is_ok(), "what is gone does not come back: {error:?}");
    assert_eq!(effective_capabilities().unwrap(), CapabilitySet::empty());
}

#[test]
#[ignore = "runs as another user, started by another test"]
fn sample_every_process() {
    let _busy = ChildProcess::busy();
    let mut sampler = load(&KernelConfig { frequency_hz: 997, ..KernelConfig::default() });
    sampler.attach().unwrap();
    let mut windows = WindowReader::default();
    wait_for("samples", || (!windows.close_window(&mut sampler, SideSampling::ALL).is_empty()).then_some(()));
    wait_for("process events", || {
        std::process::Command::new("/bin/true").status().unwrap();
        (sampler.drain_sideband(|_| ()) > 0).then_some(())
    });
}

#[test]
fn process_ids_are_those_of_a_nested_namespace() {
    if has_privileges() {
        let nested = ["unshare", "--pid", "--fork", "--mount-proc"];
        expect_success("privileges::sample_in_own_namespace", &nested);
        expect_success("privileges::sample_in_own_namespace", &[nested, nested].concat());
    }
}

#[test]
#[ignore = "runs in a PID namespace, started by another test"]
fn sample_in_own_namespace() {
    let busy = ChildProcess::busy();
    assert!(busy.pid() < 100, "{} in a new namespace", busy.pid());
    let mut sampler = load(&KernelConfig { frequency_hz: 997, ..KernelConfig::default() });
    sampler.attach().unwrap();
    let mut windows = WindowReader::default();
    let stack = wait_for("a stack of the own process", || {
        let stacks = windows.close_window(&mut sampler, SideSampling::ALL);
        stacks.into_iter().find(|stack| stack.key.pid == busy.pid())
    });
    assert_ne!(stack.key.host_pid, busy.pid());
    assert_eq!(stack.key.end, StackEnd::ProcessNotLoaded as u32);
    let request =
        wait_for("a request", || sampler.next_request().filter(|request| request.pid == busy.pid()));
    assert_eq!(request.host_pid, stack.key.host_pid);
}
