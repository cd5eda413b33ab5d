//! Writer of the log: turns waiting batches into one frame and one sync.

use std::sync::atomic::Ordering;

use athanor_chassis::disk::DiskError;
use bytes::Bytes;

use super::frame::{
    EVERY_GROUP, FRAME_ALIGNMENT_BYTES, FrameLink, FramePlacement, FrameRow, FrameRowKind, RowWithPayload,
    encode_frame, frame_bytes,
};
use super::index::{EntryLocation, EntryLookup};
use super::recovery::RecoveredLog;
use super::segments::segment_file_name;
use super::{CommitBatch, LogShared};

/// Limit of rows that summarize the previous frame. If there are more, the summary covers every group.
pub(crate) const MAX_BEFORE_ROWS: usize = 64;

static ZERO_BLOCK: [u8; FRAME_ALIGNMENT_BYTES as usize] = [0; FRAME_ALIGNMENT_BYTES as usize];

/// End of the log, and the state of its last frames.
#[derive(Debug)]
pub(crate) struct LogWriter {
    /// Position of the next frame.
    end: u64,
    /// Position up to which a completed sync covers the log. Never the end of writing.
    durable: u64,
    /// Number of the segment that is written to.
    current: u64,
    /// Size of its file, in bytes.
    capacity: u64,
    last: FrameLink,
    before: Vec<RowWithPayload>,
    /// True if a later frame attests that the last commit was durable.
    attested: bool,
}

/// Result of one call to the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitProgress {
    Worked,
    Idle { attested: bool },
}

impl LogWriter {
    pub(crate) fn new(recovered: &RecoveredLog) -> Self {
        let mut before = Vec::new();
        summarize_frame(&recovered.last_rows, &mut before);
        Self {
            end: recovered.end,
            durable: recovered.end,
            current: recovered.current,
            capacity: recovered.index.segments.get(&recovered.current).map_or(0, |segment| segment.capacity),
            last: recovered.last,
            before,
            attested: recovered.last == FrameLink::default(),
        }
    }

    /// Publishes the number of bytes that still fit into the current segment.
    pub(crate) fn publish_remaining_bytes(&self, shared: &LogShared) {
        let left = (self.current * shared.segments.size + self.capacity).saturating_sub(self.end);
        shared.current_left.store(left, Ordering::Relaxed);
    }

    /// Commits waiting batches, and relocates live entries if necessary. A failed write or sync is final: the
    /// kernel may have dropped the data.
    pub(crate) fn commit_once(&mut self, shared: &LogShared) -> CommitProgress {
        let (batches, lines) = shared.take_commit();
        if batches.is_empty() {
            return if self.relocate_live_entries(shared, shared.limits.commit / 2) {
                CommitProgress::Worked
            } else {
                CommitProgress::Idle { attested: self.attested }
            };
        }
        let committed = self.commit(shared, &lines);
        shared.core().committing = 0;
        match committed {
            Ok(rows) => {
                let first = batches[0].ticket;
                shared.complete_commit(first, &rows, &lines);
                let written: u64 = lines.iter().map(|(_, data)| data.len() as u64).sum();
                shared.commits.bytes.record(written);
                shared.commits.batches.record(batches.len() as u64);
                for CommitBatch { done, .. } in batches {
                    done(Ok(()));
                }
                // Waiting batches go first, but the relocation backlog does not grow.
                self.relocate_live_entries(shared, (2 * written).max(1 << 20));
            }
            Err(error) => {
                let error = shared.fail(&error);
                for CommitBatch { done, .. } in batches {
                    done(Err(error.clone()));
                }
            }
        }
        CommitProgress::Worked
    }

    /// Writes a frame that attests the last commit as durable, so that damage to it is not taken for a torn
    /// commit. The frame is not synced: it protects against bit rot, not against power loss.
    pub(crate) fn attest(&mut self, shared: &LogShared) {
        if self.attested || shared.has_failed() {
            return;
        }
        // A commit leaves one block free. So a full segment ends in an attestation from before a restart, and
        // a second one would be written to the next segment, which does not exist.
        let limit = self.current * shared.segments.size + self.capacity;
        let is_full = self.end + frame_bytes(self.before.len(), 0) > limit;
        if !is_full && let Err(error) = self.write_frame(shared, &[]) {
            shared.fail(&error);
        }
        self.attested = true;
    }

