//! Processes of a local cluster, with the settings of each.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use athanor_chassis::{ErrorCode, Net, Random, Status};
use athanor_cluster::gossip::Transport;

use crate::args::DevClusterArgs;
use crate::failure;

const ZONE_NAMES: [&str; 3] = ["a", "b", "c"];
/// Role and name of each process in a zone.
const ROLES_PER_ZONE: [(&str, &str); 5] = [
    ("metastore", "metastore"),
    ("ingester", "ingester-1"),
    ("ingester", "ingester-2"),
    ("distributor", "distributor"),
    ("querier", "querier"),
];
/// Offsets from the first port: client ports, then internal ports, then gossip ports.
const INTERNAL_PORT_OFFSET: u16 = 100;
const GOSSIP_PORT_OFFSET: u16 = 200;
/// Number of ports that a cluster needs after the first one.
const PORT_RANGE_LENGTH: u16 = GOSSIP_PORT_OFFSET + 15;

/// Cluster of processes on this machine.
pub struct ClusterPlan {
    pub folder: PathBuf,
    pub nodes: Vec<PlannedNode>,
}

/// Process of the planned cluster.
#[derive(Clone, Debug)]
pub struct PlannedNode {
    pub name: String,
    pub role: &'static str,
    pub folder: PathBuf,
    pub config: PathBuf,
    /// TCP port for clients.
    pub port: u16,
    /// TCP port for other nodes.
    pub internal_port: u16,
    /// UDP port for gossip.
    pub gossip_port: u16,
}

impl ClusterPlan {
    /// Writes the settings of all nodes, and their shared files, into the folder.
    pub fn write(args: &DevClusterArgs, random: &Random) -> Result<Self, Status> {
        if args.port.checked_add(PORT_RANGE_LENGTH).is_none() {
            let seen = args.port;
            let most = u16::MAX - PORT_RANGE_LENGTH;
            let message = format!(
                "--port is {seen}, but {PORT_RANGE_LENGTH} more ports are needed; write {most} or less"
            );
            return Err(Status::new(ErrorCode::Invalid, message));
        }
        let folder = &args.data;
        fs::create_dir_all(folder).map_err(|error| failure::io_error(folder, error))?;
        let folder = fs::canonicalize(folder).map_err(|error| failure::io_error(folder, error))?;
        let id = kept(&folder, "cluster-id", random)?;
        kept(&folder, "secret", random)?;
        let mut nodes = Vec::new();
        for (zone, role, name) in
            ZONE_NAMES.iter().flat_map(|zone| ROLES_PER_ZONE.map(|(role, name)| (*zone, role, name)))
        {
            let number = nodes.len() as u16;
            let name = format!("{name}-{zone}");
            let place = folder.join(&name);
            let node = PlannedNode {
                config: place.join("athanor.yaml"),
                folder: place,
                name,
                role,
                port: args.port + of_clients(number),
                internal_port: args.port + INTERNAL_PORT_OFFSET + number,
                gossip_port: args.port + GOSSIP_PORT_OFFSET + number,
            };
            fs::create_dir_all(&node.folder).map_err(|error| failure::io_error(&node.folder, error))?;
            let text = settings(args, &folder, &node, zone, &id);
            fs::write(&node.config, text).map_err(|error| failure::io_error(&node.config, error))?;
            nodes.push(node);
        }
        Ok(Self { folder, nodes })
    }

    /// Fails if another process uses one of the ports. Otherwise the cluster would be incomplete, and the
    /// other process would be taken for a node.
    pub async fn check_ports(&self, net: &dyn Net, gossip: &dyn Transport) -> Result<(), Status> {
        let mut taken = Vec::new();
        for node in &self.nodes {
            let name = &node.name;
            for (port, users) in [(node.port, "clients"), (node.internal_port, "other nodes")] {
                if let Err(error) = net.listen(loopback(port)).await {
                    taken.push(format!("port {port} of {name}, for {users}: {error}"));
                }
            }
            if let Err(error) = gossip.open(loopback(node.gossip_port)).await {
                let port = node.gossip_port;
                taken.push(format!("port {port} of {name}, for gossip: {}", error.root_cause()));
            }
        }
        if taken.is_empty() {
            return Ok(());
        }
        let message = format!(
            "ports of the cluster are in use; stop the processes that use them, or select other ports with --port:\n  {}",
            taken.join("\n  ")
        );
        Err(Status::new(ErrorCode::Unavailable, message))
    }

