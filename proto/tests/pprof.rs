//! Real profiles pass through `google.v1.Profile` and come out with all they had, by a reader that knows
//! nothing of the generated code.

use std::path::{Path, PathBuf};

use athanor_proto::google::v1::Profile;
use prost::Message;

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = vec![root.join("examples/checkout.pb.gz")];
    match std::fs::read_dir(root.join("../shared/data/pprof")) {
        Ok(entries) => files.extend(entries.map(|entry| entry.expect("readable").path())),
        Err(_) => println!("skip: no corpus of real profiles at ../shared/data/pprof"),
    }
    files.retain(|file| file.extension().is_none_or(|extension| extension != "json"));
    files.sort();
    files
}

fn read(file: &Path) -> Vec<u8> {
    let bytes = std::fs::read(file).expect("readable");
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let size = bytes.last_chunk().map(|size| u32::from_le_bytes(*size)).expect("gzip ends with the size");
    let mut raw = vec![0; size as usize];
    let written = libdeflater::Decompressor::new().gzip_decompress(&bytes, &mut raw);
    assert_eq!(written.expect("inflates"), raw.len(), "{}", file.display());
    raw
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a byte");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

/// What a field of a message is; packed numbers and single ones mean the same.
enum Kind {
    Message(&'static str),
    Numbers,
    Text,
}

fn kind(message: &str, field: u64) -> Kind {
    match (message, field) {
        ("Profile", 1 | 11) => Kind::Message("ValueType"),
        ("Profile", 2) => Kind::Message("Sample"),
        ("Profile", 3) => Kind::Message("Mapping"),
        ("Profile", 4) => Kind::Message("Location"),
        ("Profile", 5) => Kind::Message("Function"),
        ("Profile", 6) => Kind::Text,
        ("Sample", 3) => Kind::Message("Label"),
        ("Location", 4) => Kind::Message("Line"),
        ("Profile", 13) | ("Sample", 1 | 2) => Kind::Numbers,
        (message, field) => panic!("{message} has no field {field} with a length"),
    }
}

#[derive(Debug, PartialEq)]
enum Value {
    Number(u64),
    Text(Vec<u8>),
    Fields(Vec<(u64, Value)>),
}

/// The fields by number; what is repeated keeps its order, a zero that may be left out is.
fn fields(message: &str, mut bytes: &[u8]) -> Vec<(u64, Value)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = tag >> 3;
        if tag & 7 == 0 {
            let number = varint(&mut bytes);
            let repeated = matches!((message, field), ("Profile", 13) | ("Sample", 1 | 2));
            if number != 0 || repeated {
                fields.push((field, Value::Number(number)));
            }
            continue;
        }
        assert_eq!(tag & 7, 2, "pprof has numbers and what has a length");
        let length = varint(&mut bytes) as usize;
        let (mut inner, rest) = bytes.split_at(length);
        bytes = rest;
        match kind(message, field) {
            Kind::Message(name) => fields.push((field, Value::Fields(self::fields(name, inner)))),
            Kind::Text => fields.push((field, Value::Text(inner.to_vec()))),
            Kind::Numbers => {
                while !inner.is_empty() {
                    fields.push((field, Value::Number(varint(&mut inner))));
                }
            }
        }
    }
    fields.sort_by_key(|(field, _)| *field);
    fields
}

#[test]
fn nothing_is_lost() {
    for file in files() {
        let raw = read(&file);
        let name = file.display();
        if name.to_string().contains("invalid_utf8") {
            assert!(Profile::decode(raw.as_slice()).is_err(), "{name}");
            continue;
        }
        let profile = Profile::decode(raw.as_slice()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let written = profile.encode_to_vec();
        assert_eq!(Profile::decode(written.as_slice()).as_ref(), Ok(&profile), "{name}");
        assert!(fields("Profile", &written) == fields("Profile", &raw), "{name} changed");
        assert!(!profile.sample.is_empty() && profile.string_table[0].is_empty(), "{name}");
    }
}
