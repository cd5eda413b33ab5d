//! Secrets of one client: credentials, headers and certificates, from the configuration or from files.

use std::sync::Arc;

use athanor_chassis::config::SecretString;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};

use super::credentials;
use super::http_error::HttpClientError;
use super::secret_files::SecretFiles;
use crate::scrape_target::{HttpClientSettings, Secret};

/// Settings of a client with the contents of the files that they name. A changed file is read again.
pub struct ClientSecrets {
    settings: HttpClientSettings,
    files: SecretFiles,
}

/// Certificates and key of TLS connections, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsSecrets {
    /// Certificates that sign those of servers.
    pub ca: Option<Arc<Vec<u8>>>,
    /// Certificate of the client.
    pub cert: Option<Arc<Vec<u8>>>,
    /// Key of the client certificate.
    pub key: Option<Arc<Vec<u8>>>,
}

impl ClientSecrets {
    /// Creates the secrets of a client. Reads no file.
    pub fn new(settings: HttpClientSettings) -> Self {
        Self { settings, files: SecretFiles::default() }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &HttpClientSettings {
        &self.settings
    }

    /// Returns the configured headers and the credentials. Those before `@` in the authority are used if the
    /// settings have none.
    ///
    /// # Errors
    ///
    /// A file is not readable, or a value contains characters that no header may contain.
    pub async fn headers(&self, authority: &str) -> Result<HeaderMap, HttpClientError> {
        let mut headers = HeaderMap::new();
        for (name, secret) in &self.settings.headers {
            let value = self.files.read_text(secret).await?;
            let name: HeaderName = name.parse().map_err(HttpClientError::invalid_request)?;
            headers.append(name, credentials::secret_header(&value)?);
        }
        if let Some(value) = self.authorization(authority).await? {
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    /// Returns the certificates and the key.
    ///
    /// # Errors
    ///
    /// A file is not readable.
    pub async fn tls(&self) -> Result<TlsSecrets, HttpClientError> {
        let HttpClientSettings { ca, cert, key, .. } = &self.settings;
        Ok(TlsSecrets {
            ca: self.read(ca.as_ref()).await?,
            cert: self.read(cert.as_ref()).await?,
            key: self.read(key.as_ref()).await?,
        })
    }

    async fn read(&self, secret: Option<&Secret>) -> Result<Option<Arc<Vec<u8>>>, HttpClientError> {
        match secret {
            Some(secret) => self.files.read_bytes(secret).await.map(Some),
            None => Ok(None),
        }
    }

    async fn authorization(&self, authority: &str) -> Result<Option<HeaderValue>, HttpClientError> {
        let settings = &self.settings;
        let secrets = &self.files;
        if let Some(secret) = &settings.credentials {
            let credentials = secrets.read_text(secret).await?;
            return credentials::authorization_header(&settings.authorization_type, &credentials).map(Some);
        }
        if settings.username.is_some() || settings.password.is_some() {
            let password = match &settings.password {
                Some(secret) => secrets.read_text(secret).await?,
                None => SecretString::default(),
            };
            let username = match &settings.username {
                Some(secret) => secrets.read_text(secret).await?,
                None => SecretString::default(),
            };
            return credentials::basic_header(username.expose(), &password).map(Some);
        }
        match authority.rsplit_once('@') {
            Some((user_info, _)) => credentials::url_header(user_info).map(Some),
            None => Ok(None),
        }
    }
}
