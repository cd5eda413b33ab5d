//! The corpus.

use libdeflater::{CompressionLvl, Compressor};

/// One upload.
pub struct Bomb {
    pub name: String,
    pub path: String,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: Vec<u8>,
}

const FORM: &str = "multipart/form-data; boundary=b";
/// Plain bytes of what is compressed well.
const LARGE: usize = 300 << 20;
/// Plain bytes of what is sent as it is.
pub const PLAIN: usize = 15 << 20;

pub fn all() -> impl Iterator<Item = Bomb> {
    let families: [fn() -> Vec<Bomb>; 7] =
        [compressed, pprofs, texts, documents, forms, crate::recordings::all, crate::exports::all];
    families.into_iter().flat_map(|family| family())
}

/// As a body of `/ingest`.
pub fn ingest(name: &str, format: &str, body: Vec<u8>) -> Bomb {
    let path = format!("/ingest?name=hostile.cpu&format={format}");
    Bomb { name: format!("{format}: {name}"), path, headers: Vec::new(), body }
}

/// As a call of push.v1 with one profile.
fn push(name: &str, pprof: &[u8]) -> Bomb {
    let mut series = Vec::new();
    for (label, value) in [("__name__", "process_cpu"), ("service_name", "hostile")] {
        let pair = [field(1, label.as_bytes()), field(2, value.as_bytes())].concat();
        series.extend(field(1, &pair));
    }
    series.extend(field(2, &field(1, pprof)));
    let headers = vec![("content-type", "application/proto")];
    let path = "/push.v1.PusherService/Push".to_owned();
    Bomb { name: format!("push: {name}"), path, headers, body: field(1, &series) }
}

/// A protobuf field of bytes.
pub fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(content);
    out
}

pub fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::new(6).unwrap());
    let mut out = vec![0; compressor.gzip_compress_bound(plain.len())];
    let length = compressor.gzip_compress(plain, &mut out).unwrap();
    out.truncate(length);
    out
}

/// Little that becomes much.
fn compressed() -> Vec<Bomb> {
    let zeros = gzip(&vec![0; LARGE]);
    let twice = gzip(&zeros);
    let text = gzip(&b"main;run 1\n".repeat(LARGE / 11));
    let in_a_call = Bomb {
        name: "push: a body that inflates".into(),
        path: "/push.v1.PusherService/Push".into(),
        headers: vec![("content-type", "application/proto"), ("content-encoding", "gzip")],
        body: zeros.clone(),
    };
    let mut bombs =
        vec![in_a_call, push("a profile that inflates", &zeros), push("twice compressed", &twice)];
    for format in ["pprof", "jfr", "trie", "tree", "speedscope", "groups", "lines"] {
        bombs.push(ingest("a body that inflates", format, zeros.clone()));
    }
    bombs.push(ingest("text that inflates", "groups", text));
    bombs
}

/// Tables of entries that say nothing.
fn pprofs() -> Vec<Bomb> {
    let begin =
        [field(1, &[8, 1, 16, 2]), field(6, b""), field(6, b"cpu"), field(6, b"nanoseconds")].concat();
    let filled = |entry: &[u8]| [begin.clone(), entry.repeat(PLAIN / entry.len())].concat();
    let deep = {
        let sample = [field(1, &vec![1; PLAIN / 2]), field(2, &[1])].concat();
        [begin.clone(), field(2, &sample)].concat()
    };
    let mut bombs = Vec::new();
    for (name, raw) in [
        ("empty samples", filled(&[0x12, 0])),
        ("samples of a value", filled(&[0x12, 2, 0x10, 1])),
        ("empty mappings", filled(&[0x1a, 0])),
        ("empty locations", filled(&[0x22, 0])),
        ("empty functions", filled(&[0x2a, 0])),
        ("empty texts", filled(&[0x32, 0])),
        ("types", filled(&[0x0a, 0])),
        ("comments", filled(&[0x68, 1])),
        ("a location of many lines", [begin.clone(), field(4, &[0x22, 0].repeat(PLAIN / 2))].concat()),
        ("a sample of many labels", [begin.clone(), field(2, &[0x1a, 0].repeat(PLAIN / 2))].concat()),
        ("a stack without end", deep),
        ("one long text", [begin.clone(), field(6, &vec![b'x'; PLAIN])].concat()),
        ("more than the limit", filled(&[0x12, 0]).repeat(2)),
    ] {
        bombs.push(push(name, &raw));
        bombs.push(ingest(name, "pprof", raw));
    }
    bombs
}

