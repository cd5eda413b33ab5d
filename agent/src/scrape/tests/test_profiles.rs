//! Profiles and targets for tests.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use athanor_profile::Labels;
use athanor_proto::google::v1::{Function, Line, Location, Profile, Sample, ValueType};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::scrape_target::{HttpClientSettings, ProfileKind, ScrapeJob, ScrapeTarget};

pub(super) fn pprof(time_nanos: i64) -> Vec<u8> {
    let texts = ["", "cpu", "nanoseconds", "main.work"];
    let profile = Profile {
        sample_type: vec![ValueType { r#type: 1, unit: 2 }],
        sample: vec![Sample { location_id: vec![1], value: vec![10_000_000], ..Sample::default() }],
        location: vec![Location {
            id: 1,
            line: vec![Line { function_id: 1, line: 3, ..Line::default() }],
            ..Location::default()
        }],
        function: vec![Function { id: 1, name: 3, ..Function::default() }],
        string_table: texts.iter().map(|&text| text.into()).collect(),
        time_nanos,
        duration_nanos: 1_000_000_000,
        period: 10_000_000,
        ..Profile::default()
    };
    profile.encode_to_vec()
}

pub(super) fn pprof_without_time() -> Vec<u8> {
    pprof(0)
}

pub(super) fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn kind(name: &str, seconds: Option<u32>) -> ProfileKind {
    ProfileKind {
        name: name.to_owned(),
        metric_name: name.to_owned(),
        path: format!("/debug/pprof/{name}"),
        params: vec![],
        seconds,
        is_cumulative: matches!(name, "memory" | "mutex" | "block"),
    }
}

/// Kinds that are scraped by default, with an interval of 15 s.
pub(super) fn default_kinds() -> Vec<ProfileKind> {
    let mut kinds = vec![kind("process_cpu", Some(14))];
    kinds.extend(["memory", "goroutine", "mutex", "block"].map(|name| kind(name, None)));
    kinds
}

pub(super) fn job(interval: Duration, timeout: Duration) -> Arc<ScrapeJob> {
    Arc::new(ScrapeJob {
        name: "test".to_owned(),
        interval,
        timeout,
        tenant: None,
        http: HttpClientSettings::default(),
        max_body_bytes: 64 << 20,
    })
}

pub(super) fn target(job: &Arc<ScrapeJob>, instance: &str, kinds: Vec<ProfileKind>) -> ScrapeTarget {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    ScrapeTarget {
        job: Arc::clone(job),
        scheme: "http".to_owned(),
        address: instance.to_owned(),
        kinds,
        labels: Labels::new([pair("instance", instance), pair("service_name", "shop")]),
        discovered: Labels::new([pair("__address__", instance)]),
        is_address_untrusted: false,
    }
}
