//! OpenTelemetry exports. One request has the profiles of many resources, and each is stored or refused
//! separately.
//!
//! No protobuf message type is built. The request's bytes are converted to pprof in one step, on a compute
//! thread.

mod payload;

use std::borrow::Cow;
use std::fmt::Write;

use athanor_chassis::{CpuActivity, ErrorCode, Status, TenantId, TenantLimits};
use athanor_profile::formats::jfr::JfrLimits;
use athanor_profile::formats::otlp::{
    self, OtlpError, OtlpExport, OtlpJsonError, OtlpLimits, OtlpProfile, OtlpProfileContent, OtlpViolations,
};
use athanor_profile::labeling::normalize::{LabelLimits, NormalizedLabels, SERVICE_LABEL, normalize_labels};
use athanor_profile::store_interface::upload::ProfileUpload;
use bytes::Bytes;

use crate::distributor::{Distributor, PushSummary, label_limits};
use crate::ingest::recording_bounds;
use crate::push::{labels_refusal, to_content_error};
use crate::stored_profile::StoredProfile;
use payload::PayloadReader;

/// Maximum number of refusals that a response describes.
const MAX_REPORTED_REFUSALS: usize = 5;

/// Encoding of a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpEncoding {
    /// Protobuf in its binary encoding.
    Protobuf,
    /// JSON as OTLP maps it from protobuf.
    Json,
}

/// Summary of an export that stored at least one profile, or that was empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportSummary {
    /// Profiles that are stored, by outcome.
    pub receipt: PushSummary,
    /// Number of profiles that are rejected, fully or in part.
    pub rejected: usize,
    /// Reasons for the rejections. Empty if all profiles are stored.
    pub message: String,
}

/// Result of converting a request.
struct ConvertedExport {
    /// Result per profile. Each profile gives one upload per service, before the label rules.
    profiles: Vec<Result<Vec<ServiceProfile>, Status>>,
    violations: OtlpViolations,
}

struct ServiceProfile {
    labels: Vec<(String, String)>,
    id: Option<String>,
    time_nanos: i64,
    /// Converted pprof, `None` if it is empty. An error refuses only this part.
    pprof: Result<Option<Bytes>, Status>,
    /// Samples that were dropped because they have no stack.
    without_stack: u64,
}

/// Outcome of one profile, of which each service is stored or refused separately.
#[derive(Clone, Debug, Default)]
struct ExportOutcome {
    stored: Vec<StoredProfile>,
    /// Error of a part that is not stored. A retryable error takes precedence.
    refused: Option<Status>,
}

impl Distributor {
    /// Stores every profile of an export that can be stored. Returns an error if none is stored, or if a
    /// retry may store more. A retry of the whole request is safe.
    pub async fn export(
        &self,
        tenant: &TenantId,
        body: Bytes,
        written: OtlpEncoding,
    ) -> Result<ExportSummary, Status> {
        let bytes = body.len();
        let counted = self.counts.tenant_counters(tenant);
        let limits = self.deps.overrides.for_tenant(tenant);
        let refused = |status: &Status| {
            counted.record_received(1, bytes);
            counted.record_refusal(status, 1, bytes);
        };
        let mut admitted = self.admit(tenant, bytes, &limits).inspect_err(refused)?;
        let bounds = OtlpLimits {
            profile: limits.max_profile_size_bytes.as_usize(),
            total: limits.ingestion_body_limit.as_usize(),
            profiles: self.config.max_profiles_per_request as usize,
        };
        let jfr = recording_bounds(&limits);
        let work = move || convert_export(body, written, &bounds, &jfr);
        let converted = self.deps.compute.for_tenant(tenant).run_as(CpuActivity::HttpBody, work).await;
        let converted = converted
            .map_err(|error| Status::new(ErrorCode::Internal, format!("failed to convert the body: {error}")))
            .and_then(std::convert::identity)
            .inspect_err(refused)?;
        self.reserve_more(&mut admitted, converted.memory_bytes()).inspect_err(refused)?;

        let share = bytes / converted.profiles.len().max(1);
        counted.record_received(converted.profiles.len(), bytes);
        counted.record_violations(&converted.violations);
        let outcomes = self.store_export(tenant, converted.profiles, &limits).await;
        for ExportOutcome { stored, refused } in &outcomes {
            stored.iter().for_each(|stored| counted.record_stored(stored));
            if let Some(status) = refused {
                counted.record_refusal(status, 1, share);
            }
        }
        let stored = outcomes.iter().flat_map(|outcome| &outcome.stored);
        self.charge_decompressed(tenant, &limits, bytes, stored);
        summarize_export(outcomes)
    }

