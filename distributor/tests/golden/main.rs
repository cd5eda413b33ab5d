//! What existing clients send, answered as they know it: recorded uploads with the statuses that another server
//! gave, and what its readers saw of them afterwards; whole requests of unmodified SDKs.

mod describe;
mod recorder;
mod recordings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use athanor_chassis::{Clock, ComputePool, LimitOverrides, Random, Status, TenantId, TenantLimits};
use athanor_distributor::{Distributor, DistributorConfig, DistributorDeps, PushSummary};
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use recorder::Recorder;
use serde_json::{Value, json};

/// Cases of exports of OpenTelemetry, which are not sent here: `golden` of the whole server does.
const OTHER_FORMATS: [&str; 2] = ["otlp", "unknown_service:"];

struct House {
    distributor: Distributor,
    recorder: Arc<Recorder>,
}

impl House {
    fn new() -> Self {
        Self::with(DistributorConfig::default(), TenantLimits::default())
    }
    fn with(config: DistributorConfig, limits: TenantLimits) -> Self {
        let recorder = Arc::new(Recorder::default());
        let deps = DistributorDeps {
            overrides: LimitOverrides::new(limits),
            clock: Clock::system(),
            random: Random::from_seed(1),
            compute: ComputePool::inline(),
            shards: Arc::clone(&recorder) as _,
        };
        House { distributor: Distributor::new(config, deps), recorder }
    }
    async fn ingest(&self, query: &str, content_type: Option<&str>, body: Vec<u8>) -> (Value, String) {
        let tenant = TenantId::anonymous();
        match self.distributor.ingest(&tenant, query, content_type, body.into()).await {
            Ok(_) => (json!({"status": 200}), String::new()),
            Err(refused) => (json!({"status": refused.http, "code": refused.code}), refused.to_string()),
        }
    }
    async fn push(&self, request: PushRequest) -> (Value, String) {
        let answer: Result<PushSummary, Status> =
            self.distributor.push(&TenantId::anonymous(), request).await;
        match answer {
            Ok(_) => (json!({"status": 200}), String::new()),
            Err(status) => (
                json!({"status": status.code.http_status(), "code": status.code.connect_code()}),
                status.message,
            ),
        }
    }
    /// Sends an upload or a case that writes; nothing for one that is not for this door.
    async fn send(&self, spec: &Value, base: i64) -> Option<(Value, String)> {
        if !spec["push"].is_null() {
            return Some(self.push(describe::push(&spec["push"], base)).await);
        }
        if spec["path"] == "/push.v1.PusherService/Push" || spec["json"]["series"].is_array() {
            return Some(self.push(from_json(&spec["json"])).await);
        }
        if !spec["path"].as_str()?.ends_with("/ingest") || spec["method"].as_str() != Some("POST") {
            return None;
        }
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in spec["query"].as_object().into_iter().flatten() {
            query.append_pair(name, &describe::fill(value.as_str().unwrap_or_default(), base));
        }
        let (body, content_type) = describe::body(spec, base)?;
        Some(self.ingest(&query.finish(), content_type.as_deref(), body).await)
    }
}

fn from_json(request: &Value) -> PushRequest {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let sample = |sample: &Value| RawSample {
        raw_profile: zeros(&text(&sample["rawProfile"])).into(),
        id: text(&sample["ID"]),
    };
    let pair = |pair: &Value| LabelPair { name: text(&pair["name"]), value: text(&pair["value"]) };
    let series = items(&request["series"]).into_iter().map(|series| RawProfileSeries {
        labels: items(&series["labels"]).iter().map(pair).collect(),
        samples: items(&series["samples"]).iter().map(sample).collect(),
        annotations: Vec::new(),
    });
    PushRequest { series: series.collect() }
}

/// The one base64 text that scenarios have.
fn zeros(base64: &str) -> Vec<u8> {
    assert!(base64.bytes().all(|byte| byte == b'A'), "{base64}");
    vec![0; base64.len() / 4 * 3]
}

fn shared(folder: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(folder);
    path.is_dir().then_some(path)
}

struct Scenario {
    uploads: Vec<Value>,
    cases: Vec<Value>,
    expected: BTreeMap<String, Value>,
    /// Unix seconds.
    base: i64,
}

fn scenario(name: &str, base: i64) -> Option<Scenario> {
    let Some(folder) = shared("golden") else {
        println!("skip: no recorded answers at ../shared/data/golden");
        return None;
    };
    let read = |file: &str| std::fs::read_to_string(folder.join(name).join(file)).expect("readable");
    let scenario = describe::scenario(&read("scenario.json"));
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let expected = serde_json::from_str(&read("expected.json")).expect("answers are JSON");
    Some(Scenario { uploads: items(&scenario["uploads"]), cases: items(&scenario["cases"]), expected, base })
}

