//! Writer of a spool: writes closed files, one at a time, and makes space for them.

use std::sync::Arc;

use athanor_chassis::disk::DiskError;
use athanor_chassis::{ErrorCode, Status};

use super::file_format::SpoolFile;
use super::file_index::{SpoolEntry, occupied_bytes};
use super::file_name::{SpoolFileName, TenantHash};
use super::pending::PendingFile;
use super::stats::DropReason;
use super::{Spool, SpoolInner, UNLINK_RETRY_INTERVAL};
use crate::upload::UploadOrigin;

/// Failure to write a file.
struct WriteFailure {
    reason: DropReason,
    status: Status,
}

/// Writes files until the shutdown, and then all that is pending.
pub(super) async fn run(spool: Spool) {
    let shared = &spool.shared;
    let token = shared.runtime.tasks.shutdown_token();
    let clock = &shared.runtime.clock;
    loop {
        let is_last = token.is_cancelled();
        let (due, undeleted, next_due) = {
            let mut state = shared.state.lock();
            if is_last {
                state.is_closed = true;
                state.pending.close_all();
            }
            let due = state.pending.take_due(clock.monotonic(), &shared.config);
            state.writing_bytes = due.as_ref().map(|file| occupied_bytes(file.bytes() as u64));
            let undeleted = match state.unlink_retry_at {
                Some(at) if at <= clock.monotonic() => state.index.undeleted(),
                _ => Vec::new(),
            };
            let next_due = state.pending.next_due(&shared.config).into_iter().chain(state.unlink_retry_at);
            (due, undeleted, next_due.min())
        };
        if let Some(file) = due {
            write_file(shared, file).await;
            continue;
        }
        if !undeleted.is_empty() && !is_last {
            retry_unlinks(shared, undeleted).await;
            continue;
        }
        if is_last {
            // Callers that wait for the budget of pending bytes end as well.
            shared.pending_budget.close();
            // The delivery may wait for the end of the writer.
            shared.files_changed.notify_one();
            return;
        }
        let timer = async {
            match next_due {
                Some(due) => clock.sleep(due.saturating_sub(clock.monotonic())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = token.cancelled() => {}
            () = shared.pending_changed.notified() => {}
            () = timer => {}
        }
    }
}

/// Unlinks files once more whose earlier unlinking failed.
async fn retry_unlinks(shared: &Arc<SpoolInner>, undeleted: Vec<SpoolEntry>) {
    let writer = Arc::clone(shared);
    let retry = move || {
        for entry in undeleted {
            if writer.unlink(&entry.name) {
                writer.state.lock().index.end_undeleted(entry.name.sequence);
            }
        }
    };
    // If the pool rejects the job, the next retry includes its files.
    let _ = shared.runtime.compute.run(retry).await;
    let next = shared.runtime.clock.monotonic().saturating_add(UNLINK_RETRY_INTERVAL);
    let mut state = shared.state.lock();
    state.unlink_retry_at = (!state.index.undeleted().is_empty()).then_some(next);
    shared.files_changed.notify_one();
}

/// Writes a file, and then reports to the callers that their uploads are durable.
async fn write_file(shared: &Arc<SpoolInner>, mut file: PendingFile) {
    let waiters = std::mem::take(&mut file.waiters);
    let writer = Arc::clone(shared);
    let written = shared.runtime.compute.run(move || writer.write_file(&file)).await;
    let result = written.unwrap_or_else(|error| Err(Status::from_error(&error)));
    shared.state.lock().writing_bytes = None;
    for waiter in waiters {
        // The caller may have stopped waiting.
        let _ = waiter.stored.send(result.clone());
    }
    shared.files_changed.notify_one();
}

impl SpoolInner {
    /// Writes a file durably and adds it to the index. Blocks.
    fn write_file(&self, file: &PendingFile) -> Result<(), Status> {
        let written = self.try_write_file(file);
        written.map_err(|failure| {
            if file.group.origin == UploadOrigin::Scraped {
                self.stats.record_dropped(failure.reason, file.profiles);
            }
            failure.status
        })
    }

    fn try_write_file(&self, file: &PendingFile) -> Result<(), WriteFailure> {
        let sequence = {
            let mut state = self.state.lock();
            let sequence = state.next_sequence;
            state.next_sequence = sequence.saturating_add(1);
            sequence
        };
        let name = SpoolFileName {
            sequence,
            origin: file.group.origin,
            route: file.group.route,
            order: file.group.order,
            tenant: TenantHash::from_tenant(file.group.tenant.as_ref()),
            profiles: file.profiles,
            time_millis: file.time_millis,
        };
        let bytes = SpoolFile::encode(sequence, file.group.tenant.as_ref(), &file.requests);
        let bytes = bytes.map_err(|error| WriteFailure {
            reason: DropReason::TooLarge,
            status: Status::new(ErrorCode::TooLarge, error.to_string()),
        })?;
        self.make_space(bytes.len() as u64, file.group.origin)?;
        self.write_bytes(&name, &bytes)?;
        let stored_at = Some(self.runtime.clock.monotonic());
        self.state.lock().index.insert(SpoolEntry::new(name, bytes.len() as u64, stored_at));
        Ok(())
    }

    /// Writes a file. If the disk is full, scraped files replace the oldest scraped ones, of the same size at most.
    fn write_bytes(&self, name: &SpoolFileName, bytes: &[u8]) -> Result<(), WriteFailure> {
        let size = occupied_bytes(bytes.len() as u64);
        let mut evicted_bytes = 0;
        loop {
            let error = match self.disk.write(&name.to_string(), bytes) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // The name may exist although the write failed. Its upload is reported as not stored.
            let _ = self.disk.remove(&name.to_string());
            let is_full = matches!(error, DiskError::Full { .. });
            if is_full
                && name.origin == UploadOrigin::Scraped
                && evicted_bytes < size
                && self.state.lock().index.evictable_bytes() >= size - evicted_bytes
                && let Some(evicted) = self.evict_oldest()
            {
                evicted_bytes += evicted;
                continue;
            }
            tracing::error!(server = self.server, file = %name, %error, "failed to write a spool file");
            if is_full {
                return Err(WriteFailure { reason: DropReason::SpoolFull, status: self.full_status() });
            }
            // A client retries with another agent or later.
            let status = Status { code: ErrorCode::Unavailable, ..Status::from_error(&error) };
            return Err(WriteFailure { reason: DropReason::DiskError, status });
        }
    }

    /// Evicts the oldest scraped files until a new scraped file fits. A received file evicts none. If all scraped
    /// files together are too small, for example because other programs fill the disk, none is evicted.
    fn make_space(&self, size: u64, origin: UploadOrigin) -> Result<(), WriteFailure> {
        let size = occupied_bytes(size);
        loop {
            let disk_deficit = self.measure_disk(size);
            let (spool_deficit, evictable) = {
                let index = &self.state.lock().index;
                let spool_deficit = index.bytes().saturating_add(size).saturating_sub(self.max_bytes);
                (spool_deficit, index.evictable_bytes())
            };
            let deficit = disk_deficit.max(spool_deficit);
            if deficit == 0 {
                return Ok(());
            }
            let may_evict = origin == UploadOrigin::Scraped && evictable >= deficit;
            if !may_evict || self.evict_oldest().is_none() {
                return Err(WriteFailure { reason: DropReason::SpoolFull, status: self.full_status() });
            }
        }
    }

    /// Evicts the oldest scraped file. Returns the bytes that it occupied, if there was one.
    fn evict_oldest(&self) -> Option<u64> {
        let evicted = self.state.lock().index.evict_oldest()?;
        let is_unlinked = self.unlink(&evicted.name);
        self.end_file(&evicted, is_unlinked);
        self.stats.record_dropped(DropReason::Evicted, evicted.name.profiles);
        Some(occupied_bytes(evicted.bytes))
    }
}
