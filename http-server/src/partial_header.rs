//! Headers of partial responses: a flag for programs, and the warnings for people.

use axum::body::Body;
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, Response};

/// Header of a response that lacks data. Its value is `true`.
pub const PARTIAL_RESPONSE_HEADER: HeaderName = HeaderName::from_static("athanor-partial-response");
/// Header with one warning. A response has one such header for each warning.
pub const WARNINGS_HEADER: HeaderName = HeaderName::from_static("athanor-warnings");
/// Approximate maximum length of all warnings. Proxies reject responses with long headers.
const MAX_WARNINGS_BYTES: usize = 1024;

/// Adds the headers of a partial response, if there are any warnings.
pub fn set_partial_headers(response: &mut Response<Body>, warnings: &[String]) {
    if warnings.is_empty() {
        return;
    }
    let headers = response.headers_mut();
    headers.insert(PARTIAL_RESPONSE_HEADER, HeaderValue::from_static("true"));
    for text in header_texts(warnings) {
        let value = HeaderValue::try_from(text).expect("printable ASCII is a valid header value");
        headers.append(WARNINGS_HEADER, value);
    }
}

/// Returns the warnings that fit and the count of the others. Warnings may come from other nodes and stores,
/// so only printable ASCII is kept: all clients can read it.
fn header_texts(warnings: &[String]) -> Vec<String> {
    let printable = |warning: &String| -> String {
        warning.chars().map(|letter| if matches!(letter, ' '..='~') { letter } else { '?' }).collect()
    };
    let mut texts = Vec::new();
    let mut total_bytes = 0;
    for (count, mut text) in warnings.iter().map(printable).enumerate() {
        if count == 0 && text.len() > MAX_WARNINGS_BYTES {
            text.truncate(MAX_WARNINGS_BYTES);
            text.push_str("...");
        } else if total_bytes + text.len() > MAX_WARNINGS_BYTES {
            texts.push(format!("and {} more", warnings.len() - count));
            break;
        }
        total_bytes += text.len();
        texts.push(text);
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning_headers(warnings: &[&str]) -> Vec<String> {
        let mut response = Response::new(Body::empty());
        set_partial_headers(&mut response, &warnings.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        let headers = response.headers();
        let flag = headers.get(PARTIAL_RESPONSE_HEADER).map(HeaderValue::as_bytes);
        assert_eq!(flag, (!warnings.is_empty()).then_some(&b"true"[..]));
        let values = headers.get_all(WARNINGS_HEADER).into_iter();
        values.map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn partial_response_has_each_warning_as_printable_ascii() {
        assert!(warning_headers(&[]).is_empty());
        assert_eq!(warning_headers(&["one", "two; three"]), ["one", "two; three"]);
        assert_eq!(warning_headers(&["a\r\nset-cookie: b\u{7f}", "größe"]), ["a??set-cookie: b?", "gr??e"]);
    }

    #[test]
    fn long_or_many_warnings_are_truncated() {
        let long = "x".repeat(5000);
        let texts = warning_headers(&[&long, "y", &long]);
        assert_eq!((texts[0].len(), &texts[0][MAX_WARNINGS_BYTES..]), (MAX_WARNINGS_BYTES + 3, "..."));
        assert_eq!(texts[1..], ["and 2 more"]);
        let many = vec!["a block is gone"; 1000];
        let texts = warning_headers(&many);
        let shown = texts.iter().filter(|text| *text == "a block is gone").count();
        assert!(shown > 50 && shown * many[0].len() <= MAX_WARNINGS_BYTES);
        assert_eq!(texts.last().unwrap(), &format!("and {} more", 1000 - shown));
    }
}
