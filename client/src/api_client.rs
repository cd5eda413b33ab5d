//! Client of one server: unary calls of the Connect protocol in protobuf, and any other request.
//!
//! A call is one attempt. A caller may retry a temporary failure ([`is_temporary`](crate::is_temporary)) if the
//! call is idempotent. [`ApiClient::send_with_retry`] does so as a [`RetryPolicy`] says.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::time::clock::TimeoutElapsed;
use athanor_chassis::units::format_duration;
use athanor_chassis::{Clock, ErrorCode, Random, Status};
use athanor_profile::formats::pprof;
use athanor_profile::render::printable::escape_control;
use bytes::Bytes;
use prost::Message;
use reqwest::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use reqwest::redirect::Policy;
use reqwest::{Response, Url};

use crate::response_error::{error_text, header, is_connection_refused, last_cause};
use crate::retry::RetryPolicy;
use crate::settings::{ClientSettings, SettingNames, is_loopback};

/// Maximum bytes of a response, before and after decompression.
const MAX_RESPONSE_BYTES: usize = 1 << 30;
/// Maximum bytes of an error response.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason of errors for responses that redirect to another URL.
pub const REDIRECT_REASON: &str = "redirect";
const PROTOBUF_CONTENT_TYPE: &str = "application/proto";
const ARROW_CONTENT_TYPE: &str = "application/vnd.apache.arrow.stream";
const WARNINGS_HEADER: &str = "athanor-warnings";
const RESOLUTION_HEADER: HeaderName = HeaderName::from_static("athanor-resolution");

/// Client of one server, with tenant and credentials. Cheap to clone. Connections are reused.
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
    names: SettingNames,
    report_remark: fn(&str),
}

/// Successful response of a server.
#[derive(Clone, Debug)]
pub struct ApiResponse {
    /// Headers of the response.
    pub headers: HeaderMap,
    /// Body, decompressed.
    pub body: Bytes,
}

/// Encodes a message and compresses it with fast gzip.
pub fn encode_gzip(message: &impl Message) -> Bytes {
    pprof::gzip_fast(&message.encode_to_vec()).into()
}

impl ApiClient {
    /// Creates a client. Opens no connection.
    ///
    /// # Errors
    ///
    /// The URL, a credential or a certificate is invalid. The message names the setting.
    pub fn new(settings: &ClientSettings, clock: Clock, random: Random) -> Result<Self, Status> {
        let (base, in_url) = settings.parse_url()?;
        // The call fails if the process has installed a provider before, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(&settings.user_agent)
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirected upload would lose its body, and credentials are only for the configured server.
            .redirect(Policy::none())
            .default_headers(settings.headers(in_url)?);
        if is_loopback(&base) {
            builder = builder.no_proxy();
        }
        let http = settings.apply_tls(builder)?.build().map_err(|error| {
            Status::new(
                ErrorCode::Internal,
                format!("failed to set up the HTTP client: {}", last_cause(&error)),
            )
        })?;
        let ClientSettings { timeout, names, report_remark, .. } = *settings;
        let shared = ApiClientInner { http, base, clock, random, timeout, names, report_remark };
        Ok(ApiClient { shared: Arc::new(shared) })
    }

    /// Returns the server's URL without a trailing slash.
    pub fn address(&self) -> &str {
        self.shared.base.as_str().trim_end_matches('/')
    }

