//! Calls of Parca, profiles that people upload by hand, and files with debug information.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use athanor_integration::bodies::{gzip, protobuf_field};

use crate::adversarial_input::ANSWER;
use crate::adversarial_input::bombs::{Bomb, LARGE, PLAIN, request, zstd};

const JSON: (&str, &str) = ("content-type", "application/json");
const PROTO: (&str, &str) = ("content-type", "application/proto");
const WRITE_RAW: &str = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";
const UPLOAD: &str = "/parca.debuginfo.v1alpha1.DebuginfoService/Upload";

pub fn all() -> Vec<Bomb> {
    [parca(), by_hand(), files()].into_iter().flatten().collect()
}

fn parca() -> Vec<Bomb> {
    let of = |labels: &[u8], pprof: &[u8]| {
        let labels = [
            labels,
            &protobuf_field(1, &[protobuf_field(1, b"service_name"), protobuf_field(2, b"hostile")].concat()),
        ]
        .concat();
        protobuf_field(
            2,
            &[protobuf_field(1, &labels), protobuf_field(2, &protobuf_field(1, pprof))].concat(),
        )
    };
    let named =
        protobuf_field(1, &[protobuf_field(1, b"__name__"), protobuf_field(2, b"process_cpu")].concat());
    let call = |name: &str, body: Vec<u8>, status, word| {
        request(&format!("parca: {name}"), WRITE_RAW, body, status, word).with(&[PROTO])
    };
    let plain = |name: &str, body: Vec<u8>, status, word| {
        request(&format!("parca in JSON: {name}"), "/profiles/writeraw", body, status, word)
    };
    let json = |pprof: &[u8]| {
        let profile = STANDARD.encode(pprof);
        let labels = r#"{"labels":[{"name":"__name__","value":"process_cpu"}]}"#;
        format!(r#"{{"series":[{{"labels":{labels},"samples":[{{"rawProfile":"{profile}"}}]}}]}}"#)
            .into_bytes()
    };
    let listed = |before: &str, entry: &str| {
        [before.as_bytes(), &entry.as_bytes().repeat(PLAIN / entry.len())].concat()
    };
    vec![
        call(
            "a profile that inflates",
            of(&named, &gzip(&vec![0; LARGE])),
            400,
            "limits.max_profile_size_bytes",
        ),
        call(
            "a profile that inflates by zstd",
            of(&named, &zstd(LARGE, 20)),
            400,
            "limits.max_profile_size_bytes",
        ),
        call("empty texts", of(&named, &[0x32, 0].repeat(PLAIN / 2)), 400, "2097153 strings").of_tables(),
        call("labels without end", of(&[10, 0].repeat(PLAIN / 2), b""), 413, "over 500000 series"),
        call("series without end", protobuf_field(2, b"").repeat(PLAIN / 2), 413, "over 500000 series"),
        call("a body that inflates", gzip(&vec![0; LARGE]), 413, "limits.ingestion_body_limit")
            .of_body()
            .with(&[("content-encoding", "gzip")]),
        plain("a profile that inflates", json(&gzip(&vec![0; LARGE])), 400, "limits.max_profile_size_bytes"),
        plain("a long profile", json(&vec![0x32; PLAIN]), 400, "truncated at byte 15728640").of_body(),
        plain("series without end", listed("{\"series\":[", "{},"), 413, "over 500000 series").of_body(),
        plain("brackets without end", b"[".repeat(PLAIN), 400, "invalid type: sequence"),
    ]
}

/// Profiles that people upload by hand.
fn by_hand() -> Vec<Bomb> {
    let upload = |name: &str, profile: &[u8], status, word| {
        let body = format!(r#"{{"name":"x","profile":"{}"}}"#, STANDARD.encode(profile)).into_bytes();
        let path = "/adhocprofiles.v1.AdHocProfileService/Upload";
        Bomb { limit: ANSWER, ..request(&format!("by hand: {name}"), path, body, status, word).with(&[JSON]) }
    };
    let stacks: String = (0..PLAIN / 14).map(|number| format!("f{number};g 1\n")).collect();
    vec![
        upload("a profile that inflates", &gzip(&vec![0; LARGE]), 413, "querier.adhoc.max_profile_bytes"),
        upload("a profile that inflates by zstd", &zstd(LARGE, 23), 413, "querier.adhoc.max_profile_bytes"),
        upload("more than a profile", &vec![b'a'; PLAIN * 2], 413, "querier.adhoc.max_profile_bytes"),
        upload("brackets without end", &b"[".repeat(PLAIN), 400, "JSON is neither"),
        upload("empty texts", &[0x32, 0].repeat(PLAIN / 2), 400, "bytes of tables in memory"),
        upload(
            "frames without end",
            &[&b"a;".repeat(PLAIN / 2)[..], b" 1\n"].concat(),
            400,
            "7864321 frames",
        ),
        upload("different stacks", stacks.as_bytes(), 400, "bytes of tables in memory"),
    ]
}

fn files() -> Vec<Bomb> {
    let framed = |message: &[u8]| [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
    let file = |name: &str, body: Vec<u8>, status, word| {
        let path = "/debuginfo.v1alpha1.DebuginfoService/Upload/abcd";
        request(&format!("debuginfo: {name}"), path, body, status, word)
    };
    let stream = |name: &str, body: Vec<u8>, word| {
        let bomb = request(&format!("debuginfo as a stream: {name}"), UPLOAD, body, 200, word);
        bomb.with(&[("content-type", "application/grpc-web+proto")])
    };
    let chunk = framed(&protobuf_field(2, &vec![0; 6 << 20]));
    vec![
        file("for which nobody waits", vec![0; PLAIN], 412, "no pending upload"),
        stream(
            "chunks before the info",
            framed(&protobuf_field(2, &[0; 9])).repeat(PLAIN / 16),
            "first message of an upload",
        ),
        stream("a chunk over the limit", chunk, "the limit is 5MiB"),
        stream("a chunk that is not there", vec![0, 0xff, 0xff, 0xff, 0xff], "the limit is 5MiB"),
        stream("empty messages", framed(b"").repeat(PLAIN / 5), "first message of an upload"),
    ]
}
