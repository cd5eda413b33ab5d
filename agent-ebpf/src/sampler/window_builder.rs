//! Builds the result of a window from counts, frames and facts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::frame::PackedFrame;
use crate::layout::{StackCount, StackEnd, StackKey, StackRecord};
use crate::processes::ProcessIdentity;
use crate::window::CountedStack;

/// Bytes of an entry beside its frames: a growing table has up to twice as many places as entries.
const ENTRY_BYTES: usize = 2 * size_of::<((u64, StackKey), StackFrames)>();

/// Frames of one key.
#[derive(Clone, Debug)]
pub(super) struct StackFrames {
    pub(super) frames: Arc<[PackedFrame]>,
    pub(super) kernel_frames: usize,
}

/// Frames that arrived from the ring, by window and key, within a bound of bytes.
#[derive(Debug)]
pub(super) struct PendingFrames {
    by_key: HashMap<(u64, StackKey), StackFrames>,
    /// Bytes of frames.
    memory: usize,
    max_bytes: usize,
}

/// Process of stacks, with its cgroup: the same process in another cgroup has other labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ProcessKey {
    identity: ProcessIdentity,
    cgroup: u64,
}

/// Counted stacks of a window, before names and facts.
#[derive(Debug, Default)]
pub(super) struct WindowStacks {
    /// Key of one stack of each process.
    pub(super) processes: Vec<StackKey>,
    pub(super) stacks: Vec<CountedStack>,
    /// Samples whose frames were dropped, by the end that their stacks had.
    pub(super) samples_without_frames: [u64; StackEnd::ALL.len()],
}

// === impl PendingFrames ===

impl PendingFrames {
    /// Creates an empty set that takes at most `max_bytes`.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { by_key: HashMap::new(), memory: 0, max_bytes }
    }

    /// Stores the frames of a record. A key has one set of frames, so a second record of it changes nothing. Frames
    /// above the bound are dropped: the samples of their stack get [`StackEnd::FramesDropped`].
    pub(super) fn insert(&mut self, record: &StackRecord, frames: &[u64]) {
        let entries = (self.by_key.len() + 1).saturating_mul(ENTRY_BYTES);
        let new_bytes = entries.saturating_add(self.memory).saturating_add(frame_memory(frames));
        if new_bytes > self.max_bytes {
            return;
        }
        let Entry::Vacant(entry) = self.by_key.entry((record.window, record.key)) else { return };
        let frames: Arc<[PackedFrame]> = frames.iter().copied().map(PackedFrame).collect();
        self.memory += frame_memory(&frames);
        let kernel_frames = usize::from(record.kernel_frames).min(frames.len());
        entry.insert(StackFrames { frames, kernel_frames });
    }

    /// Removes the frames of a key.
    fn take(&mut self, window: u64, key: &StackKey) -> Option<StackFrames> {
        let frames = self.by_key.remove(&(window, *key))?;
        self.memory = self.memory.saturating_sub(frame_memory(&frames.frames));
        Some(frames)
    }

    /// Drops frames of this window and of earlier ones: no count has them.
    fn drop_until(&mut self, window: u64) {
        let mut memory = 0;
        self.by_key.retain(|(other, _), frames| {
            let is_later = *other > window;
            memory += if is_later { frame_memory(&frames.frames) } else { 0 };
            is_later
        });
        self.memory = memory;
        self.by_key.shrink_to(self.by_key.len() * 2);
    }

    /// Returns the allocated bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory + self.by_key.capacity() * size_of::<((u64, StackKey), StackFrames)>()
    }
}

fn frame_memory<T>(frames: &[T]) -> usize {
    size_of_val(frames) + 2 * size_of::<usize>()
}

// === impl WindowStacks ===

impl WindowStacks {
    /// Joins the counts of a window with their frames.
    pub(super) fn collect(
        window: u64,
        counts: impl IntoIterator<Item = (StackKey, StackCount)>,
        pending: &mut PendingFrames,
    ) -> Self {
        let mut result = Self::default();
        let mut numbers: HashMap<ProcessKey, u32> = HashMap::new();
        let mut comms: HashMap<[u8; 16], Arc<str>> = HashMap::new();
        for (key, count) in counts {
            let comm = comms.entry(key.comm).or_insert_with(|| comm_text(&key.comm));
            let process = ProcessKey::from_stack(&key);
            let number = *numbers.entry(process).or_insert_with(|| {
                result.processes.push(key);
                (result.processes.len() - 1) as u32
            });
            let mut end = StackEnd::from_number(key.end).unwrap_or(StackEnd::UnsupportedRule);
            let frames = pending.take(window, &key).unwrap_or_else(|| {
                let end = std::mem::replace(&mut end, StackEnd::FramesDropped);
                if let Some(samples) = result.samples_without_frames.get_mut(end as usize) {
                    *samples += count.samples;
                }
                StackFrames { frames: Arc::new([]), kernel_frames: 0 }
            });
            result.stacks.push(CountedStack {
                process: number,
                comm: Arc::clone(comm),
                end,
                frames: frames.frames,
                kernel_frames: frames.kernel_frames,
                samples: count.samples,
                nanos: count.nanos,
            });
        }
        pending.drop_until(window);
        result
    }
}

