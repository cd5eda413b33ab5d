//! Commands that run or administer a server.
//!
//! - `serve`: runs a server, prints its effective settings, and recovers a lost catalog.
//! - `admin_client`: requests to the admin socket of a running server.
//! - `admin_commands`: flush, quarantine, metastore voters, shards, retention.
//! - `compaction_commands`: status and control of compaction.
//! - `tenant_commands`: uploads and settings of tenants.

pub(crate) mod admin_client;
pub(crate) mod admin_commands;
pub(crate) mod compaction_commands;
pub(crate) mod serve;
pub(crate) mod tenant_commands;
