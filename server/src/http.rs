//! One port for everything: Connect, gRPC, gRPC-Web and plain HTTP, over HTTP/1.1 and cleartext HTTP/2.
//!
//! ```text
//!  listener ─► connection ─► router ─┬─► unary  (encoding ─► caller ─► body ─► message ─► method ─► answer)
//!                                    ├─► plain  (ingest, render, pages, operations)
//!                                    └─► debuginfo, parca  (files that are larger than memory; the words of another server)
//! ```
//!
//! A request is refused as early as it can be: by its path, method and content type before its headers are
//! believed, by who asks before its body is read, by its size while it is read.

mod body;
mod caller;
mod connection;
mod debuginfo;
mod diagnostics;
mod door;
mod encoding;
mod escaping;
mod guard;
mod health;
mod json;
mod listener;
mod members;
mod opening;
mod operations;
mod otlp;
mod pace;
mod pages;
mod parca;
mod partial;
mod plain;
mod recorded;
mod routes;
mod seldom;
mod shards;
mod starting;
mod throttle;
mod unary;
mod web;
mod weight;

pub use connection::Requests;
pub use door::Door;
pub use encoding::json_error;
pub use guard::{Guard, token};
pub use listener::{Lasting, Listener, ListenerError, patient};
pub use routes::{Services, otlp_router, router};
pub use seldom::Seldom;
pub use shards::listed_shards;
pub use starting::starting;
pub use web::WebPolicy;
