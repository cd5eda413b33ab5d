//! `/proc/PID/mountinfo`: the file system of a path or mount, without access to the file system itself.

use std::collections::HashMap;

use super::maps::DeviceNumber;

const MAX_MOUNTS: usize = 65_536;
/// Layers of one mount that are resolved: more than overlayfs takes.
const MAX_LAYERS: usize = 512;
/// Mounts in layers that lie on each other. overlayfs takes two.
const MAX_LAYER_DEPTH: usize = 4;
/// Maximum number of folders on the paths of all layers that are looked up for one table.
const MAX_LAYER_STEPS: usize = 1 << 17;
const LAYERED_FILE_SYSTEM: &[u8] = b"overlay";
/// File systems that may wait for another machine or process.
const REMOTE_FILE_SYSTEMS: [&[u8]; 24] = [
    b"9p",
    b"acfs",
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
    b"orangefs",
    b"panfs",
    b"prl_fs",
    b"pvfs2",
    b"smb3",
    b"smbfs",
    b"vboxsf",
    b"virtiofs",
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
    /// Layers of other file systems that the table does not show, so reads may wait.
    HiddenLayers,
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
    by_id: HashMap<u64, MountEntry>,
    /// A later mount covers an earlier one.
    by_mount_point: HashMap<Vec<u8>, MountEntry>,
    /// Kinds of file systems in layers, by their device.
    layered: HashMap<DeviceNumber, FileSystemKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MountEntry {
    kind: FileSystemKind,
    device: DeviceNumber,
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
        let mut layers: HashMap<DeviceNumber, Vec<Vec<u8>>> = HashMap::new();
        for mount in Mount::parse_all(bytes) {
            let kind = FileSystemKind::from_name(&mount.file_system);
            let entry = MountEntry { kind, device: mount.device };
            if mount.file_system == LAYERED_FILE_SYSTEM {
                layers.insert(mount.device, layer_folders(&mount.options));
            }
            table.by_id.insert(mount.id, entry);
            table.by_mount_point.insert(mount.mount_point, entry);
        }
        let mut steps = MAX_LAYER_STEPS;
        for device in layers.keys() {
            let kind = table.kind_of_layers(*device, &layers, MAX_LAYER_DEPTH, &mut steps);
            table.layered.insert(*device, kind);
        }
        table
    }

    /// Parses the lines of a file that any user may have filled with mounts. Layers are not looked up.
    pub fn parse_untrusted(bytes: &[u8]) -> Self {
        let mut table = Self::default();
        for mount in Mount::parse_all(bytes) {
            let entry =
                MountEntry { kind: FileSystemKind::from_name(&mount.file_system), device: mount.device };
            if mount.file_system == LAYERED_FILE_SYSTEM {
                table.layered.insert(mount.device, FileSystemKind::HiddenLayers);
            }
            table.by_id.insert(mount.id, entry);
            table.by_mount_point.insert(mount.mount_point, entry);
        }
        table
    }

    /// Returns the kind of a mount by its id. Returns None if the process does not see it.
    pub fn mount_kind(&self, id: u64) -> Option<FileSystemKind> {
        let entry = self.by_id.get(&id)?;
        Some(self.layered.get(&entry.device).copied().unwrap_or(entry.kind))
    }

    /// Returns the device of a mount with layers by its id.
    pub(super) fn layered_device(&self, id: u64) -> Option<DeviceNumber> {
        let entry = self.by_id.get(&id)?;
        self.layered.contains_key(&entry.device).then_some(entry.device)
    }

    /// Returns the kind of a file system with layers by its device. None if the table does not have it.
    pub(super) fn layered_kind(&self, device: DeviceNumber) -> Option<FileSystemKind> {
        self.layered.get(&device).copied()
    }

    /// Returns whether a device is that of the root folder.
    pub(super) fn is_root_device(&self, device: DeviceNumber) -> bool {
        self.by_mount_point.get(b"/".as_slice()).is_some_and(|entry| entry.device == device)
    }

    /// Returns whether the walk along an absolute path meets a remote file system.
    pub fn crosses_remote(&self, path: &[u8]) -> bool {
        let is_remote = |entry: &MountEntry| {
            let kind = self.layered.get(&entry.device).copied().unwrap_or(entry.kind);
            kind == FileSystemKind::Remote
        };
        mount_points_of(path).any(|folder| self.by_mount_point.get(folder).is_some_and(is_remote))
    }

    /// Returns the worst kind of the layers of a file system.
    fn kind_of_layers(
        &self,
        device: DeviceNumber,
        layers: &HashMap<DeviceNumber, Vec<Vec<u8>>>,
        depth: usize,
        steps: &mut usize,
    ) -> FileSystemKind {
        let folders = layers.get(&device).map(Vec::as_slice).unwrap_or_default();
        let mut worst = FileSystemKind::Stacked;
        if folders.is_empty() || depth == 0 {
            worst = FileSystemKind::HiddenLayers;
        }
        for folder in folders.iter().take(if depth == 0 { 0 } else { MAX_LAYERS }) {
            match steps.checked_sub(mount_points_of(folder).count()) {
                Some(rest) => *steps = rest,
                None => return FileSystemKind::HiddenLayers,
            }
            let found = mount_points_of(folder).filter_map(|point| self.by_mount_point.get(point)).last();
            let kind = match found {
                _ if self.crosses_unlayered_remote(folder) => FileSystemKind::Remote,
                // The table is not that of the process that mounted it.
                None => FileSystemKind::HiddenLayers,
                Some(entry) if entry.device == device => FileSystemKind::HiddenLayers,
                Some(entry) if layers.contains_key(&entry.device) => {
                    self.kind_of_layers(entry.device, layers, depth - 1, steps)
                }
                Some(entry) => entry.kind,
            };
            match kind {
                FileSystemKind::Remote => return FileSystemKind::Remote,
                FileSystemKind::HiddenLayers => worst = FileSystemKind::HiddenLayers,
                FileSystemKind::Local | FileSystemKind::Stacked => {}
            }
        }
        worst
    }

    fn crosses_unlayered_remote(&self, path: &[u8]) -> bool {
        let is_remote = |entry: &MountEntry| entry.kind == FileSystemKind::Remote;
        mount_points_of(path).any(|folder| self.by_mount_point.get(folder).is_some_and(is_remote))
    }
}

