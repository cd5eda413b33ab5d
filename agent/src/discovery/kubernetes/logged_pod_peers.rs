//! Pods of the node by the addresses of their processes, for agents that may not read the API.
//!
//! ```text
//!  /proc/PID/cgroup ─► uid of the pod ─► names in /var/log/pods
//!  /proc/PID/net    ─► addresses      ──────────┴─► labels by address
//! ```
//!
//! It needs the processes of the host (`hostPID`) and the folder of pod logs.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use athanor_profile::Labels;

use super::pod_log_folders::{LoggedPod, list_logged_pods};

/// Maximum processes of a host that are looked at.
const MAX_PROCESSES: usize = 65_536;
/// Maximum bytes of a file of a process that are read.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// First process of the host. Its addresses are those of the node.
const INIT_PROCESS: &str = "1";
/// Text before the uid of a pod in the path of a cgroup.
const POD_MARK: &str = "pod";
/// Minimum length of a uid: that of the hash of a static pod.
const MIN_UID_LENGTH: usize = 32;

/// Returns the labels of the pods in `log_folder` by the addresses of their processes in `processes`, which is
/// usually `/proc`. Pods in the network of the node are left out.
///
/// # Errors
///
/// A folder cannot be read.
pub fn list_logged_pod_peers(processes: &Path, log_folder: &Path) -> io::Result<HashMap<IpAddr, Labels>> {
    let pods = list_logged_pods(log_folder)?;
    let mut pods: HashMap<String, LoggedPod> = pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
    let node: HashSet<IpAddr> = process_addresses(&processes.join(INIT_PROCESS)).into_iter().collect();
    let mut peers = HashMap::new();
    for entry in std::fs::read_dir(processes)?.take(MAX_PROCESSES) {
        let process = entry?.path();
        let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        if !process.file_name().and_then(|name| name.to_str()).is_some_and(is_process) {
            continue;
        }
        let cgroup = read_file(&process.join("cgroup"));
        // One process of a pod is enough: all share its network.
        let uid = cgroup.lines().find_map(pod_uid).filter(|uid| pods.contains_key(uid));
        let Some(uid) = uid else { continue };
        let addresses = process_addresses(&process);
        // A process that just ended has none. Another one of the pod may have them.
        if addresses.is_empty() {
            continue;
        }
        let Some(pod) = pods.remove(&uid) else { continue };
        let labels = pod_labels(&pod);
        let own = addresses.into_iter().filter(|address| !node.contains(address));
        peers.extend(own.map(|address| (address, labels.clone())));
        if pods.is_empty() {
            break;
        }
    }
    Ok(peers)
}

/// Returns the labels of the pods in `log_folder` by their uids.
///
/// # Errors
///
/// The folder cannot be read.
pub fn list_logged_pod_labels(log_folder: &Path) -> io::Result<HashMap<String, Labels>> {
    let pods = list_logged_pods(log_folder)?;
    Ok(pods.into_iter().map(|pod| (pod.uid.clone(), pod_labels(&pod))).collect())
}

/// Returns labels as the API would yield them: the names, and the meta labels that `service_name` is inferred
/// from.
fn pod_labels(pod: &LoggedPod) -> Labels {
    let container = match &*pod.containers {
        [container] => container.as_str(),
        _ => "",
    };
    let names = [("namespace", &*pod.namespace), ("pod", &*pod.name), ("container", container)];
    let meta = [
        ("__meta_kubernetes_namespace", &*pod.namespace),
        ("__meta_kubernetes_pod_name", &*pod.name),
        ("__meta_kubernetes_pod_container_name", container),
    ];
    let mut labels = Labels::default();
    for (name, value) in names.into_iter().chain(meta).filter(|(_, value)| !value.is_empty()) {
        labels.set(name, value);
    }
    labels
}

/// Returns the uid of the pod in a line of a cgroup file, as the kubelet writes it: `…/pod<uid>/…`, or
/// `…-pod<uid with underscores>.slice/…`.
fn pod_uid(line: &str) -> Option<String> {
    line.split('/').find_map(|part| {
        let (_, rest) = part.rsplit_once(POD_MARK)?;
        let uid = rest.strip_suffix(".slice").unwrap_or(rest).replace('_', "-");
        let is_uid = uid.len() >= MIN_UID_LENGTH && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        is_uid.then_some(uid)
    })
}

