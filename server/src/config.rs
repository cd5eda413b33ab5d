//! Settings of a server. Every setting has a default.

mod cluster;
mod late_profiles;
mod metastore;
mod target;

use std::path::PathBuf;
use std::time::Duration;

use athanor_chassis::observability::telemetry::TelemetryConfig;
use athanor_chassis::units::{duration_text, format_duration};
use athanor_chassis::{ByteSize, ErrorCode, ErrorCodeExt, LimitOverrides, TenantLimits};
use athanor_storage::UploadLimits;
use serde::{Deserialize, Serialize};

pub use cluster::{ClusterConfig, ClusterJoinConfig, ClusterTlsConfig, ClusterTlsFiles};
pub use late_profiles::find_late_profile_error;
pub use metastore::MetastoreConfig;
pub use target::TargetRoles;

/// Root of all settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Roles of this process: `all`, or a comma-separated list of compactor, distributor, ingester, metastore,
    /// querier and store-gateway. Example: `ingester`.
    pub target: TargetRoles,
    /// Address for clients. Example: `0.0.0.0:4040`.
    pub http_listen_address: String,
    /// Data folder of this node. Example: `/var/lib/athanor`.
    pub data_dir: PathBuf,
    /// File with the token for administration pages: `/config`, `/shards`, `/members`, `/compaction` and
    /// `/debug/pprof/profile`. Without a token, only a server that listens on loopback alone serves them.
    /// Example: `/etc/athanor/admin-token`.
    pub admin_token_file: Option<PathBuf>,
    /// Host names of this server beside `localhost`. A server that listens on loopback alone rejects all
    /// other host names. Web pages of these hosts may send profiles to it. Example: `[profiles.example.com]`.
    pub allowed_hosts: Vec<String>,
    /// Enables tenants, named by the X-Scope-OrgID header. If disabled, all data belongs to tenant
    /// `anonymous`.
    pub multitenancy_enabled: bool,
    /// Memory budget for all request bodies. With several tenants, one tenant has at most half of it.
    /// Example: `512MiB`.
    pub max_inflight_request_bytes: ByteSize,
    /// Maximum open connections. The default is three quarters of the process's open-file limit. It is less
    /// if that leaves fewer than 48 files to the server. Example: `2000`.
    pub max_connections: Option<u32>,
    /// Maximum concurrent requests over all connections. A request counts until its response is sent. A
    /// connection with many open requests is rejected first. Example: `16384`.
    pub max_requests: u32,
    /// Time after SIGTERM during which the server still serves requests while `/ready` returns 503. Load
    /// balancers then switch to other servers. It is a part of `shutdown_timeout`. Another signal ends it,
    /// and Ctrl-C skips it. Example: `2s`.
    #[serde(with = "duration_text")]
    pub shutdown_delay: Duration,
    /// Longest duration of a shutdown, from the signal on. The node transfers its leaderships and finishes
    /// its requests; a single-node server flushes its memory. After seven tenths, the server aborts open
    /// requests. Unflushed data stays in the log. Example: `10s`.
    #[serde(with = "duration_text")]
    pub shutdown_timeout: Duration,
    /// Retention period of rows. Their age counts from the later of their data's time and the time they were
    /// stored. 0s keeps them for ever. Example: `31d`.
    #[serde(with = "duration_text")]
    pub retention_period: Duration,
    /// Largest share of rows with equal retention that expires per hour, in percent of the parts of blocks. It
    /// limits the harm of a wrong clock or setting. Rows that expire at an even pace are always removed. `athanor retention apply`
    /// removes the rest at once. Example: `5`.
    pub max_expired_percent: u8,
    /// Time that the objects of expired blocks stay in the bucket. During it, `athanor retention restore`
    /// restores them. At least 30m. Example: `12h`.
    #[serde(with = "duration_text")]
    pub deletion_delay: Duration,
    /// File with limit overrides by tenant. Example: `/etc/athanor/overrides.yaml`.
    pub runtime_config_file: Option<PathBuf>,
    /// Settings of the cluster; a single-node server needs none.
    pub cluster: ClusterConfig,
    /// Settings of the metastore.
    pub metastore: MetastoreConfig,
    /// Settings of the node's write-ahead log.
    pub wal: WalConfig,
    /// Bucket of the blocks. The default is a folder below `data_dir`.
    pub storage: athanor_storage::StorageConfig,
    /// Ports that accept only OpenTelemetry exports; `http_listen_address` accepts them as well.
    pub otlp: OtlpListenerConfig,
    /// Settings of the distributor.
    pub distributor: athanor_distributor::DistributorConfig,
    /// Settings of the ingester.
    pub ingester: athanor_ingester::IngesterConfig,
    /// Settings of the querier.
    pub querier: athanor_querier::QuerierConfig,
    /// Settings of the store-gateway.
    pub store_gateway: athanor_store_gateway::StoreGatewayConfig,
    /// Settings of the compactor.
    pub compactor: athanor_compactor::CompactorConfig,
    /// Quotas of debug information and of profiles uploaded by hand.
    pub uploads: UploadQuotaConfig,
    /// Default limits of each tenant.
    pub limits: TenantLimits,
    /// Settings of the server's own logs.
    pub telemetry: TelemetryConfig,
}

