//! Entry with ids that a shard takes over from another one.

use athanor_catalog::ShardId;
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_varint};
use athanor_profile::encoding::hash::ContentHash;

use super::{INHERIT_IDS_KIND, ids, put_ids};

/// Source of ids that a shard takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InheritSource {
    /// Dedup window of the shard before it.
    Window,
    /// Blocks of the slot, since the shard before it is lost.
    Blocks,
    /// Returned shard that was lost, for the records that it holds in no block.
    Settle,
}

/// IDs that a shard takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritEntry {
    /// Source of these ids.
    pub source: InheritSource,
    /// ID of the other shard.
    pub of: ShardId,
    /// True if ids that were copied before are forgotten.
    pub first: bool,
    /// True if these are the last ids.
    pub last: bool,
    /// Log time, nanoseconds [INV-10].
    pub stamp: u64,
    /// Time for which ids are kept, nanoseconds [INV-11].
    pub span: u64,
    /// IDs of this entry.
    pub ids: Vec<ContentHash>,
    /// Places of ids that the other shard itself took over from settling shards, and those shards.
    pub taken: Vec<(u32, ShardId)>,
    /// Shards that may have rows in no block: their ids are held with these.
    pub holds: Vec<ShardId>,
}

impl InheritSource {
    /// Returns the encoded number; never 0.
    pub const fn number(self) -> u64 {
        match self {
            Self::Window => 1,
            Self::Blocks => 2,
            Self::Settle => 3,
        }
    }

    /// Decodes a source from its number.
    pub fn from_number(number: u64, unpacker: &CodecReader<'_>) -> Result<Self, CodecError> {
        let all = [Self::Window, Self::Blocks, Self::Settle];
        let known = all.into_iter().find(|source| source.number() == number);
        known.ok_or_else(|| unpacker.error_here("a source of ids that this version does not know"))
    }
}

impl InheritEntry {
    /// Encodes the entry as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![INHERIT_IDS_KIND];
        let flags = u64::from(self.first) | u64::from(self.last) << 1;
        let numbers = [self.source.number(), u64::from(self.of), flags, self.stamp, self.span];
        numbers.into_iter().for_each(|number| put_varint(&mut out, number));
        put_ids(&mut out, &self.ids);
        put_varint(&mut out, self.taken.len() as u64);
        for &(place, of) in &self.taken {
            put_varint(&mut out, u64::from(place));
            put_varint(&mut out, u64::from(of));
        }
        put_varint(&mut out, self.holds.len() as u64);
        self.holds.iter().for_each(|of| put_varint(&mut out, u64::from(*of)));
        out
    }

    pub(super) fn read(unpacker: &mut CodecReader<'_>) -> Result<Self, CodecError> {
        let source = unpacker.read_number()?;
        let source = InheritSource::from_number(source, unpacker)?;
        let of = unpacker.read_u32()?;
        let flags = unpacker.read_number()?;
        let first = flags & 1 > 0;
        let last = flags & 2 > 0;
        let stamp = unpacker.read_number()?;
        let span = unpacker.read_number()?;
        let ids = ids(unpacker)?;
        let taken = (0..unpacker.read_count()?).map(|_| Ok((unpacker.read_u32()?, unpacker.read_u32()?)));
        let taken = taken.collect::<Result<_, CodecError>>()?;
        let holds = (0..unpacker.read_count()?).map(|_| unpacker.read_u32()).collect::<Result<_, _>>()?;
        Ok(Self { source, of, first, last, stamp, span, ids, taken, holds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::entry::ShardLogEntry;

    #[test]
    fn what_is_taken_over_comes_back_as_it_was() {
        let inherit = InheritEntry {
            source: InheritSource::Settle,
            of: 70_000,
            first: false,
            last: true,
            stamp: 5,
            span: u64::MAX,
            ids: vec![1, u128::MAX],
            taken: vec![(1, 9)],
            holds: vec![70_000, 9],
        };
        let bytes = inherit.encode();
        assert_eq!(
            (ShardLogEntry::decode(&bytes), ShardLogEntry::decode_batch_header(&bytes)),
            (Ok(ShardLogEntry::Inherit(inherit)), Ok(None))
        );
    }
}
