//! The corpus: what a bomb is, and those that are small and become much.

use athanor_integration::bodies::{self, FORM_CONTENT_TYPE, gzip, protobuf_field};

use crate::adversarial_input::exports::export;
use crate::adversarial_input::{BODY, PROFILE};

/// How an upload is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the port for clients.
    Http,
    /// To the port for exports of OpenTelemetry over HTTP.
    OtlpHttp,
    /// To the one for exports over gRPC.
    Grpc,
}

/// One upload, and what is to come of it.
pub struct Bomb {
    pub name: String,
    pub way: Way,
    pub path: String,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: Vec<u8>,
    /// The limit that it meets: memory is bounded by twice of this.
    pub limit: u64,
    /// The status of the answer.
    pub status: u16,
    /// What the answer says, among other things.
    pub word: &'static str,
}

impl Bomb {
    /// One that may take what bodies may.
    pub fn of_body(mut self) -> Self {
        self.limit = BODY;
        self
    }

    /// One whose tables take memory: what is read of a profile may take four times what it may have.
    pub fn of_tables(mut self) -> Self {
        self.limit = 2 * PROFILE;
        self
    }

    pub fn with(mut self, headers: &[(&'static str, &'static str)]) -> Self {
        self.headers.extend_from_slice(headers);
        self
    }
}

/// Plain bytes of what is compressed well.
pub const LARGE: usize = 300 << 20;
/// Plain bytes of what is sent as it is.
pub const PLAIN: usize = 15 << 20;

pub fn all() -> impl Iterator<Item = Bomb> {
    let families: [fn() -> Vec<Bomb>; 7] = [
        compressed,
        forms,
        crate::adversarial_input::pprofs::all,
        crate::adversarial_input::documents::all,
        crate::adversarial_input::calls::all,
        crate::adversarial_input::exports::all,
        crate::adversarial_input::recordings::all,
    ];
    families.into_iter().flat_map(|family| family())
}

/// A request to the port for clients, that meets the limit of a profile.
pub fn request(name: &str, path: &str, body: Vec<u8>, status: u16, word: &'static str) -> Bomb {
    let (name, path) = (name.to_owned(), path.to_owned());
    Bomb { name, way: Way::Http, path, headers: Vec::new(), body, limit: PROFILE, status, word }
}

/// As a body of `/ingest`.
pub fn ingest(name: &str, format: &str, body: Vec<u8>, status: u16, word: &'static str) -> Bomb {
    let path = format!("/ingest?name=hostile.cpu&format={format}");
    request(&format!("{format}: {name}"), &path, body, status, word)
}

/// As a form of `/ingest`.
pub fn form(name: &str, format: &str, parts: &[(&str, &[u8])], status: u16, word: &'static str) -> Bomb {
    let body = bodies::multipart_form(parts);
    ingest(&format!("form: {name}"), format, body, status, word).with(&[("content-type", FORM_CONTENT_TYPE)])
}

/// As a call of push.v1 with one profile.
pub fn push(name: &str, pprof: &[u8], status: u16, word: &'static str) -> Bomb {
    let mut series = Vec::new();
    for (label, value) in [("__name__", "process_cpu"), ("service_name", "hostile")] {
        let pair = [protobuf_field(1, label.as_bytes()), protobuf_field(2, value.as_bytes())].concat();
        series.extend(protobuf_field(1, &pair));
    }
    series.extend(protobuf_field(2, &protobuf_field(1, pprof)));
    let path = "/push.v1.PusherService/Push";
    let bomb = request(&format!("push: {name}"), path, protobuf_field(1, &series), status, word);
    bomb.with(&[("content-type", "application/proto")])
}

/// A number as protobuf has it.
pub fn number(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A frame of zstd with so many zeros, whose reader is to keep two to the power of `window` bytes at once.
pub fn zstd(zeros: usize, window: u8) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window - 10) << 3];
    let blocks = zeros.div_ceil(BLOCK);
    for block in 1..=blocks {
        // A byte that comes again and again, and whether it is the last block.
        let head = u32::try_from(BLOCK << 3 | 1 << 1 | usize::from(block == blocks)).unwrap();
        out.extend_from_slice(&head.to_le_bytes()[..3]);
        out.push(0);
    }
    out
}

