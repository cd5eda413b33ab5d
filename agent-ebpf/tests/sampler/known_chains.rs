//! Programs whose call chains are known, all at once in one run: their stacks are complete, their chains are found, and
//! their counts are those of the clock.

mod expectations;

pub use expectations::{chains_of_c, first_library, program_of_c, static_program};

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use athanor_agent_ebpf::layout::StackEnd;
use athanor_agent_ebpf::sampler::{Sampler, SamplerConfig};
use athanor_agent_ebpf::window::SampleWindow;
use athanor_chassis::{ByteSize, Clock, Random};

use crate::cpu_shares::{PerfRecording, cpu_seconds};
use crate::programs::RunningProgram;
use crate::requirements::{can_sample, has_tool, reserve_host};
use crate::sampled_stacks::{NamedStack, ProcessStacks, add_window};
use expectations::{ChainMatch, KNOWN_PROGRAMS, KnownProgram};

const TEST: &str = "known chains";
const HZ: u32 = 199;
/// Windows of one second: so it is known which samples are the first of a process.
const MIN_WINDOWS: usize = 25;
/// Windows on a busy machine.
const MAX_WINDOWS: usize = 120;
/// Window from which on perf records too.
const FIRST_PERF_WINDOW: usize = 5;
/// Samples of a process that may be incomplete while its mappings and rows are loaded.
const WARM_UP_SAMPLES: u64 = 20;
/// Samples that a verdict on a program needs.
const MIN_SAMPLES: u64 = 100;
/// Share of complete stacks that may have a wrong root.
const MAX_WRONG_ROOTS: f64 = 0.005;
/// Standard deviations that a share may be off.
const MAX_DEVIATIONS: f64 = 4.5;
/// Error of a share that is not of chance: starts, ends, the resolution of /proc, CPU time that the host steals.
const SHARE_TOLERANCE: f64 = 0.01;

/// Program of the run.
struct ProgramRun {
    known: &'static KnownProgram,
    process: RunningProgram,
    cpu_seconds: f64,
}

/// Result of the run.
struct HostRun {
    programs: Vec<ProgramRun>,
    stacks: HashMap<u32, ProcessStacks>,
    /// Samples of `perf record` by pid.
    perf_counts: Option<Result<HashMap<u32, u64>, String>>,
    /// Our samples by pid meanwhile.
    counts_beside_perf: HashMap<u32, u64>,
    /// Facts of processes that lived for 50 ms: executable and command line.
    short_lived: Vec<(String, String)>,
}

