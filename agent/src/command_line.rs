//! Runs the command that the command line names.

pub mod args;

use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use athanor_chassis::code::EXIT_USAGE;
use athanor_chassis::config::process_environment;
use athanor_chassis::observability::process::{raise_max_files, restrict_file_permissions};
use athanor_chassis::observability::telemetry::{LogFormat, Telemetry, TelemetryConfig};
use athanor_chassis::{Clock, ErrorCode, Random, Status};
use athanor_profile::render::printable::escape_control;
use clap::Parser;

use crate::agent::{AgentStart, run_agent};
use crate::config::Environment;
use crate::operator::check::{check_config, explain_config};
use crate::operator::commands::{AgentClient, CommandOutput, format_explanations};
use crate::sampling::host_check::{HostState, format_findings};
use crate::sampling::record::{RecordRequest, RecordSelection, record, run_stopped};
use crate::sampling::top::{TopRequest, top};

use args::{
    AgentCli, AgentCommand, AgentQueryArgs, ExplainArgs, LogLines, RecordArgs, RunArgs, SpoolCommand,
};

/// Length of a recording of the host.
const DEFAULT_RECORD_LENGTH: Duration = Duration::from_secs(10);

/// Threads that wait for sockets and timers.
const RUNTIME_THREADS: usize = 2;

/// Runs the process. Exit codes follow `sysexits.h`: 64 for an invalid command line, 65 for an invalid file.
pub fn run_command_line() -> ExitCode {
    let cli = match AgentCli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are not errors. A closed output needs no report.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 });
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) => {
            // The message may contain text of a file or another host, so control characters are escaped.
            let lines: Vec<String> = status.message.lines().map(escape_control).collect();
            eprintln!("{}", lines.join("\n"));
            ExitCode::from(status.code.exit_code())
        }
    }
}

fn run(cli: AgentCli) -> Result<(), Status> {
    let Some(command) = cli.command else { return run_agent_process(cli.run) };
    match command {
        AgentCommand::Check(args) => match args.file {
            Some(file) => print(&check_config(&file, &environment())?),
            None => check_host(),
        },
        AgentCommand::Record(args) => record_profile(args),
        AgentCommand::Top(args) => {
            let request = TopRequest { frequency_hz: args.hz, interval: args.interval, once: args.once };
            run_until_interrupt(async |interrupt| top(request, interrupt).await)
        }
        AgentCommand::RunStopped(args) => Err(run_stopped(&args.command)),
        AgentCommand::Targets(args) => print(&query(&args, async |client| client.targets(args.json).await)?),
        AgentCommand::Spool(args) => match args.command {
            SpoolCommand::Show(args) => {
                print(&query(&args, async |client| client.show_spool(args.json).await)?)
            }
            SpoolCommand::Drain(args) => {
                print(&query(&args.query, async |client| client.drain_spool(args.timeout).await)?)
            }
        },
        AgentCommand::Explain(args) => print(&explain(&args)?),
    }
}

/// Runs the agent until a signal stops it.
fn run_agent_process(args: RunArgs) -> Result<(), Status> {
    let format = match args.log_format {
        LogLines::Text => LogFormat::Text,
        LogLines::Json => LogFormat::Json,
    };
    let logging = TelemetryConfig { level: args.log_level, format };
    // Before the first thread starts.
    let start = AgentStart::prepare(args.config, environment())?;
    Telemetry::start(&logging, true).map_err(|error| Status::from_error(&error))?;
    raise_max_files();
    restrict_file_permissions();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(RUNTIME_THREADS).enable_all().build();
    runtime.map_err(no_event_loop)?.block_on(run_agent(start))
}

/// Prints what the host lacks.
fn check_host() -> Result<(), Status> {
    let findings = HostState::read(Path::new("/"), std::process::id())?.findings();
    print(&format_findings(&findings))?;
    match findings.iter().any(|finding| finding.is_fatal) {
        true => Err(Status::new(ErrorCode::Precondition, "the host lacks something that the sampler needs")),
        false => Ok(()),
    }
}

/// Records into a file. Totals go to the error output if the command of the recording has the standard output.
fn record_profile(args: RecordArgs) -> Result<(), Status> {
    let has_command = !args.command.is_empty();
    let selection = match (args.pid, args.service) {
        (Some(pid), _) => RecordSelection::Process(pid),
        (None, Some(service)) => RecordSelection::Service(service),
        (None, None) if has_command => RecordSelection::Command(args.command),
        (None, None) => RecordSelection::Host,
    };
    let length = args.length.or((!has_command).then_some(DEFAULT_RECORD_LENGTH));
    let request = RecordRequest { length, frequency_hz: args.hz, selection, file: args.output };
    let path = process_environment().find_map(|(name, value)| (name == "PATH").then_some(value));
    let totals = run_until_interrupt(async |interrupt| record(request, path.as_deref(), interrupt).await)?;
    if has_command {
        eprint!("{totals}");
        return Ok(());
    }
    print(&totals)
}

/// Runs a command on the current thread, with a future that ends with SIGINT.
fn run_until_interrupt<T>(
    command: impl AsyncFnOnce(Pin<Box<dyn Future<Output = ()>>>) -> Result<T, Status>,
) -> Result<T, Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(no_event_loop)?.block_on(async {
        let interrupt = tokio::signal::ctrl_c();
        command(Box::pin(async {
            // Without a handler, the signal ends the process.
            if interrupt.await.is_err() {
                std::future::pending::<()>().await;
            }
        }))
        .await
    })
}

fn no_event_loop(error: std::io::Error) -> Status {
    Status::new(ErrorCode::Internal, format!("failed to start the event loop: {error}"))
}

fn environment() -> Environment {
    Environment::from_variables(process_environment())
}

fn explain(args: &ExplainArgs) -> Result<CommandOutput, Status> {
    let target = args.target.as_deref();
    let Some(file) = &args.file else {
        let target = target.unwrap_or_default();
        return query(&args.query, async |client| client.explain(target, args.query.json).await);
    };
    let view = explain_config(file, target, &environment())?;
    if !args.query.json {
        return Ok(format_explanations(&view));
    }
    let text = serde_json::to_string_pretty(&view);
    text.map_err(|error| Status::new(ErrorCode::Internal, format!("failed to encode: {error}")))
}

/// Runs a request to a running agent on the current thread.
fn query(
    args: &AgentQueryArgs,
    request: impl AsyncFnOnce(AgentClient) -> Result<CommandOutput, Status>,
) -> Result<CommandOutput, Status> {
    let client = AgentClient::new(&args.agent, Clock::system(), Random::system())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(no_event_loop)?.block_on(request(client))
}

fn print(text: &str) -> Result<(), Status> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader needs no more.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => {
            written.map_err(|error| Status::new(ErrorCode::Unavailable, format!("standard output: {error}")))
        }
    }
}
