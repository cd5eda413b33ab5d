//! Files in pprof, through each door that takes them.

use std::collections::BTreeMap;
use std::path::Path;

use athanor_integration::bodies::{FORM_CONTENT_TYPE, grpc_frame, multipart_form, protobuf_field};
use athanor_integration::readers::go;
use athanor_integration::server::TestServer;
use athanor_integration::{grpc, report_skipped};
use athanor_proto::parca::profilestore::v1alpha1 as parca;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use prost::Message;

use crate::ingest_formats::{Totals, data, server, tenant, weighty};

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
    ("malformed-no-addr-no-line.pb.gz", "parca", CPU, &["cpu:nanoseconds:cpu:nanoseconds"]),
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

/// Files that nobody may take.
const REFUSED: &str = "invalid_utf8.pb.gz";

/// Says that there is nothing to send.
pub fn has_no_files() {
    report_skipped("no corpus of real profiles at ../shared/data/pprof", "");
}

/// What is sent here, and what says of a file how its types are called.
pub fn named() -> Vec<String> {
    let names = FILES.iter().map(|(file, ..)| *file).chain([REFUSED]);
    let configs = FILES.iter().filter_map(|(file, ..)| config(file));
    names.map(str::to_owned).chain(configs).map(|name| format!("pprof/{name}")).collect()
}

/// The file that says of another one how its types are called.
fn config(file: &str) -> Option<String> {
    file.strip_suffix(".pprof").map(|stem| format!("{stem}.st.json"))
}

/// A request that holds a profile.
struct Request {
    door: &'static str,
    path: String,
    content_type: &'static str,
    body: Vec<u8>,
    /// What its types are called by, if not by what everybody else says.
    metric: Option<&'static str>,
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

fn written_raw(name: &str, pprof: &[u8]) -> parca::WriteRawRequest {
    let label = |name: &str, value: &str| parca::Label { name: name.into(), value: value.into() };
    let labels = vec![label("__name__", name), label("job", "app")];
    let series = parca::RawProfileSeries {
        labels: Some(parca::LabelSet { labels }),
        samples: vec![parca::RawSample { raw_profile: pprof.to_vec().into(), ..Default::default() }],
    };
    parca::WriteRawRequest { series: vec![series], ..Default::default() }
}

/// An export of OpenTelemetry that has a profile as it was first recorded.
pub fn payload(format: &str, recorded: &[u8]) -> Vec<u8> {
    let name = [protobuf_field(1, b"service.name"), protobuf_field(2, &protobuf_field(1, b"app"))].concat();
    let profile = [protobuf_field(9, format.as_bytes()), protobuf_field(10, recorded)].concat();
    let of_resource =
        [protobuf_field(1, &protobuf_field(1, &name)), protobuf_field(2, &protobuf_field(2, &profile))]
            .concat();
    [protobuf_field(1, &of_resource), protobuf_field(2, &protobuf_field(5, b""))].concat()
}

/// The requests of all doors.
fn requests((file, spy): (&str, &str), name: &str, folder: &Path) -> Vec<Request> {
    let pprof = std::fs::read(folder.join(file)).unwrap();
    let config = config(file).map(|config| std::fs::read(folder.join(config)).unwrap());
    let mut parts: Vec<(&str, &[u8])> = vec![("profile", &pprof)];
    parts.extend(config.iter().map(|config| ("sample_type_config", &config[..])));
    let ingest = format!("/ingest?name=app&from=1700000000&until=1700000010&spyName={spy}");
    let request = |door, path: &str, content_type, body| {
        let path = path.to_owned();
        Request { door, path, content_type, body, metric: None }
    };
    let raw = written_raw(name, &pprof);
    let write_raw = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";
    let mut requests = vec![
        request("form", &ingest, FORM_CONTENT_TYPE, multipart_form(&parts)),
        request("push", "/push.v1.PusherService/Push", "application/proto", pushed(name, &pprof)),
        request("grpc", write_raw, "application/grpc", raw.encode_to_vec()),
        request("json", "/profiles/writeraw", "application/json", serde_json::to_vec(&raw).unwrap()),
        request("payload", "/v1development/profiles", "application/x-protobuf", payload("pprof", &pprof)),
    ];
    match config {
        None => {
            let path = format!("{ingest}&format=pprof");
            requests.push(request("body", &path, "application/octet-stream", pprof));
        }
        // Without a form nobody says whether a lock is a mutex's.
        Some(_) if name == "block" => requests[4].metric = Some("mutex"),
        Some(_) => {}
    }
    requests
}

/// Sends a request; what it came to.
fn send(server: &TestServer, request: &Request, tenant: &str) -> String {
    if request.content_type == "application/grpc" {
        let body = grpc_frame(&request.body, false);
        let headers = [("x-scope-orgid", tenant)];
        let call = grpc::call(server.address, &request.path, &headers, body);
        return format!("grpc {}", server.runtime.block_on(call).status);
    }
    let headers = [("content-type", request.content_type), ("x-scope-orgid", tenant)];
    let answer = server.post(&request.path, &headers, &request.body);
    // What an export could not store it tells with a success.
    let all = request.door != "payload" || answer.body.is_empty();
    format!("{}{}", answer.status, if all || answer.status != 200 { "" } else { " in part" })
}

#[test]
fn files_of_all_profilers_are_found_as_what_they_are_whichever_way_they_come() {
    let folder = data("pprof");
    if !folder.is_dir() {
        return has_no_files();
    }
    if !go::is_available() {
        return report_skipped("no go tool pprof to compare with", "");
    }
    let server = server();
    for &(file, spy, name, types) in FILES {
        let of_types = go::sums(&folder.join(file));
        let expected = |name: &str| -> Totals {
            weighty(types.iter().map(|rest| {
                let value: Vec<&str> = rest.splitn(3, ':').take(2).collect();
                (format!("{name}:{rest}"), of_types[&value.join(":")])
            }))
        };
        for request in requests((file, spy), name, &folder) {
            let tenant = tenant(request.door, file);
            let status = send(&server, &request, &tenant);
            assert!(["200", "grpc 0"].contains(&status.as_str()), "{tenant}: {status}");
            assert_eq!(server.query_totals(&tenant), expected(request.metric.unwrap_or(name)), "{tenant}");
        }
    }
    let statuses: BTreeMap<&str, String> = requests((REFUSED, "gospy"), CPU, &folder)
        .iter()
        .map(|request| (request.door, send(&server, request, &tenant(request.door, REFUSED))))
        .collect();
    let refused = [
        ("body", "422"),
        ("form", "422"),
        ("grpc", "grpc 3"),
        ("json", "400"),
        ("payload", "400"),
        ("push", "400"),
    ];
    assert_eq!(statuses, refused.map(|(door, status)| (door, status.to_owned())).into());
    for door in statuses.keys() {
        assert_eq!(server.query_totals(&tenant(door, REFUSED)), Totals::new(), "{door}");
    }
}
