//! CPUs that go offline and return. Run by hand or in a virtual machine: other tests of the machine need their CPUs.

use std::fs;
use std::process::Command;

use athanor_agent_ebpf::kernel::KernelConfig;

use crate::support::{ChildProcess, has_privileges, load, wait_for};

const SWITCH: &str = "/sys/devices/system/cpu/cpu1/online";

/// CPU that is offline until the value is dropped.
struct OfflineCpu;

impl OfflineCpu {
    fn new() -> Self {
        fs::write(SWITCH, "0").unwrap();
        Self
    }
}

impl Drop for OfflineCpu {
    fn drop(&mut self) {
        fs::write(SWITCH, "1").unwrap();
    }
}

/// Returns whether a record reports the exit of a process, which happens on the CPU that it ran on.
fn is_exit_of(record: &[u8], pid: u32) -> bool {
    const RECORD_EXIT: u32 = 4;
    record[..4] == RECORD_EXIT.to_ne_bytes() && record[8..12] == pid.to_ne_bytes()
}

#[test]
#[ignore = "takes a CPU offline; `just sampler-hotplug` runs it"]
fn cpu_that_was_offline_is_sampled_again() {
    if !has_privileges() || fs::metadata(SWITCH).is_err() {
        println!("skip: {SWITCH} does not exist");
        return;
    }
    let _busy: Vec<_> = (0..6).map(|_| ChildProcess::busy()).collect();
    let mut sampler = load(&KernelConfig { frequency_hz: 997, ..KernelConfig::default() });
    sampler.attach().unwrap();
    assert!(sampler.sampled_cpus().contains(&1));
    let offline = OfflineCpu::new();
    sampler.update_cpus().unwrap();
    assert!(!sampler.sampled_cpus().contains(&1));
    drop(offline);
    sampler.update_cpus().unwrap();
    assert!(sampler.sampled_cpus().contains(&1));
    // Off and on again between two calls.
    drop(OfflineCpu::new());
    let taken = sampler.cpu_states()[1].taken;
    sampler.update_cpus().unwrap();
    sampler.update_cpus().unwrap();
    wait_for("samples of the CPU", || (sampler.cpu_states()[1].taken > taken + 10).then_some(()));
    wait_for("process events of the CPU", || {
        let mut child = Command::new("taskset").args(["-c", "1", "/bin/true"]).spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let mut is_reported = false;
        sampler.drain_sideband(|record| is_reported |= is_exit_of(record, pid));
        is_reported.then_some(())
    });
}
