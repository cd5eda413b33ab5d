//! Header fields of a profile, and the metric that follows from them.

use super::sample::attributes;
use super::tables::OtlpDictionary;
use super::value::{AnyValue, KeyValue};
use super::{OtlpError, OtlpViolation, OtlpViolations};
use crate::encoding::hex::encode_hex;
use crate::formats::pprof::wire::{WireCursor, WireValue};

/// Duration of profiles that give none, in nanoseconds.
const DEFAULT_DURATION_NANOS: u64 = 10_000_000_000;
/// Length of a profile's id in bytes.
const PROFILE_ID_BYTES: usize = 16;

/// Fields of a profile other than its samples.
#[derive(Default)]
pub(super) struct OtlpProfileHeader<'a> {
    pub(super) has_samples: bool,
    sample_type: (u64, u64),
    pub(super) time: u64,
    pub(super) duration: u64,
    period_type: (u64, u64),
    pub(super) period: i64,
    id: &'a [u8],
    pub(super) attributes: Vec<u64>,
    /// Comments as indexes into the string table, as in 1.8.
    pub(super) comments: Vec<u64>,
    dropped: u64,
    pub(super) payload_format: &'a [u8],
    pub(super) payload: Option<(usize, usize)>,
}

/// Meaning of the values of a profile's samples.
pub(super) struct OtlpSampleMetric<'a> {
    /// Name of the metric.
    pub(super) metric: &'a [u8],
    pub(super) kind: (&'a [u8], &'a [u8]),
    pub(super) period_kind: (&'a [u8], &'a [u8]),
    /// Factor for each value, such as the period.
    pub(super) factor: i64,
    /// A sample may have any number of values, and their sum counts.
    pub(super) sums: bool,
    /// Each value is a snapshot at its timestamp, so only the last one counts.
    pub(super) snapshots: bool,
}

impl<'a> OtlpProfileHeader<'a> {
    pub(super) fn read(
        mut profile: WireCursor<'a>,
        is_new: bool,
        tables: &OtlpDictionary<'a>,
    ) -> Result<Self, OtlpError> {
        let shift = u64::from(has_comments(profile)? && !is_new);
        let mut head = OtlpProfileHeader::default();
        while !profile.is_done() {
            let (field, value) = profile.field("a profile")?;
            // In 1.8, field 7 has comments, and the fields after it have numbers one higher.
            let field = match field {
                7 if shift == 1 => {
                    attributes(value, tables, &mut head.comments)?;
                    continue;
                }
                8.. => field - shift,
                _ => field,
            };
            match (field, value) {
                (1, WireValue::Bytes(start, end)) => {
                    head.sample_type = value_type(tables.cursor(start, end))?
                }
                (2, WireValue::Bytes(..)) => head.has_samples = true,
                (3, WireValue::Fixed(start, end)) => head.time = tables.fixed(start, end).unwrap_or_default(),
                (4, WireValue::Varint(nanos)) => head.duration = nanos,
                (5, WireValue::Bytes(start, end)) => {
                    head.period_type = value_type(tables.cursor(start, end))?
                }
                (6, WireValue::Varint(period)) => head.period = period as i64,
                (7, WireValue::Bytes(start, end)) => head.id = tables.bytes(start, end),
                (8, WireValue::Varint(count)) => head.dropped = count,
                (9, WireValue::Bytes(start, end)) => head.payload_format = tables.bytes(start, end),
                (10, WireValue::Bytes(start, end)) if start < end => head.payload = Some((start, end)),
                (11, value) => attributes(value, tables, &mut head.attributes)?,
                _ => {}
            }
        }
        Ok(head)
    }

    /// Counts dropped attributes and missing fields. A missing duration gets its default.
    pub(super) fn fill_defaults(&mut self, violations: &mut OtlpViolations) {
        violations.add(OtlpViolation::DroppedAttribute, self.dropped);
        violations.add(OtlpViolation::MissingTime, u64::from(self.time == 0));
        if self.duration == 0 {
            violations.add(OtlpViolation::MissingDuration, 1);
            self.duration = DEFAULT_DURATION_NANOS;
        }
    }

