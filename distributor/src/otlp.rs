//! Exports of OpenTelemetry: the profiles of many resources in one request, of which each is stored or refused alone.
//!
//! The message is never a message here: its bytes become those of pprof in one step, on a compute thread.

mod payload;

use std::fmt::Write;

use athanor_chassis::{Activity, Code, Limits, Status, TenantId};
use athanor_profile::jfr::Limits as JfrLimits;
use athanor_profile::normalise::{Series, series};
use athanor_profile::otlp::{self, Bounds, Content, Export, JsonRefused, Made, Oddities, OtlpError};
use athanor_profile::upload::Upload;
use bytes::Bytes;

use crate::distributor::{Distributor, Receipt, Stored, label_limits};
use crate::ingest::recording_bounds;
use crate::push::{labels_refused, of_content};
use payload::Payloads;

/// How many refusals an answer tells in full.
const TOLD: usize = 5;

/// How a request is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// In protobuf.
    Protobuf,
    /// In JSON.
    Json,
}

/// What became of an export of which something was stored, or which had nothing in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// What is stored.
    pub receipt: Receipt,
    /// How many of its profiles are not.
    pub rejected: usize,
    /// Why not; empty if all are.
    pub message: String,
}

/// What was made of a request.
struct Converted {
    /// What came of each profile: an upload for each of its services, before the rules for labels.
    profiles: Vec<Result<Vec<Ready>, Status>>,
    oddities: Oddities,
}

struct Ready {
    labels: Vec<(String, String)>,
    id: Option<String>,
    time_nanos: i64,
    /// Nothing if there is nothing in it; or why this part is refused.
    pprof: Result<Option<Bytes>, Status>,
    /// Samples that were left out since they have no stack.
    without_stack: u64,
}

impl Distributor {
    /// Stores every profile of an export that can be stored. Where none is, or one may be stored later, that is an error;
    /// to repeat the whole request is safe.
    pub async fn export(&self, tenant: &TenantId, body: Bytes, written: Written) -> Result<Exported, Status> {
        let (bytes, counted) = (body.len(), self.counts.of(tenant));
        let limits = self.deps.overrides.of(tenant);
        let refused = |status: &Status| {
            counted.came(1, bytes);
            counted.refused(status, 1, bytes);
        };
        let _admitted = self.admit(tenant, bytes, &limits).inspect_err(refused)?;
        let bounds = Bounds {
            profile: limits.max_profile_size_bytes.as_usize(),
            total: limits.ingestion_body_limit.as_usize(),
            profiles: self.config.max_profiles_per_request as usize,
        };
        let jfr = recording_bounds(&limits);
        let work = move || convert(body, written, &bounds, &jfr);
        let converted = self.deps.compute.run_as(Activity::Body, work).await;
        let converted = converted
            .map_err(|error| Status::new(Code::Internal, format!("not converted: {error}")))
            .and_then(std::convert::identity)
            .inspect_err(refused)?;

        let share = bytes / converted.profiles.len().max(1);
        counted.came(converted.profiles.len(), bytes);
        counted.odd(&converted.oddities);
        let outcomes = self.store(tenant, converted.profiles, &limits).await;
        for outcome in &outcomes {
            match outcome {
                Ok(parts) => parts.iter().for_each(|stored| counted.taken(stored)),
                Err(status) => counted.refused(status, 1, share),
            }
        }
        report(outcomes)
    }

