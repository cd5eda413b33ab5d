//! The settings of a server, every one with a default.

mod cluster;
mod target;

use std::path::PathBuf;
use std::time::Duration;

use athanor_chassis::telemetry::TelemetryConfig;
use athanor_chassis::units::{duration_text, format_duration};
use athanor_chassis::{ByteSize, ErrorCode, ErrorCodeExt, TenantLimits};
use athanor_storage::UploadLimits;
use serde::{Deserialize, Serialize};

use crate::retention_worker::RetentionConfig;

pub use cluster::{ClusterConfig, ClusterJoinConfig, ClusterTlsConfig, ClusterTlsFiles};
pub use target::TargetRoles;

/// All settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Which roles this process has: `all`, or some of distributor, ingester, metastore, querier and store-gateway with
    /// commas between them. Example: `ingester`.
    pub target: TargetRoles,
    /// Where clients connect. Example: `0.0.0.0:4040`.
    pub listen: String,
    /// The folder for everything that this node keeps. Example: `/var/lib/athanor`.
    pub data: PathBuf,
    /// A file with the token for pages of administration: `/config`, `/shards`, `/members` and `/debug/pprof/profile`. Without
    /// one only a server that listens on its own machine alone shows them. Example: `/etc/athanor/admin-token`.
    pub admin_token_file: Option<PathBuf>,
    /// Names of this server beside `localhost`. A server that listens on its own machine alone answers no other name, and
    /// web pages of these hosts may send it profiles. Example: `[profiles.example.com]`.
    pub allowed_hosts: Vec<String>,
    /// Whether the X-Scope-OrgID header names the tenant; else everything is the tenant `anonymous`.
    pub multitenancy_enabled: bool,
    /// Room for the bodies of all requests at once. One tenant among others has at most half of it. Example: `512MiB`.
    pub request_bytes: ByteSize,
    /// Connections at once; as many as three quarters of the files that the process may open, and less where that leaves
    /// fewer than 48 to the server, if not given. Example: `2000`.
    pub max_connections: Option<u32>,
    /// Requests at once, over all connections, each until its response is sent. A connection with many open requests is
    /// refused first. Example: `16384`.
    pub max_requests: u32,
    /// How long the server still answers after SIGTERM, while `/ready` says 503, so that load balancers look elsewhere; a
    /// part of `drain`. Another signal ends this, and Ctrl-C does without. Example: `2s`.
    #[serde(with = "duration_text")]
    pub shutdown_delay: Duration,
    /// How long the server may take to end, from the signal on: leads go to others, requests finish, and one that is alone
    /// cuts what is in memory. After seven tenths of it requests are cut off; what was not cut stays in the log. Example:
    /// `10s`.
    #[serde(with = "duration_text")]
    pub drain: Duration,
    /// How long blocks are kept, by the later of their data's time and the time they were stored; 0s keeps them for
    /// ever. Example: `31d`.
    #[serde(with = "duration_text")]
    pub retention: Duration,
    /// The largest share of all blocks that `retention` removes per hour, in percent, so that a wrong clock or setting does
    /// not take all of them at once. Blocks that come to their age at an even pace are always removed. `athanor retention
    /// apply` removes the rest at once. Example: `5`.
    pub max_expired_percent: u8,
    /// How long the objects of blocks that `retention` removed stay in the bucket. As long `athanor retention restore`
    /// brings them back. At least 30m. Example: `12h`.
    #[serde(with = "duration_text")]
    pub deletion_delay: Duration,
    /// A file with exceptions from the limits by tenant. Example: `/etc/athanor/overrides.yaml`.
    pub runtime_config: Option<PathBuf>,
    /// The other nodes of its cluster; a server that is alone needs none of it.
    pub cluster: ClusterConfig,
    /// The node's log.
    pub log: NodeLogConfig,
    /// Where blocks go; a folder below `data` if nothing else is named.
    pub storage: athanor_storage::StorageConfig,
    /// Ports for OpenTelemetry alone; `listen` takes its exports as well.
    pub otlp: OtlpListenerConfig,
    /// Taking profiles.
    pub distributor: athanor_distributor::DistributorConfig,
    /// Keeping them.
    pub ingester: athanor_ingester::IngesterConfig,
    /// Answering queries.
    pub querier: athanor_querier::QuerierConfig,
    /// Reading blocks, and keeping what was found.
    pub store_gateway: athanor_store_gateway::StoreGatewayConfig,
    /// Uploads beside profiles: debug information, and profiles uploaded by hand.
    pub uploads: UploadQuotaConfig,
    /// What each tenant may do.
    pub limits: TenantLimits,
    /// What the server says of itself.
    pub telemetry: TelemetryConfig,
}

