//! The `athanor` command: profiles on the command line, blocks of them, and servers that are asked.
//!
//! ```text
//!  FILE… ─► input (pprof, folded, block; many at once) ─► one Profile ─► top, flamegraph, info, diff, convert
//!  FILE… ─► block build ─► a folder of Parquet ─► block ls, show, verify, cat, merge
//!  FILE… ─► push ─► client ─► a server ─► client ─► query ─► one Profile, as above; series, labels, types
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod administer;
mod args;
mod ask;
mod block;
mod client;
mod convert;
mod dev;
mod diff;
mod example;
mod failure;
mod input;
mod load;
mod output;
mod progress;
mod push;
mod query;
mod serve;
mod views;

use std::process::ExitCode;

use athanor_chassis::Status;
use athanor_chassis::code::EXIT_USAGE;
use clap::Parser;

use args::{Cli, Command};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse().and_then(args::checked) {
        Ok(cli) => cli,
        Err(error) => {
            let usage = error.use_stderr();
            // Whoever closed the pipe does not read the help.
            let _ = error.print();
            return if usage { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) if failure::is_broken_pipe(&status) => ExitCode::SUCCESS,
        Err(status) => {
            // A message may name what a file or a server says.
            let lines: Vec<String> = status.message.lines().map(output::harmless).collect();
            eprintln!("athanor: {}", lines.join("\n"));
            ExitCode::from(failure::exit(&status))
        }
    }
}

fn run(cli: Cli) -> Result<(), Status> {
    let output = output::Output::new(&cli.shown);
    match cli.command {
        Command::Serve(args) => serve::run(&args, &output),
        Command::Config(settings) => serve::show(&settings, &output),
        Command::Cut(settings) => serve::cut(&settings, &output),
        Command::Lift(settings) => administer::lift(&settings, &output),
        Command::Metastore(args) => administer::metastore(args, &output),
        Command::Shard(args) => administer::shard(args, &output),
        Command::Retention(args) => administer::retention(args, &output),
        Command::Upload(args) => administer::upload(args, &output),
        Command::Settings(args) => administer::tenant_settings(args, &output),
        Command::Catalogue(args) => serve::catalogue(args, &output),
        Command::Top(args) => views::top(&args, &output),
        Command::Flamegraph(args) => views::flamegraph(&args, &output),
        Command::Info(args) => views::info(&args, &output),
        Command::Diff(args) => diff::run(&args, &output),
        Command::Convert(args) => convert::run(&args, &output),
        Command::Block(args) => block::run(args, &output),
        Command::Push(args) => push::run(args, &output),
        Command::Query(args) => query::run(args, &output),
        Command::Dev(args) => dev::run(args, &output),
    }
}
