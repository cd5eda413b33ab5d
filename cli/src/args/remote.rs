//! Arguments of the commands that send requests to a server.

use std::path::PathBuf;
use std::time::Duration;

use athanor_chassis::config::SecretString;
use athanor_chassis::units::parse_duration;
use athanor_query::Selector;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};

use super::time_arg::TimeArg;
use super::transform::TransformArgs;
use super::{FlamegraphViewArgs, OutputFormat, TopViewArgs};

/// Server, tenant and credentials of a request.
#[derive(Args)]
pub struct RemoteArgs {
    /// URL of the server
    #[arg(
        long,
        env = "ATHANOR_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:4040"
    )]
    pub url: String,
    /// Tenant, sent as X-Scope-OrgID
    #[arg(long, env = "ATHANOR_TENANT", hide_env_values = true)]
    pub tenant: Option<String>,
    /// Credentials for basic authentication; the environment hides them from other users
    #[arg(long, env = "ATHANOR_USER", hide_env_values = true, value_name = "NAME:PASSWORD", value_parser = secret)]
    pub user: Option<SecretString>,
    /// Bearer token; the environment hides it from other users
    #[arg(long, env = "ATHANOR_TOKEN", hide_env_values = true, value_parser = secret)]
    pub token: Option<SecretString>,
    /// Timeout of one request
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// Accepts any text, so that no parse error shows a secret.
fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::new(text))
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  athanor push cpu.pb.gz --service checkout --label zone=eu-1\n  athanor push *.pb.gz --service checkout --url https://profiles.example --json\n\nRetry an interrupted push: Athanor counts duplicates once. A profile without time and ID gets an ID that follows from its\ncontent."
)]
pub struct PushArgs {
    /// Files to send: pprof (plain, gzip or zstd), folded stacks, speedscope or flamebearer JSON, or the output of perf
    /// script; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Name of the profiled service, for the label service_name
    #[arg(long, value_name = "NAME")]
    pub service: String,
    /// Label to add to all profiles; repeatable
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = athanor_profile::data_model::labels::parse_label)]
    pub labels: Vec<(String, String)>,
    /// Metric name of the profiles, such as process_cpu [default: by the value types of the profile]
    #[arg(long)]
    pub metric: Option<String>,
    /// Maximum number of retries of a request after temporary failures
    #[arg(long, default_value_t = 5)]
    pub retries: u32,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

#[derive(Args)]
pub struct QueryArgs {
    #[command(subcommand)]
    pub command: QuerySubcommand,
}

#[derive(Subcommand)]
pub enum QuerySubcommand {
    /// List the functions with the highest cost
    #[command(
        after_help = "Examples:\n  athanor query top --since 1h --selector '{service_name=\"checkout\"}'\n  athanor query top --type cpu --since now-2h --until now-1h --sandwich main.handle\n  athanor query top --type cpu --hide ^runtime --show-from =main.handle\n  athanor query top --type process_cpu:cpu:nanoseconds:cpu:nanoseconds -o hour.pb.gz"
    )]
    Top(QueryTopArgs),
    /// Draw a flame graph in the terminal, or write it to a file
    #[command(after_help = "Example:\n  athanor query flamegraph --type inuse_space -o memory.svg")]
    Flamegraph(QueryFlamegraphArgs),
    /// Write all samples to a file for notebooks and SQL, in order of time
    ///
    /// A row is the sum of one stack in one profile. `athanor top` reads .arrow and .parquet files.
    #[command(
        after_help = "Examples:\n  athanor query samples --since 1h -o hour.arrow\n  athanor query samples --selector '{service_name=\"checkout\"}' --since 7d --column time,labels,value -o week.parquet"
    )]
    Samples(QuerySamplesArgs),
    /// Write all functions with self value and total to a file
    #[command(after_help = "Example:\n  athanor query functions --by pod --since 1h -o functions.parquet")]
    Functions(QueryFunctionsArgs),
    /// Show values over time, by label, or write them to a file
    #[command(
        after_help = "Examples:\n  athanor query series --by pod --step 1m --since 6h\n  athanor query series --by pod --step 1m --limit 1000 -o pods.csv"
    )]
    Series(QuerySeriesArgs),
    /// List label names, or the values of one label
    #[command(
        after_help = "Examples:\n  athanor query labels\n  athanor query labels pod --selector '{service_name=\"checkout\"}'"
    )]
    Labels(QueryLabelsArgs),
    /// List the profile types
    #[command(after_help = "Example:\n  athanor query types --selector '{service_name=\"checkout\"}'")]
    Types(QueryTypesArgs),
    /// Compare two selectors, two time ranges, or both
    #[command(
        after_help = "Examples:\n  athanor query diff --left '{version=\"1\"}' --right '{version=\"2\"}'\n  athanor query diff --right-since now-1h --left-since now-25h --left-until now-24h"
    )]
    Diff(QueryDiffArgs),
}

/// Time range of a query.
#[derive(Args, Clone)]
pub struct TimeRangeArgs {
    /// Start of the time range: 1h (before --until), now-2h, 2026-01-31T12:00:00Z or Unix time
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub since: TimeArg,
    /// End of the time range: 1h (before now), now-1h, 2026-01-31T12:00:00Z or Unix time
    #[arg(long, value_name = "TIME", default_value = "now")]
    pub until: TimeArg,
}

