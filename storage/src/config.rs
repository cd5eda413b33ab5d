//! Configuration of the bucket and of retries.

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
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// Configuration of the bucket: exactly one of `local`, `memory`, `s3`, `gcs`, `azure`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageConfig {
    /// Folder on this machine, created if missing. Example: `/var/lib/athanor/bucket`.
    pub local: Option<PathBuf>,
    /// Bucket in memory, lost when the process ends. For tests.
    pub memory: bool,
    /// Amazon S3, or a server with the same API.
    pub s3: Option<S3Config>,
    /// Bucket of Google Cloud Storage.
    pub gcs: Option<GcsConfig>,
    /// Container of Azure Blob Storage.
    pub azure: Option<AzureConfig>,
    /// Prefix of every key, for a bucket that is shared with other software. Example: `athanor/prod`.
    pub prefix: String,
    /// Upper bound of concurrent calls. Example: `64`.
    pub max_concurrent: u32,
    /// Upper bound of calls that wait for a permit; further calls are rejected. Example: `4096`.
    pub max_queued: u32,
    /// Timeouts, attempts and backoff of calls.
    pub retry: StorageRetryConfig,
}

/// Amazon S3, or a server with the same API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct S3Config {
    /// Name of the bucket.
    pub bucket: String,
    /// Address of the server, if it is not Amazon's. Example: `https://s3.internal:9000`.
    pub endpoint: Option<String>,
    /// Region of the bucket. Example: `eu-central-1`.
    pub region: Option<String>,
    /// Access key; without it, the machine's own credentials are used.
    pub access_key: Option<String>,
    /// Secret key that belongs to the access key.
    pub secret_key: Option<SecretString>,
    /// Allows connections without encryption, which endpoints beginning with `http:` need.
    pub allow_http: bool,
}

/// Bucket of Google Cloud Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GcsConfig {
    /// Name of the bucket.
    pub bucket: String,
    /// Key of a service account, as JSON; without it, the machine's own credentials are used.
    pub service_account_key: Option<SecretString>,
}

/// Container of Azure Blob Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AzureConfig {
    /// Name of the storage account.
    pub account: String,
    /// Name of the container.
    pub container: String,
    /// Access key of the account; without it, the machine's own credentials are used.
    pub access_key: Option<SecretString>,
}

/// Timeouts, attempts and backoff of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageRetryConfig {
    /// Upper bound of attempts per call. Example: `8`.
    pub max_attempts: u32,
    /// Timeout for one attempt. Example: `30s`.
    #[serde(with = "duration_text")]
    pub attempt_timeout: Duration,
    /// Timeout for a call with all its attempts and the pauses between them. The wait for a permit before the
    /// first attempt counts too. Example: `2m`.
    #[serde(with = "duration_text")]
    pub total_timeout: Duration,
    /// Maximum pause after the first failure; doubles with each failure. Example: `100ms`.
    #[serde(with = "duration_text")]
    pub min_backoff: Duration,
    /// Maximum pause after any failure. Example: `10s`.
    #[serde(with = "duration_text")]
    pub max_backoff: Duration,
}

/// Opened bucket with its properties.
pub(crate) struct OpenBucket {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Uploads in parts. Absent for a local folder, which writes an object to a temporary file instead.
    pub(crate) multipart: Option<MultipartBucket>,
    /// Set if the bucket lists keys in order. Folders do not.
    pub(crate) ordered: bool,
    /// Name and location of the bucket, for messages.
    pub(crate) name: Arc<str>,
    /// Setting that names the bucket, for messages.
    pub(crate) setting: &'static str,
    /// Set if the bucket belongs to a cloud vendor. Such a bucket is never created by this process.
    pub(crate) is_remote: bool,
}

/// Calls of a bucket that upload objects in parts.
#[derive(Clone)]
pub(crate) struct MultipartBucket {
    pub(crate) calls: Arc<dyn MultipartStore>,
    /// Prefix of every key in the bucket.
    prefix: Path,
}

impl MultipartBucket {
    pub(crate) fn new(calls: Arc<dyn MultipartStore>, prefix: &str) -> Self {
        Self { calls, prefix: Path::from(prefix) }
    }

