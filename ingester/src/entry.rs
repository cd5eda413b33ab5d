//! What a shard's log says: batches of profiles, who made them, and cuts.
//!
//! ```text
//!  begin   kind token node stamp                   from here on it is this node that makes batches
//!  batch   kind token generation place stamp window │ uploads: ids │ tenants: names, series │ records: rows
//!                          what a follower reads ┘
//!  end     kind generation                         nothing more is built on its names
//!  cut     kind to stamp block
//!  fence   kind version from revision              from this time of profiles on another table places [INV-05]
//!  void    kind version                            that table was given up
//!  seal    kind                                    no batch comes after it [INV-12]
//!  inherit kind source of first last stamp span ids marks holds   the ids of others [INV-12, INV-13]
//!  drop    kind ids                                another shard holds these records [INV-13]
//!  release kind of                                 all rows of another shard lie in blocks
//!  counted kind …                                  what series have counted, for who leads next: see counters.rs
//! ```
//!
//! A batch says only the names that its *generation* has not said yet: whoever has read the log from the generation's
//! first entry knows all ids. A generation is one node's, and its batches are numbered, so that whoever reads only the
//! heads of batches sees whether one is missing.
//!
//! A generation is over with its end, before the first batch of another one, and before a beginning, whichever comes
//! first in the log. Cuts come only there: what is left of a log builds on nothing that was let go of.

mod batch;
mod inherit_entry;

use athanor_catalog::{BlockId, ShardId};
use athanor_profile::codec::{CodecError, CodecReader, put_signed_varint, put_varint};
use athanor_profile::hash::ContentHash;

pub use batch::{BatchHeader, BatchUpload, ProfileRecord, TenantDictionaryDelta, UploadBatch, UploadHeader};
pub use inherit_entry::{InheritEntry, InheritSource};

/// A batch of a version that did not number them.
const UNNUMBERED_BATCH_KIND: u8 = 1;
/// A batch of a version that knew one table only.
const UNROUTED_BATCH_KIND: u8 = 4;
/// A cut of a version that did not say when it was.
const UNTIMED_FLUSH_KIND: u8 = 2;
const TERM_START_KIND: u8 = 3;
const GENERATION_END_KIND: u8 = 5;
const BATCH_KIND: u8 = 6;
const FENCE_KIND: u8 = 7;
const FENCE_VOIDED_KIND: u8 = 8;
const SEAL_KIND: u8 = 9;
const INHERIT_IDS_KIND: u8 = 10;
const FOREIGN_IDS_KIND: u8 = 11;
const HOLD_RELEASED_KIND: u8 = 12;
const FLUSH_MARKER_KIND: u8 = 13;
/// A batch with records that count since a process began.
const DELTA_BATCH_KIND: u8 = 14;
const DELTA_STATE_KIND: u8 = 15;
/// The table by which all was placed before there was another.
pub const FIRST_TABLE_VERSION: u64 = 1;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardLogEntry {
    /// A node leads, and makes the batches that follow: what was open is over.
    Begin {
        /// Tells the node its own from others.
        token: u64,
        /// The node.
        node: u64,
        /// The log's own time, nanoseconds [INV-10].
        stamp: u64,
    },
    /// Profiles.
    Batch(UploadBatch),
    /// A generation is over.
    End {
        /// The token of its first batch.
        generation: u64,
    },
    /// Everything up to an index lies in registered blocks.
    Cut {
        /// The index.
        to: u64,
        /// The log's time there, or an earlier one.
        stamp: u64,
        /// The last of the blocks.
        block: BlockId,
    },
    /// From a time of profiles on another table places them [INV-05].
    Fence {
        /// The table's version.
        version: u64,
        /// The time.
        from: i64,
        /// The catalogue's revision at which it was proposed: if a later one does not know the table, it was given up.
        revision: u64,
    },
    /// A table was given up.
    Void {
        /// Its version.
        version: u64,
    },
    /// No batch comes after it.
    Seal,
    /// Ids of others.
    Inherit(InheritEntry),
    /// Another shard holds these records: they are not of this one.
    Drop(Vec<ContentHash>),
    /// All rows of another shard lie in blocks.
    Release {
        /// The other.
        of: ShardId,
    },
    /// What series have counted.
    Counted(Vec<u8>),
}

impl ShardLogEntry {
    /// The bytes of a beginning.
    pub fn encode_term_start(token: u64, node: u64, stamp: u64) -> Vec<u8> {
        let mut out = vec![TERM_START_KIND];
        [token, node, stamp].into_iter().for_each(|number| put_varint(&mut out, number));
        out
    }

    /// The bytes of an end.
    pub fn end(generation: u64) -> Vec<u8> {
        let mut out = vec![GENERATION_END_KIND];
        put_varint(&mut out, generation);
        out
    }

    /// The bytes of a cut.
    pub fn encode_flush_marker(to: u64, stamp: u64, block: BlockId) -> Vec<u8> {
        let mut out = vec![FLUSH_MARKER_KIND];
        put_varint(&mut out, to);
        put_varint(&mut out, stamp);
        out.extend_from_slice(&block.number().to_le_bytes());
        out
    }

    /// The bytes of a fence.
    pub fn encode_fence(version: u64, from: i64, revision: u64) -> Vec<u8> {
        let mut out = vec![FENCE_KIND];
        put_varint(&mut out, version);
        put_signed_varint(&mut out, from);
        put_varint(&mut out, revision);
        out
    }

    /// The bytes that make a fence none.
    pub fn encode_fence_voided(version: u64) -> Vec<u8> {
        let mut out = vec![FENCE_VOIDED_KIND];
        put_varint(&mut out, version);
        out
    }

