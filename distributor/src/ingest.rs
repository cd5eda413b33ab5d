//! Profiles in the forms that language SDKs send.
//!
//! The request's parameters say whose profile it is; the body is pprof, a form with pprof in it, text, or what other tools write.
//! The statuses of refusals are those that SDKs know: 400 for parameters, 422 for a body that cannot be read.

mod app_name;
mod convert;
mod folded_text;
mod metric;
mod multipart;
mod request;
mod time;

use athanor_chassis::{CpuActivity, ErrorCode, Status, TenantId, TenantLimits, Timestamp};
use athanor_profile::normalize::{DELTA_LABEL, LabelLimits, NormalizedLabels, normalize_labels};
use athanor_profile::upload::ProfileUpload;
use bytes::Bytes;

pub use app_name::{AppName, AppNameError};
pub(crate) use convert::{recording_bounds, recording_way_out};
pub use metric::default_metric_name;
pub use multipart::{FormError, FormPart, MultipartForm};
pub use request::{IngestRequest, IngestRequestError};

use crate::distributor::{Distributor, PushSummary, StoredProfile, label_limits};
use crate::push::{ProfilePosition, labels_refusal, summarize_push};
use convert::{ClientDialect, ConvertLimits, ConvertedBody, ConvertedProfile, convert_body};

/// HTTP's word for a body that was understood and cannot be taken.
const UNPROCESSABLE_STATUS: u16 = 422;
/// What a request that cannot be read is counted as.
const MALFORMED_REASON: &str = "malformed_request";

/// A refusal in the words of this door: a few of its statuses are no one's else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}")]
pub struct IngestError {
    /// The HTTP status.
    pub http: u16,
    /// `code` in the body of the answer.
    pub code: &'static str,
    /// The sentence, and when to come back.
    pub status: Status,
}

/// The pprof that would be stored of a body: what all formats become, without profiles that are refused alone. `query` and `content_type` are those of the request.
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
    /// Stores the profiles of one request, every one that can be stored. A body with nothing in it is fine: SDKs send such
    /// when nothing ran.
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
        // The body itself is let go of where it is not what is stored.
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
            // What could not be made of the body says by its status what was wrong with it.
            Some((http, code)) if status.code == ErrorCode::Invalid => IngestError { http, code, status },
            _ => IngestError::for_dialect(door, status),
        })
    }

    /// What came of a body.
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
            compute.run_as(CpuActivity::Body, move || convert_body(&request, body, &bounds)).await;
        converted.map_err(|error| {
            IngestError::from_status(Status::new(ErrorCode::Internal, format!("not converted: {error}")))
        })?
    }

    /// What became of each profile, in their order.
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
            // Clients of this door send what is to be stored, but where they say that it counts since they began.
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

// === impl Refused ===

impl IngestError {
    /// As the table of codes has it.
    fn from_status(status: Status) -> Self {
        IngestError { http: status.code.http_status(), code: status.code.connect_code(), status }
    }

    /// A body that cannot be taken.
    fn unprocessable(status: Status) -> Self {
        IngestError { http: UNPROCESSABLE_STATUS, code: "unknown", status }
    }

    /// What a shard or the label rules refuse: SDKs that send text know it as 400, those that send pprof as 422.
    fn for_dialect(door: ClientDialect, status: Status) -> Self {
        match (door, status.code) {
            (ClientDialect::Pprof, ErrorCode::Invalid) => IngestError::unprocessable(status),
            _ => IngestError::from_status(status),
        }
    }
}
