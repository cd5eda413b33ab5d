//! Ingest endpoint for profiles in the forms that language SDKs send.
//!
//! The request's parameters name the application. The body is pprof, a form with pprof in it, text, or the
//! format of another tool. Refusals have the statuses that SDKs expect: 400 for parameters, 422 for a body
//! that cannot be read.

mod convert;
mod folded_text;
mod request;

use athanor_chassis::{CpuActivity, ErrorCode, Status, TenantId, TenantLimits, Timestamp};
use athanor_profile::labeling::normalize::{DELTA_LABEL, LabelLimits, NormalizedLabels, normalize_labels};
use athanor_profile::store_interface::upload::ProfileUpload;
use bytes::Bytes;

pub(crate) use convert::{recording_bounds, recording_way_out};
pub use request::{IngestRequest, IngestRequestError};

use crate::distributor::{Distributor, PushSummary, label_limits};
use crate::push::{ProfilePosition, labels_refusal, summarize_push};
use crate::stored_profile::StoredProfile;
use convert::{ClientDialect, ConvertLimits, ConvertedBody, ConvertedProfile, convert_body};

/// HTTP status for a body that was understood and cannot be accepted.
const UNPROCESSABLE_STATUS: u16 = 422;
/// Refusal reason of a request that cannot be read.
const MALFORMED_REASON: &str = "malformed_request";

/// Error of the ingest endpoint. A few of its HTTP statuses differ from those of other endpoints.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}")]
pub struct IngestError {
    /// HTTP status of the response.
    pub http: u16,
    /// Value of `code` in the body of the response.
    pub code: &'static str,
    /// Message, and the retry delay if there is one.
    pub status: Status,
}

/// Returns the pprof profiles that a body would be stored as. Profiles that are refused individually are left
/// out. `query` and `content_type` are those of the request.
pub fn convert_profiles(
    query: &str,
    content_type: Option<&str>,
    body: &Bytes,
    limits: &TenantLimits,
) -> Result<Vec<Bytes>, IngestError> {
    let request =
        IngestRequest::parse(query, content_type, Timestamp::UNIX_EPOCH).map_err(malformed_request)?;
    let converted = convert_body(&request, body.clone(), &ConvertLimits::from_limits(limits))?;
    Ok(converted.made.into_iter().filter_map(|made| made.pprof.ok().flatten()).collect())
}

fn malformed_request(error: IngestRequestError) -> IngestError {
    IngestError::from_status(Status::new(ErrorCode::Invalid, error.to_string()).with_reason(MALFORMED_REASON))
}

