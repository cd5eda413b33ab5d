//! Command line of `athanor`: its subcommands and their arguments, for clap.

mod check;
mod cluster;
mod remote;
mod tenants;

use std::path::PathBuf;

use athanor_chassis::{ByteSize, TenantId};
use athanor_query::{Selector, ValueTypeFilter};
use clap::{Args, Parser, Subcommand, ValueEnum};

pub use check::validate_args;
pub use cluster::{
    CatalogArgs, CatalogSubcommand, MetastoreArgs, MetastoreSubcommand, RetentionArgs, RetentionSubcommand,
    ShardArgs, ShardSubcommand,
};
pub use remote::{
    DevLoadArgs, OutputFileArgs, PushArgs, QueryArgs, QueryDiffArgs, QueryFlamegraphArgs, QueryLabelsArgs,
    QuerySelectionArgs, QuerySeriesArgs, QuerySubcommand, QueryTopArgs, QueryTypesArgs, RemoteArgs,
    SeriesAggregation, TimeRangeArgs,
};
pub use tenants::{TenantSettingsArgs, TenantSettingsSubcommand, UploadArgs, UploadSubcommand};

/// Reads, merges, compares, converts and stores profiles.
#[derive(Parser)]
#[command(name = "athanor", version, arg_required_else_help = true, after_help = HELP_EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    pub shown: OutputArgs,
    #[command(subcommand)]
    pub command: CliCommand,
}

const HELP_EXAMPLES: &str = "\
Examples:
  athanor serve                                    a server on port 4040 that keeps all in ./athanor-data
  athanor top examples/checkout.pb.gz              the functions that cost most
  athanor flamegraph examples/checkout.pb.gz       a flame graph in the terminal
  athanor top *.pb.gz --focus main.main            many files as one; who calls it, what it calls
  perf script | athanor flamegraph -               what perf record has seen
  athanor top app.jfr --type alloc_sample_bytes    one of the types of a flight recording of Java
  athanor diff before.pb.gz after.pb.gz            what became slower
  athanor convert cpu.pb.gz -o cpu.svg             also pprof, folded, speedscope, dot
  athanor block build *.pb.gz --out day1           a folder of plain Parquet files
  athanor top day1                                 a block is read like a file
  athanor push cpu.pb.gz --service checkout        to a server, http://127.0.0.1:4040 if not told
  athanor query top --since 1h                     of all that a server has

A FILE is pprof (plain, gzip or zstd), folded stacks, speedscope or flamebearer JSON, a flight recording of Java,
what perf script prints, or the folder of a block; - is standard input.
Exit codes: 0 done, 64 the command line is wrong, 65 the data is bad or damaged, 66 it is not there,
69 it cannot be read or reached now, 73 the folder for the output is not empty, 75 try again later,
77 it is not allowed.";

