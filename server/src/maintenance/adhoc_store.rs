//! Store of profiles uploaded by hand, as objects of the bucket. The keys hold all metadata.

use async_trait::async_trait;
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_querier::{AdhocProfile, AdhocProfileStore};
use athanor_storage::path::{KeyPrefix, ObjectKey, UploadName};
use athanor_storage::{ObjectInfo, Store, StoreError, UploadKind, UploadSpace};
use bytes::Bytes;

const _: () = assert!(
    AdhocProfile::MAX_NAME_BYTES <= UploadName::MAX_LENGTH_BYTES,
    "whatever name is taken can be kept"
);

/// Store of manual uploads in a bucket.
pub struct BucketAdhocStore {
    /// Bucket that holds the uploads.
    pub store: Store,
    /// Space for uploads of all tenants.
    pub space: UploadSpace,
}

fn key(tenant: &TenantId, upload: &AdhocProfile) -> Result<ObjectKey, Status> {
    let name =
        UploadName::new(&*upload.name).map_err(|error| Status::new(ErrorCode::Invalid, error.to_string()))?;
    Ok(ObjectKey::Upload { tenant: tenant.clone(), upload: upload.number, name })
}

/// Returns the upload of an object, or `None` if the object is no upload.
fn read(entry: ObjectInfo) -> Option<AdhocProfile> {
    match ObjectKey::parse(&entry.key) {
        Ok(ObjectKey::Upload { upload: number, name, .. }) => {
            Some(AdhocProfile { number, name: name.as_str().to_owned(), size: entry.size })
        }
        _ => None,
    }
}

#[async_trait]
impl AdhocProfileStore for BucketAdhocStore {
    async fn put(&self, tenant: &TenantId, upload: &AdhocProfile, bytes: Bytes) -> Result<(), Status> {
        let key = key(tenant, upload)?;
        let _reserved = self.space.reserve(UploadKind::AdHoc, bytes.len() as u64).await?;
        let kept = self.store.create(&key, bytes).await;
        kept.map_err(|error| Status::from_error(&error))
    }

    async fn list(&self, tenant: &TenantId, from: u128, limit: usize) -> Result<Vec<AdhocProfile>, Status> {
        let below = KeyPrefix::Uploads(tenant.clone());
        // Keys of this number begin with this text, so the listing includes them.
        let mut after = format!("{below}/{from:032x}");
        let mut found = Vec::new();
        loop {
            let page = self.store.list(&below, Some(&after), limit).await;
            let page = page.map_err(|error| Status::from_error(&error))?;
            let is_last = page.len() < limit;
            if let Some(last) = page.last() {
                after.clone_from(&last.key);
            }
            found.extend(page.into_iter().filter_map(read));
            if is_last || found.len() >= limit {
                found.truncate(limit);
                return Ok(found);
            }
        }
    }

    async fn read(&self, tenant: &TenantId, upload: &AdhocProfile) -> Result<Option<Bytes>, Status> {
        match self.store.get(&key(tenant, upload)?).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(Status::from_error(&error)),
        }
    }

    async fn remove(&self, tenant: &TenantId, upload: &AdhocProfile) -> Result<(), Status> {
        self.store.delete(&key(tenant, upload)?).await.map_err(|error| Status::from_error(&error))
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::{ByteSize, Clock, Random};
    use athanor_storage::{StorageConfig, StoreDeps, UploadLimits};

    use super::*;

    #[tokio::test]
    async fn a_bucket_lists_them_by_number_and_of_each_tenant_apart() {
        let folder = tempfile::tempdir().unwrap();
        for config in [
            StorageConfig { memory: true, ..StorageConfig::default() },
            StorageConfig { local: Some(folder.path().to_owned()), ..StorageConfig::default() },
        ] {
            let deps = StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
            let store = Store::open(&config, deps).unwrap();
            let bounds = UploadLimits {
                min_free_bytes: ByteSize::bytes(1),
                max_debuginfo_bytes: ByteSize::bytes(0),
                max_adhoc_bytes: ByteSize::bytes(12),
            };
            let shelf = BucketAdhocStore { space: UploadSpace::new(store.clone(), bounds), store };
            let [a, b]: [TenantId; 2] = ["a", "a_b"].map(|name| name.parse().unwrap());
            let upload = |number, name: &str| AdhocProfile { number, name: name.to_owned(), size: 3 };
            let longest = "ß".repeat(75);
            let all = [upload(3, "x/../y"), upload(0x20, &longest), upload(u128::MAX, "\n \u{1f525}")];
            for one in all.iter().rev() {
                shelf.put(&a, one, Bytes::from_static(b"abc")).await.unwrap();
            }
            shelf.put(&b, &upload(7, "b"), Bytes::from_static(b"abc")).await.unwrap();
            let refused = shelf.put(&b, &upload(8, "b"), Bytes::from_static(b"a")).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::Exhausted, "all tenants have 12 bytes");
            assert_eq!(shelf.list(&a, 0, 10).await.unwrap(), all);
            assert_eq!(shelf.list(&a, 3, 1).await.unwrap(), all[..1]);
            assert_eq!(shelf.list(&a, 4, 10).await.unwrap(), all[1..]);
            assert_eq!(shelf.list(&b, 0, 10).await.unwrap(), [upload(7, "b")]);
            assert_eq!(shelf.read(&a, &all[1]).await.unwrap().unwrap(), "abc");
            assert_eq!(shelf.read(&b, &all[1]).await.unwrap(), None);
            shelf.remove(&a, &all[1]).await.unwrap();
            shelf.remove(&a, &all[1]).await.unwrap();
            assert_eq!(shelf.list(&a, 0, 2).await.unwrap(), [all[0].clone(), all[2].clone()]);
            assert_eq!(
                shelf.put(&a, &upload(9, ""), Bytes::new()).await.unwrap_err().code,
                ErrorCode::Invalid
            );
        }
    }
}