/// Ports that accept only OpenTelemetry exports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpListenerConfig {
    /// Address for gRPC exporters; not bound by default. Example: `0.0.0.0:4317`.
    pub grpc_listen_address: Option<String>,
    /// Address for HTTP exporters; not bound by default. Example: `0.0.0.0:4318`.
    pub http_listen_address: Option<String>,
}

/// Quotas of uploads over all tenants. Uploads to a local bucket also leave twice `wal.min_free_bytes` of its
/// disk free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UploadQuotaConfig {
    /// Maximum bytes of debug information in the bucket. Example: `1TiB`.
    pub max_debuginfo_bytes: ByteSize,
    /// Maximum bytes of profiles uploaded by hand in the bucket. Example: `16GiB`.
    pub max_adhoc_bytes: ByteSize,
}

/// Settings of the node's write-ahead log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WalConfig {
    /// Maximum size of a segment file. The first segments have 2MiB; new ones grow with the unflushed data.
    /// Example: `64MiB`.
    pub segment_bytes: ByteSize,
    /// Segment files that are prepared ahead. Example: `4`.
    pub preallocated_segments: u32,
    /// Free disk space below which the server rejects profiles. Below twice this space it rejects debug
    /// information and manual uploads to a local bucket. Example: `512MiB`.
    pub min_free_bytes: ByteSize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            target: TargetRoles::default(),
            http_listen_address: "127.0.0.1:4040".to_owned(),
            data_dir: PathBuf::from("athanor-data"),
            admin_token_file: None,
            allowed_hosts: Vec::new(),
            multitenancy_enabled: false,
            max_inflight_request_bytes: ByteSize::mib(512),
            max_connections: None,
            max_requests: 16_384,
            shutdown_delay: Duration::from_secs(2),
            shutdown_timeout: Duration::from_secs(10),
            retention_period: Duration::from_secs(31 * 24 * 3600),
            max_expired_percent: 5,
            deletion_delay: Duration::from_secs(12 * 3600),
            runtime_config_file: None,
            cluster: ClusterConfig::default(),
            metastore: MetastoreConfig::default(),
            wal: WalConfig::default(),
            storage: athanor_storage::StorageConfig::default(),
            otlp: OtlpListenerConfig::default(),
            distributor: athanor_distributor::DistributorConfig::default(),
            ingester: athanor_ingester::IngesterConfig::default(),
            querier: athanor_querier::QuerierConfig::default(),
            store_gateway: athanor_store_gateway::StoreGatewayConfig::default(),
            compactor: athanor_compactor::CompactorConfig::default(),
            uploads: UploadQuotaConfig::default(),
            limits: TenantLimits::default(),
            telemetry: TelemetryConfig::default(),
        }
    }
}

impl Default for WalConfig {
    fn default() -> Self {
        Self {
            segment_bytes: ByteSize::mib(64),
            preallocated_segments: 4,
            min_free_bytes: ByteSize::mib(512),
        }
    }
}