    /// Returns the addresses and hints that are printed at start.
    pub fn summary_text(&self) -> String {
        let mut text = String::new();
        let of = |role: &str| {
            let all = self.nodes.iter().filter(|node| node.role == role);
            all.map(|node| format!("http://127.0.0.1:{}", node.port)).collect::<Vec<_>>().join("  ")
        };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "push to   {}\nquery     {}\npages     /members, /shards and /compaction of each process\nfolder    {}: settings, data and log of each process\n\
             Ctrl-C stops all processes. Restart a killed one with athanor serve --config FOLDER/NAME/athanor.yaml\n",
            of("distributor"),
            of("querier"),
            self.folder.display()
        );
        text
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Returns the offset of a node's client port. Distributors and queriers come first, because users type their
/// ports.
fn of_clients(number: u16) -> u16 {
    let zone = number / ROLES_PER_ZONE.len() as u16;
    let place = number % ROLES_PER_ZONE.len() as u16;
    match place {
        3 => 2 * zone,
        4 => 2 * zone + 1,
        place => 10 + 3 * zone + place,
    }
}

/// Returns a random text of 32 hexadecimal digits, which is drawn once and stored in a file.
fn kept(folder: &Path, name: &str, random: &Random) -> Result<String, Status> {
    let path = folder.join(name);
    if let Ok(text) = fs::read_to_string(&path) {
        return Ok(text.trim().to_owned());
    }
    let drawn = format!("{:032x}", random.next_id() | 1);
    fs::write(&path, format!("{drawn}\n")).map_err(|error| failure::io_error(&path, error))?;
    Ok(drawn)
}

fn settings(args: &DevClusterArgs, folder: &Path, node: &PlannedNode, zone: &str, id: &str) -> String {
    let quoted = |path: PathBuf| serde_json::Value::from(path.display().to_string()).to_string();
    let gossip = |number: u16| format!("127.0.0.1:{}", args.port + GOSSIP_PORT_OFFSET + number);
    // The first metastore of each zone is a seed.
    let seeds = [0, 5, 10].map(|number| format!("\"{}\"", gossip(number))).join(", ");
    format!(
        "target: {role}\nhttp_listen_address: \"127.0.0.1:{port}\"\ndata_dir: {data}\nshutdown_delay: 0s\n\
         cluster:\n  id: \"{id}\"\n  node_name: {name}\n  availability_zone: {zone}\n  \
         secret_file: {secret}\n  internal_listen_address: \"127.0.0.1:{internal}\"\n  \
         gossip_listen_address: \"{here}\"\n  seed_nodes: [{seeds}]\n\
         wal:\n  segment_bytes: 16MiB\n  preallocated_segments: 1\nstorage:\n  local: {bucket}\n{more}",
        role = target(node.role),
        port = node.port,
        data = quoted(node.folder.join("data")),
        name = node.name,
        secret = quoted(folder.join("secret")),
        internal = node.internal_port,
        here = format_args!("127.0.0.1:{}", node.gossip_port),
        bucket = quoted(folder.join("bucket")),
        more = limits(args),
    )
}

/// Returns the roles of a process. Queriers are store-gateways as well, so the three share the blocks. They also
/// merge blocks.
fn target(role: &'static str) -> &'static str {
    if role == "querier" { "compactor,querier,store-gateway" } else { role }
}

/// Returns the settings that accept profiles of any age, if requested.
fn limits(args: &DevClusterArgs) -> &'static str {
    if args.any_age { "limits:\n  reject_older_than: 0s\n" } else { "" }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use athanor_chassis::config::ConfigSources;
    use athanor_server::ServerConfig;

    use super::*;

    #[test]
    fn each_process_has_settings_that_a_server_takes() {
        let folder = tempfile::tempdir().unwrap();
        let args = DevClusterArgs { data: folder.path().join("it is \"here\""), port: 4040, any_age: true };
        let plan = ClusterPlan::write(&args, &Random::from_seed(1)).unwrap();
        assert_eq!(plan.nodes.len(), 15);
        let mut ports = BTreeSet::new();
        for node in &plan.nodes {
            let loaded =
                ConfigSources::default().with_file(&node.config).unwrap().load::<ServerConfig>().unwrap();
            assert!(loaded.value.problems().is_empty());
            let cluster = &loaded.value.cluster;
            assert_eq!(loaded.value.target.to_string(), target(node.role));
            let (internal, gossip) = (&cluster.internal_listen_address, &cluster.gossip_listen_address);
            for address in [Some(&loaded.value.http_listen_address), internal.as_ref(), gossip.as_ref()] {
                assert!(ports.insert(address.unwrap().clone()), "{address:?} twice");
            }
        }
        let again = ClusterPlan::write(&args, &Random::from_seed(2)).unwrap();
        let id = |plan: &ClusterPlan| fs::read_to_string(plan.folder.join("cluster-id")).unwrap();
        assert_eq!(id(&again), id(&plan));
        assert!(plan.summary_text().contains("http://127.0.0.1:4040  http://127.0.0.1:4042"));
        let high = ClusterPlan::write(&DevClusterArgs { port: 65_500, ..args }, &Random::from_seed(1))
            .map(drop)
            .unwrap_err();
        assert!(high.message.contains("--port is 65500"), "{high}");
    }
}
