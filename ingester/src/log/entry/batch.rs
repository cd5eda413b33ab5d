//! Encoding of batches: first the header, which each member reads, then the rest.

use std::ops::Range;

use athanor_profile::encoding::codec::{CodecError, CodecReader, put_bytes, put_signed_varint, put_varint};
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::ProfileSeries;
use athanor_profile::{Labels, ValueType};

use super::{BATCH_KIND, DELTA_BATCH_KIND, ids};
use crate::delta::cumulative_values::DeltaOp;

/// Maximum number of items for which memory is reserved before their bytes were read.
const MAX_RESERVED_ITEMS: usize = 1024;

/// Profiles that are committed together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadBatch {
    /// Token by which the proposer recognizes its own batch.
    pub token: u64,
    /// Log time, nanoseconds [INV-10].
    pub stamp: u64,
    /// Time for which ids are kept, nanoseconds [INV-11].
    pub window: u64,
    /// Token of its generation's first batch.
    pub generation: u64,
    /// Position in its generation, from 0.
    pub sequence: u64,
    /// Names and series that the batch adds, by tenant.
    pub tenants: Vec<TenantDictionaryDelta>,
    /// Uploads in the order of arrival.
    pub uploads: Vec<BatchUpload>,
    /// Packed rows of all records.
    pub rows: Vec<u8>,
}

/// Names and series that a batch adds for a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantDictionaryDelta {
    /// Name of the tenant.
    pub tenant: String,
    /// Growth of the dictionary, as [`athanor_profile::store_interface::dictionary_delta`] encodes it.
    pub names: Vec<u8>,
    /// Number of series before the batch.
    pub known_series: u32,
    /// Its new series, in the order of their ids.
    pub series: Vec<ProfileSeries>,
}

/// Upload of a batch, with its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchUpload {
    /// Place in [`UploadBatch::tenants`].
    pub tenant: u32,
    /// Version of the slot table by which it was placed.
    pub routed: u64,
    /// Records of the upload.
    pub records: Vec<ProfileRecord>,
}

/// Profile of one series in a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileRecord {
    /// ID of the record [INV-02].
    pub id: ContentHash,
    /// ID of the series within the tenant and generation.
    pub series: u32,
    /// Timestamp of the profile, Unix nanoseconds.
    pub time: i64,
    /// Duration of the profile, nanoseconds.
    pub duration: i64,
    /// Sampling period of the profile.
    pub period: i64,
    /// Number of packed rows.
    pub samples: u32,
    /// Effect on the values of the cumulative series `delta_key`.
    pub delta_op: DeltaOp,
    /// Key of the cumulative series. It is equal in all generations, whatever rules make of labels. Not used
    /// if the record has no effect.
    pub delta_key: ContentHash,
    /// Range of its rows in [`UploadBatch::rows`].
    pub rows: Range<usize>,
}

/// Header of a batch, which each member reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchHeader {
    /// See [`UploadBatch::token`].
    pub token: u64,
    /// See [`UploadBatch::stamp`].
    pub stamp: u64,
    /// See [`UploadBatch::window`].
    pub window: u64,
    /// See [`UploadBatch::generation`].
    pub generation: u64,
    /// See [`UploadBatch::sequence`].
    pub sequence: u64,
    /// Headers of the batch's uploads.
    pub uploads: Vec<UploadHeader>,
}

/// Header of an upload, which each member reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadHeader {
    /// IDs of its records.
    pub ids: Vec<ContentHash>,
    /// Timestamp of the profile, Unix nanoseconds.
    pub time: i64,
    /// See [`BatchUpload::routed`].
    pub routed: u64,
}

impl BatchUpload {
    /// Returns the timestamp of its profile, which all of its records share. Not used for an upload without
    /// records.
    fn time(&self) -> i64 {
        self.records.first().map_or(0, |record| record.time)
    }
}

impl BatchHeader {
    /// Returns whether the batch starts a generation.
    pub fn is_generation_start(&self) -> bool {
        self.token == self.generation
    }

    pub(super) fn read(unpacker: &mut CodecReader<'_>) -> Result<Self, CodecError> {
        let token = unpacker.read_number()?;
        let generation = unpacker.read_number()?;
        let sequence = unpacker.read_number()?;
        let stamp = unpacker.read_number()?;
        let window = unpacker.read_number()?;
        let mut head = BatchHeader { token, stamp, window, generation, sequence, uploads: Vec::new() };
        for _ in 0..unpacker.read_count()? {
            let ids = ids(unpacker)?;
            let time = unpacker.read_signed()?;
            let routed = unpacker.read_number()?;
            head.uploads.push(UploadHeader { ids, time, routed });
        }
        Ok(head)
    }
}

