//! Administration over a Unix socket in the data folder, which only the server's user can open.
//!
//! The protocol is HTTP: `curl --unix-socket DIR/admin.sock -X POST http://athanor/flush`. Reads are GET,
//! commands are POST.

mod cluster;
mod compaction;
mod quarantine;
mod ranking;
mod retention;
mod settings;
mod tenants;
mod uploads;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, Status, TaskGroup};
use athanor_compactor::RetentionConfig;
use athanor_consensus::RaftGroup;
use athanor_http_server::encoding::json_error;
use athanor_http_server::{LogThrottle, accept_with_retry};
use athanor_ingester::{FlushSummary, Ingester};
use athanor_metastore::CatalogStateMachine;
use athanor_querier::Querier;
use athanor_storage::Store;
use axum::Router;
use axum::body::Body;
use axum::http::Response;
use axum::routing::post;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::membership::cluster_overview::ClusterOverview;

/// File name of the socket in the data folder.
pub const ADMIN_SOCKET_FILE: &str = "admin.sock";
/// Timeout of a flush on request.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a response that the client reads.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;

/// Parts of the node that administration commands act on.
pub struct AdminState {
    /// Ingester with the shards of this node.
    pub ingester: Option<Arc<Ingester>>,
    /// Metastore client and view of the cluster.
    pub overview: ClusterOverview,
    /// Querier with the quarantine that commands clear.
    pub querier: Option<Querier>,
    /// Settings of retention.
    pub retention: RetentionConfig,
    /// Raft group of the catalog, if this node votes.
    pub facts: Option<RaftGroup<CatalogStateMachine>>,
    /// Bucket with the uploads.
    pub store: Store,
}

/// Binds the socket and serves requests until the tasks end. A socket of an earlier process is replaced.
pub fn serve(data: &Path, state: AdminState, clock: Clock, tasks: &TaskGroup) -> io::Result<()> {
    let path = data.join(ADMIN_SOCKET_FILE);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let router = {
        let clock = clock.clone();
        let ingester = state.ingester.clone();
        let flush = post(move || flush(ingester.clone(), clock.clone()));
        let state = Arc::new(state);
        let routes = quarantine::routes(Router::new().route("/flush", flush), &state);
        let routes = retention::routes(cluster::routes(routes, &state), &state);
        tenants::routes(compaction::routes(routes, &state), &state)
    };
    let token = tasks.shutdown_token();
    let inner = tasks.clone();
    let listening = async move {
        let mut refused = LogThrottle::default();
        loop {
            let accept = |context: &mut Context<'_>| socket.poll_accept(context);
            let (stream, _) = tokio::select! {
                () = token.cancelled() => break,
                accepted = accept_with_retry(&clock, &mut refused, accept) => accepted,
            };
            let service = TowerToHyperService::new(router.clone());
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // If the task limit is reached, the connection is closed.
            let _ = inner.spawn("administration", async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "connection ended early");
                }
            });
        }
    };
    tasks.spawn("administration socket", listening).map(drop).map_err(io::Error::other)
}

async fn flush(ingester: Option<Arc<Ingester>>, clock: Clock) -> Response<Body> {
    let flushed = match ingester {
        Some(ingester) => ingester.flush_all(&clock, FLUSH_TIMEOUT).await,
        None => Err(Status::new(
            ErrorCode::Unimplemented,
            "this node is not an ingester; run the command on an ingester",
        )),
    };
    match flushed {
        Ok(FlushSummary { blocks, samples, bytes }) => {
            let summary = json!({ "blocks": blocks, "samples": samples, "bytes": bytes });
            Response::new(Body::from(summary.to_string()))
        }
        Err(status) => json_error(&status),
    }
}

/// Sends a command to a running server on this machine and returns the response body.
pub async fn send_admin_request(data: &Path, path: &str) -> Result<String, Status> {
    exchange(data, "POST", path).await
}

/// Reads a resource of a running server on this machine and returns the response body.
pub async fn read_admin_resource(data: &Path, path: &str) -> Result<String, Status> {
    exchange(data, "GET", path).await
}

async fn exchange(data: &Path, method: &str, path: &str) -> Result<String, Status> {
    let socket = data.join(ADMIN_SOCKET_FILE);
    let failed = |error: io::Error| {
        let message = format!("{}: {error}; check that a server runs on this data folder", socket.display());
        Status::new(ErrorCode::Unavailable, message)
    };
    let mut stream = UnixStream::connect(&socket).await.map_err(failed)?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: athanor\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut response = String::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_string(&mut response).await.map_err(failed)?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    if head.starts_with("HTTP/1.1 200") {
        return Ok(body.to_owned());
    }
    Err(Status::new(ErrorCode::Unavailable, format!("the server rejected the request: {body}")))
}
