//! Resources of limited amounts, as refusals name them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Resource of a limited amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedResource {
    /// Shards, retired ones included.
    Shards,
    /// Slot tables that are published.
    Tables,
    /// Services with a known rate.
    Services,
    /// Data losses on record.
    DataLossRecords,
    /// Voters of the catalog.
    Voters,
    /// Documents of one tenant.
    Documents,
    /// Bytes of all documents of a tenant.
    DocumentBytes,
    /// Bytes of the documents of all tenants.
    TotalDocumentBytes,
    /// Tenants that are staged for blocks.
    StagedTenants,
}

impl LimitedResource {
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Shards => "wait until retired ones expire",
            Self::Tables => "expire tables older than every accepted profile",
            Self::Services => "remove the rates of idle services",
            Self::DataLossRecords => "clear old ones",
            Self::Voters => "remove one first",
            Self::Documents | Self::DocumentBytes => "delete unused ones",
            Self::TotalDocumentBytes => "delete unused documents of tenants",
            Self::StagedTenants => "retry when other blocks are registered",
        }
    }
}

impl fmt::Display for LimitedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shards => "shards",
            Self::Tables => "tables",
            Self::Services => "services with a rate",
            Self::DataLossRecords => "data loss records",
            Self::Voters => "voters",
            Self::Documents => "documents of a tenant",
            Self::DocumentBytes => "bytes of documents of a tenant",
            Self::TotalDocumentBytes => "bytes of documents",
            Self::StagedTenants => "staged tenants",
        })
    }
}
