//! Archive of the first file system of a guest: cpio in the "newc" format.

use std::collections::BTreeSet;

const FOLDER_MODE: u32 = 0o040_755;
const PROGRAM_MODE: u32 = 0o100_755;
const TRAILER: &str = "TRAILER!!!";

/// Archive under construction.
#[derive(Debug, Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Initramfs {
    /// Adds a folder and its parents.
    pub fn add_folder(&mut self, path: &str) {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            if self.folders.insert(path[..end].to_owned()) {
                self.add_entry(&path[..end], FOLDER_MODE, &[]);
            }
        }
    }

    /// Adds an executable file and its folders.
    pub fn add_file(&mut self, path: &str, content: &[u8]) {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.add_folder(folder);
        }
        self.add_entry(path, PROGRAM_MODE, content);
    }

    /// Returns the archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.add_entry(TRAILER, 0, &[]);
        self.bytes
    }

    fn add_entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).unwrap();
        let name_size = path.len() as u32 + 1;
        self.bytes.extend_from_slice(b"070701");
        // Inode, mode, owner, group, links, time, size, four device numbers, size of the name, checksum.
        for field in [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0] {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
