//! Flight recordings: sent as a body and as agents send them, in a form with labels beside them.

use std::collections::BTreeMap;

use athanor_chassis::{TenantId, TenantLimits};
use athanor_distributor::DistributorConfig;
use athanor_profile::generate::{FLIGHT_START_NANOS, FlightChunk, FlightEvent};
use serde_json::json;

use super::{House, shared};
use athanor_profile::data_model::dropped_counts::DropReason;
use athanor_profile::formats::pprof::gzip;

const FORM: Option<&str> = Some("multipart/form-data; boundary=b");

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

impl House {
    async fn status(&self, query: &str, content_type: Option<&str>, body: Vec<u8>) -> (u64, String) {
        let (answer, message) = self.ingest(query, content_type, body).await;
        (answer["status"].as_u64().expect("a status"), message)
    }

    /// Sums by metric and type.
    fn sums(&self, service: &str) -> BTreeMap<String, i64> {
        let mut sums = BTreeMap::new();
        for record in self.recorder.of(service) {
            *sums.entry(record.profile_type.clone()).or_default() += record.stacks.values().sum::<i64>();
        }
        sums
    }
}

fn recorded() -> Vec<u8> {
    let event = |name, number| FlightEvent {
        name,
        stack: vec![("App".into(), "work".into(), 3), ("App".into(), "main".into(), 1)],
        numbers: vec![("contextId", 1), number],
        ..FlightEvent::default()
    };
    let setting = FlightEvent {
        name: "jdk.ActiveSetting",
        texts: vec![("name", "event".into()), ("value", "itimer".into())],
        ..FlightEvent::default()
    };
    let events = vec![
        setting,
        event("jdk.ExecutionSample", ("startTime", 0)),
        event("jdk.ObjectAllocationSample", ("weight", 70)),
    ];
    FlightChunk { compressed: true, ticks: 1_000_000_000, events }.chunk()
}

#[tokio::test]
async fn a_recording_is_taken_alone_and_in_a_form() {
    let raw = recorded();
    // The context 1 has the label that text 2 names, with text 3 for its value.
    let labels = b"\x0a\x0a\x08\x01\x12\x06\x0a\x04\x08\x02\x10\x03\x12\x08\x08\x02\x12\x04zone\x12\x06\x08\x03\x12\x02eu";
    for (service, content_type, body, zone) in [
        ("alone", None, raw.clone(), ""),
        ("packed", None, gzip(&raw), ""),
        ("formed", FORM, form(&[("jfr", &raw)]), ""),
        ("labelled", FORM, form(&[("jfr", &gzip(&raw)), ("labels", &gzip(labels))]), "zone=eu,"),
        ("plain", FORM, form(&[("labels", labels), ("jfr", &raw)]), "zone=eu,"),
    ] {
        let house = House::new();
        let query = format!("name={service}%7Bpod%3Dp%7D&format=jfr&spyName=javaspy");
        assert_eq!(house.status(&query, content_type, body).await, (200, String::new()), "{service}");
        let expected = [
            ("memory:alloc_sample_bytes:bytes:space:bytes", 70),
            ("memory:alloc_sample_objects:count:space:bytes", 1),
            ("process_cpu:cpu:nanoseconds:cpu:nanoseconds", 10_000_000),
        ];
        assert_eq!(house.sums(service), expected.map(|(name, sum)| (name.to_owned(), sum)).into());
        for record in house.recorder.of(service) {
            let labels = record.labels.to_string().replace('"', "").replace(", ", ",");
            let metric = record.labels.get("__name__").expect("every series has one");
            let expected = format!(
                "{{__name__={metric},jfr_event=itimer,pod=p,pyroscope_spy=javaspy,service_name={service},{zone}}}"
            );
            assert_eq!(labels, expected.replace(",}", "}"));
            assert_eq!(record.time_nanos as u64, FLIGHT_START_NANOS);
        }
    }
}

