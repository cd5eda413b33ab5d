//! What a shard's log says: batches of profiles, who made them, and cuts.
//!
//! ```text
//!  begin   kind token node stamp                   from here on it is this node that makes batches
//!  batch   kind token generation place stamp window │ uploads: ids │ tenants: names, series │ records: rows
//!                          what a follower reads ┘
//!  end     kind generation                         nothing more is built on its names
//!  cut     kind to stamp block
//!  fence   kind version from revision                       from this time of profiles on another table places (E5)
//!  void    kind version                            that table was given up
//!  seal    kind                                    no batch comes after it (E12)
//!  inherit kind source of first last stamp span ids marks holds   the ids of others (E12, E13)
//!  drop    kind ids                                another shard holds these records (E13)
//!  release kind of                                 all rows of another shard lie in blocks
//! ```
//!
//! A batch says only the names that its *generation* has not said yet: whoever has read the log from the generation's
//! first entry knows all ids. A generation is one node's, and its batches are numbered, so that whoever reads only the
//! heads of batches sees whether one is missing.
//!
//! A generation is over with its end, before the first batch of another one, and before a beginning, whichever comes
//! first in the log. Cuts come only there: what is left of a log builds on nothing that was let go of.

use std::ops::Range;

use athanor_catalog::{BlockId, ShardId};
use athanor_profile::hash::Hash;
use athanor_profile::packed::{PackedError, Unpacker, put, put_bytes, put_signed};
use athanor_profile::series::Series;
use athanor_profile::{Labels, ValueType};

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
/// The table by which all was placed before there was another.
pub const FIRST_TABLE: u64 = 1;
/// Most tenants, labels or the like that one entry is believed to have before their bytes were seen.
const RESERVE: usize = 1024;

/// Profiles that are committed together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Tells the proposer its own batch from others.
    pub token: u64,
    /// The log's own time, nanoseconds (E10).
    pub stamp: u64,
    /// How long ids are remembered, nanoseconds (E11).
    pub window: u64,
    /// The token of its generation's first batch.
    pub generation: u64,
    /// Its number in the generation; none of a version that did not number them.
    pub place: Option<u64>,
    /// What the batch says of each tenant.
    pub tenants: Vec<TenantPart>,
    /// The uploads, in the order of arrival.
    pub uploads: Vec<Admitted>,
    /// Packed rows of all records.
    pub rows: Vec<u8>,
}

/// What a batch says of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantPart {
    /// Its name.
    pub tenant: String,
    /// What its dictionary learnt, as [`athanor_profile::growth`] writes it.
    pub names: Vec<u8>,
    /// How many series it had before.
    pub known_series: u32,
    /// Its new series, in the order of their ids.
    pub series: Vec<Series>,
}

/// One upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Place in [`Batch::tenants`].
    pub tenant: u32,
    /// The version of the table by which it was placed.
    pub routed: u64,
    /// Its records.
    pub records: Vec<Record>,
}

/// One profile of one series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its id (E2).
    pub id: Hash,
    /// The series' id within the tenant and generation.
    pub series: u32,
    /// When it was taken, Unix nanoseconds.
    pub time: i64,
    /// How long it took.
    pub duration: i64,
    /// What lay between two samples.
    pub period: i64,
    /// How many rows it has.
    pub samples: u32,
    /// Where they lie in [`Batch::rows`].
    pub rows: Range<usize>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A node leads, and makes the batches that follow: what was open is over.
    Begin {
        /// Tells the node its own from others.
        token: u64,
        /// The node.
        node: u64,
        /// The log's own time, nanoseconds (E10).
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
    /// From a time of profiles on another table places them (E5).
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
}

/// Where ids come from that a shard takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From what the shard before it remembers.
    Window,
    /// From the slot's blocks, since the shard before it is lost.
    Blocks,
    /// From a shard that was lost, for the records that it holds in no block.
    Settle,
}