#[test]
fn known_programs_together_have_their_chains() {
    if !can_sample(TEST) {
        return;
    }
    let programs: Vec<(&'static KnownProgram, PathBuf, Vec<String>)> =
        KNOWN_PROGRAMS.iter().filter_map(KnownProgram::prepare).collect();
    let _host = reserve_host();
    let run = run_programs(&programs);
    let mut failures = Vec::new();
    for program in &run.programs {
        check_program(&run, program, &mut failures);
    }
    check_cpu_shares(&run, &mut failures);
    check_perf_shares(&run, &mut failures);
    check_short_lived(&run, &mut failures);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Returns the path and arguments of a program of the run. None after a skip line.
pub fn prepare_program(name: &str) -> Option<(PathBuf, Vec<String>)> {
    let known = KNOWN_PROGRAMS.iter().find(|known| known.build.name == name).expect("a program of the run");
    known.prepare().map(|(_, path, arguments)| (path, arguments))
}

/// Returns the configuration of the tests: everything in each sample, and bounds that do not thin.
pub fn test_config(frequency_hz: u32) -> SamplerConfig {
    SamplerConfig {
        frequency_hz,
        process: None,
        thread_names: false,
        symbolize: true,
        max_memory: ByteSize::mib(64),
        max_cpu_percent: 50.0,
        environment_variables: Vec::new(),
        proc_folder: PathBuf::from("/proc"),
        kill_switch_file: None,
    }
}

fn run_programs(programs: &[(&'static KnownProgram, PathBuf, Vec<String>)]) -> HostRun {
    let folder = tempfile::tempdir().unwrap();
    let with_perf = has_tool(TEST, "perf");
    let mut sampler = Sampler::start(test_config(HZ), Clock::system(), Random::system()).unwrap();
    sampler.close_window().unwrap();
    let mut run = HostRun::start(programs);
    let mut recording = None;
    for number in 0..MAX_WINDOWS {
        if with_perf && number == FIRST_PERF_WINDOW {
            recording = Some(PerfRecording::start(folder.path(), HZ));
        }
        sampler.run_for(Duration::from_secs(1));
        for program in &mut run.programs {
            program.cpu_seconds = cpu_seconds(program.process.pid()).unwrap_or_default();
        }
        let window = sampler.close_window().unwrap();
        run.add(&window, recording.is_some());
        if number + 1 >= MIN_WINDOWS && run.has_enough_samples() {
            println!("{} windows", number + 1);
            break;
        }
    }
    run.perf_counts = recording.map(PerfRecording::finish);
    let stats = sampler.stats();
    println!("{stats:?}");
    let lost: u64 = stats.samples_lost.iter().sum();
    assert_eq!(stats.samples_taken, stats.samples_delivered + lost, "{stats:?}");
    for program in &mut run.programs {
        assert!(program.process.is_running(), "{} ended early", program.known.build.name);
    }
    run
}

impl HostRun {
    /// Starts the programs, less favored than the test, which they would keep from its CPU time otherwise.
    fn start(programs: &[(&'static KnownProgram, PathBuf, Vec<String>)]) -> Self {
        let programs = programs.iter().map(|(known, path, arguments)| ProgramRun {
            known,
            process: RunningProgram::start_nice(path, arguments),
            cpu_seconds: 0.0,
        });
        Self {
            programs: programs.collect(),
            stacks: HashMap::new(),
            perf_counts: None,
            counts_beside_perf: HashMap::new(),
            short_lived: Vec::new(),
        }
    }

    fn add(&mut self, window: &SampleWindow, is_beside_perf: bool) {
        add_window(&mut self.stacks, window);
        for process in &window.processes {
            let facts = &process.facts;
            if facts.command_line.as_ref() == "short-lived child" {
                self.short_lived.push((facts.executable.to_string(), facts.cgroup.to_string()));
            }
        }
        for stack in window.stacks.iter().filter(|_| is_beside_perf) {
            let pid = window.processes[stack.process as usize].facts.identity.pid;
            *self.counts_beside_perf.entry(pid).or_default() += stack.samples;
        }
    }

    /// Returns whether each program has the samples that a verdict needs. On a busy machine that takes longer.
    fn has_enough_samples(&self) -> bool {
        self.programs.iter().all(|program| {
            let samples = self.stacks.get(&program.process.pid()).map_or(0, ProcessStacks::samples);
            samples >= 2 * program.known.min_samples(MIN_SAMPLES)
        })
    }
}

/// Checks the share of complete stacks and the chains of one program.
fn check_program(run: &HostRun, program: &ProgramRun, failures: &mut Vec<String>) {
    let name = program.known.build.name;
    let Some(stacks) = run.stacks.get(&program.process.pid()) else {
        failures.push(format!("{name}: no samples"));
        return;
    };
    let warm: Vec<&NamedStack> = stacks.after(WARM_UP_SAMPLES).collect();
    let total = sum_samples(warm.iter().copied());
    if total < program.known.min_samples(MIN_SAMPLES) {
        failures.push(format!("{name}: {total} samples"));
        return;
    }
    let ended = warm.iter().copied().filter(|stack| stack.end == program.known.end);
    let ended: Vec<&NamedStack> = ended.collect();
    let share = sum_samples(ended.iter().copied()) as f64 / total as f64;
    println!("{name:<16} {total:5} samples, {:6.2} % {}", share * 100.0, program.known.end.name());
    if share < program.known.min_share {
        let others = warm.iter().copied().filter(|stack| stack.end != program.known.end);
        failures.push(format!("{name}: {share:.4} end well of {total}; others:\n{}", describe(others)));
    }
    for chain in program.known.chains {
        let found = sum_samples(ended.iter().copied().filter(|stack| chain.matches(name, stack)));
        if (found as f64) < chain.min_share * total as f64 {
            let functions = chain.functions;
            failures.push(format!(
                "{name}: {found} of {total} have {functions:?}; all:\n{}",
                describe(ended.iter().copied())
            ));
        }
    }
    if program.known.end == StackEnd::Complete {
        check_roots(program.known, &ended, failures);
    }
    check_unknown(program.known, &ended, failures);
}

/// Checks that complete stacks begin where a thread begins.
fn check_roots(known: &KnownProgram, ended: &[&NamedStack], failures: &mut Vec<String>) {
    let wrong = ended.iter().copied().filter(|stack| !known.is_root(stack));
    let wrong: Vec<&NamedStack> = wrong.collect();
    // A sample in the first or last instructions of a function without unwind information has a wrong caller.
    let (wrong_samples, samples) = (sum_samples(wrong.iter().copied()), sum_samples(ended.iter().copied()));
    if wrong_samples as f64 > MAX_WRONG_ROOTS * samples as f64 {
        failures.push(format!("{}: complete, with another root:\n{}", known.build.name, describe(wrong)));
    }
}

/// Checks that a program with exact chains has next to no others.
fn check_unknown(known: &KnownProgram, ended: &[&NamedStack], failures: &mut Vec<String>) {
    if known.max_unknown_share >= 1.0 {
        return;
    }
    let name = known.build.name;
    let unknown = ended.iter().copied().filter(|stack| {
        !known.chains.iter().any(|chain| chain.matches(name, stack) || chain.is_begun_by(name, stack))
    });
    let unknown: Vec<&NamedStack> = unknown.collect();
    let total = sum_samples(ended.iter().copied());
    let share = sum_samples(unknown.iter().copied()) as f64 / total.max(1) as f64;
    if share > known.max_unknown_share {
        failures.push(format!("{name}: {share:.4} have unknown chains:\n{}", describe(unknown)));
    }
}

/// Checks that samples are split over programs as CPU time is, and that there are as many as the clock delivers.
fn check_cpu_shares(run: &HostRun, failures: &mut Vec<String>) {
    let samples = |program: &ProgramRun| {
        run.stacks.get(&program.process.pid()).map_or(0, ProcessStacks::samples) as f64
    };
    let total: f64 = run.programs.iter().map(samples).sum();
    let seconds: f64 = run.programs.iter().map(|program| program.cpu_seconds).sum();
    println!("{total} samples of {seconds:.2} s: {:.1} Hz of {HZ}", total / seconds);
    // A clock that is late skips ticks. It never adds some.
    if !(0.7 * f64::from(HZ)..1.05 * f64::from(HZ)).contains(&(total / seconds)) {
        failures.push(format!("{total} samples of {seconds} s of CPU time"));
    }
    for program in &run.programs {
        let share = Share { count: samples(program), total };
        let expected = program.cpu_seconds / seconds;
        if !share.is_near(expected, 0.0) {
            failures.push(format!("{}: {share:?}, of CPU time {expected:.4}", program.known.build.name));
        }
    }
}

/// Checks that perf splits the host's samples over the programs in the same way.
fn check_perf_shares(run: &HostRun, failures: &mut Vec<String>) {
    let ours = &run.counts_beside_perf;
    let perf = match &run.perf_counts {
        None => return,
        Some(Ok(perf)) => perf,
        Some(Err(error)) => {
            failures.push(format!("perf: {error}"));
            return;
        }
    };
    let pids: Vec<u32> = run.programs.iter().map(|program| program.process.pid()).collect();
    let sum = |counts: &HashMap<u32, u64>| pids.iter().filter_map(|pid| counts.get(pid)).sum::<u64>() as f64;
    let (perf_total, our_total) = (sum(perf), sum(ours));
    println!("perf: {perf_total} samples, ours: {our_total}");
    for program in &run.programs {
        let pid = program.process.pid();
        let share = Share { count: ours.get(&pid).copied().unwrap_or(0) as f64, total: our_total };
        let expected = perf.get(&pid).copied().unwrap_or(0) as f64 / perf_total.max(1.0);
        if !share.is_near(expected, perf_total) {
            failures.push(format!("{}: {share:?}, by perf {expected:.4}", program.known.build.name));
        }
    }
}

/// Checks that processes of 50 ms have an executable and a cgroup.
fn check_short_lived(run: &HostRun, failures: &mut Vec<String>) {
    let known = run
        .short_lived
        .iter()
        .filter(|(executable, cgroup)| executable.ends_with("/short_lived") && cgroup.starts_with('/'));
    let (known, all) = (known.count(), run.short_lived.len());
    println!("{known} of {all} processes that live for 50 ms are known");
    if all < 20 || known * 100 < all * 95 {
        failures.push(format!("{known} of {all} short-lived processes are known"));
    }
}

/// Share of counted samples.
#[derive(Clone, Copy, Debug)]
struct Share {
    count: f64,
    total: f64,
}

impl Share {
    /// Returns whether the share differs from `expected` by chance only. `expected_total` is the number of samples that
    /// `expected` was estimated from, 0 if it is exact.
    fn is_near(self, expected: f64, expected_total: f64) -> bool {
        let share = self.count / self.total.max(1.0);
        let inverse = if expected_total > 0.0 { 1.0 / expected_total } else { 0.0 };
        let deviation = (expected * (1.0 - expected) * (1.0 / self.total.max(1.0) + inverse)).sqrt();
        (share - expected).abs() <= MAX_DEVIATIONS * deviation + SHARE_TOLERANCE
    }
}

fn sum_samples<'a>(stacks: impl IntoIterator<Item = &'a NamedStack>) -> u64 {
    stacks.into_iter().map(|stack| stack.samples).sum()
}

/// Returns the most frequent stacks, a line each.
fn describe<'a>(stacks: impl IntoIterator<Item = &'a NamedStack>) -> String {
    let mut counts: HashMap<(StackEnd, &[crate::sampled_stacks::NamedFrame]), u64> = HashMap::new();
    for stack in stacks {
        *counts.entry((stack.end, &stack.frames)).or_default() += stack.samples;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
    let lines = counts
        .into_iter()
        .take(12)
        .map(|((end, frames), samples)| NamedStack { frames: frames.to_vec(), end, samples }.describe());
    lines.collect::<Vec<_>>().join("\n")
}

impl ChainMatch {
    /// Returns whether the stack of a program has the chain.
    pub fn matches(&self, program: &str, stack: &NamedStack) -> bool {
        if self.is_exact {
            stack.functions_of(program) == self.functions
        } else {
            stack.has_in_order(self.functions)
        }
    }

    /// Returns whether the stack is a beginning of the chain: a sample between two calls.
    fn is_begun_by(&self, program: &str, stack: &NamedStack) -> bool {
        self.is_exact && self.functions.starts_with(&stack.functions_of(program))
    }
}
