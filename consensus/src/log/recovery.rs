//! What a folder of segments holds, after whatever happened to it.
//!
//! Frames are read in order, each payload checked. Where one is not whole, the question is whether it was ever
//! durable: a later frame that calls its place durable says that bytes were lost, which is reported; if there is
//! none, a commit was cut short by a crash, nobody was told of it, and the log ends before it.

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

/// What is read at once when looking through a segment.
const READ_WINDOW_BYTES: u64 = 1 << 20;
/// Damaged places that are named; more are joined into the last.
const MAX_DAMAGE_REPORTS: usize = 64;

/// What a start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRecoveryReport {
    /// Frames that were whole, and their bytes.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Where a commit that was never acknowledged was cut off.
    pub cut: Option<u64>,
    /// What was durable and is gone, in the order of the log.
    pub damage: Vec<LogDamage>,
}

/// Durable bytes that are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// Positions in the log.
    pub at: Range<u64>,
    /// Whom it hurts.
    pub hurt: DamageScope,
}

/// Whom a damage hurts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageScope {
    /// Nobody knows: every group of this node.
    All,
    /// These groups, and of each the first entry that is gone and how many; none where something else is.
    Groups(Vec<(u32, u64, u64)>),
}

/// What recovery hands to the writer.
pub(crate) struct RecoveredLog {
    pub(crate) index: LogIndex,
    pub(crate) report: LogRecoveryReport,
    /// Where the next frame goes.
    pub(crate) end: u64,
    /// The segment of the last frame; later ones hold nothing.
    pub(crate) current: u64,
    pub(crate) last: FrameLink,
    /// Rows of the last frame.
    pub(crate) last_rows: Vec<FrameRow>,
    /// Frames that no frame calls durable, and where each ends.
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

/// The groups while they are replayed. A map of entries, since moved ones come after younger ones.
#[derive(Default)]
struct LogReplay {
    groups: BTreeMap<u32, GroupReplay>,
    all_hurt: bool,
    /// Lost entries that were given a place so far.
    filled: u64,
}

#[derive(Default)]
struct GroupReplay {
    entries: BTreeMap<u64, (u64, EntryLocation)>,
    /// From the last extent: what must be there.
    expected: Option<(u64, u64)>,
    group: GroupIndex,
}

/// Reads the segments of these numbers, at least one. Errors are the disk's; damage is no error.
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
        // The oldest segment was begun by a commit that became durable before older ones were given away.
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

/// Writes frames again as they were read, so that the next sync covers them. They may be in the cache only, and clean
/// there: after a sync that failed no other one writes what it dropped, and all that follows would hang on it.
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
    /// The last whole frame and its end.
    last: Option<(FrameLink, u64)>,
    /// Whether the next frame must name `last` as the one before it: not at the start and behind damage.
    linked: bool,
    last_rows: Vec<FrameRow>,
    unattested: Vec<Range<u64>>,
    replay: LogReplay,
    report: LogRecoveryReport,
}

impl RecoveryScan<'_> {
    /// One frame, one gap or one damage; false at the end of the log.
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

    /// A frame with a whole head: replays it, unless it is the torn end.
    fn replay_frame(&mut self, frame: &LogFrame) -> Result<bool, DiskError> {
        let payloads = self.reader.payloads(frame)?;
        let whole = payloads.iter().all(Option::is_some);
        if !whole {
            // Cut off earlier, and then the log went on in the next segment.
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

    /// No frame here: the segment may have ended, bytes may be lost, or this is the end.
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

    /// Goes to the next segment, if its first frame follows the last one read.
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

    /// Does a later frame say that `place` was durable? Then the first frame behind the damage: the earliest that is
    /// linked to that one. A first frame found need not be it, since old ones that were cut off may lie around.
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

/// Neighbouring entries of a group as one range.
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

// === impl Reader ===

impl SegmentReader<'_> {
    fn end_position(&self) -> u64 {
        self.segments.last().map_or(0, |number| (number + 1) * self.size)
    }

    /// So many bytes from a position, in one segment; fewer, or none, where there are none.
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

    /// Whether a frame was begun at a position, whole or not.
    fn is_begun(&mut self, at: u64) -> Result<bool, DiskError> {
        let salt = self.salt;
        let size = self.size;
        Ok(LogFrame::parse_lengths(self.block(at)?, at, salt, size).is_some())
    }

    /// The frame at a position, if there is one whose head and table are whole.
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

    /// The payloads of a frame by row, empty for rows without; nothing for those that are not what they were. Only
    /// states are kept.
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

    /// The first frame from a position on that calls `place` durable.
    fn find_later_frame(&mut self, from: u64, place: u64) -> Result<Option<LogFrame>, DiskError> {
        let mut at = from;
        while at < self.end_position() {
            if self.segments.binary_search(&(at / self.size)).is_err() {
                at = (at / self.size + 1) * self.size;
                continue;
            }
            match self.frame(at)? {
                Some(frame) if frame.durable > place => return Ok(Some(frame)),
                // Its file has no more of this segment.
                None if self.block(at)?.is_empty() => at = (at / self.size + 1) * self.size,
                _ => at += FRAME_ALIGNMENT_BYTES,
            }
        }
        Ok(None)
    }
}

// === impl Replay ===

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

    /// A frame is gone of which only this is known.
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

    /// How many of so many lost entries are given a place: all, but for bytes that were made to hurt.
    fn reserve_placeholders(&mut self, count: u64) -> usize {
        let fill = count.min(MAX_LOST_PLACEHOLDERS - self.filled);
        self.filled += fill;
        fill as usize
    }

    /// Puts the groups into the index. What must have been there and is not, is lost.
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
            // What came after the mark that said so; each that is left has the place of its index.
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

/// Lost entries that are kept as such, in all groups together; beyond it a group begins behind them.
const MAX_LOST_PLACEHOLDERS: u64 = 1 << 20;