impl Default for UploadQuotaConfig {
    fn default() -> Self {
        Self { max_debuginfo_bytes: ByteSize::mib(1 << 20), max_adhoc_bytes: ByteSize::mib(16 << 10) }
    }
}

/// Setting with an invalid value, from any source.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct SettingError {
    /// Path of the setting.
    pub setting: &'static str,
    /// Reason, and a valid value to write instead.
    pub reason: String,
}

impl ErrorCodeExt for SettingError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}

/// Collector of invalid settings.
#[derive(Default)]
pub(crate) struct SettingErrors(Vec<SettingError>);

impl SettingErrors {
    /// Adds an error for the setting if `is_wrong` is true.
    pub(crate) fn add_if(&mut self, is_wrong: bool, setting: &'static str, reason: impl FnOnce() -> String) {
        if is_wrong {
            self.0.push(SettingError { setting, reason: reason() });
        }
    }

    /// Returns the parsed value, or records its error and returns `None`.
    pub(crate) fn take<T>(&mut self, read: Result<T, SettingError>) -> Option<T> {
        read.map_err(|problem| self.0.push(problem)).ok()
    }
}

impl ServerConfig {
    /// Returns all invalid settings. A server checks them before it starts anything.
    pub fn problems(&self) -> Vec<SettingError> {
        let mut problems = SettingErrors::default();
        self.check_node(&mut problems);
        self.check_disk(&mut problems);
        let bad =
            |setting, error: &dyn std::fmt::Display| SettingError { setting, reason: error.to_string() };
        let SettingErrors(mut all) = problems;
        all.extend(self.store_gateway.validate().iter().map(|error| bad(error.setting, error)));
        all.extend(self.compactor.validate().iter().map(|error| bad(error.setting, error)));
        all.extend(
            athanor_ingester::find_relabel_errors(&self.limits).iter().map(|error| bad(error.setting, error)),
        );
        let late = find_late_profile_error(&self.limits, self.retention_period);
        all.extend(late.map(|(_, reason)| SettingError { setting: "limits.reject_older_than", reason }));
        all.extend(self.querier.check().err().iter().map(|error| bad(error.setting, error)));
        let mut cluster_errors = self.cluster.problems();
        cluster_errors.extend(self.metastore.validate().err());
        let is_alone = cluster_errors.is_empty() && self.cluster.is_single_node();
        all.extend(cluster_errors);
        if is_alone && !self.target.is_all() {
            let reason = format!(
                "a single-node process cannot run only {}; set cluster.seed_nodes, or write all",
                self.target
            );
            all.push(SettingError { setting: "target", reason });
        }
        all.extend(self.telemetry.check().err().iter().map(|error| bad("telemetry.level", error)));
        all
    }

    fn check_node(&self, problems: &mut SettingErrors) {
        problems.add_if(self.data_dir.as_os_str().is_empty(), "data_dir", || {
            "empty path; write for example athanor-data".to_owned()
        });
        problems.add_if(self.max_connections == Some(0), "max_connections", || {
            "0 connections; write 1 or more, or omit the setting".to_owned()
        });
        problems.add_if(self.max_requests == 0, "max_requests", || "0 requests; write 1 or more".to_owned());
        let is_too_long =
            self.shutdown_delay > Duration::ZERO && self.shutdown_delay >= self.shutdown_timeout;
        problems.add_if(is_too_long, "shutdown_delay", || {
            let delay = format_duration(self.shutdown_delay);
            let timeout = format_duration(self.shutdown_timeout);
            format!(
                "{delay} is not shorter than shutdown_timeout, {timeout}; write a shorter delay or a longer timeout"
            )
        });
        let percent = self.max_expired_percent;
        problems.add_if(!(1..=100).contains(&percent), "max_expired_percent", || {
            format!("{percent} percent; write 1 to 100, or retention_period: 0s to keep blocks")
        });
        let shards = self.ingester.single_node_shards;
        let allowed = athanor_ingester::SHARD_COUNT_RANGE;
        problems.add_if(!allowed.contains(&shards), "ingester.single_node_shards", || {
            format!("{shards} shards; write {} to {}", allowed.start(), allowed.end())
        });
        let share = self.ingester.max_wal_disk_percent;
        problems.add_if(!(1..=100).contains(&share), "ingester.max_wal_disk_percent", || {
            format!("{share} percent; write 1 to 100")
        });
    }

