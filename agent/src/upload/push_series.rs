//! Encoding of the series of a push request, and ids of profiles.
//!
//! A request is written around profiles that are encoded already, so they are not copied into messages first.

use athanor_profile::Labels;
use athanor_profile::encoding::varint::put_varint;

/// Name of the label with the kind of profiles.
pub(crate) const METRIC_NAME_LABEL: &str = "__name__";
/// Tag of field 1 with a length: `PushRequest.series`, `RawProfileSeries.labels`, `RawSample.raw_profile`,
/// `LabelPair.name`.
pub(crate) const FIRST_FIELD_TAG: u8 = 0x0a;
/// Tag of field 2 with a length: `RawProfileSeries.samples`, `RawSample.ID`, `LabelPair.value`.
pub(crate) const SECOND_FIELD_TAG: u8 = 0x12;
/// Longest tag and length of a message below 4 GiB.
pub(crate) const MAX_TAG_BYTES: usize = 1 + 5;
/// Version and variant of a random UUID.
const UUID_FIXED_BITS: u128 = 0x4000_8000_0000_0000_0000;
const UUID_FREE_BITS: u128 = !0xf000_c000_0000_0000_0000;

/// Appends a series with one profile to a `PushRequest`.
pub(crate) fn append_series(request: &mut Vec<u8>, labels: &Labels, profile: &[u8], id: u128) {
    let id = format_uuid(id);
    let mut sample_tags = Vec::with_capacity(2 * MAX_TAG_BYTES);
    put_tag(&mut sample_tags, FIRST_FIELD_TAG, profile.len());
    let profile_tag_bytes = sample_tags.len();
    put_tag(&mut sample_tags, SECOND_FIELD_TAG, id.len());
    let sample_bytes = sample_tags.len() + profile.len() + id.len();
    let mut series = encode_labels(labels);
    put_tag(&mut series, SECOND_FIELD_TAG, sample_bytes);
    put_tag(request, FIRST_FIELD_TAG, series.len() + sample_bytes);
    request.extend_from_slice(&series);
    request.extend_from_slice(&sample_tags[..profile_tag_bytes]);
    request.extend_from_slice(profile);
    request.extend_from_slice(&sample_tags[profile_tag_bytes..]);
    request.extend_from_slice(id.as_bytes());
}

/// Encodes labels as the field `RawProfileSeries.labels`.
pub(crate) fn encode_labels(labels: &Labels) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(labels.text_bytes() + labels.len() * 3 * MAX_TAG_BYTES);
    let mut pair = Vec::new();
    for (name, value) in labels.iter() {
        pair.clear();
        put_tag(&mut pair, FIRST_FIELD_TAG, name.len());
        pair.extend_from_slice(name.as_bytes());
        put_tag(&mut pair, SECOND_FIELD_TAG, value.len());
        pair.extend_from_slice(value.as_bytes());
        put_tag(&mut encoded, FIRST_FIELD_TAG, pair.len());
        encoded.extend_from_slice(&pair);
    }
    encoded
}

/// Appends a tag and a length.
pub(crate) fn put_tag(out: &mut Vec<u8>, tag: u8, length: usize) {
    out.push(tag);
    put_varint(out, length as u64);
}

/// Formats random bits as a UUID of version 4.
pub(crate) fn format_uuid(random: u128) -> String {
    let bits = random & UUID_FREE_BITS | UUID_FIXED_BITS;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use athanor_proto::push::v1::PushRequest;
    use prost::Message;

    use super::*;

    #[test]
    fn appended_series_are_the_usual_encoding() {
        let mut request = Vec::new();
        let labels = |service: &str| Labels::new([("service_name".to_owned(), service.to_owned())]);
        append_series(&mut request, &labels("cart"), &[7; 300], 0);
        append_series(&mut request, &labels("shop"), &[1], u128::MAX);
        let decoded = PushRequest::decode(&*request).unwrap();
        assert_eq!(decoded.encode_to_vec(), request);
        let names: Vec<&str> = decoded.series.iter().map(|series| series.labels[0].value.as_str()).collect();
        assert_eq!(names, ["cart", "shop"]);
        assert_eq!(decoded.series[0].samples[0].raw_profile, vec![7; 300]);
        let ids: Vec<&str> = decoded.series.iter().map(|series| series.samples[0].id.as_str()).collect();
        assert_eq!(ids, ["00000000-0000-4000-8000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff"]);
    }
}
