//! Exports of OpenTelemetry: tables that much refers to, lists without end, JSON that never closes, and profiles as they
//! were first recorded.

use athanor_integration::bodies::{gzip, gzip_stored, protobuf_field};

use crate::adversarial_input::bombs::{Bomb, LARGE, PLAIN, Way, number, request, zstd};
use crate::adversarial_input::recordings;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
/// Fields of the dictionary.
const LOCATIONS: u8 = 2;
const STACKS: u8 = 7;

fn packed(tag: u8, values: impl Iterator<Item = u64>) -> Vec<u8> {
    protobuf_field(tag, &values.flat_map(number).collect::<Vec<u8>>())
}

/// Texts, and entries that say nothing, with more behind them.
fn dictionary(more: &[u8]) -> Vec<u8> {
    let texts = ["", "samples", "count", "cpu", "nanoseconds"]
        .map(|text| protobuf_field(5, text.as_bytes()))
        .concat();
    let nothing: Vec<u8> = [1, 2, 3, 4, 6, 7].iter().flat_map(|&table| protobuf_field(table, b"")).collect();
    protobuf_field(2, &[&nothing[..], &texts, more].concat())
}

/// One profile: what it has of samples.
fn profile(samples: &[u8]) -> Vec<u8> {
    let of_type = |kind: u8, unit: u8| [8, kind, 16, unit];
    protobuf_field(
        2,
        &[&protobuf_field(1, &of_type(1, 2))[..], samples, &protobuf_field(5, &of_type(3, 4)), &[48, 1]]
            .concat(),
    )
}

/// Name and value of an attribute, as a resource has it.
fn attribute(name: &str, value: &[u8]) -> Vec<u8> {
    protobuf_field(
        1,
        &[&protobuf_field(1, name.as_bytes())[..], &protobuf_field(2, &protobuf_field(1, value))].concat(),
    )
}

/// A request of these scopes, a resource with more attributes, and more entries of the dictionary.
fn resource(attributes: &[u8], scopes: &[u8], more: &[u8]) -> Vec<u8> {
    let named = [&attribute("service.name", b"hostile")[..], attributes].concat();
    [protobuf_field(1, &[&protobuf_field(1, &named)[..], scopes].concat()), dictionary(more)].concat()
}

/// A request with one profile of these samples, and more entries of the dictionary.
fn of_samples(samples: &[u8], more: &[u8]) -> Vec<u8> {
    resource(b"", &protobuf_field(2, &profile(samples)), more)
}

fn sent(name: &str, kind: &'static str, body: &[u8], status: u16, word: &'static str) -> Bomb {
    let bomb = request(&format!("otlp: {name}"), "/v1development/profiles", gzip(body), status, word);
    bomb.of_body().with(&[("content-type", kind), ("content-encoding", "gzip")])
}

/// An export in protobuf.
pub fn export(name: &str, body: Vec<u8>, status: u16, word: &'static str) -> Bomb {
    sent(name, PROTOBUF, &body, status, word)
}

pub fn all() -> Vec<Bomb> {
    [tables(), lists(), shared(), payloads(), doors()].into_iter().flatten().collect()
}

/// Entries that say nothing.
fn tables() -> Vec<Bomb> {
    let sample = protobuf_field(2, &[8, 1, 34, 1, 1]);
    let many = sample.repeat(PLAIN / 2 / sample.len());
    let empty = [
        ("mappings", 1),
        ("locations", LOCATIONS),
        ("functions", 3),
        ("links", 4),
        ("texts", 5),
        ("attributes", 6),
        ("stacks", STACKS),
    ];
    let of = |(name, table): (&str, u8)| {
        let entries = [protobuf_field(STACKS, b""), protobuf_field(table, b"").repeat(PLAIN / 4)].concat();
        export(&format!("empty {name}"), of_samples(&many, &entries), 400, "bytes of tables in memory")
    };
    empty.map(of).into()
}

