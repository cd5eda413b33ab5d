//! Compiled program whose functions a test finds, and the needs of tests that sample.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Program with three functions that burn CPU time. Arguments: function and seconds of CPU time.
const SOURCE: &str = "
#include <stdlib.h>
#include <string.h>
#include <time.h>
volatile unsigned long sum;
#define BUSY(name) \\
    __attribute__((noinline)) void name##_busy_leaf(unsigned long turns) { while (turns--) sum += turns; } \\
    __attribute__((noinline)) void name##_busy_caller(double seconds) { \\
        while ((double)clock() / CLOCKS_PER_SEC < seconds) name##_busy_leaf(1000000); \\
        sum = 0; \\
    }
BUSY(known)
BUSY(orphan)
BUSY(outside)
int main(int count, char **arguments) {
    double seconds = count > 2 ? atof(arguments[2]) : 0;
    if (!strcmp(arguments[1], \"orphan\")) orphan_busy_caller(seconds);
    else if (!strcmp(arguments[1], \"outside\")) outside_busy_caller(seconds);
    else known_busy_caller(seconds);
    return 0;
}
";
/// CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE.
pub const SAMPLER_CAPABILITIES: u64 = 1 << 39 | 1 << 38 | 1 << 19;

/// Folder with the program, readable for all users.
pub struct BusyProgram {
    pub folder: TempDir,
    pub path: PathBuf,
}

impl BusyProgram {
    pub fn compile() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let source = folder.path().join("known_program.c");
        fs::write(&source, SOURCE).unwrap();
        let path = folder.path().join("known-program");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o"]);
        assert!(compiler.arg(&path).arg(&source).status().unwrap().success(), "cc compiles the program");
        Self { folder, path }
    }

    /// Burns CPU time in a function until the process is dropped.
    pub fn start(&self, function: &str) -> RunningProgram {
        let mut command = Command::new(&self.path);
        RunningProgram(command.args([function, "1000000"]).stdin(Stdio::null()).spawn().unwrap())
    }
}

/// Process that ends when it is dropped.
pub struct RunningProgram(pub Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether this process may sample. Prints a line if not.
pub fn can_sample() -> bool {
    let effective = capability_set("/proc/self/status", "CapEff");
    let has_all = effective & SAMPLER_CAPABILITIES == SAMPLER_CAPABILITIES;
    if !has_all {
        println!("skip: no privileges to sample a host");
    }
    has_all
}

/// Returns a set of capabilities from the status of a process.
pub fn capability_set(status: impl AsRef<Path>, name: &str) -> u64 {
    let text = fs::read_to_string(status).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

/// Returns `kernel.perf_event_paranoid`.
pub fn perf_event_paranoid() -> i32 {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim().parse().unwrap()
}
