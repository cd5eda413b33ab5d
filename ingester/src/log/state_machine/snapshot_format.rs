//! Format of a snapshot: its version, and the fields beside the ids.
//!
//! ```text
//!  version │ dedup window │ states of series: none so far │ lost ids │ status │ inherited ids
//! ```

use athanor_catalog::ShardId;
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_varint};
use athanor_profile::encoding::hash::ContentHash;

use crate::log::entry;
use crate::log::shard_log_status::ShardLogStatus;

/// Version of the format. Other versions are rejected.
const SNAPSHOT_VERSION: u64 = 1;

/// Id that was inherited from a reconciling shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InheritedId {
    pub index: u64,
    pub shard: ShardId,
    pub id: ContentHash,
    /// Entry from which on the other shard sends no more requests. Snapshots do not contain it.
    pub released: Option<u64>,
}

/// Fields of a snapshot beside the ids.
#[derive(Debug)]
pub struct ShardSnapshot {
    /// Index up to which ids were lost, if the loss is not reported yet; 0 for none.
    pub lost_ids_index: u64,
    pub status: ShardLogStatus,
    pub inherited: Vec<InheritedId>,
}

/// Reads the version, and rejects a snapshot of another version.
pub fn read_version(unpacker: &mut CodecReader<'_>) -> Result<(), CodecError> {
    match unpacker.read_number()? {
        SNAPSHOT_VERSION => Ok(()),
        _ => Err(unpacker.error_here("unknown snapshot version, which another version may have written")),
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
        put_varint(&mut bytes, self.lost_ids_index);
        self.status.write(&mut bytes);
        put_varint(&mut bytes, self.inherited.len() as u64);
        for InheritedId { index, shard, id, .. } in &self.inherited {
            put_varint(&mut bytes, *index);
            put_varint(&mut bytes, u64::from(*shard));
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Reads the fields after the window.
    pub fn read(unpacker: &mut CodecReader<'_>) -> Result<Self, CodecError> {
        for _ in 0..unpacker.read_count()? {
            unpacker.read_bytes()?;
        }
        let lost_ids_index = unpacker.read_number()?;
        let status = ShardLogStatus::read(unpacker)?;
        let mut inherited = Vec::new();
        for _ in 0..unpacker.read_count()? {
            let index = unpacker.read_number()?;
            let shard = unpacker.read_u32()?;
            let id = entry::read_id(unpacker)?;
            inherited.push(InheritedId { index, shard, id, released: None });
        }
        // Bytes that are labeled with another version would be read as something else.
        if unpacker.is_done() {
            Ok(Self { lost_ids_index, status, inherited })
        } else {
            Err(unpacker.error_here("bytes after the end of a snapshot"))
        }
    }
}

#[cfg(test)]
mod tests;