    /// Writes one frame and syncs it. Its rows are then durable.
    pub(crate) fn commit(
        &mut self,
        shared: &LogShared,
        lines: &[RowWithPayload],
    ) -> Result<Vec<(FrameRow, u64)>, DiskError> {
        let payload = lines.iter().map(|(_, data)| data.len() as u64).sum();
        let need = frame_bytes(lines.len() + MAX_BEFORE_ROWS, payload);
        // One block stays free for the attestation.
        let need = need + FRAME_ALIGNMENT_BYTES;
        let begin = self.current * shared.segments.size;
        if self.end == begin && need > self.capacity {
            // The segment holds no frame that a next segment could follow, so its file grows as it is
            // written.
            self.capacity = shared.segments.capacity_for(need);
            shared.core().index.set_capacity(self.current, self.capacity);
        } else if self.end + need > begin + self.capacity {
            self.roll_segment(shared, need)?;
        }
        let rows = self.write_frame(shared, lines)?;
        shared.segments.disk.sync(&segment_file_name(self.current))?;
        self.durable = self.end;
        self.attested = false;
        Ok(rows)
    }

    /// Writes one frame at the end, without a sync.
    fn write_frame(
        &mut self,
        shared: &LogShared,
        lines: &[RowWithPayload],
    ) -> Result<Vec<(FrameRow, u64)>, DiskError> {
        let skip = self.before.len();
        let mut all = std::mem::take(&mut self.before);
        all.extend_from_slice(lines);
        let place =
            FramePlacement { at: self.end, durable: self.durable, salt: shared.salt, before: self.last };
        let frame = encode_frame(place, &all);
        let payload: u64 = lines.iter().map(|(_, data)| data.len() as u64).sum();
        let rest = frame.total - frame.head.len() as u64 - payload;
        let mut parts: Vec<&[u8]> = vec![&frame.head];
        parts.extend(lines.iter().map(|(_, data)| &data[..]));
        parts.push(&ZERO_BLOCK[..rest as usize]);
        let offset = self.end % shared.segments.size;
        shared.segments.disk.write_at(&segment_file_name(self.end / shared.segments.size), offset, &parts)?;
        shared.written.fetch_add(frame.total, Ordering::Relaxed);
        self.end += frame.total;
        self.last = frame.link;
        self.publish_remaining_bytes(shared);
        let rows = frame.rows[skip..].to_vec();
        let table: Vec<FrameRow> = rows.iter().map(|(row, _)| *row).collect();
        summarize_frame(&table, &mut self.before);
        Ok(rows)
    }

    /// Begins a new segment. Its first frame repeats the state of every group from earlier segments. That
    /// frame shares its sync with the next commit, which takes `need` bytes.
    fn roll_segment(&mut self, shared: &LogShared, need: u64) -> Result<(), DiskError> {
        if self.end > self.durable {
            // The last frame is an attestation in the old file, which the sync of the next file does not
            // cover.
            shared.segments.disk.sync(&segment_file_name(self.current))?;
            self.durable = self.end;
        }
        let marks = {
            let core = shared.core();
            shared.segments.grow_with(core.index.live_bytes());
            core.index.marks()
        };
        let payload = marks.iter().map(|(_, data)| data.len() as u64).sum();
        let first = frame_bytes(marks.len() + MAX_BEFORE_ROWS, payload);
        self.current += 1;
        self.capacity = shared.segments.begin_segment(self.current, first + need)?;
        self.end = self.current * shared.segments.size;
        shared.core().index.set_capacity(self.current, self.capacity);
        self.write_frame(shared, &marks)?;
        Ok(())
    }

