//! Space that uploads may use in a bucket.
//!
//! Agents and users upload files that are not needed to acknowledge profiles. They share the bucket with
//! blocks. A bucket in a local folder also shares its disk with the log. Uploads therefore leave free space
//! on that disk, and each kind has a quota over all tenants. Quotas of single tenants are checked where
//! uploads are received.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::{ByteSize, ErrorCode, Status};
use tokio::sync::Mutex;

use crate::path::KeyPrefix;
use crate::store::Store;

/// Keys per page of a count.
const KEYS_PER_COUNT_PAGE: usize = 10_000;
/// Maximum age of a counted total. Other nodes write meanwhile, and only the next count includes their bytes.
const COUNT_MAX_AGE: Duration = Duration::from_secs(60);
/// Maximum age of a total that rejects an upload, because uploads may have been deleted since.
const REFUSAL_MAX_AGE: Duration = Duration::from_secs(2);

/// Kind of upload, each with its own quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadKind {
    /// Debug information of binaries.
    Debuginfo,
    /// Profiles uploaded by hand.
    AdHoc,
}

/// Bounds of all uploads.
#[derive(Clone, Copy, Debug)]
pub struct UploadLimits {
    /// Bytes that uploads leave free on the disk of a bucket in a folder.
    pub min_free_bytes: ByteSize,
    /// Most bytes of debug information, of all tenants.
    pub max_debuginfo_bytes: ByteSize,
    /// Most bytes of profiles uploaded by hand, of all tenants.
    pub max_adhoc_bytes: ByteSize,
}

/// Space for uploads in one bucket. Cheap to clone.
#[derive(Clone, Debug)]
pub struct UploadSpace {
    shared: Arc<UploadSpaceInner>,
}

#[derive(Debug)]
struct UploadSpaceInner {
    store: Store,
    bounds: UploadLimits,
    /// Bytes that are being written, and that the disk may not show yet.
    in_flight_bytes: AtomicU64,
    totals: [Mutex<UploadTotal>; 2],
}

/// Total bytes of one kind in the bucket: the last count plus the bytes that this node wrote since.
#[derive(Debug, Default)]
struct UploadTotal {
    bytes: u64,
    counted_at: Option<Duration>,
}

/// Reservation of bytes for one upload. Dropped when the upload has completed or failed.
#[derive(Debug)]
#[must_use]
pub struct SpaceReservation {
    shared: Arc<UploadSpaceInner>,
    bytes: u64,
}

impl UploadKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Debuginfo => "debug information",
            Self::AdHoc => "ad-hoc profiles",
        }
    }

    const fn setting(self) -> &'static str {
        match self {
            Self::Debuginfo => "uploads.max_debuginfo_bytes",
            Self::AdHoc => "uploads.max_adhoc_bytes",
        }
    }

    /// Returns the prefix of the keys of all tenants.
    pub const fn prefix(self) -> KeyPrefix {
        match self {
            Self::Debuginfo => KeyPrefix::AllDebuginfo,
            Self::AdHoc => KeyPrefix::AllUploads,
        }
    }
}

