//! Process with the role `compactor`, in a cgroup of bounded memory.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use athanor_integration::athanor_binary;

/// Folders in which a memory cgroup can be created, with the file of its limit: version 2, then version 1.
const CGROUP_PARENTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// Limit of the compactor's memory.
#[derive(Clone, Debug)]
pub enum MemoryLimit {
    /// Cgroup that bounds the memory, page cache included.
    Cgroup { folder: PathBuf, bytes: u64 },
    /// No cgroup could be created. The data segment is bounded instead, by `prlimit`.
    DataSegment { bytes: u64 },
}

/// Running compactor. It is killed on drop.
pub struct CompactorProcess {
    child: Child,
    http_port: u16,
    limit: MemoryLimit,
}

impl MemoryLimit {
    /// Creates a cgroup with a memory limit.
    pub fn create(bytes: u64) -> Self {
        for (parent, file) in CGROUP_PARENTS {
            let folder = Path::new(parent).join(format!("athanor-backlog-{}", std::process::id()));
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            if folder.join(file).exists() && fs::write(folder.join(file), bytes.to_string()).is_ok() {
                return Self::Cgroup { folder, bytes };
            }
            drop(fs::remove_dir(&folder));
        }
        Self::DataSegment { bytes }
    }

    /// Returns the shell command that applies the limit to its own process.
    fn enter_command(&self) -> String {
        match self {
            Self::Cgroup { folder, .. } => format!("echo $$ > {}/cgroup.procs", folder.display()),
            Self::DataSegment { bytes } => format!("prlimit --pid $$ --data={bytes}"),
        }
    }
}

impl CompactorProcess {
    /// Starts the process.
    pub fn start(config: &Path, http_port: u16, limit: &MemoryLimit) -> Self {
        let script = format!("{} && exec \"$0\" serve --config \"$1\"", limit.enter_command());
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg(athanor_binary()).arg(config);
        // The variable would be taken for a setting.
        command.env_remove("ATHANOR_BINARY");
        Self { child: command.spawn().unwrap(), http_port, limit: limit.clone() }
    }

    /// Stops the program if the process ended.
    pub fn check_running(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("the compactor ended: {status}; {}", self.limit_text());
        }
    }

    /// Returns the sum of a counter over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http_port)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let lines = page.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Returns the largest resident size of the process so far.
    pub fn peak_resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Returns a description of the limit, and of its use as far as the cgroup states it.
    pub fn limit_text(&self) -> String {
        match &self.limit {
            MemoryLimit::Cgroup { folder, bytes } => {
                let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
                let peak = read("memory.peak").or_else(|| read("memory.max_usage_in_bytes"));
                let peak = peak.unwrap_or_else(|| "unknown".to_owned());
                format!("the cgroup is limited to {bytes} bytes, its peak with page cache is {}", peak.trim())
            }
            MemoryLimit::DataSegment { bytes } => {
                format!("no cgroup could be created, so only the data segment is limited to {bytes} bytes")
            }
        }
    }
}

impl Drop for CompactorProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if let MemoryLimit::Cgroup { folder, .. } = &self.limit {
            drop(fs::remove_dir(folder));
        }
    }
}