/// Returns the folders on an absolute path, from the root to the path itself. None for a relative path.
fn mount_points_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(position, byte)| **byte == b'/' && *position > 0);
    let folders = ends.filter_map(|(position, _)| path.get(..position));
    let root = std::iter::once(b"/".as_slice());
    let is_absolute = path.first().is_none_or(|byte| *byte == b'/');
    root.chain(folders).chain(std::iter::once(path)).take(if is_absolute { usize::MAX } else { 0 })
}

/// Returns the folders of all layers in the options of overlayfs. The kernel writes commas and backslashes of values as
/// octal digits.
fn layer_folders(options: &[u8]) -> Vec<Vec<u8>> {
    let mut folders = Vec::new();
    for option in options.split(|byte| *byte == b',') {
        let Some(position) = option.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = option.split_at(position);
        let value = unescape_octal(value.get(1..).unwrap_or_default());
        match name {
            // An empty part stands before layers with data only.
            b"lowerdir" => folders.extend(
                split_escaped(&value, b':').filter(|folder| !folder.is_empty()).map(unescape_backslashes),
            ),
            b"lowerdir+" | b"datadir+" | b"upperdir" | b"workdir" => {
                folders.push(unescape_backslashes(&value));
            }
            _ => {}
        }
        if folders.len() > MAX_LAYERS {
            // Not all of them would be resolved.
            return Vec::new();
        }
    }
    folders
}

/// Splits a text at a byte that no backslash precedes.
fn split_escaped(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut is_escaped = false;
    text.split(move |byte| {
        let is_end = *byte == separator && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    })
}

/// Removes the backslashes that overlayfs puts before separators.
fn unescape_backslashes(text: &[u8]) -> Vec<u8> {
    let mut unescaped = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        unescaped.push(if byte == b'\\' { bytes.next().copied().unwrap_or(byte) } else { byte });
    }
    unescaped
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
