//! Receiver: the routes of the local port, and what all of them share.

use std::future::Future;
use std::sync::Arc;

use athanor_chassis::observability::metric_family::{MetricCollector, metric_collector};
use athanor_chassis::{ByteSize, Clock, ComputePool, ErrorCode, Random, Status, TaskGroup};
use athanor_http_server::encoding::{RefusalCode, announce_trailers, json_error_with};
use athanor_http_server::unary::{CallOutput, handle_call};
use athanor_http_server::{ConnectionDeps, HttpListener, RequestBudget, RequestLimiter};
use athanor_proto::push::v1::{PushRequest, PushResponse};
use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use axum::routing::{any, post};
use parking_lot::RwLock;
use prost::Message;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::ingest::{IngestRequest, ingest_upload};
use super::metrics::{RECEIVE_METRICS, ReceiveCounters, ReceiveForm, ReceiveOutcome, ReceiveStats};
use super::otlp::{GRPC_EXPORT_PATH, HTTP_EXPORT_PATH, export_over_grpc, export_over_http};
use super::push::push_uploads;
use super::received_identity::IdentitySource;
use super::receiver_state::{ReceiverState, SenderContext, peer_address, profiles_policy};
use super::sender_labels::PeerLabels;
use crate::config::ReceiveSettings;
use crate::upload::UploadSink;

/// Memory of all bodies together. It admits one body of the maximum size with its decoded message.
const MAX_IN_FLIGHT_BYTES: ByteSize = ByteSize::mib(256);
const MAX_CONNECTIONS: usize = 1000;
const MAX_REQUESTS: u32 = 1000;
const PUSH_PATH: &str = "/push.v1.PusherService/Push";
const INGEST_PATHS: [&str; 2] = ["/ingest", "/pyroscope/ingest"];
const NOT_FOUND_MESSAGE: &str = "path not found: send profiles to /push.v1.PusherService/Push, /ingest or \
/v1development/profiles\n";

/// Dependencies of a receiver.
pub struct ReceiverParams {
    /// Settings of the section `receive`.
    pub settings: ReceiveSettings,
    /// Destination of uploads.
    pub sink: Arc<dyn UploadSink>,
    /// Labels of senders.
    pub peers: Arc<dyn PeerLabels>,
    /// Clock for times of profiles and timeouts.
    pub clock: Clock,
    /// Source of ids.
    pub random: Random,
    /// Pool for work on large bodies.
    pub compute: ComputePool,
}

/// Receiver of pushed profiles. Cheap to clone.
#[derive(Clone)]
pub struct ProfileReceiver {
    state: Arc<ReceiverState>,
}

impl ProfileReceiver {
    /// Creates a receiver.
    pub fn new(params: ReceiverParams) -> Self {
        let ReceiverParams { settings, sink, peers, clock, random, compute } = params;
        let state = ReceiverState {
            door: RequestBudget::new(true, MAX_IN_FLIGHT_BYTES, clock.clone(), compute),
            identities: IdentitySource::new(clock, random),
            settings: RwLock::new(Arc::new(settings)),
            sink,
            peers,
            counters: ReceiveCounters::new(),
        };
        Self { state: Arc::new(state) }
    }

    /// Replaces the settings. The address of a running listener stays.
    pub fn set_settings(&self, settings: ReceiveSettings) {
        *self.state.settings.write() = Arc::new(settings);
    }

    /// Returns the counters.
    pub fn stats(&self) -> ReceiveStats {
        self.state.counters.snapshot(self.state.identities.given())
    }

    /// Serves the routes on a bound port until `stop`. Open requests may finish until `abort`.
    pub async fn serve(
        &self,
        listener: HttpListener,
        tasks: TaskGroup,
        stop: CancellationToken,
        abort: CancellationToken,
    ) {
        let connections = ConnectionDeps {
            tasks,
            clock: self.state.door.clock.clone(),
            enough: abort,
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            requests: RequestLimiter::for_clients(MAX_REQUESTS),
        };
        listener.serve(self.router(), &connections, stop).await;
    }

