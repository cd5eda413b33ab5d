//! Requests of the BPF program: mappings of processes and pages of rows.

use std::sync::Arc;
use std::time::Duration;

use crate::frame::FileId;
use crate::kernel::KernelError;
use crate::layout::{
    MappingValue, PROCESS_LOADED, PROCESS_REQUESTED, ProcessValue, REQUEST_MAPPING, REQUEST_PAGE,
    REQUEST_PROCESS, RequestRecord,
};
use crate::processes::{
    ExecutableDetails, Mapping, MappingKind, PrefixChanges, ProcessError, ProcessFolder, ProcessRequest,
};

use super::Sampler;
use super::cost::thread_time;
use super::loaded_processes::{LoadTime, LoadedProcess, select_mappings};

/// Maximum number of requests that are handled at once. The others wait in their ring.
const MAX_REQUESTS_AT_ONCE: usize = 4096;
/// CPU time after which requests are left for the next call, so that no process can hold up the end of a window.
const MAX_REQUEST_TIME: Duration = Duration::from_millis(200);
/// Processes that are evicted for one that does not fit.
const MAX_EVICTIONS_PER_PROCESS: usize = 64;
/// Share of the trie that one process may take, as a divisor.
const PROCESS_PREFIX_DIVISOR: usize = 8;

impl Sampler {
    /// Applies process events.
    pub(super) fn drain_process_events(&mut self) {
        let processes = &mut self.processes;
        let mut lost = 0;
        self.kernel.drain_sideband(|bytes| {
            // The kernel writes whole records, so one that does not parse is of a kind that says nothing here.
            lost += processes.receive_record(bytes).unwrap_or(0);
        });
        self.events_lost += lost;
        let changed = self.processes.take_changed();
        for request in changed {
            self.changed.insert(request.pid, self.loaded.confirmed_request(request));
        }
        self.resync.note_losses(self.processes.loss_count(), &self.loaded);
    }

    /// Handles waiting requests, and loads processes whose mappings changed.
    pub(super) fn handle_requests(&mut self) {
        let now = self.clock.monotonic();
        let started = thread_time();
        let deadline = started + MAX_REQUEST_TIME;
        // The other half is for new processes and pages.
        let reload_deadline = started + MAX_REQUEST_TIME / 2;
        for (pid, request) in std::mem::take(&mut self.changed) {
            if !self.loaded.has_process(pid) {
                continue;
            }
            if thread_time() < reload_deadline {
                self.load_or_postpone(&request, now);
            } else {
                self.changed.insert(pid, request);
            }
        }
        self.load_suspects(now);
        for _ in 0..MAX_REQUESTS_AT_ONCE {
            if thread_time() >= deadline {
                return;
            }
            let Some(record) = self.kernel.next_request() else { return };
            self.handle_request(&record);
        }
    }

    /// Loads processes whose mappings may be old because records were lost, as the budget allows.
    fn load_suspects(&mut self, now: Duration) {
        for pid in self.resync.begin_pass(now, &self.loaded) {
            if !self.resync.has_budget() {
                return;
            }
            self.resync.forget(pid);
            let Some(request) = self.processes.loaded_request(pid) else { continue };
            let request = self.loaded.confirmed_request(request);
            let started = thread_time();
            self.load_or_postpone(&request, now);
            self.processes_resynced += 1;
            self.resync.spend(thread_time().saturating_sub(started));
        }
    }

    fn handle_request(&mut self, record: &RequestRecord) {
        let request =
            ProcessRequest { pid: record.pid, start_nanos: record.start_nanos, exec_id: record.exec_id };
        let result = match record.kind {
            REQUEST_PROCESS | REQUEST_MAPPING => {
                self.load_or_postpone(&request, self.clock.monotonic());
                Ok(())
            }
            REQUEST_PAGE if self.files.is_open(FileId(record.page.file)) => {
                self.pages.load(&mut self.kernel, &mut self.files, record.page)
            }
            REQUEST_PAGE if self.reopen_file(&request, FileId(record.page.file), record.address) => {
                self.pages.load(&mut self.kernel, &mut self.files, record.page)
            }
            REQUEST_PAGE => {
                // Loading the process opens the file, and then the next sample requests the page.
                self.load_or_postpone(&request, self.clock.monotonic());
                self.kernel.remove_page(record.page)
            }
            _ => Ok(()),
        };
        if let Err(error) = result {
            tracing::debug!(%error, pid = request.pid, "failed to load what a sample needs");
        }
    }

