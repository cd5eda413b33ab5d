//! State of one process from its start to its end.

use std::sync::Arc;

use super::image::{ProcessImage, ProcessSnapshot, mapping_bytes};
use super::maps::Mapping;
use super::stat::ClockTick;
use crate::perf_events::TaskRecord;

/// Images of one process that are kept: programs that it executed in about a window.
const MAX_IMAGES: usize = 8;
/// Longest time from the start of a process to its record.
const MAX_FORK_NANOS: u64 = 1_000_000_000;

/// State of one process.
#[derive(Debug, Default)]
pub struct ProcessState {
    /// Start.
    pub(super) start: StartTime,
    /// Parent process. 0 if unknown.
    pub(super) parent_pid: u32,
    /// Oldest ancestor to which records of forks lead. 0 without such a record.
    pub(super) oldest_ancestor_pid: u32,
    /// Thread of the kernel.
    pub(super) is_kernel_thread: bool,
    /// Real user id.
    pub(super) user_id: Option<u32>,
    /// Path of the cgroup. None if unknown.
    pub(super) cgroup: Option<Arc<str>>,
    /// Window in which `/proc` was read last, or the attempt failed.
    pub(super) read_in: Option<u64>,
    /// Attempts to read `/proc` in that window.
    pub(super) reads_in_window: u32,
    /// Images, oldest first. The last one runs.
    images: Vec<ProcessImage>,
    /// Exec id of the first image.
    first_exec_id: Option<u32>,
    /// The exec id was not derived from an order of events that may be another one.
    is_exec_id_certain: bool,
    /// Window in which the process ended.
    pub(super) exited_in: Option<u64>,
    /// Number of the last use.
    pub(super) last_use: u64,
    /// A sample or a request named the process.
    pub(super) is_sampled: bool,
    /// Its mappings are in the maps of the kernel.
    pub(super) is_loaded: bool,
    /// Number of losses of records when `/proc` was read last.
    pub(super) synced_after_loss: u64,
}

/// Start of a process, as precise as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StartTime {
    /// Nanoseconds since boot.
    pub(super) nanos: Option<u64>,
    /// Clock tick since boot.
    pub(super) ticks: Option<u64>,
    /// Time of the record of the fork, shortly after the start.
    pub(super) forked_at: Option<u64>,
    /// Time of the first record, any time after the start.
    pub(super) known_at: Option<u64>,
}

// === impl StartTime ===

impl StartTime {
    /// Returns whether a time is, or may be, the start.
    pub(super) fn is_at(&self, nanos: u64, tick: ClockTick) -> bool {
        if let Some(known) = self.nanos {
            return known == nanos;
        }
        if let Some(ticks) = self.ticks {
            return tick.contains(ticks, nanos);
        }
        if let Some(forked_at) = self.forked_at {
            return forked_at.checked_sub(nanos).is_some_and(|delay| delay <= MAX_FORK_NANOS);
        }
        self.known_at.is_none_or(|known_at| nanos <= known_at)
    }

    /// Returns whether a fork at a time is that of a process whose start is known from elsewhere.
    pub(super) fn is_of_fork(&self, time_nanos: u64) -> bool {
        let delay = self.nanos.and_then(|nanos| time_nanos.checked_sub(nanos));
        self.forked_at.is_none() && delay.is_some_and(|delay| delay <= MAX_FORK_NANOS)
    }
}

// === impl ProcessState ===

impl ProcessState {
    /// Creates the state of a process that a record names first.
    pub(super) fn known_at(time_nanos: u64) -> Self {
        let start = StartTime { known_at: Some(time_nanos), ..StartTime::default() };
        Self { start, images: vec![ProcessImage::default()], ..Self::default() }
    }

