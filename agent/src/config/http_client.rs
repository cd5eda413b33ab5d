//! Settings of HTTP clients: authentication, TLS and headers, with the keys of Prometheus.

use athanor_chassis::config::SecretString;

use super::error::{Position, shorten};
use super::reader::{ConfigReader, ConfigTable};
use crate::scrape_target::{HttpClientSettings, Secret, TlsVersion};

/// Type of credentials if none is set.
const DEFAULT_AUTHORIZATION_TYPE: &str = "Bearer";
/// Headers that the client sets itself.
const RESERVED_HEADERS: [&str; 15] = [
    "authorization",
    "host",
    "content-encoding",
    "content-length",
    "content-type",
    "user-agent",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "www-authenticate",
    "accept-encoding",
    "transfer-encoding",
    "upgrade",
    "te",
];
/// Keys of features that this client does not have.
const UNSUPPORTED_KEYS: [(&str, &str); 3] = [
    ("oauth2", "fetch the token with another program and set authorization.credentials_file"),
    ("proxy_url", "scrapes and discovery use no proxy; run an agent behind it"),
    ("proxy_connect_header", "scrapes and discovery use no proxy; remove the key"),
];
/// Deliveries use the proxy of the environment, except to this machine.
const PROXY_REMARK: &str = "proxy_from_environment is not supported; scrapes and discovery use no proxy, and deliveries \
always use that of HTTP_PROXY, HTTPS_PROXY and NO_PROXY; remove the key";

/// Returns the settings of a client without authentication.
pub(super) fn default_client() -> HttpClientSettings {
    HttpClientSettings {
        authorization_type: DEFAULT_AUTHORIZATION_TYPE.to_owned(),
        enable_http2: true,
        ..HttpClientSettings::default()
    }
}

