//! Flight recordings of Java, through each door that takes them.

use athanor_integration::bodies::{FORM_CONTENT_TYPE, multipart_form};
use athanor_integration::readers::jdk;
use athanor_integration::report_skipped;
use athanor_profile::formats::pprof::inflate;

use crate::ingest_formats::profiles::payload;
use crate::ingest_formats::{data, server, tenant};

/// Recordings, and the labels that came with them.
const FILES: [(&str, Option<&str>); 4] = [
    ("cortex-dev-01__kafka-0__cpu__0.jfr.gz", None),
    ("cortex-dev-01__kafka-0__cpu_lock_alloc__0.jfr.gz", None),
    ("dump1.jfr.gz", Some("dump1.labels.pb.gz")),
    ("jdk17-spin.jfr", None),
];
/// What is sent here.
pub fn named() -> Vec<String> {
    let files = FILES.iter().flat_map(|(file, labels)| [Some(*file), *labels]);
    files.flatten().map(|file| format!("jfr/{file}")).collect()
}

#[test]
fn recordings_are_found_with_what_the_jdk_says_whichever_way_they_come() {
    let folder = data("jfr");
    if !folder.is_dir() {
        return report_skipped("no flight recordings at ../shared/data/jfr", "");
    }
    if !jdk::is_available() {
        return report_skipped("no JDK to compare flight recordings with", "");
    }
    let (server, elsewhere) = (server(), tempfile::tempdir().unwrap());
    let plain = elsewhere.path().join("plain.jfr");
    for (file, labels) in FILES {
        let recording = std::fs::read(folder.join(file)).unwrap();
        std::fs::write(&plain, inflate(&recording, 1 << 30).unwrap()).unwrap();
        let expected = jdk::totals_by_type(&jdk::read_totals(&plain));
        assert!(!expected.is_empty(), "{file}");
        let labels = labels.map(|labels| std::fs::read(folder.join(labels)).unwrap());
        let mut parts: Vec<(&str, &[u8])> = vec![("jfr", &recording)];
        parts.extend(labels.iter().map(|labels| ("labels", &labels[..])));
        let ingest = "/ingest?name=app&format=jfr&from=1700000000&until=1700000010";
        let doors = [
            ("body", ingest, "application/octet-stream", recording.clone()),
            ("form", ingest, FORM_CONTENT_TYPE, multipart_form(&parts)),
            ("payload", "/v1development/profiles", "application/x-protobuf", payload("jfr", &recording)),
        ];
        for (door, path, content_type, body) in doors {
            let tenant = tenant(door, file);
            let headers = [("content-type", content_type), ("x-scope-orgid", &tenant)];
            let answer = server.post(path, &headers, &body);
            assert_eq!(answer.status, 200, "{tenant}: {}", String::from_utf8_lossy(&answer.body));
            assert_eq!(server.query_totals(&tenant), expected, "{tenant}");
        }
    }
}
