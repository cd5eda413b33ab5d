//! Whole clusters in one process, with faults, and an oracle that knows every profile that was acknowledged: it sends,
//! repeats and asks, and compares to the unit.

#![allow(clippy::unwrap_used)]

mod hedges;
mod leaving;
mod oracle;
mod scenarios;
