//! What is said to a running cluster.

use clap::{Args, Subcommand};

use super::Settings;

#[derive(Args)]
pub struct Metastore {
    #[command(subcommand)]
    pub command: MetastoreCommand,
}

#[derive(Subcommand)]
pub enum MetastoreCommand {
    /// List the voters
    #[command(after_help = "Example:\n  athanor metastore list --data /var/lib/athanor")]
    List(Settings),
    /// Have a node vote: one whose target is metastore and that is running
    #[command(after_help = "Example:\n  athanor metastore add metastore-3 --data /var/lib/athanor")]
    Add {
        /// Its name, or its number
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Take a voter out, for example one that is gone for good
    #[command(after_help = "Example:\n  athanor metastore remove metastore-3 --data /var/lib/athanor")]
    Remove {
        /// Its name, or its number
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        settings: Settings,
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
        settings: Settings,
    },
}

#[derive(Args)]
pub struct Shard {
    #[command(subcommand)]
    pub command: ShardCommand,
}

#[derive(Subcommand)]
pub enum ShardCommand {
    /// List the shards, their members and leaders
    #[command(after_help = "Example:\n  athanor shard list --data /var/lib/athanor")]
    List(Settings),
    /// Have a shard end and another one take its slot, on other nodes where there are some
    #[command(after_help = "Example:\n  athanor shard seal 7 --data /var/lib/athanor")]
    Seal {
        /// Its number
        #[arg(value_name = "SHARD")]
        shard: u32,
        #[command(flatten)]
        settings: Settings,
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
        settings: Settings,
    },
}

#[derive(Args)]
pub struct Catalogue {
    #[command(subcommand)]
    pub command: CatalogueCommand,
}

#[derive(Subcommand)]
pub enum CatalogueCommand {
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
        settings: Settings,
    },
}

fn node(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16)
        .map_err(|_| "write the 16 hexadecimal digits that /members shows".to_owned())
}