    /// Stores the profiles and returns their outcomes, in the same order.
    async fn store_export(
        &self,
        tenant: &TenantId,
        profiles: Vec<Result<Vec<ServiceProfile>, Status>>,
        limits: &TenantLimits,
    ) -> Vec<ExportOutcome> {
        let limits = label_limits(limits);
        let mut outcomes: Vec<ExportOutcome> = Vec::with_capacity(profiles.len());
        let mut uploads = Vec::new();
        let mut places = Vec::new();
        for (place, profile) in profiles.into_iter().enumerate() {
            let mut outcome = ExportOutcome::default();
            match profile {
                Ok(parts) => {
                    for part in parts {
                        let without_stack = part.without_stack;
                        match part.into_upload(&limits) {
                            Ok(Some(upload)) => {
                                uploads.push(upload);
                                places.push((place, without_stack));
                            }
                            Ok(None) => outcome.add_result(Ok(
                                StoredProfile::EMPTY_BODY.with_dropped_samples(without_stack)
                            )),
                            Err(status) => outcome.add_result(Err(status)),
                        }
                    }
                }
                Err(status) => outcome.add_result(Err(status)),
            }
            outcomes.push(outcome);
        }
        let stored = self.append(tenant, uploads).await;
        for ((place, without_stack), stored) in places.into_iter().zip(stored) {
            outcomes[place].add_result(stored.map(|stored| stored.with_dropped_samples(without_stack)));
        }
        outcomes
    }
}

/// Drops the label `service.name` if sanitizing would give it the name of the service label. The sample's
/// service has precedence over the resource's.
fn replace_service_label(mut labels: Vec<(String, String)>, limits: &LabelLimits) -> Vec<(String, String)> {
    let service = labels.iter().find(|(name, _)| name == SERVICE_LABEL).map(|(_, service)| service.clone());
    if limits.sanitise && service.is_some() {
        labels.retain(|(name, value)| name != "service.name" || Some(value) == service.as_ref());
    }
    labels
}

impl ServiceProfile {
    /// Returns the upload, or `None` if the profile is empty.
    fn into_upload(self, limits: &LabelLimits) -> Result<Option<ProfileUpload>, Status> {
        let NormalizedLabels { sent, labels } =
            normalize_labels(replace_service_label(self.labels, limits), limits)
                .map_err(|refused| labels_refusal(&refused))?;
        let client_id = self.id;
        let time_nanos = self.time_nanos;
        let upload =
            |pprof| ProfileUpload { sent, labels, client_id, time_nanos, pprof, ..ProfileUpload::default() };
        Ok(self.pprof?.map(upload))
    }
}

impl ConvertedExport {
    /// Returns the bytes that labels and profiles hold until they are stored.
    fn memory_bytes(&self) -> usize {
        let of_one = |ready: &ServiceProfile| {
            let labels = ready.labels.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
            labels + ready.pprof.iter().flatten().map(Bytes::len).sum::<usize>()
        };
        self.profiles.iter().flatten().flatten().map(of_one).sum()
    }
}

impl ExportOutcome {
    /// Adds the outcome of one service. A retryable error replaces an error that is not.
    fn add_result(&mut self, stored: Result<StoredProfile, Status>) {
        match (stored, &self.refused) {
            (Ok(stored), _) => self.stored.push(stored),
            (Err(status), Some(before)) if before.code.is_retryable() || !status.code.is_retryable() => {}
            (Err(status), _) => self.refused = Some(status),
        }
    }
}

/// Converts a request to uploads. Pure; runs on compute threads.
fn convert_export(
    body: Bytes,
    written: OtlpEncoding,
    bounds: &OtlpLimits,
    jfr: &JfrLimits,
) -> Result<ConvertedExport, Status> {
    let body = match written {
        OtlpEncoding::Protobuf => body,
        OtlpEncoding::Json => json_to_protobuf(body, bounds)?,
    };
    let read = match written {
        OtlpEncoding::Protobuf => otlp::read,
        OtlpEncoding::Json => otlp::read_converted_json,
    };
    let OtlpExport { profiles, violations } = read(&body, bounds).map_err(|error| match error {
        error @ OtlpError::OverLimit { .. } => refusal_status(ErrorCode::TooLarge, &error),
        error => refusal_status(ErrorCode::Invalid, &error),
    })?;
    let bounds = bounds.for_request(body.len());
    let mut payloads = PayloadReader::new(&body, &bounds, jfr);
    let profiles = profiles.into_iter().map(|parts| {
        let parts = parts.map_err(|error| refusal_status(ErrorCode::Invalid, &error))?;
        let ready: Result<Vec<_>, _> =
            parts.into_iter().map(|made| service_profiles(made, &mut payloads)).collect();
        Ok(ready?.into_iter().flatten().collect())
    });
    Ok(ConvertedExport { profiles: profiles.collect(), violations })
}

