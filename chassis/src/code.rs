//! Table of all failure kinds and their representation at each edge of the process.
//!
//! Every operation has its own error enum, declared where it is raised. At an edge (gRPC, HTTP, a retry loop,
//! the log, the end of a process) an error is reduced to an [`ErrorCode`]. Only this file defines the meaning
//! of a code at an edge.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::Level;

/// Exit code of a process with an invalid command line or configuration.
pub const EXIT_USAGE: u8 = 64;

/// Kind of a failure, as far as a caller can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request itself is invalid, so a retry cannot succeed.
    Invalid,
    /// The request carries no valid credentials.
    Unauthenticated,
    /// The caller is authenticated but not allowed to do this.
    PermissionDenied,
    /// The requested thing does not exist.
    NotFound,
    /// The thing exists already, or changed since the caller read it.
    Conflict,
    /// The thing is not in the required state, so another operation must come first.
    Precondition,
    /// An item exceeds a size limit.
    TooLarge,
    /// A rate, a quota or a queue is exhausted for now.
    Exhausted,
    /// Another node leads, so the caller must retry there.
    NotLeader,
    /// The service is temporarily unavailable.
    Unavailable,
    /// The operation timed out.
    Deadline,
    /// The caller cancelled the request.
    Cancelled,
    /// This server does not implement the operation.
    Unimplemented,
    /// A bug in this program or a fault of its environment, which an operator must look at.
    Internal,
    /// Stored bytes are lost or damaged.
    DataLoss,
}

/// Representation of one [`ErrorCode`] at each edge.
struct ErrorCodeMapping {
    name: &'static str,
    http: u16,
    grpc: i32,
    connect: &'static str,
    retryable: bool,
    level: Level,
    exit: u8,
}

/// Error that maps to an [`ErrorCode`].
pub trait ErrorCodeExt {
    /// Returns the kind of this error.
    fn code(&self) -> ErrorCode;

    /// Returns whether a computation panicked. The same computation may panic on any node.
    fn is_panic(&self) -> bool {
        false
    }
}

/// Error at an edge: a code, a message, and optionally the time to wait before a retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// Kind of the failure.
    pub code: ErrorCode,
    /// Message for a person: the cause, the limit, the value seen and the way out.
    pub message: String,
    /// Time that the caller should wait before a retry, if known.
    pub retry_after: Option<Duration>,
    /// Name of the limit or rule, by which rejections are counted.
    pub reason: Option<&'static str>,
    /// True if a computation panicked, on this node or another one.
    pub panicked: bool,
}

// === impl ErrorCode ===