/// Little that becomes much.
fn compressed() -> Vec<Bomb> {
    let zeros = gzip(&vec![0; LARGE]);
    let twice = gzip(&zeros);
    let text = gzip(&b"main;run 1\n".repeat(LARGE / 11));
    let call = [("content-type", "application/proto"), ("content-encoding", "gzip")];
    let path = "/push.v1.PusherService/Push";
    let mut bombs = vec![
        request("push: a body that inflates", path, zeros.clone(), 413, "limits.ingestion_body_limit")
            .with(&call)
            .of_body(),
        push("a profile that inflates", &zeros, 400, "limits.max_profile_size_bytes"),
        push("twice compressed", &twice, 400, "unknown wire type"),
        push("a profile that inflates by zstd", &zstd(LARGE, 20), 400, "limits.max_profile_size_bytes"),
        push("a window of zstd", &zstd(LARGE, 23), 400, "limits.max_profile_size_bytes"),
        push("a window of zstd over the limit", &zstd(LARGE, 24), 400, "window exceeds 8 MiB"),
        ingest(
            "a profile that inflates by zstd",
            "pprof",
            zstd(LARGE, 20),
            422,
            "limits.max_profile_size_bytes",
        ),
        ingest("a window of zstd", "pprof", zstd(LARGE, 23), 422, "limits.max_profile_size_bytes"),
        ingest(
            "a recording that inflates by zstd",
            "jfr",
            zstd(LARGE, 23),
            422,
            "limits.ingestion_body_limit",
        )
        .of_body(),
        ingest("text that inflates", "groups", text, 422, "starts like gzip or zstd"),
    ];
    for (format, word) in [
        ("pprof", "limits.max_profile_size_bytes"),
        ("trie", "outermost node ends"),
        ("tree", "its name is not valid UTF-8"),
        ("speedscope", "column 2: not valid UTF-8"),
        ("flamebearer", "column 2: not valid UTF-8"),
        ("perf_script", "column 2: not valid UTF-8"),
        ("groups", "starts like gzip or zstd"),
        ("lines", "line 1: not valid UTF-8"),
    ] {
        bombs.push(ingest("a body that inflates", format, zeros.clone(), 422, word));
    }
    bombs.push(ingest("a body that inflates", "jfr", zeros, 422, "limits.ingestion_body_limit").of_body());
    bombs
}

fn forms() -> Vec<Bomb> {
    let part = b"--b\r\nContent-Disposition: form-data; name=\"profile\"\r\n\r\n".to_vec();
    let raw = |name: &str, body: Vec<u8>, word| {
        ingest(&format!("form: {name}"), "", body, 422, word).with(&[("content-type", FORM_CONTENT_TYPE)])
    };
    let config: String = (0..PLAIN / 30).map(|number| format!("\"t{number}\":{{\"units\":\"\"}},")).collect();
    let config = format!("{{{config}\"x\":{{}}}}");
    let little = &config[..65_000];
    let of_config = |name, config: &[u8], word| {
        form(name, "", &[("profile", b""), ("sample_type_config", config)], 422, word)
    };
    vec![
        raw(
            "parts without end",
            [part.clone(), b"\r\n".to_vec()].concat().repeat(PLAIN / 60),
            "at least 33 parts",
        ),
        raw("a part without end", [part.clone(), vec![b'-'; PLAIN]].concat(), "form is truncated"),
        raw("almost boundaries", [part, b"\r\n--a".repeat(PLAIN / 5)].concat(), "form is truncated"),
        of_config("types without end", config.as_bytes(), "the limit is 65536"),
        of_config("types that are cut off", little.as_bytes(), "EOF while parsing"),
        of_config("brackets without end", &b"{\"a\":".repeat(13_000), "sample_type_config is not valid"),
        form(
            "a profile that inflates",
            "",
            &[("profile", &gzip(&vec![0; LARGE]))],
            422,
            "limits.max_profile_size_bytes",
        ),
    ]
}

/// Those that take most of what each limit allows, to be sent at once.
pub fn greedy() -> Vec<Bomb> {
    let zeros = gzip(&vec![0; BODY as usize - 1024]);
    let path = "/push.v1.PusherService/Push";
    let call = [("content-type", "application/proto"), ("content-encoding", "gzip")];
    let recordings = crate::adversarial_input::recordings::greedy();
    let inflated = request("push: a body of zeros", path, zeros, 400, "").with(&call).of_body();
    let texts = crate::adversarial_input::documents::greedy();
    let exports = vec![export("a body of zeros", vec![0; BODY as usize - 1024], 400, "")];
    [recordings, vec![inflated], texts, exports].into_iter().flatten().collect()
}
