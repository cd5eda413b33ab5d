//! Parser of one record.

use std::fmt;

const HEADER_BYTES: usize = 8;
const SAMPLE_ID_BYTES: usize = 16;
const BUILD_ID_BYTES: usize = 20;
const MAX_PATH_BYTES: usize = 4096;
const MAX_COMM_BYTES: usize = 16;

const TYPE_LOST: u32 = 2;
const TYPE_COMM: u32 = 3;
const TYPE_EXIT: u32 = 4;
const TYPE_FORK: u32 = 7;
const TYPE_MMAP2: u32 = 10;
const TYPE_LOST_SAMPLES: u32 = 13;
const TYPE_CGROUP: u32 = 19;

const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_BUILD_ID: u16 = 1 << 14;
const PROTECTION_EXECUTE: u32 = 4;

/// Record of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidebandRecord<'a> {
    /// Process that caused the record, in the PID namespace of the opener. 0 outside of it, `u32::MAX` after its
    /// end.
    pub pid: u32,
    /// Thread that caused the record.
    pub tid: u32,
    /// Time by the clock of the event.
    pub time_nanos: u64,
    /// Content.
    pub event: SidebandEvent<'a>,
}

/// Content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SidebandEvent<'a> {
    /// A file or memory was mapped.
    Mmap(MmapRecord<'a>),
    /// A thread has a new name.
    Comm(CommRecord<'a>),
    /// A thread was created.
    Fork(TaskRecord),
    /// A thread ended.
    Exit(TaskRecord),
    /// A cgroup was created.
    Cgroup(CgroupRecord<'a>),
    /// Records were lost.
    Lost(LostRecord),
    /// Record of a type that processes do not need.
    Other(u32),
}

/// New mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmapRecord<'a> {
    /// Process. `u32::MAX` for the kernel.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Start.
    pub start: u64,
    /// Length.
    pub bytes: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Identity of the file.
    pub inode: MappedInode,
    /// The memory is executable.
    pub is_executable: bool,
    /// Path, `//anon` or a name in brackets.
    pub path: &'a [u8],
}

/// Identity of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedInode {
    /// Build id.
    BuildId(BuildId),
    /// Device and inode.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        /// Inode.
        inode: u64,
    },
}

/// Build id as the kernel reports it: at most 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId {
    bytes: [u8; BUILD_ID_BYTES],
    length: u8,
}

/// New name of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommRecord<'a> {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The name comes from an exec.
    pub is_exec: bool,
    /// Name, at most 16 bytes.
    pub comm: &'a [u8],
}

/// Start or end of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// Process.
    pub pid: u32,
    /// Parent process, or the same process if a thread was created.
    pub parent_pid: u32,
    /// Thread.
    pub tid: u32,
    /// Parent thread.
    pub parent_tid: u32,
    /// Time by the clock of the event.
    pub time_nanos: u64,
}

/// New cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupRecord<'a> {
    /// Id.
    pub id: u64,
    /// Path in the hierarchy.
    pub path: &'a [u8],
}

/// Loss of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRecord {
    /// Number of records.
    pub count: u64,
}

/// Record that does not have the form of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Less than a header, or a size that the ring does not hold.
    #[error("perf record of {size} bytes does not fit into {available} available bytes; the ring is corrupt")]
    Size {
        /// Size by the header.
        size: usize,
        /// Bytes of the ring.
        available: usize,
    },
    /// The fields of its type do not fit.
    #[error("perf record of type {record_type} has {size} bytes, which is too short for its fields")]
    TooShort {
        /// Type.
        record_type: u32,
        /// Size by the header.
        size: usize,
    },
    /// A build id is longer than its field.
    #[error("perf record has a build id of {length} bytes, the maximum is 20")]
    BuildId {
        /// Length in the record.
        length: u8,
    },
}

// === impl BuildId ===

impl BuildId {
    /// Copies a build id. Returns None if it is empty or has more than 20 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut id = Self { bytes: [0; BUILD_ID_BYTES], length: u8::try_from(bytes.len()).ok()? };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.is_empty()).then_some(id)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// Returns the id in hex.
    pub fn to_hex(&self) -> String {
        use fmt::Write as _;
        let mut text = String::with_capacity(2 * self.as_bytes().len());
        for byte in self.as_bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_hex())
    }
}

// === impl SidebandRecord ===

