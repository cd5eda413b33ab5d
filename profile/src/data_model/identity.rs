//! Identity of profiles: the ids that detect duplicates.
//!
//! INV-01: an upload's identity hashes tenant, labels and time *as sent*, type, duration, canonical content
//! and the client's id if present. Re-encoding, other gzip levels and relabeling do not change it.
//! INV-02: a record's id hashes the upload's identity, the sample type, the labels that split it off, and
//! `n`. `n` numbers the equal profiles of one request, so that records of one upload never look like
//! duplicates.

use crate::data_model::labels::Labels;
use crate::data_model::model::{ProfileHeader, ValueType};
use crate::encoding::hash::{self, ContentHash};

/// Hasher of a profile's canonical content. The order of rows and the splitting of equal rows do not affect
/// the result.
///
/// Each row adds `value × H(stack, labels)` to the sum of its type, modulo 2^128. Each timestamp of a row
/// adds its hash with that of the row to a sum over all types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentHasher {
    values: Vec<u128>,
    moments: u128,
}

impl ContentHasher {
    /// Resets the sums for rows of `width` values.
    pub fn reset(&mut self, width: usize) {
        self.values.clear();
        self.values.resize(width, 0);
        self.moments = 0;
    }
    /// Adds one row with its timestamps.
    pub fn add(&mut self, stack: ContentHash, labels: ContentHash, values: &[i64], moments: &[i64]) {
        // Odd, so that multiplication loses no bit of the value.
        let row = if labels == 0 { stack | 1 } else { hash::hash_list(&[stack, labels]) | 1 };
        for (sum, &value) in self.values.iter_mut().zip(values) {
            *sum = sum.wrapping_add((value as i128 as u128).wrapping_mul(row));
        }
        for &moment in moments {
            self.moments = self.moments.wrapping_add(hash::hash_list(&[row, moment as u128]));
        }
    }
    /// Returns the hash of the content together with its value types and period.
    pub fn finish(&self, header: &ProfileHeader) -> ContentHash {
        let mut parts: Vec<ContentHash> = Vec::with_capacity(self.values.len() * 2 + 3);
        for (sum, value_type) in self.values.iter().zip(&header.types) {
            parts.extend([value_type.hash(), *sum]);
        }
        let period = header.period_type.as_ref().map_or(0, ValueType::hash);
        parts.extend([period, header.period as u128]);
        // A profile without timestamps keeps the hash that it had before timestamps were supported.
        parts.extend(Some(self.moments).filter(|&moments| moments != 0));
        hash::hash_list(&parts)
    }
}

/// Identity of an upload: metadata as sent, and the content hash.
#[derive(Clone, Copy, Debug)]
pub struct UploadIdentity<'a> {
    /// Tenant that owns the upload.
    pub tenant: &'a str,
    /// Labels as sent, before any rule changed them.
    pub labels: &'a Labels,
    /// Time as sent: the profile's own, or else the request's `from` [INV-03].
    pub time_nanos: i64,
    /// Duration as sent, in nanoseconds.
    pub duration_nanos: i64,
    /// Content hash from [`ContentHasher::finish`].
    pub content: ContentHash,
    /// Id that the client assigned, if present.
    pub client_id: Option<&'a [u8]>,
}

impl UploadIdentity<'_> {
    /// Returns the upload's identity [INV-01]. A client id of zero bytes only counts as absent.
    pub fn identity(&self) -> ContentHash {
        let client = self.client_id.filter(|id| id.iter().any(|&byte| byte != 0));
        hash::hash_list(&[
            hash::hash_bytes(self.tenant.as_bytes()),
            self.labels.hash(),
            self.time_nanos as u128,
            self.duration_nanos as u128,
            self.content,
            client.map_or(0, |id| hash::hash_tagged(1, id)),
        ])
    }
}

/// Returns a record's id [INV-02]; `n` numbers equal profiles within one request. All records of a profile
/// share the first half, whatever their types and splits. It identifies the profile wherever its records are
/// stored.
pub fn record_id(upload: ContentHash, value_type: &ValueType, split: &Labels, n: u64) -> ContentHash {
    let profile = hash::hash_list(&[upload, u128::from(n)]);
    let record = hash::hash_list(&[upload, value_type.hash(), split.hash(), u128::from(n)]);
    profile_id_of_record(profile) | (record & RECORD_ID_MASK)
}

/// Mask of the half that distinguishes the records of a profile.
const RECORD_ID_MASK: ContentHash = u64::MAX as ContentHash;

