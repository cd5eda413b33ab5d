//! Unary RPC calls: from the HTTP request to the response.

use std::future::Future;
use std::time::Duration;

use athanor_chassis::requests::result_budget::ResultReservation;
use athanor_chassis::{Clock, ErrorCode, Status, TenantId};
use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, HeaderName, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body::announced_length;
use crate::connection::keep_budget;
use crate::decoded_size::BodyPolicy;
use crate::encoding::{CallEncoding, UNARY_CONTENT_TYPES};
use crate::partial_header::set_partial_headers;
use crate::request_budget::RequestBudget;
use crate::result_headers::{set_diagnostics_id, set_resolution_header};

/// Header with the content types that a call accepts.
pub const ACCEPT_POST_HEADER: HeaderName = HeaderName::from_static("accept-post");
/// Upper bound of a client deadline. Longer deadlines are shortened to it.
const MAX_CLIENT_DEADLINE: Duration = Duration::from_secs(3600);

/// Identity of a caller, with hooks for the stages of a request.
pub trait RequestIdentity: Clone {
    /// Returns the tenant that pays for the request.
    fn payer(&self) -> Option<&TenantId> {
        None
    }

    /// Returns warnings about data that the responses so far lack. Empty if they are complete.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the resolution of the responses so far, as a header. None if no query read profiles.
    fn resolution(&self) -> Option<HeaderValue> {
        None
    }

    /// Sets the deadline of the request from the client's timeout.
    fn set_deadline(&self, _: &Clock, _: Duration) {}

    /// Rejects a request before its body is read, by the announced length of the body.
    fn check_length(&self, _length: Option<u64>) -> Result<(), Status> {
        Ok(())
    }

    /// Reports a request with a body that could not be read as a message.
    fn on_unread_body(&self, _: &Status) {}

    /// Returns the memory reserved for the result. A response of `bytes` holds it until it is sent.
    fn response_budget(&self, _bytes: usize) -> Option<ResultReservation> {
        None
    }

    /// Ends the request, with the error if it failed. Returns the id of the diagnostics record, if one
    /// exists.
    fn finish_request(&self, _: Option<&Status>) -> Option<String> {
        None
    }
}

impl RequestIdentity for () {}
impl RequestIdentity for TenantId {
    fn payer(&self) -> Option<&TenantId> {
        Some(self)
    }
}

/// Response of a call.
pub enum CallOutput<M> {
    /// Message in the encoding of the call.
    Message(M),
    /// Bytes of another content type, which the client accepts.
    Bytes {
        /// Content type of the bytes.
        content_type: &'static str,
        /// Body of the response.
        bytes: Bytes,
    },
}

