//! Errors of the HTTP client.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use athanor_chassis::ByteSize;
use athanor_chassis::time::clock::TimeoutElapsed;
use athanor_chassis::units::format_duration;

/// Failed request. No message contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    /// A part of the request is not valid.
    #[error("request is not valid: {reason}")]
    InvalidRequest {
        /// Reason.
        reason: String,
    },
    /// A file with a secret is not readable.
    #[error("failed to read secret file {}: {source}", path.display())]
    SecretFile {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Certificates or keys of the settings are not valid.
    #[error("TLS settings are not valid: {reason}")]
    TlsSettings {
        /// Reason.
        reason: String,
    },
    /// The request has no address to connect to.
    #[error("{authority} has no address to connect to")]
    NoAddress {
        /// Host and port of the request.
        authority: String,
    },
    /// The connection failed.
    #[error("failed to connect to {remote}: {source}")]
    Connect {
        /// Address or socket.
        remote: String,
        /// Cause.
        source: io::Error,
    },
    /// The TLS handshake failed.
    #[error("failed to negotiate TLS with {remote}: {source}")]
    TlsHandshake {
        /// Address of the server.
        remote: String,
        /// Cause.
        source: io::Error,
    },
    /// The server broke the protocol or closed the connection.
    #[error("failed to read the response: {reason}")]
    Protocol {
        /// Reason.
        reason: String,
    },
    /// The response took too long.
    #[error("response is incomplete: {0}")]
    Timeout(TimeoutElapsed),
    /// The body arrived too slowly.
    #[error(
        "response body is too slow: {received} bytes within {}, at least {minimum} are required",
        format_duration(*window)
    )]
    SlowBody {
        /// Bytes that arrived in the window.
        received: u64,
        /// Bytes that must arrive in each window.
        minimum: u64,
        /// Length of the window.
        window: Duration,
    },
    /// The receiver of the body took no more of it.
    #[error("{reason}")]
    BodyRejected {
        /// Reason of the receiver.
        reason: String,
    },
    /// The body is too large as it is sent.
    #[error("response body is over the limit of {}", ByteSize::bytes(*limit))]
    BodyTooLarge {
        /// Limit in bytes.
        limit: u64,
    },
    /// The body is damaged, or too large after decompression.
    #[error("failed to decompress the response body with a limit of {}: {reason}", ByteSize::bytes(*limit))]
    Decompression {
        /// Limit in bytes.
        limit: u64,
        /// Reason.
        reason: String,
    },
    /// The content encoding is not supported.
    #[error(
        "content encoding {encoding:?} of the response is not supported; send the body plain, with gzip or zstd"
    )]
    UnknownEncoding {
        /// Encoding.
        encoding: String,
    },
}

impl HttpClientError {
    pub(super) fn invalid_request(error: impl Error) -> Self {
        Self::InvalidRequest { reason: error.to_string() }
    }

    pub(super) fn protocol(error: &hyper::Error) -> Self {
        let reason = match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        Self::Protocol { reason }
    }
}
