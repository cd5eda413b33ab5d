//! Object files of all processes, by number. Files of equal content have one number.
//!
//! Few files are open at a time. A file that is closed keeps its number, and opens with the next process that maps
//! it. A number is given to another file only after no frame can have it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::elf::{BoundedFile, ContentDigest, ElfFile, FileFacts, MemoryImage, ReadAt};
use crate::frame::FileId;
use crate::layout::FRAME_FILE_MASK;
use crate::processes::{FileStamp, MappedSource, Mapping};
use crate::symbols::{SymbolSource, debug_file_path};
use crate::unwind_rows::RowSource;

/// Maximum number of open files.
const MAX_OPEN_FILES: usize = 256;
/// Number of files beyond which numbers of unused files are given to others.
const MAX_FILES: usize = 16_384;
/// States of files with one content that are remembered, for example of the same library in several containers.
const MAX_STAMPS_PER_FILE: usize = 16;
/// Share of the memory of open files that one index may take, as a divisor.
const INDEX_DIVISOR: u64 = 4;
/// Bytes of an open file beside its tables.
const BYTES_PER_OPEN_FILE: u64 = size_of::<OpenedFile>() as u64 + 512;
/// Bytes of a file, open or not, beside its texts and stamps.
const BYTES_PER_FILE: u64 = 2 * (size_of::<ObjectFile>() + size_of::<FileIdentity>()) as u64;
/// Windows after its last use in which a file keeps its number.
const RETIRE_AFTER_WINDOWS: u64 = 3;
/// Begin of the identity of a file without a build id that cannot be read. No build id has it.
const UNREAD_PREFIX: &str = "path:";
/// Longest path in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// Object file.
pub(super) struct ObjectFile {
    pub(super) path: Arc<str>,
    /// In hex.
    pub(super) build_id: Arc<str>,
    pub(super) facts: FileFacts,
    identity: FileIdentity,
    stamps: VecDeque<FileStamp>,
    opened: Option<OpenedFile>,
    /// Window in which a process mapped it or a sample had it.
    used_in: u64,
    /// Window in which a sample had it. None if none had.
    sampled_in: Option<u64>,
}

/// Open file with what was read of it.
struct OpenedFile {
    elf: Arc<ElfFile>,
    rows: RowSource,
    /// File with the symbols that were stripped. None before it was looked for.
    debug: Option<Option<Arc<ElfFile>>>,
    /// Counted bytes.
    bytes: u64,
}

/// Identity of content. Size and digest prevent that a file with a copied build id passes for the original, whose rows
/// and names would be those of the copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FileIdentity {
    build_id: Arc<str>,
    bytes: u64,
    /// None if the file was not read.
    digest: Option<ContentDigest>,
}

/// Object files by number.
pub(super) struct ObjectFiles {
    files: HashMap<FileId, ObjectFile>,
    by_stamp: HashMap<FileStamp, FileId>,
    by_identity: HashMap<FileIdentity, FileId>,
    /// Numbers of retired files, with the window of their retirement.
    retired: VecDeque<(u64, FileId)>,
    /// Open files by their build id.
    open_by_build_id: HashMap<Arc<str>, Vec<FileId>>,
    next_number: u32,
    open_count: usize,
    open_bytes: u64,
    max_bytes: u64,
    refused_indexes: u64,
}

// === impl ObjectFiles ===

impl ObjectFiles {
    /// Creates an empty set whose open files take at most `max_bytes`.
    pub(super) fn new(max_bytes: u64) -> Self {
        Self {
            files: HashMap::new(),
            by_stamp: HashMap::new(),
            by_identity: HashMap::new(),
            retired: VecDeque::new(),
            open_by_build_id: HashMap::new(),
            next_number: 1,
            open_count: 0,
            open_bytes: 0,
            max_bytes,
            refused_indexes: 0,
        }
    }

    /// Returns a file.
    pub(super) fn get(&self, id: FileId) -> Option<&ObjectFile> {
        self.files.get(&id)
    }

    /// Returns the number of the file of a mapping, added if it is new. None if it is no ELF file that can be read.
    pub(super) fn intern(&mut self, source: MappedSource, mapping: &Mapping, window: u64) -> Option<FileId> {
        let (stamp, reader): (_, Arc<dyn ReadAt>) = match source {
            MappedSource::File { file, stamp } => {
                if let Some(id) = self.find_open(&stamp, window) {
                    return Some(id);
                }
                (Some(stamp), Arc::new(BoundedFile::new(file).ok()?))
            }
            MappedSource::Memory(bytes) => (None, Arc::new(MemoryImage(bytes.to_vec()))),
        };
        let bytes = reader.size();
        let elf = ElfFile::open(reader).ok()?;
        let build_id: Arc<str> = elf.build_id().ok()?.to_string().into();
        let digest = Some(elf.content_digest().ok()?);
        let identity = FileIdentity { build_id, bytes, digest };
        let id = match self.by_identity.get(&identity) {
            Some(&id) => id,
            None => self.add(identity, mapping, &elf, window)?,
        };
        if let Some(stamp) = stamp {
            self.add_stamp(id, stamp);
        }
        let file = self.files.get_mut(&id)?;
        file.used_in = window;
        if file.opened.is_none() {
            self.open(id, elf);
        }
        Some(id)
    }

