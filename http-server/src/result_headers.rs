//! Headers of responses to queries: the resolution of their data, and the id of the query's diagnostics record.

use axum::body::Body;
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, Response};

const DIAGNOSTICS_ID_HEADER: HeaderName = HeaderName::from_static("x-pyroscope-diagnostics-id");
/// Header of a response that was computed from profiles. Its value is `raw`, or a list of stretches of time with
/// their tiers.
pub const RESOLUTION_HEADER: HeaderName = HeaderName::from_static("athanor-resolution");

/// Adds the id of the diagnostics record, if one exists.
pub fn set_diagnostics_id(response: &mut Response<Body>, record: Option<String>) {
    if let Some(value) = record.and_then(|id| HeaderValue::try_from(id).ok()) {
        response.headers_mut().insert(DIAGNOSTICS_ID_HEADER, value);
    }
}

/// Adds the resolution, if a query read profiles.
pub fn set_resolution_header(response: &mut Response<Body>, resolution: Option<HeaderValue>) {
    if let Some(value) = resolution {
        response.headers_mut().insert(RESOLUTION_HEADER, value);
    }
}
