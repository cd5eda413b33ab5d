//! Documents of speedscope. Each of their profiles is one of its own, and a label has its name.
//!
//! What is measured is told by the end of the application's name, as of text. Where a document has several profiles the unit of
//! each stands there instead; and whatever is said in a unit of time is time, however often was sampled.

use athanor_profile::app_name_suffix::AppNameSuffix;
use athanor_profile::pprof::encode;
use athanor_profile::speedscope::{SpeedscopeProfile, SpeedscopeProfiles, SpeedscopeUnit, read_profiles};
use athanor_profile::{Profile, ProfileHeader, Samples, ValueType};
use bytes::Bytes;

use super::super::request::IngestRequest;
use super::stack_formats::{counted_header, parse_suffix};
use super::{
    ClientDialect, ConvertError, ConvertLimits, ConvertedBody, ConvertedProfile, conversion_refusal, labels,
    labels_bytes,
};

/// Names and values of a series.
type SeriesLabelPairs = Vec<(String, String)>;

/// The label that has the name of a profile.
const PROFILE_NAME_LABEL: &str = "profile_name";

/// How much of a name errors show.
const MAX_SHOWN_NAME_CHARS: usize = 60;

pub(super) fn convert_speedscope(
    request: &IngestRequest,
    body: &[u8],
    bounds: &ConvertLimits,
) -> Result<ConvertedBody, ConvertError> {
    let SpeedscopeProfiles { dictionary, parts } = read_profiles(body, &bounds.document_limits(body.len()))?;
    let several = parts.len() > 1;
    let profile = Profile { dictionary, ..Profile::default() };
    let mut encoder = SpeedscopeEncoder { profile, bounds, sent: body.len(), bytes: 0, labels: 0 };
    let mut made = Vec::with_capacity(parts.len());
    for SpeedscopeProfile { name, unit, samples } in parts {
        let app = match unit_suffix(unit).filter(|_| several) {
            Some(end) => format!("{}.{end}", request.name.app),
            None => request.name.app.clone(),
        };
        let metric = parse_suffix(&app)?;
        let of_series = || {
            let mut labels = labels(request, metric.metric, metric.app, true);
            labels.retain(|(label, _)| label != PROFILE_NAME_LABEL);
            labels.push((PROFILE_NAME_LABEL.to_owned(), name.clone()));
            labels
        };
        let pprof = samples.map_err(ConvertError::from).and_then(|samples| {
            let (header, factor) = measured_header(request, &metric, unit);
            let overflow = ConvertError::Overflow(request.sample_rate);
            encoder.encode(scale_samples(samples, factor).ok_or(overflow)?, header)
        });
        // What is refused has no series.
        let stored =
            pprof.and_then(|pprof| Ok((encoder.check_labels(of_series)?, pprof))).map_err(conversion_refusal);
        let (labels, pprof) = match stored {
            Ok((labels, pprof)) => (labels, Ok(pprof)),
            Err(refused) => (Vec::new(), Err(refused)),
        };
        let name = name.chars().take(MAX_SHOWN_NAME_CHARS).collect();
        made.push(ConvertedProfile { name, labels, client_id: None, pprof, without_stack: 0 });
    }
    if made.is_empty() {
        made.push(ConvertedProfile::single_profile(
            labels(request, "process_cpu", &request.name.app, true),
            None,
        ));
    }
    Ok(ConvertedBody { door: ClientDialect::Text, time_nanos: request.from, made })
}

fn scale_samples(mut samples: Samples, factor: i64) -> Option<Samples> {
    for value in &mut samples.values {
        *value = value.checked_mul(factor)?;
    }
    Some(samples)
}

/// Writes the profiles of one document.
struct SpeedscopeEncoder<'a> {
    /// Has what their samples mean.
    profile: Profile,
    bounds: &'a ConvertLimits,
    /// Bytes of the document.
    sent: usize,
    /// Bytes of all that was written.
    bytes: usize,
    /// Bytes of all labels: each profile has those of the request.
    labels: usize,
}

impl SpeedscopeEncoder<'_> {
    /// Each names its frames anew, so that all of them may be far more than was sent.
    fn check_total_bytes(&self) -> Result<(), ConvertError> {
        self.bounds.check_profile_size(self.bytes.saturating_sub(self.sent))
    }

    /// The labels of a profile, if there is room for them.
    fn check_labels(
        &mut self,
        labels: impl FnOnce() -> SeriesLabelPairs,
    ) -> Result<SeriesLabelPairs, ConvertError> {
        self.bounds.check_labels_size(self.labels)?;
        let labels = labels();
        self.labels += labels_bytes(&labels);
        self.bounds.check_labels_size(self.labels)?;
        Ok(labels)
    }

    /// One profile; nothing if there is nothing in it. After the first that is too much no other is written.
    fn encode(&mut self, samples: Samples, header: ProfileHeader) -> Result<Option<Bytes>, ConvertError> {
        self.check_total_bytes()?;
        if samples.is_empty() {
            return Ok(None);
        }
        (self.profile.samples, self.profile.header) = (samples, header);
        let pprof = encode(&self.profile);
        self.bytes += pprof.len();
        self.bounds.check_profile_size(pprof.len())?;
        self.check_total_bytes()?;
        Ok(Some(pprof.into()))
    }
}

/// What stands at the end of a name for a unit.
fn unit_suffix(unit: SpeedscopeUnit) -> Option<&'static str> {
    match unit {
        SpeedscopeUnit::None => None,
        SpeedscopeUnit::Bytes => Some("bytes"),
        SpeedscopeUnit::Nanoseconds
        | SpeedscopeUnit::Microseconds
        | SpeedscopeUnit::Milliseconds
        | SpeedscopeUnit::Seconds => Some("nanoseconds"),
    }
}

/// The header of values in a unit, and how much one of them is.
fn measured_header(
    request: &IngestRequest,
    metric: &AppNameSuffix<'_>,
    unit: SpeedscopeUnit,
) -> (ProfileHeader, i64) {
    let (header, factor) = counted_header(request, metric);
    let Some(time) = metric.sampled_time() else { return (header, factor) };
    match unit {
        SpeedscopeUnit::None => (header, factor),
        // Memory is no time.
        SpeedscopeUnit::Bytes => {
            let types = vec![ValueType::new("samples", "count")];
            (ProfileHeader { types, period_type: None, period: 0, ..header }, 1)
        }
        SpeedscopeUnit::Nanoseconds
        | SpeedscopeUnit::Microseconds
        | SpeedscopeUnit::Milliseconds
        | SpeedscopeUnit::Seconds => {
            let types = vec![ValueType::new(time, "nanoseconds")];
            (ProfileHeader { types, period_type: Some(ValueType::new("cpu", "nanoseconds")), ..header }, 1)
        }
    }
}
