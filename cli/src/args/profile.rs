//! Arguments of the commands that read profile files.

use std::path::PathBuf;

use athanor_arrow_format::TableFileFormat;
use athanor_chassis::TenantId;
use athanor_query::{Selector, ValueTypeFilter};
use clap::{Args, ValueEnum};

use super::time_arg::TimeArg;
use super::transform::TransformArgs;

/// Input files and the selected part of them.
#[derive(Args)]
pub struct InputArgs {
    /// Files to read: pprof, folded stacks, speedscope or flamebearer JSON, a Java flight recording, the output of perf
    /// script, samples in Arrow or Parquet, or the folder of a block; several are merged; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub picked: ProfileSelectionArgs,
}

/// Selected part of the input files.
#[derive(Args)]
pub struct ProfileSelectionArgs {
    /// Value type to show, such as cpu or alloc_space/bytes [default: the default type of the profile]
    #[arg(long = "type", value_name = "TYPE")]
    pub value_type: Option<ValueTypeFilter>,
    /// Tenant to read from a block; required if the block holds several
    #[arg(long)]
    pub tenant: Option<TenantId>,
    /// Series to read from a block, such as '{service_name="checkout", zone!~"eu-.*"}'
    #[arg(long, value_name = "SELECTOR")]
    pub selector: Option<Selector>,
    /// Start of the time range to read from a block, inclusive: 1h (before --until), now-2h, 2026-01-31T12:00:00Z or
    /// Unix time
    #[arg(long, value_name = "TIME")]
    pub since: Option<TimeArg>,
    /// End of the time range to read from a block, exclusive: 1h (before now), now-1h, 2026-01-31T12:00:00Z or Unix
    /// time
    #[arg(long, value_name = "TIME")]
    pub until: Option<TimeArg>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  athanor top cpu.pb.gz --limit 50\n  athanor top *.pb.gz --sandwich main.handle\n  athanor top *.pb.gz --focus main.handle --hide ^runtime\n  curl -s localhost:6060/debug/pprof/heap | athanor top - --type inuse_space"
)]
pub struct TopArgs {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub view: TopViewArgs,
}

/// Stacks and size of a table.
#[derive(Args)]
pub struct TopViewArgs {
    /// Maximum number of functions
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// Show the callers and callees of this function instead
    #[arg(long, value_name = "FUNCTION")]
    pub sandwich: Option<String>,
    /// Maximum number of calls between a shown function and the one of --sandwich
    #[arg(long, default_value_t = 6)]
    pub depth: usize,
    /// Maximum number of callers, and of callees, of the function of --sandwich
    #[arg(long, default_value_t = 40)]
    pub max_nodes: usize,
    #[command(flatten)]
    pub stacks: TransformArgs,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  athanor flamegraph cpu.pb.gz --show-from =main.handle\n  athanor flamegraph *.pb.gz --json > flame.json"
)]
pub struct FlamegraphArgs {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub view: FlamegraphViewArgs,
}

/// Stacks and size of a flame graph.
#[derive(Args)]
pub struct FlamegraphViewArgs {
    /// Maximum number of nodes; the rest is shown as "other"
    #[arg(long, default_value_t = 8192)]
    pub max_nodes: usize,
    /// Maximum number of lines; a last line counts the omitted levels
    #[arg(long, default_value_t = 60)]
    pub max_lines: usize,
    #[command(flatten)]
    pub stacks: TransformArgs,
}

#[derive(Args)]
#[command(after_help = "Example:\n  athanor diff before.pb.gz after.pb.gz --type cpu")]
pub struct DiffArgs {
    /// Profile before the change
    pub left: PathBuf,
    /// Profile after the change
    pub right: PathBuf,
    #[command(flatten)]
    pub picked: ProfileSelectionArgs,
    /// Maximum number of functions
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  athanor convert *.pb.gz -o all.pb.gz\n  athanor convert cpu.pb.gz -o cpu.svg\n  athanor convert cpu.pb.gz --to folded -o - | sort | head\n  athanor convert day1 -o day1.parquet"
)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// File to write; an existing file is replaced completely or not at all; - is standard output
    #[arg(short, long, value_name = "OUT")]
    pub out: PathBuf,
    /// Format of the output [default: by the name of OUT]
    #[arg(long, value_enum)]
    pub to: Option<OutputFormat>,
    /// Maximum number of functions in svg and dot
    #[arg(long)]
    pub max_nodes: Option<usize>,
    #[command(flatten)]
    pub stacks: TransformArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Gzipped pprof
    Pprof,
    /// One line per stack: root;caller;leaf count
    Folded,
    /// JSON for speedscope.app
    Speedscope,
    /// Call graph for Graphviz
    Dot,
    /// Flame graph for browsers
    Svg,
    /// Samples as Arrow
    Arrow,
    /// Samples as Parquet
    Parquet,
    /// Samples as CSV
    Csv,
}

impl OutputFormat {
    /// Returns true if the output omits frames that the profile declares uninteresting.
    pub fn omits_uninteresting_frames(self) -> bool {
        matches!(self, OutputFormat::Dot | OutputFormat::Svg)
    }

    /// Returns the format of rows. None if the format holds a profile as a whole.
    pub fn table_format(self) -> Option<TableFileFormat> {
        match self {
            OutputFormat::Arrow => Some(TableFileFormat::Arrow),
            OutputFormat::Parquet => Some(TableFileFormat::Parquet),
            OutputFormat::Csv => Some(TableFileFormat::Csv),
            OutputFormat::Pprof
            | OutputFormat::Folded
            | OutputFormat::Speedscope
            | OutputFormat::Dot
            | OutputFormat::Svg => None,
        }
    }
}
