//! Recovery of a log from its segment files.
//!
//! Recovery reads frames in order and checks each payload. If a frame is not intact, later frames decide
//! whether it was durable. If a later frame attests its position as durable, bytes were lost, and recovery
//! reports the damage. Otherwise a crash tore a commit that was never acknowledged, and the log ends before
//! it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use athanor_chassis::Disk;
use athanor_chassis::disk::DiskError;
use bytes::Bytes;

use super::frame::{
    EVERY_GROUP, FRAME_ALIGNMENT_BYTES, FrameLink, FrameRow, FrameRowKind, LogFrame, payload_checksum,
};
use super::index::{EntryLocation, GroupIndex, LogIndex, SegmentUsage};
use super::segments::{file_capacity, segment_file_name};

/// Read size while scanning a segment.
const READ_WINDOW_BYTES: u64 = 1 << 20;
/// Limit of damage reports. Further damage is joined into the last one.
const MAX_DAMAGE_REPORTS: usize = 64;

/// Report of a recovery at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRecoveryReport {
    /// Number of intact frames.
    pub frames: u64,
    /// Bytes of the intact frames.
    pub bytes: u64,
    /// Position at which a commit that was never acknowledged was truncated.
    pub cut: Option<u64>,
    /// Lost durable data, in the order of the log.
    pub damage: Vec<LogDamage>,
}

/// Range of durable bytes that are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// Positions in the log.
    pub at: Range<u64>,
    /// Groups that are affected.
    pub hurt: DamageScope,
}

/// Groups that a damage affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageScope {
    /// The affected groups are unknown, so all groups of this node count as damaged.
    All,
    /// Affected groups, each with the first lost entry and the number of lost entries. The number is 0 if no
    /// entry, but other data is lost.
    Groups(Vec<(u32, u64, u64)>),
}

/// Result of a recovery, for the writer.
pub(crate) struct RecoveredLog {
    pub(crate) index: LogIndex,
    pub(crate) report: LogRecoveryReport,
    /// Position of the next frame.
    pub(crate) end: u64,
    /// Segment of the last frame. Later segments hold no frame.
    pub(crate) current: u64,
    pub(crate) last: FrameLink,
    /// Table rows of the last frame.
    pub(crate) last_rows: Vec<FrameRow>,
    /// Ranges of the frames that no later frame attests as durable.
    pub(crate) unattested: Vec<Range<u64>>,
}

struct SegmentReader<'a> {
    disk: &'a dyn Disk,
    size: u64,
    salt: u64,
    segments: &'a [u64],
    window: Vec<u8>,
    window_at: u64,
}

/// Groups during replay. Entries are a map, because relocated entries come after younger ones.
#[derive(Default)]
struct LogReplay {
    groups: BTreeMap<u32, GroupReplay>,
    all_hurt: bool,
    /// Number of placeholders for lost entries so far.
    filled: u64,
}

#[derive(Default)]
struct GroupReplay {
    entries: BTreeMap<u64, (u64, EntryLocation)>,
    /// Range of entries that must exist, from the last extent row.
    expected: Option<(u64, u64)>,
    group: GroupIndex,
}

/// Recovers the log from its segments, at least one. Returns errors of the disk only. Damage is part of the
/// report.
pub(crate) fn recover_log(
    disk: &Arc<dyn Disk>,
    size: u64,
    salt: u64,
    segments: &[u64],
) -> Result<RecoveredLog, DiskError> {
    let reader = SegmentReader { disk: &**disk, size, salt, segments, window: Vec::new(), window_at: 0 };
    let first = segments.first().copied().unwrap_or(1);
    let mut walk = RecoveryScan {
        reader,
        at: first * size,
        last: None,
        linked: false,
        last_rows: Vec::new(),
        unattested: Vec::new(),
        replay: LogReplay::default(),
        report: LogRecoveryReport::default(),
    };
    while walk.scan_next()? {}
    let newest = segments.last().copied().unwrap_or(1);
    let RecoveryScan { last, last_rows, unattested, mut replay, mut report, .. } = walk;
    let (end, current) = match &last {
        Some((link, end)) => (*end, link.at / size),
        None if first == 1 => (size, 1),
        // The commit that began the oldest segment was durable before older segments were recycled.
        None => {
            report.damage.push(LogDamage { at: first * size..(newest + 1) * size, hurt: DamageScope::All });
            replay.all_hurt = true;
            ((newest + 1) * size, newest)
        }
    };
    let mut index = LogIndex { segment: size, ..LogIndex::default() };
    for number in segments.iter().filter(|number| **number <= current) {
        let capacity = file_capacity(&**disk, &segment_file_name(*number), size)?;
        index.segments.insert(*number, SegmentUsage { live: 0, capacity });
    }
    replay.build_index(&mut index);
    let last = last.map_or(FrameLink::default(), |(link, _)| link);
    Ok(RecoveredLog { index, report, end, current, last, last_rows, unattested })
}

