//! Format of a snapshot: its versions, and the fields beside the ids.
//!
//! ```text
//!  version │ the window of ids │ states of series: none so far │ forgot │ standing │ inherited ids
//!                                                                       └ not in version 3, without floor
//! ```

use athanor_catalog::ShardId;
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_varint};
use athanor_profile::encoding::hash::ContentHash;

use crate::log::entry;
use crate::log::shard_log_status::ShardLogStatus;
use crate::window::TimesFormat;

/// Version that this build writes.
const SNAPSHOT_VERSION: u64 = 4;
/// Version of builds that knew one table, and no shard that follows another.
const SINGLE_TABLE_VERSION: u64 = 3;

/// ID that was taken over from a settling shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InheritedId {
    pub index: u64,
    pub of: ShardId,
    pub id: ContentHash,
    /// Entry from which on the other shard sends no more requests. Snapshots do not contain it.
    pub released: Option<u64>,
}

/// Fields of a snapshot beside the ids.
#[derive(Debug)]
pub struct ShardSnapshot {
    /// Index up to which ids were lost, if the loss is not reported yet; 0 for none.
    pub forgot: u64,
    pub standing: ShardLogStatus,
    pub taken: Vec<InheritedId>,
}

/// Reads the version, and returns the format of the window that follows.
pub fn read_times_format(unpacker: &mut CodecReader<'_>) -> Result<TimesFormat, CodecError> {
    match unpacker.read_number()? {
        SNAPSHOT_VERSION => Ok(TimesFormat::WithFloor),
        SINGLE_TABLE_VERSION => Ok(TimesFormat::WithoutFloor),
        _ => Err(unpacker.error_here("a snapshot of a version that this one does not know")),
    }
}

impl ShardSnapshot {
    /// Encodes a snapshot around the bytes of its window.
    pub fn write(&self, window: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, SNAPSHOT_VERSION);
        bytes.extend_from_slice(window);
        // Reserved for the states of series: the last values of cumulative profiles.
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

    /// Reads the fields after the window.
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
        // Bytes that are labeled with another version would be read as something else.
        if unpacker.is_done() {
            Ok(read)
        } else {
            Err(unpacker.error_here("bytes after the end of a snapshot"))
        }
    }
}

#[cfg(test)]
mod tests;