/// Whether an answer is the recorded one, or what is right where that is a defect.
fn is_right(answer: &Value, expected: &Value, case: &Value) -> bool {
    let same = |wanted: &Value| answer["status"] == wanted["status"] && answer["code"] == wanted["code"];
    match &case["right"] {
        Value::Null => same(expected),
        Value::Array(all) => all.iter().any(same),
        Value::String(any) => any == "any",
        right => same(right),
    }
}

impl Scenario {
    /// Sends all uploads and all cases that write. Says how many were checked, and what was wrong.
    async fn run(&self, house: &House) -> (usize, Vec<String>) {
        let named = self.uploads.iter().enumerate().map(|(at, upload)| (format!("upload/{at:02}"), upload));
        let writing = self.cases.iter().filter(|case| {
            let path = case["path"].as_str().unwrap_or_default();
            case["writes"] == json!(true) || path.ends_with("/ingest")
        });
        let writing = writing.map(|case| (case["name"].as_str().expect("a name").to_owned(), case));
        let (mut checked, mut wrong) = (0, Vec::new());
        for (name, spec) in named.chain(writing) {
            let Some((answer, message)) = house.send(spec, self.base).await else { continue };
            let expected = self.expected.get(&name).unwrap_or_else(|| panic!("{name} has no answer"));
            checked += 1;
            if !is_right(&answer, expected, spec) {
                wrong.push(format!("{name}: {answer} {message:?}, not {expected}"));
            }
        }
        (checked, wrong)
    }

    /// What readers see of the uploads.
    fn seen(&self, house: &House) -> (usize, Vec<String>) {
        let (mut checked, mut wrong) = (0, Vec::new());
        for case in &self.cases {
            let name = case["name"].as_str().expect("a name");
            let request = &case["request"];
            let selector =
                request["labelSelector"].as_str().or(request["matchers"][0].as_str()).unwrap_or_default();
            let service = selector.strip_prefix("{service_name=\"").and_then(|rest| rest.strip_suffix("\"}"));
            let Some(service) = service.filter(|_| !OTHER_FORMATS.iter().any(|other| name.contains(other)))
            else {
                continue;
            };
            // Where the recorded answer is a defect the right one is known, or that it is another.
            let right = &case["right"];
            if right == "any" {
                continue;
            }
            let answer = if right.is_null() { &self.expected[name]["answer"] } else { &right["answer"] };
            let (seen, expected) = match case["rpc"].as_str() {
                Some("Series") => (json!(house.recorder.series(service)), answer.clone()),
                Some("SelectMergeStacktraces") => {
                    let profile_type = request["profileTypeID"].as_str().expect("a type");
                    (
                        json!(house.recorder.graph(service, profile_type)),
                        answer["flamegraph"]["nodes"].clone(),
                    )
                }
                Some("SelectSeries") => {
                    let millis = |nanos: i64| nanos.div_euclid(1_000_000);
                    let points = house.recorder.of(service).into_iter();
                    let points: Vec<Value> = points
                        .map(|record| json!([millis(record.time_nanos), record.stacks.values().sum::<i64>()]))
                        .collect();
                    (json!({"": points}), answer.clone())
                }
                _ => continue,
            };
            checked += 1;
            if seen != expected {
                wrong.push(format!("{name}: {seen}, not {expected}"));
            }
        }
        (checked, wrong)
    }
}

#[tokio::test]
async fn every_format_of_ingest_becomes_what_readers_know() {
    let Some(scenario) = scenario("ingest", 1_772_618_400) else { return };
    let house = House::new();
    let (sent, wrong) = scenario.run(&house).await;
    assert_eq!(wrong, [""; 0]);
    let (seen, wrong) = scenario.seen(&house);
    assert_eq!(wrong, [""; 0]);
    println!("{sent} uploads and {seen} answers about them are right");
    assert!(sent >= 100 && seen >= 200, "{sent} {seen}");
}

#[tokio::test]
async fn what_is_refused_is_refused_in_known_words() {
    let Some(scenario) = scenario("errors", 1_772_532_000) else { return };
    let house = House::new();
    let (sent, wrong) = scenario.run(&house).await;
    assert_eq!(wrong, [""; 0]);
    println!("{sent} answers are right");
    assert!(sent >= 95, "{sent}");
    assert_eq!(house.recorder.of("ge-part-good").len(), 1, "what is good in a request is stored");
    assert_eq!(house.recorder.of("unknown_service").len(), 1);
}

#[tokio::test]
async fn every_encoding_is_taken() {
    let Some(scenario) = scenario("wire", 1_772_704_800) else { return };
    let house = House::new();
    let (sent, wrong) = scenario.run(&house).await;
    assert_eq!(wrong, [""; 0]);
    assert!(sent >= 7, "{sent}");
}

