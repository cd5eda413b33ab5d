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
        let limits = PprofLimits { bytes: self.bounds.profile.min(self.left), ..PprofLimits::default() };
        let refused = |error: DecodeError| refused(&error, error.reason());
        let raw = self.inflater.inflate(payload, limits.bytes).map_err(refused)?;
        self.left -= raw.len();
        let metric = metric_of(&sample_types(raw, &limits).map_err(refused)?);
        // What is kept of the request is the payload, and not all of it.
        Ok(vec![named(made, &metric, Ok(Some(Bytes::copy_from_slice(payload))))])
    }

    fn jfr(&mut self, made: &Made, payload: &Bytes) -> Result<Vec<Ready>, Status> {
        let most = self.jfr.bytes.min(self.left);
        let raw = self.inflater.inflate(payload, most).map_err(|error| refused(&error, error.reason()))?;
        self.left -= raw.len();
        let of_recording =
            |error: JfrError| refused(&format_args!("{error}{}", recording_way_out(&error)), error.reason());
        let about = About { start: made.time_nanos, duration: 0, sample_rate: SAMPLE_RATE };
        let labels = Snapshot::parse(&[]).map_err(of_recording)?;
        let Recording { event, profiles, .. } =
            jfr::read(raw, &about, &labels, self.jfr).map_err(of_recording)?;
        let profiles = profiles.into_iter().map(|profile| {
            let pprof = profile.pprof.map_err(of_recording);
            let pprof = pprof.map(|pprof| (!pprof.is_empty()).then(|| pprof.into()));
            let mut ready = named(made, profile.kind.metric, pprof);
            ready.without_stack = profile.without_stack;
            if !event.is_empty() {
                ready.labels.push(("jfr_event".to_owned(), event.clone()));
            }
            ready
        });
        Ok(profiles.collect())
    }
}

fn named(made: &Made, metric: &str, pprof: Result<Option<Bytes>, Status>) -> Ready {
    let mut labels = made.labels.clone();
    labels.push(("__name__".to_owned(), metric.to_owned()));
    Ready { labels, id: made.id.clone(), time_nanos: made.time_nanos, pprof, without_stack: 0 }
}

fn refused(error: &impl std::fmt::Display, reason: &'static str) -> Status {
    Status::new(Code::Invalid, format!("original_payload: {error}")).because(reason)
}
