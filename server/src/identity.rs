//! Who this node is: drawn once, kept in its folder. A wiped folder is a new node (E8).

use athanor_chassis::disk::DiskError;
use athanor_chassis::{Code, Coded, Disk, Random};
use athanor_consensus::log::Identity;
use serde::{Deserialize, Serialize};

const FILE: &str = "node.json";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    cluster: String,
    node: u64,
}

/// Why a node does not know who it is.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The folder cannot be read or written.
    #[error("the node's name cannot be kept")]
    Disk(#[from] DiskError),
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
            Self::Unreadable { .. } => Code::DataLoss,
        }
    }
}

/// Reads who this node is, or draws it.
pub fn load(disk: &dyn Disk, random: &Random) -> Result<Identity, IdentityError> {
    let unreadable = |why: String| IdentityError::Unreadable { why };
    if !disk.list()?.iter().any(|name| name == FILE) {
        let identity = Identity { cluster: random.id128(), node: random.next_u64() };
        let written = Written { cluster: format!("{:032x}", identity.cluster), node: identity.node };
        let bytes = serde_json::to_vec(&written).map_err(|error| unreadable(error.to_string()))?;
        disk.write(FILE, &bytes)?;
        return Ok(identity);
    }
    let bytes = disk.read(FILE)?;
    let written: Written = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    let cluster =
        u128::from_str_radix(&written.cluster, 16).map_err(|error| unreadable(error.to_string()))?;
    Ok(Identity { cluster, node: written.node })
}

#[cfg(test)]
mod tests {
    use athanor_chassis::disk::MemoryDisk;

    use super::*;

    #[test]
    fn a_node_stays_who_it_is() {
        let disk = MemoryDisk::new();
        let random = Random::seeded(1);
        let first = load(&disk, &random).unwrap();
        assert_eq!(load(&disk, &random).unwrap(), first);
        disk.write(FILE, b"{}").unwrap();
        assert_eq!(load(&disk, &random).unwrap_err().code(), Code::DataLoss);
    }
}
