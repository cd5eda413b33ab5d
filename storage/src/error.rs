//! Errors of calls to the bucket.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ErrorCode, ErrorCodeExt};

/// Reason why a call to the bucket failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The name is taken by an object with other bytes.
    #[error("cannot create {key}: the name is taken")]
    Exists {
        /// Key that is taken.
        key: String,
    },
    /// There is no such object.
    #[error("cannot {op} {key}: no such object")]
    NotFound {
        /// Operation of the call.
        op: &'static str,
        /// Key of the missing object.
        key: String,
    },
    /// The bucket itself does not exist.
    #[error("cannot {op} {key}: {bucket} does not exist; create it, or correct {setting}")]
    NoBucket {
        /// Operation of the call.
        op: &'static str,
        /// Key of the call.
        key: String,
        /// Name of the bucket.
        bucket: Arc<str>,
        /// Setting that names the bucket.
        setting: &'static str,
    },
    /// The bucket rejected the call with an error that a retry cannot change.
    #[error("cannot {op} {key}: refused")]
    Refused {
        /// Operation of the call.
        op: &'static str,
        /// Key of the call.
        key: String,
        /// Code for the caller.
        code: ErrorCode,
        /// Error that the bucket returned.
        source: Box<object_store::Error>,
    },
    /// Every attempt failed; the last one returned an error.
    #[error("cannot {op} {key}: gave up after {attempts} attempts")]
    GaveUp {
        /// Operation of the call.
        op: &'static str,
        /// Key of the call.
        key: String,
        /// Number of attempts made.
        attempts: u32,
        /// Error of the last attempt.
        source: Box<object_store::Error>,
    },
    /// Every attempt failed; the last one timed out.
    #[error("cannot {op} {key}: timed out after {attempts} attempts")]
    Deadline {
        /// Operation of the call.
        op: &'static str,
        /// Key of the call.
        key: String,
        /// Number of attempts made.
        attempts: u32,
    },
    /// The queue of waiting calls is full.
    #[error(
        "cannot {op} {key}: {under_way} calls are in flight and {waiting} are queued, the limits; raise storage.max_concurrent or storage.max_queued"
    )]
    Busy {
        /// Operation of the call.
        op: &'static str,
        /// Key of the call.
        key: String,
        /// Limit of concurrent calls.
        under_way: u32,
        /// Limit of waiting calls.
        waiting: u32,
    },
    /// The call timed out while it waited for a permit.
    #[error(
        "cannot {op} {key}: not started within {waited:?}, {under_way} other calls are in flight, the limit; raise storage.max_concurrent"
    )]
    NoRoom {
        /// Operation of the call.
        op: &'static str,
        /// Key of the call.
        key: String,
        /// Limit of concurrent calls.
        under_way: u32,
        /// Time that the call waited.
        waited: Duration,
    },
    /// The configuration names no bucket, several, or one that cannot be opened.
    #[error("storage configuration: {reason}")]
    Config {
        /// Problem of the configuration and its correction.
        reason: String,
    },
}

/// Reason why a bucket cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The bucket does not exist.
    #[error("{bucket} does not exist; create it, or correct {setting}")]
    Missing {
        /// Name of the bucket.
        bucket: Arc<str>,
        /// Setting that names the bucket.
        setting: &'static str,
    },
    /// The bucket denies access to this process.
    #[error(
        "{bucket} denies access: {why}; correct the keys below `storage`, which must be allowed to list, \
         read, write and delete objects"
    )]
    Denied {
        /// Name of the bucket.
        bucket: Arc<str>,
        /// Error that the bucket returned.
        why: String,
    },
    /// The bucket is silent or returns an error that may be temporary.
    #[error("{bucket} does not respond: {why}; check its address below `storage`, and the network")]
    Unreachable {
        /// Name of the bucket.
        bucket: Arc<str>,
        /// Error or timeout of the probe.
        why: String,
    },
}

impl ErrorCodeExt for ProbeError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Missing { .. } => ErrorCode::NotFound,
            Self::Denied { .. } => ErrorCode::PermissionDenied,
            Self::Unreachable { .. } => ErrorCode::Unavailable,
        }
    }
}

impl ErrorCodeExt for StoreError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Exists { .. } => ErrorCode::Conflict,
            Self::NotFound { .. } | Self::NoBucket { .. } => ErrorCode::NotFound,
            Self::Refused { code, .. } => *code,
            Self::GaveUp { .. } => ErrorCode::Unavailable,
            Self::Busy { .. } => ErrorCode::Exhausted,
            Self::Deadline { .. } | Self::NoRoom { .. } => ErrorCode::Deadline,
            Self::Config { .. } => ErrorCode::Invalid,
        }
    }
}