    /// The bytes of a seal.
    pub fn encode_seal() -> Vec<u8> {
        vec![SEAL_KIND]
    }

    /// The bytes of what drops records.
    pub fn encode_foreign_ids(ids: &[ContentHash]) -> Vec<u8> {
        let mut out = vec![FOREIGN_IDS_KIND];
        put_ids(&mut out, ids);
        out
    }

    /// The bytes of what says that another shard's rows lie in blocks.
    pub fn encode_hold_released(of: ShardId) -> Vec<u8> {
        let mut out = vec![HOLD_RELEASED_KIND];
        put_varint(&mut out, u64::from(of));
        out
    }

    /// The bytes that say what series have counted.
    pub fn encode_delta_state(piece: &[u8]) -> Vec<u8> {
        [&[DELTA_STATE_KIND][..], piece].concat()
    }

    /// What an entry says.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut unpacker = CodecReader::new(bytes);
        match unpacker.read_slice(1)?[0] {
            kind @ (BATCH_KIND | DELTA_BATCH_KIND | UNROUTED_BATCH_KIND | UNNUMBERED_BATCH_KIND) => {
                let head = BatchHeader::read(kind, &mut unpacker)?;
                UploadBatch::read(kind, head, &mut unpacker).map(ShardLogEntry::Batch)
            }
            // Only who leads looks into it, and not as it is applied.
            DELTA_STATE_KIND => Ok(ShardLogEntry::Counted(bytes[1..].to_vec())),
            FENCE_KIND => {
                let version = unpacker.read_number()?;
                let from = unpacker.read_signed()?;
                Ok(ShardLogEntry::Fence { version, from, revision: unpacker.read_number()? })
            }
            FENCE_VOIDED_KIND => Ok(ShardLogEntry::Void { version: unpacker.read_number()? }),
            SEAL_KIND => Ok(ShardLogEntry::Seal),
            INHERIT_IDS_KIND => InheritEntry::read(&mut unpacker).map(ShardLogEntry::Inherit),
            FOREIGN_IDS_KIND => ids(&mut unpacker).map(ShardLogEntry::Drop),
            HOLD_RELEASED_KIND => Ok(ShardLogEntry::Release { of: unpacker.read_u32()? }),
            TERM_START_KIND => {
                let token = unpacker.read_number()?;
                let node = unpacker.read_number()?;
                let stamp = unpacker.read_number()?;
                Ok(ShardLogEntry::Begin { token, node, stamp })
            }
            GENERATION_END_KIND => Ok(ShardLogEntry::End { generation: unpacker.read_number()? }),
            kind @ (FLUSH_MARKER_KIND | UNTIMED_FLUSH_KIND) => {
                let to = unpacker.read_number()?;
                let stamp = if kind == FLUSH_MARKER_KIND { unpacker.read_number()? } else { 0 };
                Ok(ShardLogEntry::Cut { to, stamp, block: BlockId::from_number(read_id(&mut unpacker)?) })
            }
            _ => Err(unpacker.error_here("an entry of a kind that this version does not know")),
        }
    }

    /// The head of a batch; none for another entry.
    pub fn decode_batch_header(bytes: &[u8]) -> Result<Option<BatchHeader>, CodecError> {
        let mut unpacker = CodecReader::new(bytes);
        match unpacker.read_slice(1)?[0] {
            kind @ (BATCH_KIND | DELTA_BATCH_KIND | UNROUTED_BATCH_KIND | UNNUMBERED_BATCH_KIND) => {
                BatchHeader::read(kind, &mut unpacker).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// The next id.
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
    fn what_is_said_of_the_shard_comes_back_as_it_was() {
        for (bytes, entry) in [
            (
                ShardLogEntry::encode_fence(7, -3, 8),
                ShardLogEntry::Fence { version: 7, from: -3, revision: 8 },
            ),
            (ShardLogEntry::encode_fence_voided(7), ShardLogEntry::Void { version: 7 }),
            (ShardLogEntry::encode_seal(), ShardLogEntry::Seal),
            (ShardLogEntry::encode_foreign_ids(&[4, 5]), ShardLogEntry::Drop(vec![4, 5])),
            (ShardLogEntry::encode_hold_released(9), ShardLogEntry::Release { of: 9 }),
            (ShardLogEntry::encode_delta_state(&[1, 2]), ShardLogEntry::Counted(vec![1, 2])),
        ] {
            assert_eq!(
                (ShardLogEntry::decode(&bytes), ShardLogEntry::decode_batch_header(&bytes)),
                (Ok(entry), Ok(None))
            );
        }
    }

    #[test]
    fn beginnings_and_ends_come_back_as_they_were() {
        let begin = ShardLogEntry::encode_term_start(u64::MAX, 2, 3);
        assert_eq!(
            ShardLogEntry::decode(&begin),
            Ok(ShardLogEntry::Begin { token: u64::MAX, node: 2, stamp: 3 })
        );
        assert_eq!(ShardLogEntry::decode(&ShardLogEntry::end(4)), Ok(ShardLogEntry::End { generation: 4 }));
        assert_eq!(
            (
                ShardLogEntry::decode_batch_header(&begin),
                ShardLogEntry::decode_batch_header(&ShardLogEntry::end(4))
            ),
            (Ok(None), Ok(None))
        );
    }

    #[test]
    fn a_cut_comes_back_as_it_was() {
        let bytes = ShardLogEntry::encode_flush_marker(300, 5, BlockId::from_number(7));
        assert_eq!(
            ShardLogEntry::decode(&bytes),
            Ok(ShardLogEntry::Cut { to: 300, stamp: 5, block: BlockId::from_number(7) })
        );
        assert_eq!(ShardLogEntry::decode_batch_header(&bytes), Ok(None));
    }
}
