//! An S3 server in this process, and a hand that makes it misbehave.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;

use athanor_chassis::config::SecretString;
use athanor_chassis::{Clock, TaskGroup};
use athanor_storage::{S3Config, StorageConfig, StorageRetryConfig};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

const BUCKET: &str = "bucket";

/// What happens to one request.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// It is not carried out, and answered with that status.
    Answer(u16),
    /// It is carried out, and the connection breaks before the answer.
    LoseTheAnswer,
    /// It is not carried out and never answered.
    Hold,
}

/// The server; it ends with the runtime of its test.
pub struct Server {
    endpoint: String,
    hand: Arc<Hand>,
    _folder: TempDir,
}

struct Hand {
    inner: S3Service,
    /// For the next requests, one each; after them all goes well.
    faults: Mutex<VecDeque<Option<Fault>>>,
    seen: watch::Sender<usize>,
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "a foreign server")]
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("access", "secret"));
        let hand = Hand { inner: builder.build(), faults: Mutex::default(), seen: watch::Sender::new(0) };
        let hand = Arc::new(hand);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let tasks = TaskGroup::new(Clock::system(), 1000);
        let accepting = accept(listener, Arc::clone(&hand), tasks.clone());
        tasks.spawn("accept", accepting).unwrap();
        Self { endpoint, hand, _folder: folder }
    }

    /// How to reach it, with hardly a wait between attempts.
    pub fn config(&self) -> StorageConfig {
        let s3 = S3Config {
            bucket: BUCKET.to_owned(),
            endpoint: Some(self.endpoint.clone()),
            region: Some("us-east-1".to_owned()),
            access_key: Some("access".to_owned()),
            secret_key: Some(SecretString::new("secret")),
            allow_http: true,
        };
        let backoff = std::time::Duration::from_millis(1);
        let retry =
            StorageRetryConfig { max_attempts: 4, min_backoff: backoff, ..StorageRetryConfig::default() };
        StorageConfig { s3: Some(s3), retry, ..StorageConfig::default() }
    }

    /// What happens to the next requests.
    pub fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.hand.faults.lock().extend(faults.into_iter().map(Some));
    }

    /// Lets some requests pass, and then one meets a fault.
    pub fn plan_at(&self, passing: usize, fault: Fault) {
        let all = std::iter::repeat_n(None, passing).chain([Some(fault)]);
        self.hand.faults.lock().extend(all);
    }

    /// How many requests have come.
    pub fn seen(&self) -> usize {
        *self.hand.seen.borrow()
    }

    /// Waits until so many requests have come.
    pub async fn until_seen(&self, count: usize) {
        self.hand.seen.subscribe().wait_for(|seen| *seen >= count).await.unwrap();
    }
}

async fn accept(listener: TcpListener, hand: Arc<Hand>, tasks: TaskGroup) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let hand = Arc::clone(&hand);
        let service = service_fn(move |request| answer(Arc::clone(&hand), request));
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let served = async move {
            // A broken connection is what some tests ask for.
            let _ = connection.await;
        };
        tasks.spawn("connection", served).unwrap();
    }
}

async fn answer(
    hand: Arc<Hand>,
    request: Request<Incoming>,
) -> Result<Response<s3s::Body>, Box<dyn Error + Send + Sync>> {
    hand.seen.send_modify(|seen| *seen += 1);
    let fault = hand.faults.lock().pop_front().flatten();
    match fault {
        Some(Fault::Answer(status)) => {
            return Ok(Response::builder().status(status).body(s3s::Body::empty())?);
        }
        Some(Fault::Hold) => std::future::pending().await,
        Some(Fault::LoseTheAnswer) | None => {}
    }
    let response =
        hand.inner.call(request.map(s3s::Body::from)).await.map_err(|error| format!("{error:?}"))?;
    match fault {
        Some(_) => Err("the answer is lost".into()),
        None => Ok(response),
    }
}
