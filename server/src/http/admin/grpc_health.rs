//! gRPC service `grpc.health.v1.Health`: a check returns one response, a watch one now and one per change.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ErrorCode, Status};
use athanor_http_server::decoded_size::BodyPolicy;
use athanor_http_server::encoding::{CallEncoding, STREAM_CONTENT_TYPES};
use athanor_http_server::unary;
use athanor_proto::grpc::health::v1::health_check_response::ServingStatus;
use athanor_proto::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse};
use axum::body::Body;
use axum::http::Request;
use futures::stream::{Stream, unfold};
use tokio::sync::OwnedSemaphorePermit;

use crate::http::routes::state::{HandlerFuture, HttpState};
use crate::lifecycle::readiness::ReadinessChanges;

/// Maximum number of concurrent watches.
pub const MAX_HEALTH_WATCHERS: usize = 1024;

/// Service names with a health status; the empty name is the whole server.
const HEALTH_SERVICES: [&str; 7] = [
    "",
    "push.v1.PusherService",
    "querier.v1.QuerierService",
    "debuginfo.v1alpha1.DebuginfoService",
    "parca.debuginfo.v1alpha1.DebuginfoService",
    "parca.profilestore.v1alpha1.ProfileStoreService",
    "grpc.health.v1.Health",
];

/// Handles `Check`: returns the current status of a service.
pub fn check(hall: &HttpState, service: &str) -> Result<HealthCheckResponse, Status> {
    match status(hall, service) {
        ServingStatus::ServiceUnknown => {
            Err(Status::new(ErrorCode::NotFound, format!("unknown service {service:?}")))
        }
        known => Ok(HealthCheckResponse { status: known.into() }),
    }
}

fn status(hall: &HttpState, service: &str) -> ServingStatus {
    match (HEALTH_SERVICES.contains(&service), hall.services.readiness.now()) {
        (false, _) => ServingStatus::ServiceUnknown,
        (true, Ok(())) => ServingStatus::Serving,
        (true, Err(_)) => ServingStatus::NotServing,
    }
}

/// Handles `Watch`: streams the status of a service and its changes.
pub fn watch(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        let (encoding, parts, body) =
            match unary::check_request(request, CallEncoding::stream_from_headers, STREAM_CONTENT_TYPES) {
                Ok(entered) => entered,
                Err(refused) => return *refused,
            };
        let begun = async {
            let wait = unary::deadline(&parts.headers)?;
            let mut held = hall.door.read(&parts.headers, body, &BodyPolicy::QUERY_BODY).await?;
            let asked: HealthCheckRequest =
                encoding.read(&hall.door, &parts.headers, &mut held, &BodyPolicy::QUERY_BODY).await?;
            let place = Arc::clone(&hall.watchers).try_acquire_owned().map_err(|_| {
                let message =
                    format!("{MAX_HEALTH_WATCHERS} clients watch already, which is the limit; use Check");
                Status::new(ErrorCode::Exhausted, message)
            })?;
            Ok((asked.service, wait, place))
        };
        match begun.await {
            Ok((service, wait, place)) => {
                let watch = HealthWatch::begin(&hall, service, wait, place);
                encoding.encode_stream(messages(watch))
            }
            Err(status) => encoding.error(&status),
        }
    })
}

struct HealthWatch {
    hall: Arc<HttpState>,
    service: String,
    changes: ReadinessChanges,
    told: Option<ServingStatus>,
    /// End of the watch by the client's deadline, on the monotonic clock.
    until: Option<Duration>,
    over: bool,
    _place: OwnedSemaphorePermit,
}

impl HealthWatch {
    fn begin(
        hall: &Arc<HttpState>,
        service: String,
        wait: Option<Duration>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let until = wait.map(|wait| hall.door.clock.monotonic() + wait);
        let changes = hall.services.readiness.changes();
        Self { hall: Arc::clone(hall), service, changes, told: None, until, over: false, _place: place }
    }

    /// Returns the next message: at once if a change is pending, else after the next change.
    async fn next(&mut self) -> Option<Result<HealthCheckResponse, Status>> {
        let hall = Arc::clone(&self.hall);
        while !self.over {
            let now = status(&hall, &self.service);
            if self.told.replace(now) != Some(now) {
                return Some(Ok(HealthCheckResponse { status: now.into() }));
            }
            let clock = &hall.door.clock;
            let left = self.until.map(|until| until.saturating_sub(clock.monotonic()));
            let ended = tokio::select! {
                () = self.changes.next(clock) => None,
                () = hall.services.stop.cancelled() => Some(Status::new(ErrorCode::Unavailable, "server is shutting down")),
                () = clock.sleep(left.unwrap_or(Duration::MAX)), if left.is_some() => {
                    Some(Status::new(ErrorCode::Deadline, "client deadline exceeded"))
                }
            };
            if let Some(status) = ended {
                self.over = true;
                return Some(Err(status));
            }
        }
        None
    }
}

fn messages(watch: HealthWatch) -> impl Stream<Item = Result<HealthCheckResponse, Status>> + Send {
    unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) })
}