/// How results are shown.
#[derive(Args)]
pub struct OutputArgs {
    /// Colours: auto is only on a terminal, and never if NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t = ColorMode::Auto)]
    pub color: ColorMode,
    #[arg(long, global = true, hide = true, env = "NO_COLOR", hide_env = true)]
    pub no_color: Option<String>,
    /// Results as one JSON document
    #[arg(long, global = true)]
    pub json: bool,
    /// Width of the output in characters; the terminal's if not given
    #[arg(long, global = true, value_name = "COLUMNS")]
    pub width: Option<usize>,
    #[arg(long, global = true, hide = true, env = "COLUMNS", hide_env = true)]
    pub columns: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorMode {
    Auto,
    Always,
    Never,
}

#[derive(Subcommand)]
pub enum CliCommand {
    /// Run the server: takes profiles, keeps them, answers queries
    Serve(ServeArgs),
    /// Print the settings that `serve` would run with, and where each comes from
    #[command(after_help = "Example:\n  athanor config --set retention=31d")]
    Config(ServerConfigArgs),
    /// Cut what a running server holds in memory into blocks now
    #[command(after_help = "Example:\n  athanor cut --listen 127.0.0.1:4040")]
    Cut(ServerConfigArgs),
    /// Have a running server answer queries again that it refuses since they crashed
    #[command(after_help = "Example:\n  athanor lift --data /var/lib/athanor")]
    Lift(ServerConfigArgs),
    /// The voters of a cluster's catalogue
    Metastore(MetastoreArgs),
    /// The shards of a cluster
    Shard(ShardArgs),
    /// The removal of blocks by age, and how to undo it
    Retention(RetentionArgs),
    /// Uploads of debug information and of profiles by hand
    Upload(UploadArgs),
    /// Settings of pages and recording rules that tenants keep
    Settings(TenantSettingsArgs),
    /// What a cluster knows of its blocks and shards
    Catalogue(CatalogArgs),
    /// List the functions that cost most, as `go tool pprof -top` does
    Top(TopArgs),
    /// Draw a flame graph in the terminal
    Flamegraph(FlamegraphArgs),
    /// Tell what a profile says of itself: types, time, totals
    #[command(
        after_help = "Examples:\n  athanor info cpu.pb.gz\n  curl -s localhost:6060/debug/pprof/heap | athanor info -"
    )]
    Info(InputArgs),
    /// Compare two profiles function by function
    Diff(DiffArgs),
    /// Write profiles in another format; several are merged
    Convert(ConvertArgs),
    /// Make, read and check blocks: folders of plain Parquet files
    Block(BlockArgs),
    /// Send profiles to a server
    Push(PushArgs),
    /// Ask a server, of Athanor or Grafana Pyroscope
    Query(QueryArgs),
    /// What serves the development of Athanor itself
    Dev(DevArgs),
}

/// How to run a server.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  athanor serve\n  athanor serve --data /var/lib/athanor --listen 0.0.0.0:4040\n  athanor serve --config athanor.yaml --set ingester.cut.max_age=30s\n\nEvery setting can be in the file, in the environment (ATHANOR_INGESTER__CUT__MAX_AGE=30s) or in --set;\nlater ones win. `athanor config` lists all of them with their defaults."
)]
pub struct ServeArgs {
    /// Which roles this process has: all, or some of distributor, ingester, metastore, querier, store-gateway, with commas
    /// between them [default: all]
    #[arg(long, value_name = "ROLES")]
    pub target: Option<String>,
    #[command(flatten)]
    pub settings: ServerConfigArgs,
}

/// Where settings come from.
#[derive(Args)]
pub struct ServerConfigArgs {
    /// A YAML file with settings
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder for everything that the server keeps [default: athanor-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Where clients connect [default: 127.0.0.1:4040]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// One setting, such as limits.reject_older_than=0s; may be given often
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Which profiles.
#[derive(Args)]
pub struct InputArgs {
    /// pprof, folded stacks, speedscope or flamebearer JSON, a flight recording of Java, what perf script prints, or a
    /// block's folder; several are merged; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub picked: ProfileSelectionArgs,
}

/// What of them.
#[derive(Args)]
pub struct ProfileSelectionArgs {
    /// What to count, such as cpu or alloc_space/bytes; the profile's default if not given
    #[arg(long = "type", value_name = "TYPE")]
    pub value_type: Option<ValueTypeFilter>,
    /// Whose part of a block; needed where a block holds several tenants
    #[arg(long)]
    pub tenant: Option<TenantId>,
    /// Which series of a block, such as '{service_name="checkout", zone!~"eu-.*"}'
    #[arg(long, value_name = "SELECTOR")]
    pub select: Option<Selector>,
    /// Only profiles of a block that were taken then or later, Unix nanoseconds
    #[arg(long, value_name = "NANOSECONDS", allow_negative_numbers = true)]
    pub since: Option<i64>,
    /// Only profiles of a block that were taken before, Unix nanoseconds
    #[arg(long, value_name = "NANOSECONDS", allow_negative_numbers = true)]
    pub until: Option<i64>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  athanor top cpu.pb.gz --limit 50\n  curl -s localhost:6060/debug/pprof/heap | athanor top - --type inuse_space"
)]
pub struct TopArgs {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub view: TopViewArgs,
}

/// What of a profile is shown as a table.
#[derive(Args)]
pub struct TopViewArgs {
    /// How many functions
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// Show the callers and callees of this function
    #[arg(long, value_name = "FUNCTION")]
    pub focus: Option<String>,
    /// How far from the focused function
    #[arg(long, default_value_t = 6)]
    pub depth: usize,
    /// At most so many lines of callers and of callees
    #[arg(long, default_value_t = 40)]
    pub max_nodes: usize,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  athanor flamegraph cpu.pb.gz --focus main.handle\n  athanor flamegraph *.pb.gz --json > flame.json"
)]
pub struct FlamegraphArgs {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub view: FlamegraphViewArgs,
}

