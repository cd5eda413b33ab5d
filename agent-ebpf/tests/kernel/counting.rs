//! Counters, windows and losses.

use std::time::Duration;

use athanor_agent_ebpf::frame::{FrameCode, PackedFrame};
use athanor_agent_ebpf::kernel::{KernelConfig, KernelSampler, SideSampling};

use crate::support::{ChildProcess, WindowReader, has_privileges, load, sum, wait_for};

/// Stops the sampling and waits until no program runs, so that counters and counts can be compared.
fn stop(sampler: &mut KernelSampler) -> u64 {
    sampler.set_stopped(true);
    let window = sampler.switch_window(SideSampling::ALL).unwrap();
    sampler.drain_stacks(|_, _| ());
    let mut samples = 0;
    sampler.drain_counts(window, |_, count| samples += count.samples).unwrap();
    samples
}

#[test]
fn counts_of_all_windows_equal_the_counters_of_cpus() {
    if !has_privileges() {
        return;
    }
    let mut windows = WindowReader::default();
    let _busy: Vec<_> = (0..3).map(|_| ChildProcess::busy()).collect();
    let config = KernelConfig { frequency_hz: 997, ..KernelConfig::default() };
    let mut sampler = load(&config);
    sampler.attach().unwrap();
    let mut samples = 0;
    let mut nanos = 0;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(70));
        for stack in windows.close_window(&mut sampler, SideSampling::ALL) {
            samples += stack.count.samples;
            nanos += stack.count.nanos;
        }
    }
    samples += stop(&mut sampler);
    let states = sampler.cpu_states();
    for state in &states {
        assert_eq!(state.entries % 2, 0);
        assert_eq!(state.taken, state.delivered + state.lost.iter().sum::<u64>());
        assert_eq!(state.delivered, state.ends.iter().sum::<u64>());
    }
    assert_eq!(sum(&states, |state| state.delivered), samples);
    assert!(samples > 200, "{samples} samples");
    let nanos_per_sample = sampler.program_nanos() / samples;
    println!("{nanos_per_sample} ns per sample");
    assert!(nanos_per_sample > 0);
    assert!(nanos <= samples * config.period_nanos());
    assert_eq!(nanos % config.period_nanos(), 0);
}

#[test]
fn probability_thins_samples_and_keeps_the_estimate() {
    if !has_privileges() {
        return;
    }
    let mut windows = WindowReader::default();
    let busy = ChildProcess::busy();
    let config = KernelConfig { frequency_hz: 997, process: Some(busy.pid()), ..KernelConfig::default() };
    let mut sampler = load(&config);
    let quarter = SideSampling::with_probability(0.25);
    sampler.switch_window(quarter).unwrap();
    sampler.attach().unwrap();
    wait_for("1000 samples", || {
        let states = sampler.cpu_states();
        (sum(&states, |state| state.thinned + state.taken) >= 1000).then_some(())
    });
    sampler.set_stopped(true);
    let stacks = windows.close_window(&mut sampler, SideSampling::ALL);
    let states = sampler.cpu_states();
    let taken = sum(&states, |state| state.taken);
    let seen = taken + sum(&states, |state| state.thinned);
    let share = taken as f64 / seen as f64;
    assert!((0.17..0.33).contains(&share), "{taken} of {seen}");
    assert!(stacks.iter().all(|stack| stack.key.pid == busy.pid()));
    for stack in &stacks {
        assert_eq!(stack.count.nanos, stack.count.samples * 4 * config.period_nanos());
    }
}

#[test]
fn full_ring_and_full_map_are_counted_as_lost() {
    if !has_privileges() {
        return;
    }
    let _busy: Vec<_> = (0..2).map(|_| ChildProcess::busy()).collect();
    let config = KernelConfig {
        frequency_hz: 997,
        stacks_ring_bytes: 4096,
        thread_names: true,
        ..KernelConfig::default()
    };
    let mut sampler = load(&config);
    sampler.attach().unwrap();
    let lost =
        |sampler: &KernelSampler, reason: usize| sum(&sampler.cpu_states(), |state| state.lost[reason]);
    wait_for("a full ring", || (lost(&sampler, 1) > 0).then_some(()));
    assert!(sampler.wait_for_wakeup(Duration::ZERO), "a ring above half its size wakes up");
    stop(&mut sampler);
    let states = sampler.cpu_states();
    assert!(states.iter().all(|state| state.taken == state.delivered + state.lost.iter().sum::<u64>()));

    let mut sampler = load(&KernelConfig { max_stacks: 1, frequency_hz: 997, ..KernelConfig::default() });
    sampler.attach().unwrap();
    wait_for("a full map", || (lost(&sampler, 0) > 0).then_some(()));
    stop(&mut sampler);
    let states = sampler.cpu_states();
    assert!(states.iter().all(|state| state.taken == state.delivered + state.lost.iter().sum::<u64>()));
}

