//! Uploads as scenarios describe them, turned into bytes: pprof, pushes, forms, text.

use std::collections::BTreeMap;

use athanor_profile::formats::pprof::gzip;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use serde_json::{Map, Value, json};

const BOUNDARY: &str = "golden-boundary";

/// A scenario's text. JSON that escapes lone surrogates, for bytes that are no text, is made readable first.
pub fn scenario(text: &str) -> Value {
    serde_json::from_str(&text.replace("\\udc", "\\ue0")).expect("a scenario is JSON")
}

/// Fills times in: `{s:60}` is 60 s after `base`, which is in seconds.
pub fn fill(text: &str, base: i64) -> String {
    let mut filled = text.to_owned();
    for (unit, scale) in [("s", 1), ("ms", 1000), ("us", 1_000_000), ("ns", 1_000_000_000)] {
        let opening = format!("{{{unit}:");
        while let Some(start) = filled.find(&opening) {
            let end = start + filled[start..].find('}').expect("a closing brace");
            let offset: i64 = filled[start + opening.len()..end].parse().expect("an offset");
            filled.replace_range(start..=end, &((base + offset) * scale).to_string());
        }
    }
    filled
}

/// The body of a request and its content type; nothing for what is described in a way that is not known here.
pub fn body(spec: &Value, base: i64) -> Option<(Vec<u8>, Option<String>)> {
    let mut content_type = spec["headers"]["Content-Type"].as_str().map(str::to_owned);
    let mut bytes = if let Some(text) = spec["text"].as_str() {
        text.repeat(spec["text_times"].as_u64().unwrap_or(1) as usize).into_bytes()
    } else if !spec["json"].is_null() {
        spec["json"].to_string().into_bytes()
    } else if let Some(hex) = spec["hex"].as_str() {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    } else if !spec["pprof"].is_null() {
        pprof(&spec["pprof"], base)
    } else if !spec["tree"].is_null() {
        tree("", &spec["tree"])
    } else if let Some(parts) = spec["multipart"].as_array() {
        content_type.get_or_insert(format!("multipart/form-data; boundary={BOUNDARY}"));
        form(parts, base)
    } else {
        return None;
    };
    if spec["gzip"] == json!(true) {
        bytes = gzip(&bytes);
    }
    Some((bytes, content_type))
}

/// A tree or trie: `=` is a node's self value, all else are its children.
fn tree(name: &str, node: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(&mut bytes, name.len() as u64);
    bytes.extend_from_slice(name.as_bytes());
    varint(&mut bytes, node["="].as_u64().unwrap_or_default());
    let children = node.as_object().into_iter().flatten().filter(|(name, _)| *name != "=");
    varint(&mut bytes, children.clone().count() as u64);
    bytes.extend(children.flat_map(|(name, child)| tree(name, child)));
    bytes
}

fn form(parts: &[Value], base: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        let name = part["name"].as_str().expect("a name");
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend(body(part, base).expect("a part has a body").0);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    bytes
}

/// A request of push.v1; labels are a map, or a list of pairs where order or doubles matter.
pub fn push(series: &Value, base: i64) -> PushRequest {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let pair = |name: &Value, value: &Value| LabelPair { name: text(name), value: text(value) };
    let one = |series: &Value| {
        let labels = match &series["labels"] {
            Value::Object(map) => map.iter().map(|(name, value)| pair(&json!(name), value)).collect(),
            pairs => pairs.as_array().expect("pairs").iter().map(|both| pair(&both[0], &both[1])).collect(),
        };
        let sample = |profile: &Value| {
            let wrapped = json!({"pprof": profile, "gzip": profile["gzip"]});
            let spec = if profile["hex"].is_string() { profile } else { &wrapped };
            let raw = body(spec, base).expect("a profile").0;
            RawSample { raw_profile: raw.into(), id: profile["id"].as_str().unwrap_or_default().to_owned() }
        };
        let samples = series["profiles"].as_array().expect("profiles").iter().map(sample).collect();
        RawProfileSeries { labels, samples, annotations: Vec::new() }
    };
    PushRequest { series: series.as_array().expect("series").iter().map(one).collect() }
}

/// The tables of a profile as it is built.
struct Build {
    profile: Map<String, Value>,
    strings: BTreeMap<String, usize>,
    functions: BTreeMap<(String, String), usize>,
    locations: BTreeMap<Vec<String>, usize>,
    mapped: bool,
}

