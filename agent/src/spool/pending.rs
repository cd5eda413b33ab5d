//! Files in memory that are not yet written. Each collects uploads of one tenant, origin, order and route.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use athanor_chassis::{Status, TenantId};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::config::SpoolConfig;
use super::file_format::RequestParts;
use super::file_name::{OrderClass, RouteKind};
use crate::upload::{Upload, UploadOrder, UploadOrigin, UploadRoute};

/// Maximum number of files that collect uploads at the same time. At the limit the oldest is closed.
const MAX_OPEN_FILES: usize = 256;
/// Maximum number of profiles of a combined request.
const MAX_PROFILES_PER_REQUEST: u32 = 64;
/// Maximum bytes of a combined request.
const MAX_BYTES_PER_REQUEST: usize = 4 << 20;

/// Caller of `store` that waits until its upload is durable.
#[derive(Debug)]
pub(super) struct StoreWaiter {
    pub(super) stored: oneshot::Sender<Result<(), Status>>,
    /// Share of the pending bytes. Released with the waiter.
    #[expect(dead_code, reason = "held until the waiter is dropped")]
    pub(super) permit: OwnedSemaphorePermit,
}

/// Properties that all uploads of a file share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileGroup {
    pub(super) tenant: Option<TenantId>,
    pub(super) origin: UploadOrigin,
    pub(super) order: OrderClass,
    pub(super) route: RouteKind,
}

/// File that collects uploads, or waits to be written.
#[derive(Debug)]
pub(super) struct PendingFile {
    pub(super) group: FileGroup,
    pub(super) requests: Vec<RequestParts>,
    pub(super) profiles: u32,
    pub(super) time_millis: i64,
    pub(super) waiters: Vec<StoreWaiter>,
    bytes: usize,
    opened_at: Duration,
    /// Series in the last request. A combined request has one snapshot of a series at most.
    last_series: HashSet<u64>,
}

/// All files in memory: those that collect uploads, and closed ones in the order of closing.
#[derive(Debug, Default)]
pub(super) struct PendingFiles {
    open: Vec<PendingFile>,
    closed: VecDeque<PendingFile>,
    /// Bytes of all bodies.
    bytes: usize,
}

// === impl FileGroup ===

impl FileGroup {
    fn from_upload(upload: &Upload) -> Self {
        Self {
            tenant: upload.tenant.clone(),
            origin: upload.origin,
            order: OrderClass::from_upload(upload.order),
            route: RouteKind::from_route(&upload.route),
        }
    }
}

// === impl PendingFile ===

impl PendingFile {
    fn new(group: FileGroup, opened_at: Duration) -> Self {
        Self {
            group,
            requests: Vec::new(),
            profiles: 0,
            time_millis: i64::MIN,
            waiters: Vec::new(),
            bytes: 0,
            opened_at,
            last_series: HashSet::new(),
        }
    }

    fn push(&mut self, upload: Upload, waiter: StoreWaiter) {
        self.bytes += upload.body.len();
        self.profiles = self.profiles.saturating_add(upload.profiles);
        self.time_millis = self.time_millis.max(upload.time.millis());
        self.waiters.push(waiter);
        let series = match upload.order {
            UploadOrder::Independent => None,
            UploadOrder::Cumulative(series) => Some(series),
        };
        if self.can_combine(&upload, series)
            && let Some(request) = self.requests.last_mut()
        {
            request.profiles += upload.profiles;
            request.parts.push(upload.body);
        } else {
            let parts: Vec<Bytes> = vec![upload.body];
            self.requests.push(RequestParts { route: upload.route, profiles: upload.profiles, parts });
            self.last_series.clear();
        }
        self.last_series.extend(series);
    }

