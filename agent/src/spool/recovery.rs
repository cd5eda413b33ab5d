//! Start of a spool: the index from the names of the files of earlier processes.

use std::sync::Arc;

use athanor_chassis::disk::DiskError;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::config::SpoolConfig;
use super::file_index::{FileIndex, SpoolEntry};
use super::file_name::{DAMAGED_SUFFIX, FILE_SUFFIX, SpoolFileName};
use super::folder::SpoolDisks;
use super::pending::PendingFiles;
use super::quarantine::Quarantine;
use super::refused_folder::RefusedFolder;
use super::stats::{DropReason, ServerStats};
use super::{SpoolInner, SpoolRuntime, SpoolState};

/// Opens a spool. Reads no file, so its cost does not depend on the sizes of the files. Blocks.
pub(super) fn open(
    server: String,
    disks: SpoolDisks,
    config: SpoolConfig,
    runtime: SpoolRuntime,
) -> Result<SpoolInner, DiskError> {
    let SpoolDisks { files: disk, refused, is_in_memory } = disks;
    let max_bytes = if is_in_memory { config.max_memory_bytes } else { config.max_bytes }.get();
    // Files for inspection in memory take an eighth of the spool at most.
    let inspection_limit = if is_in_memory { max_bytes / 8 } else { u64::MAX };
    let refused = RefusedFolder::open(refused, config.max_refused_bytes.get().min(inspection_limit))?;
    let quarantine = Quarantine::new(config.max_damaged_bytes.get().min(inspection_limit));
    let stats = ServerStats::default();
    let mut index = FileIndex::new();
    let mut next_sequence = refused.last_sequence().map_or(0, |last| last.saturating_add(1));
    for name in disk.list()? {
        // An unreadable file must not keep the others from delivery. Its delivery finds the damage.
        let bytes = disk.len(&name).unwrap_or_default();
        if let Ok(parsed) = name.parse::<SpoolFileName>() {
            next_sequence = next_sequence.max(parsed.sequence.saturating_add(1));
            if index.contains(parsed.sequence) {
                tracing::error!(
                    server,
                    file = name,
                    "quarantined a spool file with the number of another one"
                );
                stats.record_damaged_file();
                stats.record_dropped(DropReason::Damaged, parsed.profiles);
                quarantine.store(&*disk, &name, bytes);
                continue;
            }
            index.insert(SpoolEntry::new(parsed, bytes, None));
        } else if name.ends_with(DAMAGED_SUFFIX) {
            if let Ok(parsed) = SpoolFileName::from_damaged_name(&name) {
                next_sequence = next_sequence.max(parsed.sequence.saturating_add(1));
            }
            quarantine.add(&*disk, name, bytes);
        } else if name.ends_with(FILE_SUFFIX) {
            tracing::error!(server, file = name, "quarantined a spool file with an unknown name");
            stats.record_damaged_file();
            quarantine.store(&*disk, &name, bytes);
        } else {
            tracing::warn!(server, file = name, "spool folder contains a foreign file, which is left alone");
        }
    }
    let pending_budget = Arc::new(Semaphore::new(pending_permits(&config)));
    let state = SpoolState {
        pending: PendingFiles::default(),
        index,
        next_sequence,
        writing_bytes: None,
        is_disk_low: false,
        unlink_retry_at: None,
        is_closed: false,
    };
    Ok(SpoolInner {
        server,
        disk,
        is_in_memory,
        max_bytes,
        config,
        runtime,
        stats,
        refused,
        quarantine,
        pending_budget,
        state: Mutex::new(state),
        pending_changed: Notify::new(),
        files_changed: Notify::new(),
    })
}

fn pending_permits(config: &SpoolConfig) -> usize {
    config.max_pending_bytes.as_usize().clamp(1, (u32::MAX as usize).min(Semaphore::MAX_PERMITS))
}