/// Returns the addresses of the network of a process, without loopback and link-local ones.
fn process_addresses(process: &Path) -> Vec<IpAddr> {
    let mut addresses = local_ipv4(&read_file(&process.join("net/fib_trie")));
    addresses.extend(local_ipv6(&read_file(&process.join("net/if_inet6"))));
    addresses
}

/// Returns the own addresses in a routing table: those whose route `/32` is of type `LOCAL`.
fn local_ipv4(table: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL")
            && let Some(address) = last.take_if(|address| !address.is_loopback() && !address.is_link_local())
        {
            addresses.push(IpAddr::V4(address));
        }
    }
    addresses
}

/// Returns the addresses in the list of interface addresses: 32 digits and the name of the interface.
fn local_ipv6(list: &str) -> Vec<IpAddr> {
    let addresses = list.lines().filter_map(|line| u128::from_str_radix(line.get(..32)?, 16).ok());
    let addresses = addresses.map(Ipv6Addr::from_bits);
    let global = addresses.filter(|address| !address.is_loopback() && !address.is_unicast_link_local());
    global.map(IpAddr::V6).collect()
}

/// Returns the start of a file. A process that ended meanwhile has none.
fn read_file(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    if read.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e1234-aaaa-bbbb-cccc-0123456789ab";

    fn trie(address: &str) -> String {
        format!(
            "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- {address}\n        \
             /32 host LOCAL\n     |-- 10.1.0.255\n        /32 link BROADCAST\n"
        )
    }

    fn add_process(folder: &Path, id: &str, cgroup: &str, address: &str) {
        let process = folder.join("proc").join(id);
        std::fs::create_dir_all(process.join("net")).unwrap();
        std::fs::write(process.join("cgroup"), cgroup).unwrap();
        std::fs::write(process.join("net/fib_trie"), trie(address)).unwrap();
        let list = "fd000000000000000000000000000007 02 40 00 80     eth0\n\
                    fe800000000000000000000000000001 02 40 20 80     eth0\n";
        std::fs::write(process.join("net/if_inet6"), if id == INIT_PROCESS { "" } else { list }).unwrap();
    }

    #[test]
    fn peers_have_names_of_log_folders_without_the_api() {
        let folder = tempfile::tempdir().unwrap();
        let static_uid = "5f3d5f3d5f3d5f3d5f3d5f3d5f3d5f3d";
        for path in [format!("shop_cart-0_{UID}/main"), format!("kube-system_etcd_{static_uid}/etcd")] {
            std::fs::create_dir_all(folder.path().join("logs").join(path)).unwrap();
        }
        add_process(folder.path(), "1", "0::/init.scope\n", "192.0.2.9");
        let slice = UID.replace('-', "_");
        let cgroup = format!("0::/../kubepods-burstable-pod{slice}.slice/cri-containerd-12.scope\n");
        add_process(folder.path(), "812", &cgroup, "10.1.0.7");
        add_process(folder.path(), "813", &format!("1:cpu:/kubepods/pod{static_uid}/ab\n"), "192.0.2.9");
        add_process(folder.path(), "self", &cgroup, "10.1.0.8");
        let peers = list_logged_pod_peers(&folder.path().join("proc"), &folder.path().join("logs")).unwrap();
        let names = |address: &str| {
            let labels = peers.get(&address.parse::<IpAddr>().unwrap())?;
            Some(["namespace", "pod", "container"].map(|name| labels.get(name).unwrap().to_owned()))
        };
        let cart = Some(["shop", "cart-0", "main"].map(str::to_owned));
        assert_eq!(names("10.1.0.7"), cart);
        assert!(names("fd00::7").is_some() && names("fe80::1").is_none());
        // The pod in the network of the node, and what is no process.
        assert!(names("192.0.2.9").is_none() && names("10.1.0.8").is_none() && names("127.0.0.1").is_none());
    }

    #[test]
    fn cgroups_of_both_drivers_name_the_pod() {
        let slice = format!("0::/kubepods.slice/kubepods-pod{}.slice/cri-1.scope", UID.replace('-', "_"));
        assert_eq!(pod_uid(&slice).as_deref(), Some(UID));
        assert_eq!(pod_uid(&format!("11:memory:/kubepods/besteffort/pod{UID}/1a2b")).as_deref(), Some(UID));
        for other in ["0::/user.slice/podman-12.scope", "0::/", "", "0::/pod/podabc.slice"] {
            assert_eq!(pod_uid(other), None, "{other}");
        }
    }
}
