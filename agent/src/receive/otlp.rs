//! OpenTelemetry exports over HTTP and gRPC, as protobuf and as JSON.
//!
//! JSON is converted to protobuf first. Fields that this version does not know are dropped by the conversion.

use std::sync::Arc;

use athanor_chassis::{ErrorCode, Status, Timestamp};
use athanor_http_server::body::{BufferedBody, ContentEncoding};
use athanor_http_server::encoding::{CallEncoding, UNARY_CONTENT_TYPES, json_error};
use athanor_http_server::unary::{ACCEPT_POST_HEADER, check_request, deadline};
use athanor_profile::formats::otlp::from_json;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;

use super::failure::ReceiveError;
use super::metrics::ReceiveForm;
use super::otlp_rewrite::rewrite_export;
use super::received_identity::IdentitySource;
use super::receiver_state::{MAX_BODY_BYTES, ReceiverState, SenderContext, export_policy, peer_address};
use crate::upload::{Upload, UploadOrigin, UploadRoute};

/// Path of exports over HTTP.
pub(super) const HTTP_EXPORT_PATH: &str = "/v1development/profiles";
/// Path of exports over gRPC.
pub(super) const GRPC_EXPORT_PATH: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
const PROTOBUF_CONTENT_TYPES: [&str; 2] = ["application/x-protobuf", "application/protobuf"];
const JSON_CONTENT_TYPE: &str = "application/json";
const ACCEPTED_CONTENT_TYPES: HeaderValue =
    HeaderValue::from_static("application/x-protobuf, application/protobuf, application/json");

/// Content type of an export over HTTP, which its response uses as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExportType {
    content_type: &'static str,
    is_json: bool,
}

/// Returns the uploads of an export, one per tenant.
pub(super) fn export_uploads(
    body: Bytes,
    is_json: bool,
    sender: &SenderContext,
    identities: &IdentitySource,
    now: Timestamp,
) -> Result<Vec<Upload>, ReceiveError> {
    let body = if is_json { from_json(&body, MAX_BODY_BYTES.as_usize())?.into() } else { body };
    let exports = rewrite_export(&body, sender, identities)?;
    let uploads = exports.into_iter().map(|export| Upload {
        tenant: export.tenant,
        route: UploadRoute::Otlp,
        body: export.body,
        profiles: export.profiles.max(1),
        order: export.order,
        origin: UploadOrigin::Received,
        time: now,
    });
    Ok(uploads.collect())
}

/// `POST /v1development/profiles`.
pub(super) async fn export_over_http(state: Arc<ReceiverState>, request: Request<Body>) -> Response<Body> {
    let peer = peer_address(&request);
    let (parts, body) = request.into_parts();
    let Some(export_type) = ExportType::from_headers(&parts.headers) else {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        response.headers_mut().insert(ACCEPT_POST_HEADER, ACCEPTED_CONTENT_TYPES);
        return response;
    };
    let sender = match state.sender(&parts.headers, peer) {
        Ok(sender) => sender,
        Err(status) => return json_error(&status),
    };
    let stored = async {
        let encoding = ContentEncoding::from_headers(&parts.headers)?;
        let policy = export_policy();
        let mut held = state.door.read(&parts.headers, body, &policy).await?;
        if let Some(encoding) = encoding {
            state.door.decompress(&mut held, &policy, encoding).await?;
        }
        let weight = policy.weigh(&held.bytes, export_type.is_json, usize::MAX)?.unwrap_or_default();
        state.door.reserve_memory(&mut held, weight as u64)?;
        store_export(&state, sender, held, export_type.is_json).await
    };
    let stored = stored.await;
    let body = match &stored {
        Ok(()) => empty_response(export_type.is_json),
        Err(status) => export_type.encode_error(status),
    };
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(export_type.content_type));
    if let Err(status) = stored {
        let http = StatusCode::from_u16(status.code.http_status());
        *response.status_mut() = http.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(wait) = status.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
    }
    response
}

/// Export over gRPC. Connect and gRPC-Web use the same route.
pub(super) async fn export_over_grpc(state: Arc<ReceiverState>, request: Request<Body>) -> Response<Body> {
    let peer = peer_address(&request);
    let (encoding, parts, body) =
        match check_request(request, CallEncoding::from_headers, UNARY_CONTENT_TYPES) {
            Ok(entered) => entered,
            Err(refused) => return *refused,
        };
    let called = async {
        let timeout = deadline(&parts.headers)?;
        encoding.check(&parts.headers)?;
        let stored = async {
            let sender = state.sender(&parts.headers, peer)?;
            let policy = export_policy();
            let mut held = state.door.read(&parts.headers, body, &policy).await?;
            encoding.unwrap_message(&state.door, &parts.headers, &mut held, &policy).await?;
            store_export(&state, sender, held, encoding.is_json()).await
        };
        match timeout {
            None => stored.await,
            Some(timeout) => match state.door.clock.timeout(timeout, stored).await {
                Ok(stored) => stored,
                Err(elapsed) => Err(Status::new(ErrorCode::Deadline, elapsed.to_string())),
            },
        }?;
        let message = Bytes::from(empty_response(encoding.is_json()));
        encoding.encode_response_bytes(&state.door, &parts.headers, message).await
    };
    let mut response = called.await.unwrap_or_else(|status| encoding.error(&retryable_for_exporters(status)));
    encoding.advertise(&mut response);
    response
}

async fn store_export(
    state: &Arc<ReceiverState>,
    sender: SenderContext,
    mut held: BufferedBody,
    is_json: bool,
) -> Result<(), Status> {
    let body = std::mem::take(&mut held.bytes);
    let identities = state.identities.clone();
    let now = state.door.clock.wall();
    let made = state.run(body.len(), move || export_uploads(body, is_json, &sender, &identities, now));
    // The memory of the body stays reserved until the uploads are stored.
    state.store(ReceiveForm::Otlp, made.await?).await
}

/// Encodes an empty `ExportProfilesServiceResponse`: all profiles are accepted.
fn empty_response(is_json: bool) -> Vec<u8> {
    if is_json { b"{}".to_vec() } else { Vec::new() }
}

/// Converts an exhausted status to unavailable, which exporters treat as temporary.
fn retryable_for_exporters(mut status: Status) -> Status {
    if status.code == ErrorCode::Exhausted {
        status.code = ErrorCode::Unavailable;
    }
    status
}

impl ExportType {
    fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let given = headers.get(CONTENT_TYPE)?.to_str().ok()?.split(';').next()?.trim();
        if given.eq_ignore_ascii_case(JSON_CONTENT_TYPE) {
            return Some(Self { content_type: JSON_CONTENT_TYPE, is_json: true });
        }
        let known = PROTOBUF_CONTENT_TYPES.into_iter().find(|known| given.eq_ignore_ascii_case(known))?;
        Some(Self { content_type: known, is_json: false })
    }

    /// Encodes the message `google.rpc.Status`, without a code: over HTTP clients use the HTTP status.
    fn encode_error(self, status: &Status) -> Vec<u8> {
        if self.is_json {
            return serde_json::json!({ "message": status.message }).to_string().into_bytes();
        }
        let mut encoded = Vec::new();
        prost::encoding::string::encode(2, &status.message, &mut encoded);
        encoded
    }
}