    /// Opens a file that was closed, by a mapping of a loaded process. Returns whether it is open now.
    pub(super) fn reopen_mapped_file(&mut self, request: &ProcessRequest, file: FileId) -> bool {
        let values = self.loaded.get(request).map(|loaded| loaded.values.as_slice()).unwrap_or_default();
        let start = values.iter().find(|value| value.file == file.0).map(|value| value.start);
        start.is_some_and(|start| self.reopen_file(request, file, start))
    }

    /// Opens a file that was closed, by the mapping of an address. Returns whether it is that file.
    fn reopen_file(&mut self, request: &ProcessRequest, file: FileId, address: u64) -> bool {
        let Some(mapping) = self.processes.resolve(request, address).cloned() else { return false };
        let Ok(folder) = self.processes.open_process(request) else { return false };
        let Ok(source) = self.processes.open_mapping(&folder, &mapping) else { return false };
        self.files.intern(source, &mapping, self.kernel.window()) == Some(file)
    }

    fn load_or_postpone(&mut self, request: &ProcessRequest, now: Duration) {
        if self.loaded.may_load(request, now) {
            self.load_process(request);
        } else {
            self.changed.insert(request.pid, *request);
        }
    }

    fn load_process(&mut self, request: &ProcessRequest) {
        let started = thread_time();
        self.resync.forget(request.pid);
        let result = match self.processes.load(request) {
            Ok(process) => {
                let max_prefixes = self.max_prefixes / PROCESS_PREFIX_DIVISOR;
                let selected = select_mappings(&process.mappings, max_prefixes);
                let window = self.kernel.window();
                let values = self.intern_mappings(&process.folder, &selected.mappings, request);
                let applied = self.apply_mappings(LoadedProcess::new(*request, values, window));
                let ended = self.clock.monotonic();
                let cpu_time = thread_time().saturating_sub(started);
                match applied {
                    Ok(()) => {
                        let load = LoadTime { ended, cpu_time, is_partial: selected.is_partial };
                        self.loaded.pause_after_load(request, &load);
                        Ok(())
                    }
                    Err(error) if error.is_map_full() => self.refuse_process(request, ended),
                    Err(error) => self.unload_process(request.pid).and(Err(error)),
                }
            }
            Err(error) => self.reject_process(request, &error),
        };
        if let Err(error) = result {
            tracing::debug!(%error, pid = request.pid, "failed to load a process");
        }
    }

    /// Removes a process that ended. One that cannot be read stays requested, which limits the rate of requests.
    fn reject_process(&mut self, request: &ProcessRequest, error: &ProcessError) -> Result<(), KernelError> {
        tracing::debug!(%error, pid = request.pid, "process is not readable");
        match error {
            ProcessError::Ended { .. } | ProcessError::Replaced { .. } => self.unload_process(request.pid),
            _ => Ok(()),
        }
    }

    /// Unloads a process for which the maps have no place. It stays requested, which limits the rate of requests, and
    /// is loaded after a pause that doubles each time.
    fn refuse_process(&mut self, request: &ProcessRequest, now: Duration) -> Result<(), KernelError> {
        self.unload_process(request.pid)?;
        self.loaded.refuse(request, now);
        self.processes_refused += 1;
        tracing::debug!(
            pid = request.pid,
            max_prefixes = self.max_prefixes,
            refused = self.loaded.refused_count(),
            "maps have no place for a process, its stacks are process_not_loaded"
        );
        let value = ProcessValue {
            start_nanos: request.start_nanos,
            requested_at: nanos_of_kernel_clock(),
            exec_id: request.exec_id,
            state: PROCESS_REQUESTED,
        };
        match self.kernel.set_process(request.pid, &value) {
            Err(error) if error.is_map_full() => Ok(()),
            result => result,
        }
    }