    /// Creates the state of a new process: it has the image, cgroup and user of its parent.
    pub(super) fn forked(parent: Option<&Self>, task: &TaskRecord) -> Self {
        let start = StartTime { forked_at: Some(task.time_nanos), ..StartTime::default() };
        let oldest = parent.map(|parent| parent.oldest_ancestor_pid).filter(|pid| *pid != 0);
        let mut state = Self {
            start,
            parent_pid: task.parent_pid,
            oldest_ancestor_pid: oldest.unwrap_or(task.parent_pid),
            ..Self::default()
        };
        let image = parent.and_then(|parent| parent.images.last());
        let image = image.map(|image| ProcessImage { facts: None, ..image.clone() });
        state.images.push(image.unwrap_or_default());
        if let Some(parent) = parent {
            state.first_exec_id = parent.latest_exec_id();
            state.is_exec_id_certain = parent.is_exec_id_certain;
            state.cgroup.clone_from(&parent.cgroup);
            state.user_id = parent.user_id;
            state.is_kernel_thread = parent.is_kernel_thread;
        }
        state
    }

    /// Takes the parent and the ancestor of a state that the record of the same fork made.
    pub(super) fn set_ancestry(&mut self, forked: &Self) {
        self.parent_pid = forked.parent_pid;
        self.oldest_ancestor_pid = forked.oldest_ancestor_pid;
        for image in &mut self.images {
            image.facts = None;
        }
    }

    /// Begins a new image.
    pub(super) fn exec(&mut self, comm: Arc<str>) {
        self.is_kernel_thread = false;
        self.push_image(ProcessImage::from_exec(comm));
    }

    /// Sets the name.
    pub(super) fn rename(&mut self, comm: Arc<str>) {
        let image = self.latest_image();
        image.comm = comm;
        image.facts = None;
    }

    /// Adds a mapping to the running image. Returns the bytes that are allocated for it: all mappings of the image if
    /// another process shares them.
    pub(super) fn map(&mut self, mapping: Mapping, is_executable: bool, max_mappings: usize) -> usize {
        let image = self.latest_image();
        let is_shared = Arc::strong_count(&image.mappings) > 1;
        let shared_bytes = if is_shared { mapping_bytes(&image.mappings) } else { 0 };
        // The parts on both sides of it are new, too.
        let new_bytes = 3 * size_of::<Mapping>() + mapping.path.len();
        image.map(mapping, is_executable, max_mappings);
        shared_bytes + new_bytes
    }

    /// Applies the content of `/proc`, which is that of the running image.
    pub(super) fn apply_snapshot(&mut self, exec_id: u32, snapshot: ProcessSnapshot) {
        if self.first_exec_id.is_none() {
            let offset = self.images.len().saturating_sub(1);
            self.first_exec_id = Some(exec_id.wrapping_sub(offset as u32));
            self.is_exec_id_certain = offset == 0;
        } else {
            self.index_of(exec_id, None);
        }
        self.apply_unsampled_snapshot(snapshot);
    }

    /// Applies the content of `/proc` to a process whose exec id is unknown.
    pub(super) fn apply_unsampled_snapshot(&mut self, snapshot: ProcessSnapshot) {
        self.parent_pid = snapshot.parent_pid;
        self.is_kernel_thread = snapshot.is_kernel_thread;
        self.user_id = snapshot.user_id.or(self.user_id);
        self.cgroup = snapshot.cgroup.or_else(|| self.cgroup.take());
        let image = self.latest_image();
        image.comm = snapshot.comm;
        if !snapshot.executable.is_empty() && image.executable != snapshot.executable {
            image.executable = snapshot.executable;
            image.build_id = None;
            image.details = None;
        }
        image.awaits_executable = image.executable.is_empty();
        image.command_line = Some(snapshot.command_line);
        image.environment = snapshot.environment;
        image.facts = None;
        if let Some(mappings) = snapshot.mappings {
            image.replace_mappings(mappings);
            self.is_loaded = true;
        }
    }

    /// Returns the image with an exec id, if it is known.
    pub fn image(&self, exec_id: u32) -> Option<&ProcessImage> {
        let first = self.first_exec_id?;
        self.images.get(exec_id.wrapping_sub(first) as usize)
    }

