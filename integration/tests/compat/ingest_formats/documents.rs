//! Documents of speedscope, sent and uploaded by hand.

use athanor_integration::report_skipped;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::ingest_formats::{Totals, data, server, tenant};

/// A document, what it is found by and with, and the same where it is uploaded by hand.
struct File {
    name: &'static str,
    found: (&'static str, i64),
    by_hand: (&'static str, i64),
}

const FILES: [File; 2] = [
    // Fourteen samples of a hundredth of a second each.
    File {
        name: "simple.speedscope.json",
        found: ("process_cpu:cpu:nanoseconds:cpu:nanoseconds", 140_000_000),
        by_hand: ("samples", 14),
    },
    // Fourteen seconds, twice.
    File {
        name: "two-sampled.speedscope.json",
        found: ("wall:wall:nanoseconds:cpu:nanoseconds", 28_000_000_000),
        by_hand: ("wall", 28_000_000_000),
    },
];
const BY_HAND: &str = "adhocprofiles.v1.AdHocProfileService";

/// What is sent here.
pub fn named() -> Vec<String> {
    FILES.iter().map(|file| format!("speedscope/{}", file.name)).collect()
}

#[test]
fn documents_of_speedscope_are_found_with_what_they_weigh() {
    let folder = data("speedscope");
    if !folder.is_dir() {
        return report_skipped("no documents of speedscope at ../shared/data/speedscope", "");
    }
    let server = server();
    for File { name, found: (id, total), by_hand } in FILES {
        let document = std::fs::read(folder.join(name)).unwrap();
        for (door, format) in [("told", ""), ("named", "&format=speedscope")] {
            let tenant = tenant(door, name);
            let path = format!("/ingest?name=app&from=1700000000&until=1700000010{format}");
            let answer = server.post(&path, &[("x-scope-orgid", &tenant)], &document);
            assert_eq!(answer.status, 200, "{tenant}: {}", String::from_utf8_lossy(&answer.body));
            assert_eq!(server.query_totals(&tenant), Totals::from([(id.to_owned(), total)]), "{tenant}");
        }
        let tenant = tenant("hand", name);
        let upload = json!({ "name": name, "profile": STANDARD.encode(&document) });
        let answer = server.call_json(&tenant, &format!("{BY_HAND}/Upload"), &upload);
        let shown = server.call_json(&tenant, &format!("{BY_HAND}/Get"), &json!({ "id": answer["id"] }));
        for answer in [answer, shown] {
            let graph = answer["flamebearerProfile"].as_str().unwrap();
            let graph: Value = serde_json::from_str(graph).unwrap();
            let told = (&answer["profileTypes"], &graph["flamebearer"]["numTicks"]);
            assert_eq!(told, (&json!([by_hand.0]), &json!(by_hand.1)), "{tenant}");
        }
        assert_eq!(server.query_totals(&tenant), Totals::new(), "{tenant}: no query finds it");
    }
}
