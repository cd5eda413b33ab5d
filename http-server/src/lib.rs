//! HTTP server without routes: accepts connections, reads calls within limits, and encodes their responses.
//!
//! All protocols share one port: Connect, gRPC, gRPC-Web and plain HTTP, over HTTP/1.1 and cleartext HTTP/2.
//!
//! ```text
//!  HttpListener ─► ConnectionService ─► router ─┬─► handle_call ─► method
//!                                               └─► RequestBudget::read ─► plain handler
//! ```
//!
//! [`self_profile`] is the one route that all programs share: a CPU profile of the process.
//!
//! The user of this crate provides the router and the methods. [`unary::handle_call`] reads the message of a
//! call, and [`RequestBudget`] bounds the memory of all bodies together. [`unary::RequestIdentity`] lets a
//! method's caller take part in the stages of a request.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod body;
pub mod connection;
pub mod decoded_size;
pub mod encoding;
pub mod json;
pub mod listen;
pub mod pace;
pub mod partial_header;
mod request_budget;
pub mod result_headers;
pub mod self_profile;
pub mod tenant_header;
pub mod unary;

pub use connection::{PeerAddress, RequestLimiter};
pub use listen::{ConnectionDeps, HttpListener, ListenerError, LogThrottle, accept_with_retry};
pub use request_budget::RequestBudget;
