//! `athanor query` into files of tables, and `athanor top` of these files.

use athanor_arrow_format::{
    SampleColumns, SampleProfile, SampleValue, SampleWriter, StreamMetadata, TableResponse,
};
use athanor_profile::{Labels, SpanContext};
use athanor_proto::athanor::v1::{FunctionRow, FunctionsRequest, FunctionsResponse, SamplesRequest};
use athanor_proto::querier::v1::SelectSeriesResponse;
use athanor_proto::types::v1::{LabelPair, Point, Series};
use serde_json::Value;
use tempfile::TempDir;

use crate::fake::{Answer, Seen, Server};
use crate::{profile, run};

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const STACKS: [(&str, i64); 3] = [("main;work", 700), ("main;work;hash", 200), ("main;rest", 100)];

fn arrow(stream: Vec<u8>) -> Answer {
    Answer(200, vec![("content-type", "application/vnd.apache.arrow.stream".into())], stream)
}

/// A page with some of the stacks, whose rows have a cursor.
fn page(stacks: &[(&str, i64)], cursor: &'static str) -> Answer {
    let profile = profile(stacks);
    let metadata =
        StreamMetadata { unit: "nanoseconds".into(), profile_type: CPU.into(), ..StreamMetadata::default() };
    let mut writer =
        SampleWriter::new(SampleColumns::default(), &metadata, Box::new(move |_| cursor.into())).unwrap();
    writer.set_warnings(&["block 7 cannot be read".into()]);
    let samples: Vec<SampleValue> = profile
        .samples
        .rows(1)
        .map(|(stack, _, values)| SampleValue { stack, value: values[0], span: SpanContext::default() })
        .collect();
    let labels = Labels::new([("pod".to_owned(), "a".to_owned())]);
    let rows = SampleProfile { id: 1, time: 1_700_000_000_000_000_000, labels: &labels, samples: &samples };
    writer.with_dictionary(&profile.dictionary).write_profile(&rows, 0, u64::MAX).unwrap();
    arrow(writer.finish().unwrap().to_vec())
}

fn samples(request: &Seen, before: usize) -> Answer {
    let request: SamplesRequest = request.read();
    assert_eq!(request.limit, Some(2));
    match (request.cursor.as_str(), before) {
        ("", _) => page(&STACKS[..2], "after two"),
        ("after two", 1) => Answer::error(503, "unavailable", "a node restarts"),
        ("after two", _) => page(&STACKS[2..], "after three"),
        (other, _) => Answer::error(400, "invalid_argument", other),
    }
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn name(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Names of the files in the folder.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect()
    }
}

fn export(url: &str, out: &str) -> (i32, String, String) {
    run(&["query", "samples", "--type", CPU, "-o", out, "--rows-per-request", "2"], url)
}

fn rows(file: &str) -> Value {
    let (code, json, err) = crate::said(&crate::athanor(&["top", file, "--json"], &[]));
    assert_eq!(code, 0, "{err}");
    serde_json::from_str::<Value>(&json).unwrap()["rows"].clone()
}

#[test]
fn export_follows_cursors_until_all_rows_are_there() {
    let folder = Folder::new();
    let original = folder.name("original.txt");
    let folded: Vec<String> = STACKS.iter().map(|(stack, value)| format!("{stack} {value}\n")).collect();
    std::fs::write(&original, folded.concat()).unwrap();
    for name in ["out.arrow", "out.parquet"] {
        let server = Server::start(samples);
        let (code, _, err) = export(&server.url, &folder.name(name));
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("a node restarts") && err.contains("retrying"), "{err}");
        assert_eq!(err.matches("partial response: block 7 cannot be read").count(), 1, "{err}");
        assert_eq!(server.seen().len(), 3);
        assert_eq!(rows(&folder.name(name)), rows(&original), "{name}");
    }
    let (code, ..) = export(&Server::start(samples).url, &folder.name("out.csv"));
    let text = std::fs::read_to_string(folder.name("out.csv")).unwrap();
    assert_eq!((code, text.lines().count()), (0, 4), "{text}");
    assert!(text.contains(",main;work;hash,200,"), "{text}");
}

