//! Headers of responses that were computed from profiles: their resolution, and the id of the query's diagnostics
//! record.

use athanor_query::ResultResolution;
use axum::body::Body;
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, Response};

const DIAGNOSTICS_ID_HEADER: HeaderName = HeaderName::from_static("x-pyroscope-diagnostics-id");
/// Header of a response that was computed from profiles. Its value is `raw`, or a list of stretches of time with
/// their tiers.
const RESOLUTION_HEADER: HeaderName = HeaderName::from_static("athanor-resolution");

/// Adds the id of the diagnostics record, if one exists.
pub fn set_diagnostics_id(response: &mut Response<Body>, record: Option<String>) {
    if let Some(value) = record.and_then(|id| HeaderValue::try_from(id).ok()) {
        response.headers_mut().insert(DIAGNOSTICS_ID_HEADER, value);
    }
}

/// Adds the resolution, if a query read profiles.
pub fn set_resolution_header(response: &mut Response<Body>, resolution: Option<ResultResolution>) {
    let Some(resolution) = resolution else { return };
    let value = HeaderValue::try_from(resolution.to_string());
    response.headers_mut().insert(RESOLUTION_HEADER, value.expect("tiers and times are printable ASCII"));
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Tier;
    use athanor_query::ResolutionStretch;

    use super::*;

    fn header_of(resolution: Option<ResultResolution>) -> Option<String> {
        let mut response = Response::new(Body::empty());
        set_resolution_header(&mut response, resolution);
        response.headers().get(RESOLUTION_HEADER).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn response_states_its_resolution_if_a_query_read_profiles() {
        assert_eq!(header_of(None), None);
        assert_eq!(header_of(Some(ResultResolution::default())).as_deref(), Some("raw"));
        let hour = ResolutionStretch { tier: Tier::OneHour, after: 0, until: 3_600_000_000_000 };
        let header = header_of(Some(ResultResolution::from_stretches([hour])));
        assert_eq!(header.as_deref(), Some("1h 1970-01-01T00:00:00Z/1970-01-01T01:00:00Z"));
    }

    #[test]
    fn header_of_many_stretches_is_short() {
        let tiers = [Tier::Raw, Tier::OneDay];
        let stretch = |number: i64| {
            let tier = tiers[number as usize % 2];
            ResolutionStretch { tier, after: i64::MIN + number, until: i64::MIN + number + 1 }
        };
        let header = header_of(Some(ResultResolution::from_stretches((0..1_000).map(stretch)))).unwrap();
        assert!(header.len() < 1_200, "{header}");
    }
}
