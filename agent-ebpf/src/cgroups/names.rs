//! Containers, pods and units in the path of a cgroup.
//!
//! Names in paths by runtime:
//!
//! | runtime | name |
//! |---|---|
//! | Docker | `docker-ID.scope`, `docker/ID`, `moby/ID` |
//! | containerd | `cri-containerd-ID.scope`, `nerdctl-ID.scope`, `…:cri-containerd:ID`, `k8s.io/ID` |
//! | CRI-O | `crio-ID.scope` |
//! | Podman | `libpod-ID.scope`, `libpod-payload-ID` |
//! | any | `kubepods/burstable/podUID/ID`, where the path does not name the runtime |
//!
//! Containers may be nested, as in kind. The last id counts.

use std::sync::Arc;

use crate::processes::{ContainerFacts, ContainerRuntime};

/// Parts of a path that are looked at, from its end. The kernel allows more.
const MAX_PARTS: usize = 256;
const CONTAINER_ID_BYTES: usize = 64;
const POD_UID_BYTES: usize = 36;
const STATIC_POD_UID_BYTES: usize = 32;
const RUNTIME_PREFIXES: [(&str, ContainerRuntime); 9] = [
    ("cri-containerd", ContainerRuntime::Containerd),
    ("containerd", ContainerRuntime::Containerd),
    ("nerdctl", ContainerRuntime::Containerd),
    ("crio", ContainerRuntime::CriO),
    ("cri-o", ContainerRuntime::CriO),
    ("docker", ContainerRuntime::Docker),
    ("libpod", ContainerRuntime::Podman),
    ("libpod-payload", ContainerRuntime::Podman),
    ("podman", ContainerRuntime::Podman),
];
const RUNTIME_FOLDERS: [(&str, ContainerRuntime); 5] = [
    ("docker", ContainerRuntime::Docker),
    ("moby", ContainerRuntime::Docker),
    ("k8s.io", ContainerRuntime::Containerd),
    ("libpod_parent", ContainerRuntime::Podman),
    ("podman", ContainerRuntime::Podman),
];

/// Names in the path of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CgroupNames {
    /// Container.
    pub container: Option<ContainerFacts>,
    /// Systemd unit: the last service or scope. Empty if none.
    pub systemd_unit: String,
    /// Systemd slice of the unit: the last one before it. Empty if none.
    pub systemd_slice: String,
}

// === impl CgroupNames ===

impl CgroupNames {
    /// Finds the names in a path.
    pub fn from_path(path: &str) -> Self {
        let mut parts: Vec<&str> = path.rsplit('/').filter(|part| !part.is_empty()).take(MAX_PARTS).collect();
        parts.reverse();
        let unit = parts.iter().rposition(|part| is_unit(part));
        let above_unit = parts.get(..unit.unwrap_or(parts.len())).unwrap_or_default();
        let slice = above_unit.iter().rev().find(|part| has_suffix(part, ".slice"));
        let unescape_part = |part: &&str| unescape_unit(part);
        Self {
            container: find_container(&parts),
            systemd_unit: unit.and_then(|unit| parts.get(unit)).map(unescape_part).unwrap_or_default(),
            systemd_slice: slice.map(unescape_part).unwrap_or_default(),
        }
    }
}

/// Returns whether a text is a container id: 64 lower-case hex digits.
pub fn is_container_id(text: &str) -> bool {
    text.len() == CONTAINER_ID_BYTES && is_hex(text)
}

fn find_container(parts: &[&str]) -> Option<ContainerFacts> {
    let find = |(position, part): (usize, &&str)| {
        let parent = position.checked_sub(1).and_then(|parent| parts.get(parent)).copied();
        let (id, runtime) = parse_container(part, parent)?;
        Some((position, id.to_owned(), runtime))
    };
    let (position, id, runtime) = parts.iter().enumerate().rev().find_map(find)?;
    let above = parts.get(..=position).unwrap_or_default();
    let pod_uid = above.iter().rev().find_map(|part| parse_pod_uid(part)).map(Arc::from);
    Some(ContainerFacts { id: id.into(), runtime, pod_uid })
}

