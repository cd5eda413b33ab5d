//! Connection to the Kubernetes API from a kubeconfig, a URL, or the service account of the pod.

use std::path::Path;
use std::time::Duration;

use athanor_chassis::{ComputePool, Timestamp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

use super::super::KubernetesDiscoverySettings;
use crate::scrape_target::{HttpClientSettings, Secret};

/// Time after which a file with a token is read again.
const TOKEN_FILE_INTERVAL: Duration = Duration::from_secs(60);

/// Connects as the settings say. Files and credentials are read again each time.
pub(super) async fn connect(
    settings: &KubernetesDiscoverySettings,
    pool: &ComputePool,
    now: Timestamp,
) -> Result<Client, String> {
    // The client takes the provider of the process. If there is one already, it stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = Handle::current();
    let settings = settings.clone();
    // Plugins that make credentials are processes that block the thread.
    let job = move || {
        let mut config = read_config(&settings, &runtime)?;
        // The reflector retries, and obeys the delays of the server.
        config.default_retry = false;
        let reads_token_file = replace_token_file(&mut config.auth_info)?;
        let _context = runtime.enter();
        let client = Client::try_from(config);
        let client = client.map_err(|error| format!("client cannot be created: {error}"))?;
        Ok(if reads_token_file { with_max_age(client, now, TOKEN_FILE_INTERVAL) } else { client })
    };
    pool.run(job).await.map_err(|error| error.to_string())?
}

/// Replaces the path of a token's file by the token, without the line break at its end. Returns whether there is one.
fn replace_token_file(user: &mut AuthInfo) -> Result<bool, String> {
    let Some(path) = user.token_file.take().filter(|_| user.token.is_none()) else { return Ok(false) };
    let token = read_secret("token", &Secret::File(path.into()))?;
    user.token = Some(token.trim().into());
    Ok(true)
}

/// Limits the time that a client is used.
fn with_max_age(client: Client, now: Timestamp, age: Duration) -> Client {
    let nanos = i128::from(now.nanos()).saturating_add_unsigned(age.as_nanos());
    let end = jiff::Timestamp::from_nanosecond(nanos).ok();
    let known = *client.valid_until();
    client.with_valid_until(known.into_iter().chain(end).min())
}

/// Returns the namespace of the pod that the agent runs in.
pub(super) fn own_namespace() -> Result<String, String> {
    Ok(in_cluster_config()?.default_namespace.trim().to_owned())
}

fn read_config(settings: &KubernetesDiscoverySettings, runtime: &Handle) -> Result<Config, String> {
    let (name, kubeconfig) = match (&settings.kubeconfig_file, &settings.api_server) {
        (Some(file), _) => (format!("kubeconfig_file {file}"), Kubeconfig::read_from(file)),
        (None, Some(url)) => {
            let kubeconfig = kubeconfig_of_url(url, &settings.http)?;
            (format!("api_server {url}"), Ok(kubeconfig))
        }
        (None, None) => return in_cluster_config(),
    };
    let describe = |error| format!("{name} cannot be used: {error}");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig.map_err(describe)?, &options);
    let mut config = runtime.block_on(config).map_err(describe)?;
    if settings.kubeconfig_file.is_none() {
        add_headers(&mut config, &settings.http)?;
    }
    Ok(config)
}

fn in_cluster_config() -> Result<Config, String> {
    Config::incluster().map_err(|error| {
        format!(
            "service account of the pod cannot be used: {error}; \
             outside a cluster, set kubeconfig_file or api_server"
        )
    })
}

/// Returns a kubeconfig with the settings of the HTTP client.
fn kubeconfig_of_url(url: &str, http: &HttpClientSettings) -> Result<Kubeconfig, String> {
    let mut cluster = Map::new();
    cluster.insert("server".to_owned(), json!(url));
    if http.insecure_skip_verify {
        cluster.insert("insecure-skip-tls-verify".to_owned(), json!(true));
    }
    cluster.extend(http.server_name.iter().map(|name| ("tls-server-name".to_owned(), json!(name))));
    insert_file_or_data(&mut cluster, "certificate-authority", &http.ca);
    let mut user = Map::new();
    insert_file_or_data(&mut user, "client-certificate", &http.cert);
    insert_file_or_data(&mut user, "client-key", &http.key);
    if let Some(name) = &http.username {
        user.insert("username".to_owned(), json!(read_secret("username", name)?));
        let password = http.password.as_ref().map(|secret| read_secret("password", secret)).transpose()?;
        user.insert("password".to_owned(), json!(password.unwrap_or_default()));
    }
    if let Some(credentials) = http.credentials.as_ref().filter(|_| is_bearer(http)) {
        let (key, value) = match credentials {
            Secret::File(path) => ("tokenFile", path_text(path)),
            Secret::Inline(token) => ("token", token.expose().trim().to_owned()),
        };
        user.insert(key.to_owned(), json!(value));
    }
    let kubeconfig = json!({
        "current-context": "api",
        "contexts": [{"name": "api", "context": {"cluster": "api", "user": "api"}}],
        "clusters": [{"name": "api", "cluster": cluster}],
        "users": [{"name": "api", "user": user}],
    });
    serde_json::from_value(kubeconfig).map_err(|error| format!("api_server {url} cannot be used: {error}"))
}

/// Inserts the path of a file, or the content of an inline secret as `…-data`.
fn insert_file_or_data(map: &mut Map<String, Value>, key: &str, secret: &Option<Secret>) {
    match secret {
        Some(Secret::File(path)) => drop(map.insert(key.to_owned(), json!(path_text(path)))),
        Some(Secret::Inline(pem)) => {
            map.insert(format!("{key}-data"), json!(STANDARD.encode(pem.expose())));
        }
        None => {}
    }
}

fn is_bearer(http: &HttpClientSettings) -> bool {
    http.authorization_type.is_empty() || http.authorization_type.eq_ignore_ascii_case("bearer")
}

/// Adds the headers of the settings, and credentials of a type other than `Bearer`.
fn add_headers(config: &mut Config, http: &HttpClientSettings) -> Result<(), String> {
    let mut headers = Vec::new();
    for (name, value) in &http.headers {
        headers.push((name.clone(), read_secret(name, value)?));
    }
    if let Some(credentials) = http.credentials.as_ref().filter(|_| !is_bearer(http)) {
        let value = read_secret("credentials", credentials)?;
        headers.push(("authorization".to_owned(), format!("{} {}", http.authorization_type, value.trim())));
    }
    for (name, value) in headers {
        let name: http::HeaderName =
            name.parse().map_err(|_| format!("{name:?} cannot be the name of a header"))?;
        let value = http::HeaderValue::from_str(&value);
        let mut value =
            value.map_err(|_| format!("value of header {name} has characters that no header may have"))?;
        value.set_sensitive(true);
        config.headers.push((name, value));
    }
    Ok(())
}

fn read_secret(name: &str, secret: &Secret) -> Result<String, String> {
    match secret {
        Secret::Inline(text) => Ok(text.expose().to_owned()),
        Secret::File(path) => {
            let text = std::fs::read_to_string(path);
            let text =
                text.map_err(|error| format!("{name} in {} cannot be read: {error}", path.display()))?;
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}
