//! Targets that the agent scrapes, as configuration and discovery describe them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::TenantId;
use athanor_chassis::config::SecretString;
use athanor_profile::Labels;

/// Settings that all targets of one scrape job share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeJob {
    /// Name of the job.
    pub name: String,
    /// Interval between two scrapes of one kind.
    pub interval: Duration,
    /// Timeout of a scrape, beyond the seconds that the target records.
    pub timeout: Duration,
    /// Tenant of the profiles. None sends no tenant header.
    pub tenant: Option<TenantId>,
    /// Settings of the HTTP client.
    pub http: HttpClientSettings,
    /// Maximum bytes of a response, compressed.
    pub max_body_bytes: u64,
}

/// Authentication and TLS of an HTTP client. Files are read again for each connection or request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpClientSettings {
    /// User name of basic authentication.
    pub username: Option<Secret>,
    /// Password of basic authentication.
    pub password: Option<Secret>,
    /// Type of the credentials in the `Authorization` header, such as `Bearer`.
    pub authorization_type: String,
    /// Credentials of the `Authorization` header.
    pub credentials: Option<Secret>,
    /// Certificates that sign those of servers.
    pub ca: Option<Secret>,
    /// Certificate of the client.
    pub cert: Option<Secret>,
    /// Key of the client certificate.
    pub key: Option<Secret>,
    /// Name that the certificate of the server must have.
    pub server_name: Option<String>,
    /// Disables verification of the server's certificate.
    pub insecure_skip_verify: bool,
    /// The only version of TLS that may be used. None if all may be used.
    pub only_tls_version: Option<TlsVersion>,
    /// Headers of each request.
    pub headers: Vec<(String, Secret)>,
    /// True if HTTP/2 may be used.
    pub enable_http2: bool,
}

/// Version of TLS that the client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Secret value, or the file that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// Value in the configuration.
    Inline(SecretString),
    /// File that contains the value. It is read again when it is needed.
    File(PathBuf),
}

/// Profile kind of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileKind {
    /// Name of the kind, such as `process_cpu`.
    pub name: String,
    /// Value of the label `__name__`.
    pub metric_name: String,
    /// Path of the request, with the prefix.
    pub path: String,
    /// Parameters of the request, without `seconds`.
    pub params: Vec<(String, String)>,
    /// Duration that the target records. None for snapshots, which are taken at once.
    pub seconds: Option<u32>,
    /// True if the server computes differences of successive profiles.
    pub is_cumulative: bool,
}

/// Target of a scrape job, after relabeling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeTarget {
    /// Settings of the job.
    pub job: Arc<ScrapeJob>,
    /// `http` or `https`.
    pub scheme: String,
    /// Host and port.
    pub address: String,
    /// Kinds that are scraped.
    pub kinds: Vec<ProfileKind>,
    /// Labels of the profiles, with `service_name` and without `__name__`.
    pub labels: Labels,
    /// Labels before relabeling.
    pub discovered: Labels,
    /// True if others than the operator may have written the address. Such a target must not be a loopback,
    /// link-local or metadata address.
    pub is_address_untrusted: bool,
}