fn lists() -> Vec<Bomb> {
    let half = PLAIN as u64 / 2;
    let indexes = protobuf_field(2, &[&[8, 0][..], &packed(2, (0..half).map(|_| 0)), &[34, 1, 1]].concat());
    let times = protobuf_field(2, &[&[8, 0][..], &protobuf_field(5, &vec![7; PLAIN / 8 * 8])].concat());
    let values = protobuf_field(2, &[&[8, 0][..], &protobuf_field(4, &vec![1; PLAIN])].concat());
    let texts = b"\"\",".repeat(PLAIN / 3);
    let texts = [&b"{\"dictionary\":{\"stringTable\":["[..], &texts, b"\"\"]}}"].concat();
    vec![
        export(
            "samples of nothing",
            of_samples(&protobuf_field(2, b"").repeat(PLAIN / 2), b""),
            400,
            "0 values and 0 timestamps",
        ),
        export("attributes without end", of_samples(&indexes, b""), 400, "1001 attributes of one sample"),
        export("times without end", of_samples(&times, b""), 200, ""),
        export("values without end", of_samples(&values, b""), 400, "15728640 values"),
        export(
            "resources without end",
            [protobuf_field(1, b"").repeat(PLAIN / 2), dictionary(b"")].concat(),
            200,
            "",
        ),
        export(
            "profiles without end",
            resource(b"", &protobuf_field(2, &protobuf_field(2, b"").repeat(PLAIN / 2)), b""),
            413,
            "10000",
        ),
        export("a body that inflates", vec![0; LARGE], 413, "limits.ingestion_body_limit"),
        sent("brackets without end", JSON, &b"[".repeat(PLAIN), 400, "invalid type: sequence"),
        sent(
            "objects without end",
            JSON,
            &b"{\"resourceProfiles\":[".repeat(PLAIN / 21),
            400,
            "EOF while parsing a list",
        ),
        sent("texts without end", JSON, &texts, 413, "4000001 entries"),
    ]
}

/// What is said once and used often.
fn shared() -> Vec<Bomb> {
    let sample = protobuf_field(2, &[8, 1, 34, 1, 1]);
    let many = sample.repeat(PLAIN / 2 / sample.len());
    let location = protobuf_field(LOCATIONS, &[16, 1]);
    let deep = protobuf_field(STACKS, &packed(1, (0..PLAIN as u64 / 2).map(|_| 1)));
    let locations: Vec<u8> =
        (0..100_000).flat_map(|at| protobuf_field(LOCATIONS, &[&[16][..], &number(at)].concat())).collect();
    let stack = protobuf_field(STACKS, &packed(1, 1..100_001));
    let scope = protobuf_field(2, &profile(&sample));
    let attributes: Vec<u8> =
        (0..199).flat_map(|at| attribute(&format!("a{at}"), &[b'x'; 64 << 10])).collect();
    vec![
        export(
            "a deep stack of many samples",
            of_samples(&many, &[location, deep].concat()),
            400,
            "100001 frames",
        ),
        export(
            "a deep stack of many profiles",
            resource(b"", &scope.repeat(64), &[locations, stack].concat()),
            400,
            "the limit is 48MiB",
        ),
        export(
            "long attributes of many scopes",
            resource(&attributes, &scope.repeat(10_000), &protobuf_field(STACKS, b"")),
            400,
            "bytes in all profiles of a request",
        ),
    ]
}