/// Returns the container id and runtime of one part of a path.
fn parse_container<'a>(part: &'a str, parent: Option<&str>) -> Option<(&'a str, ContainerRuntime)> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let runtime_by = |table: &[(&str, ContainerRuntime)], wanted: &str| {
        table.iter().find(|(name, _)| *name == wanted).map(|(_, runtime)| *runtime)
    };
    if is_container_id(name) {
        let runtime = parent.and_then(|parent| runtime_by(&RUNTIME_FOLDERS, parent));
        return Some((name, runtime.unwrap_or(ContainerRuntime::Unknown)));
    }
    if let Some(id) = parse_task_id(name, parent) {
        return Some((id, ContainerRuntime::Unknown));
    }
    // `SLICE:RUNTIME:ID` is how a runtime without systemd uses a name that is meant for it.
    let colon = name.rsplit_once(':');
    let (head, id) = colon.or_else(|| name.rsplit_once('-'))?;
    if !is_container_id(id) {
        return None;
    }
    let prefix = head.rsplit(':').next().unwrap_or(head);
    // The monitor of a container is not in it.
    if has_suffix(prefix, "conmon") {
        return None;
    }
    Some((id, runtime_by(&RUNTIME_PREFIXES, prefix).unwrap_or(ContainerRuntime::Unknown)))
}

/// Returns the container id of ECS: 32 hex digits of the task, a dash, and a number.
fn parse_task_id<'a>(name: &'a str, parent: Option<&str>) -> Option<&'a str> {
    let (task, number) = name.split_once('-')?;
    let is_number =
        !number.is_empty() && number.len() <= 20 && number.bytes().all(|byte| byte.is_ascii_digit());
    (task.len() == STATIC_POD_UID_BYTES && is_hex(task) && is_number && parent == Some(task)).then_some(name)
}

/// Returns the UID of a pod in `podUID`, `kubepods-burstable-podUID.slice`, and the same before a colon.
fn parse_pod_uid(part: &str) -> Option<String> {
    let part = part.split(':').next().unwrap_or(part);
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = match name.strip_prefix("pod") {
        Some(uid) => uid,
        None => name.rsplit_once("-pod")?.1,
    };
    let uid = uid.replace('_', "-");
    let is_dash = |position| matches!(position, 8 | 13 | 18 | 23);
    let is_uuid = uid.len() == POD_UID_BYTES
        && uid.bytes().enumerate().all(|(position, byte)| match byte {
            b'-' => is_dash(position),
            byte => !is_dash(position) && is_hex_digit(byte),
        });
    // Static pods have the hash of their manifest.
    let is_hash = uid.len() == STATIC_POD_UID_BYTES && is_hex(&uid);
    (is_uuid || is_hash).then_some(uid)
}

fn is_unit(part: &str) -> bool {
    has_suffix(part, ".service") || has_suffix(part, ".scope")
}

/// Returns whether a name ends with a suffix and has more than it.
fn has_suffix(name: &str, suffix: &str) -> bool {
    name.len() > suffix.len() && name.ends_with(suffix)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(is_hex_digit)
}

fn is_hex_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Returns the name of a unit: without the underscore before names that the kernel uses itself, and with `\xNN`
/// replaced by the byte.
fn unescape_unit(part: &str) -> String {
    let name = part.strip_prefix('_').unwrap_or(part);
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = rest.strip_prefix(b"\\x").and_then(|tail| tail.split_at_checked(2));
        let escaped = digits.and_then(|(digits, tail)| Some((parse_hex_byte(digits)?, tail)));
        let (byte, tail) = escaped.unwrap_or((first, tail));
        bytes.push(byte);
        rest = tail;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn parse_hex_byte(digits: &[u8]) -> Option<u8> {
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u8::from_str_radix(text, 16).ok()
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