/// Selected type, series and time range.
#[derive(Args)]
pub struct QuerySelectionArgs {
    /// Profile type, such as cpu or process_cpu:cpu:nanoseconds:cpu:nanoseconds [default: the only one, or CPU time]
    #[arg(long = "type", value_name = "TYPE", value_parser = NonEmptyStringValueParser::new())]
    pub profile_type: Option<String>,
    /// Series to query, such as '{service_name="checkout", zone!~"eu-.*"}'
    #[arg(long, default_value = "{}")]
    pub selector: Selector,
    #[command(flatten)]
    pub times: TimeRangeArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// Output file instead of the terminal.
#[derive(Args)]
pub struct OutputFileArgs {
    /// Write the whole profile to this file instead; - is standard output
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// Format of the output [default: by the name of OUT]
    #[arg(long, value_enum, requires = "out")]
    pub to: Option<OutputFormat>,
}

#[derive(Args)]
pub struct QueryTopArgs {
    #[command(flatten)]
    pub select: QuerySelectionArgs,
    #[command(flatten)]
    pub view: TopViewArgs,
    #[command(flatten)]
    pub written: OutputFileArgs,
}

#[derive(Args)]
pub struct QueryFlamegraphArgs {
    #[command(flatten)]
    pub select: QuerySelectionArgs,
    #[command(flatten)]
    pub view: FlamegraphViewArgs,
    #[command(flatten)]
    pub written: OutputFileArgs,
}

#[derive(Args)]
pub struct QuerySamplesArgs {
    #[command(flatten)]
    pub select: QuerySelectionArgs,
    /// File to write, by its ending: .arrow, .parquet or .csv; an existing file is replaced completely or not at all
    #[arg(short, long, value_name = "OUT")]
    pub out: PathBuf,
    /// Columns to write: profile_id, time, labels, stack, value, span_id, trace_id, warnings; separated by commas
    /// [default: all]
    #[arg(long = "column", value_name = "COLUMN", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Maximum number of rows of one request; decrease it if requests exceed --timeout
    #[arg(long, value_name = "ROWS", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rows_per_request: u64,
    #[command(flatten)]
    pub stacks: TransformArgs,
}

#[derive(Args)]
pub struct QueryFunctionsArgs {
    #[command(flatten)]
    pub select: QuerySelectionArgs,
    /// File to write, by its ending: .arrow, .parquet or .csv; an existing file is replaced completely or not at all
    #[arg(short, long, value_name = "OUT")]
    pub out: PathBuf,
    /// Label to group values by, with a row for each function and group; repeatable
    #[arg(long, value_name = "LABEL")]
    pub by: Vec<String>,
    #[command(flatten)]
    pub stacks: TransformArgs,
}

#[derive(Args)]
pub struct QuerySeriesArgs {
    #[command(flatten)]
    pub select: QuerySelectionArgs,
    /// Label to group series by; repeatable
    #[arg(long, value_name = "LABEL")]
    pub by: Vec<String>,
    /// Time between two points [default: a round time for about 60 points]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub step: Option<Duration>,
    /// Maximum number of series, the largest first [default: 20, all with --out]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Aggregation of the profiles in one step [default: average for types that state a level, such as memory in
    /// use; sum for all others]
    #[arg(long, value_enum)]
    pub aggregation: Option<SeriesAggregation>,
    /// Write the points to this file instead, by its ending: .arrow, .parquet or .csv
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeriesAggregation {
    /// Sum of the profiles
    Sum,
    /// Mean of the profiles
    Average,
}

#[derive(Args)]
pub struct QueryLabelsArgs {
    /// Label whose values are listed [default: list the names]
    pub name: Option<String>,
    /// Series to query
    #[arg(long, default_value = "{}")]
    pub selector: Selector,
    #[command(flatten)]
    pub times: TimeRangeArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

#[derive(Args)]
pub struct QueryTypesArgs {
    /// Series to query
    #[arg(long, default_value = "{}")]
    pub selector: Selector,
    #[command(flatten)]
    pub times: TimeRangeArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

#[derive(Args)]
pub struct QueryDiffArgs {
    /// Series before the change
    #[arg(long, value_name = "SELECTOR", default_value = "{}")]
    pub left: Selector,
    /// Series after the change
    #[arg(long, value_name = "SELECTOR", default_value = "{}")]
    pub right: Selector,
    /// Profile type, as for `query top`
    #[arg(long = "type", value_name = "TYPE", value_parser = NonEmptyStringValueParser::new())]
    pub profile_type: Option<String>,
    #[command(flatten)]
    pub times: TimeRangeArgs,
    /// Start of the time range before the change [default: --since]
    #[arg(long, value_name = "TIME")]
    pub left_since: Option<TimeArg>,
    /// End of the time range before the change [default: --until]
    #[arg(long, value_name = "TIME")]
    pub left_until: Option<TimeArg>,
    /// Start of the time range after the change [default: --since]
    #[arg(long, value_name = "TIME")]
    pub right_since: Option<TimeArg>,
    /// End of the time range after the change [default: --until]
    #[arg(long, value_name = "TIME")]
    pub right_until: Option<TimeArg>,
    /// Maximum number of functions
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    #[command(flatten)]
    pub stacks: TransformArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}
