//! Start and end: nothing stays in the kernel, whichever way the sampler ends.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use athanor_agent_ebpf::sampler::Sampler;
use athanor_chassis::{Clock, Random};

use crate::kernel_objects::{KernelObjects, check_verified_instructions, existing_ids};
use crate::known_chains::test_config;
use crate::requirements::{can_sample, reserve_host};

const TEST: &str = "lifecycle";
const STARTS: usize = 100;
/// The kernel frees objects some time after their last descriptor is closed.
const FREE_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn hundred_starts_leave_no_program_map_or_descriptor() {
    if !can_sample(TEST) {
        return;
    }
    let _host = reserve_host();
    // A process of its own: other tests of this one open files meanwhile.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "lifecycle::hundred_starts", "--nocapture"]);
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
}

#[test]
#[ignore = "started by another test in a process of its own"]
fn hundred_starts() {
    let before = KernelObjects::of_process("self");
    assert_eq!(before.program_ids.len(), 0, "no other sampler in this process: {before:?}");
    let mut programs = BTreeSet::new();
    let mut maps = BTreeSet::new();
    for round in 0..STARTS {
        let sampler = Sampler::start(test_config(19), Clock::system(), Random::system()).unwrap();
        let running = KernelObjects::of_process("self");
        assert!(
            !running.program_ids.is_empty() && running.maps > 5 && running.perf_events > 0,
            "{running:?}"
        );
        if round == 0 {
            check_verified_instructions(&running);
        }
        programs.extend(running.program_ids);
        maps.extend(running.map_ids);
        drop(sampler);
        let after = KernelObjects::of_process("self");
        assert_eq!(after, before, "after {round} starts");
    }
    assert!(programs.len() >= STARTS, "{} programs in {STARTS} starts", programs.len());
    wait_until_gone(&programs, &maps);
}

#[test]
fn killed_sampler_leaves_no_program_or_map() {
    if !can_sample(TEST) {
        return;
    }
    let _host = reserve_host();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "lifecycle::sampling_child"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let clock = Clock::system();
    let deadline = clock.monotonic() + FREE_TIMEOUT;
    let running = loop {
        let objects = KernelObjects::of_process(&child.id().to_string());
        // The last thing that it opens are events on each CPU.
        if objects.perf_events > 0 && !objects.program_ids.is_empty() {
            break objects;
        }
        assert!(clock.monotonic() < deadline, "the child samples: {objects:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(&running.program_ids, &running.map_ids);
}

#[test]
#[ignore = "started by another test, which kills it"]
fn sampling_child() {
    let mut sampler = Sampler::start(test_config(97), Clock::system(), Random::system()).unwrap();
    for _ in 0..600 {
        sampler.run_for(Duration::from_millis(100));
    }
}

#[test]
fn kill_switch_file_pauses_sampling() {
    if !can_sample(TEST) {
        return;
    }
    let _host = reserve_host();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stop");
    let mut config = test_config(197);
    config.kill_switch_file = Some(file.clone());
    let mut sampler = Sampler::start(config, Clock::system(), Random::system()).unwrap();
    let taken_in = |sampler: &mut Sampler| {
        let before = sampler.stats().samples_taken;
        burn_for(Duration::from_millis(300), sampler);
        sampler.stats().samples_taken - before
    };
    assert!(taken_in(&mut sampler) > 0);
    std::fs::write(&file, b"").unwrap();
    // The file is seen at the end of a window.
    taken_in(&mut sampler);
    assert_eq!(taken_in(&mut sampler), 0);
    std::fs::remove_file(&file).unwrap();
    taken_in(&mut sampler);
    assert!(taken_in(&mut sampler) > 0);
}

/// Uses this CPU while the sampler runs for a window.
fn burn_for(time: Duration, sampler: &mut Sampler) {
    let clock = Clock::system();
    let end = clock.monotonic() + time;
    let mut number = 1_u64;
    while clock.monotonic() < end {
        number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005));
    }
    sampler.run_for(Duration::from_millis(10));
    sampler.close_window().unwrap();
}

fn wait_until_gone(programs: &BTreeSet<u32>, maps: &BTreeSet<u32>) {
    let clock = Clock::system();
    let deadline = clock.monotonic() + FREE_TIMEOUT;
    loop {
        let existing = existing_ids();
        let left_programs = programs.intersection(&existing.programs).count();
        let left_maps = maps.intersection(&existing.maps).count();
        if left_programs + left_maps == 0 {
            return;
        }
        assert!(clock.monotonic() < deadline, "{left_programs} programs and {left_maps} maps stay");
        std::thread::sleep(Duration::from_millis(200));
    }
}
