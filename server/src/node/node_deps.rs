//! Dependencies of a node on its machine.

use std::num::NonZeroUsize;
use std::sync::Arc;

use athanor_chassis::net::LocalNet;
use athanor_chassis::requests::activity_tracker::PreviousRun;
use athanor_chassis::{Clock, ComputePool, Disk, Net, Random};
use athanor_cluster::gossip::{Transport, UdpTransport};
use athanor_compactor::{LocalScratch, ScratchSpace};
use athanor_consensus::log::CommitMode;
use athanor_storage::{Store, StoreDeps};

use crate::config::ServerConfig;
use crate::node::data_dir::{self, DataDir};
use crate::node::error::StartError;

/// Maximum jobs that wait for a compute thread.
const MAX_QUEUED_JOBS: usize = 4096;

/// Dependencies of a node on its machine.
#[derive(Clone)]
pub struct NodeDeps {
    /// Clock for wall time and timeouts.
    pub clock: Clock,
    /// Source of all random numbers.
    pub random: Random,
    /// Threads for computations.
    pub compute: ComputePool,
    /// Folder of the log.
    pub log: Arc<dyn Disk>,
    /// Folder of snapshots and of the node's identity.
    pub state: Arc<dyn Disk>,
    /// Folder of the disk cache of block data. Without it, the cache is in memory only.
    pub cache: Option<Arc<dyn Disk>>,
    /// Space for inputs and outputs of compaction jobs.
    pub scratch: Arc<dyn ScratchSpace>,
    /// Folder of running queries. Without it, queries that crashed the previous process are unknown.
    pub activity: Option<PreviousRun>,
    /// Thread or task that commits pending log entries.
    pub pump: CommitMode,
    /// Bucket of the blocks.
    pub store: Store,
    /// Network for connections in both directions.
    pub net: Arc<dyn Net>,
    /// Transport of gossip.
    pub gossip: Arc<dyn Transport>,
}

impl NodeDeps {
    /// Opens the dependencies on the local machine.
    pub fn local(config: &ServerConfig) -> Result<Self, StartError> {
        let clock = Clock::system();
        let random = Random::system();
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let DataDir { wal, state, cache, activity } = data_dir::open(&config.data_dir)?;
        let store =
            Store::open(&config.bucket(), StoreDeps { clock: clock.clone(), random: random.split() })?;
        Ok(Self {
            compute: ComputePool::with_threads(threads, MAX_QUEUED_JOBS)?,
            log: Arc::new(wal),
            state: Arc::new(state),
            cache: cache.map(|disk| Arc::new(disk) as _),
            scratch: Arc::new(LocalScratch::new(config.data_dir.join(data_dir::SCRATCH_FOLDER))),
            activity,
            pump: CommitMode::Thread,
            store,
            net: Arc::new(LocalNet::new(clock.clone())),
            gossip: Arc::new(UdpTransport),
            clock,
            random,
        })
    }
}
