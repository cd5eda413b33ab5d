//! `/proc/PID/mountinfo`: the file system of a path or mount, without access to the file system itself.

use std::collections::HashMap;

use super::maps::DeviceNumber;

const MAX_MOUNTS: usize = 65_536;
/// File systems that may wait for another machine or process.
const REMOTE_FILE_SYSTEMS: [&[u8]; 18] = [
    b"9p",
    b"afs",
    b"autofs",
    b"beegfs",
    b"ceph",
    b"cifs",
    b"coda",
    b"gfs2",
    b"glusterfs",
    b"gpfs",
    b"lustre",
    b"ncpfs",
    b"nfs",
    b"nfs4",
    b"ocfs2",
    b"smb3",
    b"smbfs",
    b"vboxsf",
];
/// File systems whose files report another device or inode than their mappings do.
const STACKED_FILE_SYSTEMS: [&[u8]; 5] = [b"aufs", b"bcachefs", b"btrfs", b"overlay", b"shiftfs"];

/// Properties of a file system that decide how its files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// Reads end soon, and a file has one device.
    Local,
    /// Reads end soon. The device of a file may differ from that of its mapping.
    Stacked,
    /// Reads may wait for another machine or process.
    Remote,
}

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Id, unique on the machine.
    pub id: u64,
    /// Device of the file system.
    pub device: DeviceNumber,
    /// Folder of the file system that is mounted.
    pub root: Vec<u8>,
    /// Folder that it is mounted at, below the root of the process.
    pub mount_point: Vec<u8>,
    /// Type of the file system, such as `ext4`.
    pub file_system: Vec<u8>,
    /// Options of the file system, separated by commas.
    pub options: Vec<u8>,
}

/// Mounts that a process sees.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    kinds_by_id: HashMap<u64, FileSystemKind>,
    /// Mount points that are not local, with what they are. A later mount covers an earlier one.
    kinds_by_mount_point: HashMap<Vec<u8>, FileSystemKind>,
}

// === impl FileSystemKind ===

impl FileSystemKind {
    /// Returns the kind of a type of file systems.
    pub fn from_name(name: &[u8]) -> Self {
        let is_fuse = name.starts_with(b"fuse") && name != b"fusectl";
        // A type after a dot names a program that serves FUSE.
        let base = name.split(|byte| *byte == b'.').next().unwrap_or_default();
        if is_fuse || REMOTE_FILE_SYSTEMS.contains(&base) {
            Self::Remote
        } else if STACKED_FILE_SYSTEMS.contains(&name) {
            Self::Stacked
        } else {
            Self::Local
        }
    }
}

// === impl Mount ===

impl Mount {
    /// Parses the lines of a file. Malformed lines are skipped.
    pub fn parse_all(bytes: &[u8]) -> impl Iterator<Item = Self> {
        bytes.split(|byte| *byte == b'\n').take(MAX_MOUNTS).filter_map(Self::parse)
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = parse_text(fields.next()?)?;
        fields.next()?;
        let device = std::str::from_utf8(fields.next()?).ok()?;
        let (major, minor) = device.split_once(':')?;
        let root = unescape_octal(fields.next()?);
        let mount_point = unescape_octal(fields.next()?);
        // The mount options and any number of optional fields end with a dash.
        fields.find(|field| *field == b"-")?;
        let file_system = fields.next()?.to_vec();
        fields.next()?;
        let options = fields.next().unwrap_or_default().to_vec();
        let device = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
        Some(Self { id, device, root, mount_point, file_system, options })
    }
}

// === impl MountTable ===

impl MountTable {
    /// Parses the lines of a file. Malformed lines are skipped.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut table = Self::default();
        for mount in Mount::parse_all(bytes) {
            let kind = FileSystemKind::from_name(&mount.file_system);
            table.kinds_by_id.insert(mount.id, kind);
            table.kinds_by_mount_point.insert(mount.mount_point, kind);
        }
        table
    }

    /// Returns the kind of a mount by its id. Returns None if the process does not see it.
    pub fn mount_kind(&self, id: u64) -> Option<FileSystemKind> {
        self.kinds_by_id.get(&id).copied()
    }

    /// Returns whether the walk along an absolute path meets a remote file system.
    pub fn crosses_remote(&self, path: &[u8]) -> bool {
        let is_remote =
            |folder: &[u8]| self.kinds_by_mount_point.get(folder) == Some(&FileSystemKind::Remote);
        let ends = path.iter().enumerate().filter(|(position, byte)| **byte == b'/' && *position > 0);
        let mut folders = ends.filter_map(|(position, _)| path.get(..position));
        is_remote(b"/") || is_remote(path) || folders.any(is_remote)
    }
}

fn parse_text<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Replaces a backslash with three octal digits by the byte.
fn unescape_octal(text: &[u8]) -> Vec<u8> {
    let mut unescaped = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| first == b'\\');
        let byte = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match byte.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                unescaped.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                unescaped.push(first);
                rest = tail;
            }
        }
    }
    unescaped
}

#[cfg(test)]
#[path = "tests/mounts_tests.rs"]
mod tests;