impl ProcessKey {
    fn from_stack(key: &StackKey) -> Self {
        let identity = ProcessIdentity {
            pid: key.pid,
            host_pid: key.host_pid,
            start_nanos: key.start_nanos,
            exec_id: key.exec_id,
        };
        Self { identity, cgroup: key.cgroup }
    }
}

/// Returns the text before the first NUL.
fn comm_text(comm: &[u8; 16]) -> Arc<str> {
    let end = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(comm.get(..end).unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pid: u32, hash: u64) -> StackKey {
        let mut comm = [0; 16];
        comm[..4].copy_from_slice(b"busy");
        StackKey {
            hash: [hash, 0],
            start_nanos: 7,
            cgroup: 1,
            pid,
            host_pid: pid,
            exec_id: 2,
            end: StackEnd::Truncated as u32,
            comm,
        }
    }

    fn record(window: u64, key: StackKey, kernel_frames: u16) -> StackRecord {
        StackRecord { window, kernel_frames, user_frames: 1, reserved: 0, key }
    }

    #[test]
    fn counts_are_joined_with_frames_of_their_window() {
        let mut pending = PendingFrames::new(1 << 20);
        pending.insert(&record(4, key(1, 9), 1), &[1 << 63, 5]);
        pending.insert(&record(5, key(1, 9), 0), &[6]);
        let count = StackCount { samples: 3, nanos: 30 };
        let window = WindowStacks::collect(4, [(key(1, 9), count), (key(2, 9), count)], &mut pending);
        assert_eq!(window.processes.len(), 2);
        assert_eq!(&*window.stacks[0].comm, "busy");
        assert_eq!(*window.stacks[0].frames, [PackedFrame(1 << 63), PackedFrame(5)]);
        assert_eq!(window.stacks[0].kernel_frames, 1);
        assert_eq!(window.stacks[0].end, StackEnd::Truncated);
        assert_eq!(window.stacks[1].frames.len(), 0);
        assert_eq!(window.stacks[1].end, StackEnd::FramesDropped);
        assert_eq!(window.samples_without_frames[StackEnd::Truncated as usize], 3);
        let next = WindowStacks::collect(5, [(key(1, 9), count)], &mut pending);
        assert_eq!(*next.stacks[0].frames, [PackedFrame(6)]);
        assert!(pending.by_key.is_empty());
        assert_eq!(pending.memory, 0);
    }

    #[test]
    fn frames_above_bound_are_dropped_with_a_reason() {
        const MAX_BYTES: usize = 64 << 10;
        let mut pending = PendingFrames::new(MAX_BYTES);
        let frames = [7; 380];
        for hash in 0..1000 {
            pending.insert(&record(4, key(1, hash), 0), &frames);
        }
        assert!(pending.memory() <= MAX_BYTES, "{} bytes", pending.memory());
        let count = StackCount { samples: 2, nanos: 20 };
        let window = WindowStacks::collect(4, (0..1000).map(|hash| (key(1, hash), count)), &mut pending);
        let has_frames = |stack: &&CountedStack| !stack.frames.is_empty();
        let complete = window.stacks.iter().filter(has_frames).count();
        assert!(complete >= 10, "{complete}");
        let dropped = window.stacks.iter().filter(|stack| stack.end == StackEnd::FramesDropped).count();
        assert_eq!(complete + dropped, 1000);
        assert_eq!(window.samples_without_frames.iter().sum::<u64>(), 2 * dropped as u64);
        pending.insert(&record(5, key(1, 0), 0), &frames);
        assert_eq!(pending.by_key.len(), 1, "the bound holds for waiting frames only");
    }

    #[test]
    fn frames_without_a_count_are_dropped_with_their_window() {
        let mut pending = PendingFrames::new(1 << 20);
        pending.insert(&record(4, key(1, 9), 0), &[5]);
        WindowStacks::collect(4, [], &mut pending);
        assert!(pending.by_key.is_empty());
    }
}