    /// Returns the running image.
    pub fn running_image(&self) -> Option<&ProcessImage> {
        self.images.last()
    }

    /// Returns whether the image with an exec id is the running one.
    pub(super) fn is_running(&self, exec_id: u32) -> bool {
        self.latest_exec_id() == Some(exec_id)
    }

    /// Returns whether the image with an exec id was read from `/proc`, or cannot be read any more.
    pub(super) fn is_complete(&self, exec_id: u32) -> bool {
        let is_unread_image = self.image(exec_id).is_some_and(|image| image.command_line.is_none());
        !is_unread_image || !self.is_running(exec_id)
    }

    /// Returns the image with an exec id, and derives which one it is from order and name if that is not known.
    pub(super) fn image_or_derive(&mut self, exec_id: u32, comm: &str) -> &mut ProcessImage {
        let index = self.index_of(exec_id, Some(comm));
        if self.images.is_empty() {
            self.images.push(ProcessImage::default());
        }
        let last = self.images.len() - 1;
        &mut self.images[index.min(last)]
    }

    /// Returns the exec id of the running image.
    pub(super) fn latest_exec_id(&self) -> Option<u32> {
        let offset = self.images.len().saturating_sub(1);
        Some(self.first_exec_id?.wrapping_add(offset as u32))
    }

    /// Returns the images, oldest first.
    pub(super) fn images(&self) -> &[ProcessImage] {
        &self.images
    }

    /// Returns the bytes beside the mappings.
    pub(super) fn own_bytes(&self) -> usize {
        let images: usize = self.images.iter().map(ProcessImage::own_bytes).sum();
        size_of::<Self>() + images + self.cgroup.as_ref().map_or(0, |path| path.len())
    }

    /// Forgets the mappings. Returns how many there were.
    pub(super) fn drop_mappings(&mut self) -> usize {
        let mappings = self.images.iter_mut().map(|image| std::mem::take(&mut image.mappings).len());
        mappings.sum()
    }

    fn latest_image(&mut self) -> &mut ProcessImage {
        if self.images.is_empty() {
            self.images.push(ProcessImage::default());
        }
        let last = self.images.len() - 1;
        &mut self.images[last]
    }

    fn push_image(&mut self, image: ProcessImage) {
        if self.images.len() >= MAX_IMAGES {
            self.images.remove(0);
            self.first_exec_id = self.first_exec_id.map(|id| id.wrapping_add(1));
        }
        self.images.push(image);
    }

    /// Returns the position of the image with an exec id.
    ///
    /// Records of an exec have no exec id. The id of the first image is that of the parent at the fork, or follows
    /// from the first sample: of the images, the one with its name, else the running one. If a later id shows that
    /// this was wrong, the running image gets that id. If it was certain, the record of the exec was lost, and a new
    /// image begins.
    fn index_of(&mut self, exec_id: u32, comm: Option<&str>) -> usize {
        let last = self.images.len().saturating_sub(1);
        let Some(first) = self.first_exec_id else {
            let by_name =
                self.images.iter().rposition(|image| !image.comm.is_empty() && Some(&*image.comm) == comm);
            let index = by_name.unwrap_or(last);
            self.first_exec_id = Some(exec_id.wrapping_sub(index as u32));
            self.is_exec_id_certain = last == 0;
            return index;
        };
        let offset = exec_id.wrapping_sub(first).cast_signed();
        match usize::try_from(offset) {
            Ok(index) if index <= last => index,
            Ok(_) if self.is_exec_id_certain => {
                self.push_image(ProcessImage::default());
                let last = self.images.len() - 1;
                self.first_exec_id = Some(exec_id.wrapping_sub(last as u32));
                last
            }
            Ok(_) => {
                self.first_exec_id = Some(exec_id.wrapping_sub(last as u32));
                last
            }
            // Older than the oldest image that is kept.
            Err(_) => 0,
        }
    }
}
