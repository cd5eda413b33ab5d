//! Exports of OpenTelemetry: as a call of gRPC, and as plain HTTP with an answer of the kind that was asked in.

use std::sync::Arc;

use athanor_chassis::{Code, Status};
use athanor_distributor::{Exported, Written};
use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;

use super::body::{Held, Packing, announced};
use super::caller;
use super::encoding::{ACCEPTED, Encoding, json_error};
use super::plain::Answering;
use super::routes::Hall;
use super::unary::{ACCEPT_POST, deadline, entered};
use super::weight::Admits;

/// The path of exports over HTTP.
pub(super) const PROFILES: &str = "/v1development/profiles";
/// The path of exports over gRPC.
pub(super) const EXPORT: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

const PROTOBUF: [&str; 2] = ["application/x-protobuf", "application/protobuf"];
const JSON: &str = "application/json";
const TYPES: HeaderValue =
    HeaderValue::from_static("application/x-protobuf, application/protobuf, application/json");

/// `POST /v1development/profiles`.
pub fn profiles(hall: Arc<Hall>, request: Request<Body>) -> Answering {
    Box::pin(async move {
        let (parts, body) = request.into_parts();
        let Some((content_type, written)) = kind(&parts.headers) else {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            response.headers_mut().insert(ACCEPT_POST, TYPES);
            return response;
        };
        let tenant = match caller::writer(&parts.headers, hall.door.multitenancy) {
            Ok(tenant) => tenant,
            // Existing servers say this in JSON, whatever was asked in.
            Err(status) => return json_error(&status),
        };
        let answered = async {
            let distributor = hall.services.distributor()?;
            let admits = Admits::export(distributor.body_limit(&tenant));
            let door = hall.door.for_tenant(&tenant);
            let read = async {
                distributor.check_rate(&tenant, announced(&parts.headers))?;
                let packing = packing(&parts.headers)?;
                let mut held = door.read(&parts.headers, body, &admits).await?;
                if let Some(packing) = packing {
                    door.unpack(&mut held, &admits, packing).await?;
                }
                let weight =
                    admits.weigh(&held.bytes, written == Written::Json, usize::MAX)?.unwrap_or_default();
                door.enter(&mut held, weight as u64)?;
                Ok::<Held, Status>(held)
            };
            let counts = distributor.counts();
            let mut held = read.await.inspect_err(|status| counts.request_refused(&tenant, status))?;
            distributor.export(&tenant, std::mem::take(&mut held.bytes), written).await
        };
        let (status, body) = match answered.await {
            Ok(exported) => (None, exported.answer(written)),
            Err(status) => {
                let body = refusal(&status, written);
                (Some(status), body)
            }
        };
        let mut response = Response::new(Body::from(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(status) = status {
            let http = StatusCode::from_u16(status.code.http());
            *response.status_mut() = http.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            if let Some(wait) = status.retry_after {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
            }
        }
        response
    })
}

/// The content type of a request, which is that of its answer.
fn kind(headers: &HeaderMap) -> Option<(&'static str, Written)> {
    let given = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let given = given.split(';').next()?.trim();
    let protobuf = PROTOBUF.into_iter().find(|known| given.eq_ignore_ascii_case(known));
    let json = given.eq_ignore_ascii_case(JSON).then_some((JSON, Written::Json));
    protobuf.map(|known| (known, Written::Protobuf)).or(json)
}

fn packing(headers: &HeaderMap) -> Result<Option<Packing>, Status> {
    match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(None),
        Some(b"gzip") => Ok(Some(Packing::Gzip)),
        Some(b"zstd") => Ok(Some(Packing::Zstd)),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            let message = format!("unknown compression {other:?}: gzip, zstd and identity are known");
            Err(Status::new(Code::Invalid, message).because("unsupported_encoding"))
        }
    }
}

/// The message `google.rpc.Status`. Its code has no meaning over HTTP, and clients go by the status.
fn refusal(status: &Status, written: Written) -> Vec<u8> {
    match written {
        Written::Json => serde_json::json!({ "message": status.message }).to_string().into_bytes(),
        Written::Protobuf => {
            let mut out = Vec::new();
            prost::encoding::string::encode(2, &status.message, &mut out);
            out
        }
    }
}

/// The call of gRPC; Connect and gRPC-Web come here as well. The message goes on as its bytes.
pub fn export(hall: Arc<Hall>, request: Request<Body>) -> Answering {
    Box::pin(async move {
        let (encoding, parts, body) = match entered(request, Encoding::of, ACCEPTED) {
            Ok(entered) => entered,
            Err(refused) => return *refused,
        };
        let answered = async {
            let wait = deadline(&parts.headers)?;
            encoding.check(&parts.headers)?;
            let called = call(&hall, encoding, &parts.headers, body);
            let written = if encoding.is_json() { Written::Json } else { Written::Protobuf };
            let exported = match wait {
                None => called.await,
                Some(wait) => match hall.door.clock.within(wait, called).await {
                    Ok(exported) => exported,
                    Err(elapsed) => Err(Status::new(Code::Deadline, elapsed.to_string())),
                },
            }?;
            let bytes = Bytes::from(exported.answer(written));
            encoding.answer_bytes(&hall.door, &parts.headers, bytes).await
        };
        let mut response = answered.await.unwrap_or_else(|status| encoding.error(&exporters(status)));
        encoding.advertise(&mut response);
        response
    })
}

async fn call(hall: &Hall, encoding: Encoding, headers: &HeaderMap, body: Body) -> Result<Exported, Status> {
    let tenant = caller::writer(headers, hall.door.multitenancy)?;
    let distributor = hall.services.distributor()?;
    let admits = Admits::export(distributor.body_limit(&tenant));
    let door = hall.door.for_tenant(&tenant);
    let read = async {
        distributor.check_rate(&tenant, announced(headers))?;
        let mut held = door.read(headers, body, &admits).await?;
        encoding.plain(&door, headers, &mut held, &admits).await?;
        Ok::<Held, Status>(held)
    };
    let counts = distributor.counts();
    let mut held = read.await.inspect_err(|status| counts.request_refused(&tenant, status))?;
    let written = if encoding.is_json() { Written::Json } else { Written::Protobuf };
    distributor.export(&tenant, std::mem::take(&mut held.bytes), written).await
}

/// Exporters take an exhausted resource for one that stays so; what passes is unavailable to them.
fn exporters(mut status: Status) -> Status {
    if status.code == Code::Exhausted {
        status.code = Code::Unavailable;
    }
    status
}
