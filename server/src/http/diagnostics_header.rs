//! Response header with the id of the query's diagnostics record.

use axum::body::Body;
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, Response};

const DIAGNOSTICS_ID_HEADER: HeaderName = HeaderName::from_static("x-pyroscope-diagnostics-id");

/// Adds the id of the diagnostics record, if one exists.
pub fn set_diagnostics_id(response: &mut Response<Body>, record: Option<String>) {
    if let Some(value) = record.and_then(|id| HeaderValue::try_from(id).ok()) {
        response.headers_mut().insert(DIAGNOSTICS_ID_HEADER, value);
    }
}