/// Ports for exports of OpenTelemetry alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpListenerConfig {
    /// Where exporters connect that speak gRPC; nowhere if not given. Example: `0.0.0.0:4317`.
    pub grpc_listen: Option<String>,
    /// Where exporters connect that speak HTTP; nowhere if not given. Example: `0.0.0.0:4318`.
    pub http_listen: Option<String>,
}

/// Quotas of uploads over all tenants. Uploads to a local bucket also leave twice `log.reserve` of its disk free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UploadQuotaConfig {
    /// Most bytes of debug information in the bucket. Example: `1TiB`.
    pub max_debuginfo_bytes: ByteSize,
    /// Most bytes of profiles in the bucket that were uploaded by hand. Example: `16GiB`.
    pub max_adhoc_bytes: ByteSize,
}

/// The node's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeLogConfig {
    /// The largest size of one of its files. The first have 2MiB, and new ones grow with what is in no block yet. Example:
    /// `64MiB`.
    pub segment: ByteSize,
    /// Files that are prepared ahead. Example: `4`.
    pub spares: u32,
    /// Free space of the disk below which profiles are refused; below twice of it, uploads of debug information and by hand
    /// to a local bucket. Example: `512MiB`.
    pub reserve: ByteSize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            target: TargetRoles::default(),
            listen: "127.0.0.1:4040".to_owned(),
            data: PathBuf::from("athanor-data"),
            admin_token_file: None,
            allowed_hosts: Vec::new(),
            multitenancy_enabled: false,
            request_bytes: ByteSize::mib(512),
            max_connections: None,
            max_requests: 16_384,
            shutdown_delay: Duration::from_secs(2),
            drain: Duration::from_secs(10),
            retention: Duration::from_secs(31 * 24 * 3600),
            max_expired_percent: 5,
            deletion_delay: Duration::from_secs(12 * 3600),
            runtime_config: None,
            cluster: ClusterConfig::default(),
            log: NodeLogConfig::default(),
            storage: athanor_storage::StorageConfig::default(),
            otlp: OtlpListenerConfig::default(),
            distributor: athanor_distributor::DistributorConfig::default(),
            ingester: athanor_ingester::IngesterConfig::default(),
            querier: athanor_querier::QuerierConfig::default(),
            store_gateway: athanor_store_gateway::StoreGatewayConfig::default(),
            uploads: UploadQuotaConfig::default(),
            limits: TenantLimits::default(),
            telemetry: TelemetryConfig::default(),
        }
    }
}

impl Default for NodeLogConfig {
    fn default() -> Self {
        Self { segment: ByteSize::mib(64), spares: 4, reserve: ByteSize::mib(512) }
    }
}

impl Default for UploadQuotaConfig {
    fn default() -> Self {
        Self { max_debuginfo_bytes: ByteSize::mib(1 << 20), max_adhoc_bytes: ByteSize::mib(16 << 10) }
    }
}

/// A setting that cannot be, however it is written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct SettingError {
    /// Its path.
    pub setting: &'static str,
    /// What is wrong, and what to write.
    pub reason: String,
}

impl ErrorCodeExt for SettingError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}

/// Collects settings that cannot be.
#[derive(Default)]
pub(crate) struct SettingErrors(Vec<SettingError>);

impl SettingErrors {
    /// Adds a setting if it is wrong.
    pub(crate) fn add_if(&mut self, is_wrong: bool, setting: &'static str, reason: impl FnOnce() -> String) {
        if is_wrong {
            self.0.push(SettingError { setting, reason: reason() });
        }
    }

    /// Takes what was read, or why it cannot be.
    pub(crate) fn take<T>(&mut self, read: Result<T, SettingError>) -> Option<T> {
        read.map_err(|problem| self.0.push(problem)).ok()
    }
}

