//! Mutual TLS between nodes, if certificates are configured. Both sides present a certificate of a shared
//! authority.
//!
//! ```text
//!  files ─► TlsContext, replaced as a whole on change ─┬─► TlsNet::connect   client side
//!                                                      └─► TlsNet::listen    server side
//! ```
//! A certificate proves that a peer is a node, but not which one. Addresses come from gossip, so names in
//! certificates are not compared with them. As without TLS, the handshake identifies the node and its
//! cluster, and the cluster secret is required too.
//!
//! An open connection keeps the certificates with which it was opened. Sessions are never resumed, so a peer
//! presents its certificate on each connection.

mod stream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::net::{NetListener, NetStream};
use athanor_chassis::{Clock, ErrorCode, ErrorCodeExt, Net};
use parking_lot::RwLock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use stream::LazyTlsStream;

/// Contents of the three certificate files, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFiles {
    /// Certificate of this node and the intermediate certificates up to its authority.
    pub certificate: Vec<u8>,
    /// Authorities of the certificates that identify nodes.
    pub key: Vec<u8>,
    /// Authorities whose certificates identify nodes.
    pub authorities: Vec<u8>,
}

/// Rejection of certificate files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not valid PEM, or holds no certificate.
    #[error("cluster.tls.{setting}: {cause}; the file must be PEM, as openssl writes it")]
    Pem {
        /// Setting that names the file.
        setting: &'static str,
        /// Cause of the rejection.
        cause: String,
    },
    /// The files do not fit together, or the certificate is outside its validity period.
    #[error(
        "cluster.tls: {cause}; the key must match the certificate, and the certificate must be valid now"
    )]
    Unfit {
        /// Cause of the rejection.
        cause: String,
    },
}

impl ErrorCodeExt for TlsError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}

/// Certificates in force. Cheap to clone: clones change together.
#[derive(Clone)]
pub struct TlsContext {
    held: Arc<RwLock<ActiveTls>>,
}

#[derive(Clone)]
struct ActiveTls {
    pems: PemFiles,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// Network that wraps each stream in TLS.
pub struct TlsNet {
    inner: Arc<dyn Net>,
    tls: TlsContext,
    clock: Clock,
}

struct TlsListener {
    inner: Box<dyn NetListener>,
    tls: TlsContext,
}

/// Verifier that accepts any certificate of an authority and ignores the names in it.
#[derive(Debug)]
struct AnyNodeVerifier(Arc<WebPkiServerVerifier>);

// === impl TlsContext ===

impl TlsContext {
    /// Parses the files and checks that they fit together.
    pub fn load(pems: PemFiles) -> Result<Self, TlsError> {
        Ok(Self { held: Arc::new(RwLock::new(ActiveTls::load(pems)?)) })
    }

    /// Replaces the certificates for new connections. Returns false if the files are unchanged. If the files
    /// are invalid, the previous certificates stay in force.
    pub fn replace(&self, pems: PemFiles) -> Result<bool, TlsError> {
        if self.held().pems == pems {
            return Ok(false);
        }
        let held = ActiveTls::load(pems)?;
        *self.held.write() = held;
        Ok(true)
    }

    fn held(&self) -> ActiveTls {
        self.held.read().clone()
    }
}

impl ActiveTls {
    fn load(pems: PemFiles) -> Result<Self, TlsError> {
        let unfit = |cause: String| TlsError::Unfit { cause };
        let chain = certificates("cert_file", &pems.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&pems.key)
            .map_err(|error| TlsError::Pem { setting: "key_file", cause: error.to_string() })?;
        let mut roots = RootCertStore::empty();
        for authority in certificates("ca_file", &pems.authorities)? {
            let added = roots.add(authority);
            added.map_err(|error| TlsError::Pem { setting: "ca_file", cause: error.to_string() })?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let clients = clients.build().map_err(|error| unfit(error.to_string()))?;
        // A certificate outside its validity period must not replace one that peers accept. Other errors are
        // ignored, since peers may trust authorities that this node does not list.
        if let [own, between @ ..] = &chain[..]
            && let Err(error) = clients.verify_client_cert(own, between, UnixTime::now())
            && is_outside_validity(&error)
        {
            return Err(unfit(error.to_string()));
        }
        let servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let servers = servers.build().map_err(|error| unfit(error.to_string()))?;
        let failed = |error: Error| unfit(error.to_string());
        let server = ServerConfig::builder_with_provider(Arc::<CryptoProvider>::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(failed)?;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyNodeVerifier(servers)))
            .with_client_auth_cert(chain, key)
            .map_err(failed)?;
        client.resumption = Resumption::disabled();
        let mut server = server;
        server.send_tls13_tickets = 0;
        Ok(Self { pems, server: Arc::new(server), client: Arc::new(client) })
    }
}

fn is_outside_validity(error: &Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let Error::InvalidCertificate(why) = error else { return false };
    matches!(why, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

fn certificates(setting: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |cause: String| TlsError::Pem { setting, cause };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| bad(error.to_string()))?;
    if all.is_empty() { Err(bad("no certificate in the file".to_owned())) } else { Ok(all) }
}

// === impl TlsNet ===

impl TlsNet {
    /// Creates a TLS network over another network.
    pub fn new(inner: Arc<dyn Net>, tls: TlsContext, clock: Clock) -> Self {
        Self { inner, tls, clock }
    }
}

#[async_trait]
impl Net for TlsNet {
    async fn listen(&self, at: SocketAddr) -> io::Result<Box<dyn NetListener>> {
        let inner = self.inner.listen(at).await?;
        Ok(Box::new(TlsListener { inner, tls: self.tls.clone() }))
    }

    async fn connect(&self, to: SocketAddr, limit: Duration) -> io::Result<NetStream> {
        let until = self.clock.monotonic() + limit;
        let stream = self.inner.connect(to, limit).await?;
        let connector = TlsConnector::from(self.tls.held().client);
        let left = until.saturating_sub(self.clock.monotonic());
        match self.clock.timeout(left, connector.connect(ServerName::from(to.ip()), stream)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => {
                let message =
                    format!("TLS handshake failed: {error}; set cluster.tls on all nodes, or on none");
                Err(io::Error::new(error.kind(), message))
            }
            Err(late) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("TLS handshake: {late}"))),
        }
    }

    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.inner.resolve(name).await
    }
}

impl NetListener for TlsListener {
    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }

    /// Accepts a stream without waiting for its TLS handshake, so that a slow peer does not delay others.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(NetStream, SocketAddr)>> {
        let (stream, from) = ready!(self.inner.poll_accept(context))?;
        let agreeing = TlsAcceptor::from(self.tls.held().server).accept(stream);
        Poll::Ready(Ok((Box::new(LazyTlsStream::new(agreeing, from)), from)))
    }
}

// === impl AnyNodeVerifier ===

impl ServerCertVerifier for AnyNodeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The verifier checks names last, so all other checks have passed.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
