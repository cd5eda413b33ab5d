//! Arguments of the commands that send requests to a server.

use std::path::PathBuf;
use std::time::Duration;

use athanor_chassis::config::SecretString;
use athanor_chassis::units::parse_duration;
use athanor_query::Selector;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};

use super::{FlamegraphViewArgs, OutputFormat, ReferenceSet, TopViewArgs};
use crate::remote::query::time_arg::TimeArg;

/// Which server, and who asks.
#[derive(Args)]
pub struct RemoteArgs {
    /// The server's address
    #[arg(
        long,
        env = "ATHANOR_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:4040"
    )]
    pub url: String,
    /// Whose profiles; sent as X-Scope-OrgID
    #[arg(long, env = "ATHANOR_TENANT", hide_env_values = true)]
    pub tenant: Option<String>,
    /// For basic authentication; better in the environment, where other users do not see it
    #[arg(long, env = "ATHANOR_USER", hide_env_values = true, value_name = "NAME:PASSWORD", value_parser = secret)]
    pub user: Option<SecretString>,
    /// A bearer token; better in the environment, where other users do not see it
    #[arg(long, env = "ATHANOR_TOKEN", hide_env_values = true, value_parser = secret)]
    pub token: Option<SecretString>,
    /// How long one request may take
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// Accepts any text, so that no parse error shows a secret.
fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::new(text))
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  athanor push cpu.pb.gz --service checkout --label zone=eu-1\n  athanor push *.pb.gz --service checkout --url https://profiles.example --json\n\nA push that was cut off may be repeated: a profile that is sent again is counted once."
)]
pub struct PushArgs {
    /// pprof (plain, gzip or zstd), folded stacks, speedscope or flamebearer JSON, or what perf script prints; - is
    /// standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// What the profiles are of: the label service_name
    #[arg(long, value_name = "NAME")]
    pub service: String,
    /// A label of all profiles; may be given again
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = athanor_profile::data_model::labels::parse_label)]
    pub labels: Vec<(String, String)>,
    /// The name of what is measured, such as process_cpu; told by the profile's types if not given
    #[arg(long, value_name = "METRIC")]
    pub name: Option<String>,
    /// How often a request is repeated that failed for now
    #[arg(long, default_value_t = 5)]
    pub retries: u32,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// How to measure a server.
#[derive(Args)]
pub struct DevLoadArgs {
    /// Which set
    #[arg(long, value_enum, default_value_t = ReferenceSet::R1k)]
    pub set: ReferenceSet,
    /// Only the first so many of its profiles
    #[arg(long, value_parser = profiles)]
    pub profiles: Option<usize>,
    /// Requests under way at the same time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub connections: u32,
    /// Requests a second; as many as are answered if not given
    #[arg(long, value_name = "PER-SECOND", value_parser = rate)]
    pub rate: Option<f64>,
    /// How often all of it is merged afterwards
    #[arg(long, default_value_t = 20)]
    pub merges: u32,
    /// The server's process on this machine, whose processor time and memory are told
    #[arg(long)]
    pub pid: Option<u32>,
    /// What the server may still have to do after the last answer, before its processor time is read
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub settle: Duration,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

fn profiles(text: &str) -> Result<usize, String> {
    let most = athanor_profile::generate::ReferenceDataset::R_10K_PROFILES;
    let count = text.parse().ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("a number from 1 to {most} is wanted"))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=1e6).contains(rate));
    rate.ok_or_else(|| "a number from 0.001 to 1000000 is wanted".to_owned())
}

#[derive(Args)]
pub struct QueryArgs {
    #[command(subcommand)]
    pub command: QuerySubcommand,
}

#[derive(Subcommand)]
pub enum QuerySubcommand {
    /// List the functions that cost most
    #[command(
        after_help = "Examples:\n  athanor query top --since 1h --selector '{service_name=\"checkout\"}'\n  athanor query top --type cpu --from now-2h --until now-1h --focus main.handle\n  athanor query top --type process_cpu:cpu:nanoseconds:cpu:nanoseconds -o hour.pb.gz"
    )]
    Top(QueryTopArgs),
    /// Draw a flame graph in the terminal, or write one to a file
    #[command(after_help = "Example:\n  athanor query flamegraph --type inuse_space -o memory.svg")]
    Flamegraph(QueryFlamegraphArgs),
    /// Show how much over time, by label
    #[command(after_help = "Example:\n  athanor query series --by pod --step 1m --since 6h")]
    Series(QuerySeriesArgs),
    /// List the names of labels, or the values of one
    #[command(
        after_help = "Examples:\n  athanor query labels\n  athanor query labels pod --selector '{service_name=\"checkout\"}'"
    )]
    Labels(QueryLabelsArgs),
    /// List what is measured
    #[command(after_help = "Example:\n  athanor query types --selector '{service_name=\"checkout\"}'")]
    Types(QueryTypesArgs),
    /// Compare two selections, two times, or both
    #[command(
        after_help = "Examples:\n  athanor query diff --left '{version=\"1\"}' --right '{version=\"2\"}'\n  athanor query diff --right-from now-1h --left-from now-25h --left-until now-24h"
    )]
    Diff(QueryDiffArgs),
}

