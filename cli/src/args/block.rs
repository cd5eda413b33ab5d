//! Arguments of the `block` commands.

use std::path::PathBuf;

use athanor_chassis::{ByteSize, TenantId};
use clap::{Args, Subcommand};

use super::{OutputFormat, ProfileSelectionArgs};

#[derive(Args)]
pub struct BlockArgs {
    #[command(subcommand)]
    pub command: BlockSubcommand,
}

#[derive(Subcommand)]
pub enum BlockSubcommand {
    /// Build a block from profiles, in bounded memory
    #[command(
        after_help = "Examples:\n  athanor block build *.pb.gz --out day1 --label service_name=checkout --label zone=eu-1\n  duckdb -c \"select * from 'day1/rollup.parquet' order by value desc limit 10\""
    )]
    Build(BlockBuildArgs),
    /// List blocks, by their folders or by a parent folder
    #[command(after_help = "Examples:\n  athanor block list day1 day2\n  athanor block list .")]
    List(BlockPathArgs),
    /// Print the contents of a block: tenants, series, files, bytes per sample
    #[command(after_help = "Example:\n  athanor block show day1")]
    Show {
        /// Folder of the block
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Read blocks completely and verify every checksum and total
    #[command(after_help = "Example:\n  athanor block verify day1 day2")]
    Verify(BlockPathArgs),
    /// Write the profiles of a block as one profile
    #[command(
        after_help = "Examples:\n  athanor block cat day1 --selector '{zone=~\"eu-.*\"}' --type cpu --to folded\n  athanor block cat day1 --since 2026-01-31T12:00:00Z --until 2026-01-31T13:00:00Z -o noon.pb.gz"
    )]
    Cat(BlockCatArgs),
    /// Merge blocks into one, without duplicates of profiles
    #[command(after_help = "Example:\n  athanor block merge day1 day2 --out days")]
    Merge {
        #[command(flatten)]
        folders: BlockPathArgs,
        /// Folder of the new block, which must be empty or not exist
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

#[derive(Args)]
pub struct BlockPathArgs {
    /// Folders of blocks
    #[arg(required = true, value_name = "DIR")]
    pub folders: Vec<PathBuf>,
}

#[derive(Args)]
pub struct BlockBuildArgs {
    /// Files to read: pprof, folded stacks, speedscope or flamebearer JSON, the output of perf script, or a folder that
    /// `dev generate` wrote; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Folder of the new block, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Tenant of the profiles
    #[arg(long, default_value_t)]
    pub tenant: TenantId,
    /// Label to add to all profiles; repeatable
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = athanor_profile::data_model::labels::parse_label)]
    pub labels: Vec<(String, String)>,
    /// Maximum bytes of samples and names in memory; more are written to a temporary folder beside DIR
    ///
    /// The merge of the temporary files holds the names of all of them in memory.
    #[arg(long, value_name = "BYTES", default_value = "256MiB")]
    pub max_memory: ByteSize,
}

#[derive(Args)]
pub struct BlockCatArgs {
    /// Folder of the block
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub picked: ProfileSelectionArgs,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = OutputFormat::Pprof)]
    pub to: OutputFormat,
    /// File to write; - is standard output
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    pub out: PathBuf,
}
