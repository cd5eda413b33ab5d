//! Errors of discovery.

use std::io;

use crate::address_policy::AddressError;
use crate::http_client::HttpClientError;

use super::target_list::TargetListError;

/// Failed refresh of a source. The targets that were found before stay in force.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A file is not readable.
    #[error("failed to read file {path}: {source}")]
    File {
        /// Path of the file.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// A list is not valid.
    #[error("{origin}: {source}")]
    List {
        /// File or URL of the list.
        origin: String,
        /// Cause.
        source: TargetListError,
    },
    /// A request failed.
    #[error("failed to request {url}: {source}")]
    Request {
        /// URL, without a password.
        url: String,
        /// Cause.
        source: HttpClientError,
    },
    /// The host of a URL is not resolved.
    #[error("failed to request {url}: {source}")]
    Address {
        /// URL, without a password.
        url: String,
        /// Cause.
        source: AddressError,
    },
    /// A response has an unexpected status.
    #[error("{url} returned HTTP status {status}, 200 is required; redirects are not followed")]
    Status {
        /// URL, without a password.
        url: String,
        /// Status.
        status: http::StatusCode,
    },
    /// A response has an unexpected content type.
    #[error("{url} returned the content type {content_type:?}, application/json is required")]
    ContentType {
        /// URL, without a password.
        url: String,
        /// Content type.
        content_type: String,
    },
    /// A response is not what the API promises.
    #[error("failed to decode the response of {url}: {reason}")]
    Response {
        /// URL, without a password.
        url: String,
        /// Reason.
        reason: String,
    },
    /// A lookup of DNS records failed.
    #[error("failed to look up {record_type} records of {name}: {reason}")]
    Dns {
        /// Name that was looked up.
        name: String,
        /// Type of the records.
        record_type: String,
        /// Reason.
        reason: String,
    },
    /// The settings are not valid.
    #[error("{reason}")]
    Settings {
        /// Value seen, and the way out.
        reason: String,
    },
}