/// When.
#[derive(Args, Clone)]
pub struct TimeRangeArgs {
    /// The last so long, such as 30m, 6h or 1d
    #[arg(long, value_name = "DURATION", default_value = "1h", conflicts_with = "from", value_parser = parse_duration)]
    pub since: Duration,
    /// From when, such as now-2h, 2026-01-31T12:00:00Z or Unix seconds
    #[arg(long, value_name = "TIME")]
    pub from: Option<TimeArg>,
    /// Until when, written alike
    #[arg(long, value_name = "TIME", default_value = "now")]
    pub until: TimeArg,
}

/// What, of whom, and when.
#[derive(Args)]
pub struct QuerySelectionArgs {
    /// What is measured, such as process_cpu:cpu:nanoseconds:cpu:nanoseconds or only cpu; chosen if just one is about CPU time
    #[arg(long = "type", value_name = "TYPE", value_parser = NonEmptyStringValueParser::new())]
    pub profile_type: Option<String>,
    /// Which series, such as '{service_name="checkout", zone!~"eu-.*"}'
    #[arg(long, default_value = "{}")]
    pub selector: Selector,
    #[command(flatten)]
    pub times: TimeRangeArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// A file in place of a view.
#[derive(Args)]
pub struct OutputFileArgs {
    /// Write all of it to a file instead: pprof, folded, speedscope, dot or svg; - is standard output
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// The format; told by the name of OUT if not given
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
pub struct QuerySeriesArgs {
    #[command(flatten)]
    pub select: QuerySelectionArgs,
    /// A series for each value of this label; may be given again
    #[arg(long, value_name = "LABEL")]
    pub by: Vec<String>,
    /// From one point to the next; about 60 points if not given
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub step: Option<Duration>,
    /// How many series, the largest first
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// What a point is of the profiles in its step
    #[arg(long, value_enum, default_value_t = SeriesAggregation::Sum)]
    pub aggregation: SeriesAggregation,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeriesAggregation {
    /// All of them added
    Sum,
    /// Their mean
    Average,
}

#[derive(Args)]
pub struct QueryLabelsArgs {
    /// The label whose values are listed
    pub name: Option<String>,
    /// Only of these series
    #[arg(long, default_value = "{}")]
    pub selector: Selector,
    #[command(flatten)]
    pub times: TimeRangeArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

#[derive(Args)]
pub struct QueryTypesArgs {
    /// Only of these series
    #[arg(long, default_value = "{}")]
    pub selector: Selector,
    #[command(flatten)]
    pub times: TimeRangeArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

#[derive(Args)]
pub struct QueryDiffArgs {
    /// Before: which series
    #[arg(long, value_name = "SELECTOR", default_value = "{}")]
    pub left: Selector,
    /// After: which series
    #[arg(long, value_name = "SELECTOR", default_value = "{}")]
    pub right: Selector,
    /// What is measured, as for `query top`
    #[arg(long = "type", value_name = "TYPE", value_parser = NonEmptyStringValueParser::new())]
    pub profile_type: Option<String>,
    #[command(flatten)]
    pub times: TimeRangeArgs,
    /// Before: from when; as --from if not given
    #[arg(long, value_name = "TIME")]
    pub left_from: Option<TimeArg>,
    /// Before: until when; as --until if not given
    #[arg(long, value_name = "TIME")]
    pub left_until: Option<TimeArg>,
    /// After: from when; as --from if not given
    #[arg(long, value_name = "TIME")]
    pub right_from: Option<TimeArg>,
    /// After: until when; as --until if not given
    #[arg(long, value_name = "TIME")]
    pub right_until: Option<TimeArg>,
    /// How many functions
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    #[command(flatten)]
    pub remote: RemoteArgs,
}
