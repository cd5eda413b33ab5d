//! Index of the log: the location of each entry in 16 bytes, and terms as runs.
//!
//! The durable part changes only when a commit is durable, by the same rules that replay the log at a start.
//! So it always equals the result of a recovery. Records that wait for their commit are kept separately on
//! top.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::frame::{EVERY_GROUP, FRAME_ROW_BYTES, FrameRow, FrameRowKind, RowWithPayload};

/// Limit of lost ranges per group. Above it they are joined into one.
const MAX_LOST_RANGES_PER_GROUP: usize = 4;

/// Location of an entry. Positions count from the start of segment 0, which never exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryLocation {
    pub(crate) at: u64,
    pub(crate) length: u32,
    pub(crate) sum: u32,
}

/// Index of all groups and segments.
#[derive(Debug, Default)]
pub(crate) struct LogIndex {
    /// Full size of a segment, in bytes.
    pub(crate) segment: u64,
    /// Segments in use, by number.
    pub(crate) segments: BTreeMap<u64, SegmentUsage>,
    pub(crate) groups: BTreeMap<u32, GroupIndex>,
    /// True if data was lost and the affected groups are unknown.
    pub(crate) all_hurt: bool,
}

/// Usage of one segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentUsage {
    /// Live data in the segment, in bytes.
    pub(crate) live: u64,
    /// Size of its file, in bytes.
    pub(crate) capacity: u64,
}

/// Index of one group.
#[derive(Debug, Default)]
pub(crate) struct GroupIndex {
    /// Entry index of the first slot.
    pub(crate) first: u64,
    pub(crate) slots: VecDeque<EntryLocation>,
    /// Runs of terms as (index, term): from the index on the term applies.
    terms: VecDeque<(u64, u64)>,
    pub(crate) purged: Option<(u64, u64)>,
    pub(crate) state: Bytes,
    pub(crate) hurt: bool,
    /// Ranges of lost entries: (first index, count).
    pub(crate) lost: Vec<(u64, u64)>,
    pending: PendingRecords,
}

/// Submitted records that are not durable, each with its ticket.
#[derive(Debug, Default)]
struct PendingRecords {
    entries: BTreeMap<u64, (u64, u64, Bytes)>,
    /// Truncations: durable entries from the index on are dropped.
    cuts: VecDeque<(u64, u64)>,
    purged: VecDeque<(u64, (u64, u64))>,
    state: Option<(u64, Bytes)>,
}

/// Result of looking up an entry.
#[derive(Clone, Debug)]
pub(crate) enum EntryLookup {
    Waiting(u64, Bytes),
    At(u64, EntryLocation),
    Lost(u64),
    Nothing,
}

// === impl EntryLocation ===

impl EntryLocation {
    /// Location of an entry that is known to have existed, but is lost.
    pub(crate) const LOST_ENTRY: Self = Self { at: 0, length: 0, sum: 0 };

    /// Returns the entry's share of live data. It is never 0, although an entry may be empty.
    fn weight(self) -> u64 {
        FRAME_ROW_BYTES + u64::from(self.length)
    }
}

// === impl GroupIndex ===

impl GroupIndex {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    pub(crate) fn term(&self, index: u64) -> u64 {
        let after = self.terms.partition_point(|run| run.0 <= index);
        after.checked_sub(1).map_or(0, |run| self.terms[run].1)
    }

    fn push(&mut self, term: u64, slot: EntryLocation) {
        let index = self.end();
        if self.terms.back().is_none_or(|run| run.1 != term) {
            self.terms.push_back((index, term));
        }
        if self.slots.len() == self.slots.capacity() {
            // Doubling the capacity would leave up to half of it empty.
            self.slots.reserve_exact((self.slots.len() / 8).max(16));
        }
        self.slots.push_back(slot);
    }

    fn truncate(&mut self, from: u64) -> Vec<EntryLocation> {
        let keep = from.saturating_sub(self.first).min(self.slots.len() as u64);
        while self.terms.back().is_some_and(|run| run.0 >= from) {
            self.terms.pop_back();
        }
        self.slots.drain(keep as usize..).collect()
    }

