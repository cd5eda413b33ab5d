//! Whole clusters in one process, with faults, and an oracle that knows every profile that was acknowledged: it sends,
//! repeats and asks, and compares to the unit.

#![allow(clippy::unwrap_used)]

mod bad_input;
mod commands;
mod hedges;
mod leaving;
mod lost;
mod oracle;
mod scenarios;
mod tables;
