//! The call `Samples`: an Arrow stream as the body, or as messages to clients of gRPC.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use athanor_arrow_format::ARROW_STREAM_TYPE;
use athanor_chassis::{Clock, ErrorCode, Status};
use athanor_http_server::decoded_size::BodyPolicy;
use athanor_http_server::encoding::{CallEncoding, UNARY_CONTENT_TYPES};
use athanor_http_server::partial_header::set_partial_headers;
use athanor_http_server::result_headers::{set_diagnostics_id, set_resolution_header};
use athanor_http_server::unary::{self, RequestIdentity};
use athanor_proto::athanor::v1::{SamplesChunk, SamplesRequest};
use athanor_querier::SampleStream;
use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use axum::routing::any;
use bytes::Bytes;
use futures::stream::{Stream, StreamExt, unfold};

use crate::http::api::diagnostics;
use crate::http::query_caller::{self, QueryCaller};
use crate::http::routes::rpc_method::with_route_metrics;
use crate::http::routes::state::HttpState;

/// Path of the call.
const SAMPLES_PATH: &str = "/athanor.v1.ExploreService/Samples";

/// Adds the call.
pub(in crate::http) fn route(router: Router, hall: &Arc<HttpState>) -> Router {
    let inner = Arc::clone(hall);
    let handler = any(move |request: Request<Body>| async move {
        let entered = unary::check_request(request, CallEncoding::from_headers, UNARY_CONTENT_TYPES);
        let (encoding, parts, body) = match entered {
            Ok(entered) => entered,
            Err(refused) => return *refused,
        };
        let mut response = match identify(&inner, encoding, &parts.headers) {
            Ok((caller, wait)) => {
                let call = SamplesCall { hall: Arc::clone(&inner), encoding, parts, caller, wait };
                call.respond(body).await
            }
            Err(status) => encoding.error(&status),
        };
        encoding.advertise(&mut response);
        response
    });
    router.route(SAMPLES_PATH, with_route_metrics(hall, SAMPLES_PATH, handler))
}

fn identify(
    hall: &HttpState,
    encoding: CallEncoding,
    headers: &HeaderMap,
) -> Result<(QueryCaller, Option<Duration>), Status> {
    let wait = unary::deadline(headers)?;
    encoding.check(headers)?;
    let caller = query_caller::parse_reader(headers, hall.door.multitenancy)?;
    let caller = QueryCaller(diagnostics::record_if_requested(hall, caller, headers, SAMPLES_PATH));
    if let Some(wait) = wait {
        caller.set_deadline(&hall.door.clock, wait);
    }
    Ok((caller, wait))
}

/// Call whose body was not read yet.
struct SamplesCall {
    hall: Arc<HttpState>,
    encoding: CallEncoding,
    parts: Parts,
    caller: QueryCaller,
    wait: Option<Duration>,
}

impl SamplesCall {
    async fn respond(self, body: Body) -> Response<Body> {
        let clock = self.hall.door.clock.clone();
        let until = self.wait.map(|wait| clock.monotonic() + wait);
        let started = within(&clock, until, self.start(body)).await;
        let record = self.caller.finish_request(started.as_ref().err());
        let mut response = match started {
            Ok(stream) => {
                let chunks = chunks(ChunkSource { stream, clock, until });
                let mut response = self.encode(chunks);
                set_partial_headers(&mut response, &self.caller.warnings());
                set_resolution_header(&mut response, RequestIdentity::resolution(&self.caller));
                response
            }
            Err(status) => self.encoding.error(&status),
        };
        set_diagnostics_id(&mut response, record);
        response
    }

    async fn start(&self, body: Body) -> Result<SampleStream, Status> {
        let door = &self.hall.door;
        let door = self.caller.payer().map_or_else(|| door.clone(), |tenant| door.for_tenant(tenant));
        let headers = &self.parts.headers;
        let mut held = door.read(headers, body, &BodyPolicy::QUERY_BODY).await?;
        let request: SamplesRequest =
            self.encoding.read(&door, headers, &mut held, &BodyPolicy::QUERY_BODY).await?;
        self.hall.services.querier()?.samples(&self.caller, request).await
    }

    fn encode(&self, chunks: impl Stream<Item = Result<Bytes, Status>> + Send + 'static) -> Response<Body> {
        if CallEncoding::stream_from_headers(&self.parts.headers).is_some() {
            let messages = chunks.map(|chunk| chunk.map(|arrow| SamplesChunk { arrow }));
            return self.encoding.encode_stream(messages);
        }
        // A connection that ends without the last chunk tells the client that rows are missing.
        let body = chunks.map(|chunk| chunk.map_err(|status| io::Error::other(status.message)));
        let mut response = Response::new(Body::from_stream(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(ARROW_STREAM_TYPE));
        response
    }
}

/// Stream of samples with the deadline of its client.
struct ChunkSource {
    stream: SampleStream,
    clock: Clock,
    until: Option<Duration>,
}

/// Returns the chunks of a stream. Each is read when the transport takes it.
fn chunks(source: ChunkSource) -> impl Stream<Item = Result<Bytes, Status>> + Send {
    unfold(Some(source), |source| async move {
        let mut source = source?;
        let clock = source.clock.clone();
        match within(&clock, source.until, source.stream.next_bytes()).await {
            Ok(None) => None,
            Ok(Some(bytes)) => Some((Ok(bytes), Some(source))),
            Err(status) => {
                tracing::debug!(error = %status.message, "ended a stream of samples early");
                Some((Err(status), None))
            }
        }
    })
}

/// Returns the result of a future before a time on the monotonic clock, if one is given.
async fn within<T>(
    clock: &Clock,
    until: Option<Duration>,
    future: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let Some(until) = until else { return future.await };
    let wait = until.saturating_sub(clock.monotonic());
    let late = |elapsed: athanor_chassis::time::clock::TimeoutElapsed| {
        Err(Status::new(ErrorCode::Deadline, elapsed.to_string()))
    };
    clock.timeout(wait, future).await.unwrap_or_else(late)
}
