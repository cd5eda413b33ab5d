//! Entries of a shard's log: batches of profiles, leader terms, flush markers, fences, seals and handed-over
//! ids.
//!
//! ```text
//!  term start      kind token node stamp             from here on this node makes the batches
//!  batch           kind token generation sequence stamp window │ uploads: ids │ tenants: names, series │ records: rows
//!                                           read by each member ┘
//!  generation end  kind generation                   no later batch builds on its names
//!  flush marker    kind to stamp block               rows up to here are in registered blocks
//!  fence           kind version from revision        from this profile time on another table holds [INV-05]
//!  fence voided    kind version                      that table was abandoned
//!  seal            kind                              no batch comes after it [INV-12]
//!  inherit ids     kind source shard flags stamp retention ids inherited held_for
//!                                                    the ids of others [INV-12, INV-13]
//!  foreign ids     kind ids                          another shard holds these records [INV-13]
//!  hold released   kind shard                        all rows of another shard are in blocks
//!  delta state     kind …                            values for the next leader: see cumulative_tracker.rs
//! ```
//!
//! A batch contains only the names that its *generation* has not logged yet. So a reader that starts at the
//! generation's first entry knows all ids. A generation belongs to one node and numbers its batches. So a
//! reader of batch headers alone detects a missing batch.
//!
//! A generation ends with its end entry, before the first batch of another one, or before a term start,
//! whichever comes first in the log. Flushes end only there, so the rest of a log builds on no purged entry.
//!
//! The kind is the version of an entry's encoding: a changed encoding gets a kind of its own, and the old kind
//! stays readable as ADR 0044 states. An unknown kind fails the entry.

mod batch;
mod inherit_entry;

use athanor_catalog::{BlockId, ShardId};
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_signed_varint, put_varint};
use athanor_profile::encoding::hash::ContentHash;

pub use batch::{BatchHeader, BatchUpload, ProfileRecord, TenantDictionaryDelta, UploadBatch, UploadHeader};
pub use inherit_entry::{InheritEntry, InheritSource};

const TERM_START_KIND: u8 = 1;
const BATCH_KIND: u8 = 2;
/// Kind of a batch with cumulative records.
const DELTA_BATCH_KIND: u8 = 3;
const GENERATION_END_KIND: u8 = 4;
const FLUSH_MARKER_KIND: u8 = 5;
const FENCE_KIND: u8 = 6;
const FENCE_VOIDED_KIND: u8 = 7;
const SEAL_KIND: u8 = 8;
const INHERIT_IDS_KIND: u8 = 9;
const FOREIGN_IDS_KIND: u8 = 10;
const HOLD_RELEASED_KIND: u8 = 11;
const DELTA_STATE_KIND: u8 = 12;
/// Version of the table by which all profiles were placed before there was another.
pub const FIRST_TABLE_VERSION: u64 = 1;

/// Entry of a shard's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardLogEntry {
    /// Start of a leader term: a node makes the batches that follow, and the open generation ends.
    TermStart {
        /// Token by which the node recognizes its own entry.
        token: u64,
        /// ID of the leading node.
        node: u64,
        /// Log time, nanoseconds [INV-10].
        stamp: u64,
    },
    /// Profiles that are committed together.
    Batch(UploadBatch),
    /// End of a generation.
    GenerationEnd {
        /// The token of its first batch.
        generation: u64,
    },
    /// Flush marker: all rows up to an index are in registered blocks.
    FlushMarker {
        /// Index up to which rows are flushed.
        to: u64,
        /// Log time at that index, or an earlier one.
        stamp: u64,
        /// ID of the last of the blocks.
        block: BlockId,
    },
    /// Fence: from a time of profiles on, another table places them [INV-05].
    Fence {
        /// Version of the other table.
        version: u64,
        /// First profile timestamp for which it holds.
        from: i64,
        /// Catalog revision at which it was proposed. If a later revision lacks the table, the table was
        /// abandoned.
        revision: u64,
    },
    /// Removal of an abandoned table's fence.
    FenceVoided {
        /// Version of the abandoned table.
        version: u64,
    },
    /// Seal: no batch comes after it.
    Seal,
    /// IDs that are taken over from other shards.
    InheritIds(InheritEntry),
    /// Records that another shard holds: they do not belong to this shard.
    ForeignIds(Vec<ContentHash>),
    /// Release of a hold: all rows of another shard are in blocks.
    HoldReleased {
        /// ID of the other shard.
        shard: ShardId,
    },
    /// Encoded values of cumulative series.
    DeltaState(Vec<u8>),
}