impl Build {
    fn table(&mut self, name: &str) -> &mut Vec<Value> {
        let table = self.profile.entry(name).or_insert_with(|| json!([]));
        table.as_array_mut().expect("a table")
    }
    fn string(&mut self, text: &str) -> usize {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        self.table("stringTable").push(json!(text));
        self.strings.insert(text.to_owned(), self.strings.len());
        self.strings.len() - 1
    }
    fn value_type(&mut self, text: &str) -> Value {
        let (kind, unit) = text.split_once(':').expect("type:unit");
        let kind = self.string(kind);
        json!({"type": kind, "unit": self.string(unit)})
    }
    fn function(&mut self, name: &str, file: &str) -> usize {
        let key = (name.to_owned(), file.to_owned());
        if let Some(&id) = self.functions.get(&key) {
            return id;
        }
        let id = self.functions.len() + 1;
        let (name, file) = (self.string(name), self.string(file));
        self.table("function").push(json!({"id": id, "name": name, "systemName": name, "filename": file}));
        self.functions.insert(key, id);
        id
    }
    fn location(&mut self, calls: Vec<String>) -> usize {
        if let Some(&id) = self.locations.get(&calls) {
            return id;
        }
        let id = self.locations.len() + 1;
        let mut lines = Vec::new();
        for call in calls.iter().rev() {
            let (name, file, line) = frame(call);
            lines.push(json!({"functionId": self.function(name, file), "line": line}));
        }
        let mapping = usize::from(self.mapped);
        self.table("location")
            .push(json!({"id": id, "mappingId": mapping, "address": 4096 * id, "line": lines}));
        self.locations.insert(calls, id);
        id
    }
    fn sample(&mut self, spec: &Value) {
        let stack = frames(&spec["stack"]);
        let count = spec["count"].as_u64();
        for number in 0..count.unwrap_or(1) {
            let numbered = |text: &str| match count {
                Some(_) => text.replace('#', &number.to_string()),
                None => text.to_owned(),
            };
            let mut labels = Vec::new();
            for (name, value) in spec["labels"].as_object().into_iter().flatten() {
                let key = self.string(name);
                let text = self.string(&numbered(value.as_str().expect("text")));
                labels.push(json!({"key": key, "str": text}));
            }
            for (name, value) in spec["num"].as_object().into_iter().flatten() {
                let key = self.string(name);
                let unit = self.string(value[1].as_str().expect("a unit"));
                labels.push(json!({"key": key, "num": value[0], "numUnit": unit}));
            }
            let mut path = Vec::new();
            for calls in stack.iter().rev() {
                path.push(self.location(calls.iter().map(|call| numbered(call)).collect()));
            }
            self.table("sample").push(json!({"locationId": path, "value": spec["values"], "label": labels}));
        }
    }
}

/// Frames root first, each with what is inlined in it, outermost first. `f#*3` is f0;f1;f2.
fn frames(stack: &Value) -> Vec<Vec<String>> {
    let text = |value: &Value| value.as_str().expect("a frame").to_owned();
    let listed: Vec<Vec<String>> = match stack {
        Value::String(stack) => stack.split(';').map(|frame| vec![frame.to_owned()]).collect(),
        frames => frames
            .as_array()
            .expect("frames")
            .iter()
            .map(|frame| {
                frame.as_array().map_or_else(|| vec![text(frame)], |calls| calls.iter().map(text).collect())
            })
            .collect(),
    };
    let deep = |calls: Vec<String>| match calls[0].split_once("#*") {
        Some((name, count)) => {
            let count: usize = count.parse().expect("a number");
            (0..count).map(|at| vec![format!("{name}{at}")]).collect()
        }
        None => vec![calls],
    };
    listed.into_iter().flat_map(deep).collect()
}

/// `function@file:12`; file and line may be missing.
fn frame(text: &str) -> (&str, &str, u64) {
    let Some((name, place)) = text.rsplit_once('@') else { return (text, "", 0) };
    match place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?))) {
        Some((file, line)) => (name, file, line),
        None => (name, place, 0),
    }
}

