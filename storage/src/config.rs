//! Which bucket, and how patient to be with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::config::SecretString;
use athanor_chassis::units::duration_text;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// Which bucket: exactly one of `local`, `memory`, `s3`, `gcs`, `azure`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageConfig {
    /// A folder of this machine; made if need be. Example: `/var/lib/athanor/bucket`.
    pub local: Option<PathBuf>,
    /// Nothing outlives the process. For tests.
    pub memory: bool,
    /// Amazon S3, or a server that speaks its protocol.
    pub s3: Option<S3Config>,
    /// Google Cloud Storage.
    pub gcs: Option<GcsConfig>,
    /// Azure Blob Storage.
    pub azure: Option<AzureConfig>,
    /// Put before every key, for buckets that are shared with others. Example: `athanor/prod`.
    pub prefix: String,
    /// The most calls under way at once. Example: `64`.
    pub max_concurrent: u32,
    /// The most calls that wait for one of those to end; more are refused. Example: `4096`.
    pub max_waiting: u32,
    /// How long and how often calls are tried.
    pub patience: StorageRetryConfig,
}

/// Amazon S3, or a server that speaks its protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct S3Config {
    /// The bucket.
    pub bucket: String,
    /// Where the server is, if it is not Amazon's. Example: `https://s3.internal:9000`.
    pub endpoint: Option<String>,
    /// The region. Example: `eu-central-1`.
    pub region: Option<String>,
    /// The access key; without it, the machine's own credentials are used.
    pub access_key: Option<String>,
    /// The secret that belongs to the access key.
    pub secret_key: Option<SecretString>,
    /// Whether to speak without encryption, which endpoints beginning with `http:` need.
    pub allow_http: bool,
}

/// Google Cloud Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GcsConfig {
    /// The bucket.
    pub bucket: String,
    /// The key of a service account, as JSON; without it, the machine's own credentials are used.
    pub service_account_key: Option<SecretString>,
}

/// Azure Blob Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AzureConfig {
    /// The storage account.
    pub account: String,
    /// The container.
    pub container: String,
    /// The account's key; without it, the machine's own credentials are used.
    pub access_key: Option<SecretString>,
}

/// How long and how often calls are tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageRetryConfig {
    /// The most attempts at one call. Example: `8`.
    pub attempts: u32,
    /// How long one attempt may take. Example: `30s`.
    #[serde(with = "duration_text")]
    pub attempt_timeout: Duration,
    /// How long a call may take with all its attempts and the wait before the first. Example: `2m`.
    #[serde(with = "duration_text")]
    pub total_timeout: Duration,
    /// The longest wait after the first failure; it doubles with each. Example: `100ms`.
    #[serde(with = "duration_text")]
    pub backoff_first: Duration,
    /// The longest wait after any failure. Example: `10s`.
    #[serde(with = "duration_text")]
    pub backoff_most: Duration,
}

/// A bucket, opened.
pub(crate) struct OpenBucket {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Whether it lists keys in order. Folders do not.
    pub(crate) ordered: bool,
    /// Its name and where it is, for messages.
    pub(crate) name: Arc<str>,
    /// The setting that names it.
    pub(crate) setting: &'static str,
    /// Whether it is a vendor's, who makes no bucket by itself.
    pub(crate) is_remote: bool,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            local: None,
            memory: false,
            s3: None,
            gcs: None,
            azure: None,
            prefix: String::new(),
            max_concurrent: 64,
            max_waiting: 4096,
            patience: StorageRetryConfig::default(),
        }
    }
}

impl Default for StorageRetryConfig {
    fn default() -> Self {
        Self {
            attempts: 8,
            attempt_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(120),
            backoff_first: Duration::from_millis(100),
            backoff_most: Duration::from_secs(10),
        }
    }
}

