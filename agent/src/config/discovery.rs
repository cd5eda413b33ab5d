//! Settings of service discovery in a job, with the keys and defaults of Prometheus.

use std::time::Duration;

use athanor_profile::Labels;

use super::error::{Position, shorten};
use super::http_client::{default_client, read_http_client, refuse_tls_version};
use super::reader::{ConfigReader, ConfigTable};
use super::yaml::{YamlNode, YamlValue};
use crate::discovery::{
    DiscoverySettings, DnsDiscoverySettings, DockerDiscoverySettings, FileDiscoverySettings,
    HttpDiscoverySettings, KubernetesDiscoverySettings, KubernetesSelector, TargetGroup, check_docker_host,
};

const FILE_REFRESH_INTERVAL: Duration = Duration::from_secs(300);
const HTTP_REFRESH_INTERVAL: Duration = Duration::from_secs(60);
const DNS_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
const DOCKER_REFRESH_INTERVAL: Duration = Duration::from_secs(60);
const DOCKER_PORT: u16 = 80;
const KUBERNETES_ROLES: [&str; 5] = ["pod", "endpoints", "endpointslice", "service", "node"];

/// Reads all mechanisms of a job.
pub(super) fn read_discovery(reader: &mut ConfigReader, job: &ConfigTable<'_>) -> Vec<DiscoverySettings> {
    let mut found = Vec::new();
    if let Some(node) = job.get("static_configs") {
        let groups = read_static_groups(reader, node);
        if !groups.is_empty() {
            found.push(DiscoverySettings::Static(groups));
        }
    }
    let mut read = |key: &'static str, mechanism: ReadMechanism| {
        let Some(node) = job.get(key) else { return };
        for item in reader.list(key, node) {
            if matches!(item.value, YamlValue::Null) {
                reader.refuse(item.position, format!("an item of {key} is empty; remove it"));
            } else if let Some(table) = reader.table(key, item) {
                found.extend(mechanism(reader, &table));
                table.finish(reader);
            }
        }
    };
    read("file_sd_configs", read_file);
    read("http_sd_configs", read_http);
    read("dns_sd_configs", read_dns);
    read("kubernetes_sd_configs", read_kubernetes);
    read("docker_sd_configs", read_docker);
    found
}

/// Refuses a mechanism of Prometheus that the agent does not have.
pub(super) fn refuse_other_mechanism(reader: &mut ConfigReader, key: &str, position: Position) {
    reader.refuse(
        position,
        format!(
            "{} is not supported; write the targets to a file and use file_sd_configs, or serve them and use \
             http_sd_configs",
            shorten(key)
        ),
    );
}

