//! Uploads of debug information and of profiles by hand: list and delete.

use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_storage::path::{BuildId, KeyPrefix, ObjectKey};
use athanor_storage::{ObjectInfo, Store, UploadKind};
use athanor_symbolizer::delete_debuginfo;
use serde_json::{Value, json};

use super::ranking::LargestRows;

/// Keys per page of a listing.
const MAX_KEYS_PER_PAGE: usize = 10_000;

/// Uploads that a request selects.
#[derive(Debug)]
pub(super) enum UploadSelector {
    /// Debug information of one binary.
    Build(BuildId),
    /// Profile uploaded by hand, by its id.
    Profile(u128),
    /// All uploads of the tenant.
    All,
}

/// Objects that form one row: those of a tenant, or those of one upload of a tenant.
struct UploadGroup {
    row: Value,
    files: u64,
    bytes: u64,
}

/// Listing of the objects below a prefix, page by page.
struct ObjectPages<'a> {
    store: &'a Store,
    below: KeyPrefix,
    after: Option<String>,
    is_done: bool,
}

impl<'a> ObjectPages<'a> {
    fn new(store: &'a Store, below: KeyPrefix) -> Self {
        Self { store, below, after: None, is_done: false }
    }
}

impl UploadSelector {
    /// Parses the parameters of a request into a selector.
    pub(super) fn parse(build_id: Option<&str>, id: Option<&str>, all: bool) -> Result<Self, Status> {
        let invalid = |message: String| Status::new(ErrorCode::Invalid, message);
        match (build_id, id, all) {
            (Some(build), None, false) => {
                BuildId::new(build).map(Self::Build).map_err(|error| invalid(error.to_string()))
            }
            (None, Some(id), false) => u128::from_str_radix(id, 16).map(Self::Profile).map_err(|_| {
                invalid(format!(
                    "{id:?} is not an upload id; write the 32 hexadecimal digits that the list shows"
                ))
            }),
            (None, None, true) => Ok(Self::All),
            _ => Err(invalid("set one of build_id, id and all".to_owned())),
        }
    }
}

/// Lists the tenants with uploads, or the uploads of one tenant, the largest first.
pub(super) async fn list(store: &Store, tenant: Option<&TenantId>) -> Result<Value, Status> {
    let mut ranking = LargestRows::default();
    for kind in [UploadKind::Debuginfo, UploadKind::AdHoc] {
        let below = match (kind, tenant) {
            (_, None) => kind.prefix(),
            (UploadKind::Debuginfo, Some(tenant)) => KeyPrefix::Debuginfo(tenant.clone()),
            (UploadKind::AdHoc, Some(tenant)) => KeyPrefix::Uploads(tenant.clone()),
        };
        // Keys of one group are adjacent in the listing.
        let mut group: Option<UploadGroup> = None;
        let mut pages = ObjectPages::new(store, below);
        while let Some(page) = pages.next().await? {
            for entry in page {
                let Some(row) = row(&entry.key, tenant.is_some()) else { continue };
                match &mut group {
                    Some(group) if group.row == row => {
                        group.files += 1;
                        group.bytes += entry.size;
                    }
                    other => {
                        let next = UploadGroup { row, files: 1, bytes: entry.size };
                        other.replace(next).into_iter().for_each(|done| add(&mut ranking, done));
                    }
                }
            }
        }
        group.into_iter().for_each(|done| add(&mut ranking, done));
    }
    Ok(ranking.into_json("uploads"))
}

fn add(ranking: &mut LargestRows, UploadGroup { mut row, files, bytes }: UploadGroup) {
    row["files"] = files.into();
    row["bytes"] = bytes.into();
    ranking.add(bytes, row);
}

/// Returns the row that an object belongs to; `None` for an object that is no upload.
fn row(key: &str, is_single: bool) -> Option<Value> {
    Some(match (ObjectKey::parse(key).ok()?, is_single) {
        (ObjectKey::Debuginfo { tenant, .. }, false) => {
            json!({ "kind": "debuginfo", "tenant": tenant.as_str() })
        }
        (ObjectKey::Upload { tenant, .. }, false) => json!({ "kind": "adhoc", "tenant": tenant.as_str() }),
        (ObjectKey::Debuginfo { tenant, build, .. }, true) => {
            json!({ "kind": "debuginfo", "tenant": tenant.as_str(), "build_id": build.as_str() })
        }
        (ObjectKey::Upload { tenant, upload, name }, true) => json!({
            "kind": "adhoc", "tenant": tenant.as_str(), "id": format!("{upload:032x}"), "name": name.as_str(),
        }),
        _ => return None,
    })
}

/// Deletes uploads of a tenant. Returns how many binaries and manual profiles it deleted.
pub(super) async fn delete(
    store: &Store,
    tenant: &TenantId,
    selected: &UploadSelector,
) -> Result<Value, Status> {
    let deleted = match selected {
        UploadSelector::Build(build) => {
            let below = KeyPrefix::DebuginfoOf(tenant.clone(), build.clone());
            let page = store.list(&below, None, 1).await.map_err(|error| Status::from_error(&error))?;
            delete_debuginfo(store, tenant, build).await?;
            page.len()
        }
        UploadSelector::Profile(number) => delete_profiles(store, tenant, Some(*number)).await?,
        UploadSelector::All => {
            delete_profiles(store, tenant, None).await? + delete_all_debuginfo(store, tenant).await?
        }
    };
    Ok(json!({ "deleted": deleted }))
}