#[test]
fn frames_wake_nobody_up_below_half_of_the_ring() {
    if !has_privileges() {
        return;
    }
    let mut windows = WindowReader::default();
    let busy = ChildProcess::busy();
    // Other tests start processes: their events stay below half of a large ring.
    let config = KernelConfig {
        frequency_hz: 97,
        process: Some(busy.pid()),
        sideband_ring_bytes: 4 << 20,
        ..KernelConfig::default()
    };
    let mut sampler = load(&config);
    sampler.attach().unwrap();
    // The request for the process is the only wake-up.
    let request = wait_for("a request", || sampler.next_request());
    assert_eq!(request.pid, busy.pid());
    while sampler.wait_for_wakeup(Duration::ZERO) {
        while sampler.next_request().is_some() {}
        sampler.drain_sideband(|_| ());
    }
    wait_for("ten stacks", || (sum(&sampler.cpu_states(), |state| state.delivered) >= 10).then_some(()));
    while sampler.next_request().is_some() {}
    sampler.drain_sideband(|_| ());
    assert!(!sampler.wait_for_wakeup(Duration::ZERO));
    assert!(!windows.close_window(&mut sampler, SideSampling::ALL).is_empty());
}

#[test]
fn kernel_frames_come_with_their_addresses() {
    if !has_privileges() {
        return;
    }
    let mut windows = WindowReader::default();
    let copy = ChildProcess::start("/bin/dd", &["if=/dev/zero", "of=/dev/null", "bs=1M"]);
    let config = KernelConfig { frequency_hz: 997, process: Some(copy.pid()), ..KernelConfig::default() };
    let mut sampler = load(&config);
    sampler.attach().unwrap();
    let stack = wait_for("a stack in the kernel", || {
        let stacks = windows.close_window(&mut sampler, SideSampling::ALL);
        stacks.into_iter().find(|stack| stack.kernel_frames.len() > 2)
    });
    assert!(
        stack.kernel_frames.iter().all(|frame| matches!(PackedFrame(*frame).code(), FrameCode::Kernel(_)))
    );
    assert!(!stack.user_frames.is_empty());
    assert!(stack.user_frames.iter().all(|frame| matches!(PackedFrame(*frame).code(), FrameCode::Other(_))));

    let without = KernelConfig { kernel_frames: false, ..config };
    let mut sampler = load(&without);
    sampler.attach().unwrap();
    let stacks = wait_for("stacks", || {
        let stacks = windows.close_window(&mut sampler, SideSampling::ALL);
        (!stacks.is_empty()).then_some(stacks)
    });
    assert!(stacks.iter().all(|stack| stack.kernel_frames.is_empty()));
}

#[test]
fn new_frequency_changes_the_period_of_samples() {
    if !has_privileges() {
        return;
    }
    let mut windows = WindowReader::default();
    let busy = ChildProcess::busy();
    let config = KernelConfig { frequency_hz: 997, process: Some(busy.pid()), ..KernelConfig::default() };
    let mut sampler = load(&config);
    sampler.attach().unwrap();
    sampler.set_frequency(500).unwrap();
    windows.close_window(&mut sampler, SideSampling::ALL);
    let mut samples = 0;
    wait_for("20 samples", || {
        for stack in windows.close_window(&mut sampler, SideSampling::ALL) {
            assert_eq!(stack.count.nanos, stack.count.samples * 2_000_000);
            samples += stack.count.samples;
        }
        (samples >= 20).then_some(())
    });
    assert_eq!(sampler.period_nanos(), 2_000_000);
}
