//! Uploads in parts: to every kind of bucket, and through faults of each request.

use std::sync::Arc;

use athanor_chassis::{Clock, Random, Timestamp};
use athanor_storage::{StorageConfig, StorageRetryConfig, Store, StoreDeps, StoreError, UPLOAD_PART_BYTES};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;

use crate::server::{Fault, Server};
use crate::{key, list, memory, open};

/// Number of requests of an upload in two parts: head, begin, parts, complete.
const REQUESTS: usize = 5;

/// Returns bytes of some whole parts and a last one, that differ in each part.
fn content(parts: u32) -> Bytes {
    let length = parts * UPLOAD_PART_BYTES as u32 + 9;
    (0..length).map(|number| (number / 13) as u8).collect()
}

/// Writes bytes in chunks that fit no part.
async fn write(store: &Store, block: u128, bytes: &Bytes) -> Result<u64, StoreError> {
    let mut writer = store.create_writer(&key(block, "f"));
    for start in (0..bytes.len()).step_by(1_500_001) {
        writer.write(bytes.slice(start..bytes.len().min(start + 1_500_001))).await?;
    }
    writer.finish().await
}

async fn writer_conformance(store: &Store) {
    let all = content(2);
    for (block, length) in
        [(1, 0), (2, 5), (3, UPLOAD_PART_BYTES), (4, UPLOAD_PART_BYTES + 1), (5, all.len())]
    {
        let bytes = all.slice(..length);
        assert_eq!(write(store, block, &bytes).await.unwrap(), length as u64);
        assert!(store.get(&key(block, "f")).await.unwrap() == bytes, "{length} bytes differ");
        let taken = write(store, block, &bytes.slice(..length / 2)).await.unwrap_err();
        assert!(matches!(taken, StoreError::Exists { .. }), "{taken:?}");
        let taken = write(store, block, &all).await.unwrap_err();
        assert!(matches!(taken, StoreError::Exists { .. }), "{taken:?}");
        assert_eq!(store.head(&key(block, "f")).await.unwrap().size, length as u64);
    }
    let mut dropped = store.create_writer(&key(6, "f"));
    dropped.write(all.clone()).await.unwrap();
    drop(dropped);
    let listed = list(store, &athanor_storage::path::KeyPrefix::Blocks).await;
    assert_eq!(listed, [1, 2, 3, 4, 5].map(|block| key(block, "f").to_string()), "no unfinished object");
    assert_eq!(write(store, 6, &all).await.unwrap(), all.len() as u64);
}

#[tokio::test]
async fn writer_creates_objects_of_any_length_in_memory() {
    writer_conformance(&open(&memory())).await;
}

#[tokio::test]
async fn writer_creates_objects_of_any_length_in_a_local_folder() {
    let folder = tempfile::tempdir().unwrap();
    let config = StorageConfig { local: Some(folder.path().to_owned()), ..StorageConfig::default() };
    writer_conformance(&open(&config)).await;
}

#[tokio::test]
async fn writer_creates_objects_of_any_length_on_an_s3_server() {
    let server = Server::start().await;
    let config = StorageConfig { prefix: "teams/a".to_owned(), ..server.config() };
    writer_conformance(&open(&config)).await;
}

#[tokio::test]
async fn each_request_of_an_upload_is_retried() {
    let all = content(1);
    for at in 0..REQUESTS {
        for fault in [Fault::Answer(503), Fault::LoseTheAnswer] {
            let server = Server::start().await;
            let store = open(&server.config());
            // Requests that are not faulty succeed: the plan has one entry for each.
            server.plan_at(at, fault);
            assert_eq!(write(&store, 1, &all).await.unwrap(), all.len() as u64, "{at} {fault:?}");
            assert!(store.get(&key(1, "f")).await.unwrap() == all, "{at} {fault:?}");
            assert!(server.seen() > REQUESTS, "{at} {fault:?}: {} requests", server.seen());
        }
    }
}

#[tokio::test]
async fn failed_upload_leaves_no_object_and_is_aborted() {
    let server = Server::start().await;
    let config = StorageConfig {
        retry: StorageRetryConfig { max_attempts: 1, ..server.config().retry },
        ..server.config()
    };
    let store = open(&config);
    let all = content(1);
    for at in 1..REQUESTS {
        let before = server.seen();
        server.plan_at(at, Fault::Answer(500));
        let error = write(&store, 1, &all).await.unwrap_err();
        assert!(matches!(error, StoreError::GaveUp { .. }), "{at} {error:?}");
        // The failed request is the last one but for the abort. After a failed completion, the object's
        // existence is checked.
        let more = usize::from(at > 1) + usize::from(at == REQUESTS - 1);
        assert_eq!(server.seen() - before, at + 1 + more, "{at}");
        assert!(store.head(&key(1, "f")).await.is_err());
    }
    assert_eq!(write(&store, 1, &all).await.unwrap(), all.len() as u64);
}

#[tokio::test]
async fn next_writer_aborts_the_upload_of_a_dropped_one() {
    let objects = Arc::new(InMemory::new());
    let clock = Clock::manual(Timestamp::UNIX_EPOCH).0;
    let deps = StoreDeps { clock, random: Random::from_seed(1) };
    let store = Store::with_object_store(Arc::clone(&objects), &StorageConfig::default(), deps);
    let mut dropped = store.create_writer(&key(1, "f"));
    dropped.write(content(1)).await.unwrap();
    drop(dropped);
    // The bucket numbers uploads; the first one still exists.
    let path = object_store::path::Path::from(key(1, "f").to_string());
    let put = |id: &str| {
        let id = id.to_owned();
        let objects = Arc::clone(&objects);
        let path = path.clone();
        async move { objects.put_part(&path, &id, 0, Bytes::from_static(b"x").into()).await }
    };
    assert!(put("0").await.is_ok());
    write(&store, 2, &content(1)).await.unwrap();
    assert!(put("0").await.is_err());
    let listed: Vec<_> = object_store::ObjectStore::list(&*objects, None).try_collect().await.unwrap();
    assert_eq!(listed.len(), 1);
}
