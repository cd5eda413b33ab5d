//! Exports of OpenTelemetry: the profiles of many resources in one request, of which each is stored or refused alone.
//!
//! The message is never a message here: its bytes become those of pprof in one step, on a compute thread.

mod payload;

use std::borrow::Cow;
use std::fmt::Write;

use athanor_chassis::{Activity, Code, Limits, Status, TenantId};
use athanor_profile::jfr::Limits as JfrLimits;
use athanor_profile::normalise::{LabelLimits, SERVICE, Series, series};
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

/// What became of a profile, of which each service is stored or refused by itself.
#[derive(Clone, Debug, Default)]
struct Outcome {
    stored: Vec<Stored>,
    /// Why some of it is not stored.
    refused: Option<Status>,
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
        let mut admitted = self.admit(tenant, bytes, &limits).inspect_err(refused)?;
        let bounds = Bounds {
            profile: limits.max_profile_size_bytes.as_usize(),
            total: limits.ingestion_body_limit.as_usize(),
            profiles: self.config.max_profiles_per_request as usize,
        };
        let jfr = recording_bounds(&limits);
        let work = move || convert(body, written, &bounds, &jfr);
        let converted = self.deps.compute.for_tenant(tenant).run_as(Activity::Body, work).await;
        let converted = converted
            .map_err(|error| Status::new(Code::Internal, format!("not converted: {error}")))
            .and_then(std::convert::identity)
            .inspect_err(refused)?;
        self.widen(&mut admitted, converted.bytes()).inspect_err(refused)?;

        let share = bytes / converted.profiles.len().max(1);
        counted.came(converted.profiles.len(), bytes);
        counted.odd(&converted.oddities);
        let outcomes = self.store(tenant, converted.profiles, &limits).await;
        for Outcome { stored, refused } in &outcomes {
            stored.iter().for_each(|stored| counted.taken(stored));
            if let Some(status) = refused {
                counted.refused(status, 1, share);
            }
        }
        let stored = outcomes.iter().flat_map(|outcome| &outcome.stored);
        self.charge_decompressed(tenant, &limits, bytes, stored);
        report(outcomes)
    }

    /// What became of each profile, in their order.
    async fn store(
        &self,
        tenant: &TenantId,
        profiles: Vec<Result<Vec<Ready>, Status>>,
        limits: &Limits,
    ) -> Vec<Outcome> {
        let limits = label_limits(limits);
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(profiles.len());
        let (mut uploads, mut places) = (Vec::new(), Vec::new());
        for (place, profile) in profiles.into_iter().enumerate() {
            let mut outcome = Outcome::default();
            match profile {
                Ok(parts) => {
                    for part in parts {
                        let without_stack = part.without_stack;
                        match part.upload(&limits) {
                            Ok(Some(upload)) => {
                                uploads.push(upload);
                                places.push((place, without_stack));
                            }
                            Ok(None) => outcome.add(Ok(Stored::NOTHING.without(without_stack))),
                            Err(status) => outcome.add(Err(status)),
                        }
                    }
                }
                Err(status) => outcome.add(Err(status)),
            }
            outcomes.push(outcome);
        }
        let stored = self.append(tenant, uploads).await;
        for ((place, without_stack), stored) in places.into_iter().zip(stored) {
            outcomes[place].add(stored.map(|stored| stored.without(without_stack)));
        }
        outcomes
    }
}

/// Where dots become `_`, what the resource calls its service has the name of the service itself: that of a sample counts.
fn of_one_service(mut labels: Vec<(String, String)>, limits: &LabelLimits) -> Vec<(String, String)> {
    let service = labels.iter().find(|(name, _)| name == SERVICE).map(|(_, service)| service.clone());
    if limits.sanitise && service.is_some() {
        labels.retain(|(name, value)| name != "service.name" || Some(value) == service.as_ref());
    }
    labels
}