impl<M: Message + Serialize> CallOutput<M> {
    async fn encode(
        self,
        encoding: CallEncoding,
        door: &RequestBudget,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Status> {
        match self {
            CallOutput::Message(message) => encoding.encode_response(door, headers, message).await,
            CallOutput::Bytes { content_type, bytes } => {
                let mut response = Response::new(Body::from(bytes));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
                response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
                Ok(response)
            }
        }
    }
}

/// Handles one call. Before the body is read, `caller` returns the identity and `admits` the limits of the
/// body.
pub async fn handle_call<C, I, O, F, Fut>(
    door: &RequestBudget,
    request: Request<Body>,
    caller: impl FnOnce(&HeaderMap) -> Result<C, Status>,
    admits: impl FnOnce(&C) -> BodyPolicy,
    method: F,
) -> Response<Body>
where
    C: RequestIdentity,
    I: Message + Default + DeserializeOwned + 'static,
    O: Message + Serialize,
    F: FnOnce(C, I) -> Fut,
    Fut: Future<Output = Result<CallOutput<O>, Status>>,
{
    let (encoding, parts, body) =
        match check_request(request, CallEncoding::from_headers, UNARY_CONTENT_TYPES) {
            Ok(entered) => entered,
            Err(refused) => return *refused,
        };
    let headers = &parts.headers;
    let come = deadline(headers).and_then(|wait| {
        encoding.check(headers)?;
        Ok((wait, caller(headers)?))
    });
    let (result, record) = match come {
        Err(status) => (Err(status), None),
        Ok((wait, caller)) => {
            if let Some(wait) = wait {
                caller.set_deadline(&door.clock, wait);
            }
            let asked = caller.clone();
            let door = &caller.payer().map_or_else(|| door.clone(), |tenant| door.for_tenant(tenant));
            let answered = async move {
                let admits = admits(&asked);
                let checked = asked.check_length(announced_length(headers));
                let message = async {
                    checked?;
                    let mut held = door.read(headers, body, &admits).await?;
                    let message = encoding.read(door, headers, &mut held, &admits).await?;
                    Ok((message, held))
                };
                // The body's memory stays reserved until the method returns.
                let (message, _held) = message.await.inspect_err(|status| asked.on_unread_body(status))?;
                let answer = method(asked.clone(), message).await?;
                let mut response = answer.encode(encoding, door, headers).await?;
                set_partial_headers(&mut response, &asked.warnings());
                set_resolution_header(&mut response, asked.resolution());
                keep_budget(&mut response, |bytes| asked.response_budget(bytes));
                Ok(response)
            };
            let result = match wait {
                None => answered.await,
                Some(wait) => match door.clock.timeout(wait, answered).await {
                    Ok(result) => result,
                    Err(elapsed) => Err(Status::new(ErrorCode::Deadline, elapsed.to_string())),
                },
            };
            let record = caller.finish_request(result.as_ref().err());
            (result, record)
        }
    };
    let mut response = result.unwrap_or_else(|status| encoding.error(&status));
    set_diagnostics_id(&mut response, record);
    encoding.advertise(&mut response);
    response
}

/// Checks the HTTP method and the content type of a call. `accepted` lists the valid content types for the
/// error response.
pub fn check_request(
    request: Request<Body>,
    encoding: fn(&HeaderMap) -> Option<CallEncoding>,
    accepted: &'static str,
) -> Result<(CallEncoding, Parts, Body), Box<Response<Body>>> {
    if request.method() != Method::POST {
        return Err(Box::new(refused(StatusCode::METHOD_NOT_ALLOWED, ALLOW, "POST")));
    }
    let (parts, body) = request.into_parts();
    match encoding(&parts.headers) {
        Some(encoding) => Ok((encoding, parts, body)),
        None => Err(Box::new(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, ACCEPT_POST_HEADER, accepted))),
    }
}

fn refused(status: StatusCode, header: HeaderName, value: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(header, HeaderValue::from_static(value));
    response
}

/// Returns the timeout that the client set.
pub fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (name, wait) = match (text("connect-timeout-ms"), text("grpc-timeout")) {
        (Some(text), _) => ("connect-timeout-ms", milliseconds(text)),
        (None, Some(text)) => ("grpc-timeout", with_unit(text)),
        (None, None) => return Ok(None),
    };
    let wait =
        wait.ok_or_else(|| Status::new(ErrorCode::Invalid, format!("header {name} is not a valid timeout")))?;
    Ok(Some(wait.min(MAX_CLIENT_DEADLINE)))
}

fn milliseconds(text: &str) -> Option<Duration> {
    let digits = text.len() <= 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok().map(Duration::from_millis))?
}

/// Parses gRPC's format: up to eight digits and the letter of a unit.
fn with_unit(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_in_both_forms() {
        assert_eq!(milliseconds("1500"), Some(Duration::from_millis(1500)));
        assert_eq!((milliseconds("-1"), milliseconds(""), milliseconds("99999999999")), (None, None, None));
        assert_eq!(with_unit("2M"), Some(Duration::from_secs(120)));
        assert_eq!(with_unit("15m"), Some(Duration::from_millis(15)));
        assert_eq!(
            (with_unit("5"), with_unit(""), with_unit("123456789S"), with_unit("1ä")),
            (None, None, None, None)
        );
    }
}