type ReadMechanism = fn(&mut ConfigReader, &ConfigTable<'_>) -> Option<DiscoverySettings>;

fn read_static_groups(reader: &mut ConfigReader, node: &YamlNode) -> Vec<TargetGroup> {
    let mut groups = Vec::new();
    for (index, item) in reader.list("static_configs", node).iter().enumerate() {
        if matches!(item.value, YamlValue::Null) {
            reader.refuse(item.position, "an item of static_configs is empty; remove it");
            continue;
        }
        let Some(table) = reader.table("static_configs", item) else { continue };
        let addresses = table.texts(reader, "targets");
        let labels = table.labels(reader, "labels");
        table.finish(reader);
        let target = |address: &String| {
            let mut target: Labels = labels.clone();
            target.set("__address__", address);
            target
        };
        groups.push(TargetGroup {
            source: index.to_string(),
            targets: addresses.iter().map(target).collect(),
            is_address_untrusted: false,
        });
    }
    groups
}

fn read_refresh(reader: &mut ConfigReader, table: &ConfigTable<'_>, default: Duration) -> Duration {
    let interval = table.duration(reader, "refresh_interval").unwrap_or(default);
    if interval.is_zero() {
        reader.refuse(table.position_of("refresh_interval"), "refresh_interval is 0; set 1s or more");
    }
    interval
}

fn read_file(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> Option<DiscoverySettings> {
    let refresh_interval = read_refresh(reader, table, FILE_REFRESH_INTERVAL);
    let mut files = Vec::new();
    let items = table.get("files").map(|node| reader.list("files", node)).unwrap_or_default();
    for item in items {
        let Some(file) = reader.text("files", item) else { continue };
        if is_target_file(&file) {
            files.push(reader.resolve_path(&file).to_string_lossy().into_owned());
        } else {
            let file = shorten(&file);
            reader.refuse(
                    item.position,
                    format!("file {file:?} cannot be read; name *.json, *.yml or *.yaml, with at most one * in the last part"),
                );
        }
    }
    if items.is_empty() {
        reader.refuse(table.position, "file_sd_configs has no files; set files");
    }
    Some(DiscoverySettings::File(FileDiscoverySettings { files, refresh_interval }))
}

/// Returns whether a file may contain targets: its extension fits, and an asterisk is only in its last part.
fn is_target_file(file: &str) -> bool {
    const EXTENSIONS: [&str; 6] = [".json", ".yml", ".yaml", ".JSON", ".YML", ".YAML"];
    let Some(stem) = EXTENSIONS.iter().find_map(|extension| file.strip_suffix(extension)) else {
        return false;
    };
    match stem.split_once('*') {
        Some((_, pattern)) => !pattern.contains('/'),
        None => true,
    }
}

fn read_http(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> Option<DiscoverySettings> {
    let http = read_http_client(reader, table);
    let refresh_interval = read_refresh(reader, table, HTTP_REFRESH_INTERVAL);
    let url = table.text(reader, "url").unwrap_or_default();
    if let Err(reason) = check_http_url(&url) {
        reader.refuse(table.position_of("url"), format!("url {reason}"));
    }
    Some(DiscoverySettings::Http(HttpDiscoverySettings { url, refresh_interval, http }))
}

/// Checks that a text is the URL of an HTTP server.
pub(super) fn check_http_url(url: &str) -> Result<(), String> {
    // A query may contain a token, and the part before @ a password.
    let shown = url.split(['?', '#']).next().unwrap_or_default();
    let shown = shorten(shown.rsplit_once('@').map_or(shown, |(_, rest)| rest));
    match reqwest::Url::parse(url) {
        Ok(parsed) if !matches!(parsed.scheme(), "http" | "https") => {
            Err(format!("{shown:?} has another scheme; begin it with http:// or https://"))
        }
        Ok(parsed) if parsed.password().is_some() || !parsed.username().is_empty() => {
            Err("contains credentials; set basic_auth or authorization".to_owned())
        }
        Ok(parsed) if parsed.host_str().is_some_and(|host| !host.is_empty()) => Ok(()),
        Ok(_) => Err(format!("{shown:?} has no host; write for example http://127.0.0.1:4040")),
        Err(error) => {
            Err(format!("{shown:?} cannot be parsed: {error}; write for example http://127.0.0.1:4040"))
        }
    }
}

fn read_dns(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> Option<DiscoverySettings> {
    let names = table.texts(reader, "names");
    let refresh_interval = read_refresh(reader, table, DNS_REFRESH_INTERVAL);
    let record_type =
        table.filled_text(reader, "type").unwrap_or_else(|| "SRV".to_owned()).to_ascii_uppercase();
    let port = read_port(reader, table, 0);
    if names.is_empty() {
        reader.refuse(table.position, "dns_sd_configs has no names; set names");
    }
    match record_type.as_str() {
        "SRV" => {}
        "A" | "AAAA" | "MX" | "NS" if port == 0 => {
            reader.refuse(table.position, format!("records of type {record_type} have no port; set port"));
        }
        "A" | "AAAA" | "MX" | "NS" => {}
        other => {
            let message = format!("type is {:?}; use SRV, A, AAAA, MX or NS", shorten(other));
            reader.refuse(table.position_of("type"), message);
        }
    }
    Some(DiscoverySettings::Dns(DnsDiscoverySettings { names, record_type, port, refresh_interval }))
}

fn read_port(reader: &mut ConfigReader, table: &ConfigTable<'_>, default: u16) -> u16 {
    let port = table.get("port").and_then(|node| reader.number("port", node, u64::from(u16::MAX)));
    port.and_then(|port| u16::try_from(port).ok()).unwrap_or(default)
}

fn read_docker(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> Option<DiscoverySettings> {
    let http = read_http_client(reader, table);
    let host = table.text(reader, "host").unwrap_or_default();
    if host.is_empty() {
        reader.refuse(table.position, "docker_sd_configs has no host; set unix:///var/run/docker.sock");
    } else if let Err(error) = check_docker_host(&host) {
        reader.refuse(table.position_of("host"), error.to_string());
    }
    let mut filters = Vec::new();
    if let Some(node) = table.get("filters") {
        for item in reader.list("filters", node) {
            let Some(filter) = reader.table("filters", item) else { continue };
            filters.push((filter.text(reader, "name").unwrap_or_default(), filter.texts(reader, "values")));
            filter.finish(reader);
        }
    }
    let host_networking_host = table.filled_text(reader, "host_networking_host");
    Some(DiscoverySettings::Docker(DockerDiscoverySettings {
        host,
        port: read_port(reader, table, DOCKER_PORT),
        host_networking_host: host_networking_host.unwrap_or_else(|| "localhost".to_owned()),
        match_first_network: table.truth(reader, "match_first_network").unwrap_or(true),
        filters,
        refresh_interval: read_refresh(reader, table, DOCKER_REFRESH_INTERVAL),
        http,
    }))
}

fn read_kubernetes(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> Option<DiscoverySettings> {
    let http = read_http_client(reader, table);
    refuse_tls_version(reader, table, &http);
    let role = table.text(reader, "role").unwrap_or_default();
    if !KUBERNETES_ROLES.contains(&role.as_str()) {
        let message = format!("role is {:?}; use {}", shorten(&role), KUBERNETES_ROLES.join(", "));
        reader.refuse(table.position_of("role"), message);
    }
    let api_server = table.filled_text(reader, "api_server");
    if let Some(Err(reason)) = api_server.as_deref().map(check_http_url) {
        reader.refuse(table.position_of("api_server"), format!("api_server {reason}"));
    }
    let kubeconfig_file = table.filled_text(reader, "kubeconfig_file");
    let kubeconfig_file =
        kubeconfig_file.map(|file| reader.resolve_path(&file).to_string_lossy().into_owned());
    let mut settings = KubernetesDiscoverySettings {
        role,
        api_server,
        kubeconfig_file,
        namespaces: Vec::new(),
        own_namespace: false,
        selectors: Vec::new(),
        attach_node_metadata: false,
        attach_namespace_metadata: false,
        http,
    };
    if let Some(namespaces) = table.get("namespaces").and_then(|node| reader.table("namespaces", node)) {
        settings.own_namespace = namespaces.truth(reader, "own_namespace").unwrap_or(false);
        settings.namespaces = namespaces.texts(reader, "names");
        if let Some(name) = settings.namespaces.iter().find(|name| !is_namespace_name(name)) {
            let message =
                format!("namespace {:?} is invalid; use lower-case letters, digits and -", shorten(name));
            reader.refuse(namespaces.position_of("names"), message);
        }
        namespaces.finish(reader);
    }
    read_attached_metadata(reader, table, &mut settings);
    settings.selectors = read_selectors(reader, table, &settings.role);
    check_kubernetes_connection(reader, table, &settings);
    Some(DiscoverySettings::Kubernetes(settings))
}

/// Returns whether a namespace may have the name. It becomes a part of request paths.
fn is_namespace_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn read_attached_metadata(
    reader: &mut ConfigReader,
    table: &ConfigTable<'_>,
    settings: &mut KubernetesDiscoverySettings,
) {
    let Some(attached) = table.get("attach_metadata").and_then(|node| reader.table("attach_metadata", node))
    else {
        return;
    };
    settings.attach_node_metadata = attached.truth(reader, "node").unwrap_or(false);
    settings.attach_namespace_metadata = attached.truth(reader, "namespace").unwrap_or(false);
    for key in ["deployment", "job", "cronjob"] {
        if attached.truth(reader, key) == Some(true) {
            let message = format!("attach_metadata.{key} is not supported; use node or namespace");
            reader.refuse(attached.position_of(key), message);
        }
    }
    attached.finish(reader);
}

fn check_kubernetes_connection(
    reader: &mut ConfigReader,
    table: &ConfigTable<'_>,
    settings: &KubernetesDiscoverySettings,
) {
    let is_own_client = settings.http != default_client();
    let has_server = settings.api_server.is_some();
    let has_file = settings.kubeconfig_file.is_some();
    let mut refuse = |is_wrong: bool, message: &str| {
        if is_wrong {
            reader.refuse(table.position, message);
        }
    };
    refuse(has_server && has_file, "both api_server and kubeconfig_file are set; keep one");
    refuse(
        has_file && is_own_client,
        "authentication and TLS are set beside kubeconfig_file; set them in that file only",
    );
    refuse(
        !has_server && !has_file && is_own_client,
        "authentication and TLS are set without api_server; set api_server",
    );
    refuse(
        (has_server || has_file) && settings.own_namespace,
        "namespaces.own_namespace needs the account of the pod; remove it, or api_server and kubeconfig_file",
    );
}

fn read_selectors(reader: &mut ConfigReader, table: &ConfigTable<'_>, role: &str) -> Vec<KubernetesSelector> {
    let allowed: &[&str] = match role {
        "pod" => &["pod", "node"],
        "endpoints" => &["pod", "service", "endpoints"],
        "endpointslice" => &["pod", "service", "endpointslice"],
        "service" => &["service"],
        "node" => &["node"],
        _ => &[],
    };
    let mut selectors: Vec<KubernetesSelector> = Vec::new();
    let Some(node) = table.get("selectors") else { return selectors };
    for item in reader.list("selectors", node) {
        let Some(selector) = reader.table("selectors", item) else { continue };
        let read = KubernetesSelector {
            role: selector.text(reader, "role").unwrap_or_default(),
            label: selector.text(reader, "label").unwrap_or_default(),
            field: selector.text(reader, "field").unwrap_or_default(),
        };
        if !allowed.contains(&read.role.as_str()) {
            let message = format!(
                "selector role is {:?}; role {role} has selectors of {}",
                shorten(&read.role),
                allowed.join(", ")
            );
            reader.refuse(selector.position_of("role"), message);
        }
        if selectors.iter().any(|known| known.role == read.role) {
            let message = format!("selector role {} is set twice; join the selectors with commas", read.role);
            reader.refuse(selector.position_of("role"), message);
        }
        if let Err(reason) = check_field_selector(&read.field) {
            reader.refuse(selector.position_of("field"), reason);
        }
        if let Err(reason) = check_label_selector(&read.label) {
            reader.refuse(selector.position_of("label"), reason);
        }
        selector.finish(reader);
        selectors.push(read);
    }
    selectors
}

/// Checks `name=value`, `name==value` and `name!=value`, separated by commas.
fn check_field_selector(text: &str) -> Result<(), String> {
    let is_term = |term: &str| term.is_empty() || term.split_once('=').is_some_and(|(name, _)| name != "!");
    match text.split(',').find(|term| !is_term(term)) {
        Some(term) => Err(format!("field selector has {:?}; write name=value or name!=value", shorten(term))),
        None => Ok(()),
    }
}

/// Checks the parentheses and names of a label selector. The API server checks the rest.
fn check_label_selector(text: &str) -> Result<(), String> {
    let refused =
        || Err(format!("label selector is {:?}; write name=value or name in (a, b)", shorten(text)));
    let mut depth = 0i32;
    for character in text.chars() {
        depth += i32::from(character == '(') - i32::from(character == ')');
        if !(0..=1).contains(&depth) {
            return refused();
        }
    }
    if depth != 0 { refused() } else { Ok(()) }
}
