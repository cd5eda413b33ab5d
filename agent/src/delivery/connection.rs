//! Connection to one server, over the HTTP client that all programs share.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::config::SecretString;
use athanor_chassis::{Clock, ErrorCode, Random, Status, TenantId};
use athanor_client::{ApiClient, ClientSettings, PUSH_METHOD, SettingNames, TlsSettings};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use super::outcome::NOT_A_SERVER_REASON;
use crate::config::ServerSettings;
use crate::http_client::{ClientSecrets, HttpClientError, TlsSecrets};
use crate::upload::UploadRoute;

/// Timeout of a request without a body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Slowest link over which a body of any size is delivered. Its transfer prolongs the timeout.
const MIN_BYTES_PER_SECOND: u64 = 64 << 10;
/// Maximum timeout of a request.
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(15 * 60);
const SETTING_NAMES: SettingNames = SettingNames {
    url: "servers.url",
    tenant: "servers.tenant",
    user: "servers.basic_auth",
    token: "servers.token",
    tls: "servers.tls_config",
    timeout: "the load of the server",
    start_hint: "start a server, or set servers.url or ATHANOR_URL to that of a running one",
};
const OTLP_PATH: &str = "v1development/profiles";
const INGEST_PATH: &str = "ingest";
const PROTOBUF_CONTENT_TYPE: &str = "application/proto";
const OTLP_CONTENT_TYPE: &str = "application/x-protobuf";
/// Content types of a response to an export.
const OTLP_RESPONSE_TYPES: [&str; 2] = [OTLP_CONTENT_TYPE, "application/protobuf"];
const HTML_CONTENT_TYPE: &str = "text/html";
const TENANT_HEADER: HeaderName = HeaderName::from_static("x-scope-orgid");

/// Request to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRequest {
    /// Tenant of all profiles. None sends the tenant of the settings, if any.
    pub tenant: Option<TenantId>,
    /// Method of the server.
    pub route: UploadRoute,
    /// Body, compressed if `is_gzip`.
    pub body: Bytes,
    /// True if the body was compressed with gzip for the transfer.
    pub is_gzip: bool,
}

/// Response of a server that processed a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryResponse {
    /// Body, decompressed.
    pub body: Bytes,
}

/// Connection to one server.
#[async_trait]
pub trait ServerConnection: Send + Sync + 'static {
    /// Returns the URL of the server without credentials.
    fn address(&self) -> String;

    /// Sends a request once.
    ///
    /// # Errors
    ///
    /// The code is that of the HTTP status, `Unavailable` without a response, and `Deadline` after the timeout.
    async fn send(&self, request: DeliveryRequest) -> Result<DeliveryResponse, Status>;
}

/// Connection over HTTP. Secrets in files are read again when they change.
pub struct ClientConnection {
    settings: ClientSettings,
    secrets: ClientSecrets,
    clock: Clock,
    random: Random,
    current: Mutex<CurrentClient>,
}

/// Client with the certificates that it was made with.
#[derive(Clone)]
struct CurrentClient {
    client: ApiClient,
    tls: TlsSecrets,
}

impl ClientConnection {
    /// Creates a connection to a configured server. Opens no connection and reads no file.
    ///
    /// # Errors
    ///
    /// The URL or the tenant is invalid.
    pub fn new(server: &ServerSettings, clock: Clock, random: Random) -> Result<Self, Status> {
        let settings = ClientSettings {
            url: server.url.clone(),
            tenant: server.tenant.as_ref().map(ToString::to_string),
            token: None,
            user: None,
            tls: TlsSettings {
                insecure_skip_verify: server.http.insecure_skip_verify,
                ..TlsSettings::default()
            },
            user_agent: concat!("athanor-agent/", env!("CARGO_PKG_VERSION")).to_owned(),
            timeout: REQUEST_TIMEOUT,
            names: SETTING_NAMES,
            report_remark: |_| {},
        };
        let client = ApiClient::new(&settings, clock.clone(), random.split())?;
        let current = Mutex::new(CurrentClient { client, tls: TlsSecrets::default() });
        let secrets = ClientSecrets::new(server.http.clone());
        Ok(Self { settings, secrets, clock, random, current })
    }

