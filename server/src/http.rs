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

pub(crate) mod admin;
pub(crate) mod api;
mod body;
pub(crate) mod connection;
mod decoded_size;
mod encoding;
mod json;
mod pace;
mod partial_header;
mod request_budget;
mod result_headers;
mod routes;
mod tenant_header;
mod unary;
pub(crate) mod url_escaping;

pub use crate::listen::listener::{ConnectionDeps, HttpListener, ListenerError, accept_with_retry};
pub use crate::telemetry::log_throttle::LogThrottle;
pub use admin::admin_auth::{AdminAuth, read_token};
pub use admin::shards::list_shards;
pub use admin::startup::startup_router;
pub use api::web_policy::WebPolicy;
pub use connection::RequestLimiter;
pub use encoding::json_error;
pub use request_budget::RequestBudget;
pub use routes::{HttpServices, otlp_router, router};
