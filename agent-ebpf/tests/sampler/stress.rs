//! Hosts that make it hard, all in one run: the bounds hold, the counters add up, and other programs are sampled as
//! before.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use athanor_agent_ebpf::layout::StackEnd;
use athanor_agent_ebpf::sampler::{Sampler, SamplerStats};
use athanor_chassis::{ByteSize, Clock, Random};

use crate::kernel_objects::KernelObjects;
use crate::known_chains::{first_library, program_of_c, test_config};
use crate::programs::{ProgramBuild, RunningProgram};
use crate::requirements::{can_sample, reserve_host};
use crate::sampled_stacks::{ProcessStacks, add_window};

const TEST: &str = "stress";
const HZ: u32 = 197;
const WINDOWS: usize = 12;
/// Window before which a running program is replaced.
const REPLACED_AT: usize = 4;
const LIBRARIES: usize = 300;
const MAPPINGS: &str = "60000";
const FORKS_PER_SECOND: &str = "2000";
const MAX_MEMORY_MIB: u64 = 16;
const MAX_MEMORY_BYTES: u64 = MAX_MEMORY_MIB << 20;
/// Growth of this process beside the sampler's own tables: windows, names of the test, what allocators keep.
const MAX_OTHER_BYTES: u64 = 48 << 20;
const STORMS: [(&str, &[&str]); 3] = [
    ("fork_storm", &["600", FORKS_PER_SECOND]),
    ("exec_loop", &["600"]),
    ("many_mappings", &["600", MAPPINGS]),
];

/// Programs of the run by their part.
struct StressRun {
    programs: HashMap<&'static str, RunningProgram>,
    stacks: HashMap<u32, ProcessStacks>,
    comms: HashMap<String, u64>,
    stats: SamplerStats,
    kernel_objects: KernelObjects,
    grown_bytes: u64,
}

#[test]
fn storms_and_large_processes_stay_within_bounds() {
    if !can_sample(TEST) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(commands) = prepare(folder.path()) else { return };
    let _host = reserve_host();
    let run = run_all(&commands, folder.path());
    let stats = &run.stats;
    println!("{stats:?}\n{} bytes grown, {:?}", run.grown_bytes, run.kernel_objects);
    let lost: u64 = stats.samples_lost.iter().sum();
    assert_eq!(stats.samples_taken, stats.samples_delivered + lost);
    assert_eq!(stats.samples_delivered, stats.samples_by_end.iter().sum::<u64>());
    assert!(lost * 1000 <= stats.samples_taken, "{lost} of {} are lost", stats.samples_taken);
    assert!(stats.map_bytes + stats.table_bytes <= MAX_MEMORY_BYTES, "{stats:?}");
    assert!(run.kernel_objects.map_bytes <= MAX_MEMORY_BYTES, "{:?}", run.kernel_objects);
    assert!(run.grown_bytes <= MAX_MEMORY_BYTES + MAX_OTHER_BYTES, "{} bytes", run.grown_bytes);
    check_chain(&run, "replaced", &["main", "use_cold", "leaf_of_cold"], 0.95);
    check_chain(&run, "many_mappings", &["main", "leaf_beside_mappings"], 0.9);
    check_chain(&run, "many_files", &["main", "enter_library", "leaf_of_alpha"], 0.3);
    assert!(run.comms.get("fork_storm").is_some_and(|samples| *samples > 50), "{:?}", run.comms);
    // The loop executes /proc/self/exe, and the kernel names a process by the end of that path.
    assert!(run.comms.get("exe").is_some_and(|samples| *samples > 50), "{:?}", run.comms);
}

