//! Arguments of the commands that manage tenant data other than profiles.

use athanor_chassis::TenantId;
use clap::{Args, Subcommand};

use super::ServerConfigArgs;

#[derive(Args)]
pub struct UploadArgs {
    #[command(subcommand)]
    pub command: UploadSubcommand,
}

#[derive(Subcommand)]
pub enum UploadSubcommand {
    /// List the tenants with uploads, or the uploads of one tenant, the largest first
    #[command(after_help = "Example:\n  athanor upload list --tenant team-a --data /var/lib/athanor")]
    List {
        /// Tenant whose uploads are listed [default: list the tenants]
        #[arg(long)]
        tenant: Option<TenantId>,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Delete uploads of a tenant
    #[command(
        after_help = "Examples:\n  athanor upload delete --tenant team-a --build-id 4e1d…\n  athanor upload delete --tenant team-a --all"
    )]
    Delete {
        /// Tenant whose uploads are deleted
        #[arg(long)]
        tenant: TenantId,
        #[command(flatten)]
        selection: UploadSelectionArgs,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
}

/// Uploads to delete.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct UploadSelectionArgs {
    /// Build id of the binary whose debug information is deleted
    #[arg(long, value_name = "BUILD-ID")]
    pub build_id: Option<String>,
    /// Id of the ad hoc profile to delete
    #[arg(long)]
    pub id: Option<String>,
    /// Delete all uploads of the tenant
    #[arg(long)]
    pub all: bool,
}

#[derive(Args)]
pub struct TenantSettingsArgs {
    #[command(subcommand)]
    pub command: TenantSettingsSubcommand,
}

#[derive(Subcommand)]
pub enum TenantSettingsSubcommand {
    /// List the tenants with stored settings, or the settings of one tenant, the largest first
    #[command(after_help = "Example:\n  athanor settings list --data /var/lib/athanor")]
    List {
        /// Tenant whose settings are listed [default: list the tenants]
        #[arg(long)]
        tenant: Option<TenantId>,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Delete settings of a tenant
    #[command(
        after_help = "Examples:\n  athanor settings delete --tenant team-a --name setting/maxNodes\n  athanor settings delete --tenant team-a --all"
    )]
    Delete {
        /// Tenant whose settings are deleted
        #[arg(long)]
        tenant: TenantId,
        #[command(flatten)]
        selection: TenantSettingsSelectionArgs,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
}

/// Settings to delete.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct TenantSettingsSelectionArgs {
    /// Name of the setting to delete, as `settings list` shows it
    #[arg(long)]
    pub name: Option<String>,
    /// Delete all settings of the tenant
    #[arg(long)]
    pub all: bool,
}