/// Ids that a shard takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherit {
    /// Where they come from.
    pub source: Source,
    /// Which other shard.
    pub of: ShardId,
    /// What was copied before is forgotten.
    pub first: bool,
    /// These are the last ones.
    pub last: bool,
    /// The log's own time, nanoseconds (E10).
    pub stamp: u64,
    /// How long ids are remembered, nanoseconds (E11).
    pub span: u64,
    /// The ids.
    pub ids: Vec<Hash>,
    /// Places of those that the other has taken over itself from shards that settled, and from which.
    pub taken: Vec<(u32, ShardId)>,
    /// Whose ids are to be held with these.
    pub holds: Vec<ShardId>,
}

/// The part of a batch that every member reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// See [`Batch::token`].
    pub token: u64,
    /// See [`Batch::stamp`].
    pub stamp: u64,
    /// See [`Batch::window`].
    pub window: u64,
    /// See [`Batch::generation`].
    pub generation: u64,
    /// See [`Batch::place`].
    pub place: Option<u64>,
    /// What it says of each upload.
    pub uploads: Vec<UploadHead>,
}

/// What every member reads of an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadHead {
    /// The ids of its records.
    pub ids: Vec<Hash>,
    /// When it was taken, Unix nanoseconds.
    pub time: i64,
    /// See [`Admitted::routed`].
    pub routed: u64,
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

    /// What an entry says.
    pub fn decode(bytes: &[u8]) -> Result<Self, PackedError> {
        let mut unpacker = Unpacker::new(bytes);
        match unpacker.take(1)?[0] {
            kind @ (BATCH | UNROUTED | UNNUMBERED) => {
                let head = Head::read(kind, &mut unpacker)?;
                Batch::read(head, &mut unpacker).map(Entry::Batch)
            }
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
            kind @ (BATCH | UNROUTED | UNNUMBERED) => Head::read(kind, &mut unpacker).map(Some),
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

impl Source {
    /// By which it is written; never 0.
    pub const fn number(self) -> u64 {
        match self {
            Self::Window => 1,
            Self::Blocks => 2,
            Self::Settle => 3,
        }
    }

    /// The source of a number.
    pub fn of(number: u64, unpacker: &Unpacker<'_>) -> Result<Self, PackedError> {
        let all = [Self::Window, Self::Blocks, Self::Settle];
        let known = all.into_iter().find(|source| source.number() == number);
        known.ok_or_else(|| unpacker.wrong("a source of ids that this version does not know"))
    }
}

impl Inherit {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![INHERIT];
        let flags = u64::from(self.first) | u64::from(self.last) << 1;
        let numbers = [self.source.number(), u64::from(self.of), flags, self.stamp, self.span];
        numbers.into_iter().for_each(|number| put(&mut out, number));
        put_ids(&mut out, &self.ids);
        put(&mut out, self.taken.len() as u64);
        for &(place, of) in &self.taken {
            put(&mut out, u64::from(place));
            put(&mut out, u64::from(of));
        }
        put(&mut out, self.holds.len() as u64);
        self.holds.iter().for_each(|of| put(&mut out, u64::from(*of)));
        out
    }

    fn read(unpacker: &mut Unpacker<'_>) -> Result<Self, PackedError> {
        let source = unpacker.number()?;
        let source = Source::of(source, unpacker)?;
        let (of, flags) = (unpacker.small()?, unpacker.number()?);
        let (first, last) = (flags & 1 > 0, flags & 2 > 0);
        let (stamp, span) = (unpacker.number()?, unpacker.number()?);
        let ids = ids(unpacker)?;
        let taken = (0..unpacker.count()?).map(|_| Ok((unpacker.small()?, unpacker.small()?)));
        let taken = taken.collect::<Result<_, PackedError>>()?;
        let holds = (0..unpacker.count()?).map(|_| unpacker.small()).collect::<Result<_, _>>()?;
        Ok(Self { source, of, first, last, stamp, span, ids, taken, holds })
    }
}

impl Admitted {
    /// When its profile was taken: all of its records have one time. Nobody asks of one that has none.
    fn time(&self) -> i64 {
        self.records.first().map_or(0, |record| record.time)
    }
}

impl Batch {
    /// Whether a generation begins here.
    pub fn is_fresh(&self) -> bool {
        self.token == self.generation
    }
}

impl Head {
    /// Whether a generation begins here.
    pub fn is_fresh(&self) -> bool {
        self.token == self.generation
    }

    fn read(kind: u8, unpacker: &mut Unpacker<'_>) -> Result<Self, PackedError> {
        let (token, generation) = (unpacker.number()?, unpacker.number()?);
        let place = if kind == UNNUMBERED { None } else { Some(unpacker.number()?) };
        let (stamp, window) = (unpacker.number()?, unpacker.number()?);
        let mut head = Head { token, stamp, window, generation, place, uploads: Vec::new() };
        for _ in 0..unpacker.count()? {
            let ids = ids(unpacker)?;
            // Where there was one table, nobody asked for times.
            let (time, routed) = if kind == BATCH {
                (unpacker.signed()?, unpacker.number()?)
            } else {
                (i64::MIN, FIRST_TABLE)
            };
            head.uploads.push(UploadHead { ids, time, routed });
        }
        Ok(head)
    }
}

impl Batch {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.rows.len() + 4096);
        let Batch { token, generation, stamp, window, place, .. } = *self;
        out.push(if place.is_some() { BATCH } else { UNNUMBERED });
        let numbers = [token, generation].into_iter().chain(place).chain([stamp, window]);
        numbers.for_each(|number| put(&mut out, number));
        put(&mut out, self.uploads.len() as u64);
        for upload in &self.uploads {
            put(&mut out, upload.records.len() as u64);
            upload.records.iter().for_each(|record| out.extend_from_slice(&record.id.to_le_bytes()));
            if place.is_some() {
                put_signed(&mut out, upload.time());
                put(&mut out, upload.routed);
            }
        }
        put(&mut out, self.tenants.len() as u64);
        for part in &self.tenants {
            put_bytes(&mut out, part.tenant.as_bytes());
            put_bytes(&mut out, &part.names);
            put(&mut out, u64::from(part.known_series));
            put(&mut out, part.series.len() as u64);
            part.series.iter().for_each(|series| put_series(&mut out, series));
        }
        for upload in &self.uploads {
            put(&mut out, u64::from(upload.tenant));
            for record in &upload.records {
                put(&mut out, u64::from(record.series));
                [record.time, record.duration, record.period]
                    .into_iter()
                    .for_each(|number| put_signed(&mut out, number));
                put(&mut out, u64::from(record.samples));
                put_bytes(&mut out, &self.rows[record.rows.clone()]);
            }
        }
        out
    }

    fn read(head: Head, unpacker: &mut Unpacker<'_>) -> Result<Self, PackedError> {
        let Head { token, stamp, window, generation, place, uploads } = head;
        let mut batch = Batch { token, stamp, window, generation, place, ..Batch::default() };
        for _ in 0..unpacker.count()? {
            let tenant = unpacker.text()?.to_owned();
            let names = unpacker.bytes()?.to_vec();
            let known_series = unpacker.small()?;
            let count = unpacker.count()?;
            let mut series = Vec::with_capacity(count.min(RESERVE));
            for _ in 0..count {
                series.push(read_series(unpacker)?);
            }
            batch.tenants.push(TenantPart { tenant, names, known_series, series });
        }
        for UploadHead { ids, routed, .. } in uploads {
            let wrong = unpacker.wrong("a tenant that the batch does not have");
            let tenant = unpacker.small()?;
            if tenant as usize >= batch.tenants.len() {
                return Err(wrong);
            }
            let mut records = Vec::with_capacity(ids.len().min(RESERVE));
            for id in ids {
                records.push(batch.read_record(id, unpacker)?);
            }
            batch.uploads.push(Admitted { tenant, routed, records });
        }
        if unpacker.is_done() { Ok(batch) } else { Err(unpacker.wrong("bytes after the end")) }
    }

    fn read_record(&mut self, id: Hash, unpacker: &mut Unpacker<'_>) -> Result<Record, PackedError> {
        let series = unpacker.small()?;
        let (time, duration, period) = (unpacker.signed()?, unpacker.signed()?, unpacker.signed()?);
        let samples = unpacker.small()?;
        let start = self.rows.len();
        self.rows.extend_from_slice(unpacker.bytes()?);
        Ok(Record { id, series, time, duration, period, samples, rows: start..self.rows.len() })
    }
}

