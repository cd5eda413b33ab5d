//! What can go wrong with a call to the bucket.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ErrorCode, ErrorCodeExt};

/// Why a call to the bucket failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The name is taken, by other bytes than were to be written.
    #[error("cannot create {key}: the name is taken")]
    Exists {
        /// The key.
        key: String,
    },
    /// There is no such object.
    #[error("cannot {op} {key}: no such object")]
    NotFound {
        /// What was asked.
        op: &'static str,
        /// The key.
        key: String,
    },
    /// The bucket itself does not exist.
    #[error("cannot {op} {key}: {bucket} does not exist; create it, or correct {setting}")]
    NoBucket {
        /// What was asked.
        op: &'static str,
        /// The key.
        key: String,
        /// The bucket.
        bucket: Arc<str>,
        /// The setting that names it.
        setting: &'static str,
    },
    /// The bucket refused in a way that trying again cannot change.
    #[error("cannot {op} {key}: refused")]
    Refused {
        /// What was asked.
        op: &'static str,
        /// The key.
        key: String,
        /// What is to be made of it.
        code: ErrorCode,
        /// What the bucket said.
        source: Box<object_store::Error>,
    },
    /// Every attempt failed, the last one with an error.
    #[error("cannot {op} {key}: gave up after {attempts} attempts")]
    GaveUp {
        /// What was asked.
        op: &'static str,
        /// The key.
        key: String,
        /// How often it was tried.
        attempts: u32,
        /// What the last attempt met.
        source: Box<object_store::Error>,
    },
    /// Every attempt failed, the last one for want of an answer.
    #[error("cannot {op} {key}: no answer in time, after {attempts} attempts")]
    Deadline {
        /// What was asked.
        op: &'static str,
        /// The key.
        key: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// Too many calls wait already.
    #[error(
        "cannot {op} {key}: {under_way} calls are under way and {waiting} wait, the limits; raise max_concurrent or max_waiting of the storage"
    )]
    Busy {
        /// What was asked.
        op: &'static str,
        /// The key.
        key: String,
        /// The limit of calls under way.
        under_way: u32,
        /// The limit of calls that wait.
        waiting: u32,
    },
    /// Calls under way left no room in time.
    #[error(
        "cannot {op} {key}: not begun within {waited:?}, because {under_way} other calls are under way, the limit; raise max_concurrent of the storage"
    )]
    NoRoom {
        /// What was asked.
        op: &'static str,
        /// The key.
        key: String,
        /// The limit of calls under way.
        under_way: u32,
        /// How long it waited.
        waited: Duration,
    },
    /// The configuration names no bucket, more than one, or one that cannot be opened.
    #[error("storage configuration: {reason}")]
    Config {
        /// What is wrong and what to write.
        reason: String,
    },
}

/// Why a bucket cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// It does not exist.
    #[error("{bucket} does not exist; create it, or correct {setting}")]
    Missing {
        /// The bucket.
        bucket: Arc<str>,
        /// The setting that names it.
        setting: &'static str,
    },
    /// It does not let this process in.
    #[error(
        "{bucket} refuses access: {why}; correct the keys below `storage`, which must be allowed to list, read, write and \
         delete objects"
    )]
    Denied {
        /// The bucket.
        bucket: Arc<str>,
        /// What was answered.
        why: String,
    },
    /// It does not answer, or with an error that may pass.
    #[error("{bucket} does not answer: {why}; check its address below `storage`, and the network")]
    Unreachable {
        /// The bucket.
        bucket: Arc<str>,
        /// What happened.
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
