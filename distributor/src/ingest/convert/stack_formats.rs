//! Formats with only stacks and counts. The suffix of the application's name gives the metric.

use athanor_profile::formats::app_name_suffix::AppNameSuffix;
use athanor_profile::formats::pprof::StackAccumulator;
use athanor_profile::formats::trie::{self, TrieKind};
use athanor_profile::{ProfileHeader, ValueType};

use super::super::folded_text;
use super::super::request::IngestRequest;
use super::{
    ClientDialect, ConvertError, ConvertLimits, ConvertedBody, ConvertedProfile, NANOS_PER_SECOND, labels,
};

/// Converts text with one stack per line. With `counted`, a count follows each stack.
pub(super) fn convert_text(
    request: &IngestRequest,
    body: &[u8],
    counted: bool,
    bounds: &ConvertLimits,
) -> Result<ConvertedBody, ConvertError> {
    convert_tally(request, &folded_text::parse_folded(body, counted, &bounds.profile)?)
}

/// Converts a tree or a trie of stacks.
pub(super) fn convert_trie(
    request: &IngestRequest,
    body: &[u8],
    kind: TrieKind,
    bounds: &ConvertLimits,
) -> Result<ConvertedBody, ConvertError> {
    convert_tally(request, &trie::parse(body, kind, &bounds.profile)?)
}

fn convert_tally(request: &IngestRequest, tally: &StackAccumulator) -> Result<ConvertedBody, ConvertError> {
    let name = &request.name;
    let door = ClientDialect::Text;
    let time_nanos = request.from;
    // Old SDKs sent each request of a service a second time, as a series of its own.
    if name.labels.get("profile_id").is_some_and(|id| !id.is_empty()) {
        let labels = labels(request, "process_cpu", &name.app, false);
        return Ok(ConvertedBody {
            door,
            time_nanos,
            made: vec![ConvertedProfile::single_profile(labels, None)],
        });
    }
    let metric = parse_suffix(&name.app)?;
    let rate = request.sample_rate;
    let (header, factor) = counted_header(request, &metric);
    let pprof = tally.write(&header, factor).ok_or(ConvertError::Overflow(rate))?;
    let pprof = (!tally.is_empty()).then(|| pprof.into());
    let labels = labels(request, metric.metric, metric.app, true);
    Ok(ConvertedBody { door, time_nanos, made: vec![ConvertedProfile::single_profile(labels, pprof)] })
}

/// Parses the metric suffix of an application's name.
pub(super) fn parse_suffix(name: &str) -> Result<AppNameSuffix<'_>, ConvertError> {
    AppNameSuffix::parse(name).ok_or_else(|| {
        let suffix = name.rsplit('.').next().unwrap_or_default();
        ConvertError::UnknownSuffix(suffix.chars().take(100).collect())
    })
}

/// Returns the header for a metric, and the factor for each count. Samples of time are stored as the time.
pub(super) fn counted_header(request: &IngestRequest, metric: &AppNameSuffix<'_>) -> (ProfileHeader, i64) {
    let header = ProfileHeader {
        types: vec![metric.value_type.clone()],
        time_nanos: request.from,
        duration_nanos: request.duration,
        ..ProfileHeader::default()
    };
    match metric.sampled_time().filter(|_| request.sample_rate > 0) {
        None => (header, 1),
        Some(time) => {
            let period = NANOS_PER_SECOND / i64::from(request.sample_rate);
            let types = vec![ValueType::new(time, "nanoseconds")];
            let period_type = Some(ValueType::new("cpu", "nanoseconds"));
            (ProfileHeader { types, period_type, period, ..header }, period)
        }
    }
}
