//! Network namespace of the agent, with a link to clients and targets and a link to the server that a test takes down.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

/// Beginning of the names of namespaces. The process that made one follows, and the number within the process.
const NAMESPACE_PREFIX: &str = "athanor-ledger-";
/// Distance of the subnets of one process.
const SUBNET_DISTANCE: u32 = 101;

/// Number of the next namespace of this process.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

/// Namespace of the agent. Dropping it removes the namespace with its links.
pub struct AgentNetwork {
    namespace: String,
    server_link: String,
    subnet: u8,
}

impl AgentNetwork {
    /// Creates the namespace and its links.
    ///
    /// # Errors
    /// The process may not create namespaces, or `ip` is missing.
    pub fn build() -> Result<Self, String> {
        remove_abandoned_namespaces();
        let process = process::id();
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{NAMESPACE_PREFIX}{process}-{number}");
        ip(&format!("netns add {namespace}"))?;
        let subnet = ((process + number * SUBNET_DISTANCE) % 256) as u8;
        let network = Self { namespace, server_link: format!("aled{process}-s{number}"), subnet };
        let client_link = format!("aled{process}-c{number}");
        network.add_link(&client_link, "clients", network.client_side(), network.agent_address())?;
        let own_address = Ipv4Addr::new(10, 79, network.subnet, 6);
        network.add_link(&network.server_link, "server", network.server_side(), own_address)?;
        ip(&format!("-n {} link set lo up", network.namespace))?;
        Ok(network)
    }

    fn add_link(&self, name: &str, peer: &str, outside: Ipv4Addr, inside: Ipv4Addr) -> Result<(), String> {
        let namespace = &self.namespace;
        ip(&format!("link add {name} type veth peer name {peer} netns {namespace}"))?;
        ip(&format!("address add {outside}/30 dev {name}"))?;
        ip(&format!("link set {name} up"))?;
        ip(&format!("-n {namespace} address add {inside}/30 dev {peer}"))?;
        ip(&format!("-n {namespace} link set {peer} up"))
    }

    /// Returns the name of the namespace, for `ip netns exec`.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the address of clients and targets.
    pub fn client_side(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, self.subnet, 1)
    }

    /// Returns the address of the server.
    pub fn server_side(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, self.subnet, 5)
    }

    /// Returns the address at which clients reach the agent.
    pub fn agent_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, self.subnet, 2)
    }

    /// Takes the link to the server down, or up again. Packets are lost without an error to either side.
    pub fn set_partition(&self, is_partitioned: bool) {
        let state = if is_partitioned { "down" } else { "up" };
        ip(&format!("link set {} {state}", self.server_link)).unwrap();
    }
}

impl Drop for AgentNetwork {
    fn drop(&mut self) {
        // The links end with the namespace.
        let _ = ip(&format!("netns delete {}", self.namespace));
    }
}

/// Removes namespaces of killed test processes.
fn remove_abandoned_namespaces() {
    let Ok(entries) = fs::read_dir("/run/netns") else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let process = name.strip_prefix(NAMESPACE_PREFIX).and_then(|rest| rest.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
