//! Documents of speedscope. Each of their profiles is one of its own, and a label has its name.
//!
//! What is measured is told by the end of the application's name, as of text. Where a document has several profiles the unit of
//! each stands there instead; and whatever is said in a unit of time is time, however often was sampled.

use athanor_profile::pprof::encode;
use athanor_profile::speedscope::{Part, Parts, Unit, parts};
use athanor_profile::{Header, Profile, ValueType};

use super::super::request::Request;
use super::named::{counted, suffix};
use super::{Bounds, ConvertError, Converted, Door, Made, labels};

/// The label that has the name of a profile.
const PROFILE_NAME: &str = "profile_name";

pub(super) fn speedscope(request: &Request, body: &[u8], bounds: &Bounds) -> Result<Converted, ConvertError> {
    let Parts { dictionary, parts } = parts(body, &bounds.document(body.len()))?;
    let several = parts.len() > 1;
    let mut profile = Profile { dictionary, ..Profile::default() };
    let (mut made, mut bytes) = (Vec::with_capacity(parts.len()), 0);
    for Part { name, unit, samples } in parts {
        let app = match end(unit).filter(|_| several) {
            Some(end) => format!("{}.{end}", request.name.app),
            None => request.name.app.clone(),
        };
        let metric = suffix(&app)?;
        let (header, factor) = measured(counted(request, &metric), unit);
        profile.samples = samples;
        for value in &mut profile.samples.values {
            *value = value.checked_mul(factor).ok_or(ConvertError::Overflow(request.sample_rate))?;
        }
        profile.header = header;
        let pprof = (!profile.samples.is_empty()).then(|| encode(&profile));
        let size = pprof.as_ref().map_or(0, Vec::len);
        bounds.made(size)?;
        // Each names its frames anew, so that all of them may be far more than was sent.
        bytes += size;
        bounds.made(bytes.saturating_sub(body.len()))?;
        let mut labels = labels(request, metric.metric, metric.app, true);
        labels.retain(|(label, _)| label != PROFILE_NAME);
        labels.push((PROFILE_NAME.to_owned(), name));
        made.push(Made { labels, pprof: pprof.map(Into::into) });
    }
    if made.is_empty() {
        made.push(Made { labels: labels(request, "process_cpu", &request.name.app, true), pprof: None });
    }
    Ok(Converted { door: Door::Text, time_nanos: request.from, made })
}

/// What stands at the end of a name for a unit.
fn end(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::None => None,
        Unit::Bytes => Some("bytes"),
        Unit::Nanoseconds | Unit::Microseconds | Unit::Milliseconds | Unit::Seconds => Some("nanoseconds"),
    }
}

/// The header of values in a unit, and how much one of them is, where samples are said to be counted.
fn measured((header, factor): (Header, i64), unit: Unit) -> (Header, i64) {
    match (unit, &header.period_type) {
        (Unit::None, _) | (_, None) => (header, factor),
        // Memory is no time.
        (Unit::Bytes, Some(_)) => {
            let types = vec![ValueType::new("samples", "count")];
            (Header { types, period_type: None, period: 0, ..header }, 1)
        }
        (_, Some(_)) => (header, 1),
    }
}
