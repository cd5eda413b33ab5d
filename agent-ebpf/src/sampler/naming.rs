//! Facts, files and names of a window.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::frame::{FileId, FrameCode, PackedFrame};
use crate::layout::{
    FRAME_FILE_ADDRESS_MASK, FRAME_FILE_BIT, FRAME_FILE_SHIFT, FRAME_POINTER_BIT, PROCESS_REQUESTED,
};
use crate::processes::{Mapping, MappingKind, ProcessRequest};
use crate::window::{CountedStack, FrameName, SampleWindow, SampledFile, SampledProcess};

use super::object_files::ObjectFiles;
use super::requests::nanos_of_kernel_clock;
use super::window_builder::WindowStacks;
use super::{Sampler, SamplerError, WindowStart};

/// Windows between two searches for abandoned requests.
const WINDOWS_PER_SWEEP: u64 = 6;
/// Age of the last request of a process that is still sampled.
const MAX_REQUEST_AGE: Duration = Duration::from_secs(60);
/// Closed files that are opened for the names of one window.
const MAX_REOPENED_FILES: usize = 64;
/// Processes by which a closed file is searched.
const MAX_PROCESSES_PER_FILE: usize = 4;
/// Folder with the symbols that were stripped from packages.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// Files and biases of mappings of processes that were not loaded, for one window.
#[derive(Default)]
struct ResolvedMappings {
    by_start: HashMap<(ProcessRequest, u64), Option<(FileId, u64)>>,
}

/// Returns file and bias of a mapping that records or `/proc` name.
fn resolve_mapping(files: &mut ObjectFiles, mapping: &Mapping, window: u64) -> Option<(FileId, u64)> {
    let build_id = mapping.build_id.map(|id| id.to_hex()).unwrap_or_default();
    let known = files.find_by_build_id(&build_id);
    let bias = known
        .and_then(|id| files.elf(id)?.bias_of(mapping.start, mapping.offset, mapping.end - mapping.start));
    if let (Some(id), Some(bias)) = (known, bias) {
        return Some((id, bias));
    }
    // Without the file, the offset in it is what is known.
    let id = files.intern_unread(&mapping.path, &build_id, window)?;
    Some((id, mapping.start.wrapping_sub(mapping.offset)))
}

/// Returns the numbers of a few processes whose stacks have frames of these files, by file.
fn processes_by_file(files: &HashSet<FileId>, stacks: &[CountedStack]) -> HashMap<FileId, Vec<u32>> {
    let mut processes: HashMap<FileId, Vec<u32>> = HashMap::new();
    for stack in stacks {
        for frame in stack.frames.iter() {
            let FrameCode::File { file, .. } = frame.code() else { continue };
            if !files.contains(&file) {
                continue;
            }
            let numbers = processes.entry(file).or_default();
            if numbers.len() < MAX_PROCESSES_PER_FILE && !numbers.contains(&stack.process) {
                numbers.push(stack.process);
            }
        }
    }
    processes
}

/// Names of a window within a bound of bytes. Frames without a name keep their address.
struct WindowNames {
    by_code: HashMap<FrameCode, FrameName>,
    /// Function of the last name, whose text the next one may share.
    last_function: Option<Arc<str>>,
    bytes: usize,
    max_bytes: usize,
    dropped: u64,
}

impl WindowNames {
    /// Bytes of an entry beside its texts: a growing table has up to twice as many places as entries.
    const ENTRY_BYTES: usize = 2 * size_of::<(FrameCode, FrameName)>();

    fn new(max_bytes: usize) -> Self {
        Self { by_code: HashMap::new(), last_function: None, bytes: 0, max_bytes, dropped: 0 }
    }

    fn insert(&mut self, code: FrameCode, name: FrameName) {
        let is_shared = self.last_function.as_ref().is_some_and(|last| Arc::ptr_eq(last, &name.function));
        let text_bytes = if is_shared { 0 } else { name.text_bytes() };
        let bytes = self.bytes.saturating_add(Self::ENTRY_BYTES).saturating_add(text_bytes);
        if bytes > self.max_bytes {
            self.dropped += 1;
            return;
        }
        self.bytes = bytes;
        self.last_function = Some(Arc::clone(&name.function));
        self.by_code.insert(code, name);
    }
}

