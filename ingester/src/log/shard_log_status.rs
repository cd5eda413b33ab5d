//! Status of a shard as a whole, according to its log: fences, seal, inherited ids.
//!
//! A snapshot is labeled with a flushed index and made later [INV-09]. So the status is kept as of each index
//! at which a flush may end. A member that starts from a snapshot of the present, and replays the tail, would
//! get other results than the others.

use std::collections::{BTreeMap, BTreeSet};

use athanor_catalog::ShardId;
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_signed_varint, put_varint};

use crate::log::entry::{InheritSource, UploadHeader};

/// Status of a shard after an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardLogStatus {
    /// Fences by table version: the profile time from which the table holds [INV-05], and the catalog
    /// revision at which it was proposed.
    fences: BTreeMap<u64, (i64, u64)>,
    /// Timestamp of the latest accepted profile; none before the first one.
    pub latest: Option<i64>,
    /// Log index of the seal [INV-12].
    pub sealed: Option<u64>,
    /// Shard from which all ids were copied, and their source.
    pub inherited: Option<(InheritSource, ShardId)>,
    /// Shards that gave ids and may have rows in no block: no id is forgotten meanwhile.
    pub holds: BTreeSet<ShardId>,
}

impl ShardLogStatus {
    /// Accepts a table's fence. If the shard has later profiles already, it rejects the fence and returns the
    /// latest timestamp.
    pub fn accept_fence(&mut self, version: u64, from: i64, revision: u64) -> Option<i64> {
        if let Some(latest) = self.latest.filter(|&latest| latest >= from) {
            return Some(latest);
        }
        self.fences.insert(version, (from, revision));
        None
    }

    /// Removes the fence of an abandoned table.
    pub fn void_fence(&mut self, version: u64) {
        self.fences.remove(&version);
    }

    /// Returns the tables with a fence in the log, and the catalog revision at which each was proposed.
    pub fn fences(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.fences.iter().map(|(version, (_, revision))| (*version, *revision))
    }

    /// Returns the newest table by which an upload should have been placed, if an older one placed it.
    /// Duplicates of the upload may go to another shard.
    pub fn find_newer_table(&self, upload: &UploadHeader) -> Option<u64> {
        if upload.ids.is_empty() {
            return None;
        }
        let holds = self.fences.iter().rev().find(|(_, (from, _))| upload.time >= *from);
        holds.map(|(version, _)| *version).filter(|version| upload.routed < *version)
    }

    /// Records the time of an accepted upload.
    pub fn record_upload(&mut self, upload: &UploadHeader) {
        if !upload.ids.is_empty() {
            self.latest = self.latest.max(Some(upload.time));
        }
    }

    /// Encodes the status as bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.fences.len() as u64);
        for (version, (from, revision)) in &self.fences {
            put_varint(out, *version);
            put_signed_varint(out, *from);
            put_varint(out, *revision);
        }
        put_varint(out, u64::from(self.latest.is_some()));
        put_signed_varint(out, self.latest.unwrap_or_default());
        put_varint(out, self.sealed.unwrap_or_default());
        let (source, of) = self.inherited.map_or((0, 0), |(source, of)| (source.number(), of));
        put_varint(out, source);
        put_varint(out, u64::from(of));
        put_varint(out, self.holds.len() as u64);
        self.holds.iter().for_each(|of| put_varint(out, u64::from(*of)));
    }

    /// Decodes the bytes of [`ShardLogStatus::write`].
    pub fn read(unpacker: &mut CodecReader<'_>) -> Result<Self, CodecError> {
        let mut read = Self::default();
        for _ in 0..unpacker.read_count()? {
            let version = unpacker.read_number()?;
            read.fences.insert(version, (unpacker.read_signed()?, unpacker.read_number()?));
        }
        let some = unpacker.read_number()?;
        let latest = unpacker.read_signed()?;
        read.latest = (some > 0).then_some(latest);
        read.sealed = Some(unpacker.read_number()?).filter(|at| *at > 0);
        let source = unpacker.read_number()?;
        let of = unpacker.read_u32()?;
        read.inherited =
            if source == 0 { None } else { Some((InheritSource::from_number(source, unpacker)?, of)) };
        for _ in 0..unpacker.read_count()? {
            read.holds.insert(unpacker.read_u32()?);
        }
        Ok(read)
    }
}
