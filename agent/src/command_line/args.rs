//! Command line of `athanor-agent`: its subcommands and their arguments, for clap.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use athanor_chassis::units::parse_duration;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::is_frequency;
use crate::sampling::record::RUN_STOPPED;

/// Shortest and longest time of sampling by a command.
const MIN_LENGTH: Duration = Duration::from_millis(100);
const MAX_LENGTH: Duration = Duration::from_secs(24 * 3600);

/// Samples the host, scrapes and receives profiles, and delivers each exactly once.
#[derive(Debug, Parser)]
#[command(name = "athanor-agent", version, args_conflicts_with_subcommands = true, after_help = HELP_EXAMPLES)]
pub struct AgentCli {
    /// Agent to run without a command.
    #[command(flatten)]
    pub run: RunArgs,
    /// Command.
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
}

/// Agent to run.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Configuration file; without it, profiles go to http://127.0.0.1:4040 or ATHANOR_URL, and clients push them
    /// to http://127.0.0.1:4041
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Level of log lines: off, error, warn, info, debug, trace, or levels by module
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogLines::Text)]
    pub log_format: LogLines,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogLines {
    /// For people.
    Text,
    /// One JSON object per line, for collectors.
    Json,
}

const HELP_EXAMPLES: &str = "\
Examples:
  athanor-agent                          run with the defaults
  athanor-agent --config agent.yaml      run with a configuration file
  athanor-agent check agent.yaml         report the errors of a file with their lines and columns
  athanor-agent check --host             report what this host lacks to be sampled
  athanor-agent record -o cpu.svg        sample this host for 10 s and draw a flame graph
  athanor-agent top                      show the processes and functions with the most CPU time
  athanor-agent targets                  list the targets of a running agent
  athanor-agent spool show               show what a running agent has not delivered yet
  athanor-agent explain 10.0.0.7:6060    show what each relabeling rule does to a target";

/// Subcommand.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Check a configuration file and report all errors as file:line:column, or the host of the sampler
    Check(CheckArgs),
    /// Sample this host for a time and write a file, without a server
    Record(RecordArgs),
    /// Show the processes and functions of this host with the most CPU time
    Top(TopArgs),
    /// Stop until a signal continues the process, then become the command. `record` starts its command in this way
    #[command(name = RUN_STOPPED, hide = true)]
    RunStopped(RunStoppedArgs),
    /// List the targets of a running agent with the states of their kinds
    Targets(AgentQueryArgs),
    /// Show or drain the spool of a running agent
    Spool(SpoolArgs),
    /// Show each relabeling rule, the labels after it, and why a target is dropped
    Explain(ExplainArgs),
}

/// File or host to check.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Configuration file
    #[arg(value_name = "FILE", required_unless_present = "host", conflicts_with = "host")]
    pub file: Option<PathBuf>,
    /// Report what this host lacks to be sampled, one line for each missing thing
    #[arg(long)]
    pub host: bool,
}

/// Recording to make.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// Length; without it, 10s, or until COMMAND ends
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_length)]
    pub length: Option<Duration>,
    /// Samples per second and CPU, 1 to 997
    #[arg(long, value_name = "N", default_value_t = 97, value_parser = parse_frequency)]
    pub hz: u32,
    /// Record the process with this id
    #[arg(long, value_name = "P", conflicts_with_all = ["service", "command"])]
    pub pid: Option<u32>,
    /// Record the processes with this service name, such as nginx.service or the name of an executable
    #[arg(long, value_name = "S", conflicts_with = "command")]
    pub service: Option<String>,
    /// File to write: .pb.gz or .pprof, .folded or .txt, .svg
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Command to start and record, with the processes that it starts
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<OsString>,
}

/// Command of a recording.
#[derive(Args, Debug)]
pub struct RunStoppedArgs {
    /// Program and arguments
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Table to show.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Samples per second and CPU, 1 to 997
    #[arg(long, value_name = "N", default_value_t = 97, value_parser = parse_frequency)]
    pub hz: u32,
    /// Time between two tables
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_length)]
    pub interval: Duration,
    /// Show one table and exit; also if the output is no terminal
    #[arg(long)]
    pub once: bool,
}

fn parse_frequency(text: &str) -> Result<u32, String> {
    let frequency = text.parse().ok().filter(|&frequency| is_frequency(frequency));
    frequency.ok_or_else(|| "write a whole number from 1 to 997".to_owned())
}

fn parse_length(text: &str) -> Result<Duration, String> {
    let length = parse_duration(text).map_err(|error| error.to_string())?;
    let is_allowed = (MIN_LENGTH..=MAX_LENGTH).contains(&length);
    if is_allowed { Ok(length) } else { Err("write a duration from 100ms to 24h".to_owned()) }
}

/// Running agent.
#[derive(Args, Debug)]
pub struct AgentQueryArgs {
    /// URL of the agent's operator interface
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4042")]
    pub agent: String,
    /// Print the result as one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Operation on the spool.
#[derive(Args, Debug)]
pub struct SpoolArgs {
    /// Operation.
    #[command(subcommand)]
    pub command: SpoolCommand,
}

/// Operation on the spool.
#[derive(Debug, Subcommand)]
pub enum SpoolCommand {
    /// Show files, bytes and age of the spool of each server
    Show(AgentQueryArgs),
    /// Deliver the spool now, without waiting for the end of a backoff, and wait until it is empty
    Drain(DrainArgs),
}

/// Running agent whose spool is drained.
#[derive(Args, Debug)]
pub struct DrainArgs {
    /// Running agent.
    #[command(flatten)]
    pub query: AgentQueryArgs,
    /// Time to wait for an empty spool
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// Targets to explain.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Address of a target, or another label value; needed unless --file is set
    #[arg(value_name = "TARGET", required_unless_present = "file")]
    pub target: Option<String>,
    /// Explain the targets that a configuration file lists itself, without a running agent
    #[arg(long, value_name = "F", conflicts_with = "agent")]
    pub file: Option<PathBuf>,
    /// Running agent.
    #[command(flatten)]
    pub query: AgentQueryArgs,
}
