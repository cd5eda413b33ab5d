//! Tests of the planner on simulated blocks.

mod block_simulator;
mod fairness;
mod late_blocks;
mod limits;
mod random_histories;
mod steady_flushes;
mod tiers;

pub use block_simulator::{BlockSimulator, NewRow, minutes, tenant};

use athanor_chassis::Timestamp;

/// Start of the simulations, at a boundary of all windows.
pub const START_TIME: Timestamp = Timestamp::from_seconds(20_000 * 86_400);

pub fn row(name: &str, time: Timestamp, bytes: u64) -> NewRow {
    NewRow { tenant: tenant(name), time: time.nanos(), bytes }
}
