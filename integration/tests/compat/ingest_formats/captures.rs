//! Requests as SDKs have sent them.

use std::collections::BTreeMap;
use std::path::Path;

use athanor_integration::readers::go;
use athanor_integration::report_skipped;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries};
use prost::Message;
use serde_json::Value;

use crate::ingest_formats::{Totals, data, server, tenant, weighty};

/// A request that an SDK has sent.
struct Captured {
    /// Below the folder of all of them, without what a file's name ends in.
    name: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// What is sent here.
pub fn named() -> Vec<String> {
    let of = |folder: &str, head: &str| {
        let requests = captured(&data("captures"), folder, head);
        let files = |request: Captured| [head, ".body"].map(|end| format!("captures/{}{end}", request.name));
        requests.into_iter().flat_map(files).collect::<Vec<_>>()
    };
    [of("", ".head.txt"), of("sdk/", ".json")].concat()
}

/// A head as it was received: its path, and its headers.
fn of_text(head: &str) -> (String, Vec<(String, String)>) {
    let mut lines = head.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    (path.to_owned(), headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The same of a head that was written as JSON.
fn of_json(head: &str) -> (String, Vec<(String, String)>) {
    let head: Value = serde_json::from_str(head).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let headers = head["headers"].as_array().unwrap();
    (text(&head["path"]), headers.iter().map(|pair| (text(&pair[0]), text(&pair[1]))).collect())
}

/// Requests beside which their heads lie, in files whose names end in `head`. Exports of OpenTelemetry are sent elsewhere.
fn captured(captures: &Path, folder: &str, head: &str) -> Vec<Captured> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(captures.join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = name.strip_suffix(head).map(|name| format!("{folder}{name}")) else { continue };
        let text = std::fs::read_to_string(&path).unwrap();
        let (path, headers) = if head == ".json" { of_json(&text) } else { of_text(&text) };
        if path.starts_with("/v1development") {
            continue;
        }
        let headers = headers.into_iter().map(|(name, value)| (name.to_lowercase(), value));
        let headers =
            headers.filter(|(name, _)| ["content-type", "content-encoding"].contains(&name.as_str()));
        let (headers, body) =
            (headers.collect(), std::fs::read(captures.join(format!("{name}.body"))).unwrap());
        all.push(Captured { name, path, headers, body });
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// The profiles in a request, and what they are called.
fn profiles(request: &Captured) -> Vec<(String, Vec<u8>)> {
    if request.path.starts_with("/ingest") {
        return vec![(String::new(), request.body.clone())];
    }
    let inflated = athanor_profile::formats::pprof::inflate(&request.body, 1 << 24).unwrap();
    let push = PushRequest::decode(inflated.as_ref()).unwrap();
    let of_series = |series: RawProfileSeries| {
        let name = series.labels.into_iter().find(|label| label.name == "__name__");
        let name = name.unwrap().value;
        series.samples.into_iter().map(move |sample| (name.clone(), sample.raw_profile.to_vec()))
    };
    push.series.into_iter().flat_map(of_series).collect()
}

#[test]
fn what_sdks_have_sent_is_taken_and_found() {
    let folder = data("captures");
    if !folder.is_dir() {
        return report_skipped("no captured requests at ../shared/data/captures", "");
    }
    if !go::is_available() {
        return report_skipped("no go tool pprof to compare with", "");
    }
    let server = server();
    let mut requests = captured(&folder, "", ".head.txt");
    requests.extend(captured(&folder, "sdk/", ".json"));
    assert!(requests.len() >= 17, "{} requests", requests.len());
    for request in &requests {
        let tenant = tenant("sent", &request.name);
        let headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<(&str, &str)> = headers.chain([("x-scope-orgid", tenant.as_str())]).collect();
        let answer = server.post(&request.path, &headers, &request.body);
        assert_eq!(answer.status, 200, "{tenant}: {}", String::from_utf8_lossy(&answer.body));
        let mut expected = Totals::new();
        for (name, profile) in profiles(request) {
            let sums = go::sums_of(&profile);
            let name = match name.as_str() {
                "" if sums.contains_key("wall:nanoseconds") => "wall",
                "" => "memory",
                name => name,
            };
            sums.iter().for_each(|(kind, sum)| *expected.entry(format!("{name}:{kind}")).or_default() += sum);
        }
        // The period of a type is not among what the other reader says.
        let by_value =
            |(id, total): (String, i64)| (id.splitn(4, ':').take(3).collect::<Vec<_>>().join(":"), total);
        let found = server.query_totals(&tenant).into_iter().map(by_value);
        assert_eq!(found.collect::<Totals>(), weighty(expected), "{tenant}");
    }
}
