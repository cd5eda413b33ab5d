//! Any text as a selector: refused, or one that says the same when it is printed and read again.
#![no_main]

use athanor_query::{MAX_SELECTOR_BYTES, Selector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(selector) = text.parse::<Selector>() else { return };
    let printed = selector.to_string();
    // Escapes may make it longer than what is read.
    if printed.len() > MAX_SELECTOR_BYTES {
        return;
    }
    let again: Selector = printed.parse().expect("what was printed reads");
    assert_eq!(again.to_string(), printed);
    assert_eq!(again.matchers().len(), selector.matchers().len());
});
