//! Estimates of the memory of decoded messages, made from their bytes before decoding.
//!
//! An empty nested message is two bytes on the wire and a hundred in memory. So bodies are scanned first, and
//! memory is reserved for the decoded message.

use athanor_chassis::{ByteSize, ErrorCode, Status};
use athanor_proto::parca::profilestore::v1alpha1 as parca;
use athanor_proto::push::v1::{RawProfileSeries, RawSample};
use athanor_proto::types::v1::{LabelPair, ProfileAnnotation};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Maximum number of nested messages. A push with the maximum of profiles and labels has fewer.
const MAX_NESTED_MESSAGES: usize = 500_000;
/// Growth factor of lists, which double their capacity.
const LIST_GROWTH_FACTOR: usize = 2;
/// Memory of an empty string per byte on the wire, where it takes two bytes.
const EMPTY_TEXT_BYTES: usize = LIST_GROWTH_FACTOR * size_of::<String>() / 2;
/// Maximum body of a query. The longest accepted lists of ids take half of it.
const QUERY_BODY: ByteSize = ByteSize::mib(1);

/// Estimate function: message bytes, whether they are JSON, and the maximum number of fields to inspect.
type EstimateSizeFn = fn(&[u8], bool, usize) -> Result<Option<usize>, Status>;

/// Limits of the body of a call.
#[derive(Clone, Copy, Debug)]
pub struct BodyPolicy {
    /// Maximum size of the body, as sent and decompressed.
    pub limit: ByteSize,
    /// Origin of the limit, for error messages.
    pub set_by: &'static str,
    weigh: EstimateSizeFn,
}

impl BodyPolicy {
    /// Policy of queries, which are strings and short lists.
    pub const QUERY_BODY: Self = Self { limit: QUERY_BODY, set_by: "fixed for queries", weigh: texts };

    /// Returns the policy of profile pushes with a size limit.
    pub fn profiles(limit: ByteSize) -> Self {
        Self {
            limit,
            set_by: "limits.ingestion_body_limit",
            weigh: |bytes, json, max_fields| weighed(bytes, json, max_fields, &PUSH_SHAPE),
        }
    }

    /// Returns the policy of profile pushes by Parca clients, with the same limit.
    pub fn raw_profiles(limit: ByteSize) -> Self {
        let weigh: EstimateSizeFn =
            |bytes, json, max_fields| weighed(bytes, json, max_fields, &WRITE_RAW_SHAPE);
        Self { limit, set_by: "limits.ingestion_body_limit", weigh }
    }

    /// Returns the policy of OpenTelemetry exports with a size limit. The export is converted to pprof
    /// directly from its bytes. A timestamp in JSON may be two bytes, and takes eight in protobuf.
    pub fn export(limit: ByteSize) -> Self {
        let weigh = |bytes: &[u8], json, _| Ok(Some(bytes.len() * if json { 4 } else { 1 }));
        Self { limit, set_by: "limits.ingestion_body_limit", weigh }
    }

    /// Returns the approximate memory of a message beside its own bytes, or `None` if a binary message has
    /// more than `max_fields` fields.
    pub fn weigh(&self, bytes: &[u8], json: bool, max_fields: usize) -> Result<Option<usize>, Status> {
        (self.weigh)(bytes, json, max_fields)
    }

    /// Returns the policy of manual uploads: one profile in base64, with a size limit.
    pub fn upload(limit: ByteSize) -> Self {
        Self { limit, set_by: "querier.adhoc.max_profile_bytes", weigh: |bytes, _, _| Ok(Some(bytes.len())) }
    }

    /// Returns the error of a body that exceeds the limit.
    pub fn too_large(&self, seen: u64) -> Status {
        let seen = ByteSize::bytes(seen);
        let limit = self.limit;
        let message = format!(
            "the body has at least {seen}, the limit is {limit} ({}): send smaller batches",
            self.set_by
        );
        Status::new(ErrorCode::TooLarge, message).with_reason("body_size_limit_exceeded")
    }
}

