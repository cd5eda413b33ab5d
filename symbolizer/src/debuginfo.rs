//! Uploads of debug information.
//!
//! ```text
//!  should initiate? ─► begin: number ─► receive: parts, checked on arrival ─► finish ─► remove older uploads
//! ```
//! A failed upload leaves the previous one unchanged. Only [`delete_debuginfo`] and a later upload of the
//! same file delete data. Nothing expires.

pub(crate) mod receiver;
mod rpc;
pub mod stats;
mod store;
pub mod upload_state;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{
    ByteSize, Clock, ErrorCode, LimitOverrides, Random, Status, TaskGroup, TenantId, TenantLimits,
};
use athanor_storage::path::{BuildId, KeyPrefix};
use athanor_storage::{Store, UploadKind, UploadSpace};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use receiver::UploadSizeLimits;
pub use receiver::{UPLOAD_PART_BYTES, UploadReceiver};
use stats::{DebuginfoCounters, DebuginfoStats};
use store::{
    CompletedUpload, DebuginfoKey, DebuginfoStore, ReceivedUpload, UploadAnnouncement, UploadMarker,
    UploadsByNumber,
};
use upload_state::{
    DecisionContext, MAX_PENDING_UPLOADS, UploadDecision, UploadIntent, UploadPhase, UploadStatus,
};

/// Maximum number of a tenant's files in one listing.
const MAX_LISTED_FILES: usize = 10_000;
/// Maximum number of concurrent marker reads in a listing.
const MAX_CONCURRENT_MARKER_READS: usize = 16;
/// Retry delay that a client receives if all upload permits are taken.
const UPLOAD_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Dependencies of the debug information service.
#[derive(Clone)]
pub struct DebuginfoDeps {
    /// Object store that holds the uploads.
    pub store: Store,
    /// Space for uploads of all tenants.
    pub space: UploadSpace,
    /// Limits by tenant, with the default.
    pub overrides: LimitOverrides,
    /// Clock for upload times.
    pub clock: Clock,
    /// Source of the random bits in upload numbers.
    pub random: Random,
    /// Task group that runs the cleanup after a disconnect.
    pub tasks: TaskGroup,
}

/// Service that receives debug information uploads. Cheap to clone.
#[derive(Clone)]
pub struct DebuginfoService {
    deps: DebuginfoDeps,
    shelf: DebuginfoStore,
    sending: Arc<Mutex<HashMap<TenantId, u32>>>,
    counts: Arc<DebuginfoCounters>,
}

/// File in a listing.
struct DebuginfoFile {
    place: DebuginfoKey,
    seen: UploadStatus,
    announcement: UploadAnnouncement,
    /// Record of the received bytes and the completion time in milliseconds, once the upload is complete.
    completed: Option<(ReceivedUpload, i64)>,
}

/// Current and maximum bytes of all debug information of a tenant. A limit of 0 is unlimited.
#[derive(Clone, Copy)]
pub(crate) struct DebuginfoQuota {
    seen: u64,
    limit: ByteSize,
}

impl DebuginfoQuota {
    /// Rejects a file that exceeds the remaining quota.
    pub(crate) fn check_size(self, size: u64) -> Result<(), Status> {
        let DebuginfoQuota { seen, limit } = self;
        if limit.get() == 0 || seen.saturating_add(size) <= limit.get() {
            return Ok(());
        }
        let message = format!(
            "tenant has {} of debug information and uploads at least {size} bytes more, the limit is {limit} \
             (limits.debuginfo_max_bytes); delete some with DeleteDebuginfo, or raise the limit",
            ByteSize::bytes(seen)
        );
        Err(Status::new(ErrorCode::Exhausted, message).with_reason("debuginfo_full"))
    }
}

/// Permit of one running upload, released on drop.
struct UploadPermit {
    tenant: TenantId,
    sending: Arc<Mutex<HashMap<TenantId, u32>>>,
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        let mut sending = self.sending.lock();
        if let Some(count) = sending.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                sending.remove(&self.tenant);
            }
        }
    }
}

impl DebuginfoService {
    /// Creates a service with zero counters.
    pub fn new(deps: DebuginfoDeps) -> Self {
        let shelf = DebuginfoStore { store: deps.store.clone() };
        Self { deps, shelf, sending: Arc::default(), counts: Arc::default() }
    }

    /// Returns counts of uploads and their outcomes.
    pub fn stats(&self) -> DebuginfoStats {
        self.counts.snapshot()
    }

    /// Counts a call that was rejected before it reached the service.
    pub fn record_refusal(&self, status: &Status) {
        self.counts.record_refusal(status);
    }

