//! Ids that a shard takes over from others, as bytes.

use athanor_catalog::ShardId;
use athanor_profile::codec::{CodecError, CodecReader, put_varint};
use athanor_profile::hash::ContentHash;

use super::{INHERIT_IDS_KIND, ids, put_ids};

/// Where ids come from that a shard takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InheritSource {
    /// From what the shard before it remembers.
    Window,
    /// From the slot's blocks, since the shard before it is lost.
    Blocks,
    /// From a shard that was lost, for the records that it holds in no block.
    Settle,
}

/// Ids that a shard takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritEntry {
    /// Where they come from.
    pub source: InheritSource,
    /// Which other shard.
    pub of: ShardId,
    /// What was copied before is forgotten.
    pub first: bool,
    /// These are the last ones.
    pub last: bool,
    /// The log's own time, nanoseconds [INV-10].
    pub stamp: u64,
    /// How long ids are remembered, nanoseconds [INV-11].
    pub span: u64,
    /// The ids.
    pub ids: Vec<ContentHash>,
    /// Places of those that the other has taken over itself from shards that settled, and from which.
    pub taken: Vec<(u32, ShardId)>,
    /// Whose ids are to be held with these.
    pub holds: Vec<ShardId>,
}

impl InheritSource {
    /// By which it is written; never 0.
    pub const fn number(self) -> u64 {
        match self {
            Self::Window => 1,
            Self::Blocks => 2,
            Self::Settle => 3,
        }
    }

    /// The source of a number.
    pub fn from_number(number: u64, unpacker: &CodecReader<'_>) -> Result<Self, CodecError> {
        let all = [Self::Window, Self::Blocks, Self::Settle];
        let known = all.into_iter().find(|source| source.number() == number);
        known.ok_or_else(|| unpacker.error_here("a source of ids that this version does not know"))
    }
}

impl InheritEntry {
    /// As bytes.
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
    use crate::entry::ShardLogEntry;

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
