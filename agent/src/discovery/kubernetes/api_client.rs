//! Client of the Kubernetes API: pages of lists and streams of watches, with bounds.

use std::time::Duration;

use athanor_chassis::{Clock, ComputePool};
use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::KubernetesDiscoverySettings;
use super::connect::connect;
use super::objects::{Object, Resource};
use super::watch_lines::{ApiStatus, shorten_json_error};

/// Maximum objects of one page.
pub(super) const MAX_OBJECTS_PER_PAGE: usize = 500;
/// Maximum bytes of one page.
const MAX_PAGE_BYTES: usize = 128 << 20;
/// Maximum bytes of the body of a failure.
const MAX_FAILURE_BYTES: usize = 64 << 10;
/// Timeout of one page, and of the head of a watch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest delay that a server may request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);
const USER_AGENT: &str = concat!("athanor-agent/", env!("CARGO_PKG_VERSION"));

/// Objects that one list and its watches contain.
#[derive(Clone, Debug)]
pub(super) struct ObjectScope {
    pub(super) resource: Resource,
    /// Namespace. None for all.
    pub(super) namespace: Option<String>,
    pub(super) label_selector: String,
    pub(super) field_selector: String,
}

/// Page of a list.
pub(super) struct ListPage {
    pub(super) objects: Vec<Object>,
    /// Version of the list, from which a watch continues.
    pub(super) version: String,
    /// Token of the next page. Empty on the last page.
    pub(super) next_page: String,
}

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("failed to connect to the Kubernetes API: {0}")]
    Connect(String),
    #[error("failed to read from the Kubernetes API: {0}")]
    Read(String),
    #[error("Kubernetes API returned a body over {limit} bytes")]
    BodyTooLong { limit: usize },
    #[error("Kubernetes API returned a malformed list: {}", shorten_json_error(.0))]
    MalformedList(#[from] serde_json::Error),
    #[error("{}", describe_status(.status, .scope))]
    Status { status: ApiStatus, scope: Box<ObjectScope>, retry_after: Option<Duration> },
}

/// Connection to the API. It is made again after the server rejected its credentials.
pub(super) struct ApiClient {
    settings: KubernetesDiscoverySettings,
    clock: Clock,
    pool: ComputePool,
    client: Mutex<Option<Client>>,
}

/// Body of a watch.
pub(super) struct WatchStream {
    body: Body,
}

#[derive(Deserialize)]
struct ListBody<'a> {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next_page: String,
}

impl ApiClient {
    pub(super) fn new(settings: KubernetesDiscoverySettings, clock: Clock, pool: ComputePool) -> Self {
        Self { settings, clock, pool, client: Mutex::default() }
    }

    /// Requests a page of a list: the first if `page_token` is empty.
    pub(super) async fn list_page(
        &self,
        scope: &ObjectScope,
        page_token: &str,
    ) -> Result<ListPage, ApiError> {
        let limit = MAX_OBJECTS_PER_PAGE.to_string();
        let mut query = vec![("limit", limit.as_str())];
        if !page_token.is_empty() {
            query.push(("continue", page_token));
        }
        let request = async {
            let body = self.get(scope, &query).await?;
            read_body(body, MAX_PAGE_BYTES).await
        };
        let body = self.with_timeout(request).await?;
        decode_page(scope.resource, &body)
    }

    /// Starts a watch of all changes after a version. The server ends it after about `duration`.
    pub(super) async fn watch(
        &self,
        scope: &ObjectScope,
        version: &str,
        duration: Duration,
    ) -> Result<WatchStream, ApiError> {
        let seconds = duration.as_secs().to_string();
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", &seconds),
        ];
        let body = self.with_timeout(self.get(scope, &query)).await?;
        Ok(WatchStream { body })
    }

    async fn with_timeout<T>(
        &self,
        request: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let result = self.clock.timeout(REQUEST_TIMEOUT, request).await;
        result.unwrap_or_else(|elapsed| Err(ApiError::Read(elapsed.to_string())))
    }

    /// Sends a request and returns the body of its response.
    async fn get(&self, scope: &ObjectScope, query: &[(&str, &str)]) -> Result<Body, ApiError> {
        let client = self.client().await?;
        let request = Request::get(path_and_query(scope, query))
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, USER_AGENT)
            .body(Body::empty())
            .map_err(|error| ApiError::Connect(error.to_string()))?;
        let response = match client.send(request).await {
            Ok(response) => response,
            Err(error) => {
                // The credentials may have expired, or the server may have another address.
                self.disconnect();
                return Err(ApiError::Connect(describe_error(&error)));
            }
        };
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let code = response.status();
        if code == StatusCode::UNAUTHORIZED {
            self.disconnect();
        }
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let body = read_body(response.into_body(), MAX_FAILURE_BYTES).await.unwrap_or_default();
        let mut status: ApiStatus = serde_json::from_slice(&body).unwrap_or_default();
        status.code = code.as_u16();
        Err(ApiError::Status {
            status,
            scope: Box::new(scope.clone()),
            retry_after: retry_after.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER)),
        })
    }

    async fn client(&self) -> Result<Client, ApiError> {
        let known = self.client.lock().clone();
        let now = self.clock.wall();
        let nanos = i128::from(now.nanos());
        let is_valid = |client: &Client| client.valid_until().is_none_or(|end| end.as_nanosecond() > nanos);
        if let Some(client) = known.filter(is_valid) {
            return Ok(client);
        }
        let client = connect(&self.settings, &self.pool, now).await.map_err(ApiError::Connect)?;
        *self.client.lock() = Some(client.clone());
        Ok(client)
    }

    fn disconnect(&self) {
        *self.client.lock() = None;
    }
}

