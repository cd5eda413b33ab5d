//! Safe opening of mapped files.
//!
//! Ways to a file, in this order:
//!
//! 1. `map_files/START-END`: the mapped file itself, also if it was deleted or lies outside of the root of the
//!    process. Needs CAP_CHECKPOINT_RESTORE.
//! 2. `exe`: the executable, also if it was deleted.
//! 3. The path below `root`, without symbolic links: paths of mappings have none, so a link was put there later.
//!
//! Paths of mappings are those that the process sees: [`ProcessFolder::mappings`] removes the path of its root.
//!
//! The walk along the path uses the cache of the kernel only, which has the path of each mapped file. So it does not
//! wait for a file system that was mounted over the path meanwhile.
//!
//! Each way first gives a descriptor with `O_PATH`, which accesses no file system. The mount of that descriptor
//! decides whether the file system is remote. Only a regular file of a local one is opened for reading. Its inode
//! and device must be those of the mapping. File systems in layers (overlayfs, btrfs) report another device for a
//! file than for its mapping. The layers of overlayfs are looked up in the mounts of the agent, of the first process,
//! and, in the user namespace of the agent, of the process itself. A layer that is remote or that none of them shows
//! makes the file system remote, but the root of the agent is read in any case. On file systems in layers the path must be equal, and the inode too, unless the file was found by the link of the
//! mapping itself.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::error::{OpenError, escaped_path};
use super::folder::{ProcFolder, ProcessFolder};
use super::maps::{DeviceNumber, Mapping, MappingKind};
use super::mounts::{FileSystemKind, MountTable};
use super::vdso::VdsoImage;

const MAX_MOUNT_TABLES: usize = 64;
const FIRST_PROCESS: u32 = 1;

/// Bytes of a mapping.
#[derive(Debug)]
pub enum MappedSource {
    /// Regular file on a local file system.
    File {
        /// Open file, for reads at positions.
        file: File,
        /// State of the file when it was opened.
        stamp: FileStamp,
    },
    /// Copy of memory, for the vdso. All processes have the same one.
    Memory(Arc<[u8]>),
}

/// State of a file: equal stamps mean equal content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileStamp {
    /// Device.
    pub device: DeviceNumber,
    /// Inode.
    pub inode: u64,
    /// Size.
    pub bytes: u64,
    /// Last change of content, nanoseconds since 1970.
    pub modified_nanos: i128,
    /// Last change of content or attributes, nanoseconds since 1970.
    pub changed_nanos: i128,
}

/// Opens mapped files. Keeps the tables of mounts of a few mount namespaces.
#[derive(Debug)]
pub struct MappedFileOpener {
    mount_tables: HashMap<Vec<u8>, Arc<ProcessMounts>>,
    own_mounts: MountTable,
    /// Mounts of the first process, which are those of the host if the agent sees its processes. Read when needed.
    first_mounts: Option<MountTable>,
    own_user_namespace: Option<Vec<u8>>,
    /// Device of files that exist in memory only (memfd), which no table of mounts has.
    memory_device: Option<DeviceNumber>,
    vdso: Option<VdsoImage>,
}

/// Mounts that a process sees.
#[derive(Debug, Default)]
struct ProcessMounts {
    table: MountTable,
    /// The process has the user namespace of the agent, so only privileged processes mounted something.
    is_trusted: bool,
}

/// File that is found but not opened for reading yet.
struct FoundFile {
    fd: OwnedFd,
    /// The kernel gives the file the path of the mapping.
    has_mapped_path: bool,
    /// Found by the link of the mapping itself.
    is_by_range: bool,
}

// === impl MappedFileOpener ===

impl MappedFileOpener {
    /// Creates an opener with the mounts of the agent (`/proc/self/mountinfo`).
    pub fn new(own_mounts: &[u8], vdso: Option<VdsoImage>) -> Self {
        Self {
            mount_tables: HashMap::new(),
            own_mounts: MountTable::parse(own_mounts),
            first_mounts: None,
            own_user_namespace: None,
            memory_device: memory_device(),
            vdso,
        }
    }

    /// Forgets the tables of mounts, so that later mounts are seen.
    pub fn forget_mounts(&mut self, proc_folder: &ProcFolder) {
        self.mount_tables.clear();
        self.first_mounts = None;
        if let Ok(bytes) = proc_folder.own_mounts() {
            self.own_mounts = MountTable::parse(&bytes);
        }
    }

