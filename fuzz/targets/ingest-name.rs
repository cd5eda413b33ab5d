//! Any text as an application's name and as a query string: refused, or a name that reads the same when written.
#![no_main]

use athanor_chassis::Timestamp;
use athanor_distributor::{AppName, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let now = Timestamp::from_seconds(1_800_000_000);
    for content_type in [None, Some("multipart/form-data; boundary=b"), Some(text)] {
        if let Ok(request) = Request::parse(text, content_type, now) {
            assert!(request.duration >= 0 && !request.spy.is_empty());
        }
    }
    let Ok(name) = AppName::parse(text) else { return };
    // A label named __name__ may put any text in the name's place.
    let Ok(plain) = AppName::parse(&name.app) else { return };
    let labels: Vec<String> = name.labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
    let written = format!("{}{{{}}}", plain.app, labels.join(","));
    let again = AppName::parse(&written).expect("what was written reads");
    assert_eq!(again.labels, name.labels);
});
