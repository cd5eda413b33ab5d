//! What a distributor is made of, and what it needs of others.

use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Random, Status, TenantId, TenantLimits,
};
use athanor_profile::normalize::LabelLimits;
use athanor_profile::upload::{DroppedCounts, ProfileUpload};
use serde::{Deserialize, Serialize};

use crate::admission::{AdmissionGuard, RequestAdmission};
use crate::stats::DistributorStats;

/// Settings of a distributor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DistributorConfig {
    /// How many bytes all requests that are under way may hold together, as sent and in the profiles that come of them.
    /// Those of one tenant among others hold at most half of it. Example: `512MiB`.
    pub in_flight_bytes: ByteSize,
    /// The most profiles in one request. Example: `10000`.
    pub max_profiles_per_request: u32,
}

impl Default for DistributorConfig {
    fn default() -> Self {
        DistributorConfig { in_flight_bytes: ByteSize::mib(512), max_profiles_per_request: 10_000 }
    }
}

/// What a distributor is given.
#[derive(Clone)]
pub struct DistributorDeps {
    /// The limits of each tenant.
    pub overrides: LimitOverrides,
    /// For `from=now-1h` and for rates.
    pub clock: Clock,
    /// Spreads those who are asked to come back.
    pub random: Random,
    /// Where profiles are inflated and converted.
    pub compute: ComputePool,
    /// Where profiles are stored.
    pub shards: Arc<dyn ShardWriter>,
}

/// The shards that store profiles.
#[async_trait]
pub trait ShardWriter: Send + Sync {
    /// Stores each profile or says why not, in the order given. `Ok` means that it is durable. A profile that is
    /// malformed or over a limit is [`ErrorCode::Invalid`]; a code that is retryable asks the client to repeat.
    async fn append(
        &self,
        tenant: &TenantId,
        uploads: Vec<ProfileUpload>,
    ) -> Vec<Result<StoredProfile, Status>>;
}

/// What became of a profile that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredProfile {
    /// Whether it is new.
    pub outcome: ProfileOutcome,
    /// Uncompressed bytes.
    pub raw_bytes: u64,
    /// Samples in it, those included that were left out.
    pub samples: u64,
    /// What was left out of it.
    pub dropped: DroppedCounts,
}

/// Whether a profile was new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileOutcome {
    /// Stored.
    New,
    /// It was stored before; nothing was added.
    Repeat,
    /// Nothing was left to store: no sample, or only zeros.
    Empty,
}

/// What became of a request that succeeded as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushSummary {
    /// Profiles that were new.
    pub new: usize,
    /// Profiles that were stored before.
    pub repeats: usize,
    /// Profiles with nothing in them to store.
    pub empty: usize,
    /// What was left out of all of them.
    pub dropped: DroppedCounts,
}

/// The door for profiles. Cheap to clone.
#[derive(Clone)]
pub struct Distributor {
    pub(crate) config: DistributorConfig,
    pub(crate) deps: DistributorDeps,
    admission: Arc<RequestAdmission>,
    pub(crate) counts: Arc<DistributorStats>,
}

impl StoredProfile {
    /// Of a body with nothing in it.
    pub(crate) const EMPTY_BODY: Self = StoredProfile {
        outcome: ProfileOutcome::Empty,
        raw_bytes: 0,
        samples: 0,
        dropped: DroppedCounts {
            samples: 0,
            negative: 0,
            lines: 0,
            mappings: 0,
            deep: 0,
            long: 0,
            by_rules: 0,
            ids: 0,
            without_stack: 0,
        },
    };

    /// The same, of a profile that lost so many samples on its way to the shard, since they have no stack.
    pub(crate) fn with_dropped_samples(mut self, without_stack: u64) -> Self {
        self.samples += without_stack;
        self.dropped.without_stack += without_stack;
        self
    }
}

// === impl Receipt ===

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
    /// A distributor with nothing under way.
    pub fn new(config: DistributorConfig, deps: DistributorDeps) -> Self {
        let limit = config.in_flight_bytes.get();
        let admission = RequestAdmission::new(limit, deps.clock.clone(), deps.random.split());
        Distributor { config, deps, admission: Arc::new(admission), counts: Arc::default() }
    }

    /// What came through this door and what became of it.
    pub fn stats(&self) -> &DistributorStats {
        &self.counts
    }

    /// The largest body of a request of this tenant. Whoever reads bodies stops there.
    pub fn body_limit(&self, tenant: &TenantId) -> ByteSize {
        self.deps.overrides.for_tenant(tenant).ingestion_body_limit
    }

    /// Lets a request of so many bytes in, or says when to come back.
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

    /// Refuses a request of a tenant whose rate limit leaves nothing, before its body is read. `length` is what the client
    /// announced.
    pub fn check_rate(&self, tenant: &TenantId, length: Option<u64>) -> Result<(), Status> {
        let limits = self.deps.overrides.for_tenant(tenant);
        if length.is_some_and(|length| length > limits.ingestion_body_limit.get()) {
            // It is refused for its size, however late it is sent again.
            return Ok(());
        }
        self.admission.check_rate(tenant, length, &limits)
    }

    /// Charges the rate limit for what a request was decompressed to, beyond its bytes as sent.
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

    /// Takes room for what came of a request, until it is stored.
    pub(crate) fn reserve_more(&self, admitted: &mut AdmissionGuard, bytes: usize) -> Result<(), Status> {
        self.admission.reserve_more(admitted, bytes as u64)
    }

    /// As [`ShardWriter::append`], with as many answers as uploads whatever the shards do. What a shard would say of its own of
    /// an upload is said here, since another may be asked for it next.
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
        answers.resize_with(count, || Err(Status::new(ErrorCode::Internal, "a shard gave no answer")));
        answers
    }
}

/// The bounds on labels among a tenant's limits. Where a tenant has rules of its own, a shard counts the labels that
/// these leave.
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