    fn purge(&mut self, index: u64, term: u64) -> Vec<EntryLocation> {
        let gone = (index + 1).saturating_sub(self.first).min(self.slots.len() as u64);
        let slots = self.slots.drain(..gone as usize).collect();
        self.first = self.first.max(index + 1);
        while self.terms.get(1).is_some_and(|run| run.0 <= self.first) {
            self.terms.pop_front();
        }
        if self.slots.is_empty() {
            self.terms.clear();
        }
        if self.slots.capacity() > 64 && self.slots.capacity() / 4 > self.slots.len() {
            self.slots.shrink_to(self.slots.len() * 2);
        }
        self.purged = self.purged.max(Some((index, term)));
        self.lost.retain(|(first, count)| first + count > index);
        slots
    }

    pub(crate) fn mark_lost(&mut self, first: u64, count: u64) {
        self.hurt = true;
        if count == 0 || self.lost.iter().any(|(at, n)| *at <= first && first + count <= at + n) {
            return;
        }
        self.lost.push((first, count));
        self.lost.sort_unstable();
        if self.lost.len() > MAX_LOST_RANGES_PER_GROUP {
            let start = self.lost[0].0;
            let end = self.lost.iter().map(|(at, n)| at + n).max().unwrap_or(start);
            self.lost = vec![(start, end - start)];
        }
    }

    // --- visible state, including pending records ---

    pub(crate) fn visible_purged(&self) -> Option<(u64, u64)> {
        self.pending.purged.back().map(|(_, mark)| *mark).max(self.purged)
    }

    pub(crate) fn visible_state(&self) -> Bytes {
        self.pending.state.as_ref().map_or(&self.state, |(_, state)| state).clone()
    }

    /// Returns the first visible index, and the index after the last.
    pub(crate) fn visible_range(&self) -> (u64, u64) {
        let first = self.visible_purged().map_or(0, |(index, _)| index + 1);
        let cut = self.pending.cuts.iter().map(|(_, from)| *from).min();
        let held = if self.slots.is_empty() {
            None
        } else {
            Some(cut.map_or(self.end(), |cut| cut.min(self.end())))
        };
        let held = held.filter(|end| *end > self.first.max(first));
        let waiting = self.pending.entries.last_key_value().map(|(index, _)| index + 1);
        let end = waiting.or(held).unwrap_or(first).max(first);
        let begin = if held.is_some() {
            self.first
        } else {
            self.pending.entries.first_key_value().map_or(end, |(index, _)| *index)
        };
        (begin.max(first), end)
    }

    pub(crate) fn find(&self, index: u64) -> EntryLookup {
        if self.visible_purged().is_some_and(|(purged, _)| index <= purged) {
            return EntryLookup::Nothing;
        }
        if let Some((_, term, data)) = self.pending.entries.get(&index) {
            return EntryLookup::Waiting(*term, data.clone());
        }
        if self.pending.cuts.iter().any(|(_, from)| *from <= index) {
            return EntryLookup::Nothing;
        }
        self.find_durable(index)
    }

    /// Same as [`GroupIndex::find`], but ignores pending records.
    pub(crate) fn find_durable(&self, index: u64) -> EntryLookup {
        let slot = index.checked_sub(self.first).and_then(|place| self.slots.get(place as usize));
        match slot {
            Some(&EntryLocation::LOST_ENTRY) => EntryLookup::Lost(self.term(index)),
            Some(slot) => EntryLookup::At(self.term(index), *slot),
            None => EntryLookup::Nothing,
        }
    }

    /// Returns the largest index that a new entry may have, or none if every index is permitted.
    pub(crate) fn next_index(&self) -> Option<u64> {
        let (first, end) = self.visible_range();
        if first == end && self.visible_purged().is_none() && self.first == 0 { None } else { Some(end) }
    }

    // --- pending records ---

