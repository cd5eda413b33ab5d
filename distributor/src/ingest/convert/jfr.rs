//! Flight recordings: each gives a profile for each kind of event that is in it. A form has the recording in a part, and
//! in another one the labels that its events name by numbers.

use athanor_chassis::Limits;
use athanor_profile::jfr::{self, About, JfrError, Limits as JfrLimits, Made as Profile, Snapshot};
use athanor_profile::pprof::{Inflater, inflate};
use bytes::Bytes;

use super::super::form::Form;
use super::super::request::Request;
use super::{Bounds, ConvertError, Converted, Door, Made, labels};

/// The most bytes of labels, once inflated. Agents send some kilobytes.
const LABELS: usize = 16 << 20;
/// A sample of a recording has about so many bytes in a profile, and takes some hundred in memory while it is counted.
const SAMPLE: usize = 64;
/// Kinds of profiles that have names of their own.
const KINDS: usize = 9;
/// What to do about a recording that is too long.
pub(super) const SHORTER: &str =
    ", as many as a request may have (limits.ingestion_body_limit): record for a shorter time";

/// What a recording may have. Inflated it may be as long as any request; what is kept beside it is a part of that.
pub(crate) fn bounds(limits: &Limits) -> JfrLimits {
    let profile = limits.max_profile_size_bytes.as_usize();
    JfrLimits {
        names: profile.saturating_mul(KINDS),
        samples: (limits.max_profile_stacktrace_samples as usize).min(profile / SAMPLE),
        profile,
        ..JfrLimits::of(limits.ingestion_body_limit.as_usize())
    }
}

pub(super) fn way_out(error: &JfrError) -> &'static str {
    match error {
        JfrError::OverLimit { what: "bytes", .. } => SHORTER,
        JfrError::Profile { what: "bytes", .. } | JfrError::OverLimit { what: "bytes of names", .. } => {
            " (limits.max_profile_size_bytes): record for a shorter time"
        }
        JfrError::Profile { .. } => {
            " (limits.max_profile_stacktrace_samples, and no more than one for 64 bytes of limits.max_profile_size_bytes): record for a shorter time"
        }
        JfrError::OverLimit { .. } => ", which no setting changes: record for a shorter time",
        _ => "",
    }
}

pub(super) fn jfr(
    request: &Request,
    content_type: Option<&str>,
    body: &Bytes,
    bounds: &Bounds,
) -> Result<Converted, ConvertError> {
    let form = content_type.map(|content_type| Form::parse(content_type, body)).transpose()?;
    let sent = match &form {
        None => body,
        Some(form) => form.get("jfr").ok_or(ConvertError::NoRecording)?,
    };
    let (door, time_nanos) = (Door::Pprof, request.from);
    if sent.is_empty() {
        let labels = labels(request, "process_cpu", &request.name.app, true);
        return Ok(Converted { door, time_nanos, made: vec![Made { labels, pprof: None }] });
    }
    let names = form.as_ref().and_then(|form| form.get("labels"));
    let names =
        names.map_or(Ok(Vec::new()), |names| inflate(names, LABELS)).map_err(ConvertError::JfrLabels)?;
    let mut inflater = Inflater::default();
    let raw = inflater.inflate(sent, bounds.jfr.bytes).map_err(ConvertError::JfrBody)?;
    let Request { from: start, duration, sample_rate, .. } = *request;
    let about = About { start, duration, sample_rate };
    let recording = jfr::read(raw, &about, &Snapshot::parse(&names)?, &bounds.jfr)?;
    let made = recording.profiles.into_iter().map(|Profile { kind, pprof }| {
        let mut labels = labels(request, kind.metric, &request.name.app, true);
        if !recording.event.is_empty() && !request.name.labels.contains_key("jfr_event") {
            labels.push(("jfr_event".to_owned(), recording.event.clone()));
        }
        Made { labels, pprof: Some(pprof.into()) }
    });
    Ok(Converted { door, time_nanos, made: made.collect() })
}
