//! Arguments of the `dev` commands.

use std::path::PathBuf;
use std::time::Duration;

use athanor_chassis::units::parse_duration;
use athanor_profile::generate::ReferenceDataset;
use clap::{Args, Subcommand, ValueEnum};

use super::RemoteArgs;

#[derive(Args)]
pub struct DevArgs {
    #[command(subcommand)]
    pub command: DevSubcommand,
}

#[derive(Subcommand)]
pub enum DevSubcommand {
    /// Write a synthetic dataset, with the same bytes on every machine for one seed
    #[command(after_help = "Example:\n  athanor dev generate --dataset R-1k --out profiles")]
    Generate {
        /// Dataset to generate
        #[arg(long, value_enum)]
        dataset: DatasetName,
        /// Folder for the gzipped pprof files, and for set.json with their labels
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Seed of the random numbers
        #[arg(long, default_value_t = ReferenceDataset::PUBLISHED_SEED)]
        seed: u64,
    },
    /// Benchmark a running server: push a dataset, query it, report cost and latency
    #[command(
        after_help = "Example, beside `athanor serve --set limits.reject_older_than=0s`:\n  athanor dev bench --dataset R-1k --connections 16 --pid $(pidof athanor)\n\nThe requests are generated first and held in memory: 0.2 GB for R-1k, 1.6 GB for R-10k. The last profile has the current\ntime. The first profile of R-10k is two hours old, which a server rejects by default."
    )]
    Bench(DevBenchArgs),
    /// Run a cluster of processes on this machine, with one bucket
    ///
    /// Each of three zones has a metastore, two ingesters, a distributor and a querier.
    #[command(
        after_help = "Example:\n  athanor dev cluster\n  athanor push examples/checkout.pb.gz --service checkout --url http://127.0.0.1:4040\n  athanor query top --since 1h --url http://127.0.0.1:4041"
    )]
    Cluster(DevClusterArgs),
    /// Write the example profile of the repository
    #[command(after_help = "Example:\n  athanor dev example --out checkout.pb.gz")]
    Example {
        /// File to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

/// Workload of a benchmark.
#[derive(Args)]
pub struct DevBenchArgs {
    /// Dataset to push
    #[arg(long, value_enum, default_value_t = DatasetName::R1k)]
    pub dataset: DatasetName,
    /// Number of profiles to push, from the start of the dataset [default: all]
    #[arg(long, value_parser = profile_count)]
    pub profiles: Option<usize>,
    /// Number of concurrent requests
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub connections: u32,
    /// Requests per second [default: as many as the server acknowledges]
    #[arg(long, value_name = "PER-SECOND", value_parser = request_rate)]
    pub rate: Option<f64>,
    /// Number of merge queries over the whole dataset after the push
    #[arg(long, default_value_t = 20)]
    pub merges: u32,
    /// Process id of the server on this machine, to report its CPU time and memory
    #[arg(long)]
    pub pid: Option<u32>,
    /// Delay between the last acknowledgement and the reading of the server's CPU time
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub settle: Duration,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

fn profile_count(text: &str) -> Result<usize, String> {
    let most = ReferenceDataset::R_10K_PROFILES;
    let count = text.parse().ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("must be a number from 1 to {most}"))
}

fn request_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=1e6).contains(rate));
    rate.ok_or_else(|| "must be a number from 0.001 to 1000000".to_owned())
}

#[derive(Args)]
pub struct DevClusterArgs {
    /// Folder for the bucket and for one folder per process
    #[arg(long, value_name = "DIR", default_value = "athanor-cluster")]
    pub data: PathBuf,
    /// First port; distributors listen on it and on the second and fourth port after it, queriers on the ports between
    #[arg(long, default_value_t = 4040)]
    pub port: u16,
    /// Accept profiles of any age, such as those of `dev bench`
    #[arg(long)]
    pub any_age: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DatasetName {
    /// 1 200 profiles of one service
    #[value(name = "R-1k")]
    R1k,
    /// 10 000 profiles of one service
    #[value(name = "R-10k")]
    R10k,
}

impl DatasetName {
    /// Returns the number of profiles in the dataset.
    pub fn profiles(self) -> usize {
        match self {
            DatasetName::R1k => ReferenceDataset::R_1K_PROFILES,
            DatasetName::R10k => ReferenceDataset::R_10K_PROFILES,
        }
    }
}