    /// What became of each profile, in their order: a refusal if any of its parts was refused.
    async fn store(
        &self,
        tenant: &TenantId,
        profiles: Vec<Result<Vec<Ready>, Status>>,
        limits: &Limits,
    ) -> Vec<Result<Vec<Stored>, Status>> {
        let limits = label_limits(limits);
        let mut outcomes: Vec<Result<Vec<Stored>, Status>> = Vec::with_capacity(profiles.len());
        let (mut uploads, mut places) = (Vec::new(), Vec::new());
        for (place, profile) in profiles.into_iter().enumerate() {
            let named: Result<Vec<_>, Status> = profile.and_then(|parts| {
                let named = parts.into_iter().map(|part| {
                    let Series { sent, labels } =
                        series(part.labels, &limits).map_err(|refused| labels_refused(&refused))?;
                    let upload = |pprof| Upload {
                        sent,
                        labels,
                        client_id: part.id,
                        time_nanos: part.time_nanos,
                        pprof,
                        ..Upload::default()
                    };
                    Ok((part.pprof.map(|pprof| pprof.map(upload)), part.without_stack))
                });
                named.collect()
            });
            outcomes.push(named.and_then(|parts| {
                let mut empty = Ok(Vec::new());
                for (part, without_stack) in parts {
                    match (part, &mut empty) {
                        (Ok(Some(upload)), _) => {
                            uploads.push(upload);
                            places.push((place, without_stack));
                        }
                        (Ok(None), Ok(empty)) => empty.push(Stored::NOTHING.without(without_stack)),
                        (Err(status), Ok(_)) => empty = Err(status),
                        (_, Err(_)) => {}
                    }
                }
                empty
            }));
        }
        let stored = self.append(tenant, uploads).await;
        for ((place, without_stack), stored) in places.into_iter().zip(stored) {
            let outcome = &mut outcomes[place];
            match (stored, outcome.as_mut()) {
                (Ok(stored), Ok(parts)) => parts.push(stored.without(without_stack)),
                (Err(status), Ok(_)) => *outcome = Err(status),
                (Err(status), Err(before)) if status.code.retryable() && !before.code.retryable() => {
                    *outcome = Err(status);
                }
                (_, Err(_)) => {}
            }
        }
        outcomes
    }
}

/// Makes uploads of a request. Pure; runs on compute threads.
fn convert(body: Bytes, written: Written, bounds: &Bounds, jfr: &JfrLimits) -> Result<Converted, Status> {
    let body = match written {
        Written::Protobuf => body,
        Written::Json => protobuf(body, bounds)?,
    };
    let Export { profiles, oddities } = otlp::read(&body, bounds).map_err(|error| match error {
        error @ OtlpError::OverLimit { .. } => refused(Code::TooLarge, &error),
        error => refused(Code::Invalid, &error),
    })?;
    let mut payloads = Payloads::new(&body, bounds, jfr);
    let profiles = profiles.into_iter().map(|parts| {
        let parts = parts.map_err(|error| refused(Code::Invalid, &error))?;
        let ready: Result<Vec<_>, _> = parts.into_iter().map(|made| ready(made, &mut payloads)).collect();
        Ok(ready?.into_iter().flatten().collect())
    });
    Ok(Converted { profiles: profiles.collect(), oddities })
}

/// The message that JSON says. The text is let go of.
fn protobuf(json: Bytes, bounds: &Bounds) -> Result<Bytes, Status> {
    otlp::from_json(&json, bounds.total).map(Bytes::from).map_err(|error| {
        let (code, reason) = match error {
            JsonRefused::TooLarge { .. } => (Code::TooLarge, "body_size_limit_exceeded"),
            JsonRefused::Malformed(_) => (Code::Invalid, "malformed_request"),
        };
        Status::new(code, error.to_string()).because(reason)
    })
}

fn refused(code: Code, error: &OtlpError) -> Status {
    Status::new(code, error.to_string()).because(error.reason())
}

/// What one part of a profile gives.
fn ready(mut made: Made, payloads: &mut Payloads<'_>) -> Result<Vec<Ready>, Status> {
    let pprof = match std::mem::replace(&mut made.content, Content::Nothing) {
        Content::Payload { format, bytes } => return payloads.read(&made, &format, bytes),
        Content::Pprof(bytes) => Some(bytes.into()),
        Content::Nothing => {
            made.labels.push(("__name__".to_owned(), "process_cpu".to_owned()));
            None
        }
    };
    let Made { labels, id, time_nanos, .. } = made;
    Ok(vec![Ready { labels, id, time_nanos, pprof: Ok(pprof), without_stack: 0 }])
}

