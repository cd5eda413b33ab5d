//! What every bucket must do, and what must hold when it misbehaves.
#![expect(clippy::unwrap_used, reason = "a test")]

mod object_writer;
mod server;

use std::time::Duration;

use athanor_chassis::config::ConfigSources;
use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{Clock, ErrorCode, ErrorCodeExt, Random, Timestamp};
use athanor_storage::path::{BlockOwner, FileName, KeyPrefix, ObjectKey};
use athanor_storage::{StorageConfig, StorageRetryConfig, Store, StoreDeps, StoreError};
use bytes::Bytes;
use futures::future::join_all;
use server::{Fault, Server};

fn open(config: &StorageConfig) -> Store {
    Store::open(config, StoreDeps { clock: Clock::system(), random: Random::from_seed(1) }).unwrap()
}

fn key(block: u128, file: &str) -> ObjectKey {
    ObjectKey::Block { owner: BlockOwner::Shared, block, file: FileName::new(file).unwrap() }
}

fn memory() -> StorageConfig {
    StorageConfig { memory: true, ..StorageConfig::default() }
}

async fn store_conformance(store: &Store) {
    let samples = key(1, "samples.parquet");
    store.create(&samples, Bytes::from_static(b"0123456789")).await.unwrap();
    let taken = store.create(&samples, Bytes::from_static(b"other")).await.unwrap_err();
    assert!(matches!(taken, StoreError::Exists { .. }) && taken.code() == ErrorCode::Conflict, "{taken:?}");
    assert_eq!(store.get(&samples).await.unwrap(), "0123456789");
    assert_eq!(store.get_range(&samples, 2..5).await.unwrap(), "234");
    let parts = store.get_ranges(&samples, &[7..9, 0..2, 3..4]).await.unwrap();
    assert_eq!(parts, ["78", "01", "3"]);
    assert_eq!(store.head(&samples).await.unwrap().size, 10);

    let missing = key(9, "none");
    for error in [store.get(&missing).await.unwrap_err(), store.head(&missing).await.unwrap_err()] {
        assert_eq!(error.code(), ErrorCode::NotFound);
        assert!(error.to_string().contains(&missing.to_string()), "{error}");
    }

    let mut expected = vec![samples.to_string()];
    for block in 2..7 {
        let key = key(block, "meta.json");
        store.create(&key, Bytes::from_static(b"{}")).await.unwrap();
        expected.push(key.to_string());
    }
    store.create(&ObjectKey::Snapshot { index: 3 }, Bytes::new()).await.unwrap();
    assert_eq!(list(store, &KeyPrefix::Blocks).await, expected);
    assert_eq!(list(store, &KeyPrefix::Block(BlockOwner::Shared, 1)).await, expected[..1]);
    assert_eq!(list(store, &KeyPrefix::Snapshots).await, [ObjectKey::Snapshot { index: 3 }.to_string()]);
    assert_eq!(list(store, &KeyPrefix::Debuginfo("a".parse().unwrap())).await, Vec::<String>::new());

    for _twice in 0..2 {
        store.delete(&samples).await.unwrap();
    }
    assert_eq!(list(store, &KeyPrefix::Blocks).await, expected[1..]);
    store.create(&samples, Bytes::from_static(b"again")).await.unwrap();
}

/// All keys below a prefix, two to a page; each must be a key of ours.
async fn list(store: &Store, below: &KeyPrefix) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    loop {
        let page = store.list(below, keys.last().map(String::as_str), 2).await.unwrap();
        let last = page.len() < 2;
        keys.extend(page.into_iter().map(|entry| ObjectKey::parse(&entry.key).unwrap().to_string()));
        if last {
            return keys;
        }
    }
}

async fn one_of_many_creates_wins(store: &Store) {
    let key = key(77, "race");
    let bodies: Vec<Bytes> = (0..16_u8).map(|writer| Bytes::from(vec![writer; 1000])).collect();
    let outcomes = join_all(bodies.iter().map(|body| store.create(&key, body.clone()))).await;
    let won: Vec<usize> = (0..16).filter(|writer| outcomes[*writer].is_ok()).collect();
    assert_eq!(won.len(), 1, "{outcomes:?}");
    assert_eq!(store.get(&key).await.unwrap(), bodies[won[0]]);
}

