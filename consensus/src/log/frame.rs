//! Encoding of a frame, which is one group commit.
//!
//! ```text
//! head   64 bytes   magic, own position, durable, salt, position and sum of the frame before, counts, sum
//! table  32 a row   kind and group, index, term, length and checksum
//! payloads          one after the other, in the order of the table
//! zeros             up to the next 4 KiB
//! ```
//! The sum covers head and table. Each payload has its own checksum. All numbers are little endian.

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Alignment of frames. A durable frame is never written again, so a torn write damages no acknowledged data.
pub(crate) const FRAME_ALIGNMENT_BYTES: u64 = 4096;
pub(crate) const FRAME_HEADER_BYTES: u64 = 64;
pub(crate) const FRAME_ROW_BYTES: u64 = 32;
/// Group number that stands for every group.
pub(crate) const EVERY_GROUP: u32 = u32::MAX;

const FRAME_MAGIC: u64 = u64::from_le_bytes(*b"athlog\x01\n");

/// Meaning of a row in a frame's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameRowKind {
    /// Appends an entry, after which the group holds no later one.
    Entry = 1,
    /// Copies an entry from a segment that is to be freed. Later entries may exist.
    Move = 2,
    /// Drops the group's entries from `index` on.
    Truncate = 3,
    /// Drops the group's entries up to and including `index`.
    Purge = 4,
    /// Small state of the group. The last one counts.
    State = 5,
    /// Range of entries that the group holds: from `index` up to, but without, `term`.
    Extent = 6,
    /// Summary of the previous frame: it held `length` entries of the group from `index` on, or no entry if
    /// `length` is 0.
    Before = 7,
    /// Same as `Before`, for relocated entries.
    BeforeMoved = 8,
    /// Loss record of the group: `length` entries from `index` on, or other data if `length` is 0.
    Hurt = 9,
}

/// Row of a frame's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameRow {
    pub(crate) kind: FrameRowKind,
    pub(crate) group: u32,
    pub(crate) index: u64,
    pub(crate) term: u64,
    /// Bytes of the payload, or the number of entries of a range.
    pub(crate) length: u32,
    pub(crate) sum: u32,
}

/// Position and sum of the previous frame. Old bytes in a recycled file do not fit into this chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameLink {
    pub(crate) at: u64,
    pub(crate) sum: u64,
}

/// Row to write, and its payload.
pub(crate) type RowWithPayload = (FrameRow, Bytes);

/// Position of a frame, and the header fields that refer to earlier frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePlacement {
    pub(crate) at: u64,
    pub(crate) durable: u64,
    pub(crate) salt: u64,
    pub(crate) before: FrameLink,
}

/// Frame with an intact head and table.
#[derive(Debug)]
pub(crate) struct LogFrame {
    pub(crate) at: u64,
    /// Position where the next frame begins.
    pub(crate) next: u64,
    pub(crate) durable: u64,
    pub(crate) before: FrameLink,
    pub(crate) sum: u64,
    pub(crate) rows: Vec<FrameRow>,
}

/// Encoded frame: head, table and the position of each payload. The payloads are not copied.
pub(crate) struct EncodedFrame {
    pub(crate) head: Vec<u8>,
    pub(crate) total: u64,
    pub(crate) link: FrameLink,
    pub(crate) rows: Vec<(FrameRow, u64)>,
}

// === impl FrameRowKind ===

impl FrameRowKind {
    fn from_code(byte: u32) -> Option<Self> {
        use FrameRowKind::{Before, BeforeMoved, Entry, Extent, Hurt, Move, Purge, State, Truncate};
        let kinds = [Entry, Move, Truncate, Purge, State, Extent, Before, BeforeMoved, Hurt];
        kinds.into_iter().find(|kind| *kind as u32 == byte)
    }

    /// Returns whether `length` and `sum` describe a payload.
    pub(crate) const fn has_payload(self) -> bool {
        matches!(self, Self::Entry | Self::Move | Self::State)
    }
}

impl FrameRow {
    pub(crate) const fn without_payload(kind: FrameRowKind, group: u32, index: u64, term: u64) -> Self {
        Self { kind, group, index, term, length: 0, sum: 0 }
    }

    fn payload_bytes(&self) -> u64 {
        if self.kind.has_payload() { u64::from(self.length) } else { 0 }
    }
}

/// Returns the checksum of a payload and its position, so that bytes at a wrong position do not match.
pub(crate) fn payload_checksum(payload: &[u8], at: u64, salt: u64) -> u32 {
    xxh3_64_with_seed(payload, at ^ salt) as u32
}

/// Returns the size of a frame with `rows` rows and `payload` bytes.
pub(crate) fn frame_bytes(rows: usize, payload: u64) -> u64 {
    (FRAME_HEADER_BYTES + FRAME_ROW_BYTES * rows as u64 + payload).next_multiple_of(FRAME_ALIGNMENT_BYTES)
}

