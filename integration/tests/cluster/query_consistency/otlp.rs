//! OpenTelemetry's profiles, read by the numbers of their fields.

use crate::query_consistency::decoded::{Lines, varint};
use crate::query_consistency::profiles::Frame;

/// What a file holds.
#[derive(Debug, PartialEq)]
pub struct Read {
    pub service: String,
    /// What is measured, between two samples and how much that is, when, for how long.
    pub header: (Vec<[String; 2]>, i64, [i64; 2]),
    pub stacks: Lines,
}

/// A field of a message.
enum Field<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

/// The fields of a message, in their order, each with its number.
fn fields(mut rest: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut rest)),
            1 => {
                let (bytes, after) = rest.split_first_chunk::<8>().unwrap();
                rest = after;
                Field::Number(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = varint(&mut rest) as usize;
                let (bytes, after) = rest.split_at(length);
                rest = after;
                Field::Bytes(bytes)
            }
            wire => panic!("no such field is known: {wire}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

/// All messages and texts in a field.
fn all(message: &[u8], number: u64) -> Vec<&[u8]> {
    let bytes = |(of, field)| match field {
        Field::Bytes(bytes) if of == number => Some(bytes),
        _ => None,
    };
    fields(message).into_iter().filter_map(bytes).collect()
}

/// The one that is there.
fn one(message: &[u8], number: u64) -> &[u8] {
    let all = all(message, number);
    assert_eq!(all.len(), 1, "field {number}");
    all[0]
}

/// A number, 0 if it is not there.
fn number(message: &[u8], number: u64) -> u64 {
    let value = |(of, field)| match field {
        Field::Number(value) if of == number => Some(value),
        _ => None,
    };
    fields(message).into_iter().find_map(value).unwrap_or_default()
}

/// Numbers side by side.
fn numbers(message: &[u8], number: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for mut bytes in all(message, number) {
        while !bytes.is_empty() {
            numbers.push(varint(&mut bytes));
        }
    }
    numbers
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Reads the one profile of a `ProfilesData`.
pub fn read(bytes: &[u8]) -> Read {
    let (resource, dictionary) = (one(bytes, 1), one(bytes, 2));
    let attribute = one(one(resource, 1), 1);
    assert_eq!(one(attribute, 1), b"service.name");
    let service = text(one(one(attribute, 2), 1));
    let profile = one(one(resource, 2), 2);
    let [locations, functions, strings, stacks] = [2, 3, 5, 7].map(|table| all(dictionary, table));
    let value_type = |of: &[u8]| [1, 2].map(|part| text(strings[number(of, part) as usize]));
    let types = [1, 5].map(|of| value_type(one(profile, of))).to_vec();
    let times = [number(profile, 3) as i64, number(profile, 4) as i64];
    let frame = |line: &[u8]| -> Frame {
        let function = functions[number(line, 1) as usize];
        (text(strings[number(function, 1) as usize]), number(line, 2) as i64)
    };
    let mut found = Lines::new();
    for sample in all(profile, 2) {
        let path = numbers(stacks[number(sample, 1) as usize], 1);
        let lines = path.into_iter().flat_map(|location| all(locations[location as usize], 3));
        let mut stack: Vec<Frame> = lines.map(frame).collect();
        stack.reverse();
        let [value] = numbers(sample, 4)[..] else { panic!("one value is wanted") };
        *found.entry(stack).or_default() += value as i64;
    }
    Read { service, header: (types, number(profile, 6) as i64, times), stacks: found }
}
