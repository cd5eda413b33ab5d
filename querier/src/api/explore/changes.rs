//! Changes between two queries. A significance test needs the number of samples behind a value.

use athanor_profile::ProfileType;
use athanor_query::ProfileList;

mod wire;

pub(crate) use wire::changes;

/// Returns the value of one sample, or the reason why it is unknown.
///
/// Values of time and memory are samples times a period. If uploads differ in their periods, the greatest
/// counts. The number of samples is then a lower bound, and a verdict of more than sampling noise is
/// reliable. Gauges are averages, so there are as many samples as in one profile.
fn value_per_sample(profile_type: &ProfileType, profiles: &ProfileList) -> Result<f64, String> {
    let ProfileType { value, period, .. } = profile_type;
    if matches!(value.kind.as_str(), "samples" | "sample") && value.unit == "count" {
        return Ok(1.0);
    }
    if value.unit.is_empty() || value.unit == "count" || value.unit != period.unit {
        return Err(format!("number of samples behind values of {}:{} is unknown", value.kind, value.unit));
    }
    match profiles.periods {
        None => Err("one side has no profile".to_owned()),
        Some((least, most)) if least > 0 => Ok(most as f64),
        Some((least, _)) => Err(format!("some profiles have the period {least}, must be positive")),
    }
}

#[cfg(test)]
mod tests {
    use athanor_query::{PartialResult, ProfileListEntry, ProfileListQuery, QueryKind};

    use super::*;

    fn of(type_id: &str, periods: Option<(i64, i64)>) -> Result<f64, String> {
        let PartialResult::Profiles(mut profiles) =
            PartialResult::empty(&QueryKind::Profiles(ProfileListQuery::default()))
        else {
            panic!("no list");
        };
        (profiles.profiles, profiles.periods) = (4, periods);
        assert_eq!(profiles.entries(), [] as [ProfileListEntry; 0]);
        value_per_sample(&type_id.parse().unwrap(), &profiles)
    }

    #[test]
    fn only_what_is_sampled_is_tested() {
        let periods = Some((5, 10));
        assert_eq!(of("process_cpu:cpu:nanoseconds:cpu:nanoseconds", periods), Ok(10.0));
        assert_eq!(of("process_cpu:samples:count:cpu:nanoseconds", periods), Ok(1.0));
        assert_eq!(of("memory:alloc_space:bytes:space:bytes", periods), Ok(10.0));
        assert_eq!(of("memory:inuse_space:bytes:space:bytes", periods), Ok(10.0));
        assert!(of("memory:alloc_objects:count:space:bytes", periods).is_err());
        assert!(of("goroutine:goroutine:count:goroutine:count", periods).is_err());
        assert!(of("mutex:delay:nanoseconds:contentions:count", periods).is_err());
        assert!(of("process_cpu:cpu:nanoseconds:cpu:nanoseconds", Some((0, 10))).is_err());
        assert!(of("process_cpu:cpu:nanoseconds:cpu:nanoseconds", None).is_err());
    }
}
