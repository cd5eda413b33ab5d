//! Settings of the agent itself: servers, spool, receiver and operator interface.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use athanor_chassis::{ByteSize, TenantId};
use athanor_profile::Labels;

use super::discovery::check_http_url;
use super::environment::Environment;
use super::error::shorten;
use super::http_client::{default_client, read_http_client, read_secret, refuse_tls_version};
use super::reader::{ConfigReader, ConfigTable};
use crate::scrape_target::{HttpClientSettings, Secret};

/// URL of the server if none is configured.
const DEFAULT_SERVER_URL: &str = "http://127.0.0.1:4040";
const DEFAULT_RECEIVE_ADDRESS: &str = "127.0.0.1:4041";
const DEFAULT_SPOOL_BYTES: ByteSize = ByteSize::mib(1024);
const DEFAULT_MIN_FREE_PERCENT: u8 = 10;
/// Minimum size of a spool: a few files.
const MIN_SPOOL_BYTES: ByteSize = ByteSize::mib(16);
const MAX_SERVERS: usize = 16;
const MAX_SERVER_NAME_LENGTH: usize = 100;

/// Server that receives all profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Unique name, also that of the spool folder.
    pub name: String,
    /// Base URL.
    pub url: String,
    /// Tenant of profiles that have none of their own. None sends no header.
    pub tenant: Option<TenantId>,
    /// Settings of the HTTP client.
    pub http: HttpClientSettings,
}

/// Spool on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Folder that contains a folder per server.
    pub folder: PathBuf,
    /// Maximum bytes of the spool of one server.
    pub max_bytes: ByteSize,
    /// Percentage of the disk that stays free.
    pub min_free_percent: u8,
}

/// Receiver of pushed profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveSettings {
    /// Address to listen on. None receives nothing.
    pub listen_address: Option<SocketAddr>,
    /// Choice of the tenant.
    pub tenant: TenantRules,
    /// Labels that are added to received profiles where they are absent.
    pub labels: Labels,
    /// True if the labels of the sending pod or container are added.
    pub adds_sender_labels: bool,
}

/// Choice of the tenant of a received profile. The first rule that yields a tenant decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRules {
    /// True if the tenant header of the client is used.
    pub allows_header: bool,
    /// Label whose value is the tenant.
    pub label: Option<String>,
    /// Tenant of all others. None sends no tenant header.
    pub fixed: Option<TenantId>,
}

/// Reads the list `servers`. Without it, the environment names the server.
pub(super) fn read_servers(
    reader: &mut ConfigReader,
    root: &ConfigTable<'_>,
    environment: &Environment,
) -> Vec<ServerSettings> {
    let Some(node) = root.get("servers") else { return vec![environment_server(reader, root, environment)] };
    let mut servers: Vec<ServerSettings> = Vec::new();
    let items = reader.list("servers", node);
    if items.is_empty() || items.len() > MAX_SERVERS {
        let message = format!("servers has {} items; list 1 to {MAX_SERVERS}", items.len());
        reader.refuse(node.position, message);
    }
    for item in items.iter().take(MAX_SERVERS) {
        let Some(table) = reader.table("servers", item) else { continue };
        let server = read_server(reader, &table);
        if servers.iter().any(|known| known.name == server.name) {
            let message = format!("server name {:?} is used twice; set name", server.name);
            reader.refuse(table.position, message);
        }
        table.finish(reader);
        servers.push(server);
    }
    servers
}

