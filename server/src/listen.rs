//! Acceptance of client connections and their protocol detection.
//!
//! - `listener`: accepts connections, serves HTTP/1.1 or HTTP/2, and shuts down gracefully.
//! - `preface_timeout`: closes a connection that does not identify its protocol in time.

pub(crate) mod listener;
pub(crate) mod preface_timeout;