impl Ready {
    /// What is to be stored; nothing if there is nothing in it.
    fn upload(self, limits: &LabelLimits) -> Result<Option<Upload>, Status> {
        let Series { sent, labels } = series(of_one_service(self.labels, limits), limits)
            .map_err(|refused| labels_refused(&refused))?;
        let (client_id, time_nanos) = (self.id, self.time_nanos);
        let upload = |pprof| Upload { sent, labels, client_id, time_nanos, pprof, ..Upload::default() };
        Ok(self.pprof?.map(upload))
    }
}

impl Converted {
    /// What it holds until it is stored.
    fn bytes(&self) -> usize {
        let of_one = |ready: &Ready| {
            let labels = ready.labels.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
            labels + ready.pprof.iter().flatten().map(Bytes::len).sum::<usize>()
        };
        self.profiles.iter().flatten().flatten().map(of_one).sum()
    }
}

impl Outcome {
    /// Adds what became of one service. A refusal that may pass goes before others.
    fn add(&mut self, stored: Result<Stored, Status>) {
        match (stored, &self.refused) {
            (Ok(stored), _) => self.stored.push(stored),
            (Err(status), Some(before)) if before.code.retryable() || !status.code.retryable() => {}
            (Err(status), _) => self.refused = Some(status),
        }
    }
}

/// Makes uploads of a request. Pure; runs on compute threads.
fn convert(body: Bytes, written: Written, bounds: &Bounds, jfr: &JfrLimits) -> Result<Converted, Status> {
    let body = match written {
        Written::Protobuf => body,
        Written::Json => protobuf(body, bounds)?,
    };
    let read = match written {
        Written::Protobuf => otlp::read,
        Written::Json => otlp::read_rewritten,
    };
    let Export { profiles, oddities } = read(&body, bounds).map_err(|error| match error {
        error @ OtlpError::OverLimit { .. } => refused(Code::TooLarge, &error),
        error => refused(Code::Invalid, &error),
    })?;
    let bounds = bounds.of_request(body.len());
    let mut payloads = Payloads::new(&body, &bounds, jfr);
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
fn report(outcomes: Vec<Outcome>) -> Result<Exported, Status> {
    let (count, mut exported) = (outcomes.len(), Exported::default());
    let mut refused: Vec<Refusal> = Vec::new();
    let mut is_stored = false;
    for (number, Outcome { stored, refused: status }) in (1..).zip(outcomes) {
        let in_part = !stored.is_empty();
        is_stored |= in_part;
        stored.into_iter().for_each(|stored| exported.receipt.count(stored));
        refused.extend(status.map(|status| Refusal { number, in_part, status: of_content(status) }));
    }
    let severity = |status: &Status| (status.code.retryable(), status.code != Code::Invalid);
    let Some(Refusal { status: worst, .. }) = refused.iter().max_by_key(|refusal| severity(&refusal.status))
    else {
        return Ok(exported);
    };
    let message = if count == 1 && !is_stored { worst.message.clone() } else { tell(count, &refused) };
    if worst.code.retryable() || !is_stored {
        let retry_after = refused.iter().filter_map(|refusal| refusal.status.retry_after).max();
        return Err(Status { retry_after, ..Status::new(worst.code, message) });
    }
    Ok(Exported { rejected: refused.len(), message, ..exported })
}

/// A profile that is not stored, or not all of it.
struct Refusal {
    /// Which one, from 1.
    number: usize,
    in_part: bool,
    status: Status,
}

fn tell(count: usize, refused: &[Refusal]) -> String {
    let in_part = refused.iter().filter(|refusal| refusal.in_part).count();
    let some = if in_part > 0 { Cow::from(format!(", {in_part} of them partly stored")) } else { "".into() };
    let mut text = format!("{} of {count} profiles are not stored{some}", refused.len());
    for Refusal { number, in_part, status } in refused.iter().take(TOLD) {
        let partly = if *in_part { " (partly stored)" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "; profile {number}{partly}: {}", status.message);
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
mod tests;
