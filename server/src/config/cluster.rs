//! Settings of a node in a cluster.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use athanor_catalog::{MAX_REPLICATION_FACTOR, MAX_SLOTS};
use athanor_chassis::ByteSize;
use athanor_chassis::units::{duration_text, format_duration};
use athanor_profile::encoding::hex::parse_hex_id;
use serde::{Deserialize, Serialize};

use super::{SettingError, SettingErrors};

/// Maximum bytes of a node name and of a zone, as the gossip protocol accepts them.
const MAX_NAME_BYTES: usize = 64;
const MAX_SEEDS: usize = 64;
/// Lower bound of `node_failure_timeout`: a node that is missing for less may only be slow or restarting.
const MIN_NODE_FAILURE_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_INTERNAL_ADDRESS: &str = "0.0.0.0:9095";
const DEFAULT_GOSSIP_ADDRESS: &str = "0.0.0.0:7946";

/// Settings of the cluster. Without `seed_nodes` and without a listen address, the server is a single node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Cluster id: 32 hexadecimal digits, equal on all nodes. By default it is drawn together with the data
    /// folder. Example: `5f0c6e1d9a7b4c3e8f2a1b0c9d8e7f60`.
    pub id: Option<String>,
    /// Display name of this node; its id by default. Example: `athanor-1`.
    pub node_name: Option<String>,
    /// Availability zone: members of a raft group are placed in different zones. Example: `eu-west-1a`.
    pub availability_zone: String,
    /// File with the secret that the nodes share; during a rotation, with the old and the new one. Example:
    /// `/etc/athanor/cluster-secret`.
    pub secret_file: Option<PathBuf>,
    /// Certificates for mutual TLS between nodes. Without them, traffic between nodes is not encrypted.
    /// Gossip of the members is never signed or encrypted: restrict its port to the nodes.
    pub tls: ClusterTlsConfig,
    /// Address for calls from other nodes; the default in a cluster is `0.0.0.0:9095`. Example:
    /// `10.0.0.5:9095`.
    pub internal_listen_address: Option<String>,
    /// Address for gossip; the default in a cluster is `0.0.0.0:7946`. Example: `10.0.0.5:7946`.
    pub gossip_listen_address: Option<String>,
    /// IP address that other nodes use for this node, if it differs from the listen address. Example:
    /// `10.0.0.5`.
    pub advertise_address: Option<String>,
    /// Gossip addresses that a starting node contacts first. Example: `[athanor-0.athanor:7946]`.
    pub seed_nodes: Vec<String>,
    /// Replicas of each shard, in as many zones as there are. A majority must have a profile before it is
    /// acknowledged. Example: `3`.
    pub replication_factor: u16,
    /// Slots of a new cluster; the default is two per ingester. Example: `12`.
    pub initial_slots: Option<u32>,
    /// Capacity of one slot for one service, in sent bytes per second. A service that sends more gets more
    /// slots. Example: `8MiB`.
    pub target_slot_bytes_per_second: ByteSize,
    /// Time after which a missing node is replaced. Example: `5m`.
    #[serde(with = "duration_text")]
    pub node_failure_timeout: Duration,
}

/// TLS files in PEM, reloaded when they change: all three, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterTlsConfig {
    /// Certificate chain of this node. Example: `/etc/athanor/node.pem`.
    pub cert_file: Option<PathBuf>,
    /// Private key of the certificate. Example: `/etc/athanor/node-key.pem`.
    pub key_file: Option<PathBuf>,
    /// Certificate authorities of the nodes. During a rotation, the file holds the old and the new one.
    /// Example: `/etc/athanor/authorities.pem`.
    pub ca_file: Option<PathBuf>,
}

/// TLS files of a node, all of them configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTlsFiles {
    /// Certificate chain of this node.
    pub cert_file: PathBuf,
    /// Private key of the certificate.
    pub key_file: PathBuf,
    /// Certificate authorities of the nodes.
    pub ca_file: PathBuf,
}

