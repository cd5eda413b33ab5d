//! Whole clusters in one process: real servers on ports of their own, with faults, and an oracle that knows every
//! profile that was acknowledged.
//!
//! ```text
//!  Cluster ─► Server (runtime, disks in memory) ─ FaultNet ─ Server …      one bucket
//!     ▲
//!  Oracle: sends, repeats, asks; compares to the unit
//! ```
//! Nothing waits for a while and hopes: whatever is waited for is a state.

#![allow(clippy::unwrap_used)]

mod faults;
mod oracle;
mod scenarios;
mod town;
