//! Settings of the metastore.

use serde::{Deserialize, Serialize};

use super::SettingError;

/// Settings of the metastore, equal on all nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetastoreConfig {
    /// Voters of the metastore: 1, 3 or 5. Example: `3`.
    pub voters: u16,
}

impl Default for MetastoreConfig {
    fn default() -> Self {
        Self { voters: 3 }
    }
}

impl MetastoreConfig {
    /// Rejects a number of voters that cannot form a raft group.
    pub fn validate(&self) -> Result<(), SettingError> {
        match self.voters {
            1 | 3 | 5 => Ok(()),
            voters => {
                let reason = format!("{voters} voters; write 1, 3 or 5");
                Err(SettingError { setting: "metastore.voters", reason })
            }
        }
    }
}