    fn add_pending(&mut self, ticket: u64, row: &FrameRow, data: &Bytes) {
        let pending = &mut self.pending;
        match row.kind {
            FrameRowKind::Entry => {
                let (_, end) = self.visible_range();
                let pending = &mut self.pending;
                if row.index < end {
                    pending.cuts.push_back((ticket, row.index));
                    pending.entries.split_off(&row.index);
                }
                pending.entries.insert(row.index, (ticket, row.term, data.clone()));
            }
            FrameRowKind::Truncate => {
                pending.cuts.push_back((ticket, row.index));
                pending.entries.split_off(&row.index);
            }
            FrameRowKind::Purge => {
                pending.purged.push_back((ticket, (row.index, row.term)));
                pending.entries = pending.entries.split_off(&(row.index + 1));
            }
            FrameRowKind::State => pending.state = Some((ticket, data.clone())),
            _ => {}
        }
    }

    fn complete_pending(&mut self, ticket: u64, row: &FrameRow) {
        let pending = &mut self.pending;
        let done = |front: Option<&u64>| front.is_some_and(|first| *first <= ticket);
        while done(pending.cuts.front().map(|(first, _)| first)) {
            pending.cuts.pop_front();
        }
        while done(pending.purged.front().map(|(first, _)| first)) {
            pending.purged.pop_front();
        }
        if row.kind == FrameRowKind::Entry
            && pending.entries.get(&row.index).is_some_and(|(of, ..)| *of == ticket)
        {
            pending.entries.remove(&row.index);
        }
        if row.kind == FrameRowKind::State && pending.state.as_ref().is_some_and(|(of, _)| *of == ticket) {
            pending.state = None;
        }
    }

    /// Returns the rows that the first frame of a segment repeats, so that all earlier segments can be
    /// removed.
    fn marks(&self, group: u32) -> Vec<RowWithPayload> {
        let bare = |kind, index, term| (FrameRow::without_payload(kind, group, index, term), Bytes::new());
        let mut lines =
            vec![(FrameRow::without_payload(FrameRowKind::State, group, 0, 0), self.state.clone())];
        lines.extend(self.purged.map(|(index, term)| bare(FrameRowKind::Purge, index, term)));
        lines.push(bare(FrameRowKind::Extent, self.first, self.end()));
        if self.hurt {
            let ranges = self.lost.iter().copied().chain([(0, 0)]);
            lines.extend(ranges.map(|(index, count)| {
                let length = u32::try_from(count).unwrap_or(u32::MAX);
                (
                    FrameRow { length, ..FrameRow::without_payload(FrameRowKind::Hurt, group, index, 0) },
                    Bytes::new(),
                )
            }));
        }
        lines
    }
}

// === impl LogIndex ===

impl LogIndex {
    /// Limit of rows that one group takes in [`LogIndex::marks`].
    pub(crate) const MAX_MARKS_PER_GROUP: u64 = 4 + MAX_LOST_RANGES_PER_GROUP as u64;

