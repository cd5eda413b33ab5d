//! Command line of `athanor`: its subcommands and their arguments, for clap.

mod block;
mod check;
mod cluster;
mod compaction;
mod dev;
mod profile;
mod remote;
mod tenants;
pub mod time_arg;
mod transform;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use block::{BlockArgs, BlockBuildArgs, BlockCatArgs, BlockPathArgs, BlockSubcommand};
pub use check::validate_args;
pub use cluster::{
    MetastoreArgs, MetastoreSubcommand, QuarantineArgs, QuarantineSubcommand, RetentionArgs,
    RetentionSubcommand, ShardArgs, ShardSubcommand, VotersArgs, VotersSubcommand,
};
pub use compaction::{CompactionArgs, CompactionSubcommand};
pub use dev::{DevArgs, DevBenchArgs, DevClusterArgs, DevSubcommand};
pub use profile::{
    ConvertArgs, DiffArgs, FlamegraphArgs, FlamegraphViewArgs, InputArgs, OutputFormat, ProfileSelectionArgs,
    TopArgs, TopViewArgs,
};
pub use remote::{
    OutputFileArgs, PushArgs, QueryArgs, QueryDiffArgs, QueryFlamegraphArgs, QueryFunctionsArgs,
    QueryLabelsArgs, QuerySamplesArgs, QuerySelectionArgs, QuerySeriesArgs, QuerySubcommand, QueryTopArgs,
    QueryTypesArgs, RemoteArgs, SeriesAggregation, TimeRangeArgs,
};
pub use tenants::{TenantSettingsArgs, TenantSettingsSubcommand, UploadArgs, UploadSubcommand};

/// Stores, queries, merges, compares and converts profiles.
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
  athanor serve                                    run a server on port 4040 that stores data in ./athanor-data
  athanor top examples/checkout.pb.gz              list the functions with the highest cost
  athanor flamegraph examples/checkout.pb.gz       draw a flame graph in the terminal
  athanor top *.pb.gz --sandwich main.main         merge files, show callers and callees of one function
  athanor flamegraph cpu.pb.gz --hide ^runtime     remove frames of the Go runtime
  perf script | athanor flamegraph -               read the output of perf record
  athanor top app.jfr --type alloc_sample_bytes    read one value type of a Java flight recording
  athanor diff before.pb.gz after.pb.gz            compare two profiles
  athanor convert cpu.pb.gz -o cpu.svg             convert; also pprof, folded, speedscope, dot, arrow, parquet and csv
  athanor block build *.pb.gz --out day1           build a block, a folder of Parquet files
  athanor top day1                                 read a block like a file
  athanor push cpu.pb.gz --service checkout        send a profile to http://127.0.0.1:4040
  athanor query top --since 1h                     query a server
  athanor query samples -o hour.parquet            export samples for notebooks and SQL

A FILE is pprof (plain, gzip or zstd), folded stacks, speedscope or flamebearer JSON, a Java flight recording,
the output of perf script, samples in Arrow or Parquet, or the folder of a block. The content decides the format.
- is standard input.
Exit codes: 0 success, 64 invalid command line or setting, 65 invalid or damaged data, 66 not found,
69 unavailable or unreachable, 73 the output folder is not empty, 75 temporary failure, 77 permission denied.";

/// Format of the output.
#[derive(Args)]
pub struct OutputArgs {
    /// When to color output; auto colors a terminal unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t = ColorMode::Auto)]
    pub color: ColorMode,
    #[arg(long, global = true, hide = true, env = "NO_COLOR", hide_env = true)]
    pub no_color: Option<String>,
    /// Print the result as one JSON document
    #[arg(long, global = true)]
    pub json: bool,
    /// Width of the output in characters [default: width of the terminal]
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
    /// Run a server that stores profiles and serves queries
    Serve(ServeArgs),
    /// Print the effective settings of `serve` and the source of each
    #[command(after_help = "Example:\n  athanor config --set retention_period=31d")]
    Config(ServerConfigArgs),
    /// Flush all heads of a running server to blocks
    ///
    /// The command ends when the blocks are registered in the catalog.
    #[command(after_help = "Example:\n  athanor flush --data /var/lib/athanor")]
    Flush(ServerConfigArgs),
    /// List and clear the quarantine of queries that crashed a server
    Quarantine(QuarantineArgs),
    /// Manage the voters of the metastore, or recover its catalog
    Metastore(MetastoreArgs),
    /// List, seal and abandon the shards of a cluster
    Shard(ShardArgs),
    /// Show and control the removal of blocks by age
    Retention(RetentionArgs),
    /// Show and control compaction, which merges blocks
    Compaction(CompactionArgs),
    /// List and delete uploaded debug information and ad hoc profiles
    Upload(UploadArgs),
    /// List and delete settings and recording rules of tenants
    Settings(TenantSettingsArgs),
    /// List the functions with the highest cost, like `go tool pprof -top`
    Top(TopArgs),
    /// Draw a flame graph in the terminal
    Flamegraph(FlamegraphArgs),
    /// Print the metadata of a profile: types, time, totals
    #[command(
        after_help = "Examples:\n  athanor info cpu.pb.gz\n  curl -s localhost:6060/debug/pprof/heap | athanor info -"
    )]
    Info(InputArgs),
    /// Compare two profiles function by function
    Diff(DiffArgs),
    /// Convert profiles to another format; several files are merged
    Convert(ConvertArgs),
    /// Build, read and verify blocks, which are folders of Parquet files
    Block(BlockArgs),
    /// Send profiles to a server
    Push(PushArgs),
    /// Query a server of Athanor or Grafana Pyroscope
    Query(QueryArgs),
    /// Generate test data, benchmark a server, run a local cluster
    Dev(DevArgs),
}

/// Arguments of a server.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  athanor serve\n  athanor serve --data /var/lib/athanor --listen 0.0.0.0:4040\n  athanor serve --config athanor.yaml --set ingester.flush.max_head_age=0s\n\nA setting comes from the file, the environment (ATHANOR_INGESTER__FLUSH__MAX_HEAD_AGE=0s) or --set; later sources win.\n`athanor config` prints all settings with their values."
)]
pub struct ServeArgs {
    /// Roles of this process, separated by commas: all, compactor, distributor, ingester, metastore, querier,
    /// store-gateway [default: all]
    #[arg(long, value_name = "ROLES")]
    pub target: Option<String>,
    #[command(flatten)]
    pub settings: ServerConfigArgs,
}

/// Sources of a server's settings.
#[derive(Args)]
pub struct ServerConfigArgs {
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data folder of the server [default: athanor-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Address on which the server listens for clients [default: 127.0.0.1:4040]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Value of one setting, such as limits.reject_older_than=0s; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}