impl UploadSpace {
    /// Returns the space of a bucket, with nothing counted yet.
    pub fn new(store: Store, bounds: UploadLimits) -> Self {
        let shared = UploadSpaceInner {
            store,
            bounds,
            in_flight_bytes: AtomicU64::new(0),
            totals: Default::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Rejects an upload for which there is no space now.
    pub async fn check(&self, kind: UploadKind, bytes: u64) -> Result<(), Status> {
        self.check_disk_capacity(bytes)?;
        self.count_upload(kind, bytes, |_| ()).await
    }

    /// Reserves space for bytes that are about to be written. They count towards the quota until the next
    /// count, written or not.
    pub async fn reserve(&self, kind: UploadKind, bytes: u64) -> Result<SpaceReservation, Status> {
        self.shared.in_flight_bytes.fetch_add(bytes, Ordering::SeqCst);
        let reservation = SpaceReservation { shared: Arc::clone(&self.shared), bytes };
        self.check_disk_capacity(0)?;
        self.count_upload(kind, bytes, |total| total.bytes = total.bytes.saturating_add(bytes)).await?;
        Ok(reservation)
    }

    fn check_disk_capacity(&self, bytes: u64) -> Result<(), Status> {
        let UploadSpaceInner { store, bounds, in_flight_bytes, .. } = &*self.shared;
        let Some(free) = store.free_bytes()? else { return Ok(()) };
        let in_flight = in_flight_bytes.load(Ordering::SeqCst).saturating_add(bytes);
        let min_free = bounds.min_free_bytes;
        if free >= min_free.get().saturating_add(in_flight) {
            return Ok(());
        }
        let message = format!(
            "the disk of the bucket has {} free, {} are in flight, and uploads must leave {min_free} free \
             (twice wal.min_free_bytes); free some space, or delete uploads with athanor upload delete",
            ByteSize::bytes(free).to_approximate_string(),
            ByteSize::bytes(in_flight).to_approximate_string()
        );
        Err(Status::new(ErrorCode::Exhausted, message).with_reason("upload_disk_full"))
    }

    async fn count_upload(
        &self,
        kind: UploadKind,
        bytes: u64,
        admit: impl FnOnce(&mut UploadTotal),
    ) -> Result<(), Status> {
        let UploadSpaceInner { store, bounds, totals, .. } = &*self.shared;
        let (limit, total) = match kind {
            UploadKind::Debuginfo => (bounds.max_debuginfo_bytes, &totals[0]),
            UploadKind::AdHoc => (bounds.max_adhoc_bytes, &totals[1]),
        };
        let mut total = total.lock().await;
        let now = store.clock().monotonic();
        let age = total.counted_at.map(|counted| now.saturating_sub(counted));
        let fits = |total: &UploadTotal| total.bytes.saturating_add(bytes) <= limit.get();
        if age.is_none_or(|age| age >= COUNT_MAX_AGE || (age >= REFUSAL_MAX_AGE && !fits(&total))) {
            let bytes = count_bytes(store, kind).await?;
            // A count may take long. Its age starts at its end, so that callers which waited for it use it.
            *total = UploadTotal { bytes, counted_at: Some(store.clock().monotonic()) };
        }
        if fits(&total) {
            admit(&mut total);
            return Ok(());
        }
        let name = kind.name();
        let setting = kind.setting();
        let message = format!(
            "all tenants have {} of {name}, the upload adds {bytes} bytes, the limit is {limit} \
             ({setting}); delete some with athanor upload delete, or raise the limit",
            ByteSize::bytes(total.bytes).to_approximate_string()
        );
        Err(Status::new(ErrorCode::Exhausted, message).with_reason("uploads_full"))
    }
}

async fn count_bytes(store: &Store, kind: UploadKind) -> Result<u64, Status> {
    let below = kind.prefix();
    let mut bytes = 0u64;
    let mut after = None;
    loop {
        let page = store.list(&below, after.as_deref(), KEYS_PER_COUNT_PAGE).await;
        let page = page.map_err(|error| Status::from_error(&error))?;
        bytes = page.iter().fold(bytes, |sum, entry| sum.saturating_add(entry.size));
        if page.len() < KEYS_PER_COUNT_PAGE {
            return Ok(bytes);
        }
        after = page.into_iter().last().map(|entry| entry.key);
    }
}

impl Drop for SpaceReservation {
    fn drop(&mut self) {
        self.shared.in_flight_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::{Clock, Random, Timestamp};
    use bytes::Bytes;

    use super::*;
    use crate::path::{ObjectKey, UploadName};
    use crate::{StorageConfig, StoreDeps};

    const GENEROUS: UploadLimits = UploadLimits {
        min_free_bytes: ByteSize::bytes(0),
        max_debuginfo_bytes: ByteSize::mib(1),
        max_adhoc_bytes: ByteSize::mib(1),
    };

    fn key(tenant: &str) -> ObjectKey {
        let name = UploadName::new("x").unwrap();
        ObjectKey::Upload { tenant: tenant.parse().unwrap(), upload: 1, name }
    }

    #[tokio::test]
    async fn total_over_all_tenants_is_bounded_and_follows_deletions() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1));
        let config = StorageConfig { memory: true, ..StorageConfig::default() };
        let store = Store::open(&config, StoreDeps { clock, random: Random::from_seed(1) }).unwrap();
        store.create(&key("a"), Bytes::from(vec![0; 600])).await.unwrap();
        let bounds = UploadLimits { max_adhoc_bytes: ByteSize::bytes(1_000), ..GENEROUS };
        let space = UploadSpace::new(store.clone(), bounds);
        let _written = space.reserve(UploadKind::AdHoc, 300).await.unwrap();
        let refused = space.reserve(UploadKind::AdHoc, 101).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Exhausted);
        for said in ["900", "101 bytes", "1000", "uploads.max_adhoc_bytes", "athanor upload delete"] {
            assert!(refused.message.contains(said), "{said}: {refused}");
        }
        space.check(UploadKind::Debuginfo, 5_000).await.unwrap();
        store.delete(&key("a")).await.unwrap();
        hand.advance(REFUSAL_MAX_AGE);
        space.check(UploadKind::AdHoc, 1_000).await.unwrap();
    }

    #[tokio::test]
    async fn disk_of_a_folder_keeps_its_reserve_with_bytes_in_flight() {
        let folder = tempfile::tempdir().unwrap();
        let config = StorageConfig { local: Some(folder.path().to_owned()), ..StorageConfig::default() };
        let deps = StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
        let store = Store::open(&config, deps).unwrap();
        let free = store.free_bytes().unwrap().unwrap();
        let with_reserve = |bytes| {
            let min_free_bytes = ByteSize::bytes(bytes);
            UploadSpace::new(store.clone(), UploadLimits { min_free_bytes, ..GENEROUS })
        };
        let refused = with_reserve(u64::MAX / 2).check(UploadKind::AdHoc, 1).await.unwrap_err();
        assert_eq!((refused.code, refused.reason), (ErrorCode::Exhausted, Some("upload_disk_full")));
        assert!(refused.message.contains("twice wal.min_free_bytes"), "{refused}");
        let space = with_reserve(free / 2);
        let held = space.reserve(UploadKind::AdHoc, 1_000).await.unwrap();
        assert_eq!(space.shared.in_flight_bytes.load(Ordering::SeqCst), 1_000);
        assert!(space.check(UploadKind::AdHoc, u64::MAX / 2).await.is_err());
        assert!(space.reserve(UploadKind::AdHoc, u64::MAX / 2).await.is_err(), "nothing stays of it");
        drop(held);
        assert_eq!(space.shared.in_flight_bytes.load(Ordering::SeqCst), 0);
    }
}