/// Converts a JSON request to protobuf. Drops the JSON text afterwards.
fn json_to_protobuf(json: Bytes, bounds: &OtlpLimits) -> Result<Bytes, Status> {
    otlp::from_json(&json, bounds.total).map(Bytes::from).map_err(|error| {
        let (code, reason) = match error {
            OtlpJsonError::TooLarge { .. } => (ErrorCode::TooLarge, "body_size_limit_exceeded"),
            OtlpJsonError::Malformed(_) => (ErrorCode::Invalid, "malformed_request"),
        };
        Status::new(code, error.to_string()).with_reason(reason)
    })
}

fn refusal_status(code: ErrorCode, error: &OtlpError) -> Status {
    Status::new(code, error.to_string()).with_reason(error.reason())
}

/// Returns the profiles of one part. A flight recording may give several.
fn service_profiles(
    mut made: OtlpProfile,
    payloads: &mut PayloadReader<'_>,
) -> Result<Vec<ServiceProfile>, Status> {
    let pprof = match std::mem::replace(&mut made.content, OtlpProfileContent::Nothing) {
        OtlpProfileContent::Payload { format, bytes } => return payloads.read_payload(&made, &format, bytes),
        OtlpProfileContent::Pprof(bytes) => Some(bytes.into()),
        OtlpProfileContent::Nothing => {
            made.labels.push(("__name__".to_owned(), "process_cpu".to_owned()));
            None
        }
    };
    let OtlpProfile { labels, id, time_nanos, .. } = made;
    Ok(vec![ServiceProfile { labels, id, time_nanos, pprof: Ok(pprof), without_stack: 0 }])
}

/// Merges all outcomes into one result.
fn summarize_export(outcomes: Vec<ExportOutcome>) -> Result<ExportSummary, Status> {
    let count = outcomes.len();
    let mut exported = ExportSummary::default();
    let mut refused: Vec<RejectedProfile> = Vec::new();
    let mut is_stored = false;
    for (number, ExportOutcome { stored, refused: status }) in (1..).zip(outcomes) {
        let in_part = !stored.is_empty();
        is_stored |= in_part;
        stored.into_iter().for_each(|stored| exported.receipt.add_profile(stored));
        refused.extend(status.map(|status| RejectedProfile {
            number,
            in_part,
            status: to_content_error(status),
        }));
    }
    let severity = |status: &Status| (status.code.is_retryable(), status.code != ErrorCode::Invalid);
    let Some(RejectedProfile { status: worst, .. }) =
        refused.iter().max_by_key(|refusal| severity(&refusal.status))
    else {
        return Ok(exported);
    };
    let message =
        if count == 1 && !is_stored { worst.message.clone() } else { refusal_message(count, &refused) };
    if worst.code.is_retryable() || !is_stored {
        let retry_after = refused.iter().filter_map(|refusal| refusal.status.retry_after).max();
        return Err(Status { retry_after, ..Status::new(worst.code, message) });
    }
    Ok(ExportSummary { rejected: refused.len(), message, ..exported })
}

/// Profile that is not stored, or only in part.
struct RejectedProfile {
    /// Number of the profile in the request, from 1.
    number: usize,
    in_part: bool,
    status: Status,
}

fn refusal_message(count: usize, refused: &[RejectedProfile]) -> String {
    let in_part = refused.iter().filter(|refusal| refusal.in_part).count();
    let some = if in_part > 0 { Cow::from(format!(", {in_part} of them partly stored")) } else { "".into() };
    let mut text = format!("{} of {count} profiles are not stored{some}", refused.len());
    for RejectedProfile { number, in_part, status } in refused.iter().take(MAX_REPORTED_REFUSALS) {
        let partly = if *in_part { " (partly stored)" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "; profile {number}{partly}: {}", status.message);
    }
    if refused.len() > MAX_REPORTED_REFUSALS {
        let _ = write!(text, "; and {} more", refused.len() - MAX_REPORTED_REFUSALS);
    }
    text
}

impl ExportSummary {
    /// Encodes the message `ExportProfilesServiceResponse`.
    pub fn encode_response(&self, written: OtlpEncoding) -> Vec<u8> {
        match (self.rejected, written) {
            (0, OtlpEncoding::Protobuf) => Vec::new(),
            (0, OtlpEncoding::Json) => b"{}".to_vec(),
            (rejected, OtlpEncoding::Json) => {
                let partial = serde_json::json!({
                    "partialSuccess": { "rejectedProfiles": rejected.to_string(), "errorMessage": self.message }
                });
                partial.to_string().into_bytes()
            }
            (rejected, OtlpEncoding::Protobuf) => otlp::partial_success(rejected as u64, &self.message),
        }
    }
}

#[cfg(test)]
mod tests;