    fn check_disk(&self, problems: &mut SettingErrors) {
        let segment = self.wal.segment_bytes;
        let least = athanor_consensus::log::MIN_SEGMENT_SIZE;
        problems.add_if(segment < least, "wal.segment_bytes", || {
            format!("segments of {segment} are too small; write {least} or more")
        });
        let kept = self.store_gateway.disk_cache_bytes;
        let spare = self.store_gateway.disk_cache_min_free_bytes;
        let reserve = self.wal.min_free_bytes;
        let keeps_profiles_out = self.target.has_log() && kept > ByteSize::bytes(0) && spare <= reserve;
        problems.add_if(keeps_profiles_out, "store_gateway.disk_cache_min_free_bytes", || {
            format!(
                "{spare} is not above wal.min_free_bytes, {reserve}, so that a full cache would block writes of profiles; \
                 write more than {reserve}, or disable the cache with store_gateway.disk_cache_bytes: 0B"
            )
        });
    }

    /// Returns the bucket's settings: the configured one, or a folder below `data_dir`.
    pub fn bucket(&self) -> athanor_storage::StorageConfig {
        let mut bucket = self.storage.clone();
        let named = bucket.memory || bucket.s3.is_some() || bucket.gcs.is_some() || bucket.azure.is_some();
        if bucket.local.is_none() && !named {
            bucket.local = Some(self.data_dir.join("bucket"));
        }
        bucket
    }

    /// Returns the settings of retention. Overrides set the retention of tenants and tiers.
    pub(crate) fn retention(&self, limits: LimitOverrides) -> athanor_compactor::RetentionConfig {
        athanor_compactor::RetentionConfig {
            retention: self.retention_period,
            limits,
            max_expired_percent: self.max_expired_percent,
            deletion_delay: self.deletion_delay,
        }
    }

    /// Returns the limits of all uploads. Uploads need twice the free space of the log's reserve, so that the
    /// server rejects them before profiles.
    pub(crate) fn upload_bounds(&self) -> UploadLimits {
        UploadLimits {
            min_free_bytes: ByteSize::bytes(self.wal.min_free_bytes.get().saturating_mul(2)),
            max_debuginfo_bytes: self.uploads.max_debuginfo_bytes,
            max_adhoc_bytes: self.uploads.max_adhoc_bytes,
        }
    }

