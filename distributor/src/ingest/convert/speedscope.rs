//! Documents of speedscope. Each of their profiles is one of its own, and a label has its name.
//!
//! What is measured is told by the end of the application's name, as of text. Where a document has several profiles the unit of
//! each stands there instead; and whatever is said in a unit of time is time, however often was sampled.

use athanor_profile::pprof::encode;
use athanor_profile::speedscope::{Part, Parts, Unit, parts};
use athanor_profile::suffix::Suffix;
use athanor_profile::{Header, Profile, Samples, ValueType};
use bytes::Bytes;

use super::super::request::Request;
use super::named::{counted, suffix};
use super::{Bounds, ConvertError, Converted, Door, Made, labels, labels_bytes, refused};

/// Names and values of a series.
type Labels = Vec<(String, String)>;

/// The label that has the name of a profile.
const PROFILE_NAME: &str = "profile_name";

/// How much of a name errors show.
const SHOWN: usize = 60;

pub(super) fn speedscope(request: &Request, body: &[u8], bounds: &Bounds) -> Result<Converted, ConvertError> {
    let Parts { dictionary, parts } = parts(body, &bounds.document(body.len()))?;
    let several = parts.len() > 1;
    let profile = Profile { dictionary, ..Profile::default() };
    let mut encoder = Encoder { profile, bounds, sent: body.len(), bytes: 0, labels: 0 };
    let mut made = Vec::with_capacity(parts.len());
    for Part { name, unit, samples } in parts {
        let app = match end(unit).filter(|_| several) {
            Some(end) => format!("{}.{end}", request.name.app),
            None => request.name.app.clone(),
        };
        let metric = suffix(&app)?;
        let of_series = || {
            let mut labels = labels(request, metric.metric, metric.app, true);
            labels.retain(|(label, _)| label != PROFILE_NAME);
            labels.push((PROFILE_NAME.to_owned(), name.clone()));
            labels
        };
        let pprof = samples.map_err(ConvertError::from).and_then(|samples| {
            let (header, factor) = measured(request, &metric, unit);
            let overflow = ConvertError::Overflow(request.sample_rate);
            encoder.encode(scaled(samples, factor).ok_or(overflow)?, header)
        });
        // What is refused has no series.
        let stored = pprof.and_then(|pprof| Ok((encoder.labels(of_series)?, pprof))).map_err(refused);
        let (labels, pprof) = match stored {
            Ok((labels, pprof)) => (labels, Ok(pprof)),
            Err(refused) => (Vec::new(), Err(refused)),
        };
        let name = name.chars().take(SHOWN).collect();
        made.push(Made { name, labels, client_id: None, pprof, without_stack: 0 });
    }
    if made.is_empty() {
        made.push(Made::only(labels(request, "process_cpu", &request.name.app, true), None));
    }
    Ok(Converted { door: Door::Text, time_nanos: request.from, made })
}

fn scaled(mut samples: Samples, factor: i64) -> Option<Samples> {
    for value in &mut samples.values {
        *value = value.checked_mul(factor)?;
    }
    Some(samples)
}

/// Writes the profiles of one document.
struct Encoder<'a> {
    /// Has what their samples mean.
    profile: Profile,
    bounds: &'a Bounds,
    /// Bytes of the document.
    sent: usize,
    /// Bytes of all that was written.
    bytes: usize,
    /// Bytes of all labels: each profile has those of the request.
    labels: usize,
}

impl Encoder<'_> {
    /// Each names its frames anew, so that all of them may be far more than was sent.
    fn bounded(&self) -> Result<(), ConvertError> {
        self.bounds.made(self.bytes.saturating_sub(self.sent))
    }

    /// The labels of a profile, if there is room for them.
    fn labels(&mut self, labels: impl FnOnce() -> Labels) -> Result<Labels, ConvertError> {
        self.bounds.labels(self.labels)?;
        let labels = labels();
        self.labels += labels_bytes(&labels);
        self.bounds.labels(self.labels)?;
        Ok(labels)
    }

    /// One profile; nothing if there is nothing in it. After the first that is too much no other is written.
    fn encode(&mut self, samples: Samples, header: Header) -> Result<Option<Bytes>, ConvertError> {
        self.bounded()?;
        if samples.is_empty() {
            return Ok(None);
        }
        (self.profile.samples, self.profile.header) = (samples, header);
        let pprof = encode(&self.profile);
        self.bytes += pprof.len();
        self.bounds.made(pprof.len())?;
        self.bounded()?;
        Ok(Some(pprof.into()))
    }
}

/// What stands at the end of a name for a unit.
fn end(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::None => None,
        Unit::Bytes => Some("bytes"),
        Unit::Nanoseconds | Unit::Microseconds | Unit::Milliseconds | Unit::Seconds => Some("nanoseconds"),
    }
}

/// The header of values in a unit, and how much one of them is.
fn measured(request: &Request, metric: &Suffix<'_>, unit: Unit) -> (Header, i64) {
    let (header, factor) = counted(request, metric);
    let Some(time) = metric.sampled_time() else { return (header, factor) };
    match unit {
        Unit::None => (header, factor),
        // Memory is no time.
        Unit::Bytes => {
            let types = vec![ValueType::new("samples", "count")];
            (Header { types, period_type: None, period: 0, ..header }, 1)
        }
        Unit::Nanoseconds | Unit::Microseconds | Unit::Milliseconds | Unit::Seconds => {
            let types = vec![ValueType::new(time, "nanoseconds")];
            (Header { types, period_type: Some(ValueType::new("cpu", "nanoseconds")), ..header }, 1)
        }
    }
}
