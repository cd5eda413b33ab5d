//! CPU time by process: of /proc, and of `perf record`.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Returns the CPU time of a process so far, in seconds. None if it has ended.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let user: f64 = fields.get(11)?.parse().ok()?;
    let system: f64 = fields.get(12)?.parse().ok()?;
    Some((user + system) / 100.0)
}

/// Running `perf record` on the clock of all CPUs.
#[derive(Debug)]
pub struct PerfRecording {
    child: Child,
    file: PathBuf,
}

impl PerfRecording {
    /// Starts the recording.
    pub fn start(folder: &Path, hz: u32) -> Self {
        let file = folder.join("perf.data");
        let mut command = Command::new("perf");
        // Without build ids: collecting them at its end crashed perf 6.1.
        command
            .args(["record", "-q", "-a", "-B", "-N", "-e", "cpu-clock", "-F", &hz.to_string(), "-o"])
            .arg(&file);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, file }
    }

    /// Ends the recording. Returns samples by pid.
    ///
    /// # Errors
    ///
    /// Returns the output of perf if it cannot read its own recording.
    pub fn finish(mut self) -> Result<HashMap<u32, u64>, String> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        self.child.wait().unwrap();
        let mut script = Command::new("perf");
        script.args(["script", "-F", "pid", "-i"]).arg(&self.file);
        let output = script.stdin(Stdio::null()).output().unwrap();
        if !output.status.success() {
            return Err(said + &String::from_utf8_lossy(&output.stderr));
        }
        let mut samples = HashMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Ok(pid) = line.trim().parse() {
                *samples.entry(pid).or_default() += 1;
            }
        }
        Ok(samples)
    }
}
