//! Command of a recording: it exists before the sampler starts, with the privileges of the caller, and runs from the
//! first sample on.
//!
//! The program of the agent starts once more, stops itself, and becomes the command when it is continued.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use athanor_chassis::{ErrorCode, Status};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_parent_process_death_signal, waitpid,
};

/// Name of the subcommand that stops and then becomes a command.
pub const RUN_STOPPED: &str = "run-stopped";
/// Program of this process, also after its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Bits of files that may be executed.
const EXECUTABLE_BITS: u32 = 0o111;

/// Command that waits. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct StoppedCommand {
    child: Option<Child>,
    pid: Pid,
}

impl StoppedCommand {
    /// Starts a process that waits to become the command. `path` is the variable `PATH`.
    ///
    /// # Errors
    ///
    /// The program does not exist or may not be executed, or no process can be started.
    pub(super) fn start(command: &[OsString], path: Option<&str>) -> Result<Self, Status> {
        let program = command.first().cloned().unwrap_or_default();
        check_program(&program, path)?;
        let refuse = |error: std::io::Error| cannot_start(&program, &error.to_string());
        let child = Command::new(OWN_PROGRAM).arg(RUN_STOPPED).arg("--").args(command).spawn();
        let child = child.map_err(refuse)?;
        let pid = Pid::from_child(&child);
        let stopped = Self { child: Some(child), pid };
        loop {
            match waitpid(Some(pid), WaitOptions::UNTRACED) {
                Ok(Some((_, status))) if status.stopped() => return Ok(stopped),
                Err(Errno::INTR) => {}
                Ok(_) => return Err(cannot_start(&program, "its process ended early")),
                Err(error) => return Err(refuse(error.into())),
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Continues the process.
    ///
    /// # Errors
    ///
    /// The process is gone.
    pub(super) fn run(mut self) -> Result<Option<Child>, Status> {
        kill_process(self.pid, Signal::CONT)
            .map_err(|error| cannot_start(OsStr::new("COMMAND"), &error.to_string()))?;
        Ok(self.child.take())
    }
}

impl Drop for StoppedCommand {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // A process that is gone needs no end.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Stops this process until it is continued. Then it becomes the command. Returns only if that fails.
pub fn run_stopped(command: &[OsString]) -> Status {
    let program = command.first().cloned().unwrap_or_default();
    // A process that stops and has lost its parent would stop for ever. The command itself may outlive the recording.
    let stopped = set_parent_process_death_signal(Some(Signal::KILL))
        .and_then(|()| kill_process(getpid(), Signal::STOP))
        .and_then(|()| set_parent_process_death_signal(None));
    if let Err(error) = stopped {
        return cannot_start(&program, &error.to_string());
    }
    let error = Command::new(&program).args(command.iter().skip(1)).exec();
    cannot_start(&program, &error.to_string())
}

/// Checks that a program exists, so that a wrong name is an error before anything is sampled.
fn check_program(program: &OsStr, path: Option<&str>) -> Result<(), Status> {
    let is_program = |file: &Path| {
        let metadata = std::fs::metadata(file);
        metadata.is_ok_and(|found| found.is_file() && found.permissions().mode() & EXECUTABLE_BITS != 0)
    };
    if program.as_encoded_bytes().contains(&b'/') {
        return match is_program(Path::new(program)) {
            true => Ok(()),
            false => Err(cannot_start(program, "it is no executable file")),
        };
    }
    // Without a PATH, the system has a default of its own.
    let Some(path) = path else { return Ok(()) };
    match path.split(':').any(|folder| is_program(&Path::new(folder).join(program))) {
        true => Ok(()),
        false => Err(cannot_start(program, "no folder of PATH has it")),
    }
}

fn cannot_start(program: &OsStr, cause: &str) -> Status {
    let message = format!("{}: cannot start the command: {cause}", Path::new(program).display());
    Status::new(ErrorCode::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_by_path_or_in_a_folder_of_the_variable() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("tool");
        std::fs::write(&program, "").unwrap();
        let path = format!("/nonexistent:{}", folder.path().display());
        let check = |name: &OsStr| check_program(name, Some(&path));
        assert!(check(OsStr::new("tool")).is_err() && check(program.as_os_str()).is_err(), "not executable");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check(OsStr::new("tool")).is_ok() && check(program.as_os_str()).is_ok());
        assert!(check(folder.path().as_os_str()).is_err(), "a folder");
        let error = check(OsStr::new("tol")).unwrap_err();
        assert_eq!(error.message, "tol: cannot start the command: no folder of PATH has it");
        assert!(check_program(OsStr::new("tol"), None).is_ok());
    }
}