    /// Returns the settings of the log.
    pub(crate) fn log(&self) -> athanor_consensus::log::LogConfig {
        athanor_consensus::log::LogConfig {
            segment: self.wal.segment_bytes,
            spares: self.wal.preallocated_segments as usize,
            reserve: self.wal.min_free_bytes,
            ..athanor_consensus::log::LogConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut ServerConfig);

    fn checked(change: Change) -> Vec<String> {
        let mut config = ServerConfig::default();
        change(&mut config);
        config.problems().iter().map(ToString::to_string).collect()
    }

    /// Changes after which no server can run, and the beginning of each refusal.
    fn invalid_changes() -> [(Change, &'static str); 18] {
        [
            (
                |config| config.max_expired_percent = 0,
                "max_expired_percent: 0 percent; write 1 to 100, or retention_period: 0s to keep blocks",
            ),
            (
                |config| config.target = "querier".parse().unwrap(),
                "target: a single-node process cannot run only querier",
            ),
            (
                |config| config.ingester.single_node_shards = 0,
                "ingester.single_node_shards: 0 shards; write 1 to 64",
            ),
            (
                |config| config.ingester.single_node_shards = 65,
                "ingester.single_node_shards: 65 shards; write 1 to 64",
            ),
            (
                |config| config.ingester.max_wal_disk_percent = 0,
                "ingester.max_wal_disk_percent: 0 percent; write 1 to 100",
            ),
            (
                |config| config.ingester.max_wal_disk_percent = 101,
                "ingester.max_wal_disk_percent: 101 percent; write 1 to 100",
            ),
            (|config| config.data_dir = PathBuf::new(), "data_dir: empty path"),
            (
                |config| config.store_gateway.max_concurrent = 0,
                "store_gateway.max_concurrent: with 0 every query would wait",
            ),
            (
                |config| config.store_gateway.max_concurrent = usize::MAX / 4,
                "store_gateway.max_concurrent: no machine can run so many queries at the same time; write 65536 or less",
            ),
            (
                |config| config.store_gateway.disk_cache_min_free_bytes = config.wal.min_free_bytes,
                "store_gateway.disk_cache_min_free_bytes: 512MiB is not above wal.min_free_bytes, 512MiB",
            ),
            (
                |config| config.store_gateway.max_inflight_block_bytes = ByteSize::kib(1),
                "store_gateway.max_inflight_block_bytes: blocks cannot be read with so little memory",
            ),
            (
                |config| config.querier.max_result_bytes = ByteSize::mib(100),
                "querier.adhoc.max_profile_bytes: profiles of 16MiB take up to 128MiB when they are read",
            ),
            (
                |config| config.compactor.max_concurrent_jobs = 0,
                "compactor.max_concurrent_jobs: must be 1 to 1024; leave out the role compactor",
            ),
            (|config| config.max_connections = Some(0), "max_connections: 0"),
            (|config| config.max_requests = 0, "max_requests: 0"),
            (
                |config| config.shutdown_timeout = Duration::from_secs(1),
                "shutdown_delay: 2s is not shorter than shutdown_timeout, 1s; write a shorter delay or a longer timeout",
            ),
            (
                |config| config.wal.segment_bytes = ByteSize::kib(63),
                "wal.segment_bytes: segments of 63KiB are too small",
            ),
            (
                |config| config.telemetry.level = "warning".to_owned(),
                "telemetry.level: log level \"warning\"",
            ),
        ]
    }

    #[test]
    fn what_no_server_could_run_with_is_refused_by_name() {
        let none = Vec::<String>::new();
        assert_eq!(checked(|_| {}), none);
        assert_eq!(checked(|config| config.ingester.single_node_shards = 64), none);
        let keeps_nothing = |config: &mut ServerConfig| {
            config.store_gateway.disk_cache_bytes = ByteSize::bytes(0);
            config.store_gateway.disk_cache_min_free_bytes = ByteSize::bytes(0);
        };
        assert_eq!(checked(keeps_nothing), none);
        let at_once =
            |config: &mut ServerConfig| (config.shutdown_delay, config.shutdown_timeout) = Default::default();
        assert_eq!(checked(at_once), none);
        for (change, said) in invalid_changes() {
            let refused = checked(change);
            assert!(refused.len() == 1 && refused[0].starts_with(said), "{refused:?}");
        }
    }

    #[test]
    fn all_settings_that_cannot_be_are_reported_at_once() {
        let mut config = ServerConfig::default();
        config.ingester.single_node_shards = 0;
        config.store_gateway.max_concurrent = 0;
        config.store_gateway.max_open_blocks_per_query = 0;
        config.cluster.replication_factor = 0;
        config.metastore.voters = 4;
        config.telemetry.level = "loud".to_owned();
        let problems = config.problems();
        let settings: Vec<&str> = problems.iter().map(|problem| problem.setting).collect();
        let expected = [
            "ingester.single_node_shards",
            "store_gateway.max_concurrent",
            "store_gateway.max_open_blocks_per_query",
            "cluster.replication_factor",
            "metastore.voters",
            "telemetry.level",
        ];
        assert_eq!(settings, expected);
    }

    #[test]
    fn doc_of_target_names_every_role() {
        let source = include_str!("config.rs");
        let (doc, _) = source.split_once("pub target: Target").unwrap();
        for role in athanor_cluster::members::RoleName::ALL_VARIANTS {
            assert!(doc.contains(role.name()), "{}", role.name());
        }
    }
}
