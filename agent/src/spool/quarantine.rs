//! Bounded set of damaged spool files, which stay in the folder under another name for inspection.

use std::collections::VecDeque;
use std::io;

use athanor_chassis::Disk;
use athanor_chassis::disk::DiskError;
use parking_lot::Mutex;

use super::file_name::DAMAGED_SUFFIX;

/// Maximum number of damaged files.
const MAX_DAMAGED_FILES: usize = 1000;

/// Damaged files of a folder. If they exceed the bound, the oldest are removed.
#[derive(Debug)]
pub(super) struct Quarantine {
    max_bytes: u64,
    files: Mutex<DamagedFiles>,
}

#[derive(Debug, Default)]
struct DamagedFiles {
    files: VecDeque<(String, u64)>,
    bytes: u64,
}

/// Returns whether an error means that the bytes of a file are lost: the file is gone, or the medium is damaged.
/// Other errors, such as too many open files, may pass.
pub(super) fn is_lost(error: &DiskError) -> bool {
    match error {
        DiskError::NotFound { .. } => true,
        DiskError::Io { source, .. } => {
            source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
                || source.kind() == io::ErrorKind::InvalidData
        }
        _ => false,
    }
}

impl Quarantine {
    /// Creates a set without files.
    pub(super) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, files: Mutex::default() }
    }

    /// Adds a damaged file of an earlier process. Blocks.
    pub(super) fn add(&self, disk: &dyn Disk, name: String, bytes: u64) {
        let mut files = self.files.lock();
        files.bytes += bytes;
        files.files.push_back((name, bytes));
        while files.bytes > self.max_bytes || files.files.len() > MAX_DAMAGED_FILES {
            let Some((oldest, freed)) = files.files.pop_front() else { break };
            files.bytes -= freed;
            if let Err(error) = disk.remove(&oldest) {
                tracing::warn!(file = oldest, %error, "failed to remove a damaged spool file");
            }
        }
    }

    /// Renames a damaged file. If that fails, the file stays, and the next start checks it once more. Blocks.
    pub(super) fn store(&self, disk: &dyn Disk, name: &str, bytes: u64) {
        let damaged = format!("{name}{DAMAGED_SUFFIX}");
        match disk.rename(name, &damaged) {
            Ok(()) => self.add(disk, damaged, bytes),
            Err(DiskError::NotFound { .. }) => {}
            Err(error) => tracing::warn!(file = name, %error, "failed to quarantine a spool file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::disk::MemoryDisk;

    use super::*;

    #[test]
    fn quarantine_over_its_bound_removes_the_oldest_files() {
        let disk = MemoryDisk::new();
        let quarantine = Quarantine::new(10);
        for name in ["1.spool", "2.spool", "3.spool"] {
            disk.write(name, b"12345").unwrap();
            quarantine.store(&disk, name, 5);
        }
        quarantine.store(&disk, "absent.spool", 5);
        assert_eq!(disk.list().unwrap(), ["2.spool.damaged", "3.spool.damaged"]);
    }
}
