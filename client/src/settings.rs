//! Settings of a client: address, tenant, credentials, TLS.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use athanor_chassis::config::SecretString;
use athanor_chassis::{ErrorCode, Status};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::percent_decode_str;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::tls::{Certificate, Identity};
use reqwest::{ClientBuilder, Url};

/// Header that carries the tenant.
pub(crate) const TENANT_HEADER: HeaderName = HeaderName::from_static("x-scope-orgid");

/// Settings of an [`ApiClient`](crate::ApiClient).
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// URL of the server. A path in it precedes the path of each call. It may contain user name and password.
    pub url: String,
    /// Tenant of requests that name none. Empty counts as unset.
    pub tenant: Option<String>,
    /// Bearer token. Empty counts as unset.
    pub token: Option<SecretString>,
    /// User name and password, separated by a colon. Empty counts as unset.
    pub user: Option<SecretString>,
    /// Certificates of TLS connections.
    pub tls: TlsSettings,
    /// Value of the header `User-Agent`.
    pub user_agent: String,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Names of these settings, for error messages.
    pub names: SettingNames,
    /// Receives remarks about successful responses, such as missing parts.
    pub report_remark: fn(&str),
}

/// Certificates of TLS connections, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Certificates of authorities that may sign the server's certificate, instead of those of the system.
    pub ca: Option<String>,
    /// Certificate of the client.
    pub cert: Option<String>,
    /// Private key of the client's certificate.
    pub key: Option<SecretString>,
    /// Accepts any certificate of the server.
    pub insecure_skip_verify: bool,
}

/// Names of settings as the user of the program writes them.
#[derive(Clone, Copy, Debug)]
pub struct SettingNames {
    /// Name of the URL's setting.
    pub url: &'static str,
    /// Name of the tenant's setting.
    pub tenant: &'static str,
    /// Name of the user's setting.
    pub user: &'static str,
    /// Name of the token's setting.
    pub token: &'static str,
    /// Name of the settings of TLS.
    pub tls: &'static str,
    /// Name of the timeout's setting.
    pub timeout: &'static str,
    /// Way out if no process listens on the address.
    pub start_hint: &'static str,
}

/// User name and password of a URL, percent-encoded.
type UrlCredentials = Option<(String, String)>;

impl ClientSettings {
    /// Parses the URL and separates the user name and password from it. The path ends in a slash.
    pub(crate) fn parse_url(&self) -> Result<(Url, UrlCredentials), Status> {
        parse_url(&self.url, self.names.url)
    }

    /// Returns the headers of every request.
    pub(crate) fn headers(&self, in_url: UrlCredentials) -> Result<HeaderMap, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("connect-protocol-version"), HeaderValue::from_static("1"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        // Without it, servers hide labels with names that are not legacy Prometheus names.
        headers.insert(ACCEPT, HeaderValue::from_static("*/*; allow-utf8-labelnames=true"));
        let unfit = |what: &str| {
            let message = format!("{what}: value contains characters that an HTTP header cannot carry");
            Status::new(ErrorCode::Invalid, message)
        };
        if let Some(tenant) = self.tenant.as_ref().filter(|tenant| !tenant.is_empty()) {
            let value = HeaderValue::from_str(tenant).map_err(|_| unfit(self.names.tenant))?;
            headers.insert(TENANT_HEADER, value);
        }
        let user = non_empty(self.user.as_ref())
            .or_else(|| in_url.map(|(name, password)| format!("{}:{}", decoded(&name), decoded(&password))));
        let SettingNames { user: user_name, token: token_name, .. } = self.names;
        let credentials = match (non_empty(self.token.as_ref()), user) {
            (Some(_), Some(_)) => {
                let message = format!(
                    "{user_name} and {token_name} are both set, perhaps in the environment; remove one of them"
                );
                return Err(Status::new(ErrorCode::Invalid, message));
            }
            (Some(token), None) => format!("Bearer {token}"),
            (None, Some(user)) => format!("Basic {}", BASE64_STANDARD.encode(user)),
            (None, None) => return Ok(headers),
        };
        let mut value = HeaderValue::from_str(&credentials)
            .map_err(|_| unfit(&format!("{token_name} or {user_name}")))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        Ok(headers)
    }

    /// Applies the certificates to a builder.
    pub(crate) fn apply_tls(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, Status> {
        let TlsSettings { ca, cert, key, insecure_skip_verify } = &self.tls;
        // The message shows no bytes of a key.
        let invalid = |what: &str| {
            let message = format!("{}: {what} is not valid PEM", self.names.tls);
            Status::new(ErrorCode::Invalid, message)
        };
        if let Some(ca) = ca {
            let certificates = Certificate::from_pem_bundle(ca.as_bytes());
            let certificates = certificates.ok().filter(|all| !all.is_empty());
            builder = builder.tls_certs_only(certificates.ok_or_else(|| invalid("the CA certificate"))?);
        }
        match (cert, key) {
            (Some(cert), Some(key)) => {
                let both = format!("{cert}\n{}\n", key.expose());
                let identity = Identity::from_pem(both.as_bytes());
                builder =
                    builder.identity(identity.map_err(|_| invalid("the client certificate or its key"))?);
            }
            (None, None) => {}
            _ => {
                let message = format!(
                    "{}: only one of the client certificate and its key is set; set both",
                    self.names.tls
                );
                return Err(Status::new(ErrorCode::Invalid, message));
            }
        }
        Ok(builder.tls_danger_accept_invalid_certs(*insecure_skip_verify))
    }
}

/// Returns the text of a secret that is set and not empty.
fn non_empty(secret: Option<&SecretString>) -> Option<String> {
    secret.map(|secret| secret.expose().to_owned()).filter(|secret| !secret.is_empty())
}

fn parse_url(text: &str, setting: &str) -> Result<(Url, UrlCredentials), Status> {
    // The URL may contain a password, so the error does not show it.
    let refused = |why: &str| {
        let message = format!("{setting}: {why}; write for example http://127.0.0.1:4040");
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

/// Returns whether the URL names this machine, which is reached without a proxy.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Decodes percent-encoding, as in user names and passwords of a URL.
fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_sign_without_two_digits_stays() {
        assert_eq!(decoded("a%40b%2%zz%"), "a@b%2%zz%");
    }

    #[test]
    fn url_keeps_its_path_and_loses_its_password() {
        let (url, user) = parse_url("https://me:p%40ss@profiles.example/team?x#y", "--url").unwrap();
        assert_eq!(url.as_str(), "https://profiles.example/team/");
        assert_eq!(user, Some(("me".into(), "p%40ss".into())));
        assert_eq!(url.join("a.v1.B/C").unwrap().as_str(), "https://profiles.example/team/a.v1.B/C");
        for wrong in ["127.0.0.1:4040", "ftp://x", "me:secret@host", ""] {
            let message = parse_url(wrong, "--url").unwrap_err().message;
            assert!(message.contains("write for example") && !message.contains("secret"), "{message}");
        }
    }
}
