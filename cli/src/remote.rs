//! Commands to a server over its public port.
//!
//! - `api_client`: HTTP client with retries.
//! - `push`: uploads profile files.
//! - `query`: requests data and shows it like a file.

pub(crate) mod api_client;
pub(crate) mod push;
pub(crate) mod query;
