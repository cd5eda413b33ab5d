//! HTTP client of a server, used by all commands: unary calls of the Connect protocol, in protobuf.
//!
//! A call is one attempt. A caller may retry a temporary failure ([`ApiRequestError::again`]) if the call is
//! idempotent. [`ApiClient::send_with_retry`] does so with exponential backoff. It waits at least as long as
//! the server requests.

use std::borrow::Cow;
use std::error::Error;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::config::SecretString;
use athanor_chassis::time::clock::TimeoutElapsed;
use athanor_chassis::units::format_duration;
use athanor_chassis::{Backoff, Clock, ErrorCode, Random, Status};
use athanor_profile::formats::pprof;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use prost::Message;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    RETRY_AFTER,
};
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode, Url};

use crate::args::RemoteArgs;
use crate::output::harmless;

/// Maximum bytes of a response, before and after decompression.
const MAX_RESPONSE_BYTES: usize = 1 << 30;
/// Maximum bytes of an error response.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;
/// Maximum characters of an error message that are shown.
const MAX_ERROR_TEXT_CHARS: usize = 2000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(250), Duration::from_secs(15));
/// Maximum delay that a server may request; a longer one ends the retries.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

const PROTOBUF_CONTENT_TYPE: &str = "application/proto";

/// Client of one server, with tenant and credentials. Cheap to clone.
#[derive(Clone)]
pub struct ApiClient {
    shared: Arc<ApiClientInner>,
}

struct ApiClientInner {
    http: reqwest::Client,
    /// Server URL without credentials, with a path that ends in a slash.
    base: Url,
    clock: Clock,
    random: Random,
    timeout: Duration,
}

/// Failed attempt of a call.
#[derive(Debug)]
pub struct ApiRequestError {
    /// Error of the attempt.
    pub status: Status,
    /// Set if a retry may succeed.
    pub again: bool,
}

/// Runs a future on a runtime of the current thread.
pub fn block_on<F: Future>(future: F) -> Result<F::Output, Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Status::new(ErrorCode::Internal, format!("failed to start the event loop: {error}"))
    })?;
    Ok(runtime.block_on(future))
}

// === impl ApiClient ===