pub(crate) fn encode_frame(place: FramePlacement, lines: &[RowWithPayload]) -> EncodedFrame {
    let table = FRAME_HEADER_BYTES + FRAME_ROW_BYTES * lines.len() as u64;
    let payload: u64 = lines.iter().map(|(_, data)| data.len() as u64).sum();
    let mut head = Vec::with_capacity(table as usize);
    let counts = (lines.len() as u64) << 32 | payload;
    for word in
        [FRAME_MAGIC, place.at, place.durable, place.salt, place.before.at, place.before.sum, counts, 0]
    {
        head.extend_from_slice(&word.to_le_bytes());
    }
    let mut at = place.at + table;
    let mut rows = Vec::with_capacity(lines.len());
    for (row, data) in lines {
        let mut row = *row;
        if row.kind.has_payload() {
            row.length = data.len() as u32;
            row.sum = payload_checksum(data, at, place.salt);
        }
        head.extend_from_slice(&(row.kind as u32).to_le_bytes());
        head.extend_from_slice(&row.group.to_le_bytes());
        head.extend_from_slice(&row.index.to_le_bytes());
        head.extend_from_slice(&row.term.to_le_bytes());
        head.extend_from_slice(&row.length.to_le_bytes());
        head.extend_from_slice(&row.sum.to_le_bytes());
        rows.push((row, at));
        at += row.payload_bytes();
    }
    let sum = xxh3_64(&head);
    head[56..64].copy_from_slice(&sum.to_le_bytes());
    EncodedFrame {
        head,
        total: frame_bytes(lines.len(), payload),
        link: FrameLink { at: place.at, sum },
        rows,
    }
}

// === impl LogFrame ===

impl LogFrame {
    /// Returns the lengths of the table (with head) and of the frame. Returns `None` if the bytes are no
    /// frame head for position `at`, or the frame exceeds `room` bytes up to the end of its segment.
    pub(crate) fn parse_lengths(head: &[u8], at: u64, salt: u64, room: u64) -> Option<(u64, u64)> {
        if read_word(head, 0)? != FRAME_MAGIC || read_word(head, 1)? != at || read_word(head, 3)? != salt {
            return None;
        }
        let counts = read_word(head, 6)?;
        let table = FRAME_HEADER_BYTES + FRAME_ROW_BYTES * (counts >> 32);
        let total = (table + (counts & 0xffff_ffff)).next_multiple_of(FRAME_ALIGNMENT_BYTES);
        (total <= room).then_some((table, total))
    }

    /// Parses head and table. Returns `None` if they are not intact.
    pub(crate) fn parse(table: &[u8], at: u64, total: u64) -> Option<Self> {
        let sum = read_word(table, 7)?;
        let mut clean = table.to_vec();
        clean[56..64].fill(0);
        if xxh3_64(&clean) != sum {
            return None;
        }
        let rows: Option<Vec<FrameRow>> = table[FRAME_HEADER_BYTES as usize..]
            .chunks_exact(FRAME_ROW_BYTES as usize)
            .map(parse_row)
            .collect();
        let rows = rows?;
        let payload: u64 = rows.iter().map(FrameRow::payload_bytes).sum();
        if payload != read_word(table, 6)? & 0xffff_ffff {
            return None;
        }
        Some(Self {
            at,
            next: at + total,
            durable: read_word(table, 2)?,
            before: FrameLink { at: read_word(table, 4)?, sum: read_word(table, 5)? },
            sum,
            rows,
        })
    }

    pub(crate) const fn link(&self) -> FrameLink {
        FrameLink { at: self.at, sum: self.sum }
    }

    /// Iterates over the rows, each with the position of its payload.
    pub(crate) fn rows_with_positions(&self) -> impl Iterator<Item = (&FrameRow, u64)> {
        let mut next = self.at + FRAME_HEADER_BYTES + FRAME_ROW_BYTES * self.rows.len() as u64;
        self.rows.iter().map(move |row| {
            let at = next;
            next += row.payload_bytes();
            (row, at)
        })
    }
}

fn parse_row(bytes: &[u8]) -> Option<FrameRow> {
    // Indices count entries one by one, so larger ones cannot come from a valid log.
    let sane = |index: u64| (index < 1 << 62).then_some(index);
    let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let kind = FrameRowKind::from_code(half(0)?)?;
    Some(FrameRow {
        kind,
        group: half(4)?,
        index: sane(read_word(bytes, 1)?)?,
        term: if kind == FrameRowKind::Extent { sane(read_word(bytes, 2)?)? } else { read_word(bytes, 2)? },
        length: half(24)?,
        sum: half(28)?,
    })
}

fn read_word(bytes: &[u8], number: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(number * 8..number * 8 + 8)?.try_into().ok()?))
}
