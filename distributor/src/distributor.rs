//! The distributor, its settings and the interfaces that it depends on.

use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Random, Status, TenantId, TenantLimits,
};
use athanor_profile::data_model::dropped_counts::DroppedCounts;
use athanor_profile::labeling::normalize::LabelLimits;
use athanor_profile::store_interface::upload::ProfileUpload;
use serde::{Deserialize, Serialize};

use crate::admission::{AdmissionGuard, RequestAdmission};
use crate::stats::DistributorStats;
use crate::stored_profile::{ProfileOutcome, StoredProfile};

/// Settings of a distributor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DistributorConfig {
    /// Limit on the bytes that all requests in flight hold together: bodies as sent, and the profiles
    /// converted from them. After the first request of a second tenant, each tenant holds at most half of the
    /// limit. Example: `512MiB`.
    pub max_inflight_bytes: ByteSize,
    /// Maximum number of profiles in one request. Example: `10000`.
    pub max_profiles_per_request: u32,
}

impl Default for DistributorConfig {
    fn default() -> Self {
        DistributorConfig { max_inflight_bytes: ByteSize::mib(512), max_profiles_per_request: 10_000 }
    }
}

/// Dependencies of a distributor.
#[derive(Clone)]
pub struct DistributorDeps {
    /// Limits of requests and profiles, by tenant.
    pub overrides: LimitOverrides,
    /// Current time, for `from=now-1h` and for rate limits.
    pub clock: Clock,
    /// Jitter for retry delays, so that rejected clients do not retry at the same time.
    pub random: Random,
    /// Threads that inflate and convert profiles.
    pub compute: ComputePool,
    /// Shards that store the profiles.
    pub shards: Arc<dyn ShardWriter>,
}

/// Interface to the shards that store profiles.
#[async_trait]
pub trait ShardWriter: Send + Sync {
    /// Stores profiles and returns one result per profile, in the order given. `Ok` means that the profile is
    /// durable. A profile that is malformed or over a limit returns [`ErrorCode::Invalid`]. A retryable code
    /// asks the client to retry.
    async fn append(
        &self,
        tenant: &TenantId,
        uploads: Vec<ProfileUpload>,
    ) -> Vec<Result<StoredProfile, Status>>;
}

/// Summary of a request that succeeded as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushSummary {
    /// New profiles, which the shards stored.
    pub new: usize,
    /// Profiles that are duplicates of stored ones.
    pub repeats: usize,
    /// Profiles with nothing to store.
    pub empty: usize,
    /// Parts dropped from all of the profiles.
    pub dropped: DroppedCounts,
}

/// Role that receives uploads, checks limits and sends each upload to its shard. Cheap to clone.
#[derive(Clone)]
pub struct Distributor {
    pub(crate) config: DistributorConfig,
    pub(crate) deps: DistributorDeps,
    admission: Arc<RequestAdmission>,
    pub(crate) counts: Arc<DistributorStats>,
}

// === impl PushSummary ===

impl PushSummary {
    /// Counts one more profile.
    pub(crate) fn add_profile(&mut self, stored: StoredProfile) {
        match stored.outcome {
            ProfileOutcome::New => self.new += 1,
            ProfileOutcome::Repeat => self.repeats += 1,
            ProfileOutcome::Empty => self.empty += 1,
        }
        self.dropped += stored.dropped;
    }
}

// === impl Distributor ===

impl Distributor {
    /// Creates a distributor with no requests in flight.
    pub fn new(config: DistributorConfig, deps: DistributorDeps) -> Self {
        let limit = config.max_inflight_bytes.get();
        let admission = RequestAdmission::new(limit, deps.clock.clone(), deps.random.split());
        Distributor { config, deps, admission: Arc::new(admission), counts: Arc::default() }
    }

    /// Returns the counters of received, stored and refused profiles.
    pub fn stats(&self) -> &DistributorStats {
        &self.counts
    }

    /// Returns the maximum body size of a request of this tenant. Body readers stop at this size.
    pub fn body_limit(&self, tenant: &TenantId) -> ByteSize {
        self.deps.overrides.for_tenant(tenant).ingestion_body_limit
    }

    /// Admits a request of `bytes` bytes, or returns an error with a retry delay.
    pub(crate) fn admit(
        &self,
        tenant: &TenantId,
        bytes: usize,
        limits: &TenantLimits,
    ) -> Result<AdmissionGuard, Status> {
        let limit = limits.ingestion_body_limit;
        if bytes > limit.as_usize() {
            let message = format!(
                "request has {bytes} bytes, ingestion_body_limit is {limit}; send fewer profiles at once"
            );
            return Err(Status::new(ErrorCode::TooLarge, message).with_reason("body_size_limit_exceeded"));
        }
        self.admission.admit(tenant, bytes as u64, limits)
    }

    /// Refuses a request before its body is read, if the tenant's rate limit has too few tokens left.
    /// `length` is the content length that the client announced.
    pub fn check_rate(&self, tenant: &TenantId, length: Option<u64>) -> Result<(), Status> {
        let limits = self.deps.overrides.for_tenant(tenant);
        if length.is_some_and(|length| length > limits.ingestion_body_limit.get()) {
            // A retry cannot help: `admit` rejects the request for its size.
            return Ok(());
        }
        self.admission.check_rate(tenant, length, &limits)
    }

    /// Charges the rate limit for decompressed bytes beyond the bytes as sent.
    pub(crate) fn charge_decompressed<'a>(
        &self,
        tenant: &TenantId,
        limits: &TenantLimits,
        sent_bytes: usize,
        stored: impl Iterator<Item = &'a StoredProfile>,
    ) {
        let decompressed: u64 = stored.map(|stored| stored.raw_bytes).sum();
        self.admission.charge(tenant, decompressed.saturating_sub(sent_bytes as u64), limits);
    }

    /// Reserves more in-flight bytes for the profiles of an admitted request, until they are stored.
    pub(crate) fn reserve_more(&self, admitted: &mut AdmissionGuard, bytes: usize) -> Result<(), Status> {
        self.admission.reserve_more(admitted, bytes as u64)
    }

    /// Calls [`ShardWriter::append`] and returns exactly one result per upload, even if the shards return
    /// fewer. Draws each upload's random id and receive time here, so that a retry on another shard sends the
    /// same values.
    pub(crate) async fn append(
        &self,
        tenant: &TenantId,
        mut uploads: Vec<ProfileUpload>,
    ) -> Vec<Result<StoredProfile, Status>> {
        let count = uploads.len();
        if count == 0 {
            return Vec::new();
        }
        let received = self.deps.clock.wall().nanos();
        for upload in &mut uploads {
            (upload.drawn, upload.received_nanos) = (self.deps.random.next_id(), received);
        }
        let mut answers = self.deps.shards.append(tenant, uploads).await;
        answers.resize_with(count, || {
            Err(Status::new(ErrorCode::Internal, "shard returned no result for a profile"))
        });
        answers
    }
}

/// Returns the tenant's limits on labels. If the tenant has relabeling rules, these limits are wider, and the
/// shard counts the labels that remain after the rules.
pub(crate) fn label_limits(limits: &TenantLimits) -> LabelLimits {
    let of_series = LabelLimits {
        name_length: limits.max_label_name_length as usize,
        value_length: limits.max_label_value_length as usize,
        names: limits.max_label_names_per_series as usize,
        sessions: limits.max_sessions_per_series,
        sanitise: !limits.disable_label_sanitization,
    };
    if limits.ingestion_relabeling_rules.is_empty() { of_series } else { of_series.widened_for_rules() }
}