/// Deletes the profile with an id, or all profiles of a tenant.
async fn delete_profiles(store: &Store, tenant: &TenantId, number: Option<u128>) -> Result<usize, Status> {
    let mut deleted = 0;
    let mut pages = ObjectPages::new(store, KeyPrefix::Uploads(tenant.clone()));
    while let Some(page) = pages.next().await? {
        for key in page.iter().filter_map(|entry| ObjectKey::parse(&entry.key).ok()) {
            let ObjectKey::Upload { upload, .. } = &key else { continue };
            if number.is_none_or(|number| number == *upload) {
                store.delete(&key).await.map_err(|error| Status::from_error(&error))?;
                deleted += 1;
            }
        }
    }
    Ok(deleted)
}

async fn delete_all_debuginfo(store: &Store, tenant: &TenantId) -> Result<usize, Status> {
    let mut deleted = 0;
    let mut last = None;
    let mut pages = ObjectPages::new(store, KeyPrefix::Debuginfo(tenant.clone()));
    while let Some(page) = pages.next().await? {
        for entry in page {
            let Ok(ObjectKey::Debuginfo { build, .. }) = ObjectKey::parse(&entry.key) else { continue };
            if last.as_ref() != Some(&build) {
                delete_debuginfo(store, tenant, &build).await?;
                deleted += 1;
                last = Some(build);
            }
        }
    }
    Ok(deleted)
}

impl ObjectPages<'_> {
    /// Returns the next page of objects; `None` after the last.
    async fn next(&mut self) -> Result<Option<Vec<ObjectInfo>>, Status> {
        if self.is_done {
            return Ok(None);
        }
        let page = self.store.list(&self.below, self.after.as_deref(), MAX_KEYS_PER_PAGE).await;
        let page = page.map_err(|error| Status::from_error(&error))?;
        self.is_done = page.len() < MAX_KEYS_PER_PAGE;
        self.after = page.last().map(|entry| entry.key.clone());
        Ok(Some(page))
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::{Clock, Random};
    use athanor_storage::path::{FileName, UploadName};
    use athanor_storage::{StorageConfig, StoreDeps};
    use bytes::Bytes;

    use super::*;

    fn debuginfo(tenant: &str, build: &str, file: &str) -> ObjectKey {
        ObjectKey::Debuginfo {
            tenant: tenant.parse().unwrap(),
            build: BuildId::new(build).unwrap(),
            kind: FileName::new("debuginfo").unwrap(),
            upload: 1,
            file: FileName::new(file).unwrap(),
        }
    }

    fn profile(tenant: &str, upload: u128) -> ObjectKey {
        ObjectKey::Upload { tenant: tenant.parse().unwrap(), upload, name: UploadName::new("n 1").unwrap() }
    }

    #[tokio::test]
    async fn uploads_are_listed_by_size_and_deleted_of_their_tenant_only() {
        let deps = StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
        let store = Store::open(&StorageConfig { memory: true, ..StorageConfig::default() }, deps).unwrap();
        let sizes = [
            (debuginfo("a", "abcd", "started"), 10),
            (debuginfo("a", "abcd", "0.00000"), 1_000),
            (debuginfo("a", "ef01", "started"), 20),
            (debuginfo("b", "abcd", "started"), 30),
            (profile("a", 0xa), 500),
            (profile("a", 0xb), 600),
            (profile("b", 0xa), 2_000),
        ];
        for (key, size) in &sizes {
            store.create(key, Bytes::from(vec![0; *size])).await.unwrap();
        }
        let tenants = ["a", "b"].map(|name| name.parse::<TenantId>().unwrap());
        let all = list(&store, None).await.unwrap();
        let rows = |listed: &Value| listed["uploads"].as_array().unwrap().clone();
        assert_eq!(rows(&all)[0], json!({ "kind": "adhoc", "tenant": "b", "files": 1, "bytes": 2_000 }));
        assert_eq!(rows(&all)[1], json!({ "kind": "adhoc", "tenant": "a", "files": 2, "bytes": 1_100 }));
        assert_eq!((rows(&all).len(), &all["bytes"], &all["omitted"]), (4, &json!(4_160), &json!(0)));
        let of_a = list(&store, Some(&tenants[0])).await.unwrap();
        let first =
            json!({ "kind": "debuginfo", "tenant": "a", "build_id": "abcd", "files": 2, "bytes": 1_010 });
        assert_eq!((rows(&of_a).len(), &rows(&of_a)[0]), (4, &first));
        let id = rows(&of_a)[1]["id"].as_str().unwrap().to_owned();
        let deleted = async |build, id, all| {
            let selected = UploadSelector::parse(build, id, all).unwrap();
            delete(&store, &tenants[0], &selected).await.unwrap()["deleted"].clone()
        };
        assert_eq!(deleted(None, Some(&id), false).await, 1);
        assert_eq!(deleted(None, Some(&id), false).await, 0);
        assert_eq!(deleted(Some("ABCD"), None, false).await, 1);
        assert_eq!(deleted(Some("abcd"), None, false).await, 0);
        assert_eq!(rows(&list(&store, Some(&tenants[0])).await.unwrap()).len(), 2);
        assert_eq!(deleted(None, None, true).await, 2);
        let left = list(&store, None).await.unwrap();
        assert_eq!((rows(&left).len(), &left["bytes"]), (2, &json!(2_030)), "those of b");
        for (build, id, all) in [(None, None, false), (Some("a"), Some("b"), false), (None, Some("x"), false)]
        {
            assert_eq!(UploadSelector::parse(build, id, all).unwrap_err().code, ErrorCode::Invalid);
        }
    }
}