    /// Returns the maximum duration of an upload of this tenant.
    pub fn max_upload_duration(&self, tenant: &TenantId) -> Duration {
        self.deps.overrides.for_tenant(tenant).debuginfo_upload_timeout
    }

    fn decision_context(&self, limits: &TenantLimits) -> DecisionContext {
        DecisionContext { millis: self.deps.clock.wall().millis(), longest: limits.debuginfo_upload_timeout }
    }

    /// Decides whether to accept an upload.
    async fn decide_upload(
        &self,
        place: &DebuginfoKey,
        asked: UploadIntent<'_>,
    ) -> Result<UploadDecision, Status> {
        let uploads = self.shelf.list_uploads(place).await?;
        let now = self.decision_context(&self.deps.overrides.for_tenant(&place.tenant));
        self.decide_from_uploads(place, &uploads, asked, now).await
    }

    async fn decide_from_uploads(
        &self,
        place: &DebuginfoKey,
        uploads: &UploadsByNumber,
        asked: UploadIntent<'_>,
        now: DecisionContext,
    ) -> Result<UploadDecision, Status> {
        let current = upload_state::current_upload(&uploads.upload_statuses(), now);
        let invalid = match current {
            Some(UploadStatus { number, phase: UploadPhase::Invalid }) if !asked.hash.is_empty() => {
                let note: Option<CompletedUpload> =
                    self.shelf.read_marker(&place.marker_key(number, UploadMarker::Invalid)).await?;
                note.map(|note| note.announcement.hash).unwrap_or_default()
            }
            _ => String::new(),
        };
        Ok(upload_state::decide_upload(current, &invalid, asked, now))
    }

    /// Begins an upload if it is accepted. Returns the decision and the number of the new upload.
    async fn begin_upload(
        &self,
        place: &DebuginfoKey,
        begun: &UploadAnnouncement,
        force: bool,
    ) -> Result<(UploadDecision, Option<u128>), Status> {
        let uploads = self.shelf.list_uploads(place).await?;
        let limits = self.deps.overrides.for_tenant(&place.tenant);
        let now = self.decision_context(&limits);
        let reason =
            self.decide_from_uploads(place, &uploads, UploadIntent { hash: &begun.hash, force }, now).await?;
        if !reason.is_accepted() {
            return Ok((reason, None));
        }
        let seen = uploads.upload_statuses();
        if seen.iter().filter(|upload| upload.is_pending(now)).count() >= MAX_PENDING_UPLOADS {
            let message = format!(
                "{MAX_PENDING_UPLOADS} uploads of this file are in progress, the limit; finish one, or retry when they are stale"
            );
            return Err(Status::new(ErrorCode::Exhausted, message).with_reason("too_many_uploads"));
        }
        // A file of unknown size has at least one byte.
        self.tenant_quota(&place.tenant, None, limits.debuginfo_max_bytes)
            .await?
            .check_size(begun.size.max(1))?;
        self.deps.space.check(UploadKind::Debuginfo, begun.size.max(1)).await?;
        let number = upload_state::next_upload_number(&seen, now.millis, self.deps.random.next_id());
        if !self.shelf.write_marker(&place.marker_key(number, UploadMarker::Started), begun).await? {
            return Err(Status::new(ErrorCode::Conflict, "another upload has the same number; retry"));
        }
        self.counts.record_started();
        // The current file stays until a later upload finishes, whatever uploads are pending.
        let ended = seen
            .iter()
            .filter(|upload| upload.phase == UploadPhase::Complete)
            .map(|upload| upload.number)
            .max();
        let current =
            upload_state::current_upload(&seen, now).filter(|upload| upload.phase >= UploadPhase::Complete);
        let stays = [ended, current.map(|upload| upload.number)];
        self.remove_stale_uploads(place, uploads, |upload| {
            upload.is_removable(now) && !stays.contains(&Some(upload.number))
        })
        .await;
        Ok((reason, Some(number)))
    }

    /// Returns the tenant's quota. The size of one upload can be left out.
    async fn tenant_quota(
        &self,
        tenant: &TenantId,
        beside: Option<(&DebuginfoKey, u128)>,
        limit: ByteSize,
    ) -> Result<DebuginfoQuota, Status> {
        let seen = if limit.get() == 0 { 0 } else { self.shelf.total_bytes(tenant, beside).await? };
        Ok(DebuginfoQuota { seen, limit })
    }

