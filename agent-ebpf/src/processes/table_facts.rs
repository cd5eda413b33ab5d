//! Facts of sampled processes.

use std::sync::Arc;

use super::error::ProcessError;
use super::facts::{ProcessFacts, ProcessIdentity};
use super::history::{ProcessHistory, ProcessRequest};
use super::image::ExecutableDetails;
use super::table::ProcessTable;
use crate::cgroups::{CgroupMembership, CgroupNames};
use crate::layout::{RequestRecord, StackKey};

/// Reads of one process in one window.
const MAX_READS_PER_WINDOW: u32 = 4;
/// Exec id of a task that neither executed a program nor descends from one that did: a thread of the kernel.
const NEVER_EXECUTED: u32 = 0;
/// Reads of known processes in one window, because records were lost.
const MAX_READS_AFTER_LOSS: usize = 256;
/// Path of the root of a hierarchy: it names neither container nor unit.
const ROOT_CGROUP: &str = "/";

// === impl ProcessRequest ===

impl ProcessRequest {
    /// Returns the process of a stack.
    pub fn from_stack(key: &StackKey) -> Self {
        Self { pid: key.pid, start_nanos: key.start_nanos, exec_id: key.exec_id }
    }

    /// Returns the process of a request of the BPF program.
    pub fn from_record(record: &RequestRecord) -> Self {
        Self { pid: record.pid, start_nanos: record.start_nanos, exec_id: record.exec_id }
    }
}

// === impl ProcessTable ===

impl ProcessTable {
    /// Returns the facts of the process of a stack. As long as they are the same, the value is the same (`Arc`).
    ///
    /// The process may have ended. Then its name and executable are those of the records, and its cgroup is, in this
    /// order, that of the id of the stack, the last one that was read, or that of its parent.
    pub fn facts(&mut self, key: &StackKey) -> Arc<ProcessFacts> {
        let comm = comm_text(&key.comm);
        if key.pid == 0 {
            let cgroup = self.cgroups.path(key.cgroup, &self.clock).unwrap_or_default();
            return Arc::new(empty_facts(key, comm, cgroup));
        }
        let request = ProcessRequest::from_stack(key);
        let unified_cgroup = self.read_if_needed(&request, key.cgroup);
        if let Some(path) = unified_cgroup {
            self.cgroups.insert_checked(key.cgroup, &path);
        }
        let cgroup = self.find_cgroup(&request, key.cgroup);
        facts_from_history(&mut self.history, key, &comm, cgroup)
    }

    /// Sets what was read of the executable of a process.
    pub fn set_executable_details(&mut self, request: &ProcessRequest, details: ExecutableDetails) {
        let Some(state) = self.history.find(request) else { return };
        let image = state.image_or_derive(request.exec_id, "");
        if image.details.as_ref() != Some(&details) {
            image.details = Some(details);
            image.facts = None;
        }
    }

    /// Reads a process from `/proc` if it is not known, executed another program, changed its cgroup, or records were
    /// lost. Reads its cgroup once per window where ids do not tell it. Returns the path in the v2 hierarchy.
    fn read_if_needed(&mut self, request: &ProcessRequest, cgroup_id: u64) -> Option<Arc<str>> {
        let window = self.history.window();
        let loss_count = self.history.loss_count();
        let state = self.history.find_or_add(request);
        let is_read = state.read_in == Some(window);
        if !is_read {
            state.reads_in_window = 0;
        }
        let was_complete = state.image(request.exec_id).is_some() && state.is_complete(request.exec_id);
        let is_old = state.synced_after_loss != loss_count && self.reads_after_loss < MAX_READS_AFTER_LOSS;
        let is_complete = was_complete && !is_old;
        let needs_cgroup = match self.cgroups.has_useful_ids() {
            true => self.cgroups.cached_path(cgroup_id).is_none(),
            false => !is_read,
        };
        let has_ended = state.exited_in.is_some();
        if has_ended || state.reads_in_window >= MAX_READS_PER_WINDOW || is_complete && !needs_cgroup {
            return None;
        }
        state.reads_in_window += 1;
        self.reads_after_loss += usize::from(was_complete && is_old);
        state.read_in = Some(window);
        let read = if is_complete { self.read_cgroup(request) } else { self.read_process(request) };
        match read {
            Ok(unified) => unified,
            Err(ProcessError::Ended { .. } | ProcessError::Replaced { .. }) => {
                self.history.mark_ended(request);
                None
            }
            Err(error) => {
                tracing::debug!(pid = request.pid, %error, "failed to read process, its facts are incomplete");
                None
            }
        }
    }

