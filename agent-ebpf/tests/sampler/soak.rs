//! Memory over time: `just sampler-soak`.

use std::time::Duration;

use athanor_agent_ebpf::sampler::Sampler;
use athanor_chassis::{Clock, Random};

use crate::kernel_objects::KernelObjects;
use crate::known_chains::{prepare_program, test_config};
use crate::programs::RunningProgram;
use crate::requirements::{can_sample, reserve_host};
use crate::stress::resident_bytes;

const TEST: &str = "soak";
const WINDOW: Duration = Duration::from_secs(10);
const HZ: u32 = 97;
/// Programs that load and unload, fork and execute.
const PROGRAMS: [&str; 5] = ["chains", "library_loop", "short_lived", "anonymous_code", "go_plain"];
/// Growth between a third of the run and its end: what allocators keep.
const MAX_GROWN_BYTES: u64 = 2 << 20;

#[test]
fn memory_does_not_grow() {
    let Ok(seconds) = std::env::var("ATHANOR_SOAK_SECONDS") else { return };
    if !can_sample(TEST) {
        return;
    }
    let windows = seconds.parse::<u64>().expect("a number of seconds") / WINDOW.as_secs();
    let _host = reserve_host();
    let programs = PROGRAMS.iter().filter_map(|name| prepare_program(name));
    let mut running = Vec::new();
    for (path, mut arguments) in programs {
        arguments[0] = "1000000".into();
        running.push(RunningProgram::start_nice(&path, &arguments));
    }
    let mut sampler = Sampler::start(test_config(HZ), Clock::system(), Random::system()).unwrap();
    let mut warm_bytes = None;
    for number in 0..windows {
        sampler.run_for(WINDOW);
        drop(sampler.close_window().unwrap());
        let objects = KernelObjects::of_process("self");
        let now = resident_bytes();
        println!("{:6} s: {now} bytes resident, {} of maps", number * WINDOW.as_secs(), objects.map_bytes);
        if number == windows / 3 {
            warm_bytes = Some(now);
        }
    }
    let warm_bytes = warm_bytes.expect("a run of some windows");
    let grown = resident_bytes().saturating_sub(warm_bytes);
    assert!(grown <= MAX_GROWN_BYTES, "{grown} bytes more than after a third of the run");
}
