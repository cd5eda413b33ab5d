//! Credentials of a kubeconfig: client certificates, plugins and token files.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, Timestamp};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use crate::discovery_run::DiscoveryRun;
use crate::samples::pod;
use crate::stand_in::{ApiSettings, ApiStandIn};

/// Authority that signs the certificates of server and client.
struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl TestAuthority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// Returns certificate and key of a name.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Returns an acceptor that requires a client certificate of this authority.
    fn acceptor(&self) -> TlsAcceptor {
        let (cert, key) = self.issue("127.0.0.1");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.issuer.pem().as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            );
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }
}

/// Writes a kubeconfig and returns the section that refers to it.
fn write_kubeconfig(folder: &Path, cluster: &Value, user: &Value) -> String {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
    });
    let file = folder.join("kubeconfig");
    fs::write(&file, kubeconfig.to_string()).unwrap();
    format!("{{role: pod, kubeconfig_file: '{}'}}", file.display())
}

/// Checks that the discoverer finds a pod, and a change after the server requires other credentials.
async fn check_renewal(api: &ApiStandIn, section: &str, renew: impl FnOnce()) {
    api.require_authorization("Bearer first");
    api.apply(pod("cart-1", "node-a", 0));
    let mut run = DiscoveryRun::start(section);
    run.next().await;
    assert_eq!(run.targets.len(), 1);
    api.require_authorization("Bearer second");
    api.end_watches();
    run.wait_until("rejected credentials", |status| status.problems().concat().contains("401")).await;
    renew();
    api.apply(pod("cart-1", "node-a", 1));
    run.wait_for_text("revision=\"1\"").await;
    assert_eq!(run.removed.len(), 0);
}

#[tokio::test]
async fn client_certificate_of_a_kubeconfig_is_presented() {
    let authority = TestAuthority::new();
    let settings = ApiSettings { tls: Some(authority.acceptor()), ..ApiSettings::default() };
    let api = ApiStandIn::start(settings).await;
    api.apply(pod("cart-1", "node-a", 0));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (cert, key) = authority.issue("agent");
    fs::write(path("ca.pem"), authority.issuer.pem()).unwrap();
    fs::write(path("cert.pem"), cert).unwrap();
    fs::write(path("key.pem"), key).unwrap();
    let cluster =
        json!({"server": format!("https://{}", api.address), "certificate-authority": path("ca.pem")});
    let user = json!({"client-certificate": path("cert.pem"), "client-key": path("key.pem")});
    let mut run = DiscoveryRun::start(&write_kubeconfig(folder.path(), &cluster, &user));
    run.next().await;
    assert_eq!(run.targets.len(), 1);
    api.apply(pod("cart-1", "node-a", 1));
    run.wait_for_text("revision=\"1\"").await;

    let anonymous = DiscoveryRun::start(&write_kubeconfig(folder.path(), &cluster, &json!({})));
    anonymous.wait_until("rejected connection", |status| status.failures() > 0).await;
    assert_eq!(anonymous.targets.len(), 0);
}

#[tokio::test]
async fn plugin_of_a_kubeconfig_is_run_for_new_credentials() {
    let api = ApiStandIn::start(ApiSettings::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials.json");
    let write_token = |token: &str| {
        let api_version = "client.authentication.k8s.io/v1";
        let credentials =
            json!({"apiVersion": api_version, "kind": "ExecCredential", "status": {"token": token}});
        fs::write(&file, credentials.to_string()).unwrap();
    };
    write_token("first");
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "cat", "args": [file.display().to_string()],
    });
    let cluster = json!({"server": api.url()});
    let section = write_kubeconfig(folder.path(), &cluster, &json!({"exec": exec}));
    check_renewal(&api, &section, || write_token("second")).await;
}

#[tokio::test]
async fn token_file_is_read_for_new_credentials() {
    let api = ApiStandIn::start(ApiSettings::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "first\n").unwrap();
    let url = api.url();
    let section = format!("{{role: pod, api_server: '{url}', bearer_token_file: '{}'}}", file.display());
    check_renewal(&api, &section, || fs::write(&file, "second\n").unwrap()).await;
}

#[tokio::test]
async fn token_file_of_a_kubeconfig_is_read_every_minute() {
    let api = ApiStandIn::start(ApiSettings::default()).await;
    api.require_authorization("Bearer first");
    api.apply(pod("cart-1", "node-a", 0));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "first\n").unwrap();
    let user = json!({"tokenFile": file.display().to_string()});
    let section = write_kubeconfig(folder.path(), &json!({"server": api.url()}), &user);
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let mut run = DiscoveryRun::start_with(&section, None, clock);
    run.next().await;
    // The change is seen, so the watch has begun with the first token.
    api.apply(pod("cart-1", "node-a", 1));
    run.wait_for_text("revision=\"1\"").await;
    fs::write(&file, "second\n").unwrap();
    api.require_authorization("Bearer second");
    hand.advance(Duration::from_secs(61));
    api.end_watches();
    api.apply(pod("cart-1", "node-a", 2));
    run.wait_for_text("revision=\"2\"").await;
    assert_eq!((run.status.failures(), run.removed.len()), (0, 0));
}