/// Checks the share of complete stacks and that a chain is found, after the process is known.
fn check_chain(run: &StressRun, part: &str, chain: &[&str], min_complete: f64) {
    let stacks = &run.stacks[&run.programs[part].pid()];
    let warm: Vec<_> = stacks.after(100).collect();
    let total: u64 = warm.iter().map(|stack| stack.samples).sum();
    let complete: Vec<_> = warm.iter().filter(|stack| stack.end == StackEnd::Complete).collect();
    let complete_samples: u64 = complete.iter().map(|stack| stack.samples).sum();
    let found: u64 =
        complete.iter().filter(|stack| stack.has_in_order(chain)).map(|stack| stack.samples).sum();
    println!("{part}: {total} samples, {complete_samples} complete, {found} with the chain");
    assert!(total > 50, "{part}: {total} samples");
    assert!(complete_samples as f64 >= min_complete * total as f64, "{part}: {complete_samples} of {total}");
    assert!(found * 12 >= complete_samples, "{part}: {found} of {complete_samples}");
}

/// Builds the programs. Returns their command lines by part.
fn prepare(folder: &Path) -> Option<HashMap<&'static str, (PathBuf, Vec<String>)>> {
    let mut commands = HashMap::new();
    for (name, arguments) in STORMS {
        let path = storm_build(name).build(TEST)?;
        commands.insert(name, (path, arguments.iter().map(ToString::to_string).collect()));
    }
    let library = std::fs::read(first_library().build(TEST)?).unwrap();
    let mut arguments = vec!["600".to_owned()];
    for number in 0..LIBRARIES {
        // Each is a file of its own. The bytes behind the end are no part of the library.
        let path = folder.join(format!("libcopy{number}.so"));
        std::fs::write(&path, [library.as_slice(), &number.to_le_bytes()].concat()).unwrap();
        arguments.push(path.display().to_string());
    }
    let many_files =
        ProgramBuild { libraries: &["-ldl"], ..ProgramBuild::c("many_files", &["many_files.c"]) };
    commands.insert("many_files", (many_files.build(TEST)?, arguments));
    let replaced = folder.join("replaced");
    std::fs::copy(program_of_c().build(TEST)?, &replaced).unwrap();
    commands.insert("replaced", (replaced, vec!["600".into()]));
    Some(commands)
}

fn storm_build(name: &'static str) -> ProgramBuild {
    match name {
        "fork_storm" => ProgramBuild::c(name, &["fork_storm.c"]),
        "exec_loop" => ProgramBuild::c(name, &["exec_loop.c"]),
        _ => ProgramBuild::c(name, &["many_mappings.c"]),
    }
}

fn run_all(commands: &HashMap<&'static str, (PathBuf, Vec<String>)>, folder: &Path) -> StressRun {
    let before_bytes = resident_bytes();
    let mut config = test_config(HZ);
    config.max_memory = ByteSize::mib(MAX_MEMORY_MIB);
    let mut sampler = Sampler::start(config, Clock::system(), Random::system()).unwrap();
    let start = |(name, (path, arguments)): (&&'static str, &(PathBuf, Vec<String>))| {
        (*name, RunningProgram::start(path, arguments))
    };
    let mut programs: HashMap<&'static str, RunningProgram> = commands.iter().map(start).collect();
    let mut stacks = HashMap::new();
    let mut comms: HashMap<String, u64> = HashMap::new();
    for number in 0..WINDOWS {
        if number == REPLACED_AT {
            replace_file(&folder.join("replaced"));
        }
        sampler.run_for(Duration::from_secs(1));
        let window = sampler.close_window().unwrap();
        add_window(&mut stacks, &window);
        stacks.retain(|pid, _| programs.values().any(|program| program.pid() == *pid));
        for stack in &window.stacks {
            *comms.entry(stack.comm.to_string()).or_default() += stack.samples;
        }
    }
    for (name, program) in &mut programs {
        assert!(program.is_running(), "{name} ended early");
    }
    let grown_bytes = resident_bytes().saturating_sub(before_bytes);
    let kernel_objects = KernelObjects::of_process("self");
    let stats = SamplerStats::clone(&sampler.stats());
    StressRun { programs, stacks, comms, stats, kernel_objects, grown_bytes }
}

/// Replaces a file as an update does: another file takes its name.
fn replace_file(path: &Path) {
    let other = path.with_extension("new");
    std::fs::copy("/proc/self/exe", &other).unwrap();
    assert!(Command::new("mv").arg(&other).arg(path).status().unwrap().success());
}

/// Returns the resident memory of this process.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
