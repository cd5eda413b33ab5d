//! An answer says by which id the record is asked for of how it came about.

use axum::body::Body;
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, Response};

const DIAGNOSTICS_ID_HEADER: HeaderName = HeaderName::from_static("x-pyroscope-diagnostics-id");

/// Names the record of what is answered, if there is one.
pub fn set_diagnostics_id(response: &mut Response<Body>, record: Option<String>) {
    if let Some(value) = record.and_then(|id| HeaderValue::try_from(id).ok()) {
        response.headers_mut().insert(DIAGNOSTICS_ID_HEADER, value);
    }
}