    /// Returns the sender's id in hexadecimal, or `None` if it is not valid.
    pub(super) fn id(&self) -> Option<String> {
        let is_one = self.id.len() == PROFILE_ID_BYTES && self.id.iter().any(|&byte| byte != 0);
        is_one.then(|| encode_hex(self.id))
    }

    /// Returns the meaning of the samples' values, by the rules of existing servers.
    pub(super) fn sample_metric(
        &self,
        tables: &OtlpDictionary<'a>,
    ) -> Result<OtlpSampleMetric<'a>, OtlpError> {
        let text = |index| tables.text(index, "a type of values");
        let kind = (text(self.sample_type.0)?, text(self.sample_type.1)?);
        let period_kind = (text(self.period_type.0)?, text(self.period_type.1)?);
        let mut counted = OtlpSampleMetric {
            metric: period_kind.0,
            kind,
            period_kind,
            factor: 1,
            sums: false,
            snapshots: false,
        };
        if period_kind == (b"cpu", b"nanoseconds") {
            counted.metric = b"process_cpu";
            if kind == (b"samples", b"count") && self.period > 0 {
                (counted.kind, counted.factor) = (period_kind, self.period);
            }
        } else if kind.0 == b"off_cpu" {
            counted.sums = true;
            if period_kind.0.is_empty() {
                counted.metric = b"off_cpu";
            }
        }
        // OpenTelemetry for Python takes a snapshot of the whole heap each time.
        counted.snapshots = period_kind.0 == b"memory.heap";
        if counted.metric.is_empty() { Err(OtlpError::NoMetric) } else { Ok(counted) }
    }
}

/// Returns whether a profile has the layout of 1.8 with comments. If its samples have the new layout, the
/// caller ignores the result, because then these are fields that do not exist yet. Wire types distinguish the
/// layouts. Layouts before 1.8 are refused, since their times and periods would be read as other fields.
fn has_comments(mut profile: WireCursor<'_>) -> Result<bool, OtlpError> {
    let mut found = false;
    while !profile.is_done() {
        match profile.field("a profile")? {
            (3 | 6, WireValue::Bytes(..)) | (5 | 7, WireValue::Varint(_)) => return Err(OtlpError::TooOld),
            (8, WireValue::Bytes(..)) | (9, WireValue::Varint(_)) | (12, _) => found = true,
            _ => {}
        }
    }
    Ok(found)
}

fn value_type(mut cursor: WireCursor<'_>) -> Result<(u64, u64), OtlpError> {
    let mut kind = 0;
    let mut unit = 0;
    while !cursor.is_done() {
        match cursor.field("a type of values")? {
            (1, WireValue::Varint(index)) => kind = index,
            (2, WireValue::Varint(index)) => unit = index,
            _ => {}
        }
    }
    Ok((kind, unit))
}

/// Entry of the attribute table.
pub(super) struct OtlpAttribute<'a> {
    pub(super) pair: KeyValue<'a>,
    /// Index of the name in the string table.
    pub(super) key: u64,
    pub(super) unit: u64,
}

impl<'a> OtlpAttribute<'a> {
    pub(super) fn read(mut cursor: WireCursor<'a>, tables: &OtlpDictionary<'a>) -> Result<Self, OtlpError> {
        let mut key = 0;
        let mut value = AnyValue::Nothing;
        let mut unit = 0;
        while !cursor.is_done() {
            match cursor.field("an attribute")? {
                (1, WireValue::Varint(index)) => key = index,
                (2, WireValue::Bytes(start, end)) => {
                    value = AnyValue::read(tables.cursor(start, end), tables)?
                }
                (3, WireValue::Varint(index)) => unit = index,
                _ => {}
            }
        }
        let name = tables.text(key, "the key of an attribute")?;
        Ok(OtlpAttribute { pair: KeyValue { key: name, value }, key, unit })
    }
}
