//! Creation of discoverers from their settings.

use std::path::PathBuf;
use std::sync::Arc;

use athanor_chassis::{Clock, Net};

use super::dns::{DnsServers, dns_discoverer};
use super::docker::docker_discoverer;
use super::file::file_discoverer;
use super::http::http_discoverer;
use super::static_groups::StaticDiscoverer;
use super::{Discoverer, DiscoveryError, DiscoverySettings, DiscoveryStats, KubernetesDiscoverySettings};
use crate::address_policy::AddressPolicy;
use crate::http_client::HttpClient;
use crate::scrape_target::HttpClientSettings;

/// File with the DNS servers of the system.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Creator of discoverers.
pub trait DiscovererFactory: Send + Sync + 'static {
    /// Creates a discoverer.
    ///
    /// # Errors
    ///
    /// The settings are not valid.
    fn create(&self, settings: &DiscoverySettings) -> Result<Arc<dyn Discoverer>, DiscoveryError>;
}

/// Function that creates a discoverer of a Kubernetes cluster.
pub type CreateKubernetesDiscoverer =
    dyn Fn(&KubernetesDiscoverySettings) -> Result<Arc<dyn Discoverer>, DiscoveryError> + Send + Sync;

/// Creator of all discoverers, with what they need of the process.
pub struct StandardDiscovererFactory {
    /// Network of requests.
    pub net: Arc<dyn Net>,
    /// Clock of intervals and timeouts.
    pub clock: Clock,
    /// Policy that resolves hosts.
    pub policy: AddressPolicy,
    /// Counters.
    pub stats: Arc<DiscoveryStats>,
    /// DNS servers.
    pub dns_servers: DnsServers,
    /// Creator of the discoverer of a cluster. None if the agent has no such discovery.
    pub kubernetes: Option<Box<CreateKubernetesDiscoverer>>,
}

impl StandardDiscovererFactory {
    /// Servers that the system uses.
    pub fn system_dns_servers() -> DnsServers {
        DnsServers::ResolvConf(PathBuf::from(RESOLV_CONF))
    }

    fn http_client(&self, settings: &HttpClientSettings) -> HttpClient {
        HttpClient::new(settings.clone(), Arc::clone(&self.net), self.clock.clone())
    }
}

impl DiscovererFactory for StandardDiscovererFactory {
    fn create(&self, settings: &DiscoverySettings) -> Result<Arc<dyn Discoverer>, DiscoveryError> {
        let clock = self.clock.clone();
        let stats = Arc::clone(&self.stats);
        let policy = self.policy.clone();
        match settings {
            DiscoverySettings::Static(groups) => Ok(Arc::new(StaticDiscoverer::new(groups))),
            DiscoverySettings::File(file) => Ok(Arc::new(file_discoverer(file, clock, stats)?)),
            DiscoverySettings::Http(http) => {
                let client = self.http_client(&http.http);
                Ok(Arc::new(http_discoverer(http, client, policy, clock, stats)?))
            }
            DiscoverySettings::Dns(dns) => {
                Ok(Arc::new(dns_discoverer(dns, self.dns_servers.clone(), clock, stats)?))
            }
            DiscoverySettings::Docker(docker) => {
                let client = self.http_client(&docker.http);
                Ok(Arc::new(docker_discoverer(docker, client, policy, clock, stats)?))
            }
            DiscoverySettings::Kubernetes(kubernetes) => match &self.kubernetes {
                Some(create) => create(kubernetes),
                None => Err(DiscoveryError::Settings {
                    reason:
                        "kubernetes_sd_configs needs an agent that is built with the feature `kubernetes`"
                            .to_owned(),
                }),
            },
        }
    }
}
