//! Real processes for tests.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use athanor_chassis::{Clock, Timestamp};

use super::folder::ProcFolder;
use super::history::ProcessRequest;
use super::stat::ClockTick;
use super::table::{ProcessTable, ProcessTableConfig};

/// Process that is killed in the end.
pub(super) struct TestProcess(Child);

impl TestProcess {
    pub(super) fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Starts a copy of a program, so that tests may do to its file what they want.
    pub(super) fn copy_of_sleep(folder: &Path) -> (Self, PathBuf) {
        let program = folder.join("program");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let process = Self::spawn(Command::new(&program).arg("1000"));
        process.wait_for_executable("program");
        (process, program)
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until the process has executed a program, whose name it has then.
    pub(super) fn wait_for_executable(&self, comm: &str) {
        let path = format!("/proc/{}/comm", self.pid());
        wait_until(&format!("{path} is {comm}"), || {
            std::fs::read_to_string(&path).unwrap_or_default().trim_end() == comm && self.is_mapped()
        });
    }

    /// Returns whether an exec is done: the vdso is mapped last.
    pub(super) fn is_mapped(&self) -> bool {
        let maps = std::fs::read(format!("/proc/{}/maps", self.pid())).unwrap_or_default();
        maps.windows(6).any(|text| text == b"[vdso]")
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a state, up to 20 s.
pub(super) fn wait_until(what: &str, is_reached: impl Fn() -> bool) {
    for _ in 0..4000 {
        if is_reached() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what} was not reached within 20 s");
}

/// Compiles a C program. Returns None without a compiler.
pub(super) fn compile(folder: &Path, source: &str) -> Option<PathBuf> {
    let source_file = folder.join("program.c");
    let program = folder.join("compiled");
    std::fs::write(&source_file, source).unwrap();
    let status = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source_file).status();
    status.is_ok_and(|status| status.success()).then_some(program)
}

/// Creates a table for this machine.
pub(super) fn new_table() -> ProcessTable {
    let config = ProcessTableConfig {
        proc_folder: "/proc".into(),
        max_processes: 1000,
        max_bytes: 16 << 20,
        environment_variables: vec!["ATHANOR_TEST".to_owned()],
    };
    ProcessTable::new(config, Clock::manual(Timestamp::from_seconds(1)).0).unwrap()
}

/// Returns the request that the sampler would make for a process.
pub(super) fn new_request(pid: u32) -> ProcessRequest {
    let folder = ProcFolder::open("/proc".as_ref()).unwrap().open_process(pid).unwrap();
    let start_nanos = ClockTick::from_machine().start_nanos(folder.stat().unwrap().start_ticks) + 5;
    ProcessRequest { pid, start_nanos, exec_id: 7 }
}