    /// Opens the file of a mapping that was read from `/proc`, or returns the vdso.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be reached, is another one now, or could block the agent.
    pub fn open(
        &mut self,
        proc_folder: &ProcFolder,
        process: &ProcessFolder,
        mapping: &Mapping,
    ) -> Result<MappedSource, OpenError> {
        match mapping.kind {
            MappingKind::Anonymous => return Err(OpenError::Anonymous { start: mapping.start }),
            MappingKind::Vdso => return self.copy_vdso(mapping),
            MappingKind::File => {}
        }
        self.read_trusted_mounts(proc_folder);
        let mounts = self.load_mounts(process);
        let mut last_error = Errno::NOENT;
        let mut refusal = None;
        for find in [find_by_range, find_by_executable, find_by_path] {
            match find(process, mapping, &mounts.table) {
                Ok(found) => match self.check(&found, mapping, &mounts) {
                    Ok(stamp) => return read_file(proc_folder, &found, stamp, mapping),
                    // The executable is another file than a library, and a range may be mapped otherwise by now.
                    Err(OpenError::Replaced { .. }) if !found.has_mapped_path => {}
                    Err(error @ OpenError::Replaced { .. }) => refusal = Some(error),
                    Err(error) => return Err(error),
                },
                Err(Some(errno)) => last_error = errno,
                Err(None) => return Err(OpenError::Remote { path: escaped_path(mapping) }),
            }
        }
        let unreachable =
            || OpenError::Unreachable { path: escaped_path(mapping), source: last_error.into() };
        Err(refusal.unwrap_or_else(unreachable))
    }

    fn copy_vdso(&self, mapping: &Mapping) -> Result<MappedSource, OpenError> {
        let image = self.vdso.as_ref().filter(|image| image.is_mapped_at(mapping));
        let image = image.ok_or(OpenError::OtherVdso { start: mapping.start })?;
        Ok(MappedSource::Memory(Arc::clone(&image.bytes)))
    }

    fn read_trusted_mounts(&mut self, proc_folder: &ProcFolder) {
        if self.first_mounts.is_none() {
            let bytes = proc_folder.open_process(FIRST_PROCESS).and_then(|process| process.mounts());
            self.first_mounts = Some(MountTable::parse(&bytes.unwrap_or_default()));
        }
        if self.own_user_namespace.is_none() {
            let own = proc_folder.open_process(std::process::id());
            self.own_user_namespace = own.ok().and_then(|process| process.link("ns/user").ok());
        }
    }

    /// Returns the mounts of the mount namespace of a process.
    fn load_mounts(&mut self, process: &ProcessFolder) -> Arc<ProcessMounts> {
        // Processes of one namespace with different roots see different mounts.
        let user_namespace = process.link("ns/user").ok();
        let is_trusted = user_namespace.is_some() && user_namespace == self.own_user_namespace;
        let namespace = process.link("ns/mnt").map(|namespace| {
            [namespace.as_slice(), process.root_path(), &user_namespace.unwrap_or_default()].join(&0)
        });
        if let Some(table) = namespace.as_ref().ok().and_then(|key| self.mount_tables.get(key)) {
            return Arc::clone(table);
        }
        let bytes = process.mounts().unwrap_or_default();
        let parse = if is_trusted { MountTable::parse } else { MountTable::parse_untrusted };
        let table = Arc::new(ProcessMounts { table: parse(&bytes), is_trusted });
        if self.mount_tables.len() >= MAX_MOUNT_TABLES {
            self.mount_tables.clear();
        }
        if let Ok(key) = namespace {
            self.mount_tables.insert(key, Arc::clone(&table));
        }
        table
    }

    /// Checks that a found file may be read and is that of the mapping.
    fn check(
        &self,
        found: &FoundFile,
        mapping: &Mapping,
        mounts: &ProcessMounts,
    ) -> Result<FileStamp, OpenError> {
        let path = || escaped_path(mapping);
        // Without a request to the server of a remote file system.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let status = rustix::fs::statx(&found.fd, c"", flags, mask)
            .map_err(|errno| OpenError::Unreachable { path: path(), source: errno.into() })?;
        let stamp = FileStamp::from_status(&status);
        let kind = self.file_system_kind(&status, stamp.device, mounts);
        let kind = kind.ok_or_else(|| OpenError::UnknownFileSystem { path: path() })?;
        if matches!(kind, FileSystemKind::Remote | FileSystemKind::HiddenLayers) {
            return Err(OpenError::Remote { path: path() });
        }
        let mode = u32::from(status.stx_mode);
        if FileType::from_raw_mode(mode) != FileType::RegularFile {
            return Err(OpenError::NotRegular { path: path(), mode });
        }
        let is_same_inode = stamp.inode == mapping.inode;
        let is_same = match kind {
            FileSystemKind::Stacked => found.has_mapped_path && (is_same_inode || found.is_by_range),
            _ => is_same_inode && stamp.device == mapping.device,
        };
        if !is_same {
            return Err(OpenError::Replaced {
                path: path(),
                mapped_device: mapping.device,
                mapped_inode: mapping.inode,
                found_device: stamp.device,
                found_inode: stamp.inode,
            });
        }
        Ok(stamp)
    }

