//! Programs with known call chains: builds them once per source and command, and runs them.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::requirements::{cache_folder, has_tool};

/// Flags of C and C++: optimized, and without frame pointers.
const NATIVE_FLAGS: [&str; 4] = ["-O2", "-fomit-frame-pointer", "-Wall", "-Werror"];

/// Number of builds by this process, for names of folders.
static BUILD_COUNT: AtomicU64 = AtomicU64::new(0);

/// Build of one program: a compiler, its arguments and sources.
#[derive(Clone, Copy, Debug)]
pub struct ProgramBuild {
    /// Name of the executable.
    pub name: &'static str,
    /// Compiler.
    pub tool: &'static str,
    /// Source files or, for Go, a folder of them.
    pub sources: &'static [&'static str],
    /// Files that the sources include.
    pub headers: &'static [&'static str],
    /// Arguments before the sources.
    pub arguments: &'static [&'static str],
    /// Arguments after the sources.
    pub libraries: &'static [&'static str],
}

impl ProgramBuild {
    /// Build of a C program by the system's compiler.
    pub const fn c(name: &'static str, sources: &'static [&'static str]) -> Self {
        Self { name, tool: "cc", sources, headers: &["burn.h"], arguments: &[], libraries: &[] }
    }

    /// Builds the program if the cache lacks it. Returns None and prints a skip line without the compiler.
    pub fn build(&self, test: &str) -> Option<PathBuf> {
        let folder = cache_folder("athanor-sampler-programs");
        let digest = self.digest();
        let built = folder.join(format!("{digest:016x}")).join(self.name);
        if built.exists() {
            return Some(built);
        }
        if !has_tool(test, self.tool) {
            return None;
        }
        let number = BUILD_COUNT.fetch_add(1, Ordering::Relaxed);
        let partial = folder.join(format!("{digest:016x}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&partial).unwrap();
        let output = self.command(&partial.join(self.name)).output().unwrap();
        assert!(output.status.success(), "{self:?}: {}", String::from_utf8_lossy(&output.stderr));
        // Another process may have built the same meanwhile.
        if std::fs::rename(&partial, built.parent().unwrap()).is_err() {
            let _ = std::fs::remove_dir_all(&partial);
        }
        assert!(built.exists(), "{} was built", built.display());
        Some(built)
    }

    fn command(&self, output: &Path) -> Command {
        let mut command = Command::new(self.tool);
        let folder = sources_folder();
        if self.tool == "go" {
            command.current_dir(folder.join(self.sources[0]));
            command.args(["build", "-buildvcs=false", "-o"]).arg(output).args(self.arguments).arg(".");
            return command;
        }
        command.current_dir(&folder).arg("-o").arg(output);
        if self.tool == "rustc" {
            command.args(["--edition", "2024", "-O"]);
        } else {
            command.args(NATIVE_FLAGS);
        }
        command.args(self.arguments).args(self.sources).args(self.libraries);
        command
    }

    /// Returns a digest of everything that the program is made of.
    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.name, self.tool, self.arguments, self.libraries, NATIVE_FLAGS).hash(&mut hasher);
        let mut files: Vec<PathBuf> = Vec::new();
        for source in self.sources.iter().chain(self.headers) {
            let path = sources_folder().join(source);
            if path.is_dir() {
                files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                files.push(path);
            }
        }
        files.sort();
        for file in files {
            std::fs::read(&file)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
                .hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Returns the folder of the sources.
pub fn sources_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sampler/programs")
}

/// Running program. Killed on drop.
#[derive(Debug)]
pub struct RunningProgram(Child);

impl RunningProgram {
    /// Starts a program.
    pub fn start(program: &Path, arguments: &[String]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments);
        Self::spawn(&mut command)
    }

    /// Starts a program with less favor of the scheduler.
    pub fn start_nice(program: &Path, arguments: &[String]) -> Self {
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).arg(program).args(arguments);
        Self::spawn(&mut command)
    }

    /// Starts a command without input and output.
    pub fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns whether the program has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