#[tokio::test]
async fn requests_of_unmodified_sdks_are_taken() {
    let Some(folder) = shared("captures") else {
        println!("skip: no captured requests at ../shared/data/captures");
        return;
    };
    let house = House::new();
    let mut sent = 0;
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        let Some(stem) = path.to_str().and_then(|path| path.strip_suffix(".head.txt")) else { continue };
        let head = std::fs::read_to_string(&path).expect("readable");
        let target = head.split(' ').nth(1).expect("a request line");
        let Some(query) = target.strip_prefix("/ingest?") else { continue };
        let header = |line: &str| line.to_ascii_lowercase().strip_prefix("content-type: ").map(str::to_owned);
        let content_type = head.lines().find_map(header);
        let body = std::fs::read(format!("{stem}.body")).expect("readable");
        let (answer, message) = house.ingest(query, content_type.as_deref(), body).await;
        assert_eq!(answer, json!({"status": 200}), "{stem}: {message}");
        sent += 1;
    }
    assert!(sent >= 5, "{sent}");
    let series = house.recorder.series("probe.node");
    assert!(
        series.iter().any(|labels| labels.contains("wall:cpu:nanoseconds:wall:nanoseconds")),
        "{series:?}"
    );
    assert!(series.iter().any(|labels| labels.contains("memory:inuse_space:bytes:inuse_space:bytes")));
}

/// A profile as it lies in the corpus, sent as a form.
fn corpus_form(folder: &Path, file: &str, config: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file) in [("profile", file), ("sample_type_config", config)] {
        if !file.is_empty() {
            body.extend(
                format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").into_bytes(),
            );
            body.extend(std::fs::read(folder.join(file)).expect("readable"));
            body.extend(b"\r\n");
        }
    }
    body.extend(b"--b--\r\n");
    body
}

#[tokio::test]
async fn profiles_of_many_languages_get_the_types_that_readers_ask_for() {
    let Some(folder) = shared("pprof") else {
        println!("skip: no corpus of real profiles at ../shared/data/pprof");
        return;
    };
    let cpu = "process_cpu:cpu:nanoseconds:cpu:nanoseconds process_cpu:samples:count:cpu:nanoseconds";
    let heap = "memory:alloc_objects:count:space:bytes memory:alloc_space:bytes:space:bytes \
                memory:inuse_objects:count:space:bytes memory:inuse_space:bytes:space:bytes";
    for (file, config, spy, expected) in [
        ("go-heap.pb.gz", "", "gospy", heap),
        ("sdk-go-heap.pb.gz", "", "gospy", heap),
        ("sdk-go-cpu.pb.gz", "", "gospy", cpu),
        ("go-cpu-labels.pb.gz", "", "gospy", cpu),
        (
            "sdk-js-cpu.pb.gz",
            "",
            "nodespy",
            "wall:sample:count:wall:microseconds wall:wall:microseconds:wall:microseconds",
        ),
        (
            "sdk-js-heap.pb.gz",
            "",
            "nodespy",
            "memory:objects:count:space:bytes memory:space:bytes:space:bytes",
        ),
        (
            "nodejs-heap.pb.gz",
            "",
            "nodespy",
            "memory:inuse_objects:count:inuse_space:bytes memory:inuse_space:bytes:inuse_space:bytes",
        ),
        (
            "nodejs-wall.pb.gz",
            "",
            "nodespy",
            "wall:samples:count:wall:microseconds wall:wall:microseconds:wall:microseconds",
        ),
        ("req_2.pprof", "req_2.st.json", "gospy", "goroutines:goroutine:count:goroutine:count"),
        (
            "req_3.pprof",
            "req_3.st.json",
            "gospy",
            "block:contentions:count:contentions:count block:delay:nanoseconds:contentions:count",
        ),
        ("pyspy-1.pb.gz", "", "pyspy", "process_cpu:samples:count::milliseconds"),
        ("java.pb.gz", "", "javaspy", "process_cpu:cpu:nanoseconds:cpu:nanoseconds"),
    ] {
        let house = House::new();
        let body = corpus_form(&folder, file, config);
        let query = format!("name=app&spyName={spy}");
        let (answer, message) = house.ingest(&query, Some("multipart/form-data; boundary=b"), body).await;
        assert_eq!(answer, json!({"status": 200}), "{file}: {message}");
        let records = house.recorder.of("app");
        let types: std::collections::BTreeSet<&str> =
            records.iter().map(|record| record.profile_type.as_str()).collect();
        assert_eq!(types.into_iter().collect::<Vec<_>>().join(" "), expected, "{file}");
    }
    let house = House::new();
    let body = corpus_form(&folder, "invalid_utf8.pb.gz", "");
    let (answer, _) = house.ingest("name=app", Some("multipart/form-data; boundary=b"), body).await;
    assert_eq!(answer["status"], json!(422));
}
