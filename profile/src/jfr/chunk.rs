//! A chunk: a header, then events one after the other. What an event is, metadata says, which is one of them; what its
//! numbers stand for, checkpoints say, which are others.

use super::input::Input;
use super::metadata::Types;
use super::pools::{PoolReader, Pools};
use super::{JfrError, Limits};

const MAGIC: [u8; 4] = *b"FLR\0";
const HEADER: usize = 68;
/// The version that is read, whatever comes after its point.
const MAJOR: u16 = 2;
/// The type of events that have constants.
const CHECKPOINT: u64 = 1;

/// Whether a recording begins here.
pub(super) fn begins(raw: &[u8]) -> bool {
    raw.starts_with(&MAGIC)
}

/// One chunk.
pub(super) struct Chunk<'a> {
    /// Its bytes, from its header on.
    pub(super) input: Input<'a>,
    pub(super) types: Types<'a>,
    pub(super) pools: Pools,
    /// When it begins, Unix nanoseconds.
    pub(super) start: i64,
    /// How long it took, in nanoseconds.
    pub(super) duration: i64,
    /// Of its clock in a second.
    pub(super) ticks: u64,
}

/// The chunk at the beginning of `raw`, and what follows it. `at`: where that is in the recording.
pub(super) fn read<'a>(raw: &'a [u8], at: usize, limits: &Limits) -> Result<(Chunk<'a>, &'a [u8]), JfrError> {
    let outer = |error: JfrError| error.moved(at);
    if !begins(raw) && !raw.is_empty() {
        return Err(if at == 0 {
            JfrError::OtherFormat
        } else {
            JfrError::Malformed { at, why: "no chunk" }
        });
    }
    let header = raw.get(..HEADER).ok_or(JfrError::Truncated { at: at + raw.len() })?;
    let word = |from: usize| {
        let bytes: [u8; 8] = header[from..from + 8].try_into().expect("the header is longer");
        u64::from_be_bytes(bytes)
    };
    let (major, minor) = (u16::from_be_bytes([raw[4], raw[5]]), u16::from_be_bytes([raw[6], raw[7]]));
    if major != MAJOR {
        return Err(JfrError::Version { major, minor });
    }
    let size = word(8);
    if size == 0 {
        return Err(JfrError::Unfinished { at });
    }
    if size > raw.len() as u64 || size > u64::from(u32::MAX) {
        return Err(JfrError::Truncated { at: at + raw.len() });
    }
    let (own, rest) = raw.split_at((size as usize).max(HEADER).min(raw.len()));
    let is_compressed = header[HEADER - 1] & 1 != 0;
    let input = Input::new(own, is_compressed).at(HEADER);
    let types = Types::read(input.at((word(24) as usize).min(own.len()))).map_err(outer)?;
    let mut chunk = Chunk {
        input,
        types,
        pools: Pools::default(),
        start: word(32) as i64,
        duration: word(40) as i64,
        ticks: word(56),
    };
    chunk.fill_pools(limits).map_err(outer)?;
    Ok((chunk, rest))
}

impl<'a> Chunk<'a> {
    fn fill_pools(&mut self, limits: &Limits) -> Result<(), JfrError> {
        let mut pools = Pools::default();
        let mut reader = PoolReader::new(&self.types, limits.constants);
        let mut events = Events(self.input);
        while let Some((class, mut event)) = events.next()? {
            if class == CHECKPOINT {
                reader.checkpoint(&mut event, &mut pools)?;
            }
        }
        self.pools = pools;
        Ok(())
    }

    /// All events, in their order.
    pub(super) fn events(&self) -> Events<'a> {
        Events(self.input)
    }
}

/// Goes from event to event.
pub(super) struct Events<'a>(Input<'a>);

impl<'a> Events<'a> {
    /// The type of the next event, and its fields. None at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u64, Input<'a>)>, JfrError> {
        let start = self.0.place();
        if self.0.left() == 0 {
            return Ok(None);
        }
        let mut event = self.0;
        let size = event.int()?;
        let class = event.long()?;
        let end = start + size;
        if end < event.place() {
            return Err(JfrError::Malformed { at: start, why: "an event that is smaller than its head" });
        }
        if size > self.0.left() {
            return Err(JfrError::Truncated { at: start });
        }
        self.0 = self.0.at(end);
        Ok(Some((class, event.until(end))))
    }
}