    /// Starts to receive the bytes of an upload. Without a number, takes the newest pending upload.
    async fn receive_upload(
        &self,
        place: &DebuginfoKey,
        number: Option<u128>,
    ) -> Result<UploadReceiver, Status> {
        let limits = self.deps.overrides.for_tenant(&place.tenant);
        let now = self.decision_context(&limits);
        let seen = self.shelf.list_uploads(place).await?.upload_statuses();
        let pending = seen.iter().filter(|upload| upload.is_pending(now));
        let found = match number {
            Some(number) => pending.into_iter().find(|upload| upload.number == number),
            None => pending.max_by_key(|upload| upload.number),
        };
        let Some(found) = found else { return Err(not_pending_status(&seen, number)) };
        let turn = self.acquire_permit(&place.tenant, limits.max_concurrent_debuginfo_uploads)?;
        let begun: Option<UploadAnnouncement> =
            self.shelf.read_marker(&place.marker_key(found.number, UploadMarker::Started)).await?;
        let size = begun.ok_or_else(upload_removed_status)?.size;
        // Several uploads may have begun while the quota had space for each. Stored parts of this one come
        // from an earlier attempt.
        let beside = Some((place, found.number));
        let room = self.tenant_quota(&place.tenant, beside, limits.debuginfo_max_bytes).await?;
        room.check_size(size.max(1))?;
        let announced = (size > 0).then_some(size);
        let bounds = UploadSizeLimits { limit: limits.debuginfo_max_file_bytes, announced, room };
        Ok(UploadReceiver::begin(self, place.clone(), found.number, bounds, turn))
    }

    fn acquire_permit(&self, tenant: &TenantId, most: u32) -> Result<UploadPermit, Status> {
        let mut sending = self.sending.lock();
        let count = sending.get(tenant).copied().unwrap_or_default();
        if count >= most {
            let message = format!(
                "this node receives {count} uploads of debug information, the limit is {most} \
                 (limits.max_concurrent_debuginfo_uploads); retry"
            );
            return Err(Status::new(ErrorCode::Exhausted, message)
                .with_reason("too_many_uploads")
                .with_retry_after(UPLOAD_RETRY_AFTER));
        }
        sending.insert(tenant.clone(), count + 1);
        Ok(UploadPermit { tenant: tenant.clone(), sending: Arc::clone(&self.sending) })
    }

    /// Finishes an upload after all its bytes are stored. Returns whether they are a file of their kind.
    async fn finish_upload(&self, place: &DebuginfoKey, number: Option<u128>) -> Result<bool, Status> {
        let now = self.decision_context(&self.deps.overrides.for_tenant(&place.tenant));
        let mut uploads = self.shelf.list_uploads(place).await?;
        let seen = uploads.upload_statuses();
        // An expired upload may be removed concurrently when another upload begins.
        let may_end =
            |upload: &&UploadStatus| upload.phase >= UploadPhase::Complete || upload.is_pending(now);
        let found = match number {
            Some(number) => seen.iter().filter(may_end).find(|upload| upload.number == number),
            None => seen.iter().filter(|upload| upload.is_pending(now)).max_by_key(|upload| upload.number),
        };
        let Some(UploadStatus { number, phase }) = found.copied() else {
            if seen.iter().all(|upload| upload.phase == UploadPhase::Gone) {
                return Err(Status::new(ErrorCode::NotFound, "no upload of this build ID was started")
                    .with_reason("not_pending"));
            }
            return Err(not_pending_status(&seen, number));
        };
        match phase {
            UploadPhase::Complete => return Ok(true),
            UploadPhase::Invalid => return Ok(false),
            UploadPhase::Started => {
                let message = "the file of this upload was not completely received; upload the file first";
                return Err(Status::new(ErrorCode::Precondition, message).with_reason("not_received"));
            }
            UploadPhase::Received | UploadPhase::Gone => {}
        }
        let announcement: Option<UploadAnnouncement> =
            self.shelf.read_marker(&place.marker_key(number, UploadMarker::Started)).await?;
        let received: Option<ReceivedUpload> =
            self.shelf.read_marker(&place.marker_key(number, UploadMarker::Received)).await?;
        let (Some(announcement), Some(received)) = (announcement, received) else {
            return Err(upload_removed_status());
        };
        let is_valid = received.is_valid;
        let note = if is_valid { UploadMarker::Complete } else { UploadMarker::Invalid };
        let attempt = received.attempt.clone();
        let completed = CompletedUpload { announcement, received, completed_at_millis: now.millis };
        if self.shelf.write_marker(&place.marker_key(number, note), &completed).await? {
            self.counts.record_finished(is_valid);
        }
        if let Err(error) = self.shelf.remove_other_attempts(place, &mut uploads, number, &attempt).await {
            tracing::warn!(%error, build = place.build.as_str(), "failed to remove parts of an interrupted attempt");
        }
        self.remove_stale_uploads(place, uploads, |upload| {
            upload.number < number && upload.is_removable(now)
        })
        .await;
        Ok(is_valid)
    }