    fn file_system_kind(
        &self,
        status: &Statx,
        device: DeviceNumber,
        mounts: &ProcessMounts,
    ) -> Option<FileSystemKind> {
        let has_mount_id = status.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let id = has_mount_id.then_some(status.stx_mnt_id);
        let by_mount = id.and_then(|id| {
            let layered = mounts.table.layered_device(id).or_else(|| self.own_mounts.layered_device(id));
            if let Some(device) = layered {
                return Some(self.layered_kind(device, mounts));
            }
            mounts.table.mount_kind(id).or_else(|| self.own_mounts.mount_kind(id))
        });
        let is_local = self.memory_device == Some(device) || device.major != 0;
        by_mount.or(is_local.then_some(FileSystemKind::Local))
    }

    /// Returns the kind of a file system with layers: by the first table that a privileged process made and that shows
    /// it.
    fn layered_kind(&self, device: DeviceNumber, mounts: &ProcessMounts) -> FileSystemKind {
        let first = self.first_mounts.as_ref();
        let of_process = mounts.is_trusted.then_some(&mounts.table);
        let tables = [Some(&self.own_mounts), first, of_process].into_iter().flatten();
        let mut kinds = tables.filter_map(|table| table.layered_kind(device));
        match kinds.find(|kind| *kind != FileSystemKind::HiddenLayers) {
            Some(kind) => kind,
            // The agent itself was read from there.
            None if self.own_mounts.is_root_device(device) => FileSystemKind::Stacked,
            // A privileged process mounted it, from a mount namespace that no table shows.
            None if of_process.is_some() => FileSystemKind::Stacked,
            None => FileSystemKind::HiddenLayers,
        }
    }
}

// === impl FileStamp ===

impl FileStamp {
    fn from_status(status: &Statx) -> Self {
        let nanos = |seconds: i64, nanos: u32| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            device: DeviceNumber { major: status.stx_dev_major, minor: status.stx_dev_minor },
            inode: status.stx_ino,
            bytes: status.stx_size,
            modified_nanos: nanos(status.stx_mtime.tv_sec, status.stx_mtime.tv_nsec),
            changed_nanos: nanos(status.stx_ctime.tv_sec, status.stx_ctime.tv_nsec),
        }
    }
}

const FIND_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Result of a way to a file. The error None means that the way crosses a remote file system.
type FindResult = Result<FoundFile, Option<Errno>>;

fn find_by_range(process: &ProcessFolder, mapping: &Mapping, _: &MountTable) -> FindResult {
    let link = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
    find_by_link(process, mapping, &link)
}

fn find_by_executable(process: &ProcessFolder, mapping: &Mapping, _: &MountTable) -> FindResult {
    find_by_link(process, mapping, "exe")
}

fn find_by_link(process: &ProcessFolder, mapping: &Mapping, link: &str) -> FindResult {
    let fd = rustix::fs::openat(process.fd(), link, FIND_FLAGS, Mode::empty()).map_err(Some)?;
    let target = rustix::fs::readlinkat(process.fd(), link, Vec::new()).map_err(Some)?;
    let target = target.as_bytes();
    let path = if mapping.is_deleted { target.strip_suffix(b" (deleted)") } else { Some(target) };
    let has_mapped_path = path.is_some_and(|path| process.path_in_root(path) == &*mapping.path);
    Ok(FoundFile { fd, has_mapped_path, is_by_range: link != "exe" })
}

fn find_by_path(process: &ProcessFolder, mapping: &Mapping, mounts: &MountTable) -> FindResult {
    if mapping.is_deleted {
        return Err(Some(Errno::NOENT));
    }
    if mounts.crosses_remote(&mapping.path) {
        return Err(None);
    }
    let flags = FIND_FLAGS | OFlags::DIRECTORY;
    let root = rustix::fs::openat(process.fd(), "root", flags, Mode::empty()).map_err(Some)?;
    let resolve = ResolveFlags::IN_ROOT
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::CACHED;
    let path = OsStr::from_bytes(&mapping.path);
    let fd = rustix::fs::openat2(&root, path, FIND_FLAGS, Mode::empty(), resolve).map_err(Some)?;
    Ok(FoundFile { fd, has_mapped_path: true, is_by_range: false })
}

fn read_file(
    proc_folder: &ProcFolder,
    found: &FoundFile,
    stamp: FileStamp,
    mapping: &Mapping,
) -> Result<MappedSource, OpenError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = proc_folder
        .reopen(found.fd.as_fd(), flags)
        .map_err(|errno| OpenError::Unreachable { path: escaped_path(mapping), source: errno.into() })?;
    Ok(MappedSource::File { file: File::from(fd), stamp })
}

fn memory_device() -> Option<DeviceNumber> {
    let fd = rustix::fs::memfd_create(c"athanor", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let status = rustix::fs::fstat(&fd).ok()?;
    let major = rustix::fs::major(status.st_dev);
    Some(DeviceNumber { major, minor: rustix::fs::minor(status.st_dev) })
}

#[cfg(test)]
#[path = "tests/mapped_file_tests.rs"]
mod tests;
