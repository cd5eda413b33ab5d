//! The `athanor` command: tools for profile files and blocks, the server, and clients of servers.
//!
//! ```text
//!  FILE… ─► input (pprof, folded, block; many) ─► one Profile ─► top, flamegraph, info, diff, convert
//!  FILE… ─► block build ─► a folder of Parquet ─► block list, show, verify, cat, merge
//!  FILE… ─► push ─► client ─► a server ─► client ─► query ─► one Profile, as above; series, labels, types
//!  a server, FILE… or a block ─► rows of samples ─► table_output ─► .arrow, .parquet or .csv ─► input, as above
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod block;
mod dev;
mod failure;
mod output;
mod profile;
mod progress;
mod remote;
mod server;
mod table_output;

use std::process::ExitCode;

use athanor_chassis::Status;
use athanor_chassis::code::EXIT_USAGE;
use clap::{CommandFactory, Parser};

use args::{Cli, CliCommand};

/// Parses the command line of this process and runs its command.
pub fn run_command_line() -> ExitCode {
    let cli = match Cli::try_parse().and_then(args::validate_args) {
        Ok(cli) => cli,
        Err(error) => {
            let usage = error.use_stderr();
            // The error of a closed pipe is ignored: the reader does not need the help text.
            let _ = error.print();
            return if usage { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) if failure::is_broken_pipe(&status) => ExitCode::SUCCESS,
        Err(status) => {
            // The message may contain text from a file or a server, so control characters are escaped.
            let lines: Vec<String> = status.message.lines().map(output::harmless).collect();
            eprintln!("athanor: {}", lines.join("\n"));
            ExitCode::from(failure::exit_code(&status))
        }
    }
}

/// Returns the tree of all commands with their flags and help texts.
pub fn command_tree() -> clap::Command {
    let mut tree = Cli::command();
    tree.build();
    tree
}

fn run(cli: Cli) -> Result<(), Status> {
    let output = output::ConsoleOutput::new(&cli.shown);
    match cli.command {
        CliCommand::Serve(args) => server::serve::run(&args, &output),
        CliCommand::Config(settings) => server::serve::show(&settings, &output),
        CliCommand::Flush(settings) => server::admin_commands::flush(&settings, &output),
        CliCommand::Quarantine(args) => server::admin_commands::quarantine(args, &output),
        CliCommand::Metastore(args) => server::admin_commands::metastore(args, &output),
        CliCommand::Shard(args) => server::admin_commands::shard(args, &output),
        CliCommand::Retention(args) => server::admin_commands::retention(args, &output),
        CliCommand::Compaction(args) => server::compaction_commands::compaction(args, &output),
        CliCommand::Upload(args) => server::tenant_commands::upload(args, &output),
        CliCommand::Settings(args) => server::tenant_commands::tenant_settings(args, &output),
        CliCommand::Top(args) => profile::profile_views::top(&args, &output),
        CliCommand::Flamegraph(args) => profile::profile_views::flamegraph(&args, &output),
        CliCommand::Info(args) => profile::profile_views::info(&args, &output),
        CliCommand::Diff(args) => profile::diff::run(&args, &output),
        CliCommand::Convert(args) => profile::convert::run(&args, &output),
        CliCommand::Block(args) => block::run(args, &output),
        CliCommand::Push(args) => remote::push::run(args, &output),
        CliCommand::Query(args) => remote::query::run(args, &output),
        CliCommand::Dev(args) => dev::run(args, &output),
    }
}