/// Writes frames again as they were read, so that the next sync covers them. The frames may be clean pages in
/// the cache only: after a failed sync, a later sync does not write the dropped data. All later frames would
/// depend on it.
pub(crate) fn rewrite_frames(disk: &dyn Disk, size: u64, frames: &[Range<u64>]) -> Result<(), DiskError> {
    for frame in frames {
        let file = segment_file_name(frame.start / size);
        let offset = frame.start % size;
        let mut bytes = vec![0; (frame.end - frame.start) as usize];
        let read = disk.read_at(&file, offset, &mut bytes)?;
        disk.write_at(&file, offset, &[&bytes[..read]])?;
    }
    Ok(())
}

struct RecoveryScan<'a> {
    reader: SegmentReader<'a>,
    at: u64,
    /// Last intact frame, and its end.
    last: Option<(FrameLink, u64)>,
    /// True if the next frame must name `last` as its predecessor. False at the start and after damage.
    linked: bool,
    last_rows: Vec<FrameRow>,
    unattested: Vec<Range<u64>>,
    replay: LogReplay,
    report: LogRecoveryReport,
}

impl RecoveryScan<'_> {
    /// Handles one frame, gap or damage. Returns false at the end of the log.
    fn scan_next(&mut self) -> Result<bool, DiskError> {
        let frame = self.reader.frame(self.at)?.filter(|frame| self.is_next_frame(frame));
        match frame {
            Some(frame) => self.replay_frame(&frame),
            None => self.skip_gap(),
        }
    }

    fn is_next_frame(&self, frame: &LogFrame) -> bool {
        !self.linked || self.last.is_none_or(|(link, _)| frame.before == link)
    }

    /// Replays a frame with an intact head. Returns false if the frame is the torn end of the log.
    fn replay_frame(&mut self, frame: &LogFrame) -> Result<bool, DiskError> {
        let payloads = self.reader.payloads(frame)?;
        let whole = payloads.iter().all(Option::is_some);
        if !whole {
            // The frame was truncated earlier, and then the log continued in the next segment.
            if self.enter_next_segment()? {
                return Ok(true);
            }
            if self.find_durability_evidence(frame.next, frame.at)?.is_none() {
                self.report.cut = Some(frame.at);
                return Ok(false);
            }
            let broken = frame.rows.iter().zip(&payloads).filter(|(_, payload)| payload.is_none());
            let hurt = broken.map(|(row, _)| match row.kind {
                FrameRowKind::Entry | FrameRowKind::Move => (row.group, row.index, 1),
                _ => (row.group, 0, 0),
            });
            self.record_damage(frame.at..frame.next, DamageScope::Groups(join_ranges(hurt)));
        }
        for ((row, at), payload) in frame.rows_with_positions().zip(payloads) {
            self.replay.apply(row, at, payload);
        }
        self.unattested.retain(|earlier| earlier.start >= frame.durable);
        self.unattested.push(frame.at..frame.next);
        self.last = Some((frame.link(), frame.next));
        self.last_rows.clone_from(&frame.rows);
        self.linked = true;
        self.at = frame.next;
        self.report.frames += 1;
        self.report.bytes += frame.next - frame.at;
        Ok(true)
    }

    /// Handles a position without a frame: the end of a segment, lost bytes or the end of the log.
    fn skip_gap(&mut self) -> Result<bool, DiskError> {
        if self.enter_next_segment()? {
            return Ok(true);
        }
        let Some(resumed) = self.find_durability_evidence(self.at + FRAME_ALIGNMENT_BYTES, self.at)? else {
            self.report.cut = self.reader.is_begun(self.at)?.then_some(self.at);
            return Ok(false);
        };
        let before = resumed
            .rows
            .iter()
            .filter(|row| matches!(row.kind, FrameRowKind::Before | FrameRowKind::BeforeMoved));
        let before: Vec<FrameRow> = before.copied().collect();
        let named = resumed.before.at == self.at && before.iter().all(|row| row.group != EVERY_GROUP);
        if named {
            self.replay.mark_frame_lost(&before);
            let hurt = before.iter().map(|row| (row.group, row.index, u64::from(row.length)));
            self.record_damage(self.at..resumed.at, DamageScope::Groups(join_ranges(hurt)));
        } else {
            self.record_damage(self.at..resumed.at, DamageScope::All);
        }
        self.linked = false;
        self.at = resumed.at;
        Ok(true)
    }

    /// Moves to the next segment if its first frame follows the last frame.
    fn enter_next_segment(&mut self) -> Result<bool, DiskError> {
        let Some((link, _)) = self.last.filter(|_| self.linked) else { return Ok(false) };
        let next = (link.at / self.reader.size + 1) * self.reader.size;
        if next == self.at || !self.reader.frame(next)?.is_some_and(|frame| self.is_next_frame(&frame)) {
            return Ok(false);
        }
        self.at = next;
        Ok(true)
    }

    fn record_damage(&mut self, at: Range<u64>, hurt: DamageScope) {
        match &hurt {
            DamageScope::All => self.replay.all_hurt = true,
            DamageScope::Groups(groups) => {
                for (group, first, count) in groups {
                    self.replay.group_mut(*group).group.mark_lost(*first, *count);
                }
            }
        }
        let full = self.report.damage.len() >= MAX_DAMAGE_REPORTS;
        match self.report.damage.last_mut().filter(|_| full) {
            Some(last) => {
                *last = LogDamage { at: last.at.start..at.end, hurt: DamageScope::All };
                self.replay.all_hurt = true;
            }
            None => self.report.damage.push(LogDamage { at, hurt }),
        }
    }

    /// Searches for a later frame that attests `place` as durable. Returns the earliest frame after the
    /// damage that is linked to it. The first match may not be that frame, because old truncated frames may
    /// lie between.
    fn find_durability_evidence(&mut self, from: u64, place: u64) -> Result<Option<LogFrame>, DiskError> {
        let Some(mut found) = self.reader.find_later_frame(from, place)? else { return Ok(None) };
        while found.before.at > place {
            match self.reader.frame(found.before.at)? {
                Some(earlier) if earlier.link() == found.before && earlier.at < found.at => found = earlier,
                _ => break,
            }
        }
        Ok(Some(found))
    }
}

