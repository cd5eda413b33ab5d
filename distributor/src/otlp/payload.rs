//! Profiles that an export carries in their original format: pprof, or flight recordings with several
//! profiles each.

use athanor_chassis::{ErrorCode, Status};
use athanor_profile::formats::jfr::{self, JfrError, JfrLimits, JfrRecording, LabelsSnapshot, RecordingInfo};
use athanor_profile::formats::otlp::{OtlpLimits, OtlpProfile};
use athanor_profile::formats::pprof::{DecodeError, DecodeLimits as PprofLimits, Inflater, sample_types};
use athanor_profile::labeling::metric_name::default_metric_name;
use bytes::Bytes;

use super::ServiceProfile;
use crate::ingest::recording_way_out;

/// Samples per second assumed for a recording. OTLP has no such field for a profile without samples.
const DEFAULT_SAMPLE_RATE: u32 = 100;

/// Label with the event of a recording, as its sender set it.
const JFR_EVENT_LABEL: &str = "jfr_event";

/// Advice for payloads that are too long together.
const TOTAL_LIMIT_ADVICE: &str = ", the rest of the budget of the request (64 times its size plus limits.max_profile_size_bytes, at most \
                        limits.ingestion_body_limit): send smaller batches";

/// Reader of the payloads of one export.
pub(super) struct PayloadReader<'b> {
    body: &'b Bytes,
    bounds: &'b OtlpLimits,
    jfr: &'b JfrLimits,
    inflater: Inflater,
    /// Inflated bytes that the remaining payloads may have in total.
    left: usize,
}

impl<'b> PayloadReader<'b> {
    pub(super) fn new(body: &'b Bytes, bounds: &'b OtlpLimits, jfr: &'b JfrLimits) -> Self {
        PayloadReader { body, bounds, jfr, inflater: Inflater::default(), left: bounds.total }
    }

    /// Returns the profiles of a payload, with the metric names that their types give.
    pub(super) fn read_payload(
        &mut self,
        made: &OtlpProfile,
        format: &str,
        at: std::ops::Range<usize>,
    ) -> Result<Vec<ServiceProfile>, Status> {
        let payload = self.body.slice(at);
        match format {
            "pprof" => self.read_pprof(made, &payload),
            "jfr" => self.read_jfr(made, &payload),
            format => {
                let message = format!(
                    "profile has no samples, and an original_payload of the unsupported format {format:?}; send \
                     pprof, jfr or samples"
                );
                Err(Status::new(ErrorCode::Invalid, message).with_reason("unsupported_format"))
            }
        }
    }

    fn read_pprof(&mut self, made: &OtlpProfile, payload: &Bytes) -> Result<Vec<ServiceProfile>, Status> {
        let way_out = " (limits.max_profile_size_bytes): profile for a shorter time";
        let limits = PprofLimits { bytes: self.bounds.profile, ..PprofLimits::default() };
        let raw = self.inflate_payload(payload, limits.bytes, way_out)?;
        let types =
            sample_types(raw, &limits).map_err(|error| payload_refusal(&error, "", error.reason()))?;
        let metric = default_metric_name(&types);
        // The copy lets the rest of the request be freed.
        Ok(vec![name_profile(made, &metric, Ok(Some(Bytes::copy_from_slice(payload))))])
    }

    fn read_jfr(&mut self, made: &OtlpProfile, payload: &Bytes) -> Result<Vec<ServiceProfile>, Status> {
        let jfr = self.jfr;
        let left = self.left;
        let way_out = " (limits.ingestion_body_limit): record for a shorter time";
        let raw = self.inflate_payload(payload, jfr.bytes, way_out)?;
        // The request stays in memory meanwhile, so tables read from it must fit into the rest of the budget.
        let kept = JfrLimits::for_bytes(left - raw.len());
        let within = JfrLimits { constants: kept.constants, frames: kept.frames, ..*jfr };
        let of_recording =
            |error: JfrError| payload_refusal(&error, recording_way_out(&error), error.reason());
        let about = RecordingInfo { start: made.time_nanos, duration: 0, sample_rate: DEFAULT_SAMPLE_RATE };
        let labels = LabelsSnapshot::parse(&[]).map_err(of_recording)?;
        let JfrRecording { event, profiles, .. } =
            jfr::read(raw, &about, &labels, &within).map_err(of_recording)?;
        let seen: usize = profiles.iter().flat_map(|profile| &profile.pprof).map(Vec::len).sum();
        let Some(left) = self.left.checked_sub(seen) else {
            let message = format!("profiles of the recording have {seen} bytes, the limit is {}", self.left);
            return Err(payload_refusal(&message, TOTAL_LIMIT_ADVICE, "body_size_limit_exceeded"));
        };
        self.left = left;
        let profiles = profiles.into_iter().map(|profile| {
            let pprof = profile.pprof.map_err(of_recording);
            let pprof = pprof.map(|pprof| (!pprof.is_empty()).then(|| pprof.into()));
            let mut ready = name_profile(made, profile.kind.metric, pprof);
            ready.without_stack = profile.without_stack;
            if !event.is_empty() && !ready.labels.iter().any(|(name, _)| name == JFR_EVENT_LABEL) {
                ready.labels.push((JFR_EVENT_LABEL.to_owned(), event.clone()));
            }
            ready
        });
        Ok(profiles.collect())
    }

    /// Returns the plain bytes of a payload, at most `most` and at most the rest of the budget.
    fn inflate_payload<'p>(
        &'p mut self,
        payload: &'p Bytes,
        most: usize,
        way_out: &'static str,
    ) -> Result<&'p [u8], Status> {
        let (limit, way_out, reason) = match self.left < most {
            true => (self.left, TOTAL_LIMIT_ADVICE, "body_size_limit_exceeded"),
            false => (most, way_out, "profile_size_limit"),
        };
        let raw = self.inflater.inflate(payload, limit).map_err(|error| match error {
            error @ DecodeError::OverLimit { .. } => payload_refusal(&error, way_out, reason),
            error => payload_refusal(&error, "", error.reason()),
        })?;
        self.left -= raw.len();
        Ok(raw)
    }
}

fn name_profile(made: &OtlpProfile, metric: &str, pprof: Result<Option<Bytes>, Status>) -> ServiceProfile {
    let mut labels = made.labels.clone();
    labels.push(("__name__".to_owned(), metric.to_owned()));
    ServiceProfile { labels, id: made.id.clone(), time_nanos: made.time_nanos, pprof, without_stack: 0 }
}

fn payload_refusal(error: &impl std::fmt::Display, way_out: &str, reason: &'static str) -> Status {
    Status::new(ErrorCode::Invalid, format!("original_payload: {error}{way_out}")).with_reason(reason)
}
