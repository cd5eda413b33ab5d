//! The running agent: starts its parts, reloads the configuration, and stops in order.
//!
//! ```text
//!  assembly ─► RunningAgent ─┬─ config_reload   new jobs and rules, without a restart
//!                            ├─ agent_view      state for pages and commands
//!                            ├─ target_feed     groups of discoverers ─► targets
//!                            └─ sender_directory  labels of pods and containers by address
//! ```
//!
//! At a stop, first the sources end: scrapes, the sampler and the port for pushed profiles. Then the spool writes what it holds
//! in memory. Profiles on disk are delivered after the next start.

mod agent_deps;
mod agent_view;
mod assembly;
mod config_reload;
pub mod privileges;
mod sender_directory;
mod target_feed;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use athanor_chassis::code::ErrorCodeExt;
use athanor_chassis::{ErrorCode, Status};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::privileges::{PreparedPrivileges, prepare_privileges};
use crate::config::{Environment, default_config};
use crate::operator::check::load_config;
use crate::operator::reload::ReloadWatch;
use crate::sampling::SamplerPhase;
use agent_deps::{AgentDeps, STOP_TIMEOUT};
use agent_view::{ConfigInForce, RunningAgent};
use assembly::{AgentPort, assemble};
use sender_directory::POD_LOGS;

/// Agent to run, with its configuration and privileges.
pub struct AgentStart {
    file: Option<PathBuf>,
    environment: Environment,
    in_force: ConfigInForce,
    privileges: PreparedPrivileges,
}

impl AgentStart {
    /// Reads the configuration and drops the capabilities that the agent does not need. The calling thread must be
    /// the only one. Without a file the default configuration is in force.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, or the sampler lacks privileges and must run.
    pub fn prepare(file: Option<PathBuf>, environment: Environment) -> Result<Self, Status> {
        let in_force = read_config(file.as_deref(), &environment)?;
        let privileges = prepare_privileges(&in_force.config)?;
        Ok(Self { file, environment, in_force, privileges })
    }
}

/// Runs an agent until SIGTERM or SIGINT.
///
/// # Errors
///
/// A port is in use, or another process uses the spool.
pub async fn run_agent(start: AgentStart) -> Result<(), Status> {
    let deps = AgentDeps::of_process()?;
    let mut signals = StopSignals::new()?;
    let watch = ReloadWatch::new(start.file.as_deref(), deps.clock.clone()).map_err(no_handlers)?;
    for warning in &start.privileges.warnings {
        tracing::warn!("{warning}");
    }
    let (agent, ports) = assemble(&deps, start).await?;
    let stop = CancellationToken::new();
    let abort = CancellationToken::new();
    let scraper = agent.scraper.clone();
    let targets = agent.registry.subscribe();
    let scraper_stop = stop.clone();
    let mut sources = vec![
        deps.spawn("scraper", async move { scraper.run(targets, scraper_stop).await })?,
        deps.spawn("config reload", reload_on_change(Arc::clone(&agent), watch, stop.clone()))?,
    ];
    if agent.environment.is_in_cluster && Path::new(POD_LOGS).is_dir() {
        let watch = Arc::clone(&agent.senders).watch_logged_pods(deps.clone(), stop.clone());
        sources.push(deps.spawn("pod logs", watch)?);
    }
    sources.push(deps.spawn("memory spool log", Arc::clone(&agent).log_memory_spool(stop.clone()))?);
    if agent.sampler.stats().phase == SamplerPhase::Starting {
        sources.push(deps.spawn("sampler", agent.sampler.clone().run(stop.clone()))?);
    }
    for port in ports {
        print_address(&port);
        sources.push(deps.spawn(port.name, port.serve(deps.clone(), stop.clone(), abort.clone()))?);
    }
    signals.wait().await;
    tracing::info!("stopping: profiles in memory are written to the spool");
    stop.cancel();
    let stopping = stop_in_order(&deps, sources, abort);
    tokio::select! {
        () = stopping => {}
        () = signals.wait() => tracing::warn!("stopped at once, because of a second signal"),
    }
    Ok(())
}

/// Ends the sources, then the spool.
async fn stop_in_order(
    deps: &AgentDeps,
    sources: Vec<athanor_chassis::tasks::TaskHandle<()>>,
    abort: CancellationToken,
) {
    let ended = async {
        for source in sources {
            // A task that panicked was logged by its group.
            let _ = source.await;
        }
    };
    if deps.clock.timeout(STOP_TIMEOUT, ended).await.is_err() {
        tracing::warn!("requests did not end in time and are aborted");
        abort.cancel();
    }
    deps.tasks.shutdown(STOP_TIMEOUT).await;
    deps.spool_tasks.shutdown(STOP_TIMEOUT).await;
}

async fn reload_on_change(agent: Arc<RunningAgent>, mut watch: ReloadWatch, stop: CancellationToken) {
    loop {
        let cause = tokio::select! {
            () = stop.cancelled() => return,
            cause = watch.next() => cause,
        };
        agent.reload(cause);
    }
}

/// Reads the file, or returns the default configuration without one.
fn read_config(file: Option<&Path>, environment: &Environment) -> Result<ConfigInForce, Status> {
    let (config, text) = match file {
        Some(file) => load_config(file, environment)?,
        None => {
            let config = default_config(environment);
            (config.map_err(|errors| Status::new(errors.code(), errors.to_string()))?, String::new())
        }
    };
    Ok(ConfigInForce { config, text })
}

/// Prints where a port listens, for people and for programs that start the agent with port 0.
fn print_address(port: &AgentPort) {
    println!("{} on http://{}", port.purpose, port.address());
}

fn no_handlers(error: std::io::Error) -> Status {
    Status::new(ErrorCode::Unavailable, format!("failed to register signal handlers: {error}"))
}

/// Signals that stop the agent.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> Result<Self, Status> {
        let terminate = signal(SignalKind::terminate()).map_err(no_handlers)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(no_handlers)?;
        Ok(Self { terminate, interrupt })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
