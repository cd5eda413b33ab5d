//! Facts of the host that are labels of each process.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum bytes of a file of the system that are read.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum number of users whose names are known.
const MAX_USERS: usize = 16_384;

/// Facts of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Name of the node in a cluster, else of the host.
    pub node: String,
    /// The node is one of a Kubernetes cluster.
    pub is_cluster_node: bool,
    /// Release of the kernel.
    pub kernel_release: String,
    /// Machine of the kernel, such as `x86_64`.
    pub kernel_machine: String,
    /// Model of the first CPU.
    pub cpu_model: String,
    /// NUMA nodes in use, as the kernel lists them, such as `0-1`.
    pub numa_nodes: String,
    /// Names of users by id.
    pub users: HashMap<u32, String>,
}

impl HostFacts {
    /// Reads the facts below a folder, usually `/`. Facts that cannot be read are empty. `cluster_node` is the name
    /// of the node in a cluster.
    pub fn read(root: &Path, cluster_node: Option<&str>) -> Self {
        let names = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        Self {
            node: cluster_node.map_or_else(|| text(names.nodename()), str::to_owned),
            is_cluster_node: cluster_node.is_some(),
            kernel_release: text(names.release()),
            kernel_machine: text(names.machine()),
            cpu_model: cpu_model(&read_text(&root.join("proc/cpuinfo"))),
            numa_nodes: read_text(&root.join("sys/devices/system/node/online")).trim().to_owned(),
            users: user_names(&read_text(&root.join("etc/passwd"))),
        }
    }
}

/// Returns the start of a file, or nothing if it cannot be read.
pub(in crate::sampling) fn read_text(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    if read.is_ok() { String::from_utf8_lossy(&bytes).into_owned() } else { String::new() }
}

fn cpu_model(text: &str) -> String {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let model =
        fields.map(|(name, value)| (name.trim(), value.trim())).find(|(name, _)| *name == "model name");
    model.map(|(_, value)| value.to_owned()).unwrap_or_default()
}

fn user_names(text: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.lines().take(MAX_USERS) {
        let mut fields = line.split(':');
        let name = fields.next().unwrap_or_default();
        // The second field is the password.
        if let Some(id) = fields.nth(1).and_then(|id| id.parse().ok()) {
            names.entry(id).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_from_files_of_the_system() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n\nmodel name\t: other\n");
        write("sys/devices/system/node/online", "0-1\n");
        write(
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/sh\nbad line\nweb:x:33:33::/:/bin/false\nroot2:x:0:0\n",
        );
        let facts = HostFacts::read(root.path(), Some("node-1"));
        assert_eq!((facts.node.as_str(), facts.is_cluster_node), ("node-1", true));
        assert_eq!((facts.cpu_model.as_str(), facts.numa_nodes.as_str()), ("Fast CPU @ 3 GHz", "0-1"));
        assert_eq!(facts.users, HashMap::from([(0, "root".to_owned()), (33, "web".to_owned())]));
        assert!(!facts.kernel_release.is_empty() && !facts.kernel_machine.is_empty());
        let empty = HostFacts::read(&root.path().join("nothing"), None);
        assert_eq!((empty.cpu_model.as_str(), empty.users.len(), empty.is_cluster_node), ("", 0, false));
    }
}
