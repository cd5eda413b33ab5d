//! Cost of the sampler beside busy programs: share of the machine, time per sample, memory and start.
//!
//! ```text
//! cargo run --release --package athanor-agent-ebpf --example sampler_bench -- HZ SECONDS [PROCESSES]
//! ```
//!
//! One program per CPU burns CPU time 30 calls deep. PROCESSES more programs with 40 libraries each sleep and wake up,
//! beside node, rustc and a JVM as far as they are installed. The floor of a sample is the time that the BPF programs
//! take; the rest is user space.

use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use athanor_agent_ebpf::layout::StackEnd;
use athanor_agent_ebpf::sampler::{Sampler, SamplerConfig};
use athanor_chassis::{ByteSize, Clock, Random};
use rustix::time::{ClockId, clock_gettime};

const WINDOW: Duration = Duration::from_secs(10);
const CALL_DEPTH: u32 = 26;
const LIBRARY_COUNT: usize = 40;
const LIBRARY_FOLDER: &str = "/usr/lib/x86_64-linux-gnu";
/// Large programs that work a little all the time: name of the tool and the command.
const LARGE_PROGRAMS: [(&str, &str); 3] = [
    (
        "node",
        "exec node -e 'setInterval(() => require(\"zlib\").deflateSync(Buffer.alloc(99999, JSON.stringify(process.env))), 50)'",
    ),
    (
        "rustc",
        "while :; do echo 'pub fn sort(words: &mut Vec<String>) { words.sort() }' | \
         rustc -O --crate-type lib -o \"$SOURCE.rlib\" - || exit; sleep 1; done",
    ),
    ("java", "exec java \"$SOURCE\""),
];
const JAVA_SOURCE: &str = "class Work {
    public static void main(String[] arguments) throws Exception {
        for (long i = 0;; i++) {
            var words = new java.util.ArrayList<String>();
            for (int j = 0; j < 20000; j++) words.add(\"word \" + i * j);
            java.util.Collections.sort(words);
            Thread.sleep(100);
        }
    }
}";

/// Programs that run until they are dropped.
struct Programs(Vec<Child>);

impl Programs {
    fn start(kind: &str, count: usize, libraries: &str) -> std::io::Result<Self> {
        let program = std::env::current_exe()?;
        // The dynamic linker leaves out a library that lacks another one, and says so.
        let start = |_| {
            let mut command = Command::new(&program);
            command.arg(kind).env("LD_PRELOAD", libraries).stderr(Stdio::null()).spawn()
        };
        Ok(Self((0..count).map(start).collect::<std::io::Result<_>>()?))
    }