impl ApiClient {
    /// Creates a client of the server that the command line names. Opens no connection.
    pub fn new(remote: &RemoteArgs) -> Result<Self, Status> {
        let (base, in_url) = address(&remote.url)?;
        // The call fails if the process has installed a provider before, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("athanor/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirected upload would lose its body, and credentials are only for the configured server.
            .redirect(Policy::none())
            .default_headers(headers(remote, in_url)?);
        if is_loopback(&base) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| {
            Status::new(
                ErrorCode::Internal,
                format!("failed to set up the HTTP client: {}", last_cause(&error)),
            )
        })?;
        let clock = Clock::system();
        let random = Random::system();
        Ok(ApiClient {
            shared: Arc::new(ApiClientInner { http, base, clock, random, timeout: remote.timeout }),
        })
    }

    /// Returns the server's URL without a trailing slash.
    pub fn address(&self) -> &str {
        self.shared.base.as_str().trim_end_matches('/')
    }

    /// Returns the clock that measures timeouts and delays.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Sends a request once and decodes the response.
    pub async fn request<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, Status> {
        let bytes = self.request_bytes(method, request).await?;
        A::decode(bytes).map_err(|error| self.strange(&format!("failed to decode {method}: {error}")))
    }

    /// Sends a request once and returns the encoded response.
    pub async fn request_bytes(&self, method: &str, request: &impl Message) -> Result<Bytes, Status> {
        self.send(method, request.encode_to_vec().into()).await
    }

    /// Sends an encoded request once.
    pub async fn send(&self, method: &str, body: Bytes) -> Result<Bytes, Status> {
        self.call(method, body, false).await.map_err(|failed| failed.status)
    }

    /// Sends gzipped bytes and retries temporary failures up to `retries` times. Calls `note` before each
    /// delay.
    pub async fn send_with_retry(
        &self,
        method: &str,
        gzipped: Bytes,
        retries: u32,
        note: impl Fn(&Status, Duration),
    ) -> Result<Bytes, Status> {
        for attempt in 0.. {
            let failed = match self.call(method, gzipped.clone(), true).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let asked = failed.status.retry_after.unwrap_or_default();
            if !failed.again || attempt == retries || asked > MAX_RETRY_AFTER {
                return Err(failed.status);
            }
            let wait = RETRY_BACKOFF.delay(attempt as usize, &self.shared.random).max(asked);
            note(&failed.status, wait);
            self.shared.clock.sleep(wait).await;
        }
        unreachable!("the last attempt returns")
    }

    async fn call(&self, method: &str, body: Bytes, gzipped: bool) -> Result<Bytes, ApiRequestError> {
        let ApiClientInner { http, base, clock, timeout, .. } = &*self.shared;
        let url =
            base.join(method).map_err(|error| ApiRequestError::for_good(self.strange(&error.to_string())))?;
        let mut request = http.post(url).header(CONTENT_TYPE, PROTOBUF_CONTENT_TYPE).body(body);
        if gzipped {
            request = request.header(CONTENT_ENCODING, "gzip");
        }
        let exchange = async {
            let response = request.send().await.map_err(|error| self.unreached(&error))?;
            self.answer(method, response).await
        };
        clock.timeout(*timeout, exchange).await.map_err(|elapsed| self.late(&elapsed))?
    }

    /// Fetches a text page with GET.
    pub async fn page(&self, path: &str) -> Result<String, Status> {
        let ApiClientInner { http, base, clock, timeout, .. } = &*self.shared;
        let url = base.join(path).map_err(|error| self.strange(&error.to_string()))?;
        let exchange = async {
            let response = http.get(url).send().await.map_err(|error| self.unreached(&error))?;
            match response.status().is_success() {
                true => self.body(response, MAX_RESPONSE_BYTES).await,
                false => Err(self.refused(path, response).await),
            }
        };
        let page = clock.timeout(*timeout, exchange).await.map_err(|elapsed| self.late(&elapsed));
        let page = page.flatten().map_err(|failed| failed.status)?;
        String::from_utf8(page.into()).map_err(|_| self.strange(&format!("{path} is not UTF-8 text")))
    }

    async fn answer(&self, method: &str, response: Response) -> Result<Bytes, ApiRequestError> {
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(method, response).await);
        }
        let gzipped = header(&response, &CONTENT_ENCODING) == "gzip";
        let kind = header(&response, &CONTENT_TYPE).to_owned();
        if !kind.starts_with(PROTOBUF_CONTENT_TYPE) {
            let why = format!(
                "{method} has content type {kind:?}, not {PROTOBUF_CONTENT_TYPE}; check that the URL is that of a profiling server"
            );
            return Err(ApiRequestError::for_good(self.strange(&why)));
        }
        for warning in response.headers().get_all("athanor-warnings") {
            let warning = warning.to_str().unwrap_or("unreadable warning");
            eprintln!("athanor: {}: partial response: {}", self.address(), harmless(warning));
        }
        if let Some(resolution) = downsampled_resolution(&response) {
            eprintln!("athanor: {}: downsampled data: {}", self.address(), harmless(resolution));
        }
        let body = self.body(response, MAX_RESPONSE_BYTES).await?;
        if !gzipped {
            return Ok(body);
        }
        let plain = pprof::inflate(&body, MAX_RESPONSE_BYTES);
        plain
            .map(Bytes::from)
            .map_err(|error| ApiRequestError::for_good(self.strange(&format!("{method}: {error}"))))
    }

    async fn body(&self, mut response: Response, limit: usize) -> Result<Bytes, ApiRequestError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreached(&error))? {
            if body.len() + chunk.len() > limit {
                let excess = format!(
                    "exceeds {limit} bytes, which is the limit; shorten the time range or narrow the selector"
                );
                let message = format!("{}: response {excess}", self.address());
                return Err(ApiRequestError::for_good(Status::new(ErrorCode::TooLarge, message)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Bytes::from(body))
    }

    /// Converts an error response into an error.
    async fn refused(&self, method: &str, response: Response) -> ApiRequestError {
        let status = response.status();
        let after = header(&response, &RETRY_AFTER).parse().ok().map(Duration::from_secs);
        let to = harmless(header(&response, &LOCATION));
        let gzipped = header(&response, &CONTENT_ENCODING) == "gzip";
        let body = self.body(response, MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
        let body = if gzipped {
            pprof::inflate(&body, MAX_ERROR_BODY_BYTES).unwrap_or_default().into()
        } else {
            body
        };
        let mut message = format!("{}: {}", self.address(), said(status, &body));
        match status.as_u16() {
            300..=399 => {
                message.push_str(&format!("; the server redirects to {to}, set --url to it if you trust it"))
            }
            404 if !body.starts_with(b"{") => {
                message.push_str(&format!("; the server does not implement {method}"))
            }
            401 => message.push_str("; check --tenant, --user and --token"),
            _ => {}
        }
        if let Some(wait) = after {
            message.push_str(&format!("; retry after {}", format_duration(wait)));
        }
        let code =
            if status.is_redirection() { ErrorCode::Invalid } else { ErrorCode::from_http(status.as_u16()) };
        let again = matches!(status.as_u16(), 408 | 429 | 500..=599) && status != StatusCode::NOT_IMPLEMENTED;
        ApiRequestError { status: Status { retry_after: after, ..Status::new(code, message) }, again }
    }

    /// Converts a transport error, without any response, into an error.
    fn unreached(&self, error: &reqwest::Error) -> ApiRequestError {
        let address = self.address();
        let message = if refuses(error) {
            format!(
                "nothing listens on {address}; start a server with `athanor serve`, or set --url or ATHANOR_URL"
            )
        } else if error.is_connect() {
            format!("failed to connect to {address}: {}; check --url", last_cause(error))
        } else {
            format!("{address}: connection failed: {}", last_cause(error))
        };
        ApiRequestError { status: Status::new(ErrorCode::Unavailable, message), again: true }
    }

    fn late(&self, elapsed: &TimeoutElapsed) -> ApiRequestError {
        let message = format!("{}: {elapsed}; increase --timeout", self.address());
        ApiRequestError { status: Status::new(ErrorCode::Deadline, message), again: true }
    }

    fn strange(&self, why: &str) -> Status {
        Status::new(ErrorCode::Invalid, format!("{}: invalid response: {}", self.address(), harmless(why)))
    }
}

impl ApiRequestError {
    fn for_good(status: Status) -> Self {
        ApiRequestError { status, again: false }
    }
}

/// Encodes a message and compresses it with fast gzip.
pub fn encode_gzip(message: &impl Message) -> Bytes {
    pprof::gzip_fast(&message.encode_to_vec()).into()
}

/// Parses a URL and separates the user name and password from it.
fn address(text: &str) -> Result<(Url, Option<(String, String)>), Status> {
    // The URL may contain a password, so the error does not show it.
    let refused = |why: &str| {
        let message = format!("--url: {why}; write for example http://127.0.0.1:4040");
        Status::new(ErrorCode::Invalid, message)
    };
    let mut url = Url::parse(text).map_err(|error| refused(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(refused("not an HTTP URL"));
    }
    let user = (url.username().to_owned(), url.password().unwrap_or_default().to_owned());
    let user = if user.0.is_empty() && user.1.is_empty() { None } else { Some(user) };
    if url.set_username("").and_then(|()| url.set_password(None)).is_err() {
        return Err(refused("the URL has no host"));
    }
    url.set_query(None);
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok((url, user))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the headers of every request.
fn headers(remote: &RemoteArgs, in_url: Option<(String, String)>) -> Result<HeaderMap, Status> {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("connect-protocol-version"), HeaderValue::from_static("1"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    // Without it, servers hide labels with names that are not legacy Prometheus names.
    headers.insert(ACCEPT, HeaderValue::from_static("*/*; allow-utf8-labelnames=true"));
    let unfit = |what: &str| {
        let message = format!("{what}: value contains characters that an HTTP header cannot carry");
        Status::new(ErrorCode::Invalid, message)
    };
    // An empty environment variable counts as unset.
    if let Some(tenant) = remote.tenant.as_ref().filter(|tenant| !tenant.is_empty()) {
        let value = HeaderValue::from_str(tenant).map_err(|_| unfit("--tenant"))?;
        headers.insert(HeaderName::from_static("x-scope-orgid"), value);
    }
    let given = |secret: &Option<SecretString>| {
        secret.as_ref().map(|secret| secret.expose().to_owned()).filter(|secret| !secret.is_empty())
    };
    let user = given(&remote.user);
    let user =
        user.or_else(|| in_url.map(|(name, password)| format!("{}:{}", decoded(&name), decoded(&password))));
    let credentials = match (given(&remote.token), user) {
        (Some(_), Some(_)) => {
            let message = "--user and --token are both set, perhaps in the environment; remove one of them";
            return Err(Status::new(ErrorCode::Invalid, message));
        }
        (Some(token), None) => format!("Bearer {token}"),
        (None, Some(user)) => format!("Basic {}", BASE64_STANDARD.encode(user)),
        (None, None) => return Ok(headers),
    };
    let mut value = HeaderValue::from_str(&credentials).map_err(|_| unfit("--token or --user"))?;
    value.set_sensitive(true);
    headers.insert(reqwest::header::AUTHORIZATION, value);
    Ok(headers)
}

/// Decodes percent-encoding, as in user names and passwords of a URL.
fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

fn header<'r>(response: &'r Response, name: &HeaderName) -> &'r str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns the resolution of a response, unless all of its data is raw.
fn downsampled_resolution(response: &Response) -> Option<&str> {
    let resolution = header(response, &HeaderName::from_static("athanor-resolution"));
    Some(resolution).filter(|resolution| !["", "raw"].contains(resolution))
}

/// Returns the message of an error response: Connect's code and message, else the body, else the meaning of
/// the status.
fn said(status: StatusCode, body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct ConnectErrorBody {
        code: String,
        #[serde(default)]
        message: String,
    }
    let text = match serde_json::from_slice::<ConnectErrorBody>(body) {
        Ok(ConnectErrorBody { code, message }) => format!("{code}: {message}"),
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            let reason = status.canonical_reason().unwrap_or("no reason given");
            let text = if text.trim_start().starts_with('<') { "" } else { text.trim() };
            format!("{} {reason}{}{text}", status.as_u16(), if text.is_empty() { "" } else { ": " })
        }
    };
    harmless(&text).chars().take(MAX_ERROR_TEXT_CHARS).collect()
}

fn last_cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    harmless(&last.to_string())
}

fn refuses(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if kind == Some(ErrorKind::ConnectionRefused) {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_sign_without_two_digits_stays() {
        assert_eq!(decoded("a%40b%2%zz%"), "a@b%2%zz%");
    }

    #[test]
    fn an_address_keeps_its_path_and_loses_its_password() {
        let (url, user) = address("https://me:p%40ss@profiles.example/team?x#y").unwrap();
        assert_eq!(url.as_str(), "https://profiles.example/team/");
        assert_eq!(user, Some(("me".into(), "p%40ss".into())));
        assert_eq!(url.join("a.v1.B/C").unwrap().as_str(), "https://profiles.example/team/a.v1.B/C");
        for wrong in ["127.0.0.1:4040", "ftp://x", "me:secret@host", ""] {
            let message = address(wrong).unwrap_err().message;
            assert!(message.contains("write for example") && !message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn errors_are_shown_whoever_wrote_them() {
        let connect = said(StatusCode::BAD_REQUEST, br#"{"code":"invalid_argument","message":"bad \u001b"}"#);
        assert_eq!(connect, "invalid_argument: bad \\u{1b}");
        assert_eq!(said(StatusCode::BAD_GATEWAY, b"<html>"), "502 Bad Gateway");
        assert_eq!(said(StatusCode::NOT_FOUND, b"404 page not found\n"), "404 Not Found: 404 page not found");
    }
}
