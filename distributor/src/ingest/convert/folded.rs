//! Folded text: the end of the application's name says what it counts.

use athanor_profile::ValueType;
use athanor_profile::pprof::encode;
use athanor_profile::suffix::Suffix;

use super::super::request::Request;
use super::super::text;
use super::{Bounds, ConvertError, Converted, Door, Made, SECOND, labels};

pub(super) fn folded(
    request: &Request,
    body: &[u8],
    counted: bool,
    bounds: &Bounds,
) -> Result<Converted, ConvertError> {
    let mut profile = text::parse(body, counted, ValueType::default(), &bounds.text)?;
    let name = &request.name;
    let (door, time_nanos) = (Door::Text, request.from);
    // Old SDKs sent each request of a service once more, as a series of its own.
    if name.labels.get("profile_id").is_some_and(|id| !id.is_empty()) {
        let labels = labels(request, "process_cpu", &name.app, false);
        return Ok(Converted { door, time_nanos, made: vec![Made { labels, pprof: None }] });
    }
    let Some(metric) = Suffix::of(&name.app) else {
        let suffix = name.app.rsplit('.').next().unwrap_or_default();
        return Err(ConvertError::UnknownSuffix(suffix.chars().take(100).collect()));
    };
    let header = &mut profile.header;
    (header.time_nanos, header.duration_nanos) = (request.from, request.duration);
    header.types = vec![metric.value_type.clone()];
    let rate = request.sample_rate;
    if let Some(time) = metric.sampled_time().filter(|_| rate > 0) {
        let period = SECOND / i64::from(rate);
        header.types = vec![ValueType::new(time, "nanoseconds")];
        header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
        header.period = period;
        for value in &mut profile.samples.values {
            *value = value.checked_mul(period).ok_or(ConvertError::Overflow(rate))?;
        }
    }
    let pprof = (!profile.samples.is_empty()).then(|| encode(&profile).into());
    let labels = labels(request, metric.metric, metric.app, true);
    Ok(Converted { door, time_nanos, made: vec![Made { labels, pprof }] })
}