    /// Removes obsolete uploads. If the removal fails, the next upload that begins removes them.
    async fn remove_stale_uploads(
        &self,
        place: &DebuginfoKey,
        uploads: UploadsByNumber,
        which: impl Fn(&UploadStatus) -> bool,
    ) {
        if let Err(error) = self.shelf.remove_uploads(place, uploads, which).await {
            tracing::warn!(%error, build = place.build.as_str(), "failed to remove an older upload, will retry with the next upload");
        }
    }

    /// Lists all files of a tenant.
    async fn list_files(&self, tenant: &TenantId) -> Result<Vec<DebuginfoFile>, Status> {
        let now = self.decision_context(&self.deps.overrides.for_tenant(tenant));
        let places = self.shelf.list_tenant_uploads(tenant, MAX_LISTED_FILES).await?;
        let current = places.into_iter().filter_map(|(place, uploads)| {
            let seen = upload_state::current_upload(&uploads.upload_statuses(), now)?;
            Some((place, seen))
        });
        let read = stream::iter(current)
            .map(|(place, seen)| self.read_listed_file(place, seen))
            .buffered(MAX_CONCURRENT_MARKER_READS);
        // Files that were removed since the listing are skipped.
        read.try_filter_map(|listed| async { Ok(listed) }).try_collect().await
    }

    async fn read_listed_file(
        &self,
        place: DebuginfoKey,
        seen: UploadStatus,
    ) -> Result<Option<DebuginfoFile>, Status> {
        let note = match seen.phase {
            UploadPhase::Complete => UploadMarker::Complete,
            UploadPhase::Invalid => UploadMarker::Invalid,
            _ => {
                let announcement: Option<UploadAnnouncement> =
                    self.shelf.read_marker(&place.marker_key(seen.number, UploadMarker::Started)).await?;
                return Ok(announcement.map(|announcement| DebuginfoFile {
                    place,
                    seen,
                    announcement,
                    completed: None,
                }));
            }
        };
        let read: Option<CompletedUpload> =
            self.shelf.read_marker(&place.marker_key(seen.number, note)).await?;
        Ok(read.map(|CompletedUpload { announcement, received, completed_at_millis }| DebuginfoFile {
            place,
            seen,
            announcement,
            completed: Some((received, completed_at_millis)),
        }))
    }
}

/// Deletes all debug information of a binary from the bucket.
pub async fn delete_debuginfo(store: &Store, tenant: &TenantId, build: &BuildId) -> Result<(), Status> {
    let shelf = DebuginfoStore { store: store.clone() };
    for kind in upload_state::DebuginfoKind::ALL {
        let place = DebuginfoKey { tenant: tenant.clone(), build: build.clone(), kind };
        let uploads = shelf.list_uploads(&place).await?;
        shelf.remove_uploads(&place, uploads, |_| true).await?;
    }
    let below = KeyPrefix::DebuginfoOf(tenant.clone(), build.clone());
    tracing::debug!(%below, "deleted debug information");
    Ok(())
}

fn upload_removed_status() -> Status {
    Status::new(ErrorCode::NotFound, "the upload was removed concurrently; start another upload")
}

/// Returns the error for an upload that cannot continue.
fn not_pending_status(seen: &[UploadStatus], number: Option<u128>) -> Status {
    let known = |seen: &UploadStatus| Some(seen.number) == number && seen.phase != UploadPhase::Gone;
    match number {
        Some(_) if seen.iter().any(known) => {
            let message =
                "this upload is finished or exceeded limits.debuginfo_upload_timeout; start another upload";
            Status::new(ErrorCode::Precondition, message).with_reason("not_pending")
        }
        Some(_) if !seen.is_empty() => {
            let message =
                "the upload id does not belong to this file; use the id that InitiateUpload returned";
            Status::new(ErrorCode::Invalid, message).with_reason("unknown_upload")
        }
        _ => {
            let message =
                "no pending upload for this build ID; call InitiateUpload or ShouldInitiateUpload first";
            Status::new(ErrorCode::Precondition, message).with_reason("not_pending")
        }
    }
}

#[cfg(test)]
mod tests;