    /// Notes a state of a file. The oldest one is forgotten above the bound, which costs one reading.
    fn add_stamp(&mut self, id: FileId, stamp: FileStamp) {
        if self.by_stamp.insert(stamp, id).is_some() {
            return;
        }
        let Some(file) = self.files.get_mut(&id) else { return };
        file.stamps.push_back(stamp);
        if file.stamps.len() > MAX_STAMPS_PER_FILE
            && let Some(oldest) = file.stamps.pop_front()
        {
            self.by_stamp.remove(&oldest);
        }
    }

    /// Opens a file. If its call frame information cannot be used, it has names and no rows.
    fn open(&mut self, id: FileId, elf: ElfFile) {
        let rows = RowSource::open_with_limit(&elf, self.max_bytes / INDEX_DIVISOR).unwrap_or_else(|error| {
            self.refused_indexes += 1;
            tracing::debug!(%error, "file has no rows, its code is unwound by frame pointer");
            RowSource::without_sections(&elf)
        });
        let bytes = BYTES_PER_OPEN_FILE + elf.memory_bytes() + rows.memory_bytes();
        let Some(file) = self.files.get_mut(&id) else { return };
        file.opened = Some(OpenedFile { elf: Arc::new(elf), rows, debug: None, bytes });
        self.open_by_build_id.entry(Arc::clone(&file.build_id)).or_default().push(id);
        self.open_count += 1;
        self.open_bytes += bytes;
        self.close_least_used(id);
    }