/// Joins adjacent entries of a group into ranges.
fn join_ranges(hurt: impl Iterator<Item = (u32, u64, u64)>) -> Vec<(u32, u64, u64)> {
    let mut groups: Vec<(u32, u64, u64)> = Vec::new();
    for (group, first, count) in hurt {
        match groups
            .iter_mut()
            .find(|(g, at, n)| *g == group && *n > 0 && count > 0 && at.wrapping_add(*n) == first)
        {
            Some((_, _, known)) => *known += count,
            None => groups.push((group, first, count)),
        }
    }
    groups
}

// === impl SegmentReader ===

impl SegmentReader<'_> {
    fn end_position(&self) -> u64 {
        self.segments.last().map_or(0, |number| (number + 1) * self.size)
    }

    /// Returns up to `length` bytes from a position in one segment, fewer at the end of the file.
    fn bytes(&mut self, at: u64, length: u64) -> Result<&[u8], DiskError> {
        let number = at / self.size;
        let offset = at % self.size;
        let held = self.window_at..self.window_at + self.window.len() as u64;
        if !(held.contains(&at) && at + length <= held.end) {
            self.window.clear();
            self.window_at = at;
            if self.segments.binary_search(&number).is_ok() {
                let want = length.max(READ_WINDOW_BYTES).min(self.size - offset);
                self.window.resize(want as usize, 0);
                let read = self.disk.read_at(&segment_file_name(number), offset, &mut self.window)?;
                self.window.truncate(read);
            }
        }
        let begin = (at - self.window_at) as usize;
        let end = (begin + length as usize).min(self.window.len());
        Ok(&self.window[begin.min(end)..end])
    }

    fn block(&mut self, at: u64) -> Result<&[u8], DiskError> {
        self.bytes(at, FRAME_ALIGNMENT_BYTES)
    }

    /// Returns whether a frame head exists at a position, intact or not.
    fn is_begun(&mut self, at: u64) -> Result<bool, DiskError> {
        let salt = self.salt;
        let size = self.size;
        Ok(LogFrame::parse_lengths(self.block(at)?, at, salt, size).is_some())
    }

    /// Returns the frame at a position if its head and table are intact.
    fn frame(&mut self, at: u64) -> Result<Option<LogFrame>, DiskError> {
        let salt = self.salt;
        let room = self.size - at % self.size;
        let Some((table, total)) = LogFrame::parse_lengths(self.block(at)?, at, salt, room) else {
            return Ok(None);
        };
        let bytes = self.bytes(at, table)?;
        if (bytes.len() as u64) < table {
            return Ok(None);
        }
        Ok(LogFrame::parse(bytes, at, total))
    }

    /// Returns the payloads of a frame by row, empty for rows without one, and `None` for damaged ones. Only
    /// the bytes of group states are kept.
    fn payloads(&mut self, frame: &LogFrame) -> Result<Vec<Option<Bytes>>, DiskError> {
        let salt = self.salt;
        let mut payloads = Vec::with_capacity(frame.rows.len());
        for (row, at) in frame.rows_with_positions() {
            if !row.kind.has_payload() {
                payloads.push(Some(Bytes::new()));
                continue;
            }
            let bytes = self.bytes(at, u64::from(row.length))?;
            let whole = bytes.len() == row.length as usize && payload_checksum(bytes, at, salt) == row.sum;
            let kept =
                if row.kind == FrameRowKind::State { Bytes::copy_from_slice(bytes) } else { Bytes::new() };
            payloads.push(whole.then_some(kept));
        }
        Ok(payloads)
    }

    /// Returns the first frame from a position on that attests `place` as durable.
    fn find_later_frame(&mut self, from: u64, place: u64) -> Result<Option<LogFrame>, DiskError> {
        let mut at = from;
        while at < self.end_position() {
            if self.segments.binary_search(&(at / self.size)).is_err() {
                at = (at / self.size + 1) * self.size;
                continue;
            }
            match self.frame(at)? {
                Some(frame) if frame.durable > place => return Ok(Some(frame)),
                // The segment's file ends before this position.
                None if self.block(at)?.is_empty() => at = (at / self.size + 1) * self.size,
                _ => at += FRAME_ALIGNMENT_BYTES,
            }
        }
        Ok(None)
    }
}