    /// Returns whether an upload may become part of the last request. Concatenated protobuf messages are one
    /// message with all their series. A received request stays as the client sent it, because the server
    /// numbers equal profiles within a request.
    fn can_combine(&self, upload: &Upload, series: Option<u64>) -> bool {
        let Some(last) = self.requests.last() else { return false };
        upload.origin == UploadOrigin::Scraped
            && upload.route == UploadRoute::Push
            && last.profiles.saturating_add(upload.profiles) <= MAX_PROFILES_PER_REQUEST
            && last.body_bytes() + upload.body.len() <= MAX_BYTES_PER_REQUEST
            && series.is_none_or(|series| !self.last_series.contains(&series))
    }

    /// Returns the bytes of all bodies.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn closes_at(&self, config: &SpoolConfig) -> Duration {
        let open_for = match self.group.origin {
            UploadOrigin::Scraped => config.close_after,
            UploadOrigin::Received => config.close_received_after,
        };
        self.opened_at.saturating_add(open_for)
    }
}

// === impl PendingFiles ===

impl PendingFiles {
    /// Adds an upload to the file of its group. Closes files that are full.
    pub(super) fn push(&mut self, upload: Upload, waiter: StoreWaiter, now: Duration, max_file_bytes: usize) {
        self.bytes += upload.body.len();
        let group = FileGroup::from_upload(&upload);
        let mut position = self.open.iter().position(|file| file.group == group);
        if let Some(full) = position
            && self.open[full].bytes.saturating_add(upload.body.len()) > max_file_bytes
        {
            self.close(full);
            position = None;
        }
        let position = position.unwrap_or_else(|| {
            if self.open.len() >= MAX_OPEN_FILES {
                self.close(0);
            }
            self.open.push(PendingFile::new(group, now));
            self.open.len() - 1
        });
        self.open[position].push(upload, waiter);
        if self.open[position].bytes >= max_file_bytes {
            self.close(position);
        }
    }

    /// Returns the next file to write: the first closed one, else one whose time is up. Files of one group are
    /// returned in the order of their uploads.
    pub(super) fn take_due(&mut self, now: Duration, config: &SpoolConfig) -> Option<PendingFile> {
        if self.closed.is_empty()
            && let Some(due) = self.open.iter().position(|file| file.closes_at(config) <= now)
        {
            self.close(due);
        }
        let file = self.closed.pop_front()?;
        self.bytes -= file.bytes;
        Some(file)
    }

    /// Closes all files.
    pub(super) fn close_all(&mut self) {
        self.closed.extend(self.open.drain(..));
    }

    /// Returns the time at which the next file is due.
    pub(super) fn next_due(&self, config: &SpoolConfig) -> Option<Duration> {
        if self.closed.is_empty() {
            return self.open.iter().map(|file| file.closes_at(config)).min();
        }
        Some(Duration::ZERO)
    }

    /// Returns the bytes of all bodies.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of files.
    pub(super) fn len(&self) -> usize {
        self.open.len() + self.closed.len()
    }