    fn close(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let Some(opened) = file.opened.take() else { return };
        self.open_count -= 1;
        self.open_bytes = self.open_bytes.saturating_sub(opened.bytes);
        if let Some(ids) = self.open_by_build_id.get_mut(&file.build_id) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.open_by_build_id.remove(&file.build_id);
            }
        }
    }

    fn find_open(&mut self, stamp: &FileStamp, window: u64) -> Option<FileId> {
        let id = *self.by_stamp.get(stamp)?;
        let file = self.files.get_mut(&id)?;
        file.used_in = window;
        file.opened.is_some().then_some(id)
    }

    fn add(
        &mut self,
        identity: FileIdentity,
        mapping: &Mapping,
        elf: &ElfFile,
        window: u64,
    ) -> Option<FileId> {
        let id = self.free_number(window)?;
        self.by_identity.insert(identity.clone(), id);
        let file = ObjectFile {
            path: path_text(&mapping.path),
            build_id: Arc::clone(&identity.build_id),
            facts: elf.facts(),
            identity,
            stamps: VecDeque::new(),
            opened: None,
            used_in: window,
            sampled_in: None,
        };
        self.files.insert(id, file);
        Some(id)
    }

    fn free_number(&mut self, window: u64) -> Option<FileId> {
        if let Some(&(retired_in, id)) = self.retired.front()
            && retired_in + RETIRE_AFTER_WINDOWS <= window
        {
            self.retired.pop_front();
            return Some(id);
        }
        if u64::from(self.next_number) > FRAME_FILE_MASK {
            return None;
        }
        let id = FileId(self.next_number);
        self.next_number += 1;
        Some(id)
    }

    /// Closes files until number and bytes of open ones are in their bounds, except `id`.
    fn close_least_used(&mut self, id: FileId) {
        if self.open_count <= MAX_OPEN_FILES && self.open_bytes <= self.max_bytes {
            return;
        }
        let opened = self.files.iter().filter(|(other, file)| **other != id && file.opened.is_some());
        // A process that maps many files does not close those that samples need.
        let mut by_use: Vec<(Option<u64>, u64, FileId)> =
            opened.map(|(other, file)| (file.sampled_in, file.used_in, *other)).collect();
        by_use.sort_unstable();
        // A quarter at a time, so that sorting is rare.
        let wanted_count = MAX_OPEN_FILES - MAX_OPEN_FILES / 4;
        let wanted_bytes = self.max_bytes - self.max_bytes / 4;
        for (_, _, other) in by_use {
            if self.open_count <= wanted_count && self.open_bytes <= wanted_bytes {
                return;
            }
            self.close(other);
        }
    }

    /// Returns the open file with a build id in hex. None if there are several: which one it is would be a guess.
    pub(super) fn find_by_build_id(&self, build_id: &str) -> Option<FileId> {
        match self.open_by_build_id.get(build_id)?.as_slice() {
            [id] => Some(*id),
            _ => None,
        }
    }

    /// Returns whether a file is open.
    pub(super) fn is_open(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(|file| file.opened.is_some())
    }

    /// Returns whether a file was read and is closed.
    pub(super) fn is_closed(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(|file| file.opened.is_none() && file.identity.digest.is_some())
    }

    /// Returns the ELF file, if it is open.
    pub(super) fn elf(&self, id: FileId) -> Option<&Arc<ElfFile>> {
        Some(&self.files.get(&id)?.opened.as_ref()?.elf)
    }

    /// Returns the rows of a file, if it is open.
    pub(super) fn rows(&mut self, id: FileId) -> Option<&mut RowSource> {
        Some(&mut self.files.get_mut(&id)?.opened.as_mut()?.rows)
    }

    /// Returns what names of a file are read from, if the file is open.
    pub(super) fn symbol_source(&mut self, id: FileId, debug_folder: &Path) -> Option<SymbolSource> {
        let file = self.files.get_mut(&id)?;
        let opened = file.opened.as_mut()?;
        let is_stripped = file.facts.is_stripped;
        let build_id = &file.build_id;
        let mut new_bytes = 0;
        let debug = opened.debug.get_or_insert_with(|| {
            let path = is_stripped.then(|| debug_file_path(debug_folder, build_id)).flatten()?;
            let debug = open_debug_file(&path)?;
            new_bytes = BYTES_PER_OPEN_FILE + debug.memory_bytes();
            Some(debug)
        });
        let source = SymbolSource { object: Arc::clone(&opened.elf), debug: debug.clone() };
        opened.bytes += new_bytes;
        self.open_bytes += new_bytes;
        self.close_least_used(id);
        Some(source)
    }

    /// Returns a number for a file that cannot be read, with its path and build id as far as they are known.
    pub(super) fn intern_unread(&mut self, path: &[u8], build_id: &str, window: u64) -> Option<FileId> {
        let path = path_text(path);
        let build_id: Arc<str> = match build_id {
            "" => format!("{UNREAD_PREFIX}{path}").into(),
            known => known.into(),
        };
        let identity = FileIdentity { build_id: Arc::clone(&build_id), bytes: 0, digest: None };
        if let Some(&id) = self.by_identity.get(&identity) {
            self.touch(id, window);
            return Some(id);
        }
        let id = self.free_number(window)?;
        self.by_identity.insert(identity.clone(), id);
        let build_id = if build_id.starts_with(UNREAD_PREFIX) { Arc::from("") } else { build_id };
        let file = ObjectFile {
            path,
            build_id,
            facts: FileFacts::default(),
            identity,
            stamps: VecDeque::new(),
            opened: None,
            used_in: window,
            sampled_in: None,
        };
        self.files.insert(id, file);
        Some(id)
    }

    /// Notes that a sample of a window has a file.
    pub(super) fn touch(&mut self, id: FileId, window: u64) {
        if let Some(file) = self.files.get_mut(&id) {
            file.used_in = window;
            file.sampled_in = Some(window);
        }
    }

    /// Removes files that no process maps and no recent frame has, if there are many. Returns their numbers.
    pub(super) fn retire(&mut self, mapped: &HashSet<FileId>, window: u64) -> Vec<FileId> {
        if self.files.len() <= MAX_FILES {
            return Vec::new();
        }
        let is_unused = |id: &FileId, file: &ObjectFile| {
            !mapped.contains(id) && file.used_in + RETIRE_AFTER_WINDOWS <= window
        };
        let unused: Vec<FileId> =
            self.files.iter().filter(|(id, file)| is_unused(id, file)).map(|(id, _)| *id).collect();
        for id in &unused {
            self.close(*id);
            let Some(file) = self.files.remove(id) else { continue };
            for stamp in &file.stamps {
                self.by_stamp.remove(stamp);
            }
            self.by_identity.remove(&file.identity);
            self.retired.push_back((window, *id));
        }
        unused
    }

    /// Returns the number of files whose call frame information was not used: it is damaged, or its index exceeds its
    /// bound.
    pub(super) fn refused_indexes(&self) -> u64 {
        self.refused_indexes
    }

    /// Returns the bytes of all files, about.
    pub(super) fn memory(&self) -> u64 {
        let stamps = self.by_stamp.capacity() * 2 * size_of::<(FileStamp, FileId)>();
        let texts: usize = self.files.values().map(|file| file.path.len() + file.build_id.len()).sum();
        self.open_bytes + self.files.len() as u64 * BYTES_PER_FILE + (stamps + texts) as u64
    }
}

/// Opens a file of the agent's own host.
fn open_debug_file(path: &Path) -> Option<Arc<ElfFile>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let reader = BoundedFile::new(file.into()).ok()?;
    ElfFile::open(Arc::new(reader)).ok().map(Arc::new)
}

/// Returns a path as text, cut at its bound.
fn path_text(path: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(path.get(..MAX_PATH_BYTES).unwrap_or(path)).into()
}

#[cfg(test)]
#[path = "object_files_tests.rs"]
mod tests;