fn read_server(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> ServerSettings {
    let url = table.filled_text(reader, "url");
    if url.is_none() {
        reader.refuse(table.position, "a server has no url; write for example url: http://127.0.0.1:4040");
    }
    let url = url.unwrap_or_default();
    if !url.is_empty()
        && let Err(reason) = check_http_url(&url)
    {
        reader.refuse(table.position_of("url"), format!("url {reason}"));
    }
    let mut http = read_http_client(reader, table);
    if http.server_name.is_some() {
        let message = "server_name of a server is not supported; write the name of its certificate in url";
        reader.refuse(table.position_of("tls_config"), message);
    }
    refuse_tls_version(reader, table, &http);
    if let Some(token) = read_secret(reader, table, "token", "token_file") {
        if http.credentials.is_some() || http.username.is_some() {
            let message = "token is set beside another authentication; keep one";
            reader.refuse(table.position_of("token"), message);
        }
        http.credentials = Some(token);
    }
    let name = table.filled_text(reader, "name").unwrap_or_else(|| default_server_name(&url));
    if !is_server_name(&name) {
        let message = format!(
            "server name {:?} is invalid; use up to {MAX_SERVER_NAME_LENGTH} letters, digits, - _ and ., beginning \
             with a letter or digit",
            shorten(&name)
        );
        reader.refuse(table.position_of("name"), message);
    }
    ServerSettings { name, url, tenant: table.parsed(reader, "tenant"), http }
}

fn environment_server(
    reader: &mut ConfigReader,
    root: &ConfigTable<'_>,
    environment: &Environment,
) -> ServerSettings {
    let url = environment.url.clone().unwrap_or_else(|| DEFAULT_SERVER_URL.to_owned());
    if let Err(reason) = check_http_url(&url) {
        reader.refuse(root.position, format!("environment variable ATHANOR_URL {reason}"));
    }
    let tenant = environment.tenant.as_deref().map(str::parse);
    if let Some(Err(error)) = &tenant {
        reader.refuse(root.position, format!("environment variable ATHANOR_TENANT: {error}"));
    }
    let credentials = environment.token.clone().map(Secret::Inline);
    ServerSettings {
        name: default_server_name(&url),
        url,
        tenant: tenant.and_then(Result::ok),
        http: HttpClientSettings { credentials, ..default_client() },
    }
}

/// Returns a name for the server of a URL: its host and port.
fn default_server_name(url: &str) -> String {
    let parsed = reqwest::Url::parse(url).ok();
    let host = parsed.as_ref().and_then(|url| url.host_str()).unwrap_or("server");
    let port = parsed.as_ref().and_then(reqwest::Url::port_or_known_default).unwrap_or_default();
    let clean = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
    let host: String =
        host.trim_matches(['[', ']']).chars().map(clean).take(MAX_SERVER_NAME_LENGTH - 6).collect();
    format!("{}-{port}", host.trim_start_matches(['-', '.', '_', ':']))
}

fn is_server_name(name: &str) -> bool {
    name.len() <= MAX_SERVER_NAME_LENGTH
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Reads the section `spool`.
pub(super) fn read_spool(
    reader: &mut ConfigReader,
    root: &ConfigTable<'_>,
    environment: &Environment,
) -> SpoolSettings {
    let mut spool = SpoolSettings {
        folder: environment.spool_folder(),
        max_bytes: DEFAULT_SPOOL_BYTES,
        min_free_percent: DEFAULT_MIN_FREE_PERCENT,
    };
    let Some(table) = root.get("spool").and_then(|node| reader.table("spool", node)) else { return spool };
    if let Some(folder) = table.filled_text(reader, "folder") {
        spool.folder = reader.resolve_path(&folder);
    }
    spool.max_bytes = table.parsed(reader, "max_bytes").unwrap_or(DEFAULT_SPOOL_BYTES);
    if spool.max_bytes < MIN_SPOOL_BYTES {
        let message = format!("max_bytes is {}; set {MIN_SPOOL_BYTES} or more", spool.max_bytes);
        reader.refuse(table.position_of("max_bytes"), message);
    }
    if let Some(text) = table.text(reader, "min_free") {
        let percent =
            text.strip_suffix('%').and_then(|percent| percent.parse().ok()).filter(|&percent| percent < 100);
        match percent {
            Some(percent) => spool.min_free_percent = percent,
            None => {
                let message = format!("min_free is {:?}; write a percentage from 0% to 99%", shorten(&text));
                reader.refuse(table.position_of("min_free"), message);
            }
        }
    }
    table.finish(reader);
    spool
}

/// Reads the section `receive`.
pub(super) fn read_receive(reader: &mut ConfigReader, root: &ConfigTable<'_>) -> ReceiveSettings {
    let mut receive = ReceiveSettings {
        listen_address: DEFAULT_RECEIVE_ADDRESS.parse().ok(),
        tenant: TenantRules { allows_header: true, label: None, fixed: None },
        labels: Labels::default(),
        adds_sender_labels: true,
    };
    let Some(table) = root.get("receive").and_then(|node| reader.table("receive", node)) else {
        return receive;
    };
    if let Some(address) = table.get("listen_address") {
        receive.listen_address = reader.parsed("listen_address", address);
    }
    if table.truth(reader, "enabled") == Some(false) {
        receive.listen_address = None;
    }
    receive.labels = table.labels(reader, "labels");
    receive.adds_sender_labels = table.truth(reader, "sender_labels").unwrap_or(true);
    if let Some(tenant) = table.get("tenant").and_then(|node| reader.table("tenant", node)) {
        receive.tenant.allows_header = tenant.truth(reader, "header").unwrap_or(true);
        receive.tenant.label = tenant.filled_text(reader, "label");
        receive.tenant.fixed = tenant.parsed(reader, "fixed");
        tenant.finish(reader);
    }
    table.finish(reader);
    receive
}

/// Reads the section `operator`, and returns the address of pages and metrics.
pub(super) fn read_operator(reader: &mut ConfigReader, root: &ConfigTable<'_>) -> SocketAddr {
    let default = SocketAddr::from(([127, 0, 0, 1], 4042));
    let Some(table) = root.get("operator").and_then(|node| reader.table("operator", node)) else {
        return default;
    };
    let address = table.parsed(reader, "listen_address");
    table.finish(reader);
    address.unwrap_or(default)
}

/// Reads `allowed_target_ranges`: addresses, with a prefix length or without.
pub(super) fn read_allowed_ranges(reader: &mut ConfigReader, root: &ConfigTable<'_>) -> Vec<String> {
    let mut ranges = Vec::new();
    let Some(node) = root.get("allowed_target_ranges") else { return ranges };
    for item in reader.list("allowed_target_ranges", node) {
        let Some(text) = reader.text("allowed_target_ranges", item) else { continue };
        if is_address_range(&text) {
            ranges.push(text);
        } else {
            let message =
                format!("{:?} is not a range of addresses; write for example 127.0.0.0/8", shorten(&text));
            reader.refuse(item.position, message);
        }
    }
    ranges
}

fn is_address_range(text: &str) -> bool {
    let (address, prefix) =
        text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let max = if address.is_ipv4() { 32 } else { 128 };
    prefix.is_none_or(|prefix| prefix.parse::<u8>().is_ok_and(|length| length <= max))
}
