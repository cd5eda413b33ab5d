//! Resolution of responses that were computed from profiles, as a header.

use athanor_query::ResultResolution;
use axum::http::HeaderValue;

/// Returns the value of the resolution header.
pub fn resolution_value(resolution: &ResultResolution) -> HeaderValue {
    let value = HeaderValue::try_from(resolution.to_string());
    value.expect("tiers and times are printable ASCII")
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Tier;
    use athanor_query::ResolutionStretch;

    use super::*;

    fn header_of(resolution: ResultResolution) -> String {
        resolution_value(&resolution).to_str().unwrap().to_owned()
    }

    #[test]
    fn header_names_tiers_and_their_times() {
        assert_eq!(header_of(ResultResolution::default()), "raw");
        let hour = ResolutionStretch { tier: Tier::OneHour, after: 0, until: 3_600_000_000_000 };
        let header = header_of(ResultResolution::from_stretches([hour]));
        assert_eq!(header, "1h 1970-01-01T00:00:00Z/1970-01-01T01:00:00Z");
    }

    #[test]
    fn header_of_many_stretches_is_short() {
        let tiers = [Tier::Raw, Tier::OneDay];
        let stretch = |number: i64| {
            let tier = tiers[number as usize % 2];
            ResolutionStretch { tier, after: i64::MIN + number, until: i64::MIN + number + 1 }
        };
        let header = header_of(ResultResolution::from_stretches((0..1_000).map(stretch)));
        assert!(header.len() < 1_200, "{header}");
    }
}