/// Reads the keys of an HTTP client from the table of a job, a discovery mechanism or a server.
pub(super) fn read_http_client(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> HttpClientSettings {
    let mut client = default_client();
    read_authentication(reader, table, &mut client);
    if let Some(tls) = table.get("tls_config").and_then(|node| reader.table("tls_config", node)) {
        read_tls(reader, &tls, &mut client);
        tls.finish(reader);
    }
    read_headers(reader, table, &mut client);
    client.enable_http2 = table.truth(reader, "enable_http2").unwrap_or(true);
    table.ignore_all(reader, &["follow_redirects", "no_proxy"]);
    if table.truth(reader, "proxy_from_environment") == Some(true) {
        reader.refuse(table.position_of("proxy_from_environment"), PROXY_REMARK);
    }
    for (key, way_out) in UNSUPPORTED_KEYS {
        if table.get(key).is_some() {
            reader.refuse(table.position_of(key), format!("{key} is not supported; {way_out}"));
        }
    }
    client
}

fn read_authentication(reader: &mut ConfigReader, table: &ConfigTable<'_>, client: &mut HttpClientSettings) {
    let token = read_secret(reader, table, "bearer_token", "bearer_token_file");
    let mut ways = usize::from(token.is_some());
    client.credentials = token;
    if let Some(basic) = table.get("basic_auth").and_then(|node| reader.table("basic_auth", node)) {
        ways += 1;
        client.username = table_username(reader, &basic);
        client.password = read_secret(reader, &basic, "password", "password_file");
        refuse_references(reader, &basic, &["username_ref", "password_ref"]);
        basic.finish(reader);
    }
    if let Some(authorization) =
        table.get("authorization").and_then(|node| reader.table("authorization", node))
    {
        ways += 1;
        let kind = authorization.text(reader, "type").map(|kind| kind.trim().to_owned());
        let kind = kind.filter(|kind| !kind.is_empty());
        client.authorization_type = kind.unwrap_or_else(|| DEFAULT_AUTHORIZATION_TYPE.to_owned());
        if client.authorization_type.eq_ignore_ascii_case("basic") {
            reader.refuse(
                authorization.position_of("type"),
                "authorization.type is basic; use basic_auth with username and password",
            );
        }
        client.credentials = read_secret(reader, &authorization, "credentials", "credentials_file");
        refuse_references(reader, &authorization, &["credentials_ref"]);
        authorization.finish(reader);
    }
    if ways > 1 {
        reader.refuse(
            table.position,
            "several of basic_auth, authorization, bearer_token and bearer_token_file are set; keep one",
        );
    }
}

fn table_username(reader: &mut ConfigReader, basic: &ConfigTable<'_>) -> Option<Secret> {
    let username = read_secret(reader, basic, "username", "username_file");
    Some(username.unwrap_or_else(|| Secret::Inline(SecretString::default())))
}

fn read_tls(reader: &mut ConfigReader, tls: &ConfigTable<'_>, client: &mut HttpClientSettings) {
    client.ca = read_secret(reader, tls, "ca", "ca_file");
    client.cert = read_secret(reader, tls, "cert", "cert_file");
    client.key = read_secret(reader, tls, "key", "key_file");
    refuse_references(reader, tls, &["ca_ref", "cert_ref", "key_ref"]);
    client.server_name = tls.filled_text(reader, "server_name");
    client.insecure_skip_verify = tls.truth(reader, "insecure_skip_verify").unwrap_or(false);
    if client.cert.is_some() != client.key.is_some() {
        reader.refuse(
            tls.position,
            "tls_config has a client certificate without its key, or a key without its certificate; set cert_file \
             and key_file",
        );
    }
    client.only_tls_version = read_tls_version(reader, tls);
}

/// Reads the bounds of the version of TLS. The client has 1.2 and 1.3, so lower minimums mean 1.2.
fn read_tls_version(reader: &mut ConfigReader, tls: &ConfigTable<'_>) -> Option<TlsVersion> {
    let min = tls.filled_text(reader, "min_version");
    let max = tls.filled_text(reader, "max_version");
    let needs_13 = match min.as_deref() {
        None | Some("TLS10" | "TLS11" | "TLS12") => false,
        Some("TLS13") => true,
        Some(other) => {
            let message = format!("min_version is {:?}; use TLS10, TLS11, TLS12 or TLS13", shorten(other));
            reader.refuse(tls.position_of("min_version"), message);
            false
        }
    };
    let forbids_13 = match max.as_deref() {
        None | Some("TLS13") => false,
        Some("TLS12") => true,
        Some(other) => {
            let message = format!("max_version is {:?}; use TLS12 or TLS13", shorten(other));
            reader.refuse(tls.position_of("max_version"), message);
            false
        }
    };
    match (needs_13, forbids_13) {
        (true, true) => {
            reader.refuse(tls.position_of("max_version"), "max_version is below min_version; remove one");
            None
        }
        (true, false) => Some(TlsVersion::Tls13),
        (false, true) => Some(TlsVersion::Tls12),
        (false, false) => None,
    }
}

/// Refuses to restrict the version of TLS, for clients that cannot.
pub(super) fn refuse_tls_version(
    reader: &mut ConfigReader,
    table: &ConfigTable<'_>,
    client: &HttpClientSettings,
) {
    if client.only_tls_version.is_some() {
        let message = format!(
            "min_version and max_version of {} are not supported, TLS 1.2 and 1.3 are used; remove them",
            table.name
        );
        reader.refuse(table.position_of("tls_config"), message);
    }
}

fn read_headers(reader: &mut ConfigReader, table: &ConfigTable<'_>, client: &mut HttpClientSettings) {
    let Some(headers) = table.get("http_headers").and_then(|node| reader.table("http_headers", node)) else {
        return;
    };
    for entry in headers.entries() {
        let name = entry.key.to_ascii_lowercase();
        if RESERVED_HEADERS.contains(&name.as_str()) || !is_header_name(&name) {
            let message = format!("header {:?} cannot be set; use another name", shorten(&name));
            reader.refuse(entry.key_position, message);
        }
        let Some(header) = reader.table("http_headers", &entry.node) else { continue };
        let values = header.texts(reader, "values");
        let secrets = header.texts(reader, "secrets");
        let inline = values.into_iter().chain(secrets).map(|text| Secret::Inline(SecretString::new(text)));
        client.headers.extend(inline.map(|secret| (entry.key.clone(), secret)));
        for file in header.texts(reader, "files") {
            client.headers.push((entry.key.clone(), Secret::File(reader.resolve_path(&file))));
        }
        header.finish(reader);
    }
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Reads a secret from one of two keys: its text, or the file that contains it.
pub(super) fn read_secret(
    reader: &mut ConfigReader,
    table: &ConfigTable<'_>,
    key: &'static str,
    file_key: &'static str,
) -> Option<Secret> {
    let text = table.filled_text(reader, key);
    let file = table.filled_text(reader, file_key);
    if text.is_some() && file.is_some() {
        refuse_both(reader, table.position_of(file_key), key, file_key);
    }
    match (text, file) {
        (_, Some(file)) => Some(Secret::File(reader.resolve_path(&file))),
        (Some(text), None) => Some(Secret::Inline(SecretString::new(text))),
        (None, None) => None,
    }
}

fn refuse_both(reader: &mut ConfigReader, position: Position, key: &str, file_key: &str) {
    reader.refuse(position, format!("both {key} and {file_key} are set; keep one"));
}

/// Refuses names of secrets in a secret manager.
fn refuse_references(reader: &mut ConfigReader, table: &ConfigTable<'_>, keys: &[&'static str]) {
    for key in keys {
        if table.filled_text(reader, key).is_some() {
            let key_file = key.replace("_ref", "_file");
            reader.refuse(
                table.position_of(key),
                format!("{key} needs a secret manager, which the agent does not have; use {key_file}"),
            );
        }
    }
}