    /// Returns the whole path of an object in the bucket.
    pub(crate) fn full_path(&self, location: &Path) -> Path {
        self.prefix.parts().chain(location.parts()).collect()
    }
}

/// Bucket as its vendor's client opens it, without a prefix.
struct VendorBucket {
    objects: Arc<dyn ObjectStore>,
    multipart: Option<Arc<dyn MultipartStore>>,
}

impl VendorBucket {
    fn new<B: ObjectStore + MultipartStore>(bucket: B) -> Self {
        let bucket = Arc::new(bucket);
        Self { multipart: Some(Arc::<B>::clone(&bucket)), objects: bucket }
    }
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
            max_queued: 4096,
            retry: StorageRetryConfig::default(),
        }
    }
}

impl Default for StorageRetryConfig {
    fn default() -> Self {
        Self {
            max_attempts: 8,
            attempt_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(120),
            min_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
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
                format!("{chosen} buckets are configured; set exactly one of local, memory, s3, gcs, azure");
            return Err(StoreError::Config { reason });
        }
        if self.max_concurrent == 0 || self.retry.max_attempts == 0 {
            let reason =
                "storage.max_concurrent and storage.retry.max_attempts must be at least 1".to_owned();
            return Err(StoreError::Config { reason });
        }
        let opened =
            self.open_vendor_bucket().map_err(|error| StoreError::Config { reason: error.to_string() })?;
        let ordered = self.local.is_none();
        let prefix = self.prefix.trim_matches('/');
        let multipart = opened.multipart.map(|calls| MultipartBucket::new(calls, prefix));
        let objects: Arc<dyn ObjectStore> = match prefix {
            "" => opened.objects,
            prefix => Arc::new(PrefixStore::new(opened.objects, prefix)),
        };
        let (name, setting) = self.bucket_name();
        let is_remote = self.local.is_none() && !self.memory;
        Ok(OpenBucket { objects, multipart, ordered, name, setting, is_remote })
    }

    /// Returns the bucket's name for messages and the setting that names it.
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

    fn open_vendor_bucket(&self) -> Result<VendorBucket, object_store::Error> {
        if let Some(path) = &self.local {
            // The file system store writes each object to a temporary file and syncs it. It then links the
            // file to its name, which fails if the name is taken, and syncs the folder. A successful write
            // therefore survives a power loss.
            std::fs::create_dir_all(path).map_err(|source| object_store::Error::Generic {
                store: "local folder",
                source: Box::new(source),
            })?;
            let folder = LocalFileSystem::new_with_prefix(path)?.with_fsync(true);
            return Ok(VendorBucket { objects: Arc::new(folder), multipart: None });
        }
        // Has no effect if the process has already installed a provider, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Some(s3) = &self.s3 {
            s3.open()
        } else if let Some(gcs) = &self.gcs {
            gcs.open()
        } else if let Some(azure) = &self.azure {
            azure.open()
        } else {
            Ok(VendorBucket::new(InMemory::new()))
        }
    }
}

impl S3Config {
    fn open(&self) -> Result<VendorBucket, object_store::Error> {
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
        Ok(VendorBucket::new(builder.build()?))
    }
}

impl GcsConfig {
    fn open(&self) -> Result<VendorBucket, object_store::Error> {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&self.bucket)
            .with_client_options(client_options(false))
            .with_retry(disabled_retries());
        if let Some(key) = &self.service_account_key {
            builder = builder.with_service_account_key(key.expose());
        }
        Ok(VendorBucket::new(builder.build()?))
    }
}

impl AzureConfig {
    fn open(&self) -> Result<VendorBucket, object_store::Error> {
        let mut builder = MicrosoftAzureBuilder::new()
            .with_account(&self.account)
            .with_container_name(&self.container)
            .with_client_options(client_options(false))
            .with_retry(disabled_retries());
        if let Some(key) = &self.access_key {
            builder = builder.with_access_key(key.expose());
        }
        Ok(VendorBucket::new(builder.build()?))
    }
}

/// Returns client options without timeouts. [`crate::retry`] enforces timeouts with the store's own clock.
fn client_options(allow_http: bool) -> ClientOptions {
    ClientOptions::new().with_allow_http(allow_http).with_timeout_disabled()
}

fn disabled_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}
