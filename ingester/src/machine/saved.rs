//! The bytes of a snapshot: which versions of them there are, and what stands in them beside the ids.
//!
//! ```text
//!  version │ the window of ids │ states of series: none so far │ forgot │ standing │ ids that were taken over
//!                                                                       └ not in version 3, whose window has no floor
//! ```

use athanor_catalog::ShardId;
use athanor_profile::hash::Hash;
use athanor_profile::packed::{PackedError, Unpacker, put};

use crate::entry;
use crate::standing::Standing;
use crate::window::Times;

/// The version that is written.
const VERSION: u64 = 4;
/// That of builds which knew one table, and no shard that follows another.
const ALONE: u64 = 3;

/// An id that was taken over from a shard that settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub index: u64,
    pub of: ShardId,
    pub id: Hash,
    /// The entry from which on the other asks no more. Snapshots of before do not know that.
    pub released: Option<u64>,
}

/// What a snapshot says beside the ids.
#[derive(Debug)]
pub struct Saved {
    /// The ids of records up to this entry were lost, and nobody was told yet; 0 for none.
    pub forgot: u64,
    pub standing: Standing,
    pub taken: Vec<Taken>,
}

/// Reads the version, and tells how the window behind it is written.
pub fn times(unpacker: &mut Unpacker<'_>) -> Result<Times, PackedError> {
    match unpacker.number()? {
        VERSION => Ok(Times::WithFloor),
        ALONE => Ok(Times::WithoutFloor),
        _ => Err(unpacker.wrong("a snapshot of a version that this one does not know")),
    }
}

impl Saved {
    /// The bytes of a snapshot, around those of its window.
    pub fn write(&self, window: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, VERSION);
        bytes.extend_from_slice(window);
        // Here the state of series will stand: the last values of cumulative profiles.
        put(&mut bytes, 0);
        put(&mut bytes, self.forgot);
        self.standing.write(&mut bytes);
        put(&mut bytes, self.taken.len() as u64);
        for Taken { index, of, id, .. } in &self.taken {
            put(&mut bytes, *index);
            put(&mut bytes, u64::from(*of));
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Reads what stands behind the window.
    pub fn read(times: Times, unpacker: &mut Unpacker<'_>) -> Result<Self, PackedError> {
        for _ in 0..unpacker.count()? {
            unpacker.bytes()?;
        }
        let forgot = unpacker.number()?;
        let mut read = Self { forgot, standing: Standing::of_one_table(), taken: Vec::new() };
        if times == Times::WithFloor {
            read.standing = Standing::read(unpacker)?;
            for _ in 0..unpacker.count()? {
                let (index, of, id) = (unpacker.number()?, unpacker.small()?, entry::id(unpacker)?);
                read.taken.push(Taken { index, of, id, released: None });
            }
        }
        // Bytes of one version that say that they are of another would be read as something else.
        if unpacker.is_done() { Ok(read) } else { Err(unpacker.wrong("bytes after the end of a snapshot")) }
    }
}

#[cfg(test)]
mod tests;
