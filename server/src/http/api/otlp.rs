//! OpenTelemetry exports: over gRPC, and over plain HTTP with a response in the encoding of the request.

use std::sync::Arc;

use athanor_chassis::{ErrorCode, Status};
use athanor_distributor::{ExportSummary, OtlpEncoding};
use athanor_http_server::body::{BufferedBody, ContentEncoding, announced_length};
use athanor_http_server::decoded_size::BodyPolicy;
use athanor_http_server::encoding::{CallEncoding, UNARY_CONTENT_TYPES, json_error};
use athanor_http_server::tenant_header;
use athanor_http_server::unary::{ACCEPT_POST_HEADER, check_request, deadline};
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;

use crate::http::routes::state::{HandlerFuture, HttpState};

/// Path of exports over HTTP.
pub(in crate::http) const HTTP_EXPORT_PATH: &str = "/v1development/profiles";
/// Path of exports over gRPC.
pub(in crate::http) const GRPC_EXPORT_PATH: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

const PROTOBUF_CONTENT_TYPES: [&str; 2] = ["application/x-protobuf", "application/protobuf"];
const JSON_CONTENT_TYPE: &str = "application/json";
const ACCEPTED_CONTENT_TYPES: HeaderValue =
    HeaderValue::from_static("application/x-protobuf, application/protobuf, application/json");

/// `POST /v1development/profiles`.
pub fn profiles(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        let (parts, body) = request.into_parts();
        let Some((content_type, written)) = kind(&parts.headers) else {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            response.headers_mut().insert(ACCEPT_POST_HEADER, ACCEPTED_CONTENT_TYPES);
            return response;
        };
        let tenant = match tenant_header::parse_writer(&parts.headers, hall.door.multitenancy) {
            Ok(tenant) => tenant,
            // Existing servers return this error as JSON, for every encoding of the request.
            Err(status) => return json_error(&status),
        };
        let answered = async {
            let distributor = hall.services.distributor()?;
            let admits = BodyPolicy::export(distributor.body_limit(&tenant));
            let door = hall.door.for_tenant(&tenant);
            let read = async {
                distributor.check_rate(&tenant, announced_length(&parts.headers))?;
                let packing = ContentEncoding::from_headers(&parts.headers)?;
                let mut held = door.read(&parts.headers, body, &admits).await?;
                if let Some(packing) = packing {
                    door.decompress(&mut held, &admits, packing).await?;
                }
                let weight =
                    admits.weigh(&held.bytes, written == OtlpEncoding::Json, usize::MAX)?.unwrap_or_default();
                door.reserve_memory(&mut held, weight as u64)?;
                Ok::<BufferedBody, Status>(held)
            };
            let counts = distributor.stats();
            let mut held = read.await.inspect_err(|status| counts.record_request_refusal(&tenant, status))?;
            distributor.export(&tenant, std::mem::take(&mut held.bytes), written).await
        };
        let (status, body) = match answered.await {
            Ok(exported) => (None, exported.encode_response(written)),
            Err(status) => {
                let body = refusal(&status, written);
                (Some(status), body)
            }
        };
        let mut response = Response::new(Body::from(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(status) = status {
            let http = StatusCode::from_u16(status.code.http_status());
            *response.status_mut() = http.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            if let Some(wait) = status.retry_after {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
            }
        }
        response
    })
}

/// Returns the content type of a request, which its response uses as well.
fn kind(headers: &HeaderMap) -> Option<(&'static str, OtlpEncoding)> {
    let given = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let given = given.split(';').next()?.trim();
    let protobuf = PROTOBUF_CONTENT_TYPES.into_iter().find(|known| given.eq_ignore_ascii_case(known));
    let json =
        given.eq_ignore_ascii_case(JSON_CONTENT_TYPE).then_some((JSON_CONTENT_TYPE, OtlpEncoding::Json));
    protobuf.map(|known| (known, OtlpEncoding::Protobuf)).or(json)
}

/// Encodes the message `google.rpc.Status`. Its code has no meaning over HTTP, where clients use the HTTP
/// status.
fn refusal(status: &Status, written: OtlpEncoding) -> Vec<u8> {
    match written {
        OtlpEncoding::Json => serde_json::json!({ "message": status.message }).to_string().into_bytes(),
        OtlpEncoding::Protobuf => {
            let mut out = Vec::new();
            prost::encoding::string::encode(2, &status.message, &mut out);
            out
        }
    }
}

/// Handles the gRPC export. Connect and gRPC-Web use the same route. The message is passed on as bytes.
pub fn export(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        let (encoding, parts, body) =
            match check_request(request, CallEncoding::from_headers, UNARY_CONTENT_TYPES) {
                Ok(entered) => entered,
                Err(refused) => return *refused,
            };
        let answered = async {
            let wait = deadline(&parts.headers)?;
            encoding.check(&parts.headers)?;
            let called = call(&hall, encoding, &parts.headers, body);
            let written = if encoding.is_json() { OtlpEncoding::Json } else { OtlpEncoding::Protobuf };
            let exported = match wait {
                None => called.await,
                Some(wait) => match hall.door.clock.timeout(wait, called).await {
                    Ok(exported) => exported,
                    Err(elapsed) => Err(Status::new(ErrorCode::Deadline, elapsed.to_string())),
                },
            }?;
            let bytes = Bytes::from(exported.encode_response(written));
            encoding.encode_response_bytes(&hall.door, &parts.headers, bytes).await
        };
        let mut response = answered.await.unwrap_or_else(|status| encoding.error(&exporters(status)));
        encoding.advertise(&mut response);
        response
    })
}

async fn call(
    hall: &HttpState,
    encoding: CallEncoding,
    headers: &HeaderMap,
    body: Body,
) -> Result<ExportSummary, Status> {
    let tenant = tenant_header::parse_writer(headers, hall.door.multitenancy)?;
    let distributor = hall.services.distributor()?;
    let admits = BodyPolicy::export(distributor.body_limit(&tenant));
    let door = hall.door.for_tenant(&tenant);
    let read = async {
        distributor.check_rate(&tenant, announced_length(headers))?;
        let mut held = door.read(headers, body, &admits).await?;
        encoding.unwrap_message(&door, headers, &mut held, &admits).await?;
        Ok::<BufferedBody, Status>(held)
    };
    let counts = distributor.stats();
    let mut held = read.await.inspect_err(|status| counts.record_request_refusal(&tenant, status))?;
    let written = if encoding.is_json() { OtlpEncoding::Json } else { OtlpEncoding::Protobuf };
    distributor.export(&tenant, std::mem::take(&mut held.bytes), written).await
}

/// Converts an exhausted status to unavailable. Exporters treat exhausted as permanent and unavailable as
/// temporary.
fn exporters(mut status: Status) -> Status {
    if status.code == ErrorCode::Exhausted {
        status.code = ErrorCode::Unavailable;
    }
    status
}