/// One answer for all.
fn report(outcomes: Vec<Result<Vec<Stored>, Status>>) -> Result<Exported, Status> {
    let (count, mut exported) = (outcomes.len(), Exported::default());
    let mut refused: Vec<(usize, Status)> = Vec::new();
    for (number, outcome) in (1..).zip(outcomes) {
        match outcome {
            Ok(parts) => parts.into_iter().for_each(|stored| exported.receipt.count(stored)),
            Err(status) => refused.push((number, of_content(status))),
        }
    }
    let severity = |status: &Status| (status.code.retryable(), status.code != Code::Invalid);
    let Some((_, worst)) = refused.iter().max_by_key(|(_, status)| severity(status)) else {
        return Ok(exported);
    };
    let message = if count == 1 { worst.message.clone() } else { tell(count, &refused) };
    if worst.code.retryable() || refused.len() == count {
        let retry_after = refused.iter().filter_map(|(_, status)| status.retry_after).max();
        return Err(Status { retry_after, ..Status::new(worst.code, message) });
    }
    Ok(Exported { rejected: refused.len(), message, ..exported })
}

fn tell(count: usize, refused: &[(usize, Status)]) -> String {
    let mut text = format!("{} of {count} profiles are not stored", refused.len());
    for (number, status) in refused.iter().take(TOLD) {
        // Writing to a string cannot fail.
        let _ = write!(text, "; profile {number}: {}", status.message);
    }
    if refused.len() > TOLD {
        let _ = write!(text, "; and {} more", refused.len() - TOLD);
    }
    text
}

