//! The catalogue of several voters, on nodes that call each other over a network in memory whose time is paused.
#![expect(clippy::unwrap_used, reason = "a test")]

mod asking;
mod careless;
mod clocks;
mod compaction;
mod founding;
mod harness;
mod rebuilding;
mod upkeep;
mod voting;
mod watching;