impl UploadBatch {
    /// Returns whether the batch starts a generation.
    pub fn is_generation_start(&self) -> bool {
        self.token == self.generation
    }

    /// Returns whether some record is cumulative.
    pub fn has_delta_records(&self) -> bool {
        let mut records = self.uploads.iter().flat_map(|upload| &upload.records);
        records.any(|record| record.delta_op != DeltaOp::None)
    }

    /// Encodes the batch as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.rows.len() + 4096);
        let UploadBatch { token, generation, stamp, window, sequence, .. } = *self;
        let has_delta_records = self.has_delta_records();
        out.push(if has_delta_records { DELTA_BATCH_KIND } else { BATCH_KIND });
        let numbers = [token, generation, sequence, stamp, window];
        numbers.into_iter().for_each(|number| put_varint(&mut out, number));
        put_varint(&mut out, self.uploads.len() as u64);
        for upload in &self.uploads {
            put_varint(&mut out, upload.records.len() as u64);
            upload.records.iter().for_each(|record| out.extend_from_slice(&record.id.to_le_bytes()));
            put_signed_varint(&mut out, upload.time());
            put_varint(&mut out, upload.routed);
        }
        put_varint(&mut out, self.tenants.len() as u64);
        for part in &self.tenants {
            put_bytes(&mut out, part.tenant.as_bytes());
            put_bytes(&mut out, &part.names);
            put_varint(&mut out, u64::from(part.known_series));
            put_varint(&mut out, part.series.len() as u64);
            part.series.iter().for_each(|series| put_series(&mut out, series));
        }
        for upload in &self.uploads {
            put_varint(&mut out, u64::from(upload.tenant));
            for record in &upload.records {
                put_varint(&mut out, u64::from(record.series));
                [record.time, record.duration, record.period]
                    .into_iter()
                    .for_each(|number| put_signed_varint(&mut out, number));
                put_varint(&mut out, u64::from(record.samples));
                if has_delta_records {
                    put_varint(&mut out, record.delta_op.number());
                    out.extend_from_slice(&record.delta_key.to_le_bytes());
                }
                put_bytes(&mut out, &self.rows[record.rows.clone()]);
            }
        }
        out
    }

    pub(super) fn read(
        kind: u8,
        head: BatchHeader,
        unpacker: &mut CodecReader<'_>,
    ) -> Result<Self, CodecError> {
        let BatchHeader { token, stamp, window, generation, sequence, uploads } = head;
        let mut batch = UploadBatch { token, stamp, window, generation, sequence, ..UploadBatch::default() };
        for _ in 0..unpacker.read_count()? {
            let tenant = unpacker.read_text()?.to_owned();
            let names = unpacker.read_bytes()?.to_vec();
            let known_series = unpacker.read_u32()?;
            let count = unpacker.read_count()?;
            let mut series = Vec::with_capacity(count.min(MAX_RESERVED_ITEMS));
            for _ in 0..count {
                series.push(read_series(unpacker)?);
            }
            batch.tenants.push(TenantDictionaryDelta { tenant, names, known_series, series });
        }
        for UploadHeader { ids, routed, .. } in uploads {
            let wrong = unpacker.error_here("undefined tenant of a batch");
            let tenant = unpacker.read_u32()?;
            if tenant as usize >= batch.tenants.len() {
                return Err(wrong);
            }
            let mut records = Vec::with_capacity(ids.len().min(MAX_RESERVED_ITEMS));
            for id in ids {
                records.push(batch.read_record(id, kind == DELTA_BATCH_KIND, unpacker)?);
            }
            batch.uploads.push(BatchUpload { tenant, routed, records });
        }
        if unpacker.is_done() { Ok(batch) } else { Err(unpacker.error_here("bytes after the end")) }
    }

    fn read_record(
        &mut self,
        id: ContentHash,
        has_delta_op: bool,
        unpacker: &mut CodecReader<'_>,
    ) -> Result<ProfileRecord, CodecError> {
        let series = unpacker.read_u32()?;
        let time = unpacker.read_signed()?;
        let duration = unpacker.read_signed()?;
        let period = unpacker.read_signed()?;
        let samples = unpacker.read_u32()?;
        let (delta_op, delta_key) = match has_delta_op {
            true => (DeltaOp::from_number(unpacker.read_number()?, unpacker)?, super::read_id(unpacker)?),
            false => (DeltaOp::None, 0),
        };
        let start = self.rows.len();
        self.rows.extend_from_slice(unpacker.read_bytes()?);
        Ok(ProfileRecord {
            id,
            series,
            time,
            duration,
            period,
            samples,
            delta_op,
            delta_key,
            rows: start..self.rows.len(),
        })
    }
}