    /// Returns the client for the present contents of the certificate files.
    async fn client(&self) -> Result<ApiClient, Status> {
        let tls = self.secrets.tls().await.map_err(|error| unreadable_secret(&error))?;
        let current = self.current.lock().clone();
        if current.tls == tls {
            return Ok(current.client);
        }
        let mut settings = self.settings.clone();
        settings.tls.ca = pem_text(tls.ca.as_ref())?;
        settings.tls.cert = pem_text(tls.cert.as_ref())?;
        settings.tls.key = pem_text(tls.key.as_ref())?.map(SecretString::new);
        let client = ApiClient::new(&settings, self.clock.clone(), self.random.split());
        let client = client.map_err(|status| status.with_reason(NOT_A_SERVER_REASON))?;
        *self.current.lock() = CurrentClient { client: client.clone(), tls };
        Ok(client)
    }
}

/// Returns the error of a secret that cannot be used. The request may succeed after an operator mends the file.
fn unreadable_secret(error: &HttpClientError) -> Status {
    Status::new(ErrorCode::Unauthenticated, format!("credentials of the server: {error}"))
}

fn pem_text(bytes: Option<&Arc<Vec<u8>>>) -> Result<Option<String>, Status> {
    let Some(bytes) = bytes else { return Ok(None) };
    match str::from_utf8(bytes) {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => {
            let message = "a certificate or key of the server is not PEM text";
            Err(Status::new(ErrorCode::Unauthenticated, message))
        }
    }
}

#[async_trait]
impl ServerConnection for ClientConnection {
    fn address(&self) -> String {
        self.current.lock().client.address().to_owned()
    }

    async fn send(&self, request: DeliveryRequest) -> Result<DeliveryResponse, Status> {
        let client = self.client().await?;
        // Credentials before `@` in the URL are those of the client.
        let secrets = self.secrets.headers("").await.map_err(|error| unreadable_secret(&error))?;
        let mut headers = request_headers(&request)?;
        headers.extend(secrets);
        let path = match &request.route {
            UploadRoute::Push => PUSH_METHOD.to_owned(),
            UploadRoute::Otlp => OTLP_PATH.to_owned(),
            UploadRoute::Ingest { query, .. } => format!("{INGEST_PATH}?{query}"),
        };
        let timeout = request_timeout(request.body.len());
        let response = client.send_within(&path, headers, request.body, timeout).await?;
        let content_type = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if let Some(problem) =
            foreign_response(&request.route, content_type.unwrap_or_default(), &response.body)
        {
            let message = format!(
                "{}: the response of {path} {problem}; check that the URL is that of a profiling server",
                client.address(),
            );
            return Err(Status::new(ErrorCode::Invalid, message).with_reason(NOT_A_SERVER_REASON));
        }
        Ok(DeliveryResponse { body: response.body })
    }
}

/// Returns the timeout of a request with a body of the given size.
fn request_timeout(body_bytes: usize) -> Duration {
    let transfer = Duration::from_secs(body_bytes as u64 / MIN_BYTES_PER_SECOND);
    REQUEST_TIMEOUT.saturating_add(transfer).min(MAX_REQUEST_TIMEOUT)
}

/// Returns why a successful response is not one of a profiling server, such as that of a proxy with a login page.
/// Its request must not count as delivered.
fn foreign_response(route: &UploadRoute, content_type: &str, body: &[u8]) -> Option<String> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
    let is_expected = match route {
        UploadRoute::Push => media_type == PROTOBUF_CONTENT_TYPE,
        UploadRoute::Otlp => OTLP_RESPONSE_TYPES.contains(&&*media_type),
        UploadRoute::Ingest { .. } => {
            media_type != HTML_CONTENT_TYPE && (body.trim_ascii().is_empty() || is_json())
        }
    };
    if is_expected {
        return None;
    }
    let expected = match route {
        UploadRoute::Push => PROTOBUF_CONTENT_TYPE,
        UploadRoute::Otlp => OTLP_CONTENT_TYPE,
        UploadRoute::Ingest { .. } => "no body, or a JSON body",
    };
    let seen: String = content_type.chars().take(100).collect();
    Some(format!("has content type {seen:?} and {} bytes, expected is {expected}", body.len()))
}

