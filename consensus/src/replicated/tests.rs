//! Groups in one thread, on disks that lose power and a network that is cut.

mod alone;
mod cluster;
mod lead;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};

use athanor_chassis::disk::MemoryDisk;

use super::*;
use crate::log::{CommitMode, LogConfig, LogIdentity, LogRecord, LogRecoveryReport};

/// Keeps every entry with its index. It is willing to be cut where it was told to.
#[derive(Default)]
struct Numbers {
    kept: Vec<(u64, u64)>,
    cut: u64,
    /// Whether it knows no odd numbers, and whether one came.
    knows_no_odd: AtomicBool,
    odd: Option<u64>,
}

const CUT: u64 = u64::MAX;
/// What logs keep free on disks that have a bound.
const RESERVE: ByteSize = ByteSize::kib(256);

impl StateMachine for Numbers {
    type Answer = usize;

    fn apply(&mut self, index: u64, entry: &[u8]) -> usize {
        let number = u64::from_le_bytes(entry[..8].try_into().unwrap());
        if self.knows_no_odd.load(Ordering::Relaxed) && number % 2 == 1 {
            self.odd = Some(number);
        } else if number == CUT {
            self.cut = index;
        } else {
            self.kept.push((index, number));
        }
        self.kept.len()
    }

    fn apply_failure(&self) -> Option<String> {
        self.odd.map(|number| format!("{number} is odd"))
    }

    fn snapshot(&self) -> StateSnapshot {
        let held = self.kept.iter().filter(|(index, _)| *index <= self.cut);
        let bytes = held.flat_map(|(index, number)| [*index, *number]).flat_map(u64::to_le_bytes).collect();
        StateSnapshot::from_bytes(self.cut, bytes)
    }

    fn restore(&mut self, RestoreContext { index, bytes, .. }: RestoreContext<'_>) -> Result<(), String> {
        if !bytes.len().is_multiple_of(16) {
            return Err(format!("{} bytes", bytes.len()));
        }
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        self.kept = bytes.chunks(16).map(|pair| (word(&pair[..8]), word(&pair[8..]))).collect();
        self.cut = index;
        Ok(())
    }

    fn reset_to(&mut self, index: u64) {
        *self = Self { cut: index, ..Self::default() };
    }
}

fn entry(number: u64) -> Bytes {
    let padding = vec![0; number as usize % 900];
    [&number.to_le_bytes()[..], &padding].concat().into()
}

fn open_log(disk: &MemoryDisk, node: u64) -> Result<(Log, LogRecoveryReport), crate::log::LogOpenError> {
    let config = LogConfig {
        segment: ByteSize::kib(64),
        smallest: ByteSize::kib(16),
        commit: ByteSize::kib(16),
        spares: 1,
        reserve: RESERVE,
        waiting: ByteSize::mib(1),
        recent: ByteSize::kib(8),
    };
    let identity = LogIdentity { cluster: 7, node };
    Log::open(Arc::new(disk.clone()), &Random::from_seed(node), identity, &config, CommitMode::Inline)
}

fn deps(
    log: Log,
    disk: &MemoryDisk,
    node: u64,
    seed: u64,
    network: Option<Arc<dyn Network>>,
) -> RaftGroupDeps {
    RaftGroupDeps {
        log,
        disk: Arc::new(disk.clone()),
        compute: ComputePool::inline(),
        random: Random::from_seed(seed),
        network,
        node,
        timing: RaftTiming::default(),
    }
}

/// Runs a world whose time is only waited for; with it ends everything that was started in it.
fn simulate<R>(world: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(world)
}