impl WatchStream {
    /// Returns the next bytes. None at the end of the stream.
    pub(super) async fn next_chunk(&mut self) -> Result<Option<Bytes>, ApiError> {
        next_chunk(&mut self.body).await
    }
}

impl ApiError {
    /// Delay that the server requested.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether the API denies access.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::Status { status, .. } if status.code == 403)
    }

    /// Returns whether the version of a watch, or of a list with several pages, is too old.
    pub(super) fn is_version_expired(&self) -> bool {
        matches!(self, Self::Status { status, .. } if is_expired(status))
    }
}

/// Returns whether a version is too old.
pub(super) fn is_expired(status: &ApiStatus) -> bool {
    status.code == 410 || status.reason == "Expired" || status.reason == "Gone"
}

async fn next_chunk(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(ApiError::Read(describe_error(&error))),
            // Trailers have no data.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

async fn read_body(mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = next_chunk(&mut body).await? {
        if bytes.len() + chunk.len() > limit {
            return Err(ApiError::BodyTooLong { limit });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

fn decode_page(resource: Resource, body: &[u8]) -> Result<ListPage, ApiError> {
    let list: ListBody<'_> = serde_json::from_slice(body)?;
    let items = list.items.unwrap_or_default();
    let mut objects = Vec::with_capacity(items.len());
    for item in items {
        let mut object = resource.decode(item.get())?;
        object.take_version();
        objects.push(object);
    }
    let version = list.metadata.resource_version;
    Ok(ListPage { objects, version, next_page: list.metadata.next_page })
}

fn path_and_query(scope: &ObjectScope, query: &[(&str, &str)]) -> String {
    let resource = scope.resource;
    let root = match resource.group() {
        "" => "/api/v1".to_owned(),
        group => format!("/apis/{group}/v1"),
    };
    let namespace = scope.namespace.as_ref().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    pairs.extend_pairs(query);
    for (name, selector) in
        [("labelSelector", &scope.label_selector), ("fieldSelector", &scope.field_selector)]
    {
        if !selector.is_empty() {
            pairs.append_pair(name, selector);
        }
    }
    format!("{root}{namespace}/{}?{}", resource.name(), pairs.finish())
}

/// Describes a failure with its causes.
fn describe_error(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn describe_status(status: &ApiStatus, scope: &ObjectScope) -> String {
    let ApiStatus { code, message, .. } = status;
    let name = scope.resource.name();
    let place = scope.namespace.as_ref().map(|namespace| format!(" in namespace {namespace}"));
    let place = place.unwrap_or_default();
    match code {
        401 => format!(
            "Kubernetes API rejected the credentials (401): {message}; \
             the agent reads them again before the next attempt"
        ),
        403 => {
            let role = if scope.namespace.is_some() { "Role" } else { "ClusterRole" };
            format!(
                "access to {name}{place} is denied (403): {message}; add this rule to the {role} of the \
                 agent's service account:\n{}",
                missing_rule(scope.resource)
            )
        }
        _ => format!("Kubernetes API failed to return {name}{place} ({code}): {message}"),
    }
}

/// Returns the RBAC rule that list and watch of a resource need, as YAML.
fn missing_rule(resource: Resource) -> String {
    let group = resource.group();
    let name = resource.name();
    format!("- apiGroups: [\"{group}\"]\n  resources: [\"{name}\"]\n  verbs: [\"list\", \"watch\"]")
}