#[tokio::test]
async fn what_a_client_says_of_its_recording_counts() {
    let house = House::new();
    let answer =
        "name=app%7Bservice_name%3Dshop%7D&format=jfr&from=1800000100&until=1800000110&sampleRate=50";
    assert_eq!(house.status(answer, None, recorded()).await.0, 200);
    let records = house.recorder.of("shop");
    assert!(records.iter().all(|record| record.labels.get("app_name") == Some("app")));
    assert!(records.iter().all(|record| record.time_nanos == 1_800_000_100_000_000_000));
    assert_eq!(house.sums("shop")["process_cpu:cpu:nanoseconds:cpu:nanoseconds"], 20_000_000);
}

#[tokio::test]
async fn what_is_no_recording_is_refused_in_words() {
    let house = House::new();
    let raw = recorded();
    let idle = FlightChunk { compressed: true, ticks: 1, events: Vec::new() }.chunk();
    for (content_type, body, status, said) in [
        (None, Vec::new(), 200, ""),
        (None, idle, 200, ""),
        (None, b"hello".to_vec(), 422, "not a flight recording: it does not begin with FLR"),
        (None, raw[..90].to_vec(), 422, "flight recording is truncated at byte 90"),
        (None, b"\x1f\x8bx".to_vec(), 422, "flight recording: gzip stream is damaged"),
        (FORM, form(&[("profile", &raw)]), 422, "form has no part jfr; send the recording in a part"),
        (FORM, form(&[("jfr", b"")]), 200, ""),
        (
            FORM,
            form(&[("jfr", &raw), ("labels", b"\x0a\x05")]),
            422,
            "labels of the flight recording are damaged",
        ),
        (
            FORM,
            form(&[("jfr", &raw), ("labels", &gzip(&vec![0; (16 << 20) + 1]))]),
            422,
            "labels of the flight recording: 16777217 bytes, the limit is 16777216, which no setting changes: set fewer",
        ),
    ] {
        let (seen, message) = house.status("name=app&format=jfr", content_type, body).await;
        assert!(seen == status && message.contains(said), "{seen} {message}, not {status} {said}");
    }
}

/// A recording of threads on so many lines, and of two allocations.
fn on_lines(lines: u32, weights: [u64; 2]) -> Vec<u8> {
    let on = |line| vec![("App".to_owned(), "work".to_owned(), line)];
    let running = (1..=lines).map(|line| FlightEvent {
        name: "jdk.ExecutionSample",
        stack: on(line),
        ..FlightEvent::default()
    });
    let allocated = weights.map(|weight| FlightEvent {
        name: "jdk.ObjectAllocationSample",
        stack: on(1),
        numbers: vec![("weight", weight)],
        ..FlightEvent::default()
    });
    let events = running.chain(allocated).collect();
    FlightChunk { compressed: true, ticks: 1_000_000_000, events }.chunk()
}

#[tokio::test]
async fn a_kind_that_is_over_a_limit_is_refused_alone_and_by_its_name() {
    let limits = || TenantLimits { max_profile_stacktrace_samples: 2, ..TenantLimits::default() };
    let house = House::with(DistributorConfig::default(), limits());
    let (status, said) = house.status("name=app&format=jfr", None, on_lines(3, [5, 6])).await;
    assert_eq!(
        said,
        "1 of 2 profiles are not stored; series 1, profile 1 (cpu): profile cpu of the flight recording has 3 samples, \
         the limit is 2 (limits.max_profile_stacktrace_samples, and no more than one for 96 bytes of \
         limits.max_profile_size_bytes): record for a shorter time; stored: series 1 profile 2 (alloc_sample_objects)"
    );
    assert_eq!(status, 400);
    assert_eq!(house.sums("app")["memory:alloc_sample_bytes:bytes:space:bytes"], 11);
    let (_, counts) = house.distributor.stats().snapshot().remove(0);
    assert_eq!((counts.profiles, counts.new, counts.refused["samples_limit"].profiles), (2, 1, 1));

    let house = House::new();
    let most = on_lines(3, [u64::MAX >> 1, 1]);
    let (status, said) = house.status("name=app&format=jfr", None, most).await;
    assert_eq!(status, 422);
    let overflow =
        "values of profile alloc_sample_objects of the flight recording add up to over 63 bits: record for";
    assert!(said.contains(overflow) && said.ends_with("stored: series 1 profile 1 (cpu)"), "{said}");
}