/// Returns the half that all records of a profile share, with the rest zero.
pub fn profile_id_of_record(record: ContentHash) -> ContentHash {
    record & !RECORD_ID_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload<'a>(labels: &'a Labels, content: ContentHash, client_id: Option<&'a [u8]>) -> ContentHash {
        UploadIdentity { tenant: "a", labels, time_nanos: 1, duration_nanos: 2, content, client_id }
            .identity()
    }

    #[test]
    fn content_ignores_order_and_splits_but_not_values() {
        let rows = [(7u128, 0u128, 5i64), (9, 3, -2), (7, 0, 1)];
        let sum = |rows: &[(u128, u128, i64)]| {
            let mut content = ContentHasher::default();
            content.reset(1);
            rows.iter().for_each(|&(stack, labels, value)| content.add(stack, labels, &[value], &[]));
            content
        };
        assert_eq!(sum(&rows), sum(&[(9, 3, -2), (7, 0, 6)]));
        assert_ne!(sum(&rows), sum(&[(9, 3, -2), (7, 0, 7)]));
        assert_ne!(sum(&rows), sum(&[(9, 0, -2), (7, 0, 6)]));
    }

    /// INV-01: when samples were taken is part of the content, whatever rows say it, and in whatever order.
    #[test]
    fn moments_are_part_of_the_content_of_their_stack() {
        let header = ProfileHeader { types: vec![ValueType::new("cpu", "ns")], ..ProfileHeader::default() };
        let sum = |rows: &[(u128, i64, &[i64])]| {
            let mut content = ContentHasher::default();
            content.reset(1);
            rows.iter().for_each(|&(stack, value, moments)| content.add(stack, 0, &[value], moments));
            content.finish(&header)
        };
        let one = sum(&[(7, 3, &[10, 20, 20]), (9, 1, &[30])]);
        assert_eq!(one, sum(&[(9, 1, &[30]), (7, 1, &[20]), (7, 2, &[20, 10])]));
        let others: [&[(u128, i64, &[i64])]; 5] = [
            &[(7, 3, &[]), (9, 1, &[])],
            &[(7, 3, &[10, 20, 21]), (9, 1, &[30])],
            &[(7, 3, &[10, 20]), (9, 1, &[30])],
            &[(7, 3, &[10, 20, 30]), (9, 1, &[20])],
            &[(7, 3, &[10, 10, 20]), (9, 1, &[30])],
        ];
        others.iter().for_each(|rows| assert_ne!(one, sum(rows), "{rows:?}"));
    }

    /// INV-01: whatever differs in one of these is another upload.
    #[test]
    fn each_field_of_an_upload_is_part_of_its_identity() {
        let (labels, others) =
            (Labels::new([("pod".into(), "1".into())]), Labels::new([("pod".into(), "2".into())]));
        let renamed = Labels::new([("p".into(), "od1".into())]);
        let one = UploadIdentity {
            tenant: "a",
            labels: &labels,
            time_nanos: 1,
            duration_nanos: 2,
            content: 3,
            client_id: Some(b"id"),
        };
        let uploads = [
            one,
            UploadIdentity { tenant: "b", ..one },
            UploadIdentity { labels: &others, ..one },
            UploadIdentity { labels: &renamed, ..one },
            UploadIdentity { time_nanos: 2, ..one },
            UploadIdentity { duration_nanos: 1, ..one },
            UploadIdentity { time_nanos: 2, duration_nanos: 1, ..one },
            UploadIdentity { content: 4, ..one },
            UploadIdentity { client_id: Some(b"ie"), ..one },
            UploadIdentity { client_id: None, ..one },
        ];
        let ids: Vec<ContentHash> = uploads.iter().map(UploadIdentity::identity).collect();
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{:?}", uploads[at]);
        }
        assert_eq!(one.identity(), UploadIdentity { labels: &labels.clone(), ..one }.identity());
    }

    /// INV-01: the sample types, the period and its type are part of the content.
    #[test]
    fn what_a_header_says_of_values_is_part_of_the_content() {
        let header = |kind: &str, unit: &str, period: i64, period_type: Option<ValueType>| ProfileHeader {
            types: vec![ValueType::new(kind, unit)],
            period,
            period_type,
            ..ProfileHeader::default()
        };
        let mut content = ContentHasher::default();
        content.reset(1);
        content.add(7, 0, &[5], &[]);
        let headers = [
            header("cpu", "ns", 1, None),
            header("wall", "ns", 1, None),
            header("cpu", "ms", 1, None),
            header("cpu", "ns", 2, None),
            header("cpu", "ns", 1, Some(ValueType::new("cpu", "ns"))),
            header("cpu", "ns", 1, Some(ValueType::new("cpu", "ms"))),
        ];
        let hashes: Vec<ContentHash> = headers.iter().map(|header| content.finish(header)).collect();
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..at].contains(hash), "{:?}", headers[at]);
        }
    }

    #[test]
    fn a_nil_client_id_counts_as_absent_and_another_tells_equal_contents_apart() {
        let labels = Labels::default();
        assert_eq!(upload(&labels, 1, None), upload(&labels, 1, Some(&[0; 16])));
        assert_ne!(upload(&labels, 1, None), upload(&labels, 1, Some(&[1; 16])));
        assert_ne!(upload(&labels, 1, None), upload(&labels, 2, None));
    }

    #[test]
    fn records_of_one_upload_differ_by_type_split_and_count() {
        let (cpu, samples) = (ValueType::new("cpu", "nanoseconds"), ValueType::new("samples", "count"));
        let split = Labels::new([("thread".into(), "1".into())]);
        let ids = [
            record_id(1, &cpu, &Labels::default(), 0),
            record_id(1, &samples, &Labels::default(), 0),
            record_id(1, &cpu, &split, 0),
            record_id(1, &cpu, &Labels::default(), 1),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id));
        }
        let profiles = ids.map(profile_id_of_record);
        assert_eq!(profiles[..2], profiles[1..3], "they are of one profile");
        assert_ne!(profiles[0], profiles[3]);
        assert_ne!(profiles[0], profile_id_of_record(record_id(2, &cpu, &Labels::default(), 0)));
    }
}
