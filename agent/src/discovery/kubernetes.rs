//! Discovery of targets in a Kubernetes cluster, with the roles and meta labels of Prometheus.
//!
//! Each resource is listed once, page by page, and then watched. While the API is unavailable, denies access
//! or forgets versions, all targets stay in force.
//!
//! ```text
//!  API ─► reflectors (list, then watch) ─► inventory (objects) ─► changed target groups
//!                                              └─► pod peers (labels by address and by container)
//! ```

#[cfg(feature = "kubernetes")]
mod api_client;
#[cfg(feature = "kubernetes")]
mod connect;
#[cfg(feature = "kubernetes")]
mod discoverer;
#[cfg(feature = "kubernetes")]
mod endpoint_targets;
#[cfg(feature = "kubernetes")]
mod inventory;
#[cfg(feature = "kubernetes")]
mod known_objects;
#[cfg(feature = "kubernetes")]
mod kubernetes_status;
pub mod logged_pod_peers;
#[cfg(feature = "kubernetes")]
mod meta_labels;
#[cfg(feature = "kubernetes")]
mod objects;
#[cfg(feature = "kubernetes")]
mod packed_pairs;
#[cfg(feature = "kubernetes")]
pub mod pod_log_folders;
#[cfg(feature = "kubernetes")]
mod pod_peers;
#[cfg(feature = "kubernetes")]
mod reflector;
#[cfg(feature = "kubernetes")]
pub mod watch_lines;

#[cfg(feature = "kubernetes")]
pub use discoverer::KubernetesDiscoverer;
#[cfg(feature = "kubernetes")]
pub use kubernetes_status::KubernetesStatus;
#[cfg(feature = "kubernetes")]
pub use objects::{Object, Resource};
#[cfg(feature = "kubernetes")]
pub use pod_peers::PodPeers;

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Backoff, Clock, ComputePool, Random};

use super::{Discoverer, DiscoveryStats, KubernetesDiscoverySettings};

/// Delays between attempts to reach the API.
pub const DEFAULT_API_BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));

/// Environment of a discoverer.
#[derive(Clone)]
pub struct KubernetesEnvironment {
    /// Clock of delays and timeouts.
    pub clock: Clock,
    /// Randomness of delays.
    pub random: Random,
    /// Threads that read credentials.
    pub pool: ComputePool,
    /// Delays between attempts to reach the API.
    pub backoff: Backoff,
    /// Node that the agent runs on. If it is known, role `pod` finds only the pods of the node.
    pub node_name: Option<String>,
    /// Counters of failed requests.
    pub stats: Arc<DiscoveryStats>,
}

/// Settings that no discoverer can be created for.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesDiscoveryError {
    /// The agent was built without the feature.
    #[error("kubernetes_sd_configs needs an agent that is built with the feature `kubernetes`")]
    NotBuilt,
    /// The role is unknown.
    #[error(
        "role {0:?} of kubernetes_sd_configs is unknown; use pod, service, endpoints, endpointslice or node"
    )]
    UnknownRole(String),
    /// The selector has no meaning for the role.
    #[error("kubernetes_sd_configs of role {role} has a selector of role {selector:?}; use {allowed}")]
    UnknownSelector {
        /// Role of the discoverer.
        role: String,
        /// Role of the selector.
        selector: String,
        /// Roles that selectors may have.
        allowed: String,
    },
    /// The namespace cannot exist.
    #[error("namespace {0:?} of kubernetes_sd_configs has characters other than a-z, 0-9 and `-`")]
    InvalidNamespace(String),
}

/// Creates a discoverer.
///
/// # Errors
///
/// If the settings are invalid, or the agent was built without the feature `kubernetes`.
pub fn create_discoverer(
    settings: KubernetesDiscoverySettings,
    environment: KubernetesEnvironment,
) -> Result<Arc<dyn Discoverer>, KubernetesDiscoveryError> {
    #[cfg(feature = "kubernetes")]
    return Ok(Arc::new(KubernetesDiscoverer::new(settings, environment)?));
    #[cfg(not(feature = "kubernetes"))]
    {
        drop((settings, environment));
        Err(KubernetesDiscoveryError::NotBuilt)
    }
}
