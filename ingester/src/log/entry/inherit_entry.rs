//! Entry with the ids that a shard inherits from another one.

use athanor_catalog::ShardId;
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_varint};
use athanor_profile::encoding::hash::ContentHash;

use super::{INHERIT_IDS_KIND, ids, put_ids};

/// Source of the ids that a shard inherits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InheritSource {
    /// Dedup window of the shard before it.
    DedupWindow,
    /// Blocks of the slot, since the shard before it is lost.
    RegisteredBlocks,
    /// Returned shard that was lost, for the records that it holds in no block.
    Reconciliation,
}

/// Ids that a shard inherits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritEntry {
    /// Source of these ids.
    pub source: InheritSource,
    /// ID of the other shard.
    pub shard: ShardId,
    /// True if ids that were copied before are forgotten.
    pub first: bool,
    /// True if these are the last ids.
    pub last: bool,
    /// Log time, nanoseconds [INV-10].
    pub stamp: u64,
    /// Time for which ids are kept, nanoseconds [INV-11].
    pub retention: u64,
    /// IDs of this entry.
    pub ids: Vec<ContentHash>,
    /// Positions of ids that the other shard itself inherited from reconciling shards, and those shards.
    pub inherited: Vec<(u32, ShardId)>,
    /// Shards that may have rows in no block: their ids are held with these.
    pub held_for: Vec<ShardId>,
}

impl InheritSource {
    /// Returns the encoded number; never 0.
    pub const fn number(self) -> u64 {
        match self {
            Self::DedupWindow => 1,
            Self::RegisteredBlocks => 2,
            Self::Reconciliation => 3,
        }
    }

    /// Decodes a source from its number.
    pub fn from_number(number: u64, unpacker: &CodecReader<'_>) -> Result<Self, CodecError> {
        let all = [Self::DedupWindow, Self::RegisteredBlocks, Self::Reconciliation];
        let known = all.into_iter().find(|source| source.number() == number);
        known.ok_or_else(|| {
            unpacker.error_here("unknown source of inherited ids, which another version may have written")
        })
    }
}

impl InheritEntry {
    /// Encodes the entry as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![INHERIT_IDS_KIND];
        let flags = u64::from(self.first) | u64::from(self.last) << 1;
        let numbers = [self.source.number(), u64::from(self.shard), flags, self.stamp, self.retention];
        numbers.into_iter().for_each(|number| put_varint(&mut out, number));
        put_ids(&mut out, &self.ids);
        put_varint(&mut out, self.inherited.len() as u64);
        for &(position, shard) in &self.inherited {
            put_varint(&mut out, u64::from(position));
            put_varint(&mut out, u64::from(shard));
        }
        put_varint(&mut out, self.held_for.len() as u64);
        self.held_for.iter().for_each(|shard| put_varint(&mut out, u64::from(*shard)));
        out
    }

    pub(super) fn read(unpacker: &mut CodecReader<'_>) -> Result<Self, CodecError> {
        let source = unpacker.read_number()?;
        let source = InheritSource::from_number(source, unpacker)?;
        let shard = unpacker.read_u32()?;
        let flags = unpacker.read_number()?;
        let first = flags & 1 > 0;
        let last = flags & 2 > 0;
        let stamp = unpacker.read_number()?;
        let retention = unpacker.read_number()?;
        let ids = ids(unpacker)?;
        let inherited = (0..unpacker.read_count()?).map(|_| Ok((unpacker.read_u32()?, unpacker.read_u32()?)));
        let inherited = inherited.collect::<Result<_, CodecError>>()?;
        let held_for = (0..unpacker.read_count()?).map(|_| unpacker.read_u32()).collect::<Result<_, _>>()?;
        Ok(Self { source, shard, first, last, stamp, retention, ids, inherited, held_for })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::entry::ShardLogEntry;

    #[test]
    fn inherited_ids_round_trip() {
        let inherit = InheritEntry {
            source: InheritSource::Reconciliation,
            shard: 70_000,
            first: false,
            last: true,
            stamp: 5,
            retention: u64::MAX,
            ids: vec![1, u128::MAX],
            inherited: vec![(1, 9)],
            held_for: vec![70_000, 9],
        };
        let bytes = inherit.encode();
        assert_eq!(
            (ShardLogEntry::decode(&bytes), ShardLogEntry::decode_batch_header(&bytes)),
            (Ok(ShardLogEntry::InheritIds(inherit)), Ok(None))
        );
    }
}
