//! HTTP client of a profiling server, for all programs that send it requests.
//!
//! ```text
//!  items ─► batches ─► BatchParts ─► ApiClient::send_with_retry ─► server
//!                          ▲ rejected: halve until one item is left │
//!                          └────────────────────────────────────────┘
//! ```
//!
//! * [`ApiClient`]: calls of one server, with tenant, credentials and TLS from [`ClientSettings`].
//! * [`RetryPolicy`]: delays between the attempts of one request. [`is_temporary`] and [`is_rejection`] decide
//!   whether a retry may succeed, and whether the server rejected the content of a request.
//! * [`batches`], [`BatchParts`]: groups of items for one request, and their halves after a rejection.
//!
//! A retry repeats a request unchanged. The server dedups profiles, so it counts none of them a second time.

mod api_client;
mod batch;
mod response_error;
mod retry;
mod settings;

pub use api_client::{ApiClient, ApiResponse, REDIRECT_REASON, encode_gzip};
pub use batch::{Batch, BatchLimits, BatchParts, batches};
pub use retry::{RetryPolicy, is_rejection, is_temporary};
pub use settings::{ClientSettings, SettingNames, TlsSettings};

/// Name of the method that stores profiles. The request is a `push.v1.PushRequest`.
pub const PUSH_METHOD: &str = "push.v1.PusherService/Push";