#[tokio::test]
async fn memory_conforms() {
    let store = open(&memory());
    store_conformance(&store).await;
    one_of_many_creates_wins(&store).await;
}

#[tokio::test]
async fn a_local_folder_conforms_and_outlives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let config = StorageConfig { local: Some(folder.path().join("a/bucket")), ..StorageConfig::default() };
    let store = open(&config);
    store_conformance(&store).await;
    one_of_many_creates_wins(&store).await;
    let before = list(&store, &KeyPrefix::Blocks).await;
    drop(store);
    assert_eq!(list(&open(&config), &KeyPrefix::Blocks).await, before);
}

#[tokio::test]
async fn an_s3_server_conforms() {
    let server = Server::start().await;
    store_conformance(&open(&server.config())).await;
}

#[tokio::test]
async fn a_prefix_keeps_two_stores_in_one_bucket_apart() {
    let server = Server::start().await;
    let with_prefix = |prefix: &str| open(&StorageConfig { prefix: prefix.to_owned(), ..server.config() });
    let (a, b) = (with_prefix("teams/a"), with_prefix("/teams/b/"));
    store_conformance(&a).await;
    store_conformance(&b).await;
}

#[tokio::test]
async fn calls_outlive_answers_that_say_try_again() {
    let server = Server::start().await;
    let store = open(&server.config());
    let key = key(1, "f");
    server.plan([Fault::Answer(500), Fault::Answer(503), Fault::Answer(429)]);
    store.create(&key, Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(server.seen(), 4);
    server.plan([Fault::LoseTheAnswer, Fault::Answer(502)]);
    assert_eq!(store.get(&key).await.unwrap(), "x");
    server.plan([Fault::Answer(503)]);
    assert_eq!(list(&store, &KeyPrefix::Blocks).await, [key.to_string()]);
    server.plan([Fault::LoseTheAnswer]);
    store.delete(&key).await.unwrap();
}

#[tokio::test]
async fn patience_ends_with_a_message_that_tells_the_story() {
    let server = Server::start().await;
    let store = open(&server.config());
    server.plan([Fault::Answer(503); 4]);
    let error = store.get(&key(1, "f")).await.unwrap_err();
    assert!(matches!(error, StoreError::GaveUp { attempts: 4, .. }), "{error:?}");
    assert_eq!((error.code(), server.seen()), (ErrorCode::Unavailable, 4));
    let text = format!("cannot get {}: gave up after 4 attempts", key(1, "f"));
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn what_cannot_change_is_not_tried_again() {
    let server = Server::start().await;
    assert_eq!(open(&server.config()).get(&key(1, "f")).await.unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(server.seen(), 1);
    let mut config = server.config();
    config.s3.as_mut().unwrap().secret_key = Some(athanor_chassis::config::SecretString::new("wrong"));
    let error = open(&config).get(&key(1, "f")).await.unwrap_err();
    assert_eq!((error.code(), server.seen()), (ErrorCode::PermissionDenied, 2), "{error:?}");
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_not_taken_for_a_conflict() {
    let server = Server::start().await;
    let store = open(&server.config());
    server.plan([Fault::LoseTheAnswer]);
    store.create(&key(1, "f"), Bytes::from_static(b"mine")).await.unwrap();
    assert_eq!(store.get(&key(1, "f")).await.unwrap(), "mine");
}

#[tokio::test]
async fn a_name_taken_by_others_is_a_conflict_also_after_a_lost_answer() {
    let server = Server::start().await;
    let store = open(&server.config());
    store.create(&key(1, "f"), Bytes::from_static(b"theirs")).await.unwrap();
    for body in ["mine", "mine!!"] {
        server.plan([Fault::LoseTheAnswer]);
        let error = store.create(&key(1, "f"), Bytes::from_static(body.as_bytes())).await.unwrap_err();
        assert!(matches!(error, StoreError::Exists { .. }), "{error:?}");
    }
    assert_eq!(store.get(&key(1, "f")).await.unwrap(), "theirs");
}

#[tokio::test]
async fn an_attempt_without_an_answer_is_given_up_and_tried_again() {
    let server = Server::start().await;
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let store = Store::open(&server.config(), StoreDeps { clock, random: Random::from_seed(1) }).unwrap();
    server.plan([Fault::Hold]);
    let key = key(1, "f");
    let (created, ()) = tokio::join!(store.create(&key, Bytes::from_static(b"x")), async {
        server.until_seen(1).await;
        hand.advance(StorageRetryConfig::default().attempt_timeout);
        hand.wait_for_sleepers(1).await;
        assert!(hand.advance_to_next(), "waits before the second attempt");
    });
    created.unwrap();
    assert_eq!(store.get(&key).await.unwrap(), "x");
}

#[tokio::test]
async fn the_deadline_of_the_whole_call_holds_however_many_attempts_are_left() {
    let server = Server::start().await;
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let retry = StorageRetryConfig {
        max_attempts: 100,
        total_timeout: Duration::from_secs(50),
        ..server.config().retry
    };
    let config = StorageConfig { retry, ..server.config() };
    let store =
        Store::open(&config, StoreDeps { clock: clock.clone(), random: Random::from_seed(1) }).unwrap();
    server.plan([Fault::Hold; 3]);
    let key = key(1, "f");
    let (got, ()) = tokio::join!(store.get(&key), async {
        server.until_seen(1).await;
        assert!(hand.advance_to_next(), "the first attempt ends after 30 seconds");
        hand.wait_for_sleepers(1).await;
        assert!(hand.advance_to_next(), "the wait between them");
        server.until_seen(2).await;
        assert!(hand.advance_to_next(), "the second attempt gets only what is left");
    });
    let error = got.unwrap_err();
    assert!(matches!(error, StoreError::Deadline { attempts: 2, .. }), "{error:?}");
    assert_eq!((error.code(), clock.monotonic()), (ErrorCode::Deadline, Duration::from_secs(50)));
}

#[tokio::test]
async fn no_more_calls_are_under_way_than_may() {
    let server = Server::start().await;
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let retry = StorageRetryConfig { max_attempts: 1, ..StorageRetryConfig::default() };
    let config = StorageConfig { max_concurrent: 1, retry, ..server.config() };
    let store = Store::open(&config, StoreDeps { clock, random: Random::from_seed(1) }).unwrap();
    server.plan([Fault::Hold]);
    let (first, second) = (key(1, "f"), key(2, "f"));
    let (held, waited, ()) = tokio::join!(store.get(&first), store.get(&second), async {
        server.until_seen(1).await;
        hand.wait_for_sleepers(1).await;
        assert_eq!(server.seen(), 1);
        hand.advance(StorageRetryConfig::default().attempt_timeout);
    });
    assert_eq!(held.unwrap_err().code(), ErrorCode::Deadline);
    assert_eq!(waited.unwrap_err().code(), ErrorCode::NotFound);
}

/// A store that does one call at a time, each within fifty seconds, and lets two wait.
fn narrow(server: &Server) -> (Store, Clock, ManualClock) {
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let seconds = Duration::from_secs;
    let retry = StorageRetryConfig {
        max_attempts: 1,
        attempt_timeout: seconds(90),
        total_timeout: seconds(50),
        ..StorageRetryConfig::default()
    };
    let config = StorageConfig { max_concurrent: 1, max_queued: 2, retry, ..server.config() };
    let store =
        Store::open(&config, StoreDeps { clock: clock.clone(), random: Random::from_seed(1) }).unwrap();
    (store, clock, hand)
}

#[tokio::test]
async fn a_wait_for_room_is_part_of_the_time_that_a_call_may_take() {
    let server = Server::start().await;
    let (store, clock, hand) = narrow(&server);
    server.plan([Fault::Hold; 2]);
    let (first, second) = (key(1, "f"), key(2, "f"));
    let later = async {
        server.until_seen(1).await;
        hand.wait_for_sleepers(1).await;
        hand.advance(Duration::from_secs(30));
        store.get(&second).await
    };
    let (held, waited, ()) = tokio::join!(store.get(&first), later, async {
        hand.wait_for_sleepers(2).await;
        assert!(hand.advance_to_next(), "the first call ends after 50 seconds");
        server.until_seen(2).await;
        assert!(hand.advance_to_next(), "the second call has what it did not wait");
    });
    assert_eq!(held.unwrap_err().code(), ErrorCode::Deadline);
    assert!(matches!(waited.unwrap_err(), StoreError::Deadline { attempts: 1, .. }));
    assert_eq!(clock.monotonic(), Duration::from_secs(80));
}

#[tokio::test]
async fn no_more_calls_wait_than_may_and_none_for_longer_than_it_may_take() {
    let server = Server::start().await;
    let (store, clock, hand) = narrow(&server);
    server.plan([Fault::Hold; 2]);
    let keys: Vec<ObjectKey> = (0..4).map(|block| key(block, "f")).collect();
    let (outcomes, ()) = tokio::join!(join_all(keys.iter().map(|key| store.get(key))), async {
        server.until_seen(1).await;
        hand.wait_for_sleepers(3).await;
        hand.advance(Duration::from_secs(50));
    });
    let errors: Vec<StoreError> = outcomes.into_iter().map(Result::unwrap_err).collect();
    let codes: Vec<ErrorCode> = errors.iter().map(ErrorCodeExt::code).collect();
    assert_eq!(codes, [ErrorCode::Deadline, ErrorCode::Deadline, ErrorCode::Deadline, ErrorCode::Exhausted]);
    assert!(matches!(errors[3], StoreError::Busy { under_way: 1, waiting: 2, .. }), "{}", errors[3]);
    assert_eq!(clock.monotonic(), Duration::from_secs(50));
}

#[test]
fn a_configuration_names_exactly_one_bucket() {
    let deps = || StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
    let both = StorageConfig { local: Some("x".into()), ..memory() };
    let idle = StorageConfig { max_concurrent: 0, ..memory() };
    let nowhere = StorageConfig { local: Some("/dev/null/x".into()), ..StorageConfig::default() };
    for config in [StorageConfig::default(), both, idle, nowhere] {
        assert_eq!(Store::open(&config, deps()).unwrap_err().code(), ErrorCode::Invalid, "{config:?}");
    }
    assert!(format!("{:?}", Store::open(&memory(), deps()).unwrap()).contains("InMemory"));
}

#[test]
fn every_vendor_is_configured_from_flags() {
    let deps = || StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
    let key = "gcs.service_account_key='{\"private_key\":\"k\",\"private_key_id\":\"i\",\"client_email\":\"e\",\"disable_oauth\":true}'";
    for flags in [
        &["s3.bucket=b", "s3.region=eu-central-1", "retry.attempt_timeout=5s"][..],
        &["azure.account=a", "azure.container=c", "azure.access_key=a2V5"],
        &["gcs.bucket=b", key],
    ] {
        let loaded = ConfigSources::default()
            .with_flags(flags.iter().copied())
            .unwrap()
            .load::<StorageConfig>()
            .unwrap();
        Store::open(&loaded.value, deps()).unwrap();
        let shown = serde_json::to_string(&loaded.value).unwrap();
        assert!(!shown.contains("a2V5") && !shown.contains("private_key_id"), "{shown}");
    }
    let error =
        ConfigSources::default().with_flags(["s3.buckt=b"]).unwrap().load::<StorageConfig>().unwrap_err();
    assert!(error.to_string().contains("did you mean `s3.bucket`?"), "{error}");
}

#[tokio::test]
async fn probe_tells_a_denied_bucket_from_one_that_does_not_answer() {
    let server = Server::start().await;
    let limit = Duration::from_secs(20);
    let sound = server.config();
    assert_eq!(open(&sound).probe(limit).await, Ok(()));
    assert_eq!(open(&memory()).probe(Duration::ZERO).await, Ok(()), "it is not asked");

    let with = |change: fn(&mut athanor_storage::S3Config)| {
        let mut config = sound.clone();
        config.s3.as_mut().map(change);
        open(&config)
    };
    let foreign = with(|s3| s3.access_key = Some("nobody".to_owned()));
    let denied = foreign.probe(limit).await.unwrap_err();
    assert!(matches!(denied, athanor_storage::ProbeError::Denied { .. }), "{denied}");
    let away = with(|s3| s3.endpoint = Some("http://127.0.0.1:1".to_owned()));
    let unreachable = away.probe(limit).await.unwrap_err();
    assert!(unreachable.to_string().contains("does not respond"), "{unreachable}");
}