/// What of a profile is drawn.
#[derive(Args)]
pub struct FlamegraphViewArgs {
    /// Only the heaviest functions; what is cut is shown as "other"
    #[arg(long, default_value_t = 8192)]
    pub max_nodes: usize,
    /// Most lines; a last one says how many levels are left out
    #[arg(long, default_value_t = 60)]
    pub max_lines: usize,
    /// Only what this function called
    #[arg(long, value_name = "FUNCTION")]
    pub focus: Option<String>,
}

#[derive(Args)]
#[command(after_help = "Example:\n  athanor diff before.pb.gz after.pb.gz --type cpu")]
pub struct DiffArgs {
    /// Before
    pub left: PathBuf,
    /// After
    pub right: PathBuf,
    #[command(flatten)]
    pub picked: ProfileSelectionArgs,
    /// How many functions
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  athanor convert *.pb.gz -o all.pb.gz\n  athanor convert cpu.pb.gz -o cpu.svg\n  athanor convert cpu.pb.gz --to folded -o - | sort | head"
)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Where to; a file that exists is replaced; - is standard output
    #[arg(short, long, value_name = "OUT")]
    pub out: PathBuf,
    /// The format; told by the name of OUT if not given
    #[arg(long, value_enum)]
    pub to: Option<OutputFormat>,
    /// Most functions in svg and dot
    #[arg(long)]
    pub max_nodes: Option<usize>,
    /// Only what this function called (svg, dot, folded)
    #[arg(long, value_name = "FUNCTION")]
    pub focus: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Gzipped, as every tool reads it
    Pprof,
    /// One line per stack: root;caller;leaf count
    Folded,
    /// For speedscope.app
    Speedscope,
    /// A call graph for Graphviz
    Dot,
    /// A flame graph for browsers
    Svg,
}

#[derive(Args)]
pub struct BlockArgs {
    #[command(subcommand)]
    pub command: BlockSubcommand,
}

#[derive(Subcommand)]
pub enum BlockSubcommand {
    /// Make a block from profiles, in bounded memory
    #[command(
        after_help = "Example:\n  athanor block build *.pb.gz --out day1 --label service_name=checkout --label zone=eu-1"
    )]
    Build(BlockBuildArgs),
    /// List blocks, also those within a folder
    #[command(after_help = "Examples:\n  athanor block ls day1 day2\n  athanor block ls .")]
    Ls(BlockPathArgs),
    /// Tell what a block holds: tenants, series, files, bytes per sample
    #[command(after_help = "Example:\n  athanor block show day1")]
    Show {
        /// The block's folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Read everything and compare every checksum and every total
    #[command(after_help = "Example:\n  athanor block verify day1 day2")]
    Verify(BlockPathArgs),
    /// Write what a block holds as one profile
    #[command(
        after_help = "Example:\n  athanor block cat day1 --select '{zone=~\"eu-.*\"}' --type cpu --to folded"
    )]
    Cat(BlockCatArgs),
    /// Merge blocks into one; profiles that are in several are kept once
    #[command(after_help = "Example:\n  athanor block merge day1 day2 --out days")]
    Merge {
        #[command(flatten)]
        folders: BlockPathArgs,
        /// The new block's folder, which must be empty or not exist
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
    /// pprof, folded stacks, speedscope or flamebearer JSON, what perf script prints, or a folder with a set.json as
    /// `dev generate` writes it; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The block's folder, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Whose profiles they are
    #[arg(long, default_value_t)]
    pub tenant: TenantId,
    /// A label of all profiles; may be given again
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = athanor_profile::data_model::labels::parse_label)]
    pub labels: Vec<(String, String)>,
    /// Samples and names held in memory before they are written to a temporary folder beside DIR; to merge those, the
    /// names of all of them are held
    #[arg(long, default_value = "256MiB")]
    pub memory: ByteSize,
}

