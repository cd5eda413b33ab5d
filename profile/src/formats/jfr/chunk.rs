//! Chunk of a recording: a header, then a sequence of events.
//!
//! The metadata event describes the types of the other events. Checkpoint events define the constants that
//! events refer to.

use super::input::ChunkCursor;
use super::metadata::JfrTypeTable;
use super::pools::{ConstantPoolReader, ConstantPools};
use super::{JfrError, JfrLimits};

const CHUNK_MAGIC: [u8; 4] = *b"FLR\0";
const CHUNK_HEADER_BYTES: usize = 68;
/// Supported major version, with any minor version.
const MAJOR_VERSION: u16 = 2;
/// Type id of checkpoint events, which hold constants.
const CHECKPOINT_EVENT_TYPE: u64 = 1;

/// Returns whether data begins with the magic bytes of a chunk.
pub(super) fn has_magic(raw: &[u8]) -> bool {
    raw.starts_with(&CHUNK_MAGIC)
}

/// Chunk with its types and the positions of its constants.
pub(super) struct JfrChunk<'a> {
    /// Bytes of the chunk, including its header.
    pub(super) input: ChunkCursor<'a>,
    pub(super) types: JfrTypeTable<'a>,
    pub(super) pools: ConstantPools,
    /// Start of the chunk in Unix nanoseconds.
    pub(super) start: i64,
    /// Duration of the chunk in nanoseconds.
    pub(super) duration: i64,
    /// Ticks per second of the chunk's clock.
    pub(super) ticks: u64,
}

/// Reads the chunk at the beginning of `raw`. Returns it with the remaining data. `at` is its offset in the
/// recording, for errors.
pub(super) fn read<'a>(
    raw: &'a [u8],
    at: usize,
    limits: &JfrLimits,
) -> Result<(JfrChunk<'a>, &'a [u8]), JfrError> {
    let outer = |error: JfrError| error.offset_by(at);
    if !has_magic(raw) && !raw.is_empty() {
        return Err(if at == 0 {
            JfrError::OtherFormat
        } else {
            JfrError::Malformed { at, why: "no chunk" }
        });
    }
    let header = raw.get(..CHUNK_HEADER_BYTES).ok_or(JfrError::Truncated { at: at + raw.len() })?;
    let word = |from: usize| {
        let bytes: [u8; 8] = header[from..from + 8].try_into().expect("the header is longer");
        u64::from_be_bytes(bytes)
    };
    let major = u16::from_be_bytes([raw[4], raw[5]]);
    let minor = u16::from_be_bytes([raw[6], raw[7]]);
    if major != MAJOR_VERSION {
        return Err(JfrError::Version { major, minor });
    }
    let size = word(8);
    if size == 0 {
        return Err(JfrError::Unfinished { at });
    }
    if size > raw.len() as u64 || size > u64::from(u32::MAX) {
        return Err(JfrError::Truncated { at: at + raw.len() });
    }
    let (own, rest) = raw.split_at((size as usize).max(CHUNK_HEADER_BYTES).min(raw.len()));
    let is_compressed = header[CHUNK_HEADER_BYTES - 1] & 1 != 0;
    let input = ChunkCursor::new(own, is_compressed).at_position(CHUNK_HEADER_BYTES);
    let types = JfrTypeTable::read(input.at_position((word(24) as usize).min(own.len()))).map_err(outer)?;
    let mut chunk = JfrChunk {
        input,
        types,
        pools: ConstantPools::default(),
        start: word(32) as i64,
        duration: word(40) as i64,
        ticks: word(56),
    };
    chunk.fill_pools(limits).map_err(outer)?;
    Ok((chunk, rest))
}

impl<'a> JfrChunk<'a> {
    fn fill_pools(&mut self, limits: &JfrLimits) -> Result<(), JfrError> {
        let mut pools = ConstantPools::default();
        let mut reader = ConstantPoolReader::new(&self.types, limits.constants);
        let mut events = JfrEventReader(self.input);
        while let Some((class, mut event)) = events.next()? {
            if class == CHECKPOINT_EVENT_TYPE {
                reader.read_checkpoint(&mut event, &mut pools)?;
            }
        }
        self.pools = pools;
        Ok(())
    }

    /// Returns a reader of all events, in file order.
    pub(super) fn events(&self) -> JfrEventReader<'a> {
        JfrEventReader(self.input)
    }
}

/// Reader of a chunk's events in file order.
pub(super) struct JfrEventReader<'a>(ChunkCursor<'a>);

impl<'a> JfrEventReader<'a> {
    /// Returns the type and the fields of the next event; `None` at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u64, ChunkCursor<'a>)>, JfrError> {
        let start = self.0.position();
        if self.0.remaining_bytes() == 0 {
            return Ok(None);
        }
        let mut event = self.0;
        let size = event.read_int()?;
        let class = event.read_long()?;
        let end = start + size;
        if end < event.position() {
            return Err(JfrError::Malformed { at: start, why: "an event smaller than its header" });
        }
        if size > self.0.remaining_bytes() {
            return Err(JfrError::Truncated { at: start });
        }
        self.0 = self.0.at_position(end);
        Ok(Some((class, event.limited_to(end))))
    }
}
