//! Folder of one process in `/proc`, with bounded reads.
//!
//! The descriptor of the folder belongs to the process, not to its id. When the process ended, reads fail, also if
//! its id has another process.

use std::cell::OnceCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use athanor_chassis::Clock;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::ProcessError;
use super::maps::{DELETED_SUFFIX, MappingList, MapsParser};
use super::stat::{ProcessStat, ProcessStatus};

const MAX_STAT_BYTES: usize = 4 << 10;
const MAX_STATUS_BYTES: usize = 64 << 10;
const MAX_COMMAND_LINE_BYTES: usize = 4 << 10;
const MAX_ENVIRONMENT_BYTES: usize = 256 << 10;
const MAX_ENVIRONMENT_VALUE_BYTES: usize = 1 << 10;
const MAX_CGROUP_BYTES: usize = 64 << 10;
const MAX_MOUNTINFO_BYTES: usize = 8 << 20;
const MAX_MAPS_BYTES: usize = 64 << 20;
const MAX_LINK_BYTES: usize = 8 << 10;
const READ_BYTES: usize = 64 << 10;
/// Bound of the executable mappings of one process that are read: the default of `vm.max_map_count`. Their bytes have
/// a bound, too.
pub const MAX_MAPPINGS: usize = 65_536;
/// Bound of the time to read the mappings of one process.
pub const MAPS_TIMEOUT: Duration = Duration::from_secs(2);

/// Folder of all processes, normally `/proc`.
#[derive(Debug)]
pub struct ProcFolder {
    fd: OwnedFd,
    path: PathBuf,
}

/// Folder of one process.
#[derive(Debug)]
pub struct ProcessFolder {
    fd: OwnedFd,
    pid: u32,
    root_path: OnceCell<Vec<u8>>,
}

// === impl ProcFolder ===

impl ProcFolder {
    /// Opens the folder.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Returns the path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the folder of a process.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such process.
    pub fn open_process(&self, pid: u32) -> Result<ProcessFolder, ProcessError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, pid.to_string(), flags, Mode::empty())
            .map_err(|errno| read_error(pid, "its folder", errno))?;
        Ok(ProcessFolder { fd, pid, root_path: OnceCell::new() })
    }

    /// Reads a file, at most `max_bytes` of it.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn read(&self, file: &str, max_bytes: usize) -> std::io::Result<Vec<u8>> {
        Ok(read_at(self.fd.as_fd(), file, max_bytes)?)
    }

    /// Opens a file for reading.
    pub(super) fn open_file(&self, file: &str) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(&self.fd, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Reads the mounts that the agent sees.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn own_mounts(&self) -> std::io::Result<Vec<u8>> {
        self.read("self/mountinfo", MAX_MOUNTINFO_BYTES)
    }

    /// Opens the file that a descriptor of the agent with `O_PATH` refers to.
    pub(super) fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        use std::os::fd::AsRawFd as _;
        rustix::fs::openat(&self.fd, format!("self/fd/{}", fd.as_raw_fd()), flags, Mode::empty())
    }
}

// === impl ProcessFolder ===

impl ProcessFolder {
    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the descriptor of the folder.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads `stat`.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended or the file cannot be read.
    pub fn stat(&self) -> Result<ProcessStat, ProcessError> {
        let bytes = self.read("stat", MAX_STAT_BYTES)?;
        ProcessStat::parse(&bytes).ok_or(ProcessError::Malformed { pid: self.pid, file: "stat" })
    }

    /// Reads `status`.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended or the file cannot be read.
    pub fn status(&self) -> Result<ProcessStatus, ProcessError> {
        Ok(ProcessStatus::parse(&self.read("status", MAX_STATUS_BYTES)?))
    }

