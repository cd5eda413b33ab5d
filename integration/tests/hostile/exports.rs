//! Exports of OpenTelemetry: tables that much refers to, lists without end, and JSON that never closes.

use crate::bombs::{Bomb, PLAIN, field, gzip};

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
/// Fields of the dictionary.
const LOCATIONS: u8 = 2;
const STACKS: u8 = 7;

fn number(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn packed(tag: u8, values: impl Iterator<Item = u64>) -> Vec<u8> {
    field(tag, &values.flat_map(number).collect::<Vec<u8>>())
}

/// A request with one profile of these samples, and more entries of the dictionary.
fn export(samples: &[u8], more: &[u8]) -> Vec<u8> {
    let of_type = |kind: u8, unit: u8| [8, kind, 16, unit];
    let profile = [&field(1, &of_type(1, 2))[..], samples, &field(5, &of_type(3, 4)), &[48, 1]].concat();
    let named = [&field(1, b"service.name")[..], &field(2, &field(1, b"hostile"))].concat();
    let resource = field(1, &field(1, &named));
    let scope = field(2, &field(2, &profile));
    let texts = ["", "samples", "count", "cpu", "nanoseconds"].map(|text| field(5, text.as_bytes())).concat();
    let nothing: Vec<u8> = [1, 2, 3, 4, 6, 7].iter().flat_map(|&table| field(table, b"")).collect();
    let dictionary = field(2, &[&nothing[..], &texts, more].concat());
    [field(1, &[resource, scope].concat()), dictionary].concat()
}

fn sent(name: &str, kind: &'static str, body: Vec<u8>) -> Bomb {
    let path = "/v1development/profiles".to_owned();
    let packed = gzip(&body);
    let headers = vec![("content-type", kind), ("content-encoding", "gzip")];
    Bomb { name: format!("otlp: {name}"), path, headers, body: packed }
}

pub fn all() -> Vec<Bomb> {
    let sample = field(2, &[8, 1, 34, 1, 1]);
    let many = sample.repeat(PLAIN / 2 / sample.len());
    let of = |table: u8, entry: &[u8]| {
        let entry = field(table, entry);
        entry.repeat(PLAIN / 2 / entry.len())
    };
    let deep = field(STACKS, &packed(1, (0..PLAIN as u64 / 2).map(|_| 1)));
    let location = field(LOCATIONS, &[16, 1]);
    let indexes =
        field(2, &[&[8, 0][..], &packed(2, (0..PLAIN as u64 / 2).map(|_| 0)), &[34, 1, 1]].concat());
    let times = field(2, &[&[8, 0][..], &field(5, &vec![7; PLAIN / 8 * 8])].concat());
    let values = field(2, &[&[8, 0][..], &field(4, &vec![1; PLAIN])].concat());
    let mut bombs = vec![
        sent("a deep stack of many samples", PROTOBUF, export(&many, &[location, deep].concat())),
        sent("samples of nothing", PROTOBUF, export(&field(2, b"").repeat(PLAIN / 2), b"")),
        sent("attributes without end", PROTOBUF, export(&indexes, b"")),
        sent("times without end", PROTOBUF, export(&times, b"")),
        sent("values without end", PROTOBUF, export(&values, b"")),
        sent("resources without end", PROTOBUF, field(1, b"").repeat(PLAIN / 2)),
        sent("profiles without end", PROTOBUF, field(1, &field(2, &field(2, b"").repeat(PLAIN / 2)))),
        sent("a body that inflates", PROTOBUF, vec![0; 4 * PLAIN]),
        sent("brackets without end", JSON, b"[".repeat(PLAIN)),
        sent("objects without end", JSON, b"{\"resourceProfiles\":[".repeat(PLAIN / 21)),
        sent("texts without end", JSON, {
            let texts = b"\"\",".repeat(PLAIN / 3);
            [&b"{\"dictionary\":{\"stringTable\":["[..], &texts, b"\"\"]}}"].concat()
        }),
    ];
    for (name, table) in [
        ("mappings", 1),
        ("locations", LOCATIONS),
        ("functions", 3),
        ("links", 4),
        ("texts", 5),
        ("attributes", 6),
        ("stacks", STACKS),
    ] {
        bombs.push(sent(&format!("empty {name}"), PROTOBUF, export(&many, &of(table, b""))));
    }
    bombs
}