impl Exported {
    /// The message `ExportProfilesServiceResponse`.
    pub fn answer(&self, written: Written) -> Vec<u8> {
        match (self.rejected, written) {
            (0, Written::Protobuf) => Vec::new(),
            (0, Written::Json) => b"{}".to_vec(),
            (rejected, Written::Json) => {
                let partial = serde_json::json!({
                    "partialSuccess": { "rejectedProfiles": rejected.to_string(), "errorMessage": self.message }
                });
                partial.to_string().into_bytes()
            }
            (rejected, Written::Protobuf) => otlp::partial_success(rejected as u64, &self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::distributor::Outcome;
    use athanor_profile::generate::{Flight, FlightEvent, arbitrary};
    use athanor_profile::upload::Dropped;
    use athanor_profile::{ValueType, pprof};

    fn stored() -> Result<Vec<Stored>, Status> {
        Ok(vec![Stored { outcome: Outcome::New, raw_bytes: 1, samples: 1, dropped: Dropped::default() }])
    }

    fn bad(why: &str) -> Result<Vec<Stored>, Status> {
        Err(Status::new(Code::Invalid, why))
    }

    #[test]
    fn some_that_are_refused_are_told_beside_those_that_are_stored() {
        let mut outcomes = vec![stored(), bad("no name"), stored()];
        let exported = report(outcomes.clone()).unwrap();
        assert_eq!((exported.receipt.new, exported.rejected), (2, 1));
        assert_eq!(exported.message, "1 of 3 profiles are not stored; profile 2: no name");
        assert_eq!(
            exported.answer(Written::Json),
            br#"{"partialSuccess":{"errorMessage":"1 of 3 profiles are not stored; profile 2: no name","rejectedProfiles":"1"}}"#
        );
        outcomes.extend((0..9).map(|_| bad("no time")));
        let message = report(outcomes).unwrap().message;
        assert!(
            message.starts_with("10 of 12 profiles are not stored; profile 2: no name; profile 4: no time")
        );
        assert!(message.ends_with("; and 5 more"), "{message}");
    }

    #[test]
    fn all_that_are_refused_are_an_error_and_so_is_one_that_may_be_stored_later() {
        let refused = report(vec![bad("a"), bad("b")]).unwrap_err();
        assert_eq!(refused.code, Code::Invalid);
        assert_eq!(refused.message, "2 of 2 profiles are not stored; profile 1: a; profile 2: b");
        let busy = Status::new(Code::Unavailable, "busy").after(Duration::from_secs(3));
        let refused = report(vec![stored(), bad("a"), Err(busy)]).unwrap_err();
        assert_eq!((refused.code, refused.retry_after), (Code::Unavailable, Some(Duration::from_secs(3))));
        assert_eq!(report(vec![]), Ok(Exported::default()));
        assert_eq!(Exported::default().answer(Written::Protobuf), [0u8; 0]);
        assert_eq!(Exported::default().answer(Written::Json), b"{}");
    }

    const BOUNDS: Bounds = Bounds { profile: 1 << 20, total: 1 << 20, profiles: 10 };

    fn payload(format: &str, bytes: Vec<u8>) -> Result<Ready, Status> {
        let content = Content::Payload { format: format.to_owned(), bytes: 0..bytes.len() };
        let made = Made { labels: Vec::new(), id: None, time_nanos: 7, content };
        let (body, jfr) = (bytes.into(), JfrLimits::of(1 << 20));
        ready(made, &mut Payloads::new(&body, &BOUNDS, &jfr)).map(|mut ready| ready.remove(0))
    }

    #[test]
    fn a_kind_of_a_recording_is_refused_alone() {
        let allocated = |weight| FlightEvent {
            name: "jdk.ObjectAllocationSample",
            stack: vec![("App".to_owned(), "main".to_owned(), 1)],
            numbers: vec![("weight", weight)],
            ..FlightEvent::default()
        };
        let running = FlightEvent { name: "jdk.ExecutionSample", ..allocated(0) };
        let bare = FlightEvent { name: "profiler.LiveObject", stack: Vec::new(), ..allocated(0) };
        let events = vec![running, allocated(i64::MAX as u64), allocated(1), bare];
        let bytes = Flight { compressed: true, ticks: 1, events }.chunk();
        let content = Content::Payload { format: "jfr".to_owned(), bytes: 0..bytes.len() };
        let made = Made { labels: Vec::new(), id: None, time_nanos: 7, content };
        let (body, jfr) = (bytes.into(), JfrLimits::of(1 << 20));
        let parts = ready(made, &mut Payloads::new(&body, &BOUNDS, &jfr)).unwrap();
        assert!(matches!(&parts[0].pprof, Ok(Some(pprof)) if !pprof.is_empty()));
        assert_eq!(
            parts[1].pprof.as_ref().unwrap_err().message,
            "original_payload: values of profile alloc_sample_objects of the flight recording add up to over 63 bits: \
             record for a shorter time"
        );
        assert_eq!((&parts[2].pprof, parts[2].without_stack), (&Ok(None), 1));
    }

    #[test]
    fn a_payload_is_named_by_its_types() {
        let mut profile = arbitrary(1);
        let kind = ValueType { kind: "alloc_space".to_owned(), unit: "bytes".to_owned() };
        profile.header.types.fill(kind);
        let bytes = pprof::encode(&profile);
        let ready = payload("pprof", bytes.clone()).unwrap();
        assert_eq!(ready.labels, [("__name__".to_owned(), "memory".to_owned())]);
        assert_eq!((ready.pprof, ready.time_nanos), (Ok(Some(Bytes::copy_from_slice(&bytes))), 7));
        let refused = |format, bytes| payload(format, bytes).err().map(|status| status.to_string()).unwrap();
        assert_eq!(refused("pprof", vec![]), "original_payload: profile has no sample type");
        assert!(refused("jfr", vec![1, 2]).starts_with("original_payload: not a flight recording"));
        assert_eq!(
            refused("linux_perf", vec![1]),
            "profile has no samples, and an original_payload of format \"linux_perf\", which is not read here; send pprof, \
             jfr or samples"
        );
    }
}