    /// Returns the clock that measures timeouts and delays.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub(crate) fn names(&self) -> &SettingNames {
        &self.shared.names
    }

    /// Sends a request of the Connect protocol once and decodes the response.
    pub async fn request<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, Status> {
        let bytes = self.request_bytes(method, request).await?;
        A::decode(bytes)
            .map_err(|error| self.invalid_response(&format!("failed to decode {method}: {error}")))
    }

    /// Sends a request of the Connect protocol once and returns the encoded response.
    pub async fn request_bytes(&self, method: &str, request: &impl Message) -> Result<Bytes, Status> {
        self.call(method, request.encode_to_vec().into(), false).await
    }

    /// Sends an encoded request of the Connect protocol once. `gzipped` declares the encoding of the body.
    pub async fn call(&self, method: &str, body: Bytes, gzipped: bool) -> Result<Bytes, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF_CONTENT_TYPE));
        if gzipped {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let response = self.send(method, headers, body).await?;
        self.check_call(method, &response.headers, PROTOBUF_CONTENT_TYPE)?;
        Ok(response.body)
    }

    /// Sends a request of the Connect protocol once and returns the response as an Arrow IPC stream.
    pub async fn request_arrow(&self, method: &str, request: &impl Message) -> Result<Bytes, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF_CONTENT_TYPE));
        headers.insert(ACCEPT, HeaderValue::from_static(ARROW_CONTENT_TYPE));
        let response = self.send(method, headers, request.encode_to_vec().into()).await?;
        self.check_call(method, &response.headers, ARROW_CONTENT_TYPE)?;
        Ok(response.body)
    }

    /// Sends gzipped bytes of the Connect protocol and retries temporary failures. Calls `note` before each
    /// delay.
    pub async fn send_with_retry(
        &self,
        method: &str,
        gzipped: Bytes,
        policy: &RetryPolicy,
        note: impl Fn(&Status, Duration),
    ) -> Result<Bytes, Status> {
        let mut failures = 0;
        loop {
            let status = match self.call(method, gzipped.clone(), true).await {
                Ok(response) => return Ok(response),
                Err(status) => status,
            };
            let Some(wait) = policy.delay(failures, &status, &self.shared.random) else { return Err(status) };
            note(&status, wait);
            self.shared.clock.sleep(wait).await;
            failures += 1;
        }
    }

    /// Sends a POST request once. The path is relative to the server's URL and may have a query. The headers
    /// replace those that the settings set, such as the tenant.
    ///
    /// # Errors
    ///
    /// The code is that of the HTTP status, `Unavailable` without a response, and `Deadline` after the timeout.
    /// `retry_after` is the delay that the server requests.
    pub async fn send(&self, path: &str, headers: HeaderMap, body: Bytes) -> Result<ApiResponse, Status> {
        self.send_within(path, headers, body, self.shared.timeout).await
    }

    /// Sends a POST request once, as [`ApiClient::send`] does, with a timeout of its own.
    ///
    /// # Errors
    ///
    /// As [`ApiClient::send`].
    pub async fn send_within(
        &self,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<ApiResponse, Status> {
        let ApiClientInner { http, clock, .. } = &*self.shared;
        let request = http.post(self.url(path)?).headers(headers).body(body);
        let exchange = async {
            let response = request.send().await.map_err(|error| self.transport_error(&error))?;
            if !response.status().is_success() {
                return Err(self.refusal_error(path, response).await);
            }
            self.read_response(path, response).await
        };
        clock.timeout(timeout, exchange).await.map_err(|elapsed| self.timeout_error(&elapsed))?
    }

    /// Fetches a text page with GET.
    pub async fn page(&self, path: &str) -> Result<String, Status> {
        let page = self.get(path).await?;
        String::from_utf8(page.body.into())
            .map_err(|_| self.invalid_response(&format!("{path} is not UTF-8 text")))
    }

    /// Fetches a file of a content type with GET, and reports the remarks of the response. `query` is the query of the
    /// URL.
    pub async fn file(&self, path: &str, query: &str, content_type: &str) -> Result<Bytes, Status> {
        let response = self.get(&format!("{path}?{query}")).await?;
        self.check_call(path, &response.headers, content_type)?;
        Ok(response.body)
    }

    async fn get(&self, path: &str) -> Result<ApiResponse, Status> {
        let ApiClientInner { http, clock, timeout, .. } = &*self.shared;
        let request = http.get(self.url(path)?);
        let exchange = async {
            let response = request.send().await.map_err(|error| self.transport_error(&error))?;
            if !response.status().is_success() {
                return Err(self.refusal_error(path, response).await);
            }
            self.read_response(path, response).await
        };
        clock.timeout(*timeout, exchange).await.map_err(|elapsed| self.timeout_error(&elapsed))?
    }

    fn url(&self, path: &str) -> Result<Url, Status> {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let url = self.shared.base.join(path);
        let mut url = url.map_err(|error| self.invalid_response(&error.to_string()))?;
        url.set_query(query);
        Ok(url)
    }

    async fn read_response(&self, path: &str, response: Response) -> Result<ApiResponse, Status> {
        let gzipped = header(&response, &CONTENT_ENCODING) == "gzip";
        let headers = response.headers().clone();
        let body = self.read_body(response, MAX_RESPONSE_BYTES).await?;
        if !gzipped {
            return Ok(ApiResponse { headers, body });
        }
        let plain = pprof::inflate(&body, MAX_RESPONSE_BYTES);
        let plain = plain.map_err(|error| self.invalid_response(&format!("{path}: {error}")))?;
        Ok(ApiResponse { headers, body: plain.into() })
    }

    pub(crate) async fn read_body(&self, mut response: Response, limit: usize) -> Result<Bytes, Status> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.transport_error(&error))? {
            if body.len() + chunk.len() > limit {
                let excess = format!(
                    "exceeds {limit} bytes, which is the limit; shorten the time range or narrow the selector"
                );
                let message = format!("{}: response {excess}", self.address());
                return Err(Status::new(ErrorCode::TooLarge, message));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Bytes::from(body))
    }

    /// Checks that a response has the expected content type, and reports its remarks.
    fn check_call(&self, method: &str, headers: &HeaderMap, expected: &str) -> Result<(), Status> {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let kind = text(&CONTENT_TYPE).unwrap_or_default();
        if !kind.starts_with(expected) {
            return Err(self.invalid_response(&format!(
                "{method} has content type {kind:?}, not {expected}; check that the URL is that of a profiling server"
            )));
        }
        let report = self.shared.report_remark;
        let address = self.address();
        for warning in headers.get_all(WARNINGS_HEADER) {
            let warning = escape_control(warning.to_str().unwrap_or("unreadable warning"));
            report(&format!("{address}: partial response: {warning}"));
        }
        if let Some(resolution) = text(&RESOLUTION_HEADER).filter(|name| !["", "raw"].contains(name)) {
            report(&format!("{address}: downsampled data: {}", escape_control(resolution)));
        }
        Ok(())
    }
}

