//! Discoverer: reflectors of the resources of a role, and the groups that change.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::{Discoverer, KubernetesDiscoverySettings, TargetGroup};
use super::api_client::{ApiClient, ObjectScope};
use super::connect::own_namespace;
use super::inventory::{Inventory, InventoryChange};
use super::known_objects::AttachedMetadata;
use super::kubernetes_status::KubernetesStatus;
use super::objects::Resource;
use super::pod_peers::PodPeers;
use super::reflector::{Reflector, ReflectorChange};
use super::{KubernetesDiscoveryError, KubernetesEnvironment};

/// Changes that wait for the inventory.
const CHANGE_QUEUE: usize = 256;

/// Source of the targets of a cluster.
pub struct KubernetesDiscoverer {
    role: Resource,
    settings: KubernetesDiscoverySettings,
    environment: KubernetesEnvironment,
    status: Arc<KubernetesStatus>,
    peers: Arc<PodPeers>,
}

impl KubernetesDiscoverer {
    /// Creates a discoverer.
    ///
    /// # Errors
    ///
    /// If role, selectors or namespaces are invalid.
    pub fn new(
        settings: KubernetesDiscoverySettings,
        environment: KubernetesEnvironment,
    ) -> Result<Self, KubernetesDiscoveryError> {
        let role = settings.role.as_str();
        let Some(resource) = resource_of_role(role) else {
            return Err(KubernetesDiscoveryError::UnknownRole(role.to_owned()));
        };
        let allowed = selector_roles(resource);
        let unknown = settings.selectors.iter().find(|selector| !allowed.contains(&selector.role.as_str()));
        if let Some(selector) = unknown {
            return Err(KubernetesDiscoveryError::UnknownSelector {
                role: role.to_owned(),
                selector: selector.role.clone(),
                allowed: allowed.join(", "),
            });
        }
        let is_valid = |name: &String| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        if let Some(name) = settings.namespaces.iter().find(|name| !is_valid(name)) {
            return Err(KubernetesDiscoveryError::InvalidNamespace(name.clone()));
        }
        let status = Arc::new(KubernetesStatus::new(Arc::clone(&environment.stats)));
        let peers = Arc::default();
        Ok(Self { role: resource, settings, environment, status, peers })
    }

    /// Status of the requests.
    pub fn status(&self) -> Arc<KubernetesStatus> {
        Arc::clone(&self.status)
    }

    /// Labels of known pods by address. Filled by the roles that watch pods.
    pub fn peers(&self) -> Arc<PodPeers> {
        Arc::clone(&self.peers)
    }

    fn reflectors(
        &self,
        namespaces: &[Option<String>],
        changes: &mpsc::Sender<ReflectorChange>,
    ) -> Vec<Reflector> {
        let environment = &self.environment;
        let api = Arc::new(ApiClient::new(
            self.settings.clone(),
            environment.clock.clone(),
            environment.pool.clone(),
        ));
        let scopes = self.scopes(namespaces).into_iter().enumerate();
        let reflector = |(index, scope)| Reflector {
            scope,
            api: Arc::clone(&api),
            clock: environment.clock.clone(),
            random: environment.random.split(),
            backoff: environment.backoff,
            status: Arc::clone(&self.status),
            index,
            changes: changes.clone(),
        };
        scopes.map(reflector).collect()
    }

    /// Returns what is listed and watched.
    fn scopes(&self, namespaces: &[Option<String>]) -> Vec<ObjectScope> {
        let mut resources = vec![self.role];
        if matches!(self.role, Resource::Endpoints | Resource::EndpointSlices) {
            resources.extend([Resource::Services, Resource::Pods]);
        }
        if self.attached().node {
            resources.push(Resource::Nodes);
        }
        if self.attached().namespace {
            resources.push(Resource::Namespaces);
        }
        let mut scopes = Vec::new();
        for resource in resources {
            let all_namespaces = [None];
            let namespaces = if resource.is_namespaced() { namespaces } else { &all_namespaces };
            for namespace in namespaces {
                let namespace = namespace.clone();
                let (label_selector, field_selector) = self.selectors(resource);
                scopes.push(ObjectScope { resource, namespace, label_selector, field_selector });
            }
        }
        scopes
    }

