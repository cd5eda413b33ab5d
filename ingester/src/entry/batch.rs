//! Batches of profiles, as bytes: first what every member reads of them, then the rest.

use std::ops::Range;

use athanor_profile::hash::Hash;
use athanor_profile::packed::{PackedError, Unpacker, put, put_bytes, put_signed};
use athanor_profile::series::Series;
use athanor_profile::{Labels, ValueType};

use super::{BATCH, COUNTING, FIRST_TABLE, UNNUMBERED, ids};
use crate::counted::Step;

/// Most tenants, labels or the like that one entry is believed to have before their bytes were seen.
const RESERVE: usize = 1024;

/// Profiles that are committed together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Tells the proposer its own batch from others.
    pub token: u64,
    /// The log's own time, nanoseconds [INV-10].
    pub stamp: u64,
    /// How long ids are remembered, nanoseconds [INV-11].
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
    /// Its id [INV-02].
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
    /// What it does to what is counted...
    pub step: Step,
    /// ...under this name, which is equal in all generations, whatever rules make of labels. Nobody asks where it does
    /// nothing.
    pub counter: Hash,
    /// Where they lie in [`Batch::rows`].
    pub rows: Range<usize>,
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

impl Admitted {
    /// When its profile was taken: all of its records have one time. Nobody asks of one that has none.
    fn time(&self) -> i64 {
        self.records.first().map_or(0, |record| record.time)
    }
}

impl Head {
    /// Whether a generation begins here.
    pub fn is_fresh(&self) -> bool {
        self.token == self.generation
    }

    pub(super) fn read(kind: u8, unpacker: &mut Unpacker<'_>) -> Result<Self, PackedError> {
        let (token, generation) = (unpacker.number()?, unpacker.number()?);
        let place = if kind == UNNUMBERED { None } else { Some(unpacker.number()?) };
        let (stamp, window) = (unpacker.number()?, unpacker.number()?);
        let mut head = Head { token, stamp, window, generation, place, uploads: Vec::new() };
        for _ in 0..unpacker.count()? {
            let ids = ids(unpacker)?;
            // Where there was one table, nobody asked for times.
            let (time, routed) = if matches!(kind, BATCH | COUNTING) {
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
    /// Whether a generation begins here.
    pub fn is_fresh(&self) -> bool {
        self.token == self.generation
    }

    /// Whether some record counts since a process began. Other batches are written as they always were.
    pub fn counts(&self) -> bool {
        let mut records = self.uploads.iter().flat_map(|upload| &upload.records);
        self.place.is_some() && records.any(|record| record.step != Step::Nothing)
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.rows.len() + 4096);
        let Batch { token, generation, stamp, window, place, .. } = *self;
        let counts = self.counts();
        out.push(match place {
            Some(_) if counts => COUNTING,
            Some(_) => BATCH,
            None => UNNUMBERED,
        });
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
                if counts {
                    put(&mut out, record.step.number());
                    out.extend_from_slice(&record.counter.to_le_bytes());
                }
                put_bytes(&mut out, &self.rows[record.rows.clone()]);
            }
        }
        out
    }

    pub(super) fn read(kind: u8, head: Head, unpacker: &mut Unpacker<'_>) -> Result<Self, PackedError> {
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
                records.push(batch.read_record(id, kind == COUNTING, unpacker)?);
            }
            batch.uploads.push(Admitted { tenant, routed, records });
        }
        if unpacker.is_done() { Ok(batch) } else { Err(unpacker.wrong("bytes after the end")) }
    }

    fn read_record(
        &mut self,
        id: Hash,
        counting: bool,
        unpacker: &mut Unpacker<'_>,
    ) -> Result<Record, PackedError> {
        let series = unpacker.small()?;
        let (time, duration, period) = (unpacker.signed()?, unpacker.signed()?, unpacker.signed()?);
        let samples = unpacker.small()?;
        let (step, counter) = match counting {
            true => (Step::of(unpacker.number()?, unpacker)?, super::id(unpacker)?),
            false => (Step::Nothing, 0),
        };
        let start = self.rows.len();
        self.rows.extend_from_slice(unpacker.bytes()?);
        Ok(Record {
            id,
            series,
            time,
            duration,
            period,
            samples,
            step,
            counter,
            rows: start..self.rows.len(),
        })
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
    use crate::entry::Entry;

    fn batch() -> Batch {
        let labels = Labels::new([("service_name".to_owned(), "größe".to_owned())]);
        let series = Series::new(labels, ValueType::new("cpu", "nanoseconds"), ValueType::default());
        let record = |id, rows| {
            let samples = 2;
            Record { id, time: -5, duration: 7, period: 9, samples, rows, ..Record::default() }
        };
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

    fn counting() -> Batch {
        let mut batch = batch();
        let records = batch.uploads[0].records.iter_mut();
        records.zip([(Step::Adds, 3), (Step::Begins, u128::MAX)]).for_each(|(record, counts)| {
            (record.step, record.counter) = counts;
        });
        batch
    }

    #[test]
    fn a_batch_that_counts_comes_back_as_it_was() {
        let bytes = counting().encode();
        assert_eq!(Entry::decode(&bytes), Ok(Entry::Batch(counting())));
        let head = Entry::head(&bytes).unwrap().unwrap();
        assert_eq!(head, Entry::head(&batch().encode()).unwrap().unwrap());
    }

    #[test]
    fn other_bytes_are_refused_or_read() {
        let bytes = counting().encode();
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
