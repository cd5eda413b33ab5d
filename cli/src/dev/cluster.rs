//! `dev cluster`: a cluster of processes on this machine, which prints its events.

mod events;
mod plan;

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use athanor_chassis::net::LocalNet;
use athanor_chassis::{Clock, ErrorCode, Random, Status};
use athanor_cluster::gossip::UdpTransport;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::DevClusterArgs;
use crate::failure;
use crate::output::ConsoleOutput;
use events::ClusterEvents;
use plan::{ClusterPlan, PlannedNode};

/// Interval between two polls of the cluster's state.
const EVENT_POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Maximum time for the processes to exit.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Process of the cluster.
struct NodeProcess {
    planned: PlannedNode,
    child: Child,
    /// Set once the exit of the process was reported.
    is_over: bool,
}

/// Runs the cluster until a signal arrives or all processes exit.
pub async fn run(args: &DevClusterArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let clock = Clock::system();
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        return Err(Status::new(ErrorCode::Unavailable, "failed to register signal handlers"));
    };
    let plan = ClusterPlan::write(args, &Random::system())?;
    plan.check_ports(&LocalNet::new(clock.clone()), &UdpTransport).await?;
    output.text(&plan.summary_text())?;
    let mut running = Vec::new();
    for planned in plan.nodes.clone() {
        let started = start(planned);
        match started {
            Ok(one) => running.push(one),
            Err(status) => {
                stop(&mut running, &clock).await;
                return Err(status);
            }
        }
    }
    let mut events = ClusterEvents::new(&plan, clock.clone());
    let watched = loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => break Ok(()),
            _ = interrupt.recv() => break Ok(()),
            () = clock.sleep(EVENT_POLL_INTERVAL) => {}
        }
        for one in running.iter_mut().filter(|one| !one.is_over) {
            if let Ok(Some(how)) = one.child.try_wait() {
                one.is_over = true;
                events.record_exit(&one.planned, &how);
            }
        }
        events.poll().await;
        if let Err(status) = output.text(&events.take()) {
            break Err(status);
        }
        if running.iter().all(|one| one.is_over) {
            let message = format!("all processes exited; their logs are in {}", plan.folder.display());
            break Err(Status::new(ErrorCode::Unavailable, message));
        }
    };
    let printed = output.text("stopping\n");
    stop(&mut running, &clock).await;
    watched.and(printed)
}

impl Drop for NodeProcess {
    /// Kills the process, so that none outlives this command.
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn start(planned: PlannedNode) -> Result<NodeProcess, Status> {
    let log = planned.folder.join("log");
    let open = || {
        File::options().create(true).append(true).open(&log).map_err(|error| failure::io_error(&log, error))
    };
    let this = std::env::current_exe().map_err(|error| failure::io_error(Path::new("athanor"), error))?;
    let mut command = Command::new(&this);
    command.arg("serve").arg("--config").arg(&planned.config);
    // Ctrl-C and environment variables are only for this process. It stops the others itself.
    command.env_clear().process_group(0).stdin(Stdio::null()).stdout(open()?).stderr(open()?);
    let child = command.spawn().map_err(|error| failure::io_error(&this, error))?;
    Ok(NodeProcess { planned, child, is_over: false })
}

/// Sends SIGTERM to all processes. The drop of the handles kills those that do not exit in time.
async fn stop(running: &mut [NodeProcess], clock: &Clock) {
    for one in running.iter().filter(|one| !one.is_over) {
        // A process that has exited needs no signal.
        let _ = Command::new("kill").arg("-TERM").arg(one.child.id().to_string()).status();
    }
    let until = clock.monotonic() + SHUTDOWN_TIMEOUT;
    while clock.monotonic() < until {
        for one in running.iter_mut() {
            one.is_over |= matches!(one.child.try_wait(), Ok(Some(_)) | Err(_));
        }
        if running.iter().all(|one| one.is_over) {
            return;
        }
        clock.sleep(EVENT_POLL_INTERVAL).await;
    }
    // The remaining processes are killed when their handles are dropped.
}
