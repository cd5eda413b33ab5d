//! Samplers and programs of the tests.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use athanor_agent_ebpf::kernel::{
    CapabilitySet, KernelConfig, KernelSampler, SideSampling, effective_capabilities,
};
use athanor_agent_ebpf::layout::{CpuState, StackCount, StackKey};
use athanor_chassis::Random;

/// Returns whether the test may load BPF programs. Prints a line if not.
pub fn has_privileges() -> bool {
    let effective = effective_capabilities().unwrap();
    let is_allowed = effective.contains(CapabilitySet::BPF | CapabilitySet::PERFMON);
    if !is_allowed {
        println!("skip: CAP_BPF and CAP_PERFMON are missing");
    }
    is_allowed
}

/// Loads a sampler.
pub fn load(config: &KernelConfig) -> KernelSampler {
    KernelSampler::load(config, Random::from_seed(26)).unwrap()
}

/// Child process that is killed at the end of the test.
pub struct ChildProcess(pub Child);

impl ChildProcess {
    /// Starts a program.
    pub fn start(program: &str, arguments: &[&str]) -> Self {
        let child = Command::new(program).args(arguments).stdout(Stdio::null()).stdin(Stdio::piped()).spawn();
        Self(child.unwrap_or_else(|error| panic!("start {program}: {error}")))
    }

    /// Starts a shell that computes forever.
    pub fn busy() -> Self {
        Self::start("/bin/sh", &["-c", "while :; do :; done"])
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Stack of one window.
#[derive(Clone, Debug)]
pub struct Stack {
    pub key: StackKey,
    pub count: StackCount,
    pub kernel_frames: Vec<u64>,
    pub user_frames: Vec<u64>,
}

/// Reader of windows. Keeps the frames of the open window that arrive with those of the ended one.
#[derive(Default)]
pub struct WindowReader {
    frames: HashMap<(u64, StackKey), StackFrames>,
}

#[derive(Clone)]
struct StackFrames {
    kernel: Vec<u64>,
    user: Vec<u64>,
}

impl WindowReader {
    /// Ends a window and returns its stacks.
    pub fn close_window(&mut self, sampler: &mut KernelSampler, next: SideSampling) -> Vec<Stack> {
        let window = sampler.switch_window(next).unwrap();
        sampler.drain_stacks(|record, all| {
            let (kernel, user) = all.split_at(usize::from(record.kernel_frames));
            let frames = StackFrames { kernel: kernel.to_vec(), user: user.to_vec() };
            self.frames.insert((record.window, record.key), frames);
        });
        let mut stacks = Vec::new();
        sampler
            .drain_counts(window, |key, count| {
                let frames = self.frames.remove(&(window, *key)).expect("every count has frames");
                let (kernel_frames, user_frames) = (frames.kernel, frames.user);
                stacks.push(Stack { key: *key, count: *count, kernel_frames, user_frames });
            })
            .unwrap();
        self.frames.retain(|(other, _), _| *other > window);
        stacks
    }
}

/// Sum over all CPUs.
pub fn sum(states: &[CpuState], counter: impl Fn(&CpuState) -> u64) -> u64 {
    states.iter().map(counter).sum()
}

/// Runs a step until it returns something, for at most 20 s.
pub fn wait_for<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    for _ in 0..200 {
        if let Some(result) = step() {
            return result;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("waited 20 s for {what}");
}

/// Runs an ignored test of the test binary in a process of its own, through these commands. None if a command is not installed.
fn run_alone(test: &str, through: &[&str]) -> Option<std::process::Output> {
    let executable = std::env::current_exe().unwrap();
    let arguments = ["--ignored", "--exact", "--nocapture"];
    let mut command = match through {
        [] => Command::new(&executable),
        [program, rest @ ..] => {
            let mut command = Command::new(program);
            command.args(rest).arg(&executable);
            command
        }
    };
    let output = command.args(arguments).arg(test).output();
    if output.is_err() {
        println!("skip: {through:?} is not installed");
    }
    output.ok()
}

/// Runs an ignored test in a process of its own and expects that it passes. Returns its output, empty if it was skipped.
pub fn expect_success(test: &str, through: &[&str]) -> String {
    let Some(output) = run_alone(test, through) else { return String::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
    text
}
