//! Scratch space: folders for inputs and outputs of running jobs.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_block::{BlockFolder, LocalFolder, MemoryFolder};
use bytes::Bytes;

use crate::claim::JobClaim;

/// Space for files that need not survive the process.
pub trait ScratchSpace: Send + Sync + 'static {
    /// Creates an empty folder. Its files are removed when it is dropped.
    fn create_folder(&self) -> io::Result<Arc<dyn BlockFolder>>;

    /// Removes all folders, such as those of an earlier process. No folder may be in use.
    fn clear(&self) -> io::Result<()>;
}

/// Scratch space in a folder of the local file system that nothing else uses.
#[derive(Debug)]
pub struct LocalScratch {
    path: PathBuf,
    next_number: AtomicU64,
}

/// Scratch space in memory, for simulations.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryScratch;

/// Folder of the local file system that is removed when it is dropped.
struct RemovedFolder {
    folder: LocalFolder,
    path: PathBuf,
}

impl LocalScratch {
    /// Creates a space in a folder, which is created if missing.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), next_number: AtomicU64::new(0) }
    }
}

impl ScratchSpace for LocalScratch {
    fn create_folder(&self) -> io::Result<Arc<dyn BlockFolder>> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("{number:08}"));
        let folder = LocalFolder::scratch(&path)?;
        Ok(Arc::new(RemovedFolder { folder, path }))
    }

    fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(&self.path),
        }
    }
}

impl ScratchSpace for MemoryScratch {
    fn create_folder(&self) -> io::Result<Arc<dyn BlockFolder>> {
        Ok(Arc::new(MemoryFolder::default()))
    }

    fn clear(&self) -> io::Result<()> {
        Ok(())
    }
}

impl BlockFolder for RemovedFolder {
    fn create(&self, name: &str) -> io::Result<Box<dyn Write + Send>> {
        self.folder.create(name)
    }

    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        self.folder.read(name, offset, length)
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.folder.length(name)
    }
}

impl Drop for RemovedFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "failed to remove a scratch folder, the next start removes it");
        }
    }
}

/// Scratch space of one job. After the job's claim ended, all reads and writes fail, which ends its merge.
#[derive(Clone)]
pub(crate) struct JobScratch {
    pub(crate) space: Arc<dyn ScratchSpace>,
    pub(crate) claim: Arc<JobClaim>,
}

/// Folder of one job.
struct JobFolder {
    folder: Arc<dyn BlockFolder>,
    claim: Arc<JobClaim>,
}

/// File of one job.
struct JobFile {
    file: Box<dyn Write + Send>,
    claim: Arc<JobClaim>,
}

impl JobScratch {
    /// Creates an empty folder.
    pub(crate) fn create_folder(&self) -> io::Result<Arc<dyn BlockFolder>> {
        let folder = self.space.create_folder()?;
        Ok(Arc::new(JobFolder { folder, claim: Arc::clone(&self.claim) }))
    }
}

impl BlockFolder for JobFolder {
    fn create(&self, name: &str) -> io::Result<Box<dyn Write + Send>> {
        let file = self.folder.create(name)?;
        Ok(Box::new(JobFile { file, claim: Arc::clone(&self.claim) }))
    }

    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        self.claim.check_io()?;
        self.folder.read(name, offset, length)
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.folder.length(name)
    }
}

impl Write for JobFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.claim.check_io()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_scratch_is_emptied_at_start_and_after_each_folder() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("compactor");
        fs::create_dir_all(path.join("00000000")).unwrap();
        fs::write(path.join("00000000/left"), "x").unwrap();
        let scratch = LocalScratch::new(&path);
        scratch.clear().unwrap();
        let folder = scratch.create_folder().unwrap();
        folder.create("file").unwrap().write_all(b"bytes").unwrap();
        assert_eq!(folder.read("file", 1, 3).unwrap(), "yte");
        drop(folder);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn folder_of_an_ended_claim_fails() {
        let claim = Arc::new(JobClaim::new(7));
        let scratch = JobScratch { space: Arc::new(MemoryScratch), claim: Arc::clone(&claim) };
        let folder = scratch.create_folder().unwrap();
        let mut file = folder.create("file").unwrap();
        file.write_all(b"bytes").unwrap();
        claim.end();
        assert!(file.write_all(b"more").is_err());
        assert!(folder.read("file", 0, 5).is_err());
    }
}
