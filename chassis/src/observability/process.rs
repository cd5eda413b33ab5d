//! Resource usage of this process or another one, as Linux reports it.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

/// Resource usage of a process. Values that the system does not report are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Peak of the resident memory in bytes.
    pub peak_bytes: u64,
    /// Size of the address space in bytes.
    pub virtual_bytes: u64,
    /// Number of threads.
    pub threads: u64,
    /// Number of open files, sockets included.
    pub open_files: u64,
    /// Upper bound of open files.
    pub max_files: u64,
}

impl ProcessUsage {
    /// Reads the usage of this process.
    pub fn current() -> Self {
        Self::from_proc_folder(Path::new("/proc/self"))
    }

    fn from_proc_folder(folder: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let status = read("status");
        let limits = read("limits");
        // The folder that is being read counts as one open file.
        let open = fs::read_dir(folder.join("fd")).map_or(0, |files| files.count().saturating_sub(1));
        Self {
            resident_bytes: proc_kibibytes(&status, "VmRSS:"),
            peak_bytes: proc_kibibytes(&status, "VmHWM:"),
            virtual_bytes: proc_kibibytes(&status, "VmSize:"),
            threads: proc_field(&status, "Threads:"),
            open_files: open as u64,
            max_files: proc_field(&limits, "Max open files"),
        }
    }
}

/// Raises the limit of open files, sockets included, to the hard limit. Returns the limit in force.
pub fn raise_max_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let raised = setrlimit(Resource::Nofile, wanted).is_ok();
    let most = if raised { limit.maximum } else { limit.current };
    most.unwrap_or(u64::MAX)
}

/// Denies other users access to files and folders that this process creates from now on.
pub fn restrict_file_permissions() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Returns the free bytes of the disk that holds a folder.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn proc_kibibytes(text: &str, name: &str) -> u64 {
    proc_field(text, name) * 1024
}

/// Returns the first number behind a name at the beginning of a line, 0 if there is none.
fn proc_field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let usage = ProcessUsage::current();
        assert!(usage.resident_bytes > 1 << 16 && usage.peak_bytes >= usage.resident_bytes, "{usage:?}");
        assert!(
            usage.threads >= 1 && usage.open_files >= 1 && usage.max_files >= usage.open_files,
            "{usage:?}"
        );
    }

    #[test]
    fn as_many_files_as_may_be_can_be_opened() {
        let most = raise_max_files();
        assert!(most >= ProcessUsage::current().max_files);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), most);
    }

    #[test]
    fn where_nothing_is_told_nothing_is_said() {
        assert_eq!(ProcessUsage::from_proc_folder(Path::new("/nowhere")), ProcessUsage::default());
        let status = "Name:\tx y\nVmRSS:\t    1520 kB\nThreads:\t3\n";
        assert_eq!((proc_kibibytes(status, "VmRSS:"), proc_field(status, "Threads:")), (1520 * 1024, 3));
        assert_eq!(
            proc_field(
                "Max open files            1024                 524288               files",
                "Max open files"
            ),
            1024
        );
    }
}
