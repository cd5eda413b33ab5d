//! Header of partial results.

use axum::body::Body;
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, Response};

/// Header that lists the data that a partial result lacks.
pub const PARTIAL_HEADER: HeaderName = HeaderName::from_static("athanor-partial");
/// Approximate maximum length of the value. Proxies reject responses with long headers.
const MAX_HEADER_BYTES: usize = 1024;

/// Adds a header with the missing data, if there is any.
pub fn set_partial_header(response: &mut Response<Body>, missing: &[String]) {
    if missing.is_empty() {
        return;
    }
    let value = HeaderValue::try_from(words(missing)).expect("letters of ASCII that are shown are a value");
    response.headers_mut().insert(PARTIAL_HEADER, value);
}

/// Joins the messages that fit and the count of the others. Messages may come from other nodes and stores, so
/// only printable ASCII is kept: all clients can read it.
fn words(missing: &[String]) -> String {
    let shown = |words: &String| -> String {
        words.chars().map(|letter| if matches!(letter, ' '..='~') { letter } else { '?' }).collect()
    };
    let mut said = String::new();
    for (count, words) in missing.iter().map(shown).enumerate() {
        if count == 0 {
            said = words;
            if said.len() > MAX_HEADER_BYTES {
                said.truncate(MAX_HEADER_BYTES);
                said.push_str("...");
            }
        } else if said.len() + words.len() <= MAX_HEADER_BYTES {
            said.push_str("; ");
            said.push_str(&words);
        } else {
            said.push_str(&format!("; and {} more", missing.len() - count));
            break;
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(missing: &[&str]) -> Option<String> {
        let mut response = Response::new(Body::empty());
        set_partial_header(&mut response, &missing.iter().map(|&words| words.to_owned()).collect::<Vec<_>>());
        response.headers().get(PARTIAL_HEADER).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn what_is_missing_is_always_said() {
        assert_eq!(header(&[]), None);
        assert_eq!(header(&["one", "two"]).unwrap(), "one; two");
        assert_eq!(header(&["a\r\nset-cookie: b\u{7f}", "größe"]).unwrap(), "a??set-cookie: b?; gr??e");
    }

    #[test]
    fn it_is_short_however_much_is_missing() {
        let long = "x".repeat(5000);
        let said = header(&[&long, "y", &long]).unwrap();
        assert_eq!((said.len(), &said[MAX_HEADER_BYTES..]), (MAX_HEADER_BYTES + 3 + 12, "...; and 2 more"));
        let many = vec!["a block is gone"; 1000];
        let said = header(&many).unwrap();
        let shown = said.matches("a block is gone").count();
        assert!(said.len() < MAX_HEADER_BYTES + 30 && shown > 50);
        assert!(said.ends_with(&format!("; and {} more", 1000 - shown)), "{said}");
    }
}
