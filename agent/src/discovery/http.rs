//! Discovery of targets in a JSON list of an HTTP server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::Clock;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode, Uri};

use super::polling::{GroupSource, PartResult, PollingDiscoverer};
use super::target_list::{ListedGroup, MAX_LIST_BYTES, TargetListFormat, parse_target_list};
use super::{DiscoveryError, DiscoveryKind, DiscoveryStats, HttpDiscoverySettings, TargetGroup};
use crate::address_policy::AddressPolicy;
use crate::http_client::{
    Destination, HttpClient, HttpClientError, HttpRequest, HttpResponse, ResponseLimits,
};

/// Label with the URL of the list. Pages mask its query.
pub(crate) const URL_LABEL: &str = "__meta_url";
const JSON_TYPE: &str = "application/json";
const INTERVAL_HEADER: HeaderName = HeaderName::from_static("x-prometheus-refresh-interval-seconds");
const MASKED_PASSWORD: &str = "xxxxx";
const MAX_SHOWN_TYPE_CHARS: usize = 100;

/// List of an HTTP server.
pub(super) struct HttpSource {
    uri: Uri,
    /// URL without a password and a query, for messages and names of groups.
    shown_url: String,
    /// URL without a password, for the label that rules read.
    label_url: String,
    refresh_interval: Duration,
    client: HttpClient,
    policy: AddressPolicy,
}

/// Creates a discoverer of an HTTP list.
pub(super) fn http_discoverer(
    settings: &HttpDiscoverySettings,
    client: HttpClient,
    policy: AddressPolicy,
    clock: Clock,
    stats: Arc<DiscoveryStats>,
) -> Result<PollingDiscoverer<HttpSource>, DiscoveryError> {
    let shown_url = mask_url(&settings.url);
    let label_url = mask_password(&settings.url);
    let uri = parse_url(&settings.url)?;
    let refresh_interval = settings.refresh_interval;
    let source = HttpSource { uri, shown_url, label_url, refresh_interval, client, policy };
    Ok(PollingDiscoverer::new(source, clock, stats))
}

/// Parses a URL with a host and the scheme `http` or `https`.
pub(super) fn parse_url(url: &str) -> Result<Uri, DiscoveryError> {
    let invalid = |reason: &str| DiscoveryError::Settings {
        reason: format!("URL {:?} is not valid: {reason}", mask_url(url)),
    };
    let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| invalid(&error.to_string()))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(invalid("the scheme must be http or https"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(invalid("the host is missing"));
    }
    Ok(uri)
}

/// Replaces the password and the query of a URL. Both may contain secrets.
pub(crate) fn mask_url(url: &str) -> String {
    let url = mask_password(url);
    match url.split_once('?') {
        Some((path, query)) if !query.is_empty() => format!("{path}?{MASKED_PASSWORD}"),
        _ => url,
    }
}

/// Replaces the password of a URL, as Prometheus does.
fn mask_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    match authority.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
        Some((user, host)) => format!("{scheme}://{user}:{MASKED_PASSWORD}@{host}{path}"),
        None => url.to_owned(),
    }
}

/// Resolves the host of a URL of the configuration, which is trusted.
pub(super) async fn resolve_url(
    uri: &Uri,
    shown_url: &str,
    policy: &AddressPolicy,
) -> Result<Destination, DiscoveryError> {
    let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let port = uri.port_u16().unwrap_or(default_port);
    let addresses = policy.resolve(uri.host().unwrap_or_default(), port, false).await;
    let address_error = |source| DiscoveryError::Address { url: shown_url.to_owned(), source };
    Ok(Destination::Addresses(addresses.map_err(address_error)?))
}

#[async_trait]
impl GroupSource for HttpSource {
    fn kind(&self) -> DiscoveryKind {
        DiscoveryKind::Http
    }

    fn refresh_interval(&self) -> Duration {
        self.refresh_interval
    }

    async fn refresh(&self) -> Vec<PartResult> {
        let groups = self.request_groups().await;
        vec![PartResult { part: self.shown_url.clone(), groups }]
    }
}

impl HttpSource {
    async fn request_groups(&self) -> Result<Vec<TargetGroup>, DiscoveryError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(JSON_TYPE));
        let seconds = self.refresh_interval.as_secs_f64().to_string();
        if let Ok(seconds) = HeaderValue::from_str(&seconds) {
            headers.insert(INTERVAL_HEADER, seconds);
        }
        let limits = ResponseLimits {
            max_body_bytes: MAX_LIST_BYTES,
            total_timeout: self.refresh_interval,
            min_bytes_per_window: 0,
            rate_window: self.refresh_interval,
        };
        let destination = resolve_url(&self.uri, &self.shown_url, &self.policy).await?;
        let request = HttpRequest { uri: self.uri.clone(), destination, headers, limits };
        let response = self.client.get(request).await.map_err(|source| self.request_error(source))?;
        self.check_response(&response)?;
        let body = response.decode_body(MAX_LIST_BYTES).map_err(|source| self.request_error(source))?;
        let listed = parse_target_list(&body, TargetListFormat::Json)
            .map_err(|source| DiscoveryError::List { origin: self.shown_url.clone(), source })?;
        let to_group = |(index, group): (usize, ListedGroup)| {
            let source = format!("{}:{index}", self.shown_url);
            group.into_group(source, (URL_LABEL, &self.label_url), true)
        };
        Ok(listed.into_iter().enumerate().map(to_group).collect())
    }

    fn check_response(&self, response: &HttpResponse) -> Result<(), DiscoveryError> {
        let url = self.shown_url.clone();
        if response.status != StatusCode::OK {
            return Err(DiscoveryError::Status { url, status: response.status });
        }
        let content_type = response.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let content_type = String::from_utf8_lossy(content_type);
        if !is_json_type(content_type.trim()) {
            let content_type = content_type.chars().take(MAX_SHOWN_TYPE_CHARS).collect();
            return Err(DiscoveryError::ContentType { url, content_type });
        }
        Ok(())
    }

    fn request_error(&self, source: HttpClientError) -> DiscoveryError {
        DiscoveryError::Request { url: self.shown_url.clone(), source }
    }
}

/// Returns whether a content type is JSON in UTF-8, with no other parameter.
fn is_json_type(content_type: &str) -> bool {
    let content_type = content_type.to_ascii_lowercase();
    let Some(parameters) = content_type.strip_prefix(JSON_TYPE) else { return false };
    let charset = parameters.strip_prefix(';').map(|charset| charset.trim_start());
    parameters.is_empty() || matches!(charset, Some("charset=utf-8" | "charset=\"utf-8\""))
}

#[cfg(test)]
mod tests;