    fn start_large(source: &std::path::Path) -> std::io::Result<Self> {
        std::fs::write(source, JAVA_SOURCE)?;
        let mut programs = Self(Vec::new());
        for (tool, command) in LARGE_PROGRAMS {
            let mut version = Command::new(tool);
            version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            if version.status().is_ok_and(|status| status.success()) {
                let mut shell = Command::new("sh");
                shell.args(["-c", command]).env("SOURCE", source).stderr(Stdio::null());
                programs.0.push(shell.spawn()?);
            } else {
                println!("{tool} is not installed");
            }
        }
        Ok(programs)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A program that has ended needs no signal.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[inline(never)]
fn burn(depth: u32, turns: u64) -> u64 {
    match depth {
        0 => (0..turns).fold(turns, |sum, turn| black_box(sum.wrapping_mul(31).wrapping_add(turn))),
        _ => burn(depth - 1, turns).wrapping_add(black_box(1)),
    }
}

/// Returns paths of libraries of the system that a program can load without further code.
fn some_libraries() -> std::io::Result<String> {
    let mut paths: Vec<String> = std::fs::read_dir(LIBRARY_FOLDER)?
        .filter_map(|entry| Some(entry.ok()?.path().to_str()?.to_owned()))
        .filter(|path| {
            path.contains(".so.") && std::fs::symlink_metadata(path).is_ok_and(|data| data.is_file())
        })
        .collect();
    paths.sort();
    paths.truncate(LIBRARY_COUNT);
    Ok(paths.join(" "))
}

fn process_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_secs_f64()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

fn measure(hz: u32, seconds: u64, processes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let cpus = std::thread::available_parallelism()?.get();
    let folder = tempfile::tempdir()?;
    let _busy = Programs::start("burn", cpus, "")?;
    let _others = Programs::start("sleep", processes, &some_libraries()?)?;
    let _large = Programs::start_large(&folder.path().join("Work.java"))?;
    let config = SamplerConfig {
        frequency_hz: hz,
        process: None,
        thread_names: false,
        symbolize: true,
        max_memory: ByteSize::mib(64),
        max_cpu_percent: 100.0,
        environment_variables: Vec::new(),
        proc_folder: PathBuf::from("/proc"),
        kill_switch_file: None,
    };
    let clock = Clock::system();
    let begun = process_seconds();
    let mut sampler = Sampler::start(config, clock.clone(), Random::system())?;
    sampler.run_for(Duration::from_secs(2));
    sampler.close_window()?;
    println!("start with the first window: {:.0} ms of CPU time", (process_seconds() - begun) * 1e3);
    let first = sampler.stats();
    let (began, used) = (clock.monotonic(), process_seconds());
    let mut frames = 0;
    for _ in 0..seconds.div_ceil(WINDOW.as_secs()) {
        sampler.run_for(WINDOW);
        let window = sampler.close_window()?;
        frames += window.stacks.iter().map(|stack| stack.samples * stack.frames.len() as u64).sum::<u64>();
    }
    let last = sampler.stats();
    let wall = (clock.monotonic() - began).as_secs_f64();
    let samples = last.samples_delivered - first.samples_delivered;
    let programs = (last.program_nanos - first.program_nanos) as f64 / 1e9;
    let user = process_seconds() - used;
    let lost: u64 = last.samples_lost.iter().sum();
    let complete =
        last.samples_by_end[StackEnd::Complete as usize] - first.samples_by_end[StackEnd::Complete as usize];
    println!("{samples} samples in {wall:.0} s on {cpus} CPUs at {hz} Hz, {lost} lost");
    println!("complete: {:.2} %", complete as f64 * 100.0 / samples.max(1) as f64);
    println!("frames per sample: {:.1}", frames as f64 / samples.max(1) as f64);
    println!("BPF programs per sample: {:.1} us", programs * 1e6 / samples.max(1) as f64);
    println!("share of the machine: {:.4} %", (programs + user) * 100.0 / (wall * cpus as f64));
    println!("of it in user space: {:.4} %", user * 100.0 / (wall * cpus as f64));
    println!(
        "VmRSS: {:.1} MiB, maps: {:.1} MiB",
        resident_kib() as f64 / 1024.0,
        last.map_bytes as f64 / 1_048_576.0
    );
    println!("{} processes, {} pages with {} rows", last.processes, last.pages, last.rows);
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("burn") => loop {
            black_box(burn(CALL_DEPTH, 1_000_000));
        },
        Some("sleep") => loop {
            std::thread::sleep(Duration::from_millis(400));
            black_box(burn(CALL_DEPTH, 1_000_000));
        },
        _ => {}
    }
    let number = |index: usize, usual: u64| arguments.get(index).map_or(Ok(usual), |text| text.parse());
    let (Ok(hz), Ok(seconds), Ok(processes)) = (number(0, 19), number(1, 60), number(2, 0)) else {
        eprintln!("usage: sampler_bench HZ SECONDS [PROCESSES], all of them numbers");
        return ExitCode::FAILURE;
    };
    match measure(hz as u32, seconds, processes as usize) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the sampler fails: {error}");
            ExitCode::FAILURE
        }
    }
}