    /// Returns the values of mappings, with the numbers of their files. A file that cannot be read counts as
    /// anonymous memory, where the frame pointer leads on.
    fn intern_mappings(
        &mut self,
        folder: &ProcessFolder,
        mappings: &[Mapping],
        request: &ProcessRequest,
    ) -> Vec<MappingValue> {
        let window = self.kernel.window();
        let executable = folder.executable().unwrap_or_default();
        let mut values = Vec::with_capacity(mappings.len());
        for mapping in mappings {
            let mut value =
                MappingValue { start: mapping.start, end: mapping.end, bias: 0, file: 0, reserved: 0 };
            if mapping.kind != MappingKind::Anonymous {
                let source = self.processes.open_mapping(folder, mapping);
                let opened =
                    source.map_err(|error| tracing::debug!(%error, "mapped file is not readable")).ok();
                let file = opened.and_then(|source| self.files.intern(source, mapping, window));
                let bias = file.and_then(|id| {
                    self.files.elf(id)?.bias_of(mapping.start, mapping.offset, mapping.end - mapping.start)
                });
                if let (Some(id), Some(bias)) = (file, bias) {
                    value.file = id.0;
                    value.bias = bias;
                    if *mapping.path == *executable {
                        self.describe_executable(request, id);
                    }
                }
            }
            values.push(value);
        }
        values
    }

    /// Passes properties of the executable to the facts of its process.
    fn describe_executable(&mut self, request: &ProcessRequest, id: FileId) {
        let Some(file) = self.files.get(id) else { return };
        let details = ExecutableDetails {
            build_id: Arc::clone(&file.build_id),
            compiler: file.facts.compiler.as_str().into(),
            is_static: Some(file.facts.is_static),
            is_stripped: Some(file.facts.is_stripped),
        };
        self.processes.set_executable_details(request, details);
    }

    fn apply_mappings(&mut self, process: LoadedProcess) -> Result<(), KernelError> {
        let request = process.request;
        let before = self.loaded.remove(request.pid);
        let old_values = before.as_ref().map(|loaded| loaded.values.as_slice()).unwrap_or_default();
        let changes = PrefixChanges::between(request.pid, old_values, &process.values);
        // An address without an entry is unwound by frame pointer, one with the entry of another file is wrong.
        for key in &changes.removed {
            self.kernel.remove_mapping(key)?;
        }
        let used_in = process.used_in;
        self.loaded.insert(process);
        let mut evictions = MAX_EVICTIONS_PER_PROCESS;
        for (key, value) in &changes.inserted {
            while let Err(error) = self.kernel.insert_mapping(key, value) {
                self.evict_for(error, used_in, &mut evictions)?;
            }
        }
        let value = ProcessValue {
            start_nanos: request.start_nanos,
            requested_at: 0,
            exec_id: request.exec_id,
            state: PROCESS_LOADED,
        };
        while let Err(error) = self.kernel.set_process(request.pid, &value) {
            self.evict_for(error, used_in, &mut evictions)?;
        }
        Ok(())
    }

    /// Evicts the least recently used process that was not used in a window, if that helps against an error. Returns
    /// the error otherwise.
    fn evict_for(
        &mut self,
        error: KernelError,
        window: u64,
        evictions: &mut usize,
    ) -> Result<(), KernelError> {
        let is_worth_it = error.is_map_full() && *evictions > 0;
        let Some(victim) = is_worth_it.then(|| self.loaded.least_used(window)).flatten() else {
            return Err(error);
        };
        *evictions -= 1;
        self.processes_evicted += 1;
        self.unload_process(victim)
    }

    /// Removes a process from the maps of the kernel.
    pub(super) fn unload_process(&mut self, pid: u32) -> Result<(), KernelError> {
        self.kernel.remove_process(pid)?;
        if let Some(loaded) = self.loaded.remove(pid) {
            for key in PrefixChanges::between(pid, &loaded.values, &[]).removed {
                self.kernel.remove_mapping(&key)?;
            }
        }
        Ok(())
    }
}

/// Returns the time as BPF programs have it.
pub(super) fn nanos_of_kernel_clock() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
}
