//! Tables of pprof with entries that say nothing.

use athanor_integration::bodies::protobuf_field;

use crate::adversarial_input::bombs::{Bomb, PLAIN, ingest, push};

pub fn all() -> Vec<Bomb> {
    let begin = [
        protobuf_field(1, &[8, 1, 16, 2]),
        protobuf_field(6, b""),
        protobuf_field(6, b"cpu"),
        protobuf_field(6, b"nanoseconds"),
    ]
    .concat();
    let filled = |entry: &[u8]| [begin.clone(), entry.repeat(PLAIN / entry.len())].concat();
    let deep = {
        let sample = [protobuf_field(1, &vec![1; PLAIN / 2]), protobuf_field(2, &[1])].concat();
        [begin.clone(), protobuf_field(2, &sample)].concat()
    };
    let mut bombs = Vec::new();
    for (name, raw, word) in [
        ("empty samples", filled(&[0x12, 0]), "bytes of tables in memory"),
        ("samples of a value", filled(&[0x12, 2, 0x10, 1]), "bytes of tables in memory"),
        ("empty mappings", filled(&[0x1a, 0]), "bytes of tables in memory"),
        ("empty locations", filled(&[0x22, 0]), "bytes of tables in memory"),
        ("empty functions", filled(&[0x2a, 0]), "bytes of tables in memory"),
        ("empty texts", filled(&[0x32, 0]), "2097153 strings"),
        ("types", filled(&[0x0a, 0]), "1001 sample types"),
        ("comments", filled(&[0x68, 1]), "10001 comments"),
        (
            "a location of many lines",
            [begin.clone(), protobuf_field(4, &[0x22, 0].repeat(PLAIN / 2))].concat(),
            "2097153 lines",
        ),
        (
            "a sample of many labels",
            [begin.clone(), protobuf_field(2, &[0x1a, 0].repeat(PLAIN / 2))].concat(),
            "101 labels",
        ),
        ("a stack without end", deep, "100001 frames"),
        ("more than the limit", filled(&[0x12, 0]).repeat(2), "limits.max_profile_size_bytes"),
    ] {
        let both = [push(name, &raw, 400, word), ingest(name, "pprof", raw, 422, word)];
        let is_larger = name == "more than the limit";
        bombs.extend(both.map(|bomb| if is_larger { bomb.of_body() } else { bomb.of_tables() }));
    }
    // There is nothing in it to store.
    let long = [begin, protobuf_field(6, &vec![b'x'; PLAIN])].concat();
    bombs.push(push("one long text", &long, 200, ""));
    bombs.push(ingest("one long text", "pprof", long, 200, ""));
    bombs
}
