//! Arguments of the commands that manage a running server or cluster: quarantine, metastore, shards, retention.

use clap::{Args, Subcommand};

use super::ServerConfigArgs;

#[derive(Args)]
pub struct QuarantineArgs {
    #[command(subcommand)]
    pub command: QuarantineSubcommand,
}

#[derive(Subcommand)]
pub enum QuarantineSubcommand {
    /// List the queries that crashed a running querier, and those that it rejects
    #[command(after_help = "Example:\n  athanor quarantine list --data /var/lib/athanor")]
    List(ServerConfigArgs),
    /// Unblock all queries that a running querier rejects because they crashed it
    #[command(after_help = "Example:\n  athanor quarantine clear --data /var/lib/athanor")]
    Clear(ServerConfigArgs),
}

#[derive(Args)]
pub struct MetastoreArgs {
    #[command(subcommand)]
    pub command: MetastoreSubcommand,
}

#[derive(Subcommand)]
pub enum MetastoreSubcommand {
    /// List and change the voters of the metastore
    Voters(VotersArgs),
    /// Recover the catalog after the data folders of all voters were lost
    ///
    /// Run the command once, with the settings of a metastore whose data folder is empty, while the ingesters run. Then
    /// start that metastore. The command reads the snapshots and blocks in the bucket, and the logs of the ingesters.
    #[command(
        after_help = "Examples:\n  athanor metastore recover --config /etc/athanor/metastore-0.yaml\n  athanor metastore recover --config /etc/athanor/metastore-0.yaml --exclude-node 5f0c6e1d9a7b4c3e"
    )]
    Recover {
        /// Id of an ingester that is lost permanently, in hexadecimal; repeatable
        #[arg(long, value_name = "NODE", value_parser = node_id)]
        exclude_node: Vec<u64>,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
}

fn node_id(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16)
        .map_err(|_| "must be the 16 hexadecimal digits that /members shows".to_owned())
}

#[derive(Args)]
pub struct VotersArgs {
    #[command(subcommand)]
    pub command: VotersSubcommand,
}

#[derive(Subcommand)]
pub enum VotersSubcommand {
    /// List the voters
    #[command(after_help = "Example:\n  athanor metastore voters list --data /var/lib/athanor")]
    List(ServerConfigArgs),
    /// Add a running metastore node as a voter
    #[command(after_help = "Example:\n  athanor metastore voters add metastore-3 --data /var/lib/athanor")]
    Add {
        /// Name or hexadecimal id of the node
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Remove a voter, such as one that is lost permanently
    #[command(after_help = "Example:\n  athanor metastore voters remove metastore-3 --data /var/lib/athanor")]
    Remove {
        /// Name or hexadecimal id of the node
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Replace a voter by a running metastore node
    #[command(
        after_help = "Example:\n  athanor metastore voters replace metastore-1 metastore-4 --data /var/lib/athanor"
    )]
    Replace {
        /// Name or hexadecimal id of the voter to remove
        #[arg(value_name = "OLD")]
        old: String,
        /// Name or hexadecimal id of the node to add
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
    /// List the shards with their members and leaders
    #[command(after_help = "Example:\n  athanor shard list --data /var/lib/athanor")]
    List(ServerConfigArgs),
    /// Seal a shard; a successor takes over its slot, on other nodes if there are some
    #[command(after_help = "Example:\n  athanor shard seal 7 --data /var/lib/athanor")]
    Seal {
        /// Id of the shard
        #[arg(value_name = "SHARD")]
        shard: u32,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Abandon a shard that lost its majority permanently; its unflushed profiles are lost
    #[command(after_help = "Example:\n  athanor shard abandon 7 --accept-data-loss --data /var/lib/athanor")]
    Abandon {
        /// Id of the shard
        #[arg(value_name = "SHARD")]
        shard: u32,
        /// Confirm that unflushed profiles of the shard are lost
        #[arg(long, required = true)]
        accept_data_loss: bool,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
}

#[derive(Args)]
pub struct RetentionArgs {
    #[command(subcommand)]
    pub command: RetentionSubcommand,
}

#[derive(Subcommand)]
pub enum RetentionSubcommand {
    /// Show the catalog's time, the number of overdue blocks, and the blocks that can be restored
    #[command(after_help = "Example:\n  athanor retention status --data /var/lib/athanor")]
    Status(ServerConfigArgs),
    /// Expire all overdue blocks now, without the hourly limit
    ///
    /// Expired blocks can be restored until their objects are deleted.
    #[command(after_help = "Example:\n  athanor retention apply --data /var/lib/athanor")]
    Apply(ServerConfigArgs),
    /// Restore expired blocks whose objects are not deleted yet
    ///
    /// Objects are deleted after deletion_delay. The age of a restored block counts from now.
    #[command(
        after_help = "Examples:\n  athanor retention restore --data /var/lib/athanor\n  athanor retention restore 0196b1c5d0a3f1e2c4b5a69788796a5b --data /var/lib/athanor"
    )]
    Restore {
        /// Id of the block [default: all that can be restored]
        #[arg(value_name = "BLOCK")]
        block: Option<String>,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
    /// Confirm that the clock of a single-node server is right after a long downtime
    ///
    /// Retention uses the clock immediately.
    #[command(after_help = "Example:\n  athanor retention confirm-clock --data /var/lib/athanor")]
    ConfirmClock(ServerConfigArgs),
}