fn texts(bytes: &[u8], _: bool, _: usize) -> Result<Option<usize>, Status> {
    Ok(Some(bytes.len() * EMPTY_TEXT_BYTES))
}

fn weighed(
    bytes: &[u8],
    json: bool,
    max_fields: usize,
    shape: &MessageShape,
) -> Result<Option<usize>, Status> {
    let mut weight = SizeEstimate { max_fields, ..SizeEstimate::default() };
    if json {
        // Braces within strings are rare. Strings are copied, and those with profiles are decoded as well.
        weight.messages = bytes.iter().filter(|&&byte| byte == b'{').count();
        weight.bytes = 2 * bytes.len() + weight.messages * LIST_GROWTH_FACTOR * size_of::<RawProfileSeries>();
    } else {
        // If this scan ends early, the decoder fails at the same place and reports the error.
        let _ = weight.walk(bytes, shape);
        if weight.fields > max_fields {
            return Ok(None);
        }
    }
    if weight.messages > MAX_NESTED_MESSAGES {
        let message = format!(
            "the request has over {MAX_NESTED_MESSAGES} series, labels and profiles, which is the limit: send smaller batches"
        );
        return Err(Status::new(ErrorCode::TooLarge, message));
    }
    Ok(Some(weight.bytes))
}

/// Memory layout of a message.
struct MessageShape {
    size: usize,
    /// Fields that the decoder copies; other fields are slices of the body.
    copied: &'static [u32],
    /// Fields that are lists of nested messages.
    inner: &'static [(u32, &'static MessageShape)],
}

static PUSH_SHAPE: MessageShape = MessageShape { size: 0, copied: &[], inner: &[(1, &SERIES_SHAPE)] };
static SERIES_SHAPE: MessageShape = MessageShape {
    size: size_of::<RawProfileSeries>(),
    copied: &[],
    inner: &[(1, &LABEL_SHAPE), (2, &SAMPLE_SHAPE), (3, &ANNOTATION_SHAPE)],
};
static LABEL_SHAPE: MessageShape = MessageShape { size: size_of::<LabelPair>(), copied: &[1, 2], inner: &[] };
static SAMPLE_SHAPE: MessageShape = MessageShape { size: size_of::<RawSample>(), copied: &[2], inner: &[] };
static ANNOTATION_SHAPE: MessageShape =
    MessageShape { size: size_of::<ProfileAnnotation>(), copied: &[1, 2], inner: &[] };

static WRITE_RAW_SHAPE: MessageShape =
    MessageShape { size: 0, copied: &[1], inner: &[(2, &RAW_SERIES_SHAPE)] };
static RAW_SERIES_SHAPE: MessageShape = MessageShape {
    size: size_of::<parca::RawProfileSeries>(),
    copied: &[],
    inner: &[(1, &LABEL_SET_SHAPE), (2, &RAW_SAMPLE_SHAPE)],
};
static LABEL_SET_SHAPE: MessageShape =
    MessageShape { size: size_of::<parca::LabelSet>(), copied: &[], inner: &[(1, &RAW_LABEL_SHAPE)] };
static RAW_LABEL_SHAPE: MessageShape =
    MessageShape { size: size_of::<parca::Label>(), copied: &[1, 2], inner: &[] };
static RAW_SAMPLE_SHAPE: MessageShape =
    MessageShape { size: size_of::<parca::RawSample>(), copied: &[], inner: &[(2, &EXECUTABLE_SHAPE)] };
static EXECUTABLE_SHAPE: MessageShape =
    MessageShape { size: size_of::<parca::ExecutableInfo>(), copied: &[], inner: &[] };

#[derive(Default)]
struct SizeEstimate {
    fields: usize,
    max_fields: usize,
    messages: usize,
    bytes: usize,
}