fn request_headers(request: &DeliveryRequest) -> Result<HeaderMap, Status> {
    let text = |value: &str| {
        HeaderValue::from_str(value).map_err(|_| {
            let message = "a header of the spooled request contains invalid characters";
            Status::new(ErrorCode::Invalid, message)
        })
    };
    let mut headers = HeaderMap::new();
    if let Some(tenant) = &request.tenant {
        headers.insert(TENANT_HEADER, text(tenant.as_str())?);
    }
    match &request.route {
        UploadRoute::Push => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF_CONTENT_TYPE));
        }
        UploadRoute::Otlp => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(OTLP_CONTENT_TYPE));
        }
        UploadRoute::Ingest { content_type, content_encoding, .. } => {
            if !content_type.is_empty() {
                headers.insert(CONTENT_TYPE, text(content_type)?);
            }
            if !content_encoding.is_empty() {
                headers.insert(CONTENT_ENCODING, text(content_encoding)?);
            }
        }
    }
    if request.is_gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_grows_with_the_body_up_to_a_limit() {
        assert_eq!(request_timeout(0), REQUEST_TIMEOUT);
        assert_eq!(request_timeout(4 << 20), Duration::from_secs(30 + 64));
        assert_eq!(request_timeout(64 << 20), MAX_REQUEST_TIMEOUT);
    }

    #[test]
    fn responses_of_other_programs_are_no_acknowledgement() {
        let ingest = UploadRoute::Ingest {
            query: "name=a".to_owned(),
            content_type: String::new(),
            content_encoding: String::new(),
        };
        let page = "<html>log in</html>";
        for (route, content_type, body, is_foreign) in [
            (&UploadRoute::Push, "application/proto", "", false),
            (&UploadRoute::Push, "application/protobuf-of-others", "", true),
            (&UploadRoute::Push, "text/html", page, true),
            (&UploadRoute::Otlp, "application/x-protobuf", "", false),
            (&UploadRoute::Otlp, "Application/Protobuf; charset=x", "", false),
            (&UploadRoute::Otlp, "", "", true),
            (&UploadRoute::Otlp, "text/html; charset=utf-8", page, true),
            (&ingest, "", "", false),
            (&ingest, "text/plain", "\n", false),
            (&ingest, "", "{\"status\": \"ok\"}", false),
            (&ingest, "text/html", "", true),
            (&ingest, "text/html; charset=utf-8", page, true),
            (&ingest, "application/json", page, true),
            (&ingest, "", "logged out", true),
        ] {
            let problem = foreign_response(route, content_type, body.as_bytes());
            assert_eq!(problem.is_some(), is_foreign, "{route:?} {content_type} {body}");
        }
    }

    #[test]
    fn headers_name_tenant_and_encoding_of_the_request() {
        let request = |route, is_gzip| DeliveryRequest {
            tenant: Some("team-a".parse().unwrap()),
            route,
            body: Bytes::new(),
            is_gzip,
        };
        let headers = request_headers(&request(UploadRoute::Push, true)).unwrap();
        let value = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(value("x-scope-orgid").as_deref(), Some("team-a"));
        assert_eq!(value("content-encoding").as_deref(), Some("gzip"));
        assert_eq!(value("content-type").as_deref(), Some("application/proto"));
        let ingest = |content_type: &str| UploadRoute::Ingest {
            query: "name=a".to_owned(),
            content_type: content_type.to_owned(),
            content_encoding: "zstd".to_owned(),
        };
        let headers = request_headers(&request(ingest("text/plain"), false)).unwrap();
        assert_eq!(
            (&headers["content-type"], &headers["content-encoding"]),
            (&"text/plain".parse().unwrap(), &"zstd".parse().unwrap())
        );
        let error = request_headers(&request(ingest("a\nb"), false)).unwrap_err();
        assert_eq!(error.code, ErrorCode::Invalid);
    }
}
