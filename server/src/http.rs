//! HTTP server, with all protocols on one port: Connect, gRPC, gRPC-Web and plain HTTP, over HTTP/1.1 and
//! cleartext HTTP/2.
//!
//! ```text
//!  listener ─► connection ─► router ─┬─► unary  (encoding ─► caller ─► body ─► method ─► response)
//!                                    ├─► plain  (ingest, render, pages, operations)
//!                                    └─► debuginfo, parca  (files larger than memory, and the API of Parca)
//! ```
//!
//! Each request is rejected as early as possible, in this order:
//!
//! - By its path, method and content type, before other headers are read.
//! - By its caller, before its body is read.
//! - By its size, while it is read.

mod admin_auth;
mod body;
mod connection;
mod debuginfo;
mod decoded_size;
mod diagnostics;
mod diagnostics_header;
mod encoding;
mod grpc_health;
mod json;
mod legacy_api;
mod listener;
mod log_throttle;
mod members;
mod operator_pages;
mod otlp;
mod pace;
mod parca;
mod partial_header;
mod preface_timeout;
mod request_budget;
mod routes;
mod shards;
mod startup;
mod tenant_header;
mod token_throttle;
mod ui_pages;
mod unary;
mod url_escaping;
mod web_policy;

pub use admin_auth::{AdminAuth, read_token};
pub use connection::RequestLimiter;
pub use encoding::json_error;
pub use listener::{ConnectionDeps, HttpListener, ListenerError, accept_with_retry};
pub use log_throttle::LogThrottle;
pub use request_budget::RequestBudget;
pub use routes::{HttpServices, otlp_router, router};
pub use shards::list_shards;
pub use startup::startup_router;
pub use web_policy::WebPolicy;