impl ApiClient {
    /// Converts an error response into an error.
    pub(crate) async fn refusal_error(&self, method: &str, response: Response) -> Status {
        let status = response.status();
        let after = header(&response, &RETRY_AFTER).parse().ok().map(Duration::from_secs);
        let to = escape_control(header(&response, &LOCATION));
        let gzipped = header(&response, &CONTENT_ENCODING) == "gzip";
        let body = self.read_body(response, MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
        let body = if gzipped {
            pprof::inflate(&body, MAX_ERROR_BODY_BYTES).unwrap_or_default().into()
        } else {
            body
        };
        let names = self.names();
        let mut message = format!("{}: {}", self.address(), error_text(status, &body));
        match status.as_u16() {
            300..=399 => message.push_str(&format!(
                "; the server redirects to {to}, set {} to it if you trust it",
                names.url
            )),
            404 if !body.starts_with(b"{") => {
                message.push_str(&format!("; the server does not implement {method}"))
            }
            401 => message.push_str(&format!("; check {}, {} and {}", names.tenant, names.user, names.token)),
            _ => {}
        }
        if let Some(wait) = after {
            message.push_str(&format!("; retry after {}", format_duration(wait)));
        }
        let code =
            if status.is_redirection() { ErrorCode::Invalid } else { ErrorCode::from_http(status.as_u16()) };
        let reason = status.is_redirection().then_some(REDIRECT_REASON);
        Status { retry_after: after, reason, ..Status::new(code, message) }
    }

    /// Converts a transport error, without any response, into an error.
    pub(crate) fn transport_error(&self, error: &reqwest::Error) -> Status {
        let address = self.address();
        let names = self.names();
        let message = if is_connection_refused(error) {
            format!("nothing listens on {address}; {}", names.start_hint)
        } else if error.is_connect() {
            format!("failed to connect to {address}: {}; check {}", last_cause(error), names.url)
        } else {
            format!("{address}: connection failed: {}", last_cause(error))
        };
        Status::new(ErrorCode::Unavailable, message)
    }

    pub(crate) fn timeout_error(&self, elapsed: &TimeoutElapsed) -> Status {
        let message = format!("{}: {elapsed}; increase {}", self.address(), self.names().timeout);
        Status::new(ErrorCode::Deadline, message)
    }

    pub(crate) fn invalid_response(&self, why: &str) -> Status {
        let message = format!("{}: invalid response: {}", self.address(), escape_control(why));
        Status::new(ErrorCode::Invalid, message)
    }
}
