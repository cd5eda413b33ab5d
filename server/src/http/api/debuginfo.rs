//! Debug information: RPCs of Parca and of Pyroscope. The two that upload a file process it as a stream.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::time::clock::TimeoutElapsed;
use athanor_chassis::{ByteSize, ErrorCode, Status, TenantId};
use athanor_http_server::RequestBudget;
use athanor_http_server::body::{BUDGET_STEP_BYTES, BufferedBody};
use athanor_http_server::encoding::{CallEncoding, STREAM_CONTENT_TYPES, json_error_with};
use athanor_http_server::pace::PacedBody;
use athanor_http_server::tenant_header;
use athanor_http_server::unary;
use athanor_symbolizer::{DebuginfoService, UPLOAD_PART_BYTES};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::routing::{any, post};
use bytes::Bytes;
use futures::stream::{Stream, unfold};
use parking_lot::Mutex;

use crate::http::api::parca::with_gateway;
use crate::http::routes::rpc_method::{CallAuthorizer, call, with_route_metrics, writer};
use crate::http::routes::state::{HandlerFuture, HttpState};

/// Maximum size of a message of an upload. Agents send chunks of one mebibyte.
const MAX_MESSAGE_SIZE: ByteSize = ByteSize::mib(5);
/// Memory of an upload: the pending part and the last message.
const MAX_UPLOAD_MEMORY_BYTES: u64 = UPLOAD_PART_BYTES as u64 + MAX_MESSAGE_SIZE.get();
/// HTTP status of a file upload that is not pending.
const PRECONDITION_FAILED: u16 = 412;

/// Limits of reading a rejected file: bytes and time. Without that, an HTTP/1.1 client finds its connection
/// broken and never receives the error.
const MAX_DISCARDED_BYTES: usize = 16 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Adds the routes of debug information.
pub(in crate::http) fn routes(router: Router, hall: &Arc<HttpState>) -> Router {
    let router = parca(router, hall);
    let file = {
        let hall = Arc::clone(hall);
        move |request: Request<Body>| upload_file(Arc::clone(&hall), request)
    };
    let path = "/debuginfo.v1alpha1.DebuginfoService/Upload/{gnu_build_id}";
    let mut router = router.route(path, with_route_metrics(hall, path, post(file)));
    macro_rules! calls {
        ($($path:literal => $method:ident),* $(,)?) => {
            $(router = call(router, hall, $path, &CallAuthorizer::for_query(writer), |hall: Arc<HttpState>, tenant: TenantId, request| async move {
                hall.services.debuginfo()?.$method(&tenant, request).await
            });)*
        };
    }
    calls!(
        "/debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload" => should_initiate_upload,
        "/debuginfo.v1alpha1.DebuginfoService/UploadFinished" => upload_finished,
        "/debuginfo.v1alpha1.DebuginfoService/ListDebuginfo" => list_debuginfo,
        "/debuginfo.v1alpha1.DebuginfoService/DeleteDebuginfo" => delete_debuginfo,
    );
    router
}

/// Adds the RPCs of Parca.
fn parca(router: Router, hall: &Arc<HttpState>) -> Router {
    let stream = {
        let hall = Arc::clone(hall);
        move |request: Request<Body>| upload(Arc::clone(&hall), request)
    };
    let path = "/parca.debuginfo.v1alpha1.DebuginfoService/Upload";
    let mut router = router.route(path, with_route_metrics(hall, path, any(stream)));
    macro_rules! calls {
        ($($path:literal, $plain:literal => $method:ident),* $(,)?) => {
            $(router = with_gateway(router, hall, [$path, $plain], &CallAuthorizer::for_query(writer), |hall: Arc<HttpState>, tenant: TenantId, request| async move {
                hall.services.debuginfo()?.$method(&tenant, request).await
            });)*
        };
    }
    calls!(
        "/parca.debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload", "/shouldinitiateupload" => should_initiate,
        "/parca.debuginfo.v1alpha1.DebuginfoService/InitiateUpload", "/initiateupload" => initiate,
        "/parca.debuginfo.v1alpha1.DebuginfoService/MarkUploadFinished", "/markuploadfinished" => mark_finished,
    );
    router
}

/// Handles the upload RPC, which has a stream of request messages.
fn upload(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        let (encoding, parts, body) =
            match unary::check_request(request, CallEncoding::stream_from_headers, STREAM_CONTENT_TYPES) {
                Ok(entered) => entered,
                Err(refused) => return *refused,
            };
        let answered = async {
            let wait = unary::deadline(&parts.headers)?;
            let tenant = tenant_header::parse_writer(&parts.headers, hall.door.multitenancy)?;
            let debuginfo = hall.services.debuginfo()?;
            let memory = UploadMemory::new(hall.door.for_tenant(&tenant), debuginfo);
            let charged = Arc::clone(&memory);
            let charge = Box::new(move |bytes| charged.grow(bytes));
            let body = PacedBody::new(body, hall.door.clock.clone());
            let messages = encoding.decode_messages(&parts.headers, body, MAX_MESSAGE_SIZE, charge)?;
            let taken = debuginfo.upload(&tenant, messages);
            let response = in_time(&hall, debuginfo, &tenant, wait, taken).await?;
            drop(memory);
            encoding.encode_response(&hall.door, &parts.headers, response).await
        };
        answered.await.unwrap_or_else(|status: Status| encoding.error(&status))
    })
}

