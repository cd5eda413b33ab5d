//! TLS settings of the client, built again if one of their files changed.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ALL_VERSIONS, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};

use super::client_secrets::{ClientSecrets, TlsSecrets};
use super::http_error::HttpClientError;
use crate::scrape_target::{HttpClientSettings, TlsVersion};

const HTTP1_PROTOCOL: &[u8] = b"http/1.1";

/// TLS configuration with the contents of the files that it was built from.
#[derive(Default)]
pub(super) struct TlsConfigCache {
    built: Mutex<Option<BuiltConfig>>,
}

struct BuiltConfig {
    inputs: TlsSecrets,
    config: Arc<ClientConfig>,
}

/// Result of [`TlsConfigCache::load`].
pub(super) struct LoadedConfig {
    /// Configuration.
    pub(super) config: Arc<ClientConfig>,
    /// True if the configuration differs from that of the request before.
    pub(super) is_new: bool,
}

/// Verifier that accepts each certificate and checks only that the server has its key.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl TlsConfigCache {
    /// Returns the configuration for the present contents of the files.
    pub(super) async fn load(&self, secrets: &ClientSecrets) -> Result<LoadedConfig, HttpClientError> {
        let inputs = secrets.tls().await?;
        let mut built = self.built.lock();
        if let Some(built) = &*built
            && built.inputs == inputs
        {
            return Ok(LoadedConfig { config: Arc::clone(&built.config), is_new: false });
        }
        let config = Arc::new(build_config(&inputs, secrets.settings())?);
        *built = Some(BuiltConfig { inputs, config: Arc::clone(&config) });
        Ok(LoadedConfig { config, is_new: true })
    }
}

fn build_config(inputs: &TlsSecrets, settings: &HttpClientSettings) -> Result<ClientConfig, HttpClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&protocol_versions(settings.only_tls_version))
        .map_err(tls_error)?;
    let builder = if settings.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate { provider }))
    } else {
        builder.with_root_certificates(root_certificates(inputs.ca.as_deref().map(Vec::as_slice))?)
    };
    let mut config = match (&inputs.cert, &inputs.key) {
        (Some(cert), Some(key)) => {
            let chain = parse_certificates("client certificate", cert)?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| tls_error(format!("failed to parse the client key: {error}")))?;
            builder.with_client_auth_cert(chain, key).map_err(tls_error)?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err(tls_error("a client certificate and its key are required together")),
    };
    config.alpn_protocols = vec![HTTP1_PROTOCOL.to_vec()];
    Ok(config)
}

fn protocol_versions(only: Option<TlsVersion>) -> Vec<&'static SupportedProtocolVersion> {
    match only {
        None => ALL_VERSIONS.to_vec(),
        Some(TlsVersion::Tls12) => vec![&TLS12],
        Some(TlsVersion::Tls13) => vec![&TLS13],
    }
}

/// Returns the configured certificates only, or else those of the system.
fn root_certificates(ca: Option<&[u8]>) -> Result<RootCertStore, HttpClientError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => {
            for certificate in parse_certificates("CA", ca)? {
                roots.add(certificate).map_err(tls_error)?;
            }
        }
        None => {
            // A certificate of the system that is not readable concerns only the servers that need it.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn parse_certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, HttpClientError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(tls_error(format!("{what} contains no certificate in PEM format")))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(tls_error(format!("failed to parse the {what}: {error}"))),
    }
}

fn tls_error(reason: impl ToString) -> HttpClientError {
    HttpClientError::TlsSettings { reason: reason.to_string() }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
