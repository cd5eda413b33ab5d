//! Identity of this node: drawn at random once, stored in its folder. A node with a wiped folder is a new
//! node [INV-08].

use athanor_chassis::disk::DiskError;
use athanor_chassis::{Disk, ErrorCode, ErrorCodeExt, Random};
use athanor_consensus::log::LogIdentity;
use serde::{Deserialize, Serialize};

const IDENTITY_FILE: &str = "node.json";
const BOOT_COUNT_FILE: &str = "boot.json";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityRecord {
    cluster: String,
    node: u64,
}

/// Count of starts as a member of a cluster.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BootRecord {
    boot: u64,
}

/// Errors of loading the node identity.
#[derive(Debug, thiserror::Error)]
pub enum NodeIdentityError {
    /// The folder cannot be read or written.
    #[error("failed to load or store the node identity")]
    Disk(#[from] DiskError),
    /// The folder belongs to another cluster.
    #[error(
        "the data folder belongs to cluster {found:032x}, but cluster.id is {wanted:032x}; name another folder with --data, or set cluster.id to {found:032x}"
    )]
    Foreign {
        /// Cluster id in the folder.
        found: u128,
        /// Cluster id in the settings.
        wanted: u128,
    },
    /// The file with the number of starts is malformed.
    #[error(
        "{BOOT_COUNT_FILE} in the folder `state` cannot be read ({why}): restore it, or start with an empty folder as a new node"
    )]
    Uncounted {
        /// Parse error of the file.
        why: String,
    },
    /// The identity file is malformed.
    #[error(
        "{IDENTITY_FILE} in the folder `state` cannot be read ({why}): restore it, or start with an empty folder as a new node"
    )]
    Unreadable {
        /// Parse error of the file.
        why: String,
    },
}

impl ErrorCodeExt for NodeIdentityError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Disk(error) => error.code(),
            Self::Foreign { .. } => ErrorCode::Conflict,
            Self::Unreadable { .. } | Self::Uncounted { .. } => ErrorCode::DataLoss,
        }
    }
}

/// Loads the identity or creates it. `cluster` is the configured cluster id, if any.
pub fn load(
    disk: &dyn Disk,
    random: &Random,
    cluster: Option<u128>,
) -> Result<LogIdentity, NodeIdentityError> {
    let unreadable = |why: String| NodeIdentityError::Unreadable { why };
    if !disk.list()?.iter().any(|name| name == IDENTITY_FILE) {
        let cluster = cluster.unwrap_or_else(|| random.next_id());
        let identity = LogIdentity { cluster, node: random.next_u64() };
        let written = IdentityRecord { cluster: format!("{:032x}", identity.cluster), node: identity.node };
        let bytes = serde_json::to_vec(&written).map_err(|error| unreadable(error.to_string()))?;
        disk.write(IDENTITY_FILE, &bytes)?;
        return Ok(identity);
    }
    let bytes = disk.read(IDENTITY_FILE)?;
    let written: IdentityRecord =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    let found = u128::from_str_radix(&written.cluster, 16).map_err(|error| unreadable(error.to_string()))?;
    match cluster {
        Some(wanted) if wanted != found => Err(NodeIdentityError::Foreign { found, wanted }),
        _ => Ok(LogIdentity { cluster: found, node: written.node }),
    }
}

/// Increments the durable count of starts and returns it. A clock is no substitute: it may go back, and other
/// nodes would take this start for an earlier one.
pub fn next_boot(disk: &dyn Disk) -> Result<u64, NodeIdentityError> {
    let uncounted = |why: serde_json::Error| NodeIdentityError::Uncounted { why: why.to_string() };
    let before = if disk.list()?.iter().any(|name| name == BOOT_COUNT_FILE) {
        serde_json::from_slice::<BootRecord>(&disk.read(BOOT_COUNT_FILE)?).map_err(uncounted)?.boot
    } else {
        0
    };
    let boot = before.saturating_add(1);
    disk.write(BOOT_COUNT_FILE, &serde_json::to_vec(&BootRecord { boot }).map_err(uncounted)?)?;
    Ok(boot)
}

#[cfg(test)]
mod tests {
    use athanor_chassis::disk::MemoryDisk;

    use super::*;

    #[test]
    fn a_node_stays_who_it_is() {
        let disk = MemoryDisk::new();
        let random = Random::from_seed(1);
        let first = load(&disk, &random, None).unwrap();
        assert_eq!(load(&disk, &random, None).unwrap(), first);
        assert_eq!(load(&disk, &random, Some(first.cluster)).unwrap(), first);
        disk.write(IDENTITY_FILE, b"{}").unwrap();
        assert_eq!(load(&disk, &random, None).unwrap_err().code(), ErrorCode::DataLoss);
    }

    #[test]
    fn a_node_is_of_the_cluster_that_it_is_told_and_of_no_other() {
        let disk = MemoryDisk::new();
        let random = Random::from_seed(1);
        assert_eq!(load(&disk, &random, Some(7)).unwrap().cluster, 7);
        let refused = load(&disk, &random, Some(8)).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Conflict);
        let said = refused.to_string();
        for id in ["00000000000000000000000000000007", "00000000000000000000000000000008"] {
            assert!(said.contains(id), "{said}");
        }
        assert_eq!(load(&disk, &random, None).unwrap().cluster, 7);
    }

    #[test]
    fn starts_are_counted() {
        let disk = MemoryDisk::new();
        assert_eq!([(); 3].map(|()| next_boot(&disk).unwrap()), [1, 2, 3]);
        disk.write(BOOT_COUNT_FILE, b"{}").unwrap();
        assert_eq!(next_boot(&disk).unwrap_err().code(), ErrorCode::DataLoss);
    }
}