    fn read_process(&mut self, request: &ProcessRequest) -> Result<Option<Arc<str>>, ProcessError> {
        let folder = self.open_process(request)?;
        let snapshot = self.read_snapshot(&folder, false)?;
        let unified = snapshot.unified_cgroup.clone();
        self.history.apply_snapshot(request, snapshot);
        Ok(unified)
    }

    fn read_cgroup(&mut self, request: &ProcessRequest) -> Result<Option<Arc<str>>, ProcessError> {
        let membership = CgroupMembership::parse(&self.open_process(request)?.cgroup()?);
        let state = self.history.find_or_add(request);
        if let Some(path) = membership.path.filter(|path| state.cgroup.as_deref() != Some(path)) {
            state.cgroup = Some(path.into());
        }
        Ok(membership.unified.map(Arc::from))
    }

    fn find_cgroup(&mut self, request: &ProcessRequest, id: u64) -> Arc<str> {
        let is_useful = |path: &Arc<str>| &**path != ROOT_CGROUP;
        if self.cgroups.has_useful_ids()
            && let Some(path) = self.cgroups.path(id, &self.clock).filter(is_useful)
        {
            return path;
        }
        let state = self.history.find_or_add(request);
        if let Some(path) = &state.cgroup {
            return Arc::clone(path);
        }
        self.cgroups.path(id, &self.clock).unwrap_or_default()
    }
}

fn facts_from_history(
    history: &mut ProcessHistory,
    key: &StackKey,
    comm: &str,
    cgroup: Arc<str>,
) -> Arc<ProcessFacts> {
    let state = history.find_or_add(&ProcessRequest::from_stack(key));
    let parent_pid = state.parent_pid;
    let oldest_ancestor_pid =
        if state.oldest_ancestor_pid != 0 { state.oldest_ancestor_pid } else { key.pid };
    let is_kernel_thread = state.is_kernel_thread;
    let user_id = state.user_id;
    let image = state.image_or_derive(key.exec_id, comm);
    let identity = identity_from_key(key);
    if let Some(facts) = &image.facts
        && facts.cgroup == cgroup
        && facts.identity == identity
    {
        return Arc::clone(facts);
    }
    if image.comm.is_empty() {
        image.comm = comm.into();
    }
    let reported_build_id = image.build_id.map(|id| id.to_hex()).unwrap_or_default();
    let details = image.details.clone().unwrap_or_default();
    let mut facts = empty_facts(key, Arc::clone(&image.comm), cgroup);
    facts.parent_pid = parent_pid;
    facts.oldest_ancestor_pid = oldest_ancestor_pid;
    facts.is_kernel_thread = is_kernel_thread;
    facts.user_id = user_id;
    facts.command_line = image.command_line.clone().unwrap_or_default();
    facts.executable = Arc::clone(&image.executable);
    facts.build_id = if details.build_id.is_empty() { reported_build_id.into() } else { details.build_id };
    facts.compiler = details.compiler;
    facts.is_static = details.is_static;
    facts.is_stripped = details.is_stripped;
    facts.environment = image.environment.to_vec();
    let facts = Arc::new(facts);
    image.facts = Some(Arc::clone(&facts));
    facts
}

/// Returns facts that follow from a stack and its cgroup.
fn empty_facts(key: &StackKey, comm: Arc<str>, cgroup: Arc<str>) -> ProcessFacts {
    let names = CgroupNames::from_path(&cgroup);
    ProcessFacts {
        identity: identity_from_key(key),
        parent_pid: 0,
        oldest_ancestor_pid: key.pid,
        is_kernel_thread: key.exec_id == NEVER_EXECUTED,
        comm,
        command_line: Arc::default(),
        executable: Arc::default(),
        build_id: Arc::default(),
        compiler: Arc::default(),
        is_static: None,
        is_stripped: None,
        cgroup,
        container: names.container,
        systemd_unit: names.systemd_unit.into(),
        systemd_slice: names.systemd_slice.into(),
        user_id: None,
        environment: Vec::new(),
    }
}

fn identity_from_key(key: &StackKey) -> ProcessIdentity {
    ProcessIdentity {
        pid: key.pid,
        host_pid: key.host_pid,
        start_nanos: key.start_nanos,
        exec_id: key.exec_id,
    }
}

fn comm_text(comm: &[u8; 16]) -> Arc<str> {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(comm.get(..end).unwrap_or_default()).into()
}