    /// Returns label and field selector of a resource.
    fn selectors(&self, resource: Resource) -> (String, String) {
        let selectors = self.settings.selectors.iter();
        let selector = selectors.rev().find(|selector| resource_of_role(&selector.role) == Some(resource));
        let selector = selector.cloned().unwrap_or_default();
        let mut field = selector.field;
        if let Some(node) = self.environment.node_name.as_ref().filter(|_| self.role == Resource::Pods) {
            let own = match resource {
                Resource::Pods => Some(format!("spec.nodeName={node}")),
                Resource::Nodes => Some(format!("metadata.name={node}")),
                _ => None,
            };
            let parts: Vec<String> =
                own.into_iter().chain(Some(field).filter(|field| !field.is_empty())).collect();
            field = parts.join(",");
        }
        (selector.label, field)
    }

    fn attached(&self) -> AttachedMetadata {
        AttachedMetadata {
            node: self.settings.attach_node_metadata
                && !matches!(self.role, Resource::Services | Resource::Nodes),
            namespace: self.settings.attach_namespace_metadata && self.role != Resource::Nodes,
        }
    }

    /// Returns the namespaces to watch; None stands for all.
    async fn namespaces(&self) -> Vec<Option<String>> {
        let mut names: BTreeSet<String> = self.settings.namespaces.iter().cloned().collect();
        if self.settings.own_namespace {
            let mut failures = 0;
            names.insert(loop {
                match own_namespace() {
                    Ok(namespace) => break namespace,
                    Err(problem) => self.status.report_problem("own namespace", problem, false),
                }
                let environment = &self.environment;
                environment.backoff.wait(failures, &environment.clock, &environment.random).await;
                failures += 1;
            });
            self.status.clear_problem("own namespace");
        }
        if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() }
    }

    /// Applies changes and sends the groups that differ, after each scope was listed once.
    async fn send_groups(
        &self,
        scopes: Vec<ObjectScope>,
        mut changes: mpsc::Receiver<ReflectorChange>,
        updates: mpsc::Sender<Vec<TargetGroup>>,
    ) {
        let mut inventory = Inventory::new(self.role, self.attached(), self.peers());
        let mut unlisted: BTreeSet<usize> = (0..scopes.len()).collect();
        let mut is_first = true;
        let mut batch = Vec::new();
        while changes.recv_many(&mut batch, CHANGE_QUEUE).await > 0 {
            for ReflectorChange { index, change } in batch.drain(..) {
                if matches!(change, InventoryChange::Replace(_)) {
                    unlisted.remove(&index);
                }
                let scope = &scopes[index];
                inventory.apply(scope.resource, scope.namespace.as_deref(), change);
            }
            if !unlisted.is_empty() {
                continue;
            }
            let groups = inventory.take_changed_groups();
            if (is_first || !groups.is_empty()) && updates.send(groups).await.is_err() {
                return;
            }
            is_first = false;
        }
    }
}

#[async_trait]
impl Discoverer for KubernetesDiscoverer {
    async fn run(&self, updates: mpsc::Sender<Vec<TargetGroup>>, stop: CancellationToken) {
        let work = async {
            let namespaces = self.namespaces().await;
            let (sender, changes) = mpsc::channel(CHANGE_QUEUE);
            let reflectors = self.reflectors(&namespaces, &sender);
            drop(sender);
            let scopes = self.scopes(&namespaces);
            let mut runs: FuturesUnordered<_> = reflectors.into_iter().map(Reflector::run).collect();
            tokio::select! {
                () = self.send_groups(scopes, changes, updates) => {}
                () = async { while runs.next().await.is_some() {} } => {}
            }
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
    }
}

fn resource_of_role(role: &str) -> Option<Resource> {
    Some(match role {
        "pod" => Resource::Pods,
        "service" => Resource::Services,
        "endpoints" => Resource::Endpoints,
        "endpointslice" => Resource::EndpointSlices,
        "node" => Resource::Nodes,
        _ => return None,
    })
}

/// Returns the roles that selectors may have, as in Prometheus.
fn selector_roles(role: Resource) -> &'static [&'static str] {
    match role {
        Resource::Pods => &["pod", "node"],
        Resource::Services => &["service"],
        Resource::Endpoints => &["pod", "service", "endpoints"],
        Resource::EndpointSlices => &["pod", "service", "endpointslice"],
        Resource::Nodes | Resource::Namespaces => &["node"],
    }
}