    /// Relocates live entries of the oldest segment while the log is too large for its live data. Returns
    /// whether it wrote any frame.
    fn relocate_live_entries(&mut self, shared: &LogShared, budget: u64) -> bool {
        let mut moved = 0;
        while moved < budget && !shared.has_failed() {
            let picked = {
                let core = shared.core();
                if !core.index.needs_relocation() {
                    break;
                }
                core.index.oldest_segment_entries(
                    (shared.limits.commit / 2).min(shared.segments.target_capacity() / 4),
                )
            };
            let lines: Vec<RowWithPayload> = picked
                .into_iter()
                .filter_map(|(group, index)| shared.read_for_relocation(group, index))
                .collect();
            if lines.is_empty() {
                shared.recycle_empty_segments();
                break;
            }
            // On a full disk the preallocated space is reserved for entries that free space.
            if shared.admit_internal(lines.iter().map(|(_, data)| data.len() as u64).sum()).is_err() {
                break;
            }
            match self.commit(shared, &lines) {
                Ok(rows) => {
                    moved += rows.iter().map(|(row, _)| u64::from(row.length)).sum::<u64>()
                        + FRAME_ALIGNMENT_BYTES;
                    shared.complete_commit(0, &rows, &lines);
                }
                Err(error) => {
                    shared.fail(&error);
                }
            }
        }
        moved > 0
    }
}

/// Summarizes a frame for its successor. If the frame's head is damaged, the summary names the affected
/// groups.
fn summarize_frame(rows: &[FrameRow], before: &mut Vec<RowWithPayload>) {
    before.clear();
    for row in rows {
        let (kind, length) = match row.kind {
            FrameRowKind::Entry => (FrameRowKind::Before, 1),
            FrameRowKind::Move => (FrameRowKind::BeforeMoved, 1),
            FrameRowKind::Truncate | FrameRowKind::Purge | FrameRowKind::State => (FrameRowKind::Before, 0),
            // Rows of marks, on which every group may depend.
            FrameRowKind::Extent | FrameRowKind::Hurt => (FrameRowKind::Before, 0),
            FrameRowKind::Before | FrameRowKind::BeforeMoved => continue,
        };
        let known = before.iter_mut().map(|(row, _)| row).find(|known| {
            known.kind == kind
                && known.group == row.group
                && match (length, known.length) {
                    (0, 0) => true,
                    (1, count) if count > 0 => known.index + u64::from(count) == row.index,
                    _ => false,
                }
        });
        match known {
            Some(known) => {
                known.length += length;
                known.term = row.term;
            }
            None => {
                let index = if length == 0 { 0 } else { row.index };
                let row = FrameRow { length, ..FrameRow::without_payload(kind, row.group, index, row.term) };
                before.push((row, Bytes::new()));
            }
        }
    }
    let marks = rows.iter().any(|row| matches!(row.kind, FrameRowKind::Extent));
    if marks || before.len() > MAX_BEFORE_ROWS {
        *before = vec![(FrameRow::without_payload(FrameRowKind::Before, EVERY_GROUP, 0, 0), Bytes::new())];
    }
}

impl LogShared {
    /// Reads an entry for relocation. Returns `None` if it is gone by now or unreadable.
    fn read_for_relocation(&self, group: u32, index: u64) -> Option<RowWithPayload> {
        let slot = match self.core().index.groups.get(&group)?.find_durable(index) {
            EntryLookup::At(term, slot) => (term, slot),
            _ => return None,
        };
        let (term, slot) = slot;
        match self.read_payload(slot) {
            Ok(Some(data)) => Some((FrameRow::without_payload(FrameRowKind::Move, group, index, term), data)),
            Ok(None) => {
                tracing::error!(group, index, "log entry is damaged");
                self.core().index.mark_entry_lost(group, index);
                None
            }
            Err(error) => {
                tracing::warn!(group, index, %error, "failed to move log entry to a newer segment");
                None
            }
        }
    }

    /// Reads the payload of an entry, or returns `None` if its checksum does not match.
    pub(crate) fn read_payload(&self, slot: EntryLocation) -> Result<Option<Bytes>, DiskError> {
        // An empty payload shares its position with the next payload.
        if slot.length == 0 {
            return Ok(Some(Bytes::new()));
        }
        if let Some(data) = self.core().recent.get(slot.at) {
            return Ok(Some(data));
        }
        let mut data = vec![0; slot.length as usize];
        let size = self.segments.size;
        let read =
            self.segments.disk.read_at(&segment_file_name(slot.at / size), slot.at % size, &mut data)?;
        let whole =
            read == data.len() && super::frame::payload_checksum(&data, slot.at, self.salt) == slot.sum;
        Ok(whole.then(|| data.into()))
    }
}
