//! Any text as an application's name and as a query string: refused, or a name that reads the same when written.
#![no_main]

use athanor_chassis::Timestamp;
use athanor_distributor::{IngestRequest, IngestRequestError};
use athanor_profile::labeling::app_name::AppName;
use libfuzzer_sys::fuzz_target;

/// The text as the value of each parameter, escaped as clients do it.
fn escaped(text: &str, now: Timestamp) {
    let query = |names: &[&str]| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(names.iter().map(|name| (name, text))).finish()
    };
    let request = IngestRequest::parse(&query(&["name"]), None, now).map(|request| request.name);
    assert_eq!(request, AppName::parse(text).map_err(IngestRequestError::Name));
    let others = query(&["from", "until", "units", "aggregationType", "sampleRate", "format", "spyName"]);
    let request =
        IngestRequest::parse(&format!("name=a&{others}"), None, now).expect("only the name is refused");
    assert_eq!((request.name.app.as_str(), request.duration), ("a", 0));
    assert!(text.is_empty() || request.spy == text);
}

fuzz_target!(|text: &str| {
    let now = Timestamp::from_seconds(1_800_000_000);
    for content_type in [None, Some("multipart/form-data; boundary=b"), Some(text)] {
        if let Ok(request) = IngestRequest::parse(text, content_type, now) {
            assert!(request.duration >= 0 && !request.spy.is_empty() && request.sample_rate <= 1_000_000_000);
        }
    }
    escaped(text, now);
    let Ok(name) = AppName::parse(text) else { return };
    // A label named __name__ may put any text in the name's place.
    let Ok(plain) = AppName::parse(&name.app) else { return };
    let labels: Vec<String> = name.labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
    let written = format!("{}{{{}}}", plain.app, labels.join(","));
    let again = AppName::parse(&written).expect("what was written reads");
    assert_eq!(again.labels, name.labels);
});
