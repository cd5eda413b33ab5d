//! Annotations of pods that select profile kinds: `profiles.grafana.com/<kind>.{scrape,port,port_name,scheme,path}`.

use std::collections::BTreeMap;

use athanor_profile::Labels;

use super::labels::{ADDRESS_LABEL, SCHEME_LABEL};
use super::profile_kinds::{KindError, profile_kind};
use crate::config::{JobConfig, KindSettings};
use crate::discovery::TargetGroup;
use crate::scrape_target::ProfileKind;

/// Beginning of the labels with these annotations. Discovery replaces dots and slashes by underscores.
const ANNOTATION_PREFIX: &str = "__meta_kubernetes_pod_annotation_profiles_grafana_com_";
const SCRAPE_SUFFIX: &str = "_scrape";
const PORT_NUMBER_LABEL: &str = "__meta_kubernetes_pod_container_port_number";
const PORT_NAME_LABEL: &str = "__meta_kubernetes_pod_container_port_name";
/// Maximum kinds that annotations of one pod select.
const MAX_ANNOTATED_KINDS: usize = 32;

/// Kind that annotations of a pod select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotatedKind {
    /// Name of the kind, such as `process_cpu`.
    pub name: String,
    /// Port, if an annotation names it.
    pub port: Option<u16>,
    /// Name of the port, if an annotation names it.
    pub port_name: Option<String>,
    /// Scheme, if an annotation names it.
    pub scheme: Option<String>,
    /// Path, if an annotation names it.
    pub path: Option<String>,
}

/// Target of annotated kinds with one address and scheme.
#[derive(Clone, Debug)]
pub(super) struct AnnotatedVariant {
    /// Labels before relabeling.
    pub(super) labels: Labels,
    kinds: Vec<AnnotatedKind>,
}

/// Returns the kinds that annotations select, from the labels of discovery.
pub fn annotated_kinds(discovered: &Labels) -> Vec<AnnotatedKind> {
    let annotation = |kind: &str, field: &str| {
        let value = discovered.get(&format!("{ANNOTATION_PREFIX}{kind}_{field}"));
        value.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let selected = discovered.iter().filter(|(_, value)| *value == "true");
    let selected = selected.filter_map(|(label, _)| {
        let kind = label.strip_prefix(ANNOTATION_PREFIX)?.strip_suffix(SCRAPE_SUFFIX)?;
        Some(kind).filter(|kind| !kind.is_empty())
    });
    let kinds = selected.take(MAX_ANNOTATED_KINDS).map(|kind| AnnotatedKind {
        name: if kind == "cpu" { "process_cpu" } else { kind }.to_owned(),
        port: annotation(kind, "port").and_then(|port| port.parse().ok()),
        port_name: annotation(kind, "port_name"),
        scheme: annotation(kind, "scheme").filter(|scheme| matches!(scheme.as_str(), "http" | "https")),
        path: annotation(kind, "path"),
    });
    kinds.collect()
}

/// Returns the targets that annotations make of one container port. Kinds with one address and scheme are one
/// target.
pub(super) fn annotated_variants(group: &TargetGroup, discovered: &Labels) -> Vec<AnnotatedVariant> {
    let mut variants: BTreeMap<(String, String), AnnotatedVariant> = BTreeMap::new();
    for kind in annotated_kinds(discovered) {
        if !is_port_selected(group, discovered, &kind) {
            continue;
        }
        let address = discovered.get(ADDRESS_LABEL).unwrap_or_default();
        let address = kind.port.map_or_else(|| address.to_owned(), |port| with_port(address, port));
        let scheme = discovered.get(SCHEME_LABEL).unwrap_or("http");
        let scheme = kind.scheme.clone().unwrap_or_else(|| scheme.to_owned());
        let variant = variants.entry((scheme, address)).or_insert_with_key(|(scheme, address)| {
            let mut labels = discovered.clone();
            labels.set(SCHEME_LABEL, scheme);
            labels.set(ADDRESS_LABEL, address);
            AnnotatedVariant { labels, kinds: Vec::new() }
        });
        variant.kinds.push(kind);
    }
    variants.into_values().collect()
}

/// Returns whether a container port is the one of a kind. A port that no container declares belongs to the first
/// target of the pod.
fn is_port_selected(group: &TargetGroup, discovered: &Labels, kind: &AnnotatedKind) -> bool {
    if let Some(name) = &kind.port_name {
        return discovered.get(PORT_NAME_LABEL) == Some(name);
    }
    let Some(port) = kind.port.map(|port| port.to_string()) else { return true };
    let declares = |target: &Labels| target.get(PORT_NUMBER_LABEL) == Some(&port);
    if group.targets.iter().any(declares) {
        return declares(discovered);
    }
    let first = group.targets.first();
    first.is_some_and(|first| first.iter().all(|(name, value)| discovered.get(name) == Some(value)))
}

/// Replaces the port of an address, or adds it.
fn with_port(address: &str, port: u16) -> String {
    let is_bare_ipv6 = address.matches(':').count() > 1 && !address.starts_with('[');
    if is_bare_ipv6 {
        return format!("[{address}]:{port}");
    }
    let host = match address.rsplit_once(':') {
        Some((host, old)) if old.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => address,
    };
    format!("{host}:{port}")
}

impl AnnotatedVariant {
    /// Returns the profile kinds of the target, or the error of each invalid one.
    pub(super) fn profile_kinds(
        &self,
        job: &JobConfig,
        relabeled: &Labels,
    ) -> Vec<Result<ProfileKind, KindError>> {
        let kind = |annotated: &AnnotatedKind| {
            let known = job.profiling.kinds.get(&annotated.name).cloned();
            let mut settings = known.unwrap_or_else(|| KindSettings::custom(""));
            if let Some(path) = &annotated.path {
                path.clone_into(&mut settings.path);
            }
            profile_kind(job, relabeled, job.job.interval, &annotated.name, &settings)
        };
        self.kinds.iter().map(kind).collect()
    }
}