impl Distributor {
    /// Stores every profile of one request that can be stored. An empty body is accepted: SDKs send one when
    /// the program did not run.
    pub async fn ingest(
        &self,
        tenant: &TenantId,
        query: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<PushSummary, IngestError> {
        let bytes = body.len();
        let counted = self.counts.tenant_counters(tenant);
        let refused = |refused: &IngestError| {
            counted.record_received(1, bytes);
            counted.record_refusal(&refused.status, 1, bytes);
        };
        let limits = self.deps.overrides.for_tenant(tenant);
        let request = IngestRequest::parse(query, content_type, self.deps.clock.wall())
            .map_err(malformed_request)
            .inspect_err(refused)?;
        let mut admitted =
            self.admit(tenant, bytes, &limits).map_err(IngestError::from_status).inspect_err(refused)?;
        let converted = self.convert_on_compute(tenant, &limits, request, body).await.inspect_err(refused)?;
        // The body itself is dropped here unless it is stored as it is.
        let made: usize = converted.made.iter().map(ConvertedProfile::memory_bytes).sum();
        self.reserve_more(&mut admitted, made.saturating_sub(bytes))
            .map_err(IngestError::from_status)
            .inspect_err(refused)?;

        let door = converted.door;
        let made = &converted.made;
        counted.record_received(made.len(), bytes);
        if let Err(status) = self.check_profile_count(made.len()) {
            counted.record_refusal(&status, made.len(), bytes);
            return Err(IngestError::from_status(status));
        }
        let share = bytes / made.len().max(1);
        let places = (1..).zip(made).map(|(profile, made)| ProfilePosition {
            series: 1,
            profile,
            name: made.name.clone(),
            bytes: share,
        });
        let places: Vec<ProfilePosition> = places.collect();
        let refused = made.iter().find_map(|made| made.pprof.as_ref().err());
        let refused = refused.map(|refused| (refused.http, refused.code));
        let outcomes = self.store_converted(tenant, converted, &label_limits(&limits)).await;
        outcomes.iter().for_each(|outcome| counted.record_outcome(outcome, share));
        self.charge_decompressed(tenant, &limits, bytes, outcomes.iter().flatten());
        summarize_push(places.into_iter().zip(outcomes).collect()).map_err(|status| match refused {
            // A conversion error keeps its own HTTP status, which states the cause.
            Some((http, code)) if status.code == ErrorCode::Invalid => IngestError { http, code, status },
            _ => IngestError::for_dialect(door, status),
        })
    }

    /// Converts a body on a compute thread.
    async fn convert_on_compute(
        &self,
        tenant: &TenantId,
        limits: &TenantLimits,
        request: IngestRequest,
        body: Bytes,
    ) -> Result<ConvertedBody, IngestError> {
        let bounds = ConvertLimits::from_limits(limits);
        let compute = self.deps.compute.for_tenant(tenant);
        let converted =
            compute.run_as(CpuActivity::HttpBody, move || convert_body(&request, body, &bounds)).await;
        converted.map_err(|error| {
            IngestError::from_status(Status::new(
                ErrorCode::Internal,
                format!("failed to convert the body: {error}"),
            ))
        })?
    }

    /// Stores the profiles and returns their outcomes, in the same order.
    async fn store_converted(
        &self,
        tenant: &TenantId,
        converted: ConvertedBody,
        limits: &LabelLimits,
    ) -> Vec<Result<StoredProfile, Status>> {
        let ConvertedBody { made, time_nanos, .. } = converted;
        let mut outcomes: Vec<Result<StoredProfile, Status>> = Vec::with_capacity(made.len());
        let mut uploads = Vec::new();
        let mut places = Vec::new();
        for (place, ConvertedProfile { mut labels, client_id, pprof, without_stack, .. }) in
            made.into_iter().enumerate()
        {
            outcomes.push(Ok(StoredProfile::EMPTY_BODY.with_dropped_samples(without_stack)));
            // Clients of this endpoint send increases, unless the request marks types as cumulative.
            if !labels.iter().any(|(name, _)| name == DELTA_LABEL) {
                labels.push((DELTA_LABEL.to_owned(), "false".to_owned()));
            }
            match (normalize_labels(labels, limits), pprof) {
                (_, Err(refused)) => outcomes[place] = Err(refused.status),
                (Err(refused), _) => outcomes[place] = Err(labels_refusal(&refused)),
                (Ok(NormalizedLabels { sent, labels }), Ok(Some(pprof))) => {
                    uploads.push(ProfileUpload {
                        sent,
                        labels,
                        client_id,
                        time_nanos,
                        pprof,
                        ..ProfileUpload::default()
                    });
                    places.push((place, without_stack));
                }
                (Ok(_), Ok(None)) => {}
            }
        }
        let stored = self.append(tenant, uploads).await;
        for ((place, without_stack), stored) in places.into_iter().zip(stored) {
            outcomes[place] = stored.map(|stored| stored.with_dropped_samples(without_stack));
        }
        outcomes
    }
}

// === impl IngestError ===

impl IngestError {
    /// Takes the HTTP status and code from the table of error codes.
    fn from_status(status: Status) -> Self {
        IngestError { http: status.code.http_status(), code: status.code.connect_code(), status }
    }

    /// Creates the error for a body that cannot be accepted.
    fn unprocessable(status: Status) -> Self {
        IngestError { http: UNPROCESSABLE_STATUS, code: "unknown", status }
    }

    /// Maps an error of a shard or of the label rules. SDKs that send text expect 400, SDKs that send pprof
    /// expect 422.
    fn for_dialect(door: ClientDialect, status: Status) -> Self {
        match (door, status.code) {
            (ClientDialect::Pprof, ErrorCode::Invalid) => IngestError::unprocessable(status),
            _ => IngestError::from_status(status),
        }
    }
}
