//! Command line of `athanor-agent`: its subcommands and their arguments, for clap.

use std::path::PathBuf;
use std::time::Duration;

use athanor_chassis::units::parse_duration;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Scrapes and receives profiles, and delivers each exactly once.
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
  athanor-agent targets                  list the targets of a running agent
  athanor-agent spool show               show what a running agent has not delivered yet
  athanor-agent explain 10.0.0.7:6060    show what each relabeling rule does to a target";

/// Subcommand.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Check a configuration file and report all errors as file:line:column
    Check(CheckArgs),
    /// List the targets of a running agent with the states of their kinds
    Targets(AgentQueryArgs),
    /// Show or drain the spool of a running agent
    Spool(SpoolArgs),
    /// Show each relabeling rule, the labels after it, and why a target is dropped
    Explain(ExplainArgs),
}

/// File to check.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Configuration file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
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
