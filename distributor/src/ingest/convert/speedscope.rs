//! Documents of speedscope. Each profile in one becomes a separate profile, with its name as a label.
//!
//! The suffix of the application's name gives the metric, as for text. If a document has several profiles,
//! the unit of each replaces that suffix. Values in a unit of time are stored as time, whatever the sample
//! rate.

use athanor_profile::formats::app_name_suffix::AppNameSuffix;
use athanor_profile::formats::pprof::encode;
use athanor_profile::formats::speedscope::{
    SpeedscopeProfile, SpeedscopeProfiles, SpeedscopeUnit, read_profiles,
};
use athanor_profile::{Profile, ProfileHeader, Samples, ValueType};
use bytes::Bytes;

use super::super::request::IngestRequest;
use super::stack_formats::{counted_header, parse_suffix};
use super::{
    ClientDialect, ConvertError, ConvertLimits, ConvertedBody, ConvertedProfile, conversion_refusal, labels,
    labels_bytes,
};

/// Label names and values of a series.
type SeriesLabelPairs = Vec<(String, String)>;

/// Label with the name of a profile.
const PROFILE_NAME_LABEL: &str = "profile_name";

/// Maximum characters of a profile's name in errors.
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
        // A refused profile has no series.
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

/// Encoder of the profiles of one document.
struct SpeedscopeEncoder<'a> {
    /// Holds the dictionary that all samples of the document refer to.
    profile: Profile,
    bounds: &'a ConvertLimits,
    /// Size of the document in bytes.
    sent: usize,
    /// Bytes of all profiles written so far.
    bytes: usize,
    /// Bytes of all labels. Each profile repeats those of the request.
    labels: usize,
}

impl SpeedscopeEncoder<'_> {
    /// Refuses more output than one profile beyond the document's size. Each profile has its own copy of the
    /// frame names, so the total may far exceed the input.
    fn check_total_bytes(&self) -> Result<(), ConvertError> {
        self.bounds.check_profile_size(self.bytes.saturating_sub(self.sent))
    }

    /// Returns the labels of a profile if they fit into the limit.
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

    /// Encodes one profile; `None` if it is empty. Once the total is over its limit, no further profile is
    /// encoded.
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

/// Returns the name suffix that stands for a unit.
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

/// Returns the header for values in a unit, and the factor for each value.
fn measured_header(
    request: &IngestRequest,
    metric: &AppNameSuffix<'_>,
    unit: SpeedscopeUnit,
) -> (ProfileHeader, i64) {
    let (header, factor) = counted_header(request, metric);
    let Some(time) = metric.sampled_time() else { return (header, factor) };
    match unit {
        SpeedscopeUnit::None => (header, factor),
        // A suffix of sampled time does not apply to memory.
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
