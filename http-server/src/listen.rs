//! Acceptance of client connections and their protocol detection.
//!
//! - `listener`: accepts connections, serves HTTP/1.1 or HTTP/2, and shuts down gracefully.
//! - `preface_timeout`: closes a connection that does not identify its protocol in time.
//! - `url_escaping`: escapes URLs that the HTTP library rejects.
//! - `log_throttle`: throttle for frequent log messages.

mod listener;
mod log_throttle;
mod preface_timeout;
pub mod url_escaping;

pub use listener::{ConnectionDeps, HttpListener, ListenerError, accept_with_retry};
pub use log_throttle::LogThrottle;