#[derive(Args)]
pub struct BlockCatArgs {
    /// The block's folder
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub picked: ProfileSelectionArgs,
    /// The format
    #[arg(long, value_enum, default_value_t = OutputFormat::Pprof)]
    pub to: OutputFormat,
    /// Where to; - is standard output
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    pub out: PathBuf,
}

#[derive(Args)]
pub struct DevArgs {
    #[command(subcommand)]
    pub command: DevSubcommand,
}

#[derive(Subcommand)]
pub enum DevSubcommand {
    /// Write a synthetic set of profiles, the same bytes from the same seed everywhere
    #[command(after_help = "Example:\n  athanor dev generate --set R-1k --out set")]
    Generate {
        /// Which set
        #[arg(long, value_enum)]
        set: ReferenceSet,
        /// Where to: gzipped pprof files, and set.json with their labels
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Another seed makes another set
        #[arg(long, default_value_t = athanor_profile::generate::ReferenceDataset::PUBLISHED_SEED)]
        seed: u64,
    },
    /// Push the reference set to a running server and measure it
    #[command(
        after_help = "Example, beside `athanor serve --set limits.reject_older_than=0s`:\n  athanor dev load --set R-1k --connections 16 --pid $(pidof athanor)\n\nThe requests are made first and held in memory: 0.2 GB for R-1k, 1.6 GB for R-10k. The last profile is of now,\nthe first of R-10k is two hours old, which a server refuses unless it is told not to."
    )]
    Load(DevLoadArgs),
    /// Run a cluster of processes on this machine: three zones with a metastore, two ingesters, a distributor and a
    /// querier in each, and one bucket
    #[command(
        after_help = "Example:\n  athanor dev cluster\n  athanor push examples/checkout.pb.gz --service checkout --url http://127.0.0.1:4040\n  athanor query top --since 1h --url http://127.0.0.1:4041"
    )]
    Cluster(DevClusterArgs),
    /// Write the example profile that ships with Athanor
    #[command(after_help = "Example:\n  athanor dev example --out checkout.pb.gz")]
    Example {
        /// Where to
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

#[derive(Args)]
pub struct DevClusterArgs {
    /// The folder for everything: a folder for each process, and the bucket
    #[arg(long, value_name = "DIR", default_value = "athanor-cluster")]
    pub data: PathBuf,
    /// The first port: the distributors have it and the second and fourth after it, the queriers the odd ones between
    #[arg(long, default_value_t = 4040)]
    pub port: u16,
    /// Take profiles of any age, as `dev load` sends them
    #[arg(long)]
    pub any_age: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReferenceSet {
    /// 1 200 profiles of one service
    #[value(name = "R-1k")]
    R1k,
    /// 10 000 profiles of one service
    #[value(name = "R-10k")]
    R10k,
}

impl ReferenceSet {
    /// Returns the number of profiles in the set.
    pub fn profiles(self) -> usize {
        match self {
            ReferenceSet::R1k => athanor_profile::generate::ReferenceDataset::R_1K_PROFILES,
            ReferenceSet::R10k => athanor_profile::generate::ReferenceDataset::R_10K_PROFILES,
        }
    }
}