impl StorageConfig {
    pub(crate) fn open_bucket(&self) -> Result<OpenBucket, StoreError> {
        let chosen =
            [self.local.is_some(), self.memory, self.s3.is_some(), self.gcs.is_some(), self.azure.is_some()];
        let chosen = chosen.into_iter().filter(|chosen| *chosen).count();
        if chosen != 1 {
            let reason =
                format!("{chosen} buckets are given; give exactly one of local, memory, s3, gcs, azure");
            return Err(StoreError::Config { reason });
        }
        if self.max_concurrent == 0 || self.patience.attempts == 0 {
            let reason = "max_concurrent and patience.attempts must be at least 1".to_owned();
            return Err(StoreError::Config { reason });
        }
        let opened =
            self.open_object_store().map_err(|error| StoreError::Config { reason: error.to_string() })?;
        let ordered = self.local.is_none();
        let objects: Arc<dyn ObjectStore> = match self.prefix.trim_matches('/') {
            "" => opened,
            prefix => Arc::new(PrefixStore::new(opened, prefix)),
        };
        let (name, setting) = self.bucket_name();
        let is_remote = self.local.is_none() && !self.memory;
        Ok(OpenBucket { objects, ordered, name, setting, is_remote })
    }

    /// The bucket as messages name it, and the setting that does.
    fn bucket_name(&self) -> (Arc<str>, &'static str) {
        if let Some(s3) = &self.s3 {
            let region = || format!("Amazon S3, region {}", s3.region.as_deref().unwrap_or("us-east-1"));
            let place = s3.endpoint.clone().unwrap_or_else(region);
            (format!("bucket {:?} at {place}", s3.bucket).into(), "storage.s3.bucket")
        } else if let Some(gcs) = &self.gcs {
            (format!("bucket {:?} of Google Cloud Storage", gcs.bucket).into(), "storage.gcs.bucket")
        } else if let Some(azure) = &self.azure {
            let account = &azure.account;
            let container = &azure.container;
            let name = format!("container {container:?} of the storage account {account:?}");
            (name.into(), "storage.azure.container")
        } else if let Some(folder) = &self.local {
            (format!("folder {}", folder.display()).into(), "storage.local")
        } else {
            ("bucket in memory".into(), "storage.memory")
        }
    }

    fn open_object_store(&self) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
        if let Some(path) = &self.local {
            // Each object is written beside its name, synced, linked to it (which fails if the name is taken), and
            // the folder synced: an answer means that it outlives a loss of power.
            std::fs::create_dir_all(path).map_err(|source| object_store::Error::Generic {
                store: "local folder",
                source: Box::new(source),
            })?;
            return Ok(Arc::new(LocalFileSystem::new_with_prefix(path)?.with_fsync(true)));
        }
        // Loses against a provider that the process has installed before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Some(s3) = &self.s3 {
            s3.open()
        } else if let Some(gcs) = &self.gcs {
            gcs.open()
        } else if let Some(azure) = &self.azure {
            azure.open()
        } else {
            Ok(Arc::new(InMemory::new()))
        }
    }
}

impl S3Config {
    fn open(&self) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_client_options(client_options(self.allow_http))
            .with_retry(disabled_retries());
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(false);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(key) = &self.access_key {
            builder = builder.with_access_key_id(key);
        }
        if let Some(secret) = &self.secret_key {
            builder = builder.with_secret_access_key(secret.expose());
        }
        Ok(Arc::new(builder.build()?))
    }
}

impl GcsConfig {
    fn open(&self) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&self.bucket)
            .with_client_options(client_options(false))
            .with_retry(disabled_retries());
        if let Some(key) = &self.service_account_key {
            builder = builder.with_service_account_key(key.expose());
        }
        Ok(Arc::new(builder.build()?))
    }
}

impl AzureConfig {
    fn open(&self) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
        let mut builder = MicrosoftAzureBuilder::new()
            .with_account(&self.account)
            .with_container_name(&self.container)
            .with_client_options(client_options(false))
            .with_retry(disabled_retries());
        if let Some(key) = &self.access_key {
            builder = builder.with_access_key(key.expose());
        }
        Ok(Arc::new(builder.build()?))
    }
}

/// Deadlines are kept by [`crate::attempts`], by the clock that the store was given.
fn client_options(allow_http: bool) -> ClientOptions {
    ClientOptions::new().with_allow_http(allow_http).with_timeout_disabled()
}

fn disabled_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}