    /// Reads the first 4 KiB of the arguments, with spaces between them.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended or the file cannot be read.
    pub fn command_line(&self) -> Result<String, ProcessError> {
        let mut bytes = self.read("cmdline", MAX_COMMAND_LINE_BYTES)?;
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        for byte in &mut bytes {
            if *byte == 0 {
                *byte = b' ';
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads the environment variables with these names, in this order. Values are shortened to 1 KiB.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended or the file cannot be read.
    pub fn environment(&self, names: &[String]) -> Result<Vec<(String, String)>, ProcessError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = self.read("environ", MAX_ENVIRONMENT_BYTES)?;
        Ok(select_environment(&bytes, names))
    }

    /// Reads `cgroup`.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended or the file cannot be read.
    pub fn cgroup(&self) -> Result<Vec<u8>, ProcessError> {
        self.read("cgroup", MAX_CGROUP_BYTES)
    }

    /// Reads `mountinfo`.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended or the file cannot be read.
    pub fn mounts(&self) -> Result<Vec<u8>, ProcessError> {
        self.read("mountinfo", MAX_MOUNTINFO_BYTES)
    }

    /// Reads the target of a link, such as `exe`, as a path of the reader.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended, is a thread of the kernel, or the link cannot be read.
    pub fn link(&self, file: &'static str) -> Result<Vec<u8>, ProcessError> {
        let target = rustix::fs::readlinkat(&self.fd, file, Vec::with_capacity(MAX_LINK_BYTES))
            .map_err(|errno| read_error(self.pid, file, errno))?;
        Ok(target.into_bytes())
    }

    /// Returns the path of the root of the process as the reader sees it, `/` if it cannot be read.
    pub(super) fn root_path(&self) -> &[u8] {
        self.root_path.get_or_init(|| self.link("root").unwrap_or_else(|_| b"/".to_vec()))
    }

    /// Returns a path of the reader as the process sees it. A path outside of the root of the process stays as it is.
    pub(super) fn path_in_root<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        match self.root_path() {
            b"/" => path,
            root => path.strip_prefix(root).filter(|rest| rest.starts_with(b"/")).unwrap_or(path),
        }
    }

    /// Reads the path of the executable as the process sees it, without the mark of a deleted file.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended, is a thread of the kernel, or the link cannot be read.
    pub fn executable(&self) -> Result<Vec<u8>, ProcessError> {
        let path = self.link("exe")?;
        let path = path.strip_suffix(DELETED_SUFFIX).unwrap_or(&path);
        Ok(self.path_in_root(path).to_vec())
    }

    /// Reads the executable mappings, with paths as the process sees them. If the main thread of a process ended before others, one of those is read.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended, the file cannot be read, or reading takes longer than
    /// [`MAPS_TIMEOUT`].
    pub fn mappings(&self, clock: &Clock) -> Result<MappingList, ProcessError> {
        let list = self.read_maps("maps", clock)?;
        if !list.mappings.is_empty() {
            return Ok(list);
        }
        let stat = self.stat()?;
        if !stat.is_zombie() || stat.thread_count < 2 {
            return Ok(list);
        }
        match self.other_thread() {
            Some(tid) => self.read_maps(&format!("task/{tid}/maps"), clock),
            None => Ok(list),
        }
    }

    fn read_maps(&self, path: &str, clock: &Clock) -> Result<MappingList, ProcessError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let map_error = |errno| read_error(self.pid, "maps", errno);
        let file = rustix::fs::openat(&self.fd, path, flags, Mode::empty()).map_err(map_error)?;
        let deadline = clock.monotonic().saturating_add(MAPS_TIMEOUT);
        let mut parser = MapsParser::new(MAX_MAPPINGS);
        let mut buffer = vec![0; READ_BYTES];
        let mut total_bytes = 0_usize;
        while total_bytes < MAX_MAPS_BYTES {
            let count = match rustix::io::read(&file, &mut buffer[..]) {
                Ok(0) => break,
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(map_error(errno)),
            };
            parser.push(buffer.get(..count).unwrap_or_default());
            total_bytes = total_bytes.saturating_add(count);
            if clock.monotonic() > deadline {
                return Err(ProcessError::TimedOut { pid: self.pid, file: "maps", timeout: MAPS_TIMEOUT });
            }
        }
        let mut list = parser.finish();
        for mapping in &mut list.mappings {
            let path = self.path_in_root(&mapping.path);
            if path.len() != mapping.path.len() {
                mapping.path = path.into();
            }
        }
        Ok(list)
    }

    /// Returns a thread other than the main one.
    fn other_thread(&self) -> Option<u32> {
        const MAX_THREADS: usize = 64;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.fd, "task", flags, Mode::empty()).ok()?;
        let entries = rustix::fs::Dir::new(folder).ok()?;
        let names =
            entries.take(MAX_THREADS).filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok());
        names.into_iter().find(|tid: &u32| *tid != self.pid)
    }

    fn read(&self, file: &'static str, max_bytes: usize) -> Result<Vec<u8>, ProcessError> {
        read_at(self.fd.as_fd(), file, max_bytes).map_err(|errno| read_error(self.pid, file, errno))
    }
}

fn read_error(pid: u32, file: &'static str, errno: Errno) -> ProcessError {
    match errno {
        Errno::NOENT | Errno::SRCH => ProcessError::Ended { pid, file },
        errno => ProcessError::Read { pid, file, source: errno.into() },
    }
}

fn read_at(folder: BorrowedFd<'_>, file: &str, max_bytes: usize) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(folder, file, flags, Mode::empty())?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() < max_bytes {
        let wanted = buffer.len().min(max_bytes - bytes.len());
        match rustix::io::read(&file, buffer.get_mut(..wanted).unwrap_or_default()) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}

/// Returns the variables with these names. The first of several with one name counts, as for `getenv`.
fn select_environment(bytes: &[u8], names: &[String]) -> Vec<(String, String)> {
    let variables = || bytes.split(|byte| *byte == 0);
    let find_value = |name: &str| {
        let mut values =
            variables().filter_map(|text| text.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        values.next()
    };
    let select = |name: &String| {
        let value = find_value(name)?;
        let value = value.get(..value.len().min(MAX_ENVIRONMENT_VALUE_BYTES)).unwrap_or_default();
        Some((name.clone(), String::from_utf8_lossy(value).into_owned()))
    };
    names.iter().filter_map(select).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_has_listed_names_only() {
        let bytes = b"A=1\0SECRET=x\0AB=2\0A=3\0B\0C=\0D=a=b\0".to_vec();
        let names = ["D", "A", "B", "C", "E"].map(str::to_owned);
        let expected = [("D", "a=b"), ("A", "1"), ("C", "")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(select_environment(&bytes, &names), expected);
        let long = [b"A=".to_vec(), vec![b'x'; 5000]].concat();
        assert_eq!(select_environment(&long, &names)[0].1.len(), MAX_ENVIRONMENT_VALUE_BYTES);
    }

    #[test]
    fn process_id_without_process_is_an_end() {
        let proc_folder = ProcFolder::open(Path::new("/proc")).unwrap();
        assert!(matches!(proc_folder.open_process(u32::MAX), Err(ProcessError::Ended { pid: u32::MAX, .. })));
    }
}