    pub(crate) fn live_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.live).sum()
    }

    /// Sets the size of a segment's file.
    pub(crate) fn set_capacity(&mut self, number: u64, capacity: u64) {
        self.segments.entry(number).or_default().capacity = capacity;
    }

    /// Returns the total size of all files, in bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.capacity).sum()
    }

    /// Returns whether the files are larger than twice the live data plus three of the largest files.
    pub(crate) fn needs_relocation(&self) -> bool {
        let largest = self.segments.values().map(|segment| segment.capacity).max().unwrap_or(0);
        self.capacity_bytes() > 2 * self.live_bytes() + 3 * largest
    }

    /// Makes submitted records visible before they are durable.
    pub(crate) fn add_pending(&mut self, first_ticket: u64, lines: &[RowWithPayload]) {
        for (ticket, (row, data)) in (first_ticket..).zip(lines) {
            self.groups.entry(row.group).or_default().add_pending(ticket, row, data);
        }
    }

    /// Applies a submitted record that is now durable.
    pub(crate) fn complete_pending(&mut self, ticket: u64, row: &FrameRow, at: u64, data: &Bytes) {
        self.apply(row, at, data);
        if let Some(group) = self.groups.get_mut(&row.group) {
            group.complete_pending(ticket, row);
        }
    }

    /// Applies a durable row to the index.
    pub(crate) fn apply(&mut self, row: &FrameRow, at: u64, data: &Bytes) {
        let group = self.groups.entry(row.group).or_default();
        let slot = EntryLocation { at, length: row.length, sum: row.sum };
        let mut kept = false;
        let gone = match row.kind {
            FrameRowKind::Entry => {
                if group.slots.is_empty() && group.purged.is_none_or(|(purged, _)| row.index > purged) {
                    group.first = row.index;
                }
                let gone = group.truncate(row.index);
                kept = group.end() == row.index;
                if kept {
                    group.push(row.term, slot);
                }
                gone
            }
            FrameRowKind::Move => {
                let place = row.index.checked_sub(group.first);
                let held = place.and_then(|place| group.slots.get_mut(place as usize));
                kept = held.is_some();
                held.map(|held| std::mem::replace(held, slot)).into_iter().collect()
            }
            FrameRowKind::Truncate => group.truncate(row.index),
            FrameRowKind::Purge => group.purge(row.index, row.term),
            FrameRowKind::State => {
                group.state = data.clone();
                Vec::new()
            }
            FrameRowKind::Extent | FrameRowKind::Before | FrameRowKind::BeforeMoved | FrameRowKind::Hurt => {
                Vec::new()
            }
        };
        if kept {
            self.adjust_live_bytes(slot, true);
        }
        for slot in gone {
            self.adjust_live_bytes(slot, false);
        }
    }

    /// Adds a recovered group and its entries.
    pub(crate) fn restore(&mut self, number: u32, group: GroupIndex, entries: Vec<(u64, EntryLocation)>) {
        let held = self.groups.entry(number).or_insert(group);
        for (term, slot) in &entries {
            held.push(*term, *slot);
        }
        for (_, slot) in entries {
            self.adjust_live_bytes(slot, true);
        }
    }

    pub(crate) fn adjust_live_bytes(&mut self, slot: EntryLocation, more: bool) {
        if slot == EntryLocation::LOST_ENTRY {
            return;
        }
        if let Some(SegmentUsage { live, .. }) = self.segments.get_mut(&(slot.at / self.segment)) {
            *live = if more { *live + slot.weight() } else { live.saturating_sub(slot.weight()) };
        }
    }

    /// Removes segments without live data from the front of the list, oldest first, and returns their
    /// numbers.
    pub(crate) fn take_retired_segments(&mut self) -> Vec<u64> {
        let mut retired = Vec::new();
        while self.segments.len() > 1 {
            match self.segments.first_entry() {
                Some(front) if front.get().live == 0 => retired.push(front.remove_entry().0),
                _ => break,
            }
        }
        retired
    }

    /// Returns entries of the oldest segment, up to `bytes` bytes but at least one.
    pub(crate) fn oldest_segment_entries(&self, bytes: u64) -> Vec<(u32, u64)> {
        let Some(until) = self.segments.first_key_value().map(|(number, _)| (number + 1) * self.segment)
        else {
            return Vec::new();
        };
        let mut picked = Vec::new();
        let mut size = 0;
        for (number, group) in &self.groups {
            for (index, slot) in (group.first..).zip(&group.slots) {
                if *slot == EntryLocation::LOST_ENTRY || slot.at >= until {
                    continue;
                }
                size += slot.weight();
                if size > bytes && !picked.is_empty() {
                    return picked;
                }
                picked.push((*number, index));
            }
        }
        picked
    }

    /// Returns the rows that record lost data.
    pub(crate) fn damage_marks(&self) -> Vec<RowWithPayload> {
        self.marks().into_iter().filter(|(row, _)| row.kind == FrameRowKind::Hurt).collect()
    }

    pub(crate) fn marks(&self) -> Vec<RowWithPayload> {
        let mut lines: Vec<RowWithPayload> =
            self.groups.iter().flat_map(|(number, group)| group.marks(*number)).collect();
        if self.all_hurt {
            lines.push((FrameRow::without_payload(FrameRowKind::Hurt, EVERY_GROUP, 0, 0), Bytes::new()));
        }
        lines
    }
}