fn put_series(out: &mut Vec<u8>, series: &ProfileSeries) {
    put_varint(out, series.labels().len() as u64);
    for (name, value) in series.labels().iter() {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
    for value_type in [&series.value_type, &series.period_type] {
        put_bytes(out, value_type.kind.as_bytes());
        put_bytes(out, value_type.unit.as_bytes());
    }
}

fn read_series(unpacker: &mut CodecReader<'_>) -> Result<ProfileSeries, CodecError> {
    let mut labels = Vec::new();
    for _ in 0..unpacker.read_count()? {
        labels.push((unpacker.read_text()?.to_owned(), unpacker.read_text()?.to_owned()));
    }
    let mut value_type = || -> Result<ValueType, CodecError> {
        Ok(ValueType { kind: unpacker.read_text()?.to_owned(), unit: unpacker.read_text()?.to_owned() })
    };
    let value = value_type()?;
    let period = value_type()?;
    Ok(ProfileSeries::new(Labels::new(labels), value, period))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::entry::ShardLogEntry;

    fn batch() -> UploadBatch {
        let labels = Labels::new([("service_name".to_owned(), "größe".to_owned())]);
        let series = ProfileSeries::new(labels, ValueType::new("cpu", "nanoseconds"), ValueType::default());
        let record = |id, rows| {
            let samples = 2;
            ProfileRecord { id, time: -5, duration: 7, period: 9, samples, rows, ..ProfileRecord::default() }
        };
        UploadBatch {
            token: u64::MAX,
            stamp: 11,
            window: 12,
            generation: 13,
            sequence: 14,
            tenants: vec![TenantDictionaryDelta {
                tenant: "acme".into(),
                names: vec![1, 2],
                known_series: 3,
                series: vec![series],
            }],
            uploads: vec![BatchUpload {
                tenant: 0,
                routed: 3,
                records: vec![record(1, 0..2), record(u128::MAX, 2..5)],
            }],
            rows: vec![1, 2, 3, 4, 5],
        }
    }

    #[test]
    fn batch_round_trips() {
        let bytes = batch().encode();
        assert_eq!(ShardLogEntry::decode(&bytes), Ok(ShardLogEntry::Batch(batch())));
        let head = ShardLogEntry::decode_batch_header(&bytes).unwrap().unwrap();
        let found = (head.stamp, head.generation, head.sequence, head.uploads);
        let upload = UploadHeader { ids: vec![1, u128::MAX], time: -5, routed: 3 };
        assert_eq!(found, (11, 13, 14, vec![upload]));
    }

    fn counting() -> UploadBatch {
        let mut batch = batch();
        let records = batch.uploads[0].records.iter_mut();
        records.zip([(DeltaOp::Add, 3), (DeltaOp::Reset, u128::MAX)]).for_each(|(record, counts)| {
            (record.delta_op, record.delta_key) = counts;
        });
        batch
    }

    #[test]
    fn batch_with_delta_records_round_trips() {
        let bytes = counting().encode();
        assert_eq!(ShardLogEntry::decode(&bytes), Ok(ShardLogEntry::Batch(counting())));
        let head = ShardLogEntry::decode_batch_header(&bytes).unwrap().unwrap();
        assert_eq!(head, ShardLogEntry::decode_batch_header(&batch().encode()).unwrap().unwrap());
    }

    #[test]
    fn truncated_batch_is_rejected() {
        let bytes = counting().encode();
        for cut in 0..bytes.len() {
            assert!(ShardLogEntry::decode(&bytes[..cut]).is_err());
        }
        for place in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = bytes.clone();
                bad[place] ^= flip;
                let _ = ShardLogEntry::decode(&bad);
            }
        }
    }
}
