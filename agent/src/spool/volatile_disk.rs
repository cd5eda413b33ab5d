//! Disk in memory, for a spool without a writable folder. Its files end with the process.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use athanor_chassis::Disk;
use athanor_chassis::disk::DiskError;
use parking_lot::Mutex;

/// Folder of files in memory. Its owner bounds its size.
#[derive(Debug, Default)]
pub struct VolatileDisk {
    files: Mutex<BTreeMap<String, Arc<Vec<u8>>>>,
    /// Number of removals that fail.
    #[cfg(test)]
    pub(super) failing_removals: Mutex<u32>,
}

impl VolatileDisk {
    fn change<R>(
        &self,
        op: &'static str,
        name: &str,
        call: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<R, DiskError> {
        let mut files = self.files.lock();
        let file = files.get_mut(name).ok_or_else(|| not_found(op, name))?;
        Ok(call(Arc::make_mut(file)))
    }

    fn find(&self, op: &'static str, name: &str) -> Result<Arc<Vec<u8>>, DiskError> {
        self.files.lock().get(name).cloned().ok_or_else(|| not_found(op, name))
    }
}

fn not_found(op: &'static str, name: &str) -> DiskError {
    DiskError::NotFound { op, name: name.to_owned() }
}

/// Returns a length or offset as an index, or the error of a file that does not fit into memory.
fn index(op: &'static str, name: &str, value: u64) -> Result<usize, DiskError> {
    usize::try_from(value).map_err(|_| DiskError::Io {
        op,
        name: name.to_owned(),
        source: io::ErrorKind::FileTooLarge.into(),
    })
}

impl Disk for VolatileDisk {
    fn create_new(&self, name: &str) -> Result<(), DiskError> {
        self.create_zeroed(name, 0)
    }

    fn create_zeroed(&self, name: &str, length: u64) -> Result<(), DiskError> {
        let length = index("create", name, length)?;
        let mut files = self.files.lock();
        if files.contains_key(name) {
            return Err(DiskError::Exists { op: "create", name: name.to_owned() });
        }
        files.insert(name.to_owned(), Arc::new(vec![0; length]));
        Ok(())
    }

    fn write_at(&self, name: &str, offset: u64, parts: &[&[u8]]) -> Result<(), DiskError> {
        let begin = index("write to", name, offset)?;
        let bytes = parts.concat();
        self.change("write to", name, |file| {
            let end = begin + bytes.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[begin..end].copy_from_slice(&bytes);
        })
    }

    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let file = self.find("read", name)?;
        let begin = index("read", name, offset)?.min(file.len());
        let count = into.len().min(file.len() - begin);
        into[..count].copy_from_slice(&file[begin..begin + count]);
        Ok(count)
    }

    fn sync(&self, name: &str) -> Result<(), DiskError> {
        self.find("sync", name).map(drop)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.files.lock().insert(name.to_owned(), Arc::new(bytes.to_vec()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or_else(|| not_found("rename", from))?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        #[cfg(test)]
        {
            let mut failing = self.failing_removals.lock();
            if let Some(left) = failing.checked_sub(1) {
                *failing = left;
                let source = io::ErrorKind::ReadOnlyFilesystem.into();
                return Err(DiskError::Io { op: "remove", name: name.to_owned(), source });
            }
        }
        self.files.lock().remove(name).map(drop).ok_or_else(|| not_found("remove", name))
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.files.lock().keys().cloned().collect())
    }

    fn len(&self, name: &str) -> Result<u64, DiskError> {
        self.find("measure", name).map(|file| file.len() as u64)
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        Ok(u64::MAX)
    }

    fn capacity_bytes(&self) -> Result<u64, DiskError> {
        Ok(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_read_renamed_and_removed() {
        let disk = VolatileDisk::default();
        disk.write("a", b"12345").unwrap();
        disk.write_at("a", 4, &[b"6", b"7"]).unwrap();
        disk.rename("a", "b").unwrap();
        assert_eq!((disk.read("b").unwrap(), disk.len("b").unwrap()), (b"123467".to_vec(), 6));
        disk.create_new("c").unwrap();
        assert!(matches!(disk.create_new("c"), Err(DiskError::Exists { .. })));
        assert_eq!(disk.list().unwrap(), ["b", "c"]);
        disk.remove("b").unwrap();
        assert!(matches!(disk.read("b"), Err(DiskError::NotFound { .. })));
        assert!(matches!(disk.remove("b"), Err(DiskError::NotFound { .. })));
    }
}