impl ServerConfig {
    /// Returns all settings with which no server could run. A server checks them before it begins anything.
    pub fn problems(&self) -> Vec<SettingError> {
        let mut problems = SettingErrors::default();
        self.check_node(&mut problems);
        self.check_disk(&mut problems);
        let bad =
            |setting, error: &dyn std::fmt::Display| SettingError { setting, reason: error.to_string() };
        let SettingErrors(mut all) = problems;
        all.extend(self.store_gateway.validate().iter().map(|error| bad(error.setting, error)));
        all.extend(
            athanor_ingester::find_relabel_errors(&self.limits).iter().map(|error| bad(error.setting, error)),
        );
        all.extend(self.querier.check().err().iter().map(|error| bad(error.setting, error)));
        let of_cluster = self.cluster.problems();
        let is_alone = of_cluster.is_empty() && self.cluster.is_single_node();
        all.extend(of_cluster);
        if is_alone && !self.target.is_all() {
            let reason = format!(
                "a process that is only {} needs others beside it; say where they are with cluster.seeds, or run all",
                self.target
            );
            all.push(SettingError { setting: "target", reason });
        }
        all.extend(self.telemetry.check().err().iter().map(|error| bad("telemetry.level", error)));
        all
    }

    fn check_node(&self, problems: &mut SettingErrors) {
        problems.add_if(self.data.as_os_str().is_empty(), "data", || {
            "no folder is named; write for example athanor-data".to_owned()
        });
        problems.add_if(self.max_connections == Some(0), "max_connections", || {
            "0 would serve nobody; write 1 or more, or leave it out".to_owned()
        });
        problems.add_if(self.max_requests == 0, "max_requests", || {
            "0 would serve nobody; write 1 or more".to_owned()
        });
        let is_too_long = self.shutdown_delay > Duration::ZERO && self.shutdown_delay >= self.drain;
        problems.add_if(is_too_long, "shutdown_delay", || {
            let delay = format_duration(self.shutdown_delay);
            let drain = format_duration(self.drain);
            format!("{delay} is a part of drain, which is {drain}; write less, or a longer drain")
        });
        let percent = self.max_expired_percent;
        problems.add_if(!(1..=100).contains(&percent), "max_expired_percent", || {
            format!("{percent} percent; write 1 to 100, or retention: 0s to keep blocks")
        });
        let shards = self.ingester.shards;
        let allowed = athanor_ingester::SHARD_COUNT_RANGE;
        problems.add_if(!allowed.contains(&shards), "ingester.shards", || {
            format!("{shards} shards; write {} to {}", allowed.start(), allowed.end())
        });
        let share = self.ingester.unregistered_share;
        problems.add_if(!(1..=100).contains(&share), "ingester.unregistered_share", || {
            format!("{share} percent; write 1 to 100")
        });
    }

    fn check_disk(&self, problems: &mut SettingErrors) {
        let segment = self.log.segment;
        let least = athanor_consensus::log::MIN_SEGMENT_SIZE;
        problems.add_if(segment < least, "log.segment", || {
            format!("segments of {segment} are too small, the least is {least}")
        });
        let kept = self.store_gateway.disk;
        let spare = self.store_gateway.disk_spare;
        let reserve = self.log.reserve;
        let keeps_profiles_out = self.target.has_log() && kept > ByteSize::bytes(0) && spare <= reserve;
        problems.add_if(keeps_profiles_out, "store_gateway.disk_spare", || {
            format!(
                "{spare} stays free, and with less than {reserve} free (log.reserve) profiles are refused: so what is kept of \
                 blocks would keep profiles out; write more than {reserve}, or keep nothing with store_gateway.disk: 0B"
            )
        });
    }

    /// The bucket: the one that is named, else a folder below `data`.
    pub fn bucket(&self) -> athanor_storage::StorageConfig {
        let mut bucket = self.storage.clone();
        let named = bucket.memory || bucket.s3.is_some() || bucket.gcs.is_some() || bucket.azure.is_some();
        if bucket.local.is_none() && !named {
            bucket.local = Some(self.data.join("bucket"));
        }
        bucket
    }

    /// Returns the settings of the removal by age.
    pub(crate) fn retention(&self) -> RetentionConfig {
        RetentionConfig {
            retention: self.retention,
            max_expired_percent: self.max_expired_percent,
            deletion_delay: self.deletion_delay,
        }
    }

