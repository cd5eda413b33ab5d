//! Requests of the BPF program: mappings of processes and pages of rows.

use std::sync::Arc;
use std::time::Duration;

use crate::frame::FileId;
use crate::kernel::KernelError;
use crate::layout::{
    MappingValue, PROCESS_LOADED, ProcessValue, REQUEST_MAPPING, REQUEST_PAGE, REQUEST_PROCESS, RequestRecord,
};
use crate::processes::{
    ExecutableDetails, Mapping, MappingKind, PrefixChanges, ProcessError, ProcessFolder, ProcessRequest,
};

use super::Sampler;
use super::cost::thread_time;
use super::loaded_processes::{LoadedProcess, select_mappings};

/// Maximum number of requests that are handled at once. The others wait in their ring.
const MAX_REQUESTS_AT_ONCE: usize = 4096;
/// CPU time after which requests are left for the next call, so that no process can hold up the end of a window.
const MAX_REQUEST_TIME: Duration = Duration::from_millis(200);
/// Processes that are evicted for one that does not fit.
const MAX_EVICTIONS_PER_PROCESS: usize = 64;

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
        self.changed.extend(changed.into_iter().map(|request| (request.pid, request)));
    }

    /// Handles waiting requests, and loads processes whose mappings changed.
    pub(super) fn handle_requests(&mut self) {
        let now = self.clock.monotonic();
        let deadline = thread_time() + MAX_REQUEST_TIME;
        for (pid, request) in std::mem::take(&mut self.changed) {
            if !self.loaded.has_process(pid) {
                continue;
            }
            if thread_time() < deadline {
                self.load_or_postpone(&request, now);
            } else {
                self.changed.insert(pid, request);
            }
        }
        for _ in 0..MAX_REQUESTS_AT_ONCE {
            if thread_time() >= deadline {
                return;
            }
            let Some(record) = self.kernel.next_request() else { return };
            self.handle_request(&record);
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

    fn load_or_postpone(&mut self, request: &ProcessRequest, now: Duration) {
        if self.loaded.may_load(request, now) {
            self.load_process(request);
        } else {
            self.changed.insert(request.pid, *request);
        }
    }

    fn load_process(&mut self, request: &ProcessRequest) {
        let started = self.clock.monotonic();
        let result = match self.processes.load(request) {
            Ok(process) => {
                let selected = select_mappings(&process.mappings);
                let window = self.kernel.window();
                let values = self.intern_mappings(&process.folder, &selected, request);
                let ended = self.clock.monotonic();
                self.apply_mappings(LoadedProcess::new(*request, values, window, started, ended))
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
        let mut evictions = 0;
        for (key, value) in &changes.inserted {
            while let Err(error) = self.kernel.insert_mapping(key, value) {
                let is_worth_it = error.is_map_full() && evictions < MAX_EVICTIONS_PER_PROCESS;
                let victim = is_worth_it.then(|| self.loaded.least_used(process.used_in)).flatten();
                let Some(victim) = victim else {
                    self.loaded.insert(process);
                    self.unload_process(request.pid)?;
                    return Err(error);
                };
                evictions += 1;
                self.processes_evicted += 1;
                self.unload_process(victim)?;
            }
        }
        let value = ProcessValue {
            start_nanos: request.start_nanos,
            requested_at: 0,
            exec_id: request.exec_id,
            state: PROCESS_LOADED,
        };
        self.loaded.insert(process);
        self.kernel.set_process(request.pid, &value)
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
