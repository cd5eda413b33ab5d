//! What a shard's log says of the shard as a whole: by which tables it was fenced, where it has ended, whose ids it knows.
//!
//! A snapshot is labelled with a cut and made later [INV-09]. So this is remembered as it was wherever may be cut: a
//! member that begins with a snapshot of now, and reads the tail again, would answer otherwise than others did.

use std::collections::{BTreeMap, BTreeSet};

use athanor_catalog::ShardId;
use athanor_profile::codec::{CodecError, CodecReader, put_signed_varint, put_varint};

use crate::entry::{InheritSource, UploadHeader};

/// What holds after an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardLogStatus {
    /// Of each version of the table whose fence was logged, the time of profiles from which it holds [INV-05], and the
    /// catalogue's revision at which it was proposed.
    fences: BTreeMap<u64, (i64, u64)>,
    /// The time of the latest profile that was taken; none before one was.
    pub latest: Option<i64>,
    /// Where the log has ended [INV-12].
    pub sealed: Option<u64>,
    /// Whose ids were copied, as a whole.
    pub inherited: Option<(InheritSource, ShardId)>,
    /// Shards from which ids came whose rows may lie in no block yet: no id is forgotten meanwhile.
    pub holds: BTreeSet<ShardId>,
}

impl ShardLogStatus {
    /// That of a shard which has taken profiles while there was one table: nobody asked of when they were.
    pub fn with_single_table() -> Self {
        Self { latest: Some(i64::MIN), ..Self::default() }
    }

    /// Takes a table's fence. If the shard has later profiles by another table already, it does not, and says how late.
    pub fn accept_fence(&mut self, version: u64, from: i64, revision: u64) -> Option<i64> {
        if let Some(latest) = self.latest.filter(|&latest| latest >= from) {
            return Some(latest);
        }
        self.fences.insert(version, (from, revision));
        None
    }

    /// A table was given up: its fence is none.
    pub fn void_fence(&mut self, version: u64) {
        self.fences.remove(&version);
    }

    /// The tables whose fences are in the log, and the catalogue's revision at which each was proposed.
    pub fn fences(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.fences.iter().map(|(version, (_, revision))| (*version, *revision))
    }

    /// The newest table by which an upload should have been placed, if it was placed by an older one: the shard that its
    /// repeats go to may be another.
    pub fn find_newer_table(&self, upload: &UploadHeader) -> Option<u64> {
        if upload.ids.is_empty() {
            return None;
        }
        let holds = self.fences.iter().rev().find(|(_, (from, _))| upload.time >= *from);
        holds.map(|(version, _)| *version).filter(|version| upload.routed < *version)
    }

    /// An upload was taken.
    pub fn record_upload(&mut self, upload: &UploadHeader) {
        if !upload.ids.is_empty() {
            self.latest = self.latest.max(Some(upload.time));
        }
    }

    /// As bytes.
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

    /// Reads what [`ShardLogStatus::write`] wrote.
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
