//! Trace id of a response.
//!
//! The server records no spans. If a proxy in front traces its requests, the response names the trace, so that clients
//! and the web UI can state it in their errors.

use axum::body::Body;
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, HeaderValue, Response};

/// Trace of a request, from the W3C recommendation "Trace Context".
const TRACEPARENT_HEADER: HeaderName = HeaderName::from_static("traceparent");
/// Trace of a response, from the draft "Trace Context Level 2". The span is that of the request, because the server has
/// none of its own.
const TRACERESPONSE_HEADER: HeaderName = HeaderName::from_static("traceresponse");
/// Version of the format that the server writes.
const TRACE_VERSION: &str = "00";
/// Number of digits of the version, the trace id, the span id and the flags.
const TRACE_FIELD_DIGITS: [usize; 4] = [2, 32, 16, 2];

/// Returns the header value that names the trace of a request. Returns none if the request has no valid trace.
pub fn trace_response(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(TRACEPARENT_HEADER).iter();
    let text = values.next().filter(|_| values.next().is_none())?.to_str().ok()?;
    let fields: Vec<&str> = text.split('-').take(TRACE_FIELD_DIGITS.len() + 1).collect();
    let (version, ids) = fields.split_first()?;
    let is_valid = fields.iter().zip(TRACE_FIELD_DIGITS).all(|(field, digits)| is_lower_hex(field, digits));
    // Later versions may append fields.
    let has_all_fields = match *version {
        TRACE_VERSION => fields.len() == TRACE_FIELD_DIGITS.len(),
        _ => fields.len() >= TRACE_FIELD_DIGITS.len(),
    };
    let [trace, span, flags, ..] = ids else { return None };
    let has_ids = [trace, span].iter().all(|id| id.bytes().any(|digit| digit != b'0'));
    if !is_valid || !has_all_fields || !has_ids || *version == "ff" {
        return None;
    }
    HeaderValue::from_str(&format!("{TRACE_VERSION}-{trace}-{span}-{flags}")).ok()
}

/// Adds the trace to a response, if the request had one.
pub fn set_trace_response(response: &mut Response<Body>, trace: Option<HeaderValue>) {
    if let Some(trace) = trace {
        response.headers_mut().insert(TRACERESPONSE_HEADER, trace);
    }
}

fn is_lower_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn response_to(traces: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for trace in traces {
            headers.append(TRACEPARENT_HEADER, trace.parse().unwrap());
        }
        trace_response(&headers).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn response_names_the_trace_of_the_request() {
        assert_eq!(response_to(&[TRACE]).as_deref(), Some(TRACE));
        let later = TRACE.replacen("00", "cc", 1);
        assert_eq!(response_to(&[&later]).as_deref(), Some(TRACE));
        assert_eq!(response_to(&[&format!("{later}-more")]).as_deref(), Some(TRACE));
    }

    #[test]
    fn request_without_a_valid_trace_has_none() {
        assert_eq!(response_to(&[]), None);
        assert_eq!(response_to(&[TRACE, TRACE]), None);
        for wrong in [
            "",
            "00",
            &TRACE[..52],
            &TRACE.to_uppercase(),
            &TRACE.replacen("00", "ff", 1),
            &format!("{TRACE}-more"),
            &format!("{TRACE}0"),
            &TRACE.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &TRACE.replace("b7ad6b7169203331", &"0".repeat(16)),
            &TRACE.replace('c', "<"),
        ] {
            assert_eq!(response_to(&[wrong]), None, "{wrong}");
        }
    }
}