impl ShardLogEntry {
    /// Encodes the start of a leader term.
    pub fn encode_term_start(token: u64, node: u64, stamp: u64) -> Vec<u8> {
        let mut out = vec![TERM_START_KIND];
        [token, node, stamp].into_iter().for_each(|number| put_varint(&mut out, number));
        out
    }

    /// Encodes the end of a generation.
    pub fn encode_generation_end(generation: u64) -> Vec<u8> {
        let mut out = vec![GENERATION_END_KIND];
        put_varint(&mut out, generation);
        out
    }

    /// Encodes a flush marker entry.
    pub fn encode_flush_marker(to: u64, stamp: u64, block: BlockId) -> Vec<u8> {
        let mut out = vec![FLUSH_MARKER_KIND];
        put_varint(&mut out, to);
        put_varint(&mut out, stamp);
        out.extend_from_slice(&block.number().to_le_bytes());
        out
    }

    /// Encodes the fence of a table.
    pub fn encode_fence(version: u64, from: i64, revision: u64) -> Vec<u8> {
        let mut out = vec![FENCE_KIND];
        put_varint(&mut out, version);
        put_signed_varint(&mut out, from);
        put_varint(&mut out, revision);
        out
    }

    /// Encodes the removal of an abandoned table's fence.
    pub fn encode_fence_voided(version: u64) -> Vec<u8> {
        let mut out = vec![FENCE_VOIDED_KIND];
        put_varint(&mut out, version);
        out
    }

    /// Encodes a seal entry.
    pub fn encode_seal() -> Vec<u8> {
        vec![SEAL_KIND]
    }

    /// Encodes the ids of records that another shard holds.
    pub fn encode_foreign_ids(ids: &[ContentHash]) -> Vec<u8> {
        let mut out = vec![FOREIGN_IDS_KIND];
        put_ids(&mut out, ids);
        out
    }

    /// Encodes that another shard's rows are in blocks.
    pub fn encode_hold_released(shard: ShardId) -> Vec<u8> {
        let mut out = vec![HOLD_RELEASED_KIND];
        put_varint(&mut out, u64::from(shard));
        out
    }

    /// Encodes a piece of the values of cumulative series.
    pub fn encode_delta_state(piece: &[u8]) -> Vec<u8> {
        [&[DELTA_STATE_KIND][..], piece].concat()
    }

    /// Decodes an entry of any kind.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut unpacker = CodecReader::new(bytes);
        match unpacker.read_slice(1)?[0] {
            kind @ (BATCH_KIND | DELTA_BATCH_KIND) => {
                let head = BatchHeader::read(&mut unpacker)?;
                UploadBatch::read(kind, head, &mut unpacker).map(ShardLogEntry::Batch)
            }
            // Only the leader decodes this, and not while it is applied.
            DELTA_STATE_KIND => Ok(ShardLogEntry::DeltaState(bytes[1..].to_vec())),
            FENCE_KIND => {
                let version = unpacker.read_number()?;
                let from = unpacker.read_signed()?;
                Ok(ShardLogEntry::Fence { version, from, revision: unpacker.read_number()? })
            }
            FENCE_VOIDED_KIND => Ok(ShardLogEntry::FenceVoided { version: unpacker.read_number()? }),
            SEAL_KIND => Ok(ShardLogEntry::Seal),
            INHERIT_IDS_KIND => InheritEntry::read(&mut unpacker).map(ShardLogEntry::InheritIds),
            FOREIGN_IDS_KIND => ids(&mut unpacker).map(ShardLogEntry::ForeignIds),
            HOLD_RELEASED_KIND => Ok(ShardLogEntry::HoldReleased { shard: unpacker.read_u32()? }),
            TERM_START_KIND => {
                let token = unpacker.read_number()?;
                let node = unpacker.read_number()?;
                let stamp = unpacker.read_number()?;
                Ok(ShardLogEntry::TermStart { token, node, stamp })
            }
            GENERATION_END_KIND => Ok(ShardLogEntry::GenerationEnd { generation: unpacker.read_number()? }),
            FLUSH_MARKER_KIND => {
                let to = unpacker.read_number()?;
                let stamp = unpacker.read_number()?;
                let block = BlockId::from_number(read_id(&mut unpacker)?);
                Ok(ShardLogEntry::FlushMarker { to, stamp, block })
            }
            _ => Err(unpacker.error_here("unknown entry kind, which another version may have written")),
        }
    }

    /// Decodes the header of a batch; returns none for another entry.
    pub fn decode_batch_header(bytes: &[u8]) -> Result<Option<BatchHeader>, CodecError> {
        let mut unpacker = CodecReader::new(bytes);
        match unpacker.read_slice(1)?[0] {
            BATCH_KIND | DELTA_BATCH_KIND => BatchHeader::read(&mut unpacker).map(Some),
            _ => Ok(None),
        }
    }
}