impl ClusterTlsConfig {
    /// Returns all three files, or `None` if none is configured. Some without the others are an error.
    fn files(&self) -> Result<Option<ClusterTlsFiles>, SettingError> {
        let Self { cert_file, key_file, ca_file } = self;
        if let (Some(cert_file), Some(key_file), Some(ca_file)) = (cert_file, key_file, ca_file) {
            let cert_file = cert_file.clone();
            let key_file = key_file.clone();
            let ca_file = ca_file.clone();
            return Ok(Some(ClusterTlsFiles { cert_file, key_file, ca_file }));
        }
        let all = [("cert_file", cert_file), ("key_file", key_file), ("ca_file", ca_file)];
        let (given, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, path)| path.is_some());
        if given.is_empty() {
            return Ok(None);
        }
        let names = |all: &[(&str, &Option<PathBuf>)]| {
            all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" and ")
        };
        let reason = format!("{} without {}; set all three files or none", names(&given), names(&missing));
        Err(SettingError { setting: "cluster.tls", reason })
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            id: None,
            node_name: None,
            availability_zone: String::new(),
            secret_file: None,
            tls: ClusterTlsConfig::default(),
            internal_listen_address: None,
            gossip_listen_address: None,
            advertise_address: None,
            seed_nodes: Vec::new(),
            replication_factor: 3,
            initial_slots: None,
            target_slot_bytes_per_second: ByteSize::mib(8),
            node_failure_timeout: Duration::from_secs(5 * 60),
        }
    }
}

/// Validated settings for joining a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterJoinConfig {
    /// Cluster id as a number.
    pub cluster: u128,
    /// File with the shared secret.
    pub secret_file: PathBuf,
    /// TLS files; `None` disables TLS.
    pub tls: Option<ClusterTlsFiles>,
    /// Address for calls from other nodes.
    pub internal_listen_address: SocketAddr,
    /// Address for gossip.
    pub gossip_listen_address: SocketAddr,
    /// IP address that other nodes use for this node.
    pub advertise_address: Option<IpAddr>,
}

