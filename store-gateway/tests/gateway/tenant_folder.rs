//! Blocks in the folder of a tenant.

use athanor_chassis::{ErrorCode, Status};
use athanor_storage::path::BlockOwner;

use super::*;

/// Queries a block in the folder of a tenant.
async fn query_folder(
    gateway: &StoreGateway,
    tenant: &str,
    ask: &ProfileQuery,
    target: &BlockTarget,
) -> Result<PartialResult, Status> {
    let question = BlockQuery::new(tenant.parse().unwrap(), ask.clone());
    gateway.query_block(&question, target).await.map(|(partial, _)| partial)
}

fn in_tenant_folder(number: u128, whole: bool) -> BlockTarget {
    BlockTarget { in_tenant_folder: true, ..BlockTarget::without_duplicates(block(number), whole) }
}

/// Puts a block into the folder of the tenant `shop`.
async fn put_in_folder(bucket: &Bucket, number: u128, source: MemorySource) {
    bucket.put_below(BlockOwner::Tenant(tenant()), block(number), &[("shop", source)]).await;
}

#[tokio::test]
async fn block_in_tenant_folder_is_read_and_cached() {
    let bucket = Bucket::new();
    let disk = MemoryDisk::new();
    let source = profiles(0..3, &[10, 20, 30], 20);
    put_in_folder(&bucket, 1, profiles(0..3, &[10, 20, 30], 20)).await;
    let gateway = on_disk(&bucket, &disk, &config()).await;
    let all = tree("{}", 0, 60);
    let part = tree("{}", 15, 60);
    for (ask, whole) in [(&all, true), (&part, false)] {
        let seen = query_folder(&gateway, "shop", ask, &in_tenant_folder(1, whole)).await.unwrap();
        assert_eq!(said(&seen), said(&expected(ask, &source)));
    }
    // The ids are read from the same folder.
    let ids = BlockTarget { tells: Some(TimeRange::default()), ..in_tenant_folder(1, true) };
    let with_ids = query_folder(&gateway, "shop", &all, &ids).await.unwrap();
    assert_eq!(with_ids.split_ids().1.by_source().values().map(Vec::len).collect::<Vec<_>>(), [9]);
    gateway.maintain_disk_cache().await;
    bucket.read();
    let restarted = on_disk(&bucket, &disk, &config()).await;
    let seen = query_folder(&restarted, "shop", &all, &in_tenant_folder(1, true)).await.unwrap();
    assert_eq!((said(&seen), bucket.read()), (said(&expected(&all, &source)), (0, 0)));
}

#[tokio::test]
async fn block_is_read_from_the_named_folder_only() {
    let bucket = Bucket::new();
    put_in_folder(&bucket, 1, profiles(0..3, &[10], 5)).await;
    bucket.put(block(2), &[("shop", profiles(0..3, &[10], 5))]).await;
    let gateway = gateway(&bucket, &config());
    let all = tree("{}", 0, 60);
    for target in [BlockTarget::without_duplicates(block(1), true), in_tenant_folder(2, true)] {
        let refused = query_folder(&gateway, "shop", &all, &target).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::NotFound, "{target:?}");
    }
}

/// A request of another tenant for the same block fails, whatever the caches hold.
#[tokio::test]
async fn tenant_reads_no_block_in_the_folder_of_another() {
    let bucket = Bucket::new();
    let disk = MemoryDisk::new();
    put_in_folder(&bucket, 1, profiles(0..3, &[10, 20], 20)).await;
    let all = tree("{}", 0, 60);
    let targets = [in_tenant_folder(1, true), BlockTarget::without_duplicates(block(1), true)];
    let cold = on_disk(&bucket, &disk, &config()).await;
    for target in &targets {
        let refused = query_folder(&cold, "other", &all, target).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::NotFound, "{target:?}");
    }
    query_folder(&cold, "shop", &all, &in_tenant_folder(1, true)).await.unwrap();
    cold.maintain_disk_cache().await;
    let restarted = on_disk(&bucket, &disk, &config()).await;
    for gateway in [&cold, &restarted] {
        for target in &targets {
            assert!(query_folder(gateway, "other", &all, target).await.is_err(), "{target:?}");
        }
        query_folder(gateway, "shop", &all, &in_tenant_folder(1, true)).await.unwrap();
    }
}