impl ErrorCode {
    /// All codes, in the order of the table.
    pub const ALL: [Self; 15] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::NotFound,
        Self::Conflict,
        Self::Precondition,
        Self::TooLarge,
        Self::Exhausted,
        Self::NotLeader,
        Self::Unavailable,
        Self::Deadline,
        Self::Cancelled,
        Self::Unimplemented,
        Self::Internal,
        Self::DataLoss,
    ];

    /// Mapping table. Oversized items share gRPC's `RESOURCE_EXHAUSTED` with full queues, as gRPC's own
    /// message limit does. `OUT_OF_RANGE` would make an OpenTelemetry client retry the same item.
    #[rustfmt::skip]
    const fn mapping(self) -> ErrorCodeMapping {
        let (name, http, grpc, connect, retryable, level, exit) = match self {
            Self::Invalid          => ("invalid",           400,  3, "invalid_argument",    false, Level::DEBUG, 65),
            Self::Unauthenticated  => ("unauthenticated",   401, 16, "unauthenticated",     false, Level::DEBUG, 77),
            Self::PermissionDenied => ("permission_denied", 403,  7, "permission_denied",   false, Level::DEBUG, 77),
            Self::NotFound         => ("not_found",         404,  5, "not_found",           false, Level::DEBUG, 66),
            Self::Conflict         => ("conflict",          409,  6, "already_exists",      false, Level::DEBUG, 73),
            Self::Precondition     => ("precondition",      400,  9, "failed_precondition", false, Level::DEBUG, 65),
            Self::TooLarge         => ("too_large",         413,  8, "resource_exhausted",  false, Level::DEBUG, 65),
            Self::Exhausted        => ("exhausted",         429,  8, "resource_exhausted",  true,  Level::INFO,  75),
            Self::NotLeader        => ("not_leader",        503,  9, "failed_precondition", true,  Level::DEBUG, 75),
            Self::Unavailable      => ("unavailable",       503, 14, "unavailable",         true,  Level::WARN,  69),
            Self::Deadline         => ("deadline",          504,  4, "deadline_exceeded",   true,  Level::WARN,  75),
            Self::Cancelled        => ("cancelled",         499,  1, "canceled",            false, Level::DEBUG, 75),
            Self::Unimplemented    => ("unimplemented",     501, 12, "unimplemented",       false, Level::DEBUG, 69),
            Self::Internal         => ("internal",          500, 13, "internal",            false, Level::ERROR, 70),
            Self::DataLoss         => ("data_loss",         500, 15, "data_loss",           false, Level::ERROR, 74),
        };
        ErrorCodeMapping { name, http, grpc, connect, retryable, level, exit }
    }

    /// Name of this code between Athanor processes and in metrics.
    pub const fn name(self) -> &'static str {
        self.mapping().name
    }

    /// HTTP status of this code.
    pub const fn http_status(self) -> u16 {
        self.mapping().http
    }

    /// Number of the gRPC status.
    pub const fn grpc_status(self) -> i32 {
        self.mapping().grpc
    }

    /// Name of the code in a Connect error.
    pub const fn connect_code(self) -> &'static str {
        self.mapping().connect
    }

    /// Returns whether the same request may succeed later, unchanged.
    pub const fn is_retryable(self) -> bool {
        self.mapping().retryable
    }

    /// Level at which the error is logged where it is handled.
    pub const fn log_level(self) -> Level {
        self.mapping().level
    }

    /// Exit code of a command that ends with this code, after `sysexits.h`.
    pub const fn exit_code(self) -> u8 {
        self.mapping().exit
    }

    /// Parses the name that [`ErrorCode::name`] returns.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// Maps a gRPC status of a foreign server. Two codes share number 8, which maps to
    /// [`ErrorCode::Exhausted`]. Two share number 9, which maps to [`ErrorCode::NotLeader`].
    pub fn from_grpc(number: i32) -> Self {
        match number {
            8 => Self::Exhausted,
            9 => Self::NotLeader,
            10 => Self::Conflict,
            11 => Self::Invalid,
            _ => Self::ALL.into_iter().find(|code| code.grpc_status() == number).unwrap_or(Self::Internal),
        }
    }

    /// Maps an HTTP status of a foreign server.
    pub const fn from_http(status: u16) -> Self {
        match status {
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 | 410 => Self::NotFound,
            409 | 412 => Self::Conflict,
            413 => Self::TooLarge,
            429 => Self::Exhausted,
            408 | 504 => Self::Deadline,
            499 => Self::Cancelled,
            501 => Self::Unimplemented,
            502 | 503 => Self::Unavailable,
            400..=498 => Self::Invalid,
            _ => Self::Internal,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl Status ===

impl Status {
    /// Creates a status from a code and a message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None, reason: None, panicked: false }
    }

    /// Converts an error and its chain of causes to a status.
    pub fn from_error<E: ErrorCodeExt + std::error::Error>(error: &E) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = inner.source();
        }
        Self { panicked: error.is_panic(), ..Self::new(error.code(), message) }
    }

    /// Sets the time that the caller should wait before a retry.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Sets the limit or rule by which the rejection is counted.
    #[must_use]
    pub fn with_reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Reason by which a rejection is counted: the rule if one was named, else the code.
    pub const fn metric_reason(&self) -> &'static str {
        match self.reason {
            Some(reason) => reason,
            None => self.code.name(),
        }
    }
}

impl ErrorCodeExt for Status {
    fn code(&self) -> ErrorCode {
        self.code
    }

    fn is_panic(&self) -> bool {
        self.panicked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("profile not stored")]
    struct Outer(#[source] std::io::Error);

    impl ErrorCodeExt for Outer {
        fn code(&self) -> ErrorCode {
            ErrorCode::Unavailable
        }
    }

    #[test]
    fn every_code_has_one_row_and_comes_back_from_its_name() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_name(code.name()), Some(code));
            assert_eq!(serde_json::to_value(code).unwrap(), code.name(), "serde and the table agree");
            assert!(
                (400..600).contains(&code.http_status())
                    && !code.connect_code().is_empty()
                    && code.exit_code() >= EXIT_USAGE
            );
            assert_eq!(code.to_string(), code.name());
        }
        assert_eq!(ErrorCode::from_name("nonsense"), None);
    }

    #[test]
    fn foreign_numbers_keep_their_meaning() {
        for code in ErrorCode::ALL
            .into_iter()
            .filter(|code| ![ErrorCode::TooLarge, ErrorCode::Precondition].contains(code))
        {
            assert_eq!(ErrorCode::from_grpc(code.grpc_status()), code);
        }
        assert_eq!(ErrorCode::from_grpc(99), ErrorCode::Internal);
        assert_eq!(ErrorCode::from_http(503), ErrorCode::Unavailable);
        assert_eq!(ErrorCode::from_http(422), ErrorCode::Invalid);
        for code in ErrorCode::ALL {
            let read = ErrorCode::from_http(code.http_status());
            assert_eq!(
                read.is_retryable(),
                code.is_retryable(),
                "{code} must stay retryable or not over HTTP"
            );
        }
    }

    #[test]
    fn only_what_a_person_must_see_is_an_error() {
        let loud: Vec<_> =
            ErrorCode::ALL.into_iter().filter(|code| code.log_level() == Level::ERROR).collect();
        assert_eq!(loud, [ErrorCode::Internal, ErrorCode::DataLoss]);
    }

    #[test]
    fn a_status_carries_the_whole_chain() {
        let status = Status::from_error(&Outer(std::io::Error::other("disk is gone")))
            .with_retry_after(Duration::from_secs(3));
        assert_eq!(status.to_string(), "profile not stored: disk is gone");
        assert_eq!(
            (status.code(), status.retry_after),
            (ErrorCode::Unavailable, Some(Duration::from_secs(3)))
        );
    }
}