impl ClusterConfig {
    /// Returns the validated settings, or `None` for a single node. The error is the first invalid setting.
    pub fn join_config(&self) -> Result<Option<ClusterJoinConfig>, SettingError> {
        let (joining, problems) = self.read();
        match problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(joining),
        }
    }

    /// Returns all invalid settings of the cluster.
    pub fn problems(&self) -> Vec<SettingError> {
        self.read().1
    }

    /// Returns whether the settings describe a single node.
    pub fn is_single_node(&self) -> bool {
        self.seed_nodes.is_empty()
            && self.gossip_listen_address.is_none()
            && self.internal_listen_address.is_none()
    }

    /// Returns the validated settings if all are valid, and all errors.
    fn read(&self) -> (Option<ClusterJoinConfig>, Vec<SettingError>) {
        let mut problems = SettingErrors::default();
        let cluster = problems.take(self.cluster());
        let tls = problems.take(self.tls.files());
        self.check_names(&mut problems);
        self.check_numbers(&mut problems);
        if self.is_single_node() {
            return (None, problems.0);
        }
        problems.add_if(cluster == Some(None), "cluster.id", || {
            let way_out =
                "write the same 32 hexadecimal digits on all nodes, for example from `openssl rand -hex 16`";
            format!("required in cluster mode; {way_out}")
        });
        problems.add_if(self.secret_file.is_none(), "cluster.secret_file", || {
            "required in cluster mode; name a file with the shared secret of the cluster".to_owned()
        });
        let internal = address(
            "cluster.internal_listen_address",
            self.internal_listen_address.as_deref(),
            DEFAULT_INTERNAL_ADDRESS,
        );
        let internal_listen_address = problems.take(internal);
        let gossip = address(
            "cluster.gossip_listen_address",
            self.gossip_listen_address.as_deref(),
            DEFAULT_GOSSIP_ADDRESS,
        );
        let gossip_listen_address = problems.take(gossip);
        let advertise_address = problems.take(self.advertised());
        let is_everywhere = [internal_listen_address, gossip_listen_address]
            .iter()
            .flatten()
            .any(|address| address.ip().is_unspecified());
        problems.add_if(advertise_address == Some(None) && is_everywhere, "cluster.advertise_address", || {
            "required if the node listens on all addresses; write the one that other nodes can reach, for example 10.0.0.5"
                .to_owned()
        });
        let SettingErrors(problems) = problems;
        let read = (
            cluster.flatten(),
            self.secret_file.clone(),
            tls,
            internal_listen_address,
            gossip_listen_address,
            advertise_address,
        );
        let (
            Some(cluster),
            Some(secret_file),
            Some(tls),
            Some(internal_listen_address),
            Some(gossip_listen_address),
            Some(advertise_address),
        ) = read
        else {
            return (None, problems);
        };
        let joining = ClusterJoinConfig {
            cluster,
            secret_file,
            tls,
            internal_listen_address,
            gossip_listen_address,
            advertise_address,
        };
        (Some(joining), problems)
    }

    fn advertised(&self) -> Result<Option<IpAddr>, SettingError> {
        let Some(text) = self.advertise_address.as_deref() else { return Ok(None) };
        match text.parse::<IpAddr>() {
            Ok(address) if !address.is_unspecified() => Ok(Some(address)),
            _ => {
                let reason = format!(
                    "{text:?} is not an IP address that other nodes can reach; write an address without a port, for example 10.0.0.5"
                );
                Err(SettingError { setting: "cluster.advertise_address", reason })
            }
        }
    }

    /// Returns the cluster id, if it is configured.
    pub fn cluster(&self) -> Result<Option<u128>, SettingError> {
        let Some(text) = &self.id else { return Ok(None) };
        let id = parse_hex_id(text, 32).filter(|id| *id != 0);
        let reason =
            || format!("{text:?} is not a cluster id; write 32 hexadecimal digits, not all of them 0");
        id.map(Some).ok_or_else(|| SettingError { setting: "cluster.id", reason: reason() })
    }

    fn check_numbers(&self, problems: &mut SettingErrors) {
        problems.add_if(
            !(1..=MAX_REPLICATION_FACTOR).contains(&self.replication_factor),
            "cluster.replication_factor",
            || format!("{} copies; write 1 to {MAX_REPLICATION_FACTOR}, usually 3", self.replication_factor),
        );
        let slots = self.initial_slots.unwrap_or(1);
        problems.add_if(!(1..=MAX_SLOTS).contains(&slots), "cluster.initial_slots", || {
            format!("{slots} slots; write 1 to {MAX_SLOTS}")
        });
        problems.add_if(
            self.node_failure_timeout < MIN_NODE_FAILURE_TIMEOUT,
            "cluster.node_failure_timeout",
            || {
                format!(
                    "{} is too short, a restart takes longer; write {} or more, usually 5m",
                    format_duration(self.node_failure_timeout),
                    format_duration(MIN_NODE_FAILURE_TIMEOUT)
                )
            },
        );
    }

    fn check_names(&self, problems: &mut SettingErrors) {
        let name = self.node_name.as_deref().unwrap_or("unnamed");
        for (setting, text) in
            [("cluster.node_name", name), ("cluster.availability_zone", &self.availability_zone)]
        {
            let is_wrong = text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control);
            problems.add_if(is_wrong, setting, || {
                format!("{text:?} has {} bytes; write up to {MAX_NAME_BYTES}, on one line", text.len())
            });
        }
        let seeds = self.seed_nodes.len();
        problems.add_if(seeds > MAX_SEEDS, "cluster.seed_nodes", || {
            format!("{seeds} nodes, the limit is {MAX_SEEDS}; list only some of the nodes")
        });
        for seed in self.seed_nodes.iter().take(MAX_SEEDS) {
            let named = seed.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            let port = named.and_then(|(_, port)| port.parse::<u16>().ok());
            problems.add_if(port.is_none_or(|port| port == 0), "cluster.seed_nodes", || {
                format!("{seed:?} is not a host with a port; write for example 10.0.0.5:7946")
            });
        }
    }
}

