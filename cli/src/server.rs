//! Commands that run or administer a server.
//!
//! - `serve`: runs a server, and prints its effective settings.
//! - `admin_commands`: commands to a running server on the same folder.

pub(crate) mod admin_commands;
pub(crate) mod serve;