    /// Returns the routes.
    pub fn router(&self) -> Router {
        let mut router = Router::new();
        let state = Arc::clone(&self.state);
        let push = move |request| counted(Arc::clone(&state), ReceiveForm::Push, request, push);
        router = router.route(PUSH_PATH, any(push));
        for path in INGEST_PATHS {
            let state = Arc::clone(&self.state);
            let ingest = move |request| counted(Arc::clone(&state), ReceiveForm::Ingest, request, ingest);
            router = router.route(path, post(ingest));
        }
        let state = Arc::clone(&self.state);
        let over_http =
            move |request| counted(Arc::clone(&state), ReceiveForm::Otlp, request, export_over_http);
        router = router.route(HTTP_EXPORT_PATH, post(over_http));
        let state = Arc::clone(&self.state);
        let over_grpc =
            move |request| counted(Arc::clone(&state), ReceiveForm::Otlp, request, export_over_grpc);
        router = router.route(GRPC_EXPORT_PATH, any(over_grpc));
        router.fallback(|| async { (StatusCode::NOT_FOUND, NOT_FOUND_MESSAGE) })
    }
}

/// Returns the collector of [`RECEIVE_METRICS`].
pub fn receive_collector(receiver: ProfileReceiver) -> MetricCollector {
    metric_collector(RECEIVE_METRICS, move || Some(receiver.stats()))
}

/// Handles a request and counts its outcome.
async fn counted<F, Fut>(
    state: Arc<ReceiverState>,
    form: ReceiveForm,
    request: Request<Body>,
    handle: F,
) -> Response<Body>
where
    F: FnOnce(Arc<ReceiverState>, Request<Body>) -> Fut,
    Fut: Future<Output = Response<Body>>,
{
    let started = state.door.clock.monotonic();
    let version = request.version();
    let mut response = handle(Arc::clone(&state), request).await;
    announce_trailers(&mut response, version);
    let refused = response.extensions().get::<RefusalCode>();
    let status = refused.map_or(response.status().as_u16(), |refused| refused.0.http_status());
    let duration = state.door.clock.monotonic().saturating_sub(started);
    state.counters.record_request(form, ReceiveOutcome::from_http_status(status), duration);
    response
}

/// `push.v1.PusherService/Push` in all protocols.
async fn push(state: Arc<ReceiverState>, request: Request<Body>) -> Response<Body> {
    let peer = peer_address(&request);
    let method = |sender: SenderContext, message: PushRequest| async {
        let identities = state.identities.clone();
        let now = state.door.clock.wall();
        let bytes = message.encoded_len();
        let uploads = state.run(bytes, move || push_uploads(message, &sender, &identities, now)).await?;
        state.store(ReceiveForm::Push, uploads).await?;
        Ok(CallOutput::Message(PushResponse {}))
    };
    let policy = |_: &SenderContext| profiles_policy();
    handle_call(&state.door, request, |headers| state.sender(headers, peer), policy, method).await
}

/// `POST /ingest`.
async fn ingest(state: Arc<ReceiverState>, request: Request<Body>) -> Response<Body> {
    let peer = peer_address(&request);
    let (parts, body) = request.into_parts();
    let stored = async {
        let sender = state.sender(&parts.headers, peer)?;
        let mut held = state.door.read(&parts.headers, body, &profiles_policy()).await?;
        let received = IngestRequest {
            query: parts.uri.query().unwrap_or_default().to_owned(),
            content_type: header_text(&parts.headers, &CONTENT_TYPE),
            content_encoding: header_text(&parts.headers, &CONTENT_ENCODING),
            body: std::mem::take(&mut held.bytes),
        };
        let identities = state.identities.clone();
        let now = state.door.clock.wall();
        let made = state.run(received.body.len(), move || ingest_upload(received, &sender, &identities, now));
        // The memory of the body stays reserved until the upload is stored.
        state.store(ReceiveForm::Ingest, vec![made.await?]).await
    };
    let stored: Result<(), Status> = stored.await;
    match stored {
        Ok(()) => Response::new(Body::empty()),
        Err(status) => {
            // SDKs retry on 408, which servers send for a body that arrived too slowly.
            let http = if status.code == ErrorCode::Deadline { 408 } else { status.code.http_status() };
            json_error_with(&status, status.code.connect_code(), http)
        }
    }
}

fn header_text(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