impl SizeEstimate {
    /// Scans the message as the decoder does, up to the same end.
    fn walk(&mut self, mut bytes: &[u8], shape: &MessageShape) -> Result<(), DecodeError> {
        while !bytes.is_empty() && self.messages <= MAX_NESTED_MESSAGES && self.fields <= self.max_fields {
            self.fields += 1;
            let (field, wire_type) = decode_key(&mut bytes)?;
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, field, &mut bytes, DecodeContext::default())?;
                continue;
            }
            let length = usize::try_from(decode_varint(&mut bytes)?).unwrap_or(usize::MAX);
            let (content, rest) = bytes.split_at_checked(length).unwrap_or((bytes, &[]));
            bytes = rest;
            if shape.copied.contains(&field) {
                self.bytes += content.len();
            }
            if let Some((_, inner)) = shape.inner.iter().find(|(of, _)| *of == field) {
                self.messages += 1;
                self.bytes += LIST_GROWTH_FACTOR * inner.size;
                self.walk(content, inner)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use athanor_proto::push::v1::PushRequest;
    use prost::Message;

    use super::*;

    fn weight(bytes: &[u8], json: bool) -> Result<usize, ErrorCode> {
        let weighed = BodyPolicy::profiles(ByteSize::mib(1)).weigh(bytes, json, usize::MAX);
        weighed.map(Option::unwrap).map_err(|status| status.code)
    }

    /// What the lists and texts of a message hold.
    fn held(request: &PushRequest) -> usize {
        let texts = |pair: &LabelPair| pair.name.len() + pair.value.len();
        let of_series = |series: &RawProfileSeries| {
            let lists = series.labels.capacity() * size_of::<LabelPair>()
                + series.samples.capacity() * size_of::<RawSample>();
            lists + series.labels.iter().map(texts).sum::<usize>()
        };
        request.series.capacity() * size_of::<RawProfileSeries>()
            + request.series.iter().map(of_series).sum::<usize>()
    }

    #[test]
    fn times_in_json_take_no_more_than_they_weigh() {
        let times = vec!["0"; 10_000].join(",");
        let json = format!(
            r#"{{"resourceProfiles":[{{"scopeProfiles":[{{"profiles":[{{"samples":[{{"timestampsUnixNano":[{times}]}}]}}]}}]}}]}}"#
        );
        let written = athanor_profile::formats::otlp::from_json(json.as_bytes(), 1 << 20).unwrap();
        assert!(
            written.len()
                <= BodyPolicy::export(ByteSize::mib(1)).weigh(json.as_bytes(), true, 0).unwrap().unwrap()
        );
    }

    #[test]
    fn nothing_takes_more_than_it_weighs() {
        let label = LabelPair { name: "n".repeat(300), value: "v".repeat(500) };
        let sample = RawSample { raw_profile: vec![7; 5000].into(), id: "i".repeat(100) };
        let series = |labels, samples| RawProfileSeries { labels, samples, annotations: vec![] };
        for series in [
            vec![RawProfileSeries::default(); 1000],
            vec![series(vec![LabelPair::default(); 1000], vec![])],
            vec![series(vec![], vec![RawSample::default(); 1000])],
            vec![series(vec![label; 40], vec![sample; 40]); 3],
        ] {
            let request = PushRequest { series };
            let bytes = request.encode_to_vec();
            let read = PushRequest::decode(&bytes[..]).unwrap();
            let (held, weight) = (held(&read), weight(&bytes, false).unwrap());
            assert!(held <= weight + 4 * size_of::<RawProfileSeries>(), "{held} {weight}");
            assert!(weight < 5 * held, "{held} {weight}");
            let json = serde_json::to_vec(&request).unwrap();
            assert!(held <= self::weight(&json, true).unwrap());
        }
    }

    #[test]
    fn nothing_of_parca_takes_more_than_it_weighs() {
        let label = parca::Label { name: "n".repeat(30), value: "v".repeat(50) };
        let set = |labels| Some(parca::LabelSet { labels });
        let sample = parca::RawSample {
            raw_profile: vec![7; 500].into(),
            executable_info: vec![parca::ExecutableInfo::default(); 1000],
        };
        for series in [
            vec![parca::RawProfileSeries::default(); 1000],
            vec![parca::RawProfileSeries { labels: set(vec![label; 1000]), samples: vec![] }],
            vec![parca::RawProfileSeries { labels: set(vec![]), samples: vec![sample; 3] }],
        ] {
            let request = parca::WriteRawRequest { tenant: "t".repeat(99), series, normalized: true };
            let bytes = request.encode_to_vec();
            let read = parca::WriteRawRequest::decode(&bytes[..]).unwrap();
            let of_sample = |sample: &parca::RawSample| {
                sample.executable_info.capacity() * size_of::<parca::ExecutableInfo>()
            };
            let of_labels = |labels: &Vec<parca::Label>| {
                let texts: usize = labels.iter().map(|label| label.name.len() + label.value.len()).sum();
                texts + labels.capacity() * size_of::<parca::Label>()
            };
            let of_series = |series: &parca::RawProfileSeries| {
                series.samples.capacity() * size_of::<parca::RawSample>()
                    + series.samples.iter().map(of_sample).sum::<usize>()
                    + series.labels.as_ref().map_or(0, |set| of_labels(&set.labels))
            };
            let held = read.tenant.len()
                + read.series.capacity() * size_of::<parca::RawProfileSeries>()
                + read.series.iter().map(of_series).sum::<usize>();
            let weight =
                BodyPolicy::raw_profiles(ByteSize::mib(1)).weigh(&bytes, false, usize::MAX).unwrap().unwrap();
            assert!(held <= weight + 4 * size_of::<parca::RawProfileSeries>(), "{held} {weight}");
        }
        let many = [0x12, 0].repeat(MAX_NESTED_MESSAGES + 1);
        let refused = BodyPolicy::raw_profiles(ByteSize::mib(1)).weigh(&many, false, usize::MAX);
        assert_eq!(refused.map_err(|status| status.code), Err(ErrorCode::TooLarge));
    }

    #[test]
    fn message_of_many_small_fields_is_not_weighed_to_its_end() {
        let admits = BodyPolicy::profiles(ByteSize::mib(1));
        // Fields that nobody knows, and profiles without bytes: nothing of either takes memory.
        for (field, count) in [(&[0x10, 0][..], 1000), (&[0x0a, 0x04, 0x12, 0x02, 0x0a, 0x00], 1000)] {
            let bytes = field.repeat(count);
            assert!(admits.weigh(&bytes, false, 1000 * field.len()).unwrap().is_some());
            assert_eq!(admits.weigh(&bytes, false, 999).unwrap(), None);
        }
    }

    #[test]
    fn too_many_messages_are_refused_before_they_are_read() {
        assert!(weight(&[0x0a, 0].repeat(MAX_NESTED_MESSAGES), false).is_ok());
        assert_eq!(weight(&[0x0a, 0].repeat(MAX_NESTED_MESSAGES + 1), false), Err(ErrorCode::TooLarge));
        assert_eq!(weight("{},".repeat(MAX_NESTED_MESSAGES + 1).as_bytes(), true), Err(ErrorCode::TooLarge));
        // Groups hide nothing.
        let hidden = [&[0x7b, 0x7c][..], &[0x0a, 0].repeat(MAX_NESTED_MESSAGES + 1)].concat();
        assert_eq!(weight(&hidden, false), Err(ErrorCode::TooLarge));
    }

    #[test]
    fn what_is_cut_off_weighs_what_came() {
        for bytes in [
            &[0x0a][..],
            &[0x0a, 0x7f, 0x0a],
            &[0xff; 11],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ] {
            assert!(weight(bytes, false).unwrap() < 1000);
        }
    }
}
