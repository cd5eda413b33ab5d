//! Walk over the fields of a pprof profile that arrives in pieces.

use std::io::{self, Write};

const SAMPLE_TYPE_FIELD: u64 = 1;
const STRING_TABLE_FIELD: u64 = 6;
const TIME_NANOS_FIELD: u64 = 9;
/// Bytes of the content that an error message shows.
const MAX_START_BYTES: usize = 64;
const MAX_VARINT_BITS: u32 = 64;
/// Highest field number of protobuf.
const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;

/// Reason why a body is no usable profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body has no bytes.
    #[error("response is empty, a pprof profile was expected")]
    Empty,
    /// The profile is too large after decompression.
    #[error("profile has over {limit} bytes after decompression, which is the limit of a scraped profile")]
    PlainTooLarge {
        /// Upper bound of plain bytes.
        limit: u64,
    },
    /// The bytes are not those of a pprof profile.
    #[error(
        "response is no pprof profile: {why}; it begins with {start:?}; check path and params of the kind"
    )]
    NotPprof {
        /// Contradiction to the format.
        why: String,
        /// First bytes of the content.
        start: String,
    },
    /// The profile ends too early.
    #[error("profile is truncated: {why}")]
    Truncated {
        /// Place of the end.
        why: String,
    },
    /// The gzip stream is damaged.
    #[error("gzip stream of the profile is damaged: {why}")]
    Damaged {
        /// Reason of the decoder.
        why: String,
    },
}

/// Facts about a profile that passed the check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PprofSummary {
    /// Bytes after decompression.
    pub plain_bytes: u64,
    /// Time of the profile in Unix nanoseconds. 0 if it has none.
    pub time_nanos: i64,
    /// True if the body is compressed.
    pub is_gzip: bool,
}

/// Wire types of protobuf that proto3 has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WireType {
    Varint,
    Fixed64,
    Bytes,
    Fixed32,
}

#[derive(Clone, Copy, Debug)]
enum WalkState {
    /// In the number and type of a field.
    Key(PartialVarint),
    /// In a number.
    Number { field: u64, partial: PartialVarint },
    /// In the length of a text or message.
    Length { field: u64, partial: PartialVarint },
    /// In content that is skipped.
    Content { left: u64 },
}

#[derive(Clone, Copy, Debug, Default)]
struct PartialVarint {
    value: u64,
    bits: u32,
}

/// Walk over the top-level fields. Contents of messages are skipped.
#[derive(Clone, Debug)]
pub(super) struct PprofWalker {
    max_bytes: u64,
    walked: u64,
    state: WalkState,
    start: Vec<u8>,
    time_nanos: i64,
    has_sample_type: bool,
    has_strings: bool,
    error: Option<BodyError>,
}