impl Sampler {
    /// Makes the result of a window.
    pub(super) fn build_window(
        &mut self,
        stacks: WindowStacks,
        start: WindowStart,
        duration: Duration,
        period_nanos: u64,
    ) -> SampleWindow {
        let window = self.kernel.window();
        let mut counted = stacks.stacks;
        let mut resolved = ResolvedMappings::default();
        for stack in &mut counted {
            if let Some(process) = stacks.processes.get(stack.process as usize) {
                let request = ProcessRequest::from_stack(process);
                self.loaded.touch(&request, window);
                self.resolve_frames(stack, &request, &mut resolved);
            }
        }
        let facts = stacks.processes.iter().map(|key| SampledProcess { facts: self.processes.facts(key) });
        let processes = facts.collect();
        // First, so that files of this window are closed last.
        let files = self.sampled_files(&counted, window);
        let names = if self.config.symbolize {
            let requests: Vec<_> = stacks.processes.iter().map(ProcessRequest::from_stack).collect();
            self.find_names(&counted, &requests)
        } else {
            HashMap::new()
        };
        SampleWindow {
            started_at: start.wall,
            duration,
            period_nanos,
            processes,
            files,
            stacks: counted,
            names,
        }
    }

    /// Replaces addresses of a process by addresses in files, as far as its mappings are known now.
    fn resolve_frames(
        &mut self,
        stack: &mut CountedStack,
        request: &ProcessRequest,
        resolved_mappings: &mut ResolvedMappings,
    ) {
        let is_other = |frame: &PackedFrame| matches!(frame.code(), FrameCode::Other(_));
        if !stack.frames.iter().any(is_other) {
            return;
        }
        let resolved = stack.frames.iter().map(|frame| match frame.code() {
            FrameCode::Other(address) => {
                let found = self.resolve_address(address, request, resolved_mappings);
                found.map_or(*frame, |(file, address)| {
                    let mark = frame.0 & FRAME_POINTER_BIT;
                    PackedFrame(FRAME_FILE_BIT | mark | u64::from(file.0) << FRAME_FILE_SHIFT | address)
                })
            }
            _ => *frame,
        });
        stack.frames = resolved.collect::<Vec<_>>().into();
    }

    fn resolve_address(
        &mut self,
        address: u64,
        request: &ProcessRequest,
        resolved_mappings: &mut ResolvedMappings,
    ) -> Option<(FileId, u64)> {
        let (file, bias) = match self.loaded.get(request).and_then(|loaded| loaded.mapping_at(address)) {
            Some(value) => (FileId(value.file), value.bias),
            None => {
                let mapping = self.processes.resolve(request, address)?;
                if mapping.kind != MappingKind::File {
                    return None;
                }
                let key = (*request, mapping.start);
                let found = resolved_mappings.by_start.get(&key).copied();
                let window = self.kernel.window();
                let found = found.unwrap_or_else(|| resolve_mapping(&mut self.files, mapping, window));
                resolved_mappings.by_start.insert(key, found);
                found?
            }
        };
        let file_address = address.wrapping_sub(bias);
        (file_address <= FRAME_FILE_ADDRESS_MASK).then_some((file, file_address))
    }

    /// Returns the names of the frames of stacks. `processes` are those of the stacks by number.
    fn find_names(
        &mut self,
        stacks: &[CountedStack],
        processes: &[ProcessRequest],
    ) -> HashMap<FrameCode, FrameName> {
        if let Some(kallsyms) = &self.kernel_symbols {
            let folder = &self.config.proc_folder;
            let refreshed = self.symbolizer.refresh_kernel(folder, kallsyms, self.clock.monotonic());
            if let Err(error) = refreshed
                && !self.has_reported_kallsyms
            {
                self.has_reported_kallsyms = true;
                tracing::warn!(%error, "kernel frames have no names");
            }
        }
        let frames = stacks.iter().flat_map(|stack| stack.frames.iter());
        let unmarked: HashSet<u64> = frames.map(|frame| frame.unmarked().0).collect();
        // File by file, so that each table is read once.
        let mut unmarked: Vec<u64> = unmarked.into_iter().collect();
        unmarked.sort_unstable();
        let codes = unmarked.into_iter().map(|frame| PackedFrame(frame).code());
        let mut names = WindowNames::new(self.max_window_name_bytes);
        let mut unnamed = Vec::new();
        for code in codes {
            let name = match code {
                FrameCode::Kernel(address) => self.symbolizer.kernel_name(address),
                FrameCode::File { file, address } => {
                    let name = self.name_in_file(file, address);
                    if name.is_none()
                        && self.files.is_closed(file)
                        && !self.symbolizer.is_known(file, address)
                    {
                        unnamed.push((file, address));
                    }
                    name
                }
                FrameCode::Other(_) => None,
            };
            if let Some(name) = name {
                names.insert(code, name);
            }
        }
        self.find_names_in_closed_files(&unnamed, stacks, processes, &mut names);
        self.window_name_bytes = names.bytes;
        self.names_dropped += names.dropped;
        names.by_code
    }

    fn name_in_file(&mut self, file: FileId, address: u64) -> Option<FrameName> {
        let files = &mut self.files;
        self.symbolizer.name_of(file, || files.symbol_source(file, Path::new(DEBUG_FOLDER)), address)
    }

