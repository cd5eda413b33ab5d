//! Routes of the HTTP server. The crate `http-server` accepts connections and reads calls in all protocols.
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
mod query_caller;
mod resolution_header;
mod routes;

pub use admin::admin_auth::{AdminAuth, read_token};
pub use admin::shards::list_shards;
pub use admin::startup::startup_router;
pub use api::web_policy::WebPolicy;
pub use routes::{HttpServices, otlp_router, router};