fn address(setting: &'static str, text: Option<&str>, default: &str) -> Result<SocketAddr, SettingError> {
    let text = text.unwrap_or(default);
    let reason = |_| format!("{text:?} is not an address with a port; write for example {default}");
    text.parse().map_err(reason).map_err(|reason| SettingError { setting, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5f0c6e1d9a7b4c3e8f2a1b0c9d8e7f60";

    fn whole() -> ClusterConfig {
        ClusterConfig {
            id: Some(ID.to_owned()),
            secret_file: Some("secret".into()),
            advertise_address: Some("10.0.0.5".to_owned()),
            seed_nodes: vec!["10.0.0.6:7946".to_owned(), "[::1]:7946".to_owned()],
            ..ClusterConfig::default()
        }
    }

    #[test]
    fn a_node_without_others_needs_nothing() {
        assert_eq!(ClusterConfig::default().join_config(), Ok(None));
        let named = ClusterConfig { id: Some(ID.to_owned()), ..ClusterConfig::default() };
        assert_eq!(named.join_config(), Ok(None));
        let joining = whole().join_config().unwrap().unwrap();
        assert_eq!(format!("{:x}", joining.cluster), ID);
        assert_eq!(
            (joining.internal_listen_address.port(), joining.gossip_listen_address.port()),
            (9095, 7946)
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_way_out() {
        type Change = fn(&mut ClusterConfig);
        let cases: [(Change, &str, &str); 18] = [
            (|s| s.tls.key_file = Some("k".into()), "cluster.tls", "key_file without cert_file and ca_file"),
            (
                |s| (s.tls.key_file, s.tls.cert_file) = (Some("k".into()), Some("c".into())),
                "cluster.tls",
                "without ca_file; set all three files",
            ),
            (|s| s.replication_factor = 0, "cluster.replication_factor", "usually 3"),
            (|s| s.initial_slots = Some(0), "cluster.initial_slots", "write 1 to"),
            (
                |s| s.node_failure_timeout = Duration::from_secs(1),
                "cluster.node_failure_timeout",
                "write 10s or more",
            ),
            (|s| s.id = None, "cluster.id", "openssl rand -hex 16"),
            (|s| s.id = Some("5f".to_owned()), "cluster.id", "\"5f\" is not a cluster id"),
            (|s| s.id = Some("0".repeat(32)), "cluster.id", "not all of them 0"),
            (|s| s.id = Some(format!("+{}", "1".repeat(31))), "cluster.id", "32 hexadecimal digits"),
            (|s| s.secret_file = None, "cluster.secret_file", "name a file"),
            (
                |s| s.internal_listen_address = Some("9095".to_owned()),
                "cluster.internal_listen_address",
                "0.0.0.0:9095",
            ),
            (
                |s| s.gossip_listen_address = Some("here:1".to_owned()),
                "cluster.gossip_listen_address",
                "0.0.0.0:7946",
            ),
            (
                |s| s.advertise_address = None,
                "cluster.advertise_address",
                "write the one that other nodes can reach",
            ),
            (
                |s| s.advertise_address = Some("0.0.0.0".to_owned()),
                "cluster.advertise_address",
                "is not an IP address",
            ),
            (|s| s.advertise_address = Some("a:1".to_owned()), "cluster.advertise_address", "without a port"),
            (
                |s| s.seed_nodes = vec!["a".to_owned()],
                "cluster.seed_nodes",
                "\"a\" is not a host with a port",
            ),
            (|s| s.seed_nodes = vec!["a:0".to_owned()], "cluster.seed_nodes", "\"a:0\""),
            (|s| s.node_name = Some("x".repeat(65)), "cluster.node_name", "has 65 bytes"),
        ];
        for (change, setting, said) in cases {
            let mut settings = whole();
            change(&mut settings);
            let error = settings.join_config().unwrap_err();
            assert!(error.setting == setting && error.reason.contains(said), "{error}");
        }
        let many = ClusterConfig { seed_nodes: vec!["a:1".to_owned(); 65], ..whole() };
        assert!(many.join_config().unwrap_err().to_string().starts_with("cluster.seed_nodes: 65 nodes"));
    }
}
