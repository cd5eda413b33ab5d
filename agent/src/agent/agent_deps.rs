//! Resources of the process that the parts of the agent share.

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::net::LocalNet;
use athanor_chassis::tasks::TaskHandle;
use athanor_chassis::{Clock, ComputePool, ErrorCode, Net, Random, Status, TaskGroup};

use crate::spool::SpoolRuntime;

/// Maximum number of tasks of the agent, besides scrapes and the spool.
const MAX_TASKS: usize = 16_384;
/// Maximum number of tasks of the spools: a writer and a delivery for each server.
const MAX_SPOOL_TASKS: usize = 256;
/// Threads for blocking and expensive work. The agent shares its machine with the programs that it observes.
const COMPUTE_THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// Maximum number of jobs that wait for a thread.
const MAX_WAITING_JOBS: usize = 1_024;
/// Time limit of each step of a stop.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(12);

/// Resources of the process. Cheap to clone.
#[derive(Clone)]
pub(super) struct AgentDeps {
    pub(super) clock: Clock,
    pub(super) random: Random,
    pub(super) compute: ComputePool,
    pub(super) net: Arc<dyn Net>,
    /// Tasks of everything before the spool.
    pub(super) tasks: TaskGroup,
    /// Tasks of the spool and the delivery, which end last.
    pub(super) spool_tasks: TaskGroup,
}

impl AgentDeps {
    /// Returns those of this process.
    pub(super) fn of_process() -> Result<Self, Status> {
        let clock = Clock::system();
        let compute = ComputePool::with_threads(COMPUTE_THREADS, MAX_WAITING_JOBS);
        Ok(Self {
            random: Random::system(),
            compute: compute.map_err(|error| Status::from_error(&error))?,
            net: Arc::new(LocalNet::new(clock.clone())),
            tasks: TaskGroup::new(clock.clone(), MAX_TASKS),
            spool_tasks: TaskGroup::new(clock.clone(), MAX_SPOOL_TASKS),
            clock,
        })
    }

    /// Returns the environment of the spools.
    pub(super) fn spool_runtime(&self) -> SpoolRuntime {
        SpoolRuntime {
            clock: self.clock.clone(),
            random: self.random.split(),
            compute: self.compute.clone(),
            tasks: self.spool_tasks.clone(),
        }
    }

    pub(super) fn spawn<F>(&self, name: &str, future: F) -> Result<TaskHandle<()>, Status>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let spawned = self.tasks.spawn(name, future);
        spawned.map_err(|error| Status::new(ErrorCode::Exhausted, error.to_string()))
    }
}