fn put_series(out: &mut Vec<u8>, series: &Series) {
    put(out, series.labels().len() as u64);
    for (name, value) in series.labels().iter() {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
    for value_type in [&series.value_type, &series.period_type] {
        put_bytes(out, value_type.kind.as_bytes());
        put_bytes(out, value_type.unit.as_bytes());
    }
}

fn read_series(unpacker: &mut Unpacker<'_>) -> Result<Series, PackedError> {
    let mut labels = Vec::new();
    for _ in 0..unpacker.count()? {
        labels.push((unpacker.text()?.to_owned(), unpacker.text()?.to_owned()));
    }
    let mut value_type = || -> Result<ValueType, PackedError> {
        Ok(ValueType { kind: unpacker.text()?.to_owned(), unit: unpacker.text()?.to_owned() })
    };
    let (value, period) = (value_type()?, value_type()?);
    Ok(Series::new(Labels::new(labels), value, period))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let labels = Labels::new([("service_name".to_owned(), "größe".to_owned())]);
        let series = Series::new(labels, ValueType::new("cpu", "nanoseconds"), ValueType::default());
        let record = |id, rows| Record { id, series: 0, time: -5, duration: 7, period: 9, samples: 2, rows };
        Batch {
            token: u64::MAX,
            stamp: 11,
            window: 12,
            generation: 13,
            place: Some(14),
            tenants: vec![TenantPart {
                tenant: "acme".into(),
                names: vec![1, 2],
                known_series: 3,
                series: vec![series],
            }],
            uploads: vec![Admitted {
                tenant: 0,
                routed: 3,
                records: vec![record(1, 0..2), record(u128::MAX, 2..5)],
            }],
            rows: vec![1, 2, 3, 4, 5],
        }
    }

    #[test]
    fn a_batch_comes_back_as_it_was() {
        let bytes = batch().encode();
        assert_eq!(Entry::decode(&bytes), Ok(Entry::Batch(batch())));
        let head = Entry::head(&bytes).unwrap().unwrap();
        let found = (head.stamp, head.generation, head.place, head.uploads);
        let upload = UploadHead { ids: vec![1, u128::MAX], time: -5, routed: 3 };
        assert_eq!(found, (11, 13, Some(14), vec![upload]));
    }

    #[test]
    fn a_batch_that_was_not_numbered_is_read() {
        let mut batch = Batch { place: None, ..batch() };
        batch.uploads[0].routed = 1;
        let bytes = batch.encode();
        assert_eq!(bytes[0], 1);
        assert_eq!(Entry::decode(&bytes), Ok(Entry::Batch(batch)));
    }

    #[test]
    fn what_is_said_of_the_shard_comes_back_as_it_was() {
        let inherit = Inherit {
            source: Source::Settle,
            of: 70_000,
            first: false,
            last: true,
            stamp: 5,
            span: u64::MAX,
            ids: vec![1, u128::MAX],
            taken: vec![(1, 9)],
            holds: vec![70_000, 9],
        };
        for (bytes, entry) in [
            (Entry::fence(7, -3, 8), Entry::Fence { version: 7, from: -3, revision: 8 }),
            (Entry::void(7), Entry::Void { version: 7 }),
            (Entry::seal(), Entry::Seal),
            (inherit.encode(), Entry::Inherit(inherit)),
            (Entry::drop(&[4, 5]), Entry::Drop(vec![4, 5])),
            (Entry::release(9), Entry::Release { of: 9 }),
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

    #[test]
    fn other_bytes_are_refused_or_read() {
        let bytes = batch().encode();
        for cut in 0..bytes.len() {
            assert!(Entry::decode(&bytes[..cut]).is_err());
        }
        for place in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = bytes.clone();
                bad[place] ^= flip;
                let _ = Entry::decode(&bad);
            }
        }
    }
}
