//! Arguments of commands about data of tenants beside profiles.

use athanor_chassis::TenantId;
use clap::{Args, Subcommand};

use super::ServerConfigArgs;

/// Uploads of debug information and of profiles by hand.
#[derive(Args)]
pub struct UploadArgs {
    #[command(subcommand)]
    pub command: UploadSubcommand,
}

#[derive(Subcommand)]
pub enum UploadSubcommand {
    /// List the tenants with uploads, or the uploads of one tenant; those with most bytes first
    #[command(after_help = "Example:\n  athanor upload list --tenant team-a --data /var/lib/athanor")]
    List {
        /// The uploads of this tenant
        #[arg(long)]
        tenant: Option<TenantId>,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Delete uploads of a tenant; it says how many
    #[command(
        after_help = "Examples:\n  athanor upload delete --tenant team-a --build-id 4e1d…\n  athanor upload delete --tenant team-a --all"
    )]
    Delete {
        /// Whose uploads
        #[arg(long)]
        tenant: TenantId,
        #[command(flatten)]
        selection: UploadSelectionArgs,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
}

/// Uploads of a tenant.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct UploadSelectionArgs {
    /// Debug information of this binary
    #[arg(long, value_name = "BUILD")]
    pub build_id: Option<String>,
    /// The profile that was uploaded by hand and has this id
    #[arg(long)]
    pub id: Option<String>,
    /// All uploads of the tenant
    #[arg(long)]
    pub all: bool,
}

/// Settings of pages and recording rules that tenants keep.
#[derive(Args)]
pub struct TenantSettingsArgs {
    #[command(subcommand)]
    pub command: TenantSettingsSubcommand,
}

#[derive(Subcommand)]
pub enum TenantSettingsSubcommand {
    /// List the tenants that keep settings, or the settings of one tenant; the largest first
    #[command(after_help = "Example:\n  athanor settings list --data /var/lib/athanor")]
    List {
        /// The settings of this tenant
        #[arg(long)]
        tenant: Option<TenantId>,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Delete settings of a tenant; it says how many
    #[command(
        after_help = "Examples:\n  athanor settings delete --tenant team-a --name setting/maxNodes\n  athanor settings delete --tenant team-a --all"
    )]
    Delete {
        /// Whose settings
        #[arg(long)]
        tenant: TenantId,
        #[command(flatten)]
        selection: TenantSettingsSelectionArgs,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
}

/// Settings of a tenant.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct TenantSettingsSelectionArgs {
    /// The setting of this name, as the list has it
    #[arg(long)]
    pub name: Option<String>,
    /// All settings of the tenant
    #[arg(long)]
    pub all: bool,
}
