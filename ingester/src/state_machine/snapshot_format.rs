//! The bytes of a snapshot: which versions of them there are, and what stands in them beside the ids.
//!
//! ```text
//!  version │ the window of ids │ states of series: none so far │ forgot │ standing │ ids that were taken over
//!                                                                       └ not in version 3, whose window has no floor
//! ```

use athanor_catalog::ShardId;
use athanor_profile::codec::{CodecError, CodecReader, put_varint};
use athanor_profile::hash::ContentHash;

use crate::entry;
use crate::shard_log_status::ShardLogStatus;
use crate::window::TimesFormat;

/// The version that is written.
const SNAPSHOT_VERSION: u64 = 4;
/// That of builds which knew one table, and no shard that follows another.
const SINGLE_TABLE_VERSION: u64 = 3;

/// An id that was taken over from a shard that settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InheritedId {
    pub index: u64,
    pub of: ShardId,
    pub id: ContentHash,
    /// The entry from which on the other asks no more. Snapshots of before do not know that.
    pub released: Option<u64>,
}

/// What a snapshot says beside the ids.
#[derive(Debug)]
pub struct ShardSnapshot {
    /// The ids of records up to this entry were lost, and nobody was told yet; 0 for none.
    pub forgot: u64,
    pub standing: ShardLogStatus,
    pub taken: Vec<InheritedId>,
}

/// Reads the version, and tells how the window behind it is written.
pub fn read_times_format(unpacker: &mut CodecReader<'_>) -> Result<TimesFormat, CodecError> {
    match unpacker.read_number()? {
        SNAPSHOT_VERSION => Ok(TimesFormat::WithFloor),
        SINGLE_TABLE_VERSION => Ok(TimesFormat::WithoutFloor),
        _ => Err(unpacker.error_here("a snapshot of a version that this one does not know")),
    }
}

impl ShardSnapshot {
    /// The bytes of a snapshot, around those of its window.
    pub fn write(&self, window: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, SNAPSHOT_VERSION);
        bytes.extend_from_slice(window);
        // Here the state of series will stand: the last values of cumulative profiles.
        put_varint(&mut bytes, 0);
        put_varint(&mut bytes, self.forgot);
        self.standing.write(&mut bytes);
        put_varint(&mut bytes, self.taken.len() as u64);
        for InheritedId { index, of, id, .. } in &self.taken {
            put_varint(&mut bytes, *index);
            put_varint(&mut bytes, u64::from(*of));
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Reads what stands behind the window.
    pub fn read(times: TimesFormat, unpacker: &mut CodecReader<'_>) -> Result<Self, CodecError> {
        for _ in 0..unpacker.read_count()? {
            unpacker.read_bytes()?;
        }
        let forgot = unpacker.read_number()?;
        let mut read = Self { forgot, standing: ShardLogStatus::with_single_table(), taken: Vec::new() };
        if times == TimesFormat::WithFloor {
            read.standing = ShardLogStatus::read(unpacker)?;
            for _ in 0..unpacker.read_count()? {
                let index = unpacker.read_number()?;
                let of = unpacker.read_u32()?;
                let id = entry::read_id(unpacker)?;
                read.taken.push(InheritedId { index, of, id, released: None });
            }
        }
        // Bytes of one version that say that they are of another would be read as something else.
        if unpacker.is_done() {
            Ok(read)
        } else {
            Err(unpacker.error_here("bytes after the end of a snapshot"))
        }
    }
}

#[cfg(test)]
mod tests;
