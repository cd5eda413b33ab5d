//! Several nodes in one process: on a network in memory whose time is paused, and on real sockets.
#![expect(clippy::unwrap_used, reason = "a test")]

mod gossip;
mod harness;
mod services;
mod strangers;
mod talk;
mod tls;