/// Reads the next id.
pub(crate) fn read_id(unpacker: &mut CodecReader<'_>) -> Result<ContentHash, CodecError> {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(unpacker.read_slice(16)?);
    Ok(ContentHash::from_le_bytes(bytes))
}

fn ids(unpacker: &mut CodecReader<'_>) -> Result<Vec<ContentHash>, CodecError> {
    (0..unpacker.read_count()?).map(|_| read_id(unpacker)).collect()
}

fn put_ids(out: &mut Vec<u8>, ids: &[ContentHash]) {
    put_varint(out, ids.len() as u64);
    ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_about_the_shard_round_trip() {
        for (bytes, entry) in [
            (
                ShardLogEntry::encode_fence(7, -3, 8),
                ShardLogEntry::Fence { version: 7, from: -3, revision: 8 },
            ),
            (ShardLogEntry::encode_fence_voided(7), ShardLogEntry::FenceVoided { version: 7 }),
            (ShardLogEntry::encode_seal(), ShardLogEntry::Seal),
            (ShardLogEntry::encode_foreign_ids(&[4, 5]), ShardLogEntry::ForeignIds(vec![4, 5])),
            (ShardLogEntry::encode_hold_released(9), ShardLogEntry::HoldReleased { shard: 9 }),
            (ShardLogEntry::encode_delta_state(&[1, 2]), ShardLogEntry::DeltaState(vec![1, 2])),
        ] {
            assert_eq!(
                (ShardLogEntry::decode(&bytes), ShardLogEntry::decode_batch_header(&bytes)),
                (Ok(entry), Ok(None))
            );
        }
    }

    #[test]
    fn term_start_and_generation_end_round_trip() {
        let begin = ShardLogEntry::encode_term_start(u64::MAX, 2, 3);
        assert_eq!(
            ShardLogEntry::decode(&begin),
            Ok(ShardLogEntry::TermStart { token: u64::MAX, node: 2, stamp: 3 })
        );
        assert_eq!(
            ShardLogEntry::decode(&ShardLogEntry::encode_generation_end(4)),
            Ok(ShardLogEntry::GenerationEnd { generation: 4 })
        );
        assert_eq!(
            (
                ShardLogEntry::decode_batch_header(&begin),
                ShardLogEntry::decode_batch_header(&ShardLogEntry::encode_generation_end(4))
            ),
            (Ok(None), Ok(None))
        );
    }

    #[test]
    fn flush_marker_round_trips() {
        let bytes = ShardLogEntry::encode_flush_marker(300, 5, BlockId::from_number(7));
        assert_eq!(
            ShardLogEntry::decode(&bytes),
            Ok(ShardLogEntry::FlushMarker { to: 300, stamp: 5, block: BlockId::from_number(7) })
        );
        assert_eq!(ShardLogEntry::decode_batch_header(&bytes), Ok(None));
    }

    #[test]
    fn entry_of_unknown_kind_is_rejected() {
        for kind in (0..=u8::MAX).filter(|kind| !(TERM_START_KIND..=DELTA_STATE_KIND).contains(kind)) {
            let error = ShardLogEntry::decode(&[kind, 1, 1, 1]).unwrap_err();
            assert!(error.to_string().contains("unknown entry kind"), "{error}");
        }
    }
}
