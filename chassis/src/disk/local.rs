//! A folder of the file system.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::{Disk, DiskError, check};
use crate::compute::Compute;

/// Files being written whole, not yet renamed to their names. No other name begins with a dot.
const UNFINISHED: &str = ".unfinished-";

/// A folder of the file system. Calls block on the threads of a [`Compute`], never on the caller's.
#[derive(Clone, Debug)]
pub struct LocalDisk {
    folder: Arc<Folder>,
    compute: Compute,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Held while a file grows or is put in place, so that appends do not mix.
    growing: Mutex<()>,
}

impl LocalDisk {
    /// Opens a folder, making it if need be, and clears what an earlier process left unfinished.
    pub async fn open(path: impl Into<PathBuf>, compute: Compute) -> Result<Self, DiskError> {
        let folder = Arc::new(Folder { path: path.into(), growing: Mutex::new(()) });
        let disk = Self { folder, compute };
        disk.run("open", "", |folder, _| folder.prepare()).await?;
        Ok(disk)
    }

    /// Runs one call on the folder. An empty name is the folder itself.
    async fn run<R: Send + 'static>(
        &self,
        op: &'static str,
        name: &str,
        call: impl FnOnce(&Folder, &str) -> io::Result<R> + Send + 'static,
    ) -> Result<R, DiskError> {
        let (folder, file) = (Arc::clone(&self.folder), name.to_owned());
        let done = self.compute.run(move || call(&folder, &file)).await;
        let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        let shown =
            if name.is_empty() { self.folder.path.to_string_lossy().into_owned() } else { name.to_owned() };
        done.map_err(|error| DiskError::of(op, &shown, error))
    }

    async fn run_on<R: Send + 'static>(
        &self,
        op: &'static str,
        name: &str,
        call: impl FnOnce(&Folder, &str) -> io::Result<R> + Send + 'static,
    ) -> Result<R, DiskError> {
        check(name)?;
        self.run(op, name, call).await
    }
}

impl Folder {
    fn prepare(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.path)?;
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                std::fs::remove_file(entry.path())?;
            }
        }
        self.sync_dir()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<u64> {
        let _alone = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = OpenOptions::new().append(true).open(self.at(name))?;
        let offset = file.metadata()?.len();
        if let Err(error) = file.write_all(bytes) {
            // A half-written tail would be taken for data; if this fails too, the first error says why.
            let _ = file.set_len(offset);
            return Err(error);
        }
        Ok(offset)
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.at(name))?;
        let left = file.metadata()?.len().saturating_sub(offset);
        let length = u64::try_from(length).unwrap_or(u64::MAX).min(left);
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        file.seek(SeekFrom::Start(offset))?;
        file.take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let _alone = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let unfinished = self.at(&format!("{UNFINISHED}{name}"));
        let put = || {
            let mut file = File::create(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&unfinished, self.at(name))?;
            self.sync_dir()
        };
        put().inspect_err(|_| {
            // Gone already if the rename was done; otherwise cleared at the next start at the latest.
            let _ = std::fs::remove_file(&unfinished);
        })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_file() && check(&name).is_ok() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

#[async_trait]
impl Disk for LocalDisk {
    async fn create_new(&self, name: &str) -> Result<(), DiskError> {
        self.run_on("create", name, |folder, name| File::create_new(folder.at(name)).map(drop)).await
    }

    async fn append(&self, name: &str, bytes: Vec<u8>) -> Result<u64, DiskError> {
        self.run_on("append to", name, move |folder, name| folder.append(name, &bytes)).await
    }

    async fn read_at(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        self.run_on("read", name, move |folder, name| folder.read_at(name, offset, length)).await
    }

    async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), DiskError> {
        self.run_on("write", name, move |folder, name| folder.write(name, &bytes)).await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        check(to)?;
        let to = to.to_owned();
        self.run_on("rename", from, move |folder, from| std::fs::rename(folder.at(from), folder.at(&to)))
            .await
    }

    async fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.run_on("remove", name, |folder, name| std::fs::remove_file(folder.at(name))).await
    }

    async fn list(&self) -> Result<Vec<String>, DiskError> {
        self.run("list", "", |folder, _| folder.list()).await
    }

    async fn len(&self, name: &str) -> Result<u64, DiskError> {
        self.run_on("measure", name, |folder, name| length(&folder.at(name))).await
    }

    async fn sync(&self, name: &str) -> Result<(), DiskError> {
        // Another descriptor than the one that wrote, but the same file: the kernel syncs files.
        self.run_on("sync", name, |folder, name| {
            OpenOptions::new().append(true).open(folder.at(name))?.sync_data()
        })
        .await
    }

    async fn sync_dir(&self) -> Result<(), DiskError> {
        self.run("sync", "", |folder, _| folder.sync_dir()).await
    }
}

fn length(path: &Path) -> io::Result<u64> {
    std::fs::metadata(path).map(|data| data.len())
}