impl<'a> SidebandRecord<'a> {
    /// Parses the record at the start of `bytes`. Returns it with its size in the ring.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is longer than `bytes` or shorter than the fields of its type.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, usize), RecordError> {
        let size = Self::record_bytes(bytes)?;
        let mut fields = Fields { bytes: bytes.get(..size).unwrap_or_default() };
        let record_type = fields.u32().unwrap_or_default();
        let misc = fields.u16().unwrap_or_default();
        fields.u16();
        let too_short = RecordError::TooShort { record_type, size };
        let (body, trailer) = fields.split_trailer().ok_or(too_short)?;
        let mut trailer = Fields { bytes: trailer };
        let event = match parse_event(record_type, misc, body) {
            Ok(event) => event.ok_or(too_short)?,
            Err(error) => return Err(error),
        };
        let pid = trailer.u32().ok_or(too_short)?;
        let tid = trailer.u32().ok_or(too_short)?;
        let time_nanos = trailer.u64().ok_or(too_short)?;
        Ok((Self { pid, tid, time_nanos, event }, size))
    }

    /// Returns the size of the record at the start of `bytes`, so that an unreadable record can be skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if the size is less than a header or more than `bytes` holds: the next record cannot be
    /// found.
    pub fn record_bytes(bytes: &[u8]) -> Result<usize, RecordError> {
        let mut fields = Fields { bytes: bytes.get(6..).unwrap_or_default() };
        let size = usize::from(fields.u16().unwrap_or_default());
        if size < HEADER_BYTES || size > bytes.len() {
            return Err(RecordError::Size { size, available: bytes.len() });
        }
        Ok(size)
    }
}

/// Parses the fields of a type. Returns Ok(None) if they do not fit.
fn parse_event(
    record_type: u32,
    misc: u16,
    body: Fields<'_>,
) -> Result<Option<SidebandEvent<'_>>, RecordError> {
    Ok(match record_type {
        TYPE_MMAP2 => match parse_mmap(misc, body) {
            Some(record) => Some(SidebandEvent::Mmap(record?)),
            None => None,
        },
        TYPE_COMM => parse_comm(misc, body).map(SidebandEvent::Comm),
        TYPE_FORK => parse_task(body).map(SidebandEvent::Fork),
        TYPE_EXIT => parse_task(body).map(SidebandEvent::Exit),
        TYPE_CGROUP => parse_cgroup(body).map(SidebandEvent::Cgroup),
        TYPE_LOST => parse_lost(body, true).map(SidebandEvent::Lost),
        TYPE_LOST_SAMPLES => parse_lost(body, false).map(SidebandEvent::Lost),
        other => Some(SidebandEvent::Other(other)),
    })
}

fn parse_mmap(misc: u16, mut body: Fields<'_>) -> Option<Result<MmapRecord<'_>, RecordError>> {
    let pid = body.u32()?;
    let tid = body.u32()?;
    let start = body.u64()?;
    let bytes = body.u64()?;
    let offset = body.u64()?;
    let mut identity = Fields { bytes: body.take(24)? };
    let inode = if misc & MISC_BUILD_ID == 0 {
        MappedInode::Inode { major: identity.u32()?, minor: identity.u32()?, inode: identity.u64()? }
    } else {
        let length = *identity.take(4)?.first()?;
        let id = identity.bytes.get(..usize::from(length)).and_then(BuildId::from_bytes);
        match id {
            Some(id) => MappedInode::BuildId(id),
            None => return Some(Err(RecordError::BuildId { length })),
        }
    };
    let protection = body.u32()?;
    body.u32()?;
    let path = body.text(MAX_PATH_BYTES);
    let is_executable = protection & PROTECTION_EXECUTE != 0;
    Some(Ok(MmapRecord { pid, tid, start, bytes, offset, inode, is_executable, path }))
}

fn parse_comm(misc: u16, mut body: Fields<'_>) -> Option<CommRecord<'_>> {
    let pid = body.u32()?;
    let tid = body.u32()?;
    Some(CommRecord { pid, tid, is_exec: misc & MISC_COMM_EXEC != 0, comm: body.text(MAX_COMM_BYTES) })
}

fn parse_task(mut body: Fields<'_>) -> Option<TaskRecord> {
    Some(TaskRecord {
        pid: body.u32()?,
        parent_pid: body.u32()?,
        tid: body.u32()?,
        parent_tid: body.u32()?,
        time_nanos: body.u64()?,
    })
}

fn parse_cgroup(mut body: Fields<'_>) -> Option<CgroupRecord<'_>> {
    Some(CgroupRecord { id: body.u64()?, path: body.text(MAX_PATH_BYTES) })
}

fn parse_lost(mut body: Fields<'_>, has_id: bool) -> Option<LostRecord> {
    if has_id {
        body.u64()?;
    }
    Some(LostRecord { count: body.u64()? })
}

/// Rest of the fields of a record.
#[derive(Clone, Copy)]
struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_ne_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Returns the bytes up to the first NUL, all if there is none, at most `max_bytes`.
    fn text(&self, max_bytes: usize) -> &'a [u8] {
        let end = self.bytes.iter().take(max_bytes).position(|byte| *byte == 0);
        self.bytes.get(..end.unwrap_or(self.bytes.len().min(max_bytes))).unwrap_or_default()
    }

    /// Separates the process, thread and time at the end.
    fn split_trailer(self) -> Option<(Self, &'a [u8])> {
        let (body, trailer) = self.bytes.split_at_checked(self.bytes.len().checked_sub(SAMPLE_ID_BYTES)?)?;
        Some((Self { bytes: body }, trailer))
    }
}