// === impl LogReplay ===

impl LogReplay {
    fn group_mut(&mut self, group: u32) -> &mut GroupReplay {
        self.groups.entry(group).or_default()
    }

    fn apply(&mut self, row: &FrameRow, at: u64, payload: Option<Bytes>) {
        if row.group == EVERY_GROUP {
            self.all_hurt |= row.kind == FrameRowKind::Hurt;
        } else if !matches!(row.kind, FrameRowKind::Before | FrameRowKind::BeforeMoved) {
            self.group_mut(row.group).apply(row, at, payload);
        }
    }

    /// Marks the entries of a lost frame, from the summary in its successor.
    fn mark_frame_lost(&mut self, before: &[FrameRow]) {
        for row in before.iter().filter(|row| row.length > 0) {
            let fill = self.reserve_placeholders(u64::from(row.length));
            let held = self.group_mut(row.group);
            if row.kind == FrameRowKind::Before {
                held.truncate(row.index);
            }
            for index in (row.index..row.index + u64::from(row.length)).take(fill) {
                held.entries.entry(index).or_insert((row.term, EntryLocation::LOST_ENTRY));
            }
        }
    }

    /// Returns the number of placeholders to create, up to `count`. The limit applies only to crafted bytes.
    fn reserve_placeholders(&mut self, count: u64) -> usize {
        let fill = count.min(MAX_LOST_PLACEHOLDERS - self.filled);
        self.filled += fill;
        fill as usize
    }