    /// Adds the names of addresses in closed files, which processes of the window map. Addresses of one file follow
    /// each other.
    fn find_names_in_closed_files(
        &mut self,
        addresses: &[(FileId, u64)],
        stacks: &[CountedStack],
        processes: &[ProcessRequest],
        names: &mut WindowNames,
    ) {
        if addresses.is_empty() {
            return;
        }
        let closed: HashSet<FileId> = addresses.iter().map(|(file, _)| *file).collect();
        let users = processes_by_file(&closed, stacks);
        // Each window goes on after the last file of the one before, so that each file has its turn.
        let first = addresses.partition_point(|(file, _)| *file <= self.last_reopened_file);
        let later = addresses.get(first..).unwrap_or_default();
        let earlier = addresses.get(..first).unwrap_or_default();
        let by_file = [later, earlier].map(|part| part.chunk_by(|left, right| left.0 == right.0));
        let by_file = by_file.into_iter().flatten();
        for addresses in by_file.take(MAX_REOPENED_FILES) {
            let Some(&(file, _)) = addresses.first() else { continue };
            self.last_reopened_file = file;
            let numbers = users.get(&file).into_iter().flatten();
            let mut requests = numbers.filter_map(|number| processes.get(*number as usize));
            if !requests.any(|request| self.reopen_mapped_file(request, file)) {
                continue;
            }
            for &(file, address) in addresses {
                if let Some(name) = self.name_in_file(file, address) {
                    names.insert(FrameCode::File { file, address }, name);
                }
            }
        }
    }

    fn sampled_files(&mut self, stacks: &[CountedStack], window: u64) -> Vec<SampledFile> {
        let mut ids: Vec<FileId> = Vec::new();
        for frame in stacks.iter().flat_map(|stack| stack.frames.iter()) {
            if let FrameCode::File { file, .. } = frame.code() {
                ids.push(file);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        for id in &ids {
            self.files.touch(*id, window);
        }
        let known = ids.iter().filter_map(|id| Some((*id, self.files.get(*id)?)));
        known
            .map(|(id, file)| SampledFile {
                id,
                path: Arc::clone(&file.path),
                build_id: Arc::clone(&file.build_id),
            })
            .collect()
    }

    /// Removes what ended processes and unused files leave behind.
    pub(super) fn end_process_window(&mut self) -> Result<(), SamplerError> {
        for removed in self.processes.end_window() {
            self.processes_evicted += u64::from(removed.is_evicted);
            self.changed.remove(&removed.pid);
            self.unload_process(removed.pid)?;
        }
        self.loaded.forget_old_refusals(self.clock.monotonic());
        self.remove_abandoned_requests()?;
        self.pages.track_use(&self.kernel)?;
        let mapped = self.loaded.mapped_files();
        for id in self.files.retire(&mapped, self.kernel.window()) {
            self.pages.remove_file(&mut self.kernel, id)?;
            self.symbolizer.forget_file(id);
        }
        Ok(())
    }

    /// Removes requested processes that no sample requested lately: they ended, or cannot be read. They would fill
    /// the map in the course of time.
    fn remove_abandoned_requests(&mut self) -> Result<(), SamplerError> {
        if !self.kernel.window().is_multiple_of(WINDOWS_PER_SWEEP) {
            return Ok(());
        }
        let oldest = nanos_of_kernel_clock().saturating_sub(MAX_REQUEST_AGE.as_nanos() as u64);
        let mut abandoned = Vec::new();
        self.kernel.read_processes(|pid, process| {
            if process.state == PROCESS_REQUESTED && process.requested_at < oldest {
                abandoned.push(*pid);
            }
        })?;
        for pid in abandoned {
            self.unload_process(pid)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(length: usize) -> FrameName {
        FrameName { function: "f".repeat(length).into(), system_name: None, module: "".into() }
    }

    #[test]
    fn names_of_a_window_are_bounded_in_bytes() {
        const MAX_BYTES: usize = 64 << 10;
        let mut names = WindowNames::new(MAX_BYTES);
        for address in 0..100 {
            names.insert(FrameCode::Kernel(address), name(4096));
        }
        let count = names.by_code.len();
        assert!((10..=16).contains(&count), "{count}");
        assert_eq!(names.dropped, 100 - count as u64);
        assert!(names.bytes <= MAX_BYTES);
    }

    #[test]
    fn addresses_of_one_function_share_its_text() {
        let mut names = WindowNames::new(64 << 10);
        let shared = name(60 << 10);
        for address in 0..10 {
            names.insert(FrameCode::Kernel(address), shared.clone());
        }
        assert_eq!((names.by_code.len(), names.dropped), (10, 0));
    }
}