#[test]
fn failed_export_leaves_no_file() {
    let folder = Folder::new();
    let server = Server::start(|request, _| match request.read::<SamplesRequest>().cursor.as_str() {
        "" => page(&STACKS[..2], "after two"),
        _ => Answer::error(400, "invalid_argument", "cursor expired"),
    });
    let (code, _, err) = export(&server.url, &folder.name("out.parquet"));
    assert!(code != 0 && err.contains("cursor expired"), "{err}");
    assert_eq!(folder.files(), Vec::<String>::new());
}

#[test]
fn response_that_is_no_stream_is_refused() {
    let folder = Folder::new();
    let server = Server::start(|_, _| arrow(b"no arrow at all".to_vec()));
    let (code, _, err) = export(&server.url, &folder.name("out.arrow"));
    assert!(code == 65 && err.contains("arrow stream is invalid"), "{code} {err}");
    let server = Server::start(|_, _| Answer::of(&FunctionsResponse::default()));
    let (_, _, err) = export(&server.url, &folder.name("out.arrow"));
    assert!(err.contains("not application/vnd.apache.arrow.stream"), "{err}");
    assert_eq!(folder.files(), Vec::<String>::new());
}

#[test]
fn unknown_ending_is_a_usage_error() {
    for command in ["samples", "functions", "series"] {
        let (code, _, err) = run(&["query", command, "-o", "out.xlsx"], "http://127.0.0.1:1");
        assert!(code == 64 && err.contains(".arrow, .parquet or .csv"), "{code} {err}");
    }
}

#[test]
fn functions_of_all_pages_are_written() {
    let folder = Folder::new();
    let server = Server::start(|request, _| {
        let page = request.read::<FunctionsRequest>().page.unwrap();
        let name = format!("function \"{}\"", page.offset);
        let file = "work.rs".to_owned();
        let binary = if page.offset == 0 { "/bin/shop".to_owned() } else { String::new() };
        let rows = vec![FunctionRow { name, self_: 1, total: 2, file, binary, ..Default::default() }];
        let response = FunctionsResponse { rows, count: 10_001, ..Default::default() };
        arrow(response.to_table().unwrap().to_stream().unwrap().to_vec())
    });
    let out = folder.name("out.csv");
    let (code, _, err) = run(&["query", "functions", "--type", CPU, "--by", "pod", "-o", &out], &server.url);
    assert_eq!(code, 0, "{err}");
    let text = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "name,self,total,file,binary");
    assert_eq!(lines[1], "\"function \"\"0\"\"\",1,2,work.rs,/bin/shop");
    assert_eq!(lines[2], "\"function \"\"10000\"\"\",1,2,work.rs,");
    assert_eq!(server.seen()[0].read::<FunctionsRequest>().group_by, ["pod"]);
}

#[test]
fn series_are_written_point_by_point() {
    let folder = Folder::new();
    let server = Server::start(|_, _| {
        let point = |timestamp, value| Point { timestamp, value, ..Default::default() };
        let labels = vec![LabelPair { name: "pod".into(), value: "a".into() }];
        let points = vec![point(1_700_000_000_000, 1.5), point(1_700_000_060_000, 2.0)];
        let response = SelectSeriesResponse { series: vec![Series { labels, points }], ..Default::default() };
        arrow(response.to_table().unwrap().to_stream().unwrap().to_vec())
    });
    let out = folder.name("out.csv");
    let (code, _, err) = run(&["query", "series", "--type", CPU, "-o", &out], &server.url);
    assert_eq!(code, 0, "{err}");
    let text = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "labels,time,value");
    assert_eq!(lines[1], "\"{\"\"pod\"\":\"\"a\"\"}\",2023-11-14T22:13:20Z,1.5");
}
