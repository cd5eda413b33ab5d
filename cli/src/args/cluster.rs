//! Arguments of the commands that manage a running cluster: metastore, shards, catalog, retention.

use clap::{Args, Subcommand};

use super::ServerConfigArgs;

#[derive(Args)]
pub struct MetastoreArgs {
    #[command(subcommand)]
    pub command: MetastoreSubcommand,
}

#[derive(Subcommand)]
pub enum MetastoreSubcommand {
    /// List the voters
    #[command(after_help = "Example:\n  athanor metastore list --data /var/lib/athanor")]
    List(ServerConfigArgs),
    /// Have a node vote: one whose target is metastore and that is running
    #[command(after_help = "Example:\n  athanor metastore add metastore-3 --data /var/lib/athanor")]
    Add {
        /// Its name, or its number
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Take a voter out, for example one that is gone for good
    #[command(after_help = "Example:\n  athanor metastore remove metastore-3 --data /var/lib/athanor")]
    Remove {
        /// Its name, or its number
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Put a running node into the place of a voter
    #[command(
        after_help = "Example:\n  athanor metastore replace metastore-1 metastore-4 --data /var/lib/athanor"
    )]
    Replace {
        /// Who goes
        #[arg(value_name = "OLD")]
        old: String,
        /// Who comes
        #[arg(value_name = "NEW")]
        new: String,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
}

#[derive(Args)]
pub struct ShardArgs {
    #[command(subcommand)]
    pub command: ShardSubcommand,
}

#[derive(Subcommand)]
pub enum ShardSubcommand {
    /// List the shards, their members and leaders
    #[command(after_help = "Example:\n  athanor shard list --data /var/lib/athanor")]
    List(ServerConfigArgs),
    /// Have a shard end and another one take its slot, on other nodes where there are some
    #[command(after_help = "Example:\n  athanor shard seal 7 --data /var/lib/athanor")]
    Seal {
        /// Its number
        #[arg(value_name = "SHARD")]
        shard: u32,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Give up a shard that has lost its majority for good: what of it lies in no block is lost
    #[command(after_help = "Example:\n  athanor shard abandon 7 --accept-loss --data /var/lib/athanor")]
    Abandon {
        /// Its number
        #[arg(value_name = "SHARD")]
        shard: u32,
        /// That profiles are lost is known and accepted
        #[arg(long, required = true)]
        accept_loss: bool,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
}

#[derive(Args)]
pub struct CatalogArgs {
    #[command(subcommand)]
    pub command: CatalogSubcommand,
}

#[derive(Subcommand)]
pub enum CatalogSubcommand {
    /// Put the catalogue together again when the folders of all its voters are lost
    ///
    /// Run it once, with the settings of a metastore whose folder is empty, while the ingesters run; then start that
    /// metastore. It reads the bucket's snapshots and blocks, and asks ingesters what is on their disks.
    #[command(after_help = "Example:\n  athanor catalogue rebuild --config /etc/athanor/metastore-0.yaml")]
    Rebuild {
        /// The number of an ingester that is gone for good; may be given often
        #[arg(long, value_name = "NODE", value_parser = node)]
        without: Vec<u64>,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
}

fn node(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16)
        .map_err(|_| "write the 16 hexadecimal digits that /members shows".to_owned())
}

#[derive(Args)]
pub struct RetentionArgs {
    #[command(subcommand)]
    pub command: RetentionSubcommand,
}

#[derive(Subcommand)]
pub enum RetentionSubcommand {
    /// Show the catalog's time, how many blocks are past their retention, and which can be restored
    #[command(after_help = "Example:\n  athanor retention status --data /var/lib/athanor")]
    Status(ServerConfigArgs),
    /// Remove all blocks past their retention now, however many; until their objects go they can be restored
    #[command(after_help = "Example:\n  athanor retention apply --data /var/lib/athanor")]
    Apply(ServerConfigArgs),
    /// Bring back blocks that were removed by age, until their objects go (deletion_delay); their age counts from now
    #[command(
        after_help = "Examples:\n  athanor retention restore --data /var/lib/athanor\n  athanor retention restore 0196b1c5d0a3f1e2c4b5a69788796a5b --data /var/lib/athanor"
    )]
    Restore {
        /// The block; all that can be restored if not given
        #[arg(value_name = "BLOCK")]
        block: Option<String>,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Confirm that the clock of a server that is alone is right, after it was off for long: retention goes by it at once
    #[command(after_help = "Example:\n  athanor retention confirm-clock --data /var/lib/athanor")]
    ConfirmClock(ServerConfigArgs),
}