fn texts() -> Vec<Bomb> {
    let distinct: String = (0..PLAIN / 10).map(|number| format!("f{number};g 1\n")).collect();
    let mut bombs = Vec::new();
    for (name, text) in [
        ("empty frames without end", [vec![b';'; PLAIN], b" 1\n".to_vec()].concat()),
        ("frames without end", [b"a;".repeat(PLAIN / 2), b" 1\n".to_vec()].concat()),
        ("different stacks", distinct.into_bytes()),
        ("lines that say nothing", vec![b'\n'; PLAIN]),
        ("bytes that are no text", vec![0xff; PLAIN]),
    ] {
        bombs.push(ingest(name, "groups", text.clone()));
        bombs.push(ingest(name, "lines", text));
    }
    let labels: String = (0..2000).map(|number| format!("l{number}=v,")).collect();
    let path = format!("/ingest?name=hostile.cpu%7B{}%7D", labels.replace('=', "%3D"));
    bombs.push(Bomb { name: "many labels".into(), path, headers: Vec::new(), body: b"a 1\n".to_vec() });
    bombs
}

/// JSON, and the trees of old clients.
fn documents() -> Vec<Bomb> {
    let nested = b"[".repeat(PLAIN);
    let fields = [b"{".to_vec(), b"\"a\":[[[[".repeat(PLAIN / 8)].concat();
    let frames: String = (0..PLAIN / 30).map(|number| format!("{{\"name\":\"f{number}\"}},")).collect();
    let tables = format!(
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":{{\"frames\":[{frames}\
         {{\"name\":\"x\"}}]}},\"profiles\":[]}}"
    );
    let mut bombs = Vec::new();
    for format in ["speedscope", "flamebearer"] {
        bombs.push(ingest("brackets without end", format, nested.clone()));
        bombs.push(ingest("objects without end", format, fields.clone()));
        bombs.push(ingest("many frames", format, tables.clone().into_bytes()));
    }
    // A node: length of its name, name, own value, count of children.
    let chain = [1, b'a', 1, 1].repeat(PLAIN / 4);
    // Each name continues that of its parent, so written out they grow with the square.
    let long = [&[0x80, 0x08][..], &[b'a'; 1024], &[1, 1]].concat().repeat(PLAIN / 2 / 1028);
    for format in ["trie", "tree"] {
        bombs.push(ingest("a chain", format, chain.clone()));
        bombs.push(ingest("a chain of long names", format, long.clone()));
        bombs.push(ingest(
            "children that are not there",
            format,
            [[0, 0].as_slice(), &[0xff; 9], &[1]].concat(),
        ));
        bombs.push(ingest("a name that is not there", format, [&[0xff; 8][..], &[0x7f]].concat()));
    }
    bombs
}

fn forms() -> Vec<Bomb> {
    let part = b"--b\r\nContent-Disposition: form-data; name=\"profile\"\r\n\r\n".to_vec();
    let mut bombs = Vec::new();
    for (name, body) in [
        ("parts without end", [part.clone(), b"\r\n".to_vec()].concat().repeat(PLAIN / 60)),
        ("a part without end", [part.clone(), vec![b'-'; PLAIN]].concat()),
        ("almost boundaries", [part, b"\r\n--a".repeat(PLAIN / 5)].concat()),
    ] {
        let path = "/ingest?name=hostile.cpu".to_owned();
        bombs.push(Bomb { name: format!("form: {name}"), path, headers: vec![("content-type", FORM)], body });
    }
    bombs
}
