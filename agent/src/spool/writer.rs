//! Writer of a spool: writes closed files, one at a time, and makes space for them.

use std::sync::Arc;

use athanor_chassis::disk::DiskError;
use athanor_chassis::{ErrorCode, Status};

use super::file_format::SpoolFile;
use super::file_index::SpoolEntry;
use super::file_name::{SpoolFileName, TenantHash};
use super::pending::PendingFile;
use super::stats::DropReason;
use super::{Spool, SpoolInner};
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
        let (due, next_due) = {
            let mut state = shared.state.lock();
            if is_last {
                state.is_closed = true;
                state.pending.close_all();
            }
            let due = state.pending.take_due(clock.monotonic(), &shared.config);
            state.writing_bytes = due.as_ref().map(|file| file.bytes() as u64);
            let next_due = state.pending.next_due(&shared.config);
            (due, next_due)
        };
        if let Some(file) = due {
            write_file(shared, file).await;
            continue;
        }
        if is_last {
            // Callers that wait for the budget of pending bytes end as well.
            shared.pending_budget.close();
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

    /// Writes a file. If the disk is full, scraped files replace the oldest scraped ones.
    fn write_bytes(&self, name: &SpoolFileName, bytes: &[u8]) -> Result<(), WriteFailure> {
        loop {
            let error = match self.disk.write(&name.to_string(), bytes) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // The name may exist although the write failed. Its upload is reported as not stored.
            let _ = self.disk.remove(&name.to_string());
            let is_full = matches!(error, DiskError::Full { .. });
            if is_full && name.origin == UploadOrigin::Scraped && self.evict_oldest() {
                continue;
            }
            tracing::error!(server = self.server, file = %name, %error, "failed to write a spool file");
            if is_full {
                return Err(WriteFailure { reason: DropReason::SpoolFull, status: self.full_status() });
            }
            // A client retries elsewhere or later.
            let status = Status { code: ErrorCode::Unavailable, ..Status::from_error(&error) };
            return Err(WriteFailure { reason: DropReason::DiskError, status });
        }
    }

    /// Evicts the oldest scraped files until a new scraped file fits. A received file evicts none.
    fn make_space(&self, size: u64, origin: UploadOrigin) -> Result<(), WriteFailure> {
        loop {
            let is_over_limit = self.state.lock().index.bytes().saturating_add(size) > self.max_bytes;
            if !is_over_limit && !self.measure_disk(size) {
                return Ok(());
            }
            if origin == UploadOrigin::Received || !self.evict_oldest() {
                return Err(WriteFailure { reason: DropReason::SpoolFull, status: self.full_status() });
            }
        }
    }

    /// Evicts the oldest scraped file. Returns whether there was one.
    fn evict_oldest(&self) -> bool {
        let Some(evicted) = self.state.lock().index.evict_oldest() else { return false };
        if let Err(error) = self.disk.remove(&evicted.name.to_string()) {
            tracing::warn!(server = self.server, file = %evicted.name, %error, "failed to evict a spool file");
        }
        self.stats.record_dropped(DropReason::Evicted, evicted.name.profiles);
        true
    }
}
