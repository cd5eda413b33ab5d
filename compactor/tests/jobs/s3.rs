//! Backlog of flushed blocks in a bucket of a real S3 server.

use std::time::Duration;

use athanor_chassis::Random;
use athanor_chassis::config::SecretString;
use athanor_compactor::JobOutcome;
use athanor_storage::{S3Config, StorageConfig, Store, StoreDeps};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::world::{Row, SECOND, START, World, model, row};

const BUCKET: &str = "bucket";
/// Flushed blocks of the backlog: one each five minutes of four hours.
const BLOCKS: i64 = 48;

/// Starts a server of a folder. It ends with the runtime of the test.
#[expect(clippy::disallowed_methods, reason = "a foreign server")]
async fn start_s3_server(folder: &TempDir) -> StorageConfig {
    std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder.path()).unwrap());
    builder.set_auth(SimpleAuth::from_single("access", "secret"));
    let service = builder.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service.clone();
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    let s3 = S3Config {
        bucket: BUCKET.to_owned(),
        endpoint: Some(endpoint),
        region: Some("us-east-1".to_owned()),
        access_key: Some("access".to_owned()),
        secret_key: Some(SecretString::new("secret")),
        allow_http: true,
    };
    StorageConfig { s3: Some(s3), ..StorageConfig::default() }
}

/// Rows of one flush: of two tenants, some of them late, some of them a copy of the flush before.
fn flush_rows(number: i64) -> Vec<Row> {
    let time = |age_minutes: i64| (START + number * 300 - age_minutes * 60) * SECOND;
    let id = |place: u64| number as u64 * 10 + place;
    let mut rows: Vec<Row> = (0..4).map(|place| row("acme", "web", time(place), id(place as u64))).collect();
    rows.push(row("globex", "db", time(1), id(4)));
    rows.push(row("acme", "db", time(90), id(5)));
    if number > 0 {
        let before = (START + (number - 1) * 300) * SECOND;
        rows.push(row("acme", "web", before, (number as u64 - 1) * 10));
    }
    rows
}

#[tokio::test]
async fn backlog_on_s3_server_is_merged_without_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    let config = start_s3_server(&folder).await;
    let mut world = World::new().await;
    let deps = StoreDeps { clock: world.clock.clone(), random: Random::from_seed(3) };
    world.store = Store::open(&config, deps).unwrap();
    world.plan_by_catalog();
    let flushes: Vec<Vec<Row>> = (0..BLOCKS).map(flush_rows).collect();
    for rows in &flushes {
        world.hand.advance(Duration::from_secs(300));
        world.flush(rows).await;
    }
    assert_eq!(world.listed().await.len(), flushes.len());
    world.hand.advance(Duration::from_secs(3 * 86_400));
    let outcomes = world.compact().await;
    assert!(outcomes.iter().all(|outcome| *outcome == JobOutcome::Finished), "{outcomes:?}");
    let expected = model(&flushes.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(world.rows().await, expected);
    let levels: Vec<u8> = world.listed().await.iter().map(|block| block.level).collect();
    assert!(levels.iter().all(|level| *level >= 2) && levels.len() < flushes.len() / 4, "{levels:?}");
}
