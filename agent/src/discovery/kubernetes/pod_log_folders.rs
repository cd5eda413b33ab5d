//! Pods of the node by their log folders, for agents that may not read the API.
//!
//! The kubelet keeps logs in `<namespace>_<pod>_<uid>/<container>/`, usually below `/var/log/pods`.

use std::fs::DirEntry;
use std::io;
use std::path::Path;

/// Maximum pods of a node that are read.
const MAX_PODS_PER_NODE: usize = 4096;
/// Maximum containers of a pod that are read.
const MAX_CONTAINERS_PER_POD: usize = 256;
/// Maximum entries of a folder that are looked at.
const MAX_FOLDER_ENTRIES: usize = 65_536;

/// Pod that has a log folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedPod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Unique id of the pod. For static pods it is the hash of their configuration.
    pub uid: String,
    /// Names of its containers and init containers, sorted.
    pub containers: Vec<String>,
}

/// Returns the pods that have a folder in `folder`, sorted by namespace, name and uid. Other entries are
/// skipped. Symbolic links are not followed.
///
/// # Errors
///
/// If the folder cannot be read, for example because it is not mounted.
pub fn list_logged_pods(folder: &Path) -> io::Result<Vec<LoggedPod>> {
    let mut pods = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(MAX_FOLDER_ENTRIES) {
        let Some(name) = folder_name(&entry?) else { continue };
        let Some(mut pod) = parse_pod_folder(&name) else { continue };
        pod.containers = match list_containers(&folder.join(&name)) {
            Ok(containers) => containers,
            // The pod was removed since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        pods.push(pod);
        if pods.len() >= MAX_PODS_PER_NODE {
            break;
        }
    }
    pods.sort_by(|left, right| {
        (&left.namespace, &left.name, &left.uid).cmp(&(&right.namespace, &right.name, &right.uid))
    });
    Ok(pods)
}

fn list_containers(folder: &Path) -> io::Result<Vec<String>> {
    let mut containers = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(MAX_FOLDER_ENTRIES) {
        let name = folder_name(&entry?);
        containers.extend(name.filter(|name| is_dns_name(name, false)));
        if containers.len() >= MAX_CONTAINERS_PER_POD {
            break;
        }
    }
    containers.sort_unstable();
    Ok(containers)
}

/// Returns the name of an entry that is a folder.
fn folder_name(entry: &DirEntry) -> Option<String> {
    let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
    entry.file_name().into_string().ok().filter(|_| is_folder)
}

fn parse_pod_folder(name: &str) -> Option<LoggedPod> {
    let mut parts = name.split('_');
    let namespace = parts.next()?;
    let pod = parts.next()?;
    let uid = parts.next()?;
    let is_uid = !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let is_pod = parts.next().is_none() && is_dns_name(namespace, false) && is_dns_name(pod, true) && is_uid;
    is_pod.then(|| LoggedPod {
        namespace: namespace.to_owned(),
        name: pod.to_owned(),
        uid: uid.to_owned(),
        containers: Vec::new(),
    })
}

/// Returns whether Kubernetes allows the name. Names of pods may contain dots.
fn is_dns_name(name: &str, has_dots: bool) -> bool {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || (has_dots && byte == b'.')
    };
    (1..=253).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create_folders(paths: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for path in paths {
            std::fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        folder
    }

    #[test]
    fn pods_and_containers_have_names_of_folders() {
        let folder = create_folders(&[
            "shop_cart-0_0f0e-11/proxy",
            "shop_cart-0_0f0e-11/main",
            "kube-system_etcd.node-1_5f3d/etcd",
        ]);
        std::fs::write(folder.path().join("shop_cart-0_0f0e-11/0.log"), "x").unwrap();
        let pods = list_logged_pods(folder.path()).unwrap();
        let pods: Vec<_> = pods.iter().map(|pod| (&*pod.namespace, &*pod.name, &*pod.uid)).collect();
        assert_eq!(pods, [("kube-system", "etcd.node-1", "5f3d"), ("shop", "cart-0", "0f0e-11")]);
        let pods = list_logged_pods(folder.path()).unwrap();
        assert_eq!(pods[1].containers, ["main", "proxy"]);
    }

    #[test]
    fn entries_that_are_no_pods_are_skipped() {
        let folder =
            create_folders(&["lost+found", "a_b", "a_b_c-x_d", "A_b_01", "_b_01", "a_b_", "a_.._zz"]);
        std::fs::write(folder.path().join("a_b_01"), "no folder").unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("a_b_02")).unwrap();
        assert_eq!(list_logged_pods(folder.path()).unwrap(), []);
    }

    #[test]
    fn missing_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let missing = list_logged_pods(&folder.path().join("pods"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
