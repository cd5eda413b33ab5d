//! Division of a rejected request into profiles that can be sent alone.
//!
//! A server numbers equal profiles of one request, so that it does not take the second for a duplicate of the
//! first. Byte-equal profiles therefore stay in one request.

use std::collections::HashMap;

use bytes::{Buf, Bytes};
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

use crate::upload::UploadRoute;

/// Maximum number of profiles into which a request is divided. A larger one is handled as a whole.
const MAX_SPLIT_ITEMS: usize = 100_000;
/// `PushRequest.series` and `ExportProfilesServiceRequest.resource_profiles`.
const ITEMS_FIELD: u32 = 1;
/// `RawProfileSeries.samples`.
const SAMPLES_FIELD: u32 = 2;

/// Divided request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SplitRequest {
    /// Groups of equal profiles, in the order of their first ones.
    pub(super) groups: Vec<ProfileGroup>,
    /// Fields that each part needs, such as the dictionary of OTLP.
    pub(super) shared_fields: Bytes,
}

/// Byte-equal profiles, encoded as a field of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProfileGroup {
    field: Bytes,
    copies: u32,
}

/// Fields of one message.
struct MessageFields {
    /// Values of the divided field.
    items: Vec<Bytes>,
    /// Encoded other fields, with their keys.
    others: Bytes,
}

/// Divides the body of a request. Returns None if it is one item, or not a message of several.
pub(super) fn split_request(route: &UploadRoute, body: &Bytes) -> Option<SplitRequest> {
    let request = match route {
        UploadRoute::Push | UploadRoute::Otlp => read_fields(body, ITEMS_FIELD)?,
        UploadRoute::Ingest { .. } => return None,
    };
    let mut fields = Vec::new();
    for item in request.items {
        match route {
            UploadRoute::Push => split_series(&item, &mut fields)?,
            _ => fields.push(encode_field(ITEMS_FIELD, &item)),
        }
        if fields.len() > MAX_SPLIT_ITEMS {
            return None;
        }
    }
    let groups = group_equal(fields);
    (groups.len() > 1).then_some(SplitRequest { groups, shared_fields: request.others })
}

impl SplitRequest {
    /// Encodes the request of some of the groups.
    pub(super) fn join(&self, groups: &[ProfileGroup]) -> Bytes {
        let mut body = Vec::new();
        for group in groups {
            (0..group.copies).for_each(|_| body.extend_from_slice(&group.field));
        }
        body.extend_from_slice(&self.shared_fields);
        body.into()
    }
}

impl ProfileGroup {
    /// Returns the number of profiles in groups.
    pub(super) fn count(groups: &[Self]) -> u32 {
        groups.iter().fold(0, |sum, group| sum.saturating_add(group.copies))
    }
}

/// Adds a series of its own for each sample of a series.
fn split_series(series: &Bytes, into: &mut Vec<Bytes>) -> Option<()> {
    let fields = read_fields(series, SAMPLES_FIELD)?;
    if fields.items.len() > MAX_SPLIT_ITEMS {
        return None;
    }
    if fields.items.len() <= 1 {
        into.push(encode_field(ITEMS_FIELD, series));
        return Some(());
    }
    for sample in fields.items {
        let alone = [&fields.others[..], &encode_field(SAMPLES_FIELD, &sample)].concat();
        into.push(encode_field(ITEMS_FIELD, &alone));
    }
    Some(())
}

fn group_equal(fields: Vec<Bytes>) -> Vec<ProfileGroup> {
    let mut groups: Vec<ProfileGroup> = Vec::new();
    let mut positions: HashMap<Bytes, usize> = HashMap::new();
    for field in fields {
        match positions.get(&field) {
            Some(position) => groups[*position].copies += 1,
            None => {
                positions.insert(field.clone(), groups.len());
                groups.push(ProfileGroup { field, copies: 1 });
            }
        }
    }
    groups
}

fn encode_field(field: u32, value: &[u8]) -> Bytes {
    let mut encoded = Vec::with_capacity(value.len() + 12);
    encode_key(field, WireType::LengthDelimited, &mut encoded);
    encode_varint(value.len() as u64, &mut encoded);
    encoded.extend_from_slice(value);
    encoded.into()
}

/// Reads the fields of a message. Returns None if it is not one.
fn read_fields(message: &Bytes, divided: u32) -> Option<MessageFields> {
    let mut rest = message.clone();
    let mut items = Vec::new();
    let mut others = Vec::new();
    while rest.has_remaining() {
        let start = rest.clone();
        let (field, wire_type) = decode_key(&mut rest).ok()?;
        let length = match wire_type {
            WireType::Varint => {
                decode_varint(&mut rest).ok()?;
                0
            }
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut rest).ok()?).ok()?,
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        if length > rest.len() {
            return None;
        }
        let value = rest.split_to(length);
        if field == divided && wire_type == WireType::LengthDelimited {
            items.push(value);
        } else {
            others.extend_from_slice(&start[..start.len() - rest.len()]);
        }
    }
    Some(MessageFields { items, others: others.into() })
}

#[cfg(test)]
mod tests {
    use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
    use athanor_proto::types::v1::LabelPair;
    use prost::Message;

    use super::*;

    fn series(name: &str, profiles: &[&str]) -> RawProfileSeries {
        let labels = vec![LabelPair { name: "service_name".to_owned(), value: name.to_owned() }];
        let sample =
            |profile: &&str| RawSample { raw_profile: profile.as_bytes().to_vec().into(), id: String::new() };
        RawProfileSeries { labels, samples: profiles.iter().map(sample).collect(), ..Default::default() }
    }

    #[test]
    fn request_is_divided_into_profiles_and_equal_ones_stay_together() {
        let request = PushRequest {
            series: vec![series("a", &["1", "2", "1"]), series("b", &["1"]), series("a", &["1"])],
        };
        let split = split_request(&UploadRoute::Push, &request.encode_to_vec().into()).unwrap();
        let copies: Vec<_> = split.groups.iter().map(|group| group.copies).collect();
        assert_eq!((copies, ProfileGroup::count(&split.groups)), (vec![3, 1, 1], 5));
        let first = PushRequest::decode(split.join(&split.groups[..1])).unwrap();
        assert_eq!(first.series, vec![series("a", &["1"]); 3]);
        let rest = PushRequest::decode(split.join(&split.groups[1..])).unwrap();
        assert_eq!(rest.series, [series("a", &["2"]), series("b", &["1"])]);
    }

    #[test]
    fn shared_fields_are_in_each_part() {
        let body = [&encode_field(1, b"x")[..], &encode_field(2, b"dictionary"), &encode_field(1, b"y")];
        let split = split_request(&UploadRoute::Otlp, &body.concat().into()).unwrap();
        let expected = [&encode_field(1, b"y")[..], &encode_field(2, b"dictionary")].concat();
        assert_eq!(split.join(&split.groups[1..]), expected);
    }

    #[test]
    fn single_profiles_and_other_bytes_are_not_divided() {
        let single = PushRequest { series: vec![series("a", &["1"])] }.encode_to_vec();
        let equal = PushRequest { series: vec![series("a", &["1"]); 2] }.encode_to_vec();
        for body in [single, equal, b"\x0a\xff\xff\xff\xff\x0f".to_vec(), b"\x0b\x0c".to_vec(), Vec::new()] {
            assert_eq!(split_request(&UploadRoute::Push, &body.into()), None);
        }
    }
}
