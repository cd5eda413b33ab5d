//! Commands to a server over its public port.
//!
//! - `connection`: client of the server that the arguments name.
//! - `push`: uploads profile files.
//! - `query`: requests data and shows it like a file.

pub(crate) mod connection;
pub(crate) mod push;
pub(crate) mod query;
