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
mod inherit;

use athanor_catalog::{BlockId, ShardId};
use athanor_profile::hash::Hash;
use athanor_profile::packed::{PackedError, Unpacker, put, put_signed};

pub use batch::{Admitted, Batch, Head, Record, TenantPart, UploadHead};
pub use inherit::{Inherit, Source};

/// A batch of a version that did not number them.
const UNNUMBERED: u8 = 1;
/// A batch of a version that knew one table only.
const UNROUTED: u8 = 4;
/// A cut of a version that did not say when it was.
const UNTIMED: u8 = 2;
const BEGIN: u8 = 3;
const END: u8 = 5;
const BATCH: u8 = 6;
const FENCE: u8 = 7;
const VOID: u8 = 8;
const SEAL: u8 = 9;
const INHERIT: u8 = 10;
const DROP: u8 = 11;
const RELEASE: u8 = 12;
const CUT: u8 = 13;
/// A batch with records that count since a process began.
const COUNTING: u8 = 14;
const COUNTED: u8 = 15;
/// The table by which all was placed before there was another.
pub const FIRST_TABLE: u64 = 1;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
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
    Batch(Batch),
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
    Inherit(Inherit),
    /// Another shard holds these records: they are not of this one.
    Drop(Vec<Hash>),
    /// All rows of another shard lie in blocks.
    Release {
        /// The other.
        of: ShardId,
    },
    /// What series have counted.
    Counted(Vec<u8>),
}

impl Entry {
    /// The bytes of a beginning.
    pub fn begin(token: u64, node: u64, stamp: u64) -> Vec<u8> {
        let mut out = vec![BEGIN];
        [token, node, stamp].into_iter().for_each(|number| put(&mut out, number));
        out
    }

    /// The bytes of an end.
    pub fn end(generation: u64) -> Vec<u8> {
        let mut out = vec![END];
        put(&mut out, generation);
        out
    }

    /// The bytes of a cut.
    pub fn cut(to: u64, stamp: u64, block: BlockId) -> Vec<u8> {
        let mut out = vec![CUT];
        put(&mut out, to);
        put(&mut out, stamp);
        out.extend_from_slice(&block.number().to_le_bytes());
        out
    }

    /// The bytes of a fence.
    pub fn fence(version: u64, from: i64, revision: u64) -> Vec<u8> {
        let mut out = vec![FENCE];
        put(&mut out, version);
        put_signed(&mut out, from);
        put(&mut out, revision);
        out
    }

    /// The bytes that make a fence none.
    pub fn void(version: u64) -> Vec<u8> {
        let mut out = vec![VOID];
        put(&mut out, version);
        out
    }

    /// The bytes of a seal.
    pub fn seal() -> Vec<u8> {
        vec![SEAL]
    }

    /// The bytes of what drops records.
    pub fn drop(ids: &[Hash]) -> Vec<u8> {
        let mut out = vec![DROP];
        put_ids(&mut out, ids);
        out
    }

    /// The bytes of what says that another shard's rows lie in blocks.
    pub fn release(of: ShardId) -> Vec<u8> {
        let mut out = vec![RELEASE];
        put(&mut out, u64::from(of));
        out
    }

    /// The bytes that say what series have counted.
    pub fn counted(piece: &[u8]) -> Vec<u8> {
        [&[COUNTED][..], piece].concat()
    }

    /// What an entry says.
    pub fn decode(bytes: &[u8]) -> Result<Self, PackedError> {
        let mut unpacker = Unpacker::new(bytes);
        match unpacker.take(1)?[0] {
            kind @ (BATCH | COUNTING | UNROUTED | UNNUMBERED) => {
                let head = Head::read(kind, &mut unpacker)?;
                Batch::read(kind, head, &mut unpacker).map(Entry::Batch)
            }
            // Only who leads looks into it, and not as it is applied.
            COUNTED => Ok(Entry::Counted(bytes[1..].to_vec())),
            FENCE => {
                let (version, from) = (unpacker.number()?, unpacker.signed()?);
                Ok(Entry::Fence { version, from, revision: unpacker.number()? })
            }
            VOID => Ok(Entry::Void { version: unpacker.number()? }),
            SEAL => Ok(Entry::Seal),
            INHERIT => Inherit::read(&mut unpacker).map(Entry::Inherit),
            DROP => ids(&mut unpacker).map(Entry::Drop),
            RELEASE => Ok(Entry::Release { of: unpacker.small()? }),
            BEGIN => {
                let (token, node, stamp) = (unpacker.number()?, unpacker.number()?, unpacker.number()?);
                Ok(Entry::Begin { token, node, stamp })
            }
            END => Ok(Entry::End { generation: unpacker.number()? }),
            kind @ (CUT | UNTIMED) => {
                let to = unpacker.number()?;
                let stamp = if kind == CUT { unpacker.number()? } else { 0 };
                Ok(Entry::Cut { to, stamp, block: BlockId::from_number(id(&mut unpacker)?) })
            }
            _ => Err(unpacker.wrong("an entry of a kind that this version does not know")),
        }
    }

    /// The head of a batch; none for another entry.
    pub fn head(bytes: &[u8]) -> Result<Option<Head>, PackedError> {
        let mut unpacker = Unpacker::new(bytes);
        match unpacker.take(1)?[0] {
            kind @ (BATCH | COUNTING | UNROUTED | UNNUMBERED) => Head::read(kind, &mut unpacker).map(Some),
            _ => Ok(None),
        }
    }
}

/// The next id.
pub(crate) fn id(unpacker: &mut Unpacker<'_>) -> Result<Hash, PackedError> {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(unpacker.take(16)?);
    Ok(Hash::from_le_bytes(bytes))
}

fn ids(unpacker: &mut Unpacker<'_>) -> Result<Vec<Hash>, PackedError> {
    (0..unpacker.count()?).map(|_| id(unpacker)).collect()
}

fn put_ids(out: &mut Vec<u8>, ids: &[Hash]) {
    put(out, ids.len() as u64);
    ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_the_shard_comes_back_as_it_was() {
        for (bytes, entry) in [
            (Entry::fence(7, -3, 8), Entry::Fence { version: 7, from: -3, revision: 8 }),
            (Entry::void(7), Entry::Void { version: 7 }),
            (Entry::seal(), Entry::Seal),
            (Entry::drop(&[4, 5]), Entry::Drop(vec![4, 5])),
            (Entry::release(9), Entry::Release { of: 9 }),
            (Entry::counted(&[1, 2]), Entry::Counted(vec![1, 2])),
        ] {
            assert_eq!((Entry::decode(&bytes), Entry::head(&bytes)), (Ok(entry), Ok(None)));
        }
    }

    #[test]
    fn beginnings_and_ends_come_back_as_they_were() {
        let begin = Entry::begin(u64::MAX, 2, 3);
        assert_eq!(Entry::decode(&begin), Ok(Entry::Begin { token: u64::MAX, node: 2, stamp: 3 }));
        assert_eq!(Entry::decode(&Entry::end(4)), Ok(Entry::End { generation: 4 }));
        assert_eq!((Entry::head(&begin), Entry::head(&Entry::end(4))), (Ok(None), Ok(None)));
    }

    #[test]
    fn a_cut_comes_back_as_it_was() {
        let bytes = Entry::cut(300, 5, BlockId::from_number(7));
        assert_eq!(
            Entry::decode(&bytes),
            Ok(Entry::Cut { to: 300, stamp: 5, block: BlockId::from_number(7) })
        );
        assert_eq!(Entry::head(&bytes), Ok(None));
    }
}