    /// Builds the index. Entries that must exist and are missing count as lost.
    fn build_index(mut self, index: &mut LogIndex) {
        for (number, replayed) in std::mem::take(&mut self.groups) {
            let (group, entries) = self.build_group(replayed);
            index.restore(number, group, entries);
        }
        index.all_hurt = self.all_hurt;
    }

    fn build_group(&mut self, replayed: GroupReplay) -> (GroupIndex, Vec<(u64, EntryLocation)>) {
        let GroupReplay { mut entries, expected, mut group } = replayed;
        if let Some((purged, _)) = group.purged {
            // Entries that were replayed after the purge row. Each remaining entry has the place of its
            // index.
            entries = entries.split_off(&(purged + 1));
        }
        let known = entries.first_key_value().map(|(first, _)| *first);
        let expected = expected.filter(|(first, end)| first < end);
        let lowest = expected.map(|(first, _)| first).into_iter().chain(known).min().unwrap_or(0);
        group.first = group.purged.map_or(lowest, |(purged, _)| purged + 1);
        let mut list = Vec::with_capacity(entries.len());
        let mut next = group.first;
        if let Some((_, end)) = expected
            && entries.last_key_value().is_none_or(|(last, _)| *last < end - 1)
            && end > next
        {
            let term = entries.last_key_value().map_or(0, |(_, (term, _))| *term);
            entries.insert(end - 1, (term, EntryLocation::LOST_ENTRY));
        }
        while let Some((at, (term, slot))) = entries.pop_first() {
            let gap = at.saturating_sub(next);
            if gap > 0 {
                group.mark_lost(next, gap);
            }
            let fill = self.reserve_placeholders(gap);
            if (fill as u64) < gap {
                group.first = at;
                list.clear();
            } else {
                list.extend((0..gap).map(|_| (term, EntryLocation::LOST_ENTRY)));
            }
            if slot == EntryLocation::LOST_ENTRY {
                group.mark_lost(at, 1);
            }
            list.push((term, slot));
            next = at + 1;
        }
        (group, list)
    }
}

impl GroupReplay {
    fn truncate(&mut self, from: u64) {
        self.entries.split_off(&from);
        if let Some((_, end)) = &mut self.expected {
            *end = from.min(*end);
        }
    }

    fn apply(&mut self, row: &FrameRow, at: u64, payload: Option<Bytes>) {
        let slot = if payload.is_some() {
            EntryLocation { at, length: row.length, sum: row.sum }
        } else {
            EntryLocation::LOST_ENTRY
        };
        match row.kind {
            FrameRowKind::Entry => {
                self.truncate(row.index);
                self.entries.insert(row.index, (row.term, slot));
            }
            FrameRowKind::Move if slot == EntryLocation::LOST_ENTRY => {
                self.entries.entry(row.index).or_insert((row.term, slot));
            }
            FrameRowKind::Move => {
                self.entries.insert(row.index, (row.term, slot));
            }
            FrameRowKind::Truncate => self.truncate(row.index),
            FrameRowKind::Purge => {
                self.group.purged = self.group.purged.max(Some((row.index, row.term)));
                self.entries = self.entries.split_off(&(row.index + 1));
            }
            FrameRowKind::State => {
                if let Some(state) = payload {
                    self.group.state = state;
                }
            }
            FrameRowKind::Extent => {
                self.truncate(row.term);
                self.expected = Some((row.index, row.term));
            }
            FrameRowKind::Hurt => self.group.mark_lost(row.index, u64::from(row.length)),
            FrameRowKind::Before | FrameRowKind::BeforeMoved => {}
        }
    }
}

/// Limit of placeholders for lost entries in all groups together. Above it a group begins after them.
const MAX_LOST_PLACEHOLDERS: u64 = 1 << 20;
