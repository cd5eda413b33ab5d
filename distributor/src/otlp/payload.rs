//! Profiles that an export has as they were first recorded: pprof, or flight recordings, each of which holds several.

use athanor_chassis::{Code, Status};
use athanor_profile::jfr::{self, About, JfrError, Limits as JfrLimits, Recording, Snapshot};
use athanor_profile::otlp::{Bounds, Made};
use athanor_profile::pprof::{DecodeError, Inflater, Limits as PprofLimits, sample_types};
use bytes::Bytes;

use super::Ready;
use crate::ingest::{metric_of, recording_way_out};

/// How often in a second a recording is taken to look at threads: OTLP does not say it of what has no samples.
const SAMPLE_RATE: u32 = 100;

/// The label that says which event a recording is of, as its sender has it.
const JFR_EVENT: &str = "jfr_event";

/// What to do about payloads that together are too long.
const TOGETHER: &str = ", which is what others leave of 64 times the request and limits.max_profile_size_bytes, at most \
                        limits.ingestion_body_limit: send smaller batches";

/// Reads the payloads of one export.
pub(super) struct Payloads<'b> {
    body: &'b Bytes,
    bounds: &'b Bounds,
    jfr: &'b JfrLimits,
    inflater: Inflater,
    /// So many bytes all that follow may have, inflated.
    left: usize,
}

impl<'b> Payloads<'b> {
    pub(super) fn new(body: &'b Bytes, bounds: &'b Bounds, jfr: &'b JfrLimits) -> Self {
        Payloads { body, bounds, jfr, inflater: Inflater::default(), left: bounds.total }
    }

    /// What a payload holds, with the names that its types say.
    pub(super) fn read(
        &mut self,
        made: &Made,
        format: &str,
        at: std::ops::Range<usize>,
    ) -> Result<Vec<Ready>, Status> {
        let payload = self.body.slice(at);
        match format {
            "pprof" => self.pprof(made, &payload),
            "jfr" => self.jfr(made, &payload),
            format => {
                let message = format!(
                    "profile has no samples, and an original_payload of format {format:?}, which is not read here; send \
                     pprof, jfr or samples"
                );
                Err(Status::new(Code::Invalid, message).because("unsupported_format"))
            }
        }
    }

    fn pprof(&mut self, made: &Made, payload: &Bytes) -> Result<Vec<Ready>, Status> {
        let way_out = " (limits.max_profile_size_bytes): profile for a shorter time";
        let limits = PprofLimits { bytes: self.bounds.profile, ..PprofLimits::default() };
        let raw = self.inflated(payload, limits.bytes, way_out)?;
        let types = sample_types(raw, &limits).map_err(|error| refused(&error, "", error.reason()))?;
        let metric = metric_of(&types);
        // What is kept of the request is the payload, and not all of it.
        Ok(vec![named(made, &metric, Ok(Some(Bytes::copy_from_slice(payload))))])
    }

    fn jfr(&mut self, made: &Made, payload: &Bytes) -> Result<Vec<Ready>, Status> {
        let (jfr, left) = (self.jfr, self.left);
        let way_out = " (limits.ingestion_body_limit): record for a shorter time";
        let raw = self.inflated(payload, jfr.bytes, way_out)?;
        // The request is held beside it, so what is read from it must fit into what it leaves.
        let kept = JfrLimits::of(left - raw.len());
        let within = JfrLimits { constants: kept.constants, frames: kept.frames, ..*jfr };
        let of_recording = |error: JfrError| refused(&error, recording_way_out(&error), error.reason());
        let about = About { start: made.time_nanos, duration: 0, sample_rate: SAMPLE_RATE };
        let labels = Snapshot::parse(&[]).map_err(of_recording)?;
        let Recording { event, profiles, .. } =
            jfr::read(raw, &about, &labels, &within).map_err(of_recording)?;
        let seen: usize = profiles.iter().flat_map(|profile| &profile.pprof).map(Vec::len).sum();
        let Some(left) = self.left.checked_sub(seen) else {
            let message = format!("profiles of the recording have {seen} bytes, the limit is {}", self.left);
            return Err(refused(&message, TOGETHER, "body_size_limit_exceeded"));
        };
        self.left = left;
        let profiles = profiles.into_iter().map(|profile| {
            let pprof = profile.pprof.map_err(of_recording);
            let pprof = pprof.map(|pprof| (!pprof.is_empty()).then(|| pprof.into()));
            let mut ready = named(made, profile.kind.metric, pprof);
            ready.without_stack = profile.without_stack;
            if !event.is_empty() && !ready.labels.iter().any(|(name, _)| name == JFR_EVENT) {
                ready.labels.push((JFR_EVENT.to_owned(), event.clone()));
            }
            ready
        });
        Ok(profiles.collect())
    }

    /// The plain bytes of a payload, at most so many.
    fn inflated<'p>(
        &'p mut self,
        payload: &'p Bytes,
        most: usize,
        way_out: &'static str,
    ) -> Result<&'p [u8], Status> {
        let (limit, way_out, reason) = match self.left < most {
            true => (self.left, TOGETHER, "body_size_limit_exceeded"),
            false => (most, way_out, "profile_size_limit"),
        };
        let raw = self.inflater.inflate(payload, limit).map_err(|error| match error {
            error @ DecodeError::OverLimit { .. } => refused(&error, way_out, reason),
            error => refused(&error, "", error.reason()),
        })?;
        self.left -= raw.len();
        Ok(raw)
    }
}

fn named(made: &Made, metric: &str, pprof: Result<Option<Bytes>, Status>) -> Ready {
    let mut labels = made.labels.clone();
    labels.push(("__name__".to_owned(), metric.to_owned()));
    Ready { labels, id: made.id.clone(), time_nanos: made.time_nanos, pprof, without_stack: 0 }
}

fn refused(error: &impl std::fmt::Display, way_out: &str, reason: &'static str) -> Status {
    Status::new(Code::Invalid, format!("original_payload: {error}{way_out}")).because(reason)
}