    /// Closes an open file. Keeps the order of the others, which is that of their opening.
    fn close(&mut self, position: usize) {
        self.closed.push_back(self.open.remove(position));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use athanor_chassis::Timestamp;
    use tokio::sync::Semaphore;

    use super::*;

    const MAX_FILE_BYTES: usize = 1000;

    fn scraped(body: &'static [u8], order: UploadOrder) -> Upload {
        Upload {
            tenant: None,
            route: UploadRoute::Push,
            body: Bytes::from_static(body),
            profiles: 1,
            order,
            origin: UploadOrigin::Scraped,
            time: Timestamp::from_seconds(5),
        }
    }

    fn push(pending: &mut PendingFiles, upload: Upload) {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let stored = oneshot::channel().0;
        pending.push(upload, StoreWaiter { stored, permit }, Duration::ZERO, MAX_FILE_BYTES);
    }

    fn drain(mut pending: PendingFiles) -> Vec<PendingFile> {
        let config = SpoolConfig::default();
        pending.close_all();
        let files: Vec<_> = std::iter::from_fn(|| pending.take_due(Duration::ZERO, &config)).collect();
        assert_eq!((pending.len(), pending.bytes()), (0, 0));
        files
    }

    #[test]
    fn scraped_uploads_share_requests_up_to_the_limit_of_profiles() {
        let mut pending = PendingFiles::default();
        (0..130).for_each(|_| push(&mut pending, scraped(b"a", UploadOrder::Independent)));
        let files = drain(pending);
        let sizes: Vec<_> = files[0].requests.iter().map(|request| request.profiles).collect();
        assert_eq!((files.len(), sizes), (1, vec![64, 64, 2]));
        assert_eq!((files[0].profiles, files[0].time_millis, files[0].waiters.len()), (130, 5000, 130));
    }

    #[test]
    fn received_uploads_are_never_combined() {
        let mut pending = PendingFiles::default();
        for _ in 0..3 {
            let origin = UploadOrigin::Received;
            push(&mut pending, Upload { origin, ..scraped(b"a", UploadOrder::Independent) });
        }
        let files = drain(pending);
        assert_eq!((files.len(), files[0].requests.len()), (1, 3));
    }

    #[test]
    fn snapshots_of_one_series_are_in_different_requests_in_order() {
        let mut pending = PendingFiles::default();
        for (body, series) in [(&b"1"[..], 16), (b"2", 32), (b"3", 16), (b"4", 32), (b"5", 48)] {
            push(&mut pending, scraped(body, UploadOrder::Cumulative(series)));
        }
        let files = drain(pending);
        let bodies: Vec<_> = files[0].requests.iter().map(|request| request.parts.concat()).collect();
        assert_eq!((files.len(), bodies), (1, vec![b"12".to_vec(), b"345".to_vec()]));
    }

    #[test]
    fn uploads_of_different_groups_are_in_different_files() {
        let mut pending = PendingFiles::default();
        let base = || scraped(b"a", UploadOrder::Independent);
        push(&mut pending, base());
        push(&mut pending, Upload { tenant: Some("b".parse().unwrap()), ..base() });
        push(&mut pending, Upload { origin: UploadOrigin::Received, ..base() });
        push(&mut pending, Upload { route: UploadRoute::Otlp, ..base() });
        push(&mut pending, scraped(b"a", UploadOrder::Cumulative(0)));
        push(&mut pending, scraped(b"a", UploadOrder::Cumulative(1)));
        push(&mut pending, base());
        let files = drain(pending);
        assert_eq!(files.iter().map(|file| file.profiles).collect::<Vec<_>>(), [2, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn full_files_are_due_at_once_and_others_after_their_time() {
        let config = SpoolConfig::default();
        let mut pending = PendingFiles::default();
        push(&mut pending, scraped(&[1; 600], UploadOrder::Independent));
        assert_eq!(pending.next_due(&config), Some(config.close_after));
        assert!(pending.take_due(Duration::from_millis(999), &config).is_none());
        push(&mut pending, scraped(&[2; 600], UploadOrder::Independent));
        assert_eq!((pending.next_due(&config), pending.bytes()), (Some(Duration::ZERO), 1200));
        let full = pending.take_due(Duration::ZERO, &config).unwrap();
        assert_eq!(full.requests[0].parts[0], [1; 600][..]);
        assert!(pending.take_due(Duration::ZERO, &config).is_none());
        push(&mut pending, scraped(&[3; 400], UploadOrder::Independent));
        assert_eq!(pending.take_due(Duration::ZERO, &config).unwrap().profiles, 2);
        let received = scraped(b"4", UploadOrder::Independent);
        push(&mut pending, Upload { origin: UploadOrigin::Received, ..received });
        assert!(pending.take_due(config.close_received_after, &config).is_some());
    }

    #[test]
    fn files_that_collect_uploads_are_bounded() {
        let mut pending = PendingFiles::default();
        for number in 0..=MAX_OPEN_FILES {
            let tenant = Some(format!("t{number}").parse().unwrap());
            push(&mut pending, Upload { tenant, ..scraped(b"a", UploadOrder::Independent) });
        }
        assert_eq!((pending.open.len(), pending.closed.len()), (MAX_OPEN_FILES, 1));
        assert_eq!(pending.closed[0].group.tenant.as_ref().unwrap().as_str(), "t0");
    }
}