/// Handles a file upload as the body of a plain request.
fn upload_file(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        let (parts, body) = request.into_parts();
        let mut body = PacedBody::new(body, hall.door.clock.clone());
        let answered = async {
            let wait = unary::deadline(&parts.headers)?;
            let tenant = tenant_header::parse_writer(&parts.headers, hall.door.multitenancy)?;
            let debuginfo = hall.services.debuginfo()?;
            let id = parts.uri.path().rsplit('/').next().unwrap_or_default();
            let memory = UploadMemory::new(hall.door.for_tenant(&tenant), debuginfo);
            let taken = debuginfo.upload_file(&tenant, id, pieces(&mut body, &memory));
            in_time(&hall, debuginfo, &tenant, wait, taken).await
        };
        match answered.await {
            Ok(()) => Response::new(Body::empty()),
            Err(status) => {
                let _ = hall.door.clock.timeout(DISCARD_TIMEOUT, throw_away(&mut body)).await;
                let is_unwanted = status.code == ErrorCode::Precondition;
                let http = if is_unwanted { PRECONDITION_FAILED } else { status.code.http_status() };
                json_error_with(&status, status.code.connect_code(), http)
            }
        }
    })
}

/// Memory of an upload, reserved for received bytes: a client that sends nothing holds none.
struct UploadMemory {
    door: RequestBudget,
    debuginfo: DebuginfoService,
    grown: Mutex<UploadMemoryState>,
}

#[derive(Default)]
struct UploadMemoryState {
    held: BufferedBody,
    came: u64,
    taken: u64,
}

impl UploadMemory {
    fn new(door: RequestBudget, debuginfo: &DebuginfoService) -> Arc<Self> {
        Arc::new(Self { door, debuginfo: debuginfo.clone(), grown: Mutex::default() })
    }

    /// Reserves memory for more bytes. An upload holds at most [`MAX_UPLOAD_MEMORY_BYTES`].
    fn grow(&self, bytes: usize) -> Result<(), Status> {
        let mut grown = self.grown.lock();
        grown.came = (grown.came + bytes as u64).min(MAX_UPLOAD_MEMORY_BYTES);
        if grown.came > grown.taken {
            let more = (grown.came - grown.taken).next_multiple_of(BUDGET_STEP_BYTES);
            let entered = self.door.reserve_memory(&mut grown.held, more);
            entered.inspect_err(|status| self.debuginfo.record_refusal(status))?;
            grown.taken += more;
        }
        Ok(())
    }
}

/// Runs an upload within its time limit.
async fn in_time<T>(
    hall: &HttpState,
    debuginfo: &DebuginfoService,
    tenant: &TenantId,
    wait: Option<Duration>,
    taken: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let longest = debuginfo.max_upload_duration(tenant);
    let wait = wait.map_or(longest, |wait| wait.min(longest));
    let late = |elapsed: TimeoutElapsed| {
        let message = format!(
            "debug information upload failed: {elapsed}, by the client's deadline or limits.debuginfo_upload_timeout; use a \
             faster connection or raise the limit"
        );
        let status = Status::new(ErrorCode::Deadline, message).with_reason("debuginfo_too_slow");
        debuginfo.record_refusal(&status);
        Err(status)
    };
    hall.door.clock.timeout(wait, taken).await.unwrap_or_else(late)
}

/// Reads and discards the rest of a body, up to [`MAX_DISCARDED_BYTES`].
async fn throw_away(body: &mut PacedBody) {
    let mut length = 0;
    while let Some(Ok(piece)) = body.next_piece().await
        && length < MAX_DISCARDED_BYTES
    {
        length += piece.len();
    }
}

/// Returns the chunks of a body as a stream. An error is the last item.
fn pieces<'a>(
    body: &'a mut PacedBody,
    memory: &'a UploadMemory,
) -> impl Stream<Item = Result<Bytes, Status>> + Send + 'a {
    unfold(Some(body), move |body| async move {
        let body = body?;
        match body.next_piece().await?.and_then(|piece| memory.grow(piece.len()).map(|()| piece)) {
            Ok(piece) => Some((Ok(piece), Some(body))),
            Err(status) => Some((Err(status), None)),
        }
    })
}