impl PprofWalker {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            walked: 0,
            state: WalkState::Key(PartialVarint::default()),
            start: Vec::new(),
            time_nanos: 0,
            has_sample_type: false,
            has_strings: false,
            error: None,
        }
    }

    pub(super) fn walked_bytes(&self) -> u64 {
        self.walked
    }

    pub(super) fn error(&self) -> Option<&BodyError> {
        self.error.as_ref()
    }

    /// Walks over the next bytes.
    pub(super) fn walk(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let missing = MAX_START_BYTES - self.start.len();
        self.start.extend_from_slice(&bytes[..bytes.len().min(missing)]);
        let result = self.walk_fields(bytes);
        if let Err(error) = &result {
            self.error = Some(error.clone());
        }
        result
    }

    fn walk_fields(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        if self.walked + bytes.len() as u64 > self.max_bytes {
            return Err(BodyError::PlainTooLarge { limit: self.max_bytes });
        }
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            if let WalkState::Content { left } = self.state {
                let skipped = left.min(rest.len() as u64);
                self.state = match left - skipped {
                    0 => WalkState::Key(PartialVarint::default()),
                    left => WalkState::Content { left },
                };
                self.walked += skipped;
                rest = &rest[skipped as usize..];
                continue;
            }
            self.step(byte)?;
            self.walked += 1;
            rest = after;
        }
        Ok(())
    }

    /// Consumes a byte of a key, number or length.
    fn step(&mut self, byte: u8) -> Result<(), BodyError> {
        let mut partial = match self.state {
            WalkState::Key(partial)
            | WalkState::Number { partial, .. }
            | WalkState::Length { partial, .. } => partial,
            WalkState::Content { .. } => return Ok(()),
        };
        let is_last = partial.push(byte).ok_or_else(|| self.not_pprof("a number has over 64 bits"))?;
        self.state = match (self.state, is_last) {
            (WalkState::Key(_), false) => WalkState::Key(partial),
            (WalkState::Number { field, .. }, false) => WalkState::Number { field, partial },
            (WalkState::Length { field, .. }, false) => WalkState::Length { field, partial },
            (WalkState::Key(_), true) => self.enter_field(partial.value)?,
            (WalkState::Number { field, .. }, true) => {
                if field == TIME_NANOS_FIELD {
                    self.time_nanos = partial.value as i64;
                }
                WalkState::Key(PartialVarint::default())
            }
            (WalkState::Length { field, .. }, true) => {
                self.has_sample_type |= field == SAMPLE_TYPE_FIELD;
                self.has_strings |= field == STRING_TABLE_FIELD;
                let left = partial.value;
                if left == 0 { WalkState::Key(PartialVarint::default()) } else { WalkState::Content { left } }
            }
            (state @ WalkState::Content { .. }, _) => state,
        };
        Ok(())
    }

    fn enter_field(&self, key: u64) -> Result<WalkState, BodyError> {
        let field = key >> 3;
        let wire_type = match key & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Bytes,
            5 => WireType::Fixed32,
            other => return Err(self.not_pprof(&format!("field {field} has wire type {other}"))),
        };
        if field == 0 || field > MAX_FIELD_NUMBER {
            return Err(self.not_pprof(&format!("field number {field} does not exist")));
        }
        let has_usual_type = match field {
            1..=6 | 11 => wire_type == WireType::Bytes,
            7..=10 | 12 | 14 => wire_type == WireType::Varint,
            13 => matches!(wire_type, WireType::Bytes | WireType::Varint),
            _ => true,
        };
        if !has_usual_type {
            return Err(self.not_pprof(&format!("field {field} has a type that pprof does not use for it")));
        }
        let partial = PartialVarint::default();
        Ok(match wire_type {
            WireType::Varint => WalkState::Number { field, partial },
            WireType::Fixed64 => WalkState::Content { left: 8 },
            WireType::Bytes => WalkState::Length { field, partial },
            WireType::Fixed32 => WalkState::Content { left: 4 },
        })
    }

    fn not_pprof(&self, why: &str) -> BodyError {
        let why = format!("{why}, at byte {}", self.walked);
        BodyError::NotPprof { why, start: String::from_utf8_lossy(&self.start).into_owned() }
    }

    /// Ends the walk after the last byte.
    pub(super) fn finish(self, is_gzip: bool) -> Result<PprofSummary, BodyError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let is_between_fields = matches!(self.state, WalkState::Key(PartialVarint { bits: 0, .. }));
        if !is_between_fields {
            let why = format!("its last field is incomplete after {} bytes", self.walked);
            return Err(BodyError::Truncated { why });
        }
        if !self.has_sample_type || !self.has_strings {
            return Err(self.not_pprof("it has no sample type or no string table"));
        }
        Ok(PprofSummary { plain_bytes: self.walked, time_nanos: self.time_nanos, is_gzip })
    }
}

/// Sink of a decompressor.
impl Write for PprofWalker {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.walk(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PartialVarint {
    /// Adds a byte and returns whether it is the last. None if the number does not fit in 64 bits.
    fn push(&mut self, byte: u8) -> Option<bool> {
        if self.bits >= MAX_VARINT_BITS {
            return None;
        }
        self.value |= u64::from(byte & 0x7f) << self.bits;
        self.bits += 7;
        Some(byte & 0x80 == 0)
    }
}
