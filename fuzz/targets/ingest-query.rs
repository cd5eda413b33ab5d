//! Any query of `/ingest`: refused, or rewritten with labels and a time. All other parameters keep their bytes, and
//! no label of the client changes.
#![no_main]

use athanor_agent::receive::ingest_query::IngestQuery;
use athanor_chassis::Timestamp;
use athanor_profile::Labels;
use athanor_profile::labeling::app_name::AppName;
use libfuzzer_sys::fuzz_target;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// Returns the parameters that keep their bytes.
fn other_parameters(query: &str) -> Vec<&str> {
    let is_other = |parameter: &&str| {
        let pair = form_urlencoded::parse(parameter.as_bytes()).next();
        pair.is_none_or(|(name, _)| !matches!(&*name, "name" | "from" | "until"))
    };
    query.split('&').filter(is_other).collect()
}

/// Returns the application as a server reads it.
fn application(query: &str) -> Option<AppName> {
    let name = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "name");
    AppName::parse(&name?.1).ok()
}

fuzz_target!(|text: &str| {
    let Ok(mut query) = IngestQuery::parse(text, NOW) else { return };
    let sent = application(text).expect("a parsed query names an application");
    let added = Labels::new([("pod", "a b,}"), ("zone", "%7B{")].map(|(name, value)| (name.into(), value.into())));
    query.add_labels(&added);
    if !query.has_time() {
        query.set_time(NOW);
    }
    let rewritten = query.into_query();
    // `from` may be new, and is then the last parameter.
    assert_eq!(other_parameters(&rewritten), other_parameters(text));
    let received = application(&rewritten).expect("a rewritten query names an application");
    assert_eq!(received.app, sent.app);
    for (name, value) in &sent.labels {
        assert_eq!(received.labels.get(name), Some(value));
    }
    assert_eq!(received.labels.get("pod"), Some(&sent.labels.get("pod").cloned().unwrap_or("a b__".into())));
    let reread = IngestQuery::parse(&rewritten, NOW).expect("a rewritten query is valid");
    assert!(reread.has_time());
    assert_eq!(reread.into_query(), rewritten);
});