fn pprof(spec: &Value, base: i64) -> Vec<u8> {
    let mapping = spec["mapping"].as_str();
    let mut build = Build {
        profile: Map::new(),
        strings: BTreeMap::new(),
        functions: BTreeMap::new(),
        locations: BTreeMap::new(),
        mapped: mapping.is_some(),
    };
    build.string("");
    for kind in spec["types"].as_array().expect("types") {
        let value_type = build.value_type(kind.as_str().expect("type:unit"));
        build.table("sampleType").push(value_type);
    }
    if let Some(file) = mapping {
        let filename = build.string(file);
        build.table("mapping").push(
            json!({"id": 1, "memoryStart": 4096, "memoryLimit": 1 << 24, "filename": filename, "hasFunctions": true}),
        );
    }
    for sample in spec["samples"].as_array().into_iter().flatten() {
        build.sample(sample);
    }
    if let Some(period) = spec["period"].as_array() {
        let value_type = build.value_type(period[0].as_str().expect("type:unit"));
        build.profile.insert("periodType".into(), value_type);
        build.profile.insert("period".into(), period[1].clone());
    }
    let millis = |at: f64| (at * 1000.0).round() as i64;
    let time = spec["at"].as_f64().map_or(0, |at| (base * 1000 + millis(at)) * 1_000_000);
    build.profile.insert("timeNanos".into(), json!(time + spec["ns"].as_i64().unwrap_or(0)));
    let duration = spec["duration"].as_f64().unwrap_or(10.0) * 1e9;
    build.profile.insert("durationNanos".into(), json!(duration as i64));
    for comment in spec["comments"].as_array().into_iter().flatten() {
        let index = build.string(comment.as_str().expect("text"));
        build.table("comment").push(json!(index));
    }
    let mut profile = Value::Object(build.profile);
    for (path, value) in spec["set"].as_object().into_iter().flatten() {
        let mut spot = &mut profile;
        for step in path.split('.') {
            spot = match step.parse::<usize>() {
                Ok(place) => &mut spot[place],
                Err(_) => &mut spot[step],
            };
        }
        *spot = value.clone();
    }
    encode("Profile", &profile)
}

/// Number of a field and what it holds: a number (`i`), text (`s`) or a message.
fn field(message: &str, name: &str) -> (u64, &'static str) {
    match (message, name) {
        ("Profile", "sampleType") => (1, "ValueType"),
        ("Profile", "sample") => (2, "Sample"),
        ("Profile", "mapping") => (3, "Mapping"),
        ("Profile", "location") => (4, "Location"),
        ("Profile", "function") => (5, "Function"),
        ("Profile", "stringTable") => (6, "s"),
        ("Profile", "timeNanos") => (9, "i"),
        ("Profile", "durationNanos") => (10, "i"),
        ("Profile", "periodType") => (11, "ValueType"),
        ("Profile", "period") => (12, "i"),
        ("Profile", "comment") => (13, "i"),
        ("Profile", "defaultSampleType") => (14, "i"),
        ("ValueType", "type") | ("Sample", "locationId") | ("Label", "key") => (1, "i"),
        ("ValueType", "unit") | ("Sample", "value") | ("Label", "str") | ("Line", "line") => (2, "i"),
        ("Sample", "label") => (3, "Label"),
        ("Label", "num") => (3, "i"),
        ("Label", "numUnit") => (4, "i"),
        ("Mapping" | "Location" | "Function", "id") | ("Line", "functionId") => (1, "i"),
        ("Mapping", "memoryStart") | ("Location", "mappingId") | ("Function", "name") => (2, "i"),
        ("Mapping", "memoryLimit") | ("Location", "address") | ("Function", "systemName") => (3, "i"),
        ("Mapping", "fileOffset") | ("Function", "filename") => (4, "i"),
        ("Location", "line") => (4, "Line"),
        ("Mapping", "filename") | ("Function", "startLine") | ("Location", "isFolded") => (5, "i"),
        ("Mapping", "buildId") => (6, "i"),
        ("Mapping", "hasFunctions") => (7, "i"),
        _ => panic!("{message} has no field {name}"),
    }
}

fn encode(message: &str, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in value.as_object().expect("a message") {
        let (number, kind) = field(message, name);
        let values = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
        for value in values {
            if kind == "i" {
                varint(&mut out, number << 3);
                let flag = value.as_bool().map(u64::from);
                let number = flag.or(value.as_u64()).or(value.as_i64().map(|number| number as u64));
                varint(&mut out, number.expect("a number"));
                continue;
            }
            let content = if kind == "s" { raw_text(value) } else { encode(kind, value) };
            varint(&mut out, number << 3 | 2);
            varint(&mut out, content.len() as u64);
            out.extend(content);
        }
    }
    out
}

/// Text, with bytes that are none where the scenario escaped such.
fn raw_text(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for character in value.as_str().expect("text").chars() {
        match u32::from(character) {
            code @ 0xe080..=0xe0ff => bytes.push(code as u8),
            _ => bytes.extend(character.to_string().bytes()),
        }
    }
    bytes
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