    /// Returns the bounds of all uploads. Only with more free space than the log's reserve are uploads taken, so that they
    /// are refused before profiles are.
    pub(crate) fn upload_bounds(&self) -> UploadLimits {
        UploadLimits {
            min_free_bytes: ByteSize::bytes(self.log.reserve.get().saturating_mul(2)),
            max_debuginfo_bytes: self.uploads.max_debuginfo_bytes,
            max_adhoc_bytes: self.uploads.max_adhoc_bytes,
        }
    }

    /// How the log is kept.
    pub(crate) fn log(&self) -> athanor_consensus::log::LogConfig {
        athanor_consensus::log::LogConfig {
            segment: self.log.segment,
            spares: self.log.spares as usize,
            reserve: self.log.reserve,
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

    #[test]
    fn what_no_server_could_run_with_is_refused_by_name() {
        let none = Vec::<String>::new();
        assert_eq!(checked(|_| {}), none);
        assert_eq!(checked(|config| config.ingester.shards = 64), none);
        let keeps_nothing = |config: &mut ServerConfig| {
            config.store_gateway.disk = ByteSize::bytes(0);
            config.store_gateway.disk_spare = ByteSize::bytes(0);
        };
        assert_eq!(checked(keeps_nothing), none);
        let at_once = |config: &mut ServerConfig| (config.shutdown_delay, config.drain) = Default::default();
        assert_eq!(checked(at_once), none);
        let bad: [(Change, &str); 17] = [
            (
                |config| config.max_expired_percent = 0,
                "max_expired_percent: 0 percent; write 1 to 100, or retention: 0s to keep blocks",
            ),
            (
                |config| config.target = "querier".parse().unwrap(),
                "target: a process that is only querier needs others beside it",
            ),
            (|config| config.ingester.shards = 0, "ingester.shards: 0 shards; write 1 to 64"),
            (|config| config.ingester.shards = 65, "ingester.shards: 65 shards; write 1 to 64"),
            (
                |config| config.ingester.unregistered_share = 0,
                "ingester.unregistered_share: 0 percent; write 1 to 100",
            ),
            (
                |config| config.ingester.unregistered_share = 101,
                "ingester.unregistered_share: 101 percent; write 1 to 100",
            ),
            (|config| config.data = PathBuf::new(), "data: no folder is named"),
            (
                |config| config.store_gateway.questions = 0,
                "store_gateway.questions: with 0 every question would wait",
            ),
            (
                |config| config.store_gateway.questions = usize::MAX / 4,
                "store_gateway.questions: no machine answers so many at once; write 65536 or less",
            ),
            (
                |config| config.store_gateway.disk_spare = config.log.reserve,
                "store_gateway.disk_spare: 512MiB stays free, and with less than 512MiB free (log.reserve)",
            ),
            (
                |config| config.store_gateway.reading = ByteSize::kib(1),
                "store_gateway.reading: blocks cannot be read in so little memory",
            ),
            (
                |config| config.querier.answer = ByteSize::mib(100),
                "querier.adhoc_profile: profiles of 16MiB take up to 128MiB when they are read",
            ),
            (|config| config.max_connections = Some(0), "max_connections: 0"),
            (|config| config.max_requests = 0, "max_requests: 0"),
            (
                |config| config.drain = Duration::from_secs(1),
                "shutdown_delay: 2s is a part of drain, which is 1s; write less, or a longer drain",
            ),
            (|config| config.log.segment = ByteSize::kib(63), "log.segment: segments of 63KiB are too small"),
            (
                |config| config.telemetry.level = "warning".to_owned(),
                "telemetry.level: log level \"warning\"",
            ),
        ];
        for (change, said) in bad {
            let refused = checked(change);
            assert!(refused.len() == 1 && refused[0].starts_with(said), "{refused:?}");
        }
    }

    #[test]
    fn all_settings_that_cannot_be_are_reported_at_once() {
        let mut config = ServerConfig::default();
        config.ingester.shards = 0;
        config.store_gateway.questions = 0;
        config.store_gateway.open_blocks = 0;
        config.cluster.copies = 0;
        config.cluster.voters = 4;
        config.telemetry.level = "loud".to_owned();
        let problems = config.problems();
        let settings: Vec<&str> = problems.iter().map(|problem| problem.setting).collect();
        let expected = [
            "ingester.shards",
            "store_gateway.questions",
            "store_gateway.open_blocks",
            "cluster.copies",
            "cluster.voters",
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