#[tokio::test]
async fn there_are_no_more_profiles_in_a_recording_than_in_a_request() {
    let config = DistributorConfig { max_profiles_per_request: 1, ..DistributorConfig::default() };
    let house = House::with(config, TenantLimits::default());
    let (status, said) = house.status("name=app&format=jfr", None, on_lines(1, [1, 2])).await;
    let expected = "request has 2 profiles, the limit is 1 (distributor.max_profiles_per_request)";
    assert!(status == 413 && said.starts_with(expected), "{status} {said}");
    assert!(house.recorder.of("app").is_empty());
}

#[tokio::test]
async fn samples_without_a_stack_are_told_as_left_out() {
    let house = House::new();
    let bare = |name| FlightEvent { name, ..FlightEvent::default() };
    let events = vec![bare("jdk.ExecutionSample"), bare("profiler.LiveObject")];
    let events = FlightChunk { compressed: true, ticks: 1, events }.chunk();
    let body = [on_lines(2, [3, 4]), events].concat();
    let receipt =
        house.distributor.ingest(&TenantId::anonymous(), "name=app&format=jfr", None, body.into()).await;
    let receipt = receipt.unwrap();
    assert_eq!((receipt.new, receipt.empty, receipt.dropped.get(DropReason::MissingStack)), (2, 1, 2));
    let (_, counts) = house.distributor.stats().snapshot().remove(0);
    assert!(counts.dropped.counts().contains(&("samples_without_stack", 2)));
}

#[tokio::test]
async fn recordings_of_async_profiler_and_of_the_jdk_give_what_others_count_in_them() {
    let Some(folder) = shared("jfr") else {
        println!("skip: no flight recordings at ../shared/data/jfr");
        return;
    };
    let read = |file: &str| std::fs::read(folder.join(file)).expect("readable");
    let cpu = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
    let buffer = |what: &str| format!("memory:alloc_in_new_tlab_{what}:space:bytes");
    let sampled = |what: &str| format!("memory:alloc_sample_{what}:space:bytes");
    // As `jfr print` of the JDK counts them.
    for (file, event, sums) in [
        ("cortex-dev-01__kafka-0__cpu__0.jfr.gz", Some("cpu"), vec![(cpu.to_owned(), 4_780_000_000)]),
        (
            "cortex-dev-01__kafka-0__cpu_lock_alloc__0.jfr.gz",
            Some("cpu"),
            vec![
                (buffer("bytes:bytes"), 1_606_418_432),
                (buffer("objects:count"), 766),
                (cpu.to_owned(), 5_540_000_000),
            ],
        ),
        (
            "jdk17-spin.jfr",
            None,
            vec![
                (sampled("bytes:bytes"), 105_219_288),
                (sampled("objects:count"), 133),
                (cpu.to_owned(), 1_220_000_000),
            ],
        ),
    ] {
        let house = House::new();
        let answer = house.status("name=app&format=jfr", FORM, form(&[("jfr", &read(file))])).await;
        assert_eq!(answer, (200, String::new()), "{file}");
        assert_eq!(house.sums("app"), sums.into_iter().collect(), "{file}");
        assert!(house.recorder.of("app").iter().all(|record| record.labels.get("jfr_event") == event));
    }
    let house = House::new();
    let (jfr, labels) = (read("dump1.jfr.gz"), read("dump1.labels.pb.gz"));
    let body = form(&[("jfr", &jfr), ("labels", &labels)]);
    assert_eq!(house.status("name=app&format=jfr", FORM, body).await, (200, String::new()));
    let mut threads: BTreeMap<String, i64> = BTreeMap::new();
    for record in house.recorder.of("app") {
        let thread = record.labels.get("thread_name").unwrap_or_default().to_owned();
        *threads.entry(thread).or_default() += record.stacks.values().sum::<i64>() / 10_000_000;
    }
    let expected = json!({ "": 1230, "pool-2-thread-1": 471, "pool-2-thread-3": 168, "pool-2-thread-5": 104,
        "pool-2-thread-7": 215 });
    assert_eq!(json!(threads), expected);
    let graph = house.recorder.graph("app", cpu);
    let own =
        graph.iter().filter(|(path, _)| path.ends_with(";App.fib")).map(|(_, values)| values[1]).sum::<i64>();
    assert_eq!(own, 20_850_000_000);
}
