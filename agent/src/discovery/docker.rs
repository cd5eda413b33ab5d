//! Discovery of the containers of a Docker daemon.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::Clock;
use http::{HeaderMap, StatusCode, Uri};
use serde::de::DeserializeOwned;

use super::docker_targets::{Container, ContainerNetworks, Network, TargetOptions, container_targets};
use super::http::{mask_url, parse_url, resolve_url};
use super::polling::{GroupSource, PartResult, PollingDiscoverer};
use super::{DiscoveryError, DiscoveryKind, DiscoveryStats, DockerDiscoverySettings, TargetGroup};
use crate::address_policy::AddressPolicy;
use crate::http_client::{Destination, HttpClient, HttpRequest, ResponseLimits};

/// Name of the only group.
const GROUP_SOURCE: &str = "Docker";
/// Maximum bytes of a response of the daemon.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;
/// Host of requests through a socket.
const SOCKET_HOST: &str = "http://docker";

/// Containers of a Docker daemon.
pub(super) struct DockerSource {
    daemon: DockerDaemon,
    settings: DockerDiscoverySettings,
    client: HttpClient,
    policy: AddressPolicy,
}

/// Address of a daemon.
enum DockerDaemon {
    Socket(PathBuf),
    Url(Uri),
}

/// Creates a discoverer of containers.
pub(super) fn docker_discoverer(
    settings: &DockerDiscoverySettings,
    client: HttpClient,
    policy: AddressPolicy,
    clock: Clock,
    stats: Arc<DiscoveryStats>,
) -> Result<PollingDiscoverer<DockerSource>, DiscoveryError> {
    let daemon = parse_daemon(&settings.host)?;
    let source = DockerSource { daemon, settings: settings.clone(), client, policy };
    Ok(PollingDiscoverer::new(source, clock, stats))
}

fn parse_daemon(host: &str) -> Result<DockerDaemon, DiscoveryError> {
    match host.split_once("://") {
        Some(("unix", path)) if path.starts_with('/') => Ok(DockerDaemon::Socket(PathBuf::from(path))),
        Some(("tcp", address)) => parse_url(&format!("http://{address}")).map(DockerDaemon::Url),
        Some(("http" | "https", _)) => parse_url(host).map(DockerDaemon::Url),
        _ => {
            let reason = format!(
                "host {:?} of docker_sd_configs is not valid; use an address like unix:///var/run/docker.sock, \
                 tcp://10.0.0.1:2375 or https://10.0.0.1:2376",
                mask_url(host)
            );
            Err(DiscoveryError::Settings { reason })
        }
    }
}

/// Checks the address of a daemon.
///
/// # Errors
///
/// The address is not that of a socket or an HTTP server.
pub(crate) fn check_docker_host(host: &str) -> Result<(), DiscoveryError> {
    parse_daemon(host).map(drop)
}

#[async_trait]
impl GroupSource for DockerSource {
    fn kind(&self) -> DiscoveryKind {
        DiscoveryKind::Docker
    }

    fn refresh_interval(&self) -> Duration {
        self.settings.refresh_interval
    }

    async fn refresh(&self) -> Vec<PartResult> {
        let groups = self.request_group().await.map(|group| vec![group]);
        vec![PartResult { part: GROUP_SOURCE.to_owned(), groups }]
    }
}

impl DockerSource {
    async fn request_group(&self) -> Result<TargetGroup, DiscoveryError> {
        let containers: Vec<Container> = self.request(&self.containers_path()).await?;
        let networks: Vec<Network> = self.request("/networks").await?;
        let options = TargetOptions {
            default_port: self.settings.port,
            host_networking_host: &self.settings.host_networking_host,
            match_first_network: self.settings.match_first_network,
        };
        let targets = container_targets(&ContainerNetworks { containers, networks }, &options);
        Ok(TargetGroup { source: GROUP_SOURCE.to_owned(), targets, is_address_untrusted: false })
    }

    /// Returns the path with the filters, as a JSON object of objects.
    fn containers_path(&self) -> String {
        if self.settings.filters.is_empty() {
            return "/containers/json".to_owned();
        }
        let mut filters: BTreeMap<&str, BTreeMap<&str, bool>> = BTreeMap::new();
        for (name, values) in &self.settings.filters {
            filters.entry(name).or_default().extend(values.iter().map(|value| (value.as_str(), true)));
        }
        let json = serde_json::to_string(&filters).unwrap_or_default();
        format!("/containers/json?filters={}", encode_query_value(&json))
    }

    /// Requests a JSON list. A null is an empty list.
    async fn request<T: DeserializeOwned + Default>(&self, path: &str) -> Result<T, DiscoveryError> {
        let limits = ResponseLimits {
            max_body_bytes: MAX_RESPONSE_BYTES,
            total_timeout: self.settings.refresh_interval,
            min_bytes_per_window: 0,
            rate_window: self.settings.refresh_interval,
        };
        let url = format!("{}{path}", self.settings.host);
        let (destination, base) = match &self.daemon {
            DockerDaemon::Socket(path) => (Destination::UnixSocket(path.clone()), SOCKET_HOST.to_owned()),
            DockerDaemon::Url(uri) => {
                let base = uri.to_string().trim_end_matches('/').to_owned();
                (resolve_url(uri, &url, &self.policy).await?, base)
            }
        };
        let uri = parse_url(&format!("{base}{path}"))?;
        let request = HttpRequest { uri, destination, headers: HeaderMap::new(), limits };
        let request_error = |source| DiscoveryError::Request { url: url.clone(), source };
        let response = self.client.get(request).await.map_err(request_error)?;
        if response.status != StatusCode::OK {
            return Err(DiscoveryError::Status { url, status: response.status });
        }
        let body = response.decode_body(MAX_RESPONSE_BYTES).map_err(request_error)?;
        let decoded: Result<Option<T>, _> = serde_json::from_slice(&body);
        match decoded {
            Ok(list) => Ok(list.unwrap_or_default()),
            Err(error) => Err(DiscoveryError::Response { url, reason: error.to_string() }),
        }
    }
}

/// Encodes a value for a query string.
fn encode_query_value(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len() * 2);
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
