//! Formats that say stacks and counts, no more: the end of the application's name says what is counted.

use athanor_profile::pprof::Tally;
use athanor_profile::suffix::Suffix;
use athanor_profile::trie::{self, Kind};
use athanor_profile::{Header, ValueType};

use super::super::request::Request;
use super::super::text;
use super::{Bounds, ConvertError, Converted, Door, Made, SECOND, labels};

/// A stack on each line. `counted`: with a count behind it.
pub(super) fn text(
    request: &Request,
    body: &[u8],
    counted: bool,
    bounds: &Bounds,
) -> Result<Converted, ConvertError> {
    named(request, &text::parse(body, counted, &bounds.profile)?)
}

/// A tree or a trie.
pub(super) fn trie(
    request: &Request,
    body: &[u8],
    kind: Kind,
    bounds: &Bounds,
) -> Result<Converted, ConvertError> {
    named(request, &trie::parse(body, kind, &bounds.profile)?)
}

fn named(request: &Request, tally: &Tally) -> Result<Converted, ConvertError> {
    let name = &request.name;
    let (door, time_nanos) = (Door::Text, request.from);
    // Old SDKs sent each request of a service once more, as a series of its own.
    if name.labels.get("profile_id").is_some_and(|id| !id.is_empty()) {
        let labels = labels(request, "process_cpu", &name.app, false);
        return Ok(Converted { door, time_nanos, made: vec![Made::only(labels, None)] });
    }
    let metric = suffix(&name.app)?;
    let rate = request.sample_rate;
    let (header, factor) = counted(request, &metric);
    let pprof = tally.write(&header, factor).ok_or(ConvertError::Overflow(rate))?;
    let pprof = (!tally.is_empty()).then(|| pprof.into());
    let labels = labels(request, metric.metric, metric.app, true);
    Ok(Converted { door, time_nanos, made: vec![Made::only(labels, pprof)] })
}

/// What the end of a name says.
pub(super) fn suffix(name: &str) -> Result<Suffix<'_>, ConvertError> {
    Suffix::of(name).ok_or_else(|| {
        let suffix = name.rsplit('.').next().unwrap_or_default();
        ConvertError::UnknownSuffix(suffix.chars().take(100).collect())
    })
}

/// The header of what counts as a name says, and how much one of it is: samples of time are stored as the time.
pub(super) fn counted(request: &Request, metric: &Suffix<'_>) -> (Header, i64) {
    let header = Header {
        types: vec![metric.value_type.clone()],
        time_nanos: request.from,
        duration_nanos: request.duration,
        ..Header::default()
    };
    match metric.sampled_time().filter(|_| request.sample_rate > 0) {
        None => (header, 1),
        Some(time) => {
            let period = SECOND / i64::from(request.sample_rate);
            let types = vec![ValueType::new(time, "nanoseconds")];
            let period_type = Some(ValueType::new("cpu", "nanoseconds"));
            (Header { types, period_type, period, ..header }, period)
        }
    }
}
