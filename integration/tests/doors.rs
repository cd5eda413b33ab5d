//! Files of many profilers, and requests of SDKs as they were sent, through each door that takes them: what is found has the
//! types that clients ask for, and the sums that `go tool pprof` reads in the file.
//!
//! Every request is a tenant's of its own, so that nothing else is found.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use athanor_integration::leave_out;
use athanor_integration::server::Server;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use prost::Message;
use serde_json::{Value, json};

/// A file, the profiler that says it wrote it, and the types that it is found by: the name, and what follows it.
type File = (&'static str, &'static str, &'static str, &'static [&'static str]);

const CPU: &str = "process_cpu";
const GO_CPU: &[&str] = &["samples:count:cpu:nanoseconds", "cpu:nanoseconds:cpu:nanoseconds"];
const GO_HEAP: &[&str] = &[
    "alloc_objects:count:space:bytes",
    "alloc_space:bytes:space:bytes",
    "inuse_objects:count:space:bytes",
    "inuse_space:bytes:space:bytes",
];
const FILES: &[File] = &[
    ("go-cpu-labels.pb.gz", "gospy", CPU, GO_CPU),
    ("sdk-go-cpu.pb.gz", "gospy", CPU, GO_CPU),
    ("go-heap.pb.gz", "gospy", "memory", GO_HEAP),
    ("sdk-go-heap.pb.gz", "gospy", "memory", GO_HEAP),
    ("java.pb.gz", "javaspy", CPU, &["cpu:nanoseconds:cpu:nanoseconds"]),
    ("rust.pb.gz", "pyroscope-rs", CPU, &["cpu:nanoseconds:cpu:nanoseconds"]),
    (
        "sdk-js-cpu.pb.gz",
        "nodespy",
        "wall",
        &["sample:count:wall:microseconds", "wall:microseconds:wall:microseconds"],
    ),
    (
        "nodejs-wall.pb.gz",
        "nodespy",
        "wall",
        &["samples:count:wall:microseconds", "wall:microseconds:wall:microseconds"],
    ),
    ("nodejs.pb.gz", "nodespy", "wall", &["wall:microseconds:wall:microseconds"]),
    ("sdk-js-heap.pb.gz", "nodespy", "memory", &["space:bytes:space:bytes", "objects:count:space:bytes"]),
    (
        "nodejs-heap.pb.gz",
        "nodespy",
        "memory",
        &["inuse_space:bytes:inuse_space:bytes", "inuse_objects:count:inuse_space:bytes"],
    ),
    ("pyspy-1.pb.gz", "pyspy", CPU, &["samples:count::milliseconds"]),
    ("python.pb.gz", "pyspy", CPU, &["samples:count::milliseconds"]),
    ("ruby.pb.gz", "rbspy", CPU, &["samples:count::milliseconds"]),
    ("req_2.pprof", "gospy", "goroutines", &["goroutine:count:goroutine:count"]),
    (
        "req_3.pprof",
        "gospy",
        "block",
        &["contentions:count:contentions:count", "delay:nanoseconds:contentions:count"],
    ),
    (
        "dotnet-labels.pb",
        "dotnetspy",
        CPU,
        &[
            "cpu:nanoseconds:cpu:nanoseconds",
            "exception:count:cpu:nanoseconds",
            "alloc_samples:count:cpu:nanoseconds",
            "alloc_size:bytes:cpu:nanoseconds",
            "lock_count:count:cpu:nanoseconds",
            "lock_time:nanoseconds:cpu:nanoseconds",
        ],
    ),
];

/// What is found, by type. Types of which nothing was found are left out.
type Totals = BTreeMap<String, i64>;

fn data(folder: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(folder);
    let go = Command::new("go").args(["tool", "pprof", "-help"]).output().is_ok();
    match (folder.is_dir(), go) {
        (true, true) => return Some(folder),
        (false, _) => leave_out("no files of other profilers at ../shared/data"),
        (_, false) => leave_out("no go tool pprof to compare with"),
    }
    None
}

fn server() -> Server {
    Server::start(|config| {
        config.multitenancy_enabled = true;
        config.limits.reject_older_than = Duration::ZERO;
        config.limits.reject_newer_than = Duration::ZERO;
    })
}

/// The sums that another reader sees, by type and unit.
fn sums(pprof: &Path) -> BTreeMap<String, i64> {
    let output = Command::new("go").args(["tool", "pprof", "-raw", "-symbolize=none"]).arg(pprof).output();
    let output = output.expect("go runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().skip_while(|line| *line != "Samples:").skip(1);
    let types = lines.next().unwrap_or_else(|| panic!("no types in {text:.300}"));
    let types: Vec<String> =
        types.split_whitespace().map(|name| name.replace('/', ":").replace("[dflt]", "")).collect();
    let mut sums = vec![0i64; types.len()];
    for line in lines.take_while(|line| *line != "Locations") {
        let Some((values, _)) = line.split_once(": ") else { continue };
        let values: Option<Vec<i64>> = values.split_whitespace().map(|value| value.parse().ok()).collect();
        // Labels of a sample follow it.
        let Some(values) = values.filter(|values| values.len() == sums.len()) else { continue };
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    types.into_iter().zip(sums).collect()
}

fn of_bytes(pprof: &[u8]) -> BTreeMap<String, i64> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(pprof).expect("room");
    sums(file.path())
}

fn ask(server: &Server, tenant: &str, call: &str, question: Value) -> Value {
    let headers = [("content-type", "application/json"), ("x-scope-orgid", tenant)];
    let path = format!("/querier.v1.QuerierService/{call}");
    let answer = server.post(&path, &headers, question.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{call}: {}", String::from_utf8_lossy(&answer.body));
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn found(server: &Server, tenant: &str) -> Totals {
    let (start, end) = (1, i64::MAX / 1_000_000 - 1);
    let types = ask(server, tenant, "ProfileTypes", json!({ "start": start, "end": end }));
    let ids = types["profileTypes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids = ids.iter().map(|id| id["ID"].as_str().expect("a text").to_owned());
    ids.map(|id| {
        let question = json!({ "profileTypeID": id, "labelSelector": "{}", "start": start, "end": end });
        let graph = ask(server, tenant, "SelectMergeStacktraces", question);
        let total = graph["flamegraph"]["total"].as_str().unwrap_or("0").parse().expect("a number");
        (id, total)
    })
    .collect()
}

fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        body.extend(format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").into_bytes());
        body.extend_from_slice(content);
        body.extend(b"\r\n");
    }
    body.extend(b"--b--\r\n");
    body
}

fn pushed(name: &str, pprof: &[u8]) -> Vec<u8> {
    let pair = |name: &str, value: &str| LabelPair { name: name.into(), value: value.into() };
    let series = RawProfileSeries {
        labels: vec![pair("__name__", name), pair("service_name", "app")],
        samples: vec![RawSample { raw_profile: pprof.to_vec().into(), ..RawSample::default() }],
        ..RawProfileSeries::default()
    };
    PushRequest { series: vec![series] }.encode_to_vec()
}

/// Sends a profile through each door, a tenant for each; their names and the statuses.
fn through_all_doors(
    server: &Server,
    (file, spy): (&str, &str),
    name: &str,
    folder: &Path,
) -> Vec<(String, u16)> {
    let pprof = std::fs::read(folder.join(file)).expect("readable");
    let config = file.strip_suffix(".pprof").map(|stem| folder.join(format!("{stem}.st.json")));
    let config = config.map(|path| std::fs::read(path).expect("readable")).unwrap_or_default();
    let mut parts: Vec<(&str, &[u8])> = vec![("profile", &pprof)];
    if !config.is_empty() {
        parts.push(("sample_type_config", &config));
    }
    let ingest = format!("/ingest?name=app&from=1700000000&until=1700000010&spyName={spy}");
    let doors = [
        // Without a form nobody says what the types are called.
        ("body", format!("{ingest}&format=pprof"), "application/octet-stream", pprof.clone()),
        ("form", ingest, "multipart/form-data; boundary=b", form(&parts)),
        ("push", "/push.v1.PusherService/Push".to_owned(), "application/proto", pushed(name, &pprof)),
    ];
    let send = |(door, path, content_type, body): (&str, String, &str, Vec<u8>)| {
        let tenant = format!("{door}-{}", file.replace('.', "-"));
        let answer = server.post(&path, &[("content-type", content_type), ("x-scope-orgid", &tenant)], &body);
        (tenant, answer.status)
    };
    let is_told = |door: &(&str, String, &str, Vec<u8>)| door.0 != "body" || config.is_empty();
    doors.into_iter().filter(is_told).map(send).collect()
}

#[test]
fn files_of_all_profilers_are_found_as_what_they_are_whichever_way_they_come() {
    let Some(folder) = data("pprof") else { return };
    let server = server();
    for &(file, spy, name, types) in FILES {
        let of_types = sums(&folder.join(file));
        let expected: Totals = types
            .iter()
            .map(|rest| {
                let value: Vec<&str> = rest.splitn(3, ':').take(2).collect();
                (format!("{name}:{rest}"), of_types[&value.join(":")])
            })
            .filter(|(_, total)| *total > 0)
            .collect();
        for (tenant, status) in through_all_doors(&server, (file, spy), name, &folder) {
            assert_eq!(status, 200, "{tenant}");
            let mut found = found(&server, &tenant);
            found.retain(|_, total| *total > 0);
            assert_eq!(found, expected, "{tenant}");
        }
    }
    let statuses = through_all_doors(&server, ("invalid_utf8.pb.gz", "gospy"), CPU, &folder);
    assert_eq!(statuses.iter().map(|(_, status)| *status).collect::<Vec<_>>(), [422, 422, 400]);
}

/// A request that an SDK has sent.
struct Captured {
    name: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// Requests beside which their heads lie, as they were received.
fn captured(folder: &Path) -> Vec<Captured> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".head.txt") else { continue };
        let head = std::fs::read_to_string(&path).expect("a text");
        let mut lines = head.lines();
        let path = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a request");
        let headers = lines.filter_map(|line| line.split_once(": "));
        let kept = |name: &str| ["content-type", "content-encoding"].contains(&name);
        let headers: BTreeMap<String, String> = headers
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .filter(|(name, _)| kept(name))
            .collect();
        let body = std::fs::read(folder.join(format!("{name}.body"))).expect("a body");
        all.push(Captured {
            name: name.to_owned(),
            path: path.to_owned(),
            headers: headers.into_iter().collect(),
            body,
        });
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// The profiles in a request, and what they are called.
fn profiles(request: &Captured) -> Vec<(String, Vec<u8>)> {
    if request.path.starts_with("/ingest") {
        return vec![(String::new(), request.body.clone())];
    }
    let inflated = athanor_profile::pprof::inflate(&request.body, 1 << 24).expect("gzip");
    let push = PushRequest::decode(inflated.as_ref()).expect("a push");
    let of_series = |series: RawProfileSeries| {
        let name = series.labels.into_iter().find(|label| label.name == "__name__");
        let name = name.expect("a name").value;
        series.samples.into_iter().map(move |sample| (name.clone(), sample.raw_profile.to_vec()))
    };
    push.series.into_iter().flat_map(of_series).collect()
}

#[test]
fn what_sdks_have_sent_is_taken_and_found() {
    let Some(folder) = data("captures") else { return };
    let server = server();
    let requests = captured(&folder);
    assert!(requests.len() >= 9, "{} requests", requests.len());
    for request in &requests {
        let headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<(&str, &str)> = headers.chain([("x-scope-orgid", request.name.as_str())]).collect();
        let answer = server.post(&request.path, &headers, &request.body);
        assert_eq!(answer.status, 200, "{}: {}", request.name, String::from_utf8_lossy(&answer.body));
        let mut expected = Totals::new();
        for (name, profile) in profiles(request) {
            let sums = of_bytes(&profile);
            let name = match name.as_str() {
                "" if sums.contains_key("wall:nanoseconds") => "wall",
                "" => "memory",
                name => name,
            };
            sums.iter().for_each(|(kind, sum)| *expected.entry(format!("{name}:{kind}")).or_default() += sum);
        }
        expected.retain(|_, total| *total > 0);
        let found = found(&server, &request.name).into_iter().filter(|(_, total)| *total > 0);
        let by_value =
            |(id, total): (String, i64)| (id.splitn(4, ':').take(3).collect::<Vec<_>>().join(":"), total);
        assert_eq!(found.map(by_value).collect::<Totals>(), expected, "{}", request.name);
    }
}

#[test]
fn documents_of_speedscope_are_found_with_what_they_weigh() {
    let Some(folder) = data("speedscope") else { return };
    let server = server();
    // Samples of a hundredth of a second each; 14 seconds, twice.
    for (file, expected) in
        [("simple.speedscope.json", 14 * 10_000_000), ("two-sampled.speedscope.json", 28 * 1_000_000_000)]
    {
        let document = std::fs::read(folder.join(file)).expect("readable");
        for (door, format) in [("told", ""), ("named", "&format=speedscope")] {
            let tenant = format!("{door}-{}", file.replace('.', "-"));
            let path = format!("/ingest?name=app&from=1700000000&until=1700000010{format}");
            let answer = server.post(&path, &[("x-scope-orgid", &tenant)], &document);
            assert_eq!(answer.status, 200, "{tenant}: {}", String::from_utf8_lossy(&answer.body));
            let found: i64 = found(&server, &tenant).values().sum();
            assert_eq!(found, expected, "{tenant}");
        }
    }
}
