//! Who this node is: drawn once, kept in its folder. A wiped folder is a new node [INV-08].

use athanor_chassis::disk::DiskError;
use athanor_chassis::{Code, Coded, Disk, Random};
use athanor_consensus::log::Identity;
use serde::{Deserialize, Serialize};

const FILE: &str = "node.json";
const BOOTS: &str = "boot.json";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    cluster: String,
    node: u64,
}

/// How often the node was started as one of a cluster.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Boots {
    boot: u64,
}

/// Why a node does not know who it is.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The folder cannot be read or written.
    #[error("the node's name cannot be kept")]
    Disk(#[from] DiskError),
    /// The folder is of another cluster.
    #[error(
        "the folder belongs to cluster {found:032x}, and cluster.id says {wanted:032x}: name another folder with --data, or set cluster.id to {found:032x}"
    )]
    Foreign {
        /// The cluster that the folder is of.
        found: u128,
        /// The one that is configured.
        wanted: u128,
    },
    /// The number of starts is not one of ours.
    #[error(
        "{BOOTS} in the folder `state` cannot be read ({why}): restore it, or start with an empty folder as a new node"
    )]
    Uncounted {
        /// What is wrong.
        why: String,
    },
    /// The file is not one of ours.
    #[error(
        "{FILE} in the folder `state` cannot be read ({why}): restore it, or start with an empty folder as a new node"
    )]
    Unreadable {
        /// What is wrong.
        why: String,
    },
}

impl Coded for IdentityError {
    fn code(&self) -> Code {
        match self {
            Self::Disk(error) => error.code(),
            Self::Foreign { .. } => Code::Conflict,
            Self::Unreadable { .. } | Self::Uncounted { .. } => Code::DataLoss,
        }
    }
}

/// Reads who this node is, or draws it; of which cluster it is may be told.
pub fn load(disk: &dyn Disk, random: &Random, cluster: Option<u128>) -> Result<Identity, IdentityError> {
    let unreadable = |why: String| IdentityError::Unreadable { why };
    if !disk.list()?.iter().any(|name| name == FILE) {
        let cluster = cluster.unwrap_or_else(|| random.id128());
        let identity = Identity { cluster, node: random.next_u64() };
        let written = Written { cluster: format!("{:032x}", identity.cluster), node: identity.node };
        let bytes = serde_json::to_vec(&written).map_err(|error| unreadable(error.to_string()))?;
        disk.write(FILE, &bytes)?;
        return Ok(identity);
    }
    let bytes = disk.read(FILE)?;
    let written: Written = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    let found = u128::from_str_radix(&written.cluster, 16).map_err(|error| unreadable(error.to_string()))?;
    match cluster {
        Some(wanted) if wanted != found => Err(IdentityError::Foreign { found, wanted }),
        _ => Ok(Identity { cluster: found, node: written.node }),
    }
}

/// Counts this start, durably. No clock does: it may go back, and others would take this start for an earlier one.
pub fn next_boot(disk: &dyn Disk) -> Result<u64, IdentityError> {
    let uncounted = |why: serde_json::Error| IdentityError::Uncounted { why: why.to_string() };
    let before = if disk.list()?.iter().any(|name| name == BOOTS) {
        serde_json::from_slice::<Boots>(&disk.read(BOOTS)?).map_err(uncounted)?.boot
    } else {
        0
    };
    let boot = before.saturating_add(1);
    disk.write(BOOTS, &serde_json::to_vec(&Boots { boot }).map_err(uncounted)?)?;
    Ok(boot)
}

#[cfg(test)]
mod tests {
    use athanor_chassis::disk::MemoryDisk;

    use super::*;

    #[test]
    fn a_node_stays_who_it_is() {
        let disk = MemoryDisk::new();
        let random = Random::seeded(1);
        let first = load(&disk, &random, None).unwrap();
        assert_eq!(load(&disk, &random, None).unwrap(), first);
        assert_eq!(load(&disk, &random, Some(first.cluster)).unwrap(), first);
        disk.write(FILE, b"{}").unwrap();
        assert_eq!(load(&disk, &random, None).unwrap_err().code(), Code::DataLoss);
    }

    #[test]
    fn a_node_is_of_the_cluster_that_it_is_told_and_of_no_other() {
        let disk = MemoryDisk::new();
        let random = Random::seeded(1);
        assert_eq!(load(&disk, &random, Some(7)).unwrap().cluster, 7);
        let refused = load(&disk, &random, Some(8)).unwrap_err();
        assert_eq!(refused.code(), Code::Conflict);
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
        disk.write(BOOTS, b"{}").unwrap();
        assert_eq!(next_boot(&disk).unwrap_err().code(), Code::DataLoss);
    }
}
