//! Paths of cgroups by id.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::Clock;
use rustix::fs::{Dir, FileType, Mode, OFlags};

use crate::processes::Mount;

const MAX_CGROUPS: usize = 16_384;
const MAX_DEPTH: usize = 64;
const MAX_PATH_BYTES: usize = 4096;
const SCAN_TIMEOUT: Duration = Duration::from_millis(500);
const MIN_SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// A scan is followed by a pause of this many times its length.
const SCAN_PAUSE_FACTOR: u32 = 200;

/// Cache of the paths in the v2 hierarchy. The id of a cgroup is the inode of its folder.
#[derive(Debug)]
pub struct CgroupIndex {
    hierarchy: Option<Hierarchy>,
    has_v1: bool,
    paths: HashMap<u64, Arc<str>>,
    next_scan: Duration,
}

/// Mount of the v2 hierarchy.
#[derive(Debug)]
struct Hierarchy {
    folder: OwnedFd,
    /// Path of the cgroup that is mounted, `/` for the root of the namespace.
    root: Vec<u8>,
}

/// Folder that a scan has found.
struct FoundFolder {
    /// Path below the mount, without a slash at its start.
    path: Vec<u8>,
    depth: usize,
}

// === impl CgroupIndex ===

impl CgroupIndex {
    /// Finds the v2 hierarchy in the mounts of the agent (`/proc/self/mountinfo`).
    pub fn new(own_mounts: &[u8]) -> Self {
        let mut hierarchy = None;
        let mut has_v1 = false;
        for mount in Mount::parse_all(own_mounts) {
            match mount.file_system.as_slice() {
                b"cgroup2" if hierarchy.is_none() => hierarchy = Hierarchy::open(&mount),
                b"cgroup" => has_v1 = true,
                _ => {}
            }
        }
        Self { hierarchy, has_v1, paths: HashMap::new(), next_scan: Duration::ZERO }
    }

    /// Returns whether ids of samples name the cgroups of containers and services: the layout is v2, not hybrid.
    pub fn has_useful_ids(&self) -> bool {
        self.hierarchy.is_some() && !self.has_v1
    }

    /// Returns the path of a cgroup that is in the cache.
    pub fn cached_path(&self, id: u64) -> Option<Arc<str>> {
        self.paths.get(&id).cloned()
    }

    /// Returns the path of a cgroup. If it is not in the cache, scans the hierarchy, unless the last scan was a
    /// short time ago.
    pub fn path(&mut self, id: u64, clock: &Clock) -> Option<Arc<str>> {
        if !self.paths.contains_key(&id) && clock.monotonic() >= self.next_scan {
            self.scan(clock);
        }
        self.cached_path(id)
    }

    /// Adds a cgroup that a record names.
    pub fn insert(&mut self, id: u64, path: &[u8]) {
        if self.paths.len() >= MAX_CGROUPS {
            self.paths.clear();
        }
        let path = path.get(..path.len().min(MAX_PATH_BYTES)).unwrap_or_default();
        self.paths.insert(id, String::from_utf8_lossy(path).into());
    }

    /// Adds the path of a process that has this id, if the folder has it too: the process may have moved meanwhile.
    pub fn insert_checked(&mut self, id: u64, path: &str) {
        let Some(hierarchy) = &self.hierarchy else { return };
        if hierarchy.read_id(path) == Some(id) {
            self.insert(id, path.as_bytes());
        }
    }

    fn scan(&mut self, clock: &Clock) {
        let started = clock.monotonic();
        if let Some(hierarchy) = &self.hierarchy {
            let found = hierarchy.scan(clock, started.saturating_add(SCAN_TIMEOUT));
            if self.paths.len().saturating_add(found.len()) > MAX_CGROUPS {
                self.paths.clear();
            }
            self.paths.extend(found);
        }
        let ended = clock.monotonic();
        let pause = ended.saturating_sub(started).saturating_mul(SCAN_PAUSE_FACTOR);
        self.next_scan = ended.saturating_add(pause.max(MIN_SCAN_INTERVAL));
    }
}

// === impl Hierarchy ===

const FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

impl Hierarchy {
    fn open(mount: &Mount) -> Option<Self> {
        let path = OsStr::from_bytes(&mount.mount_point);
        let folder = rustix::fs::open(path, FOLDER_FLAGS, Mode::empty()).ok()?;
        Some(Self { folder, root: mount.root.clone() })
    }

    /// Returns the id of the cgroup with a path.
    fn read_id(&self, path: &str) -> Option<u64> {
        let relative = match self.root.as_slice() {
            b"/" => path.as_bytes(),
            root => {
                path.as_bytes().strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))?
            }
        };
        let relative = relative.strip_prefix(b"/").unwrap_or(relative);
        if relative.split(|byte| *byte == b'/').any(|part| part == b"..") {
            return None;
        }
        let status = match relative {
            b"" => rustix::fs::fstat(&self.folder),
            relative => {
                let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::statat(&self.folder, OsStr::from_bytes(relative), flags)
            }
        };
        Some(status.ok()?.st_ino)
    }

    /// Returns the cgroups of the hierarchy, those near the root first.
    fn scan(&self, clock: &Clock, deadline: Duration) -> HashMap<u64, Arc<str>> {
        let mut paths = HashMap::new();
        if let Ok(status) = rustix::fs::fstat(&self.folder) {
            paths.insert(status.st_ino, self.join_path(b""));
        }
        let mut waiting = std::collections::VecDeque::from([FoundFolder { path: Vec::new(), depth: 0 }]);
        while let Some(folder) = waiting.pop_front() {
            if clock.monotonic() > deadline || paths.len() >= MAX_CGROUPS {
                break;
            }
            let name = if folder.path.is_empty() { b"." } else { folder.path.as_slice() };
            let opened =
                rustix::fs::openat(&self.folder, OsStr::from_bytes(name), FOLDER_FLAGS, Mode::empty());
            let Some(entries) = opened.ok().and_then(|fd| Dir::new(fd).ok()) else { continue };
            for entry in entries.map_while(Result::ok) {
                let name = entry.file_name().to_bytes();
                let is_folder = entry.file_type() == FileType::Directory && name != b"." && name != b"..";
                if !is_folder || paths.len() >= MAX_CGROUPS {
                    continue;
                }
                let path = match folder.path.as_slice() {
                    b"" => name.to_vec(),
                    parent => [parent, name].join(&b'/'),
                };
                if path.len() > MAX_PATH_BYTES {
                    continue;
                }
                paths.insert(entry.ino(), self.join_path(&path));
                if folder.depth < MAX_DEPTH {
                    waiting.push_back(FoundFolder { path, depth: folder.depth + 1 });
                }
            }
        }
        paths
    }

    fn join_path(&self, relative: &[u8]) -> Arc<str> {
        let root = self.root.strip_suffix(b"/").unwrap_or(&self.root);
        let path = if relative.is_empty() && !root.is_empty() {
            root.to_vec()
        } else {
            [root, relative].join(&b'/')
        };
        String::from_utf8_lossy(&path).into()
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