/// Profiles as they were first recorded.
fn payloads() -> Vec<Bomb> {
    let zeros = gzip(&vec![0; LARGE]);
    let payload = |name: &str, format: &str, payload: &[u8], status, word| {
        let original = [protobuf_field(9, format.as_bytes()), protobuf_field(10, payload)].concat();
        let name = format!("original payload: {name}");
        export(&name, resource(b"", &protobuf_field(2, &profile(&original)), b""), status, word)
    };
    let several = {
        let original = [protobuf_field(9, b"jfr"), protobuf_field(10, &gzip(&vec![0; 20 << 20]))].concat();
        resource(b"", &protobuf_field(2, &profile(&original)).repeat(20), b"")
    };
    vec![
        payload("pprof that inflates", "pprof", &zeros, 400, "original_payload: profile has 16777217"),
        payload(
            "pprof that inflates by zstd",
            "pprof",
            &zstd(LARGE, 23),
            400,
            "original_payload: profile has 16777217",
        ),
        payload("pprof of empty texts", "pprof", &[0x32, 0].repeat(PLAIN / 2), 400, "2097153 strings"),
        payload(
            "a recording that inflates",
            "jfr",
            &zeros,
            400,
            "the rest of the budget of the request (64 times",
        ),
        payload(
            "a recording of frames",
            "jfr",
            &gzip(&recordings::frames(recordings::PLAIN)),
            400,
            "the rest of the budget of the request (64 times",
        ),
        payload(
            "a stored recording",
            "jfr",
            &gzip_stored(&recordings::frames(recordings::PLAIN / 2)),
            400,
            "frames",
        ),
        payload(
            "of a kind that nobody knows",
            &"x".repeat(PLAIN),
            b"x",
            400,
            "original_payload of the unsupported format",
        ),
        export("original payload: several that inflate", several, 400, "20 of 20 profiles are not stored"),
    ]
}

/// The ports for exports alone, and the call of gRPC.
fn doors() -> Vec<Bomb> {
    const CALL: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
    let framed =
        |packed: u8, message: &[u8]| [&[packed][..], &(message.len() as u32).to_be_bytes(), message].concat();
    let call = |name: &str, body: Vec<u8>, status, word| {
        let bomb = request(&format!("otlp by gRPC: {name}"), CALL, body, status, word).of_body();
        Bomb {
            way: Way::Grpc,
            ..bomb.with(&[("content-type", "application/grpc"), ("grpc-encoding", "gzip")])
        }
    };
    let port = |name: &str, body: &[u8], encoding, status, word| {
        let bomb =
            request(&format!("otlp port: {name}"), "/v1development/profiles", body.to_vec(), status, word);
        let bomb = bomb.of_body().with(&[("content-type", PROTOBUF), ("content-encoding", encoding)]);
        Bomb { way: Way::OtlpHttp, ..bomb }
    };
    let sample = protobuf_field(2, &[8, 1, 34, 1, 1]);
    let many = of_samples(&sample.repeat(PLAIN / sample.len()), &protobuf_field(STACKS, b""));
    vec![
        call("a message that inflates", framed(1, &gzip(&vec![0; LARGE])), 8, "limits.ingestion_body_limit"),
        call(
            "a message that is not there",
            vec![0, 0xff, 0xff, 0xff, 0xff],
            3,
            "message prefix declares 4294967295 bytes",
        ),
        call("empty messages", framed(0, b"").repeat(PLAIN / 5), 3, "15728635 follow"),
        call("samples without end", framed(0, &many), 3, "bytes of tables in memory"),
        call(
            "profiles without end",
            framed(0, &protobuf_field(1, &protobuf_field(2, &protobuf_field(2, b"").repeat(PLAIN / 2)))),
            8,
            "distributor.max_profiles_per_request",
        ),
        port("a body that inflates", &gzip(&vec![0; LARGE]), "gzip", 413, "limits.ingestion_body_limit"),
        port("a body that inflates by zstd", &zstd(LARGE, 20), "zstd", 413, "limits.ingestion_body_limit"),
        port("a window of zstd", &zstd(LARGE, 23), "zstd", 413, "limits.ingestion_body_limit"),
        port("a window of zstd over the limit", &zstd(LARGE, 24), "zstd", 400, "window exceeds 8 MiB"),
        port("samples without end", &many, "identity", 400, "bytes of tables in memory"),
    ]
}
