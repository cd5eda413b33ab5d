//! Retries of one call until it succeeds, fails for good or times out.

use std::sync::Arc;

use athanor_chassis::{Backoff, Clock, ErrorCode, Random};
use futures::future::BoxFuture;
use object_store::Error;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::config::{StorageConfig, StorageRetryConfig};
use crate::error::StoreError;

/// Name of the operation that creates an object.
pub(crate) const CREATE_OPERATION: &str = "create";

/// Executor that runs calls with the timeouts, attempts and backoff of one store.
#[derive(Debug)]
pub(crate) struct RetryExecutor {
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) retry: StorageRetryConfig,
    pub(crate) room: CallLimiter,
    /// Name of the bucket for messages, and the setting that names it.
    pub(crate) bucket: (Arc<str>, &'static str),
}

/// Permits for running calls and slots for waiting calls.
#[derive(Debug)]
pub(crate) struct CallLimiter {
    max_concurrent: u32,
    max_queued: u32,
    calls: Semaphore,
    queue: Semaphore,
}

impl CallLimiter {
    pub(crate) fn from_config(config: &StorageConfig) -> Self {
        let StorageConfig { max_concurrent, max_queued, .. } = *config;
        let calls = Semaphore::new(max_concurrent as usize);
        let queue = Semaphore::new(max_queued as usize);
        Self { max_concurrent, max_queued, calls, queue }
    }
}

impl RetryExecutor {
    /// Runs `call` until it succeeds, fails for good or times out. Each call receives the attempt's number,
    /// from 1.
    pub(crate) async fn run<'c, T>(
        &self,
        op: &'static str,
        key: &str,
        call: impl Fn(u32) -> BoxFuture<'c, Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let StorageRetryConfig { max_attempts, attempt_timeout, total_timeout, .. } = self.retry;
        let backoff = Backoff::doubling(self.retry.min_backoff, self.retry.max_backoff);
        let end = self.clock.monotonic() + total_timeout;
        let _room = self.acquire_permit(op, key).await?;
        let mut attempt = 1;
        loop {
            let left = end.saturating_sub(self.clock.monotonic());
            let outcome = self.clock.timeout(attempt_timeout.min(left), call(attempt)).await;
            let failed = match outcome {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => match retry_decision(&error) {
                    RetryDecision::Retry => Some(error),
                    RetryDecision::Final(code) => return Err(self.store_error(op, key, code, error)),
                },
                Err(_elapsed) => None,
            };
            let wait = backoff.delay(attempt as usize - 1, &self.random);
            if attempt >= max_attempts || self.clock.monotonic() + wait >= end {
                return Err(attempts_exhausted(op, key, attempt, failed));
            }
            let error = failed.as_ref().map_or("timed out".to_owned(), Error::to_string);
            tracing::debug!(op, key, attempt, error, "bucket call failed, will retry");
            self.clock.sleep(wait).await;
            attempt += 1;
        }
    }

    /// Runs a call that cannot be retried.
    pub(crate) async fn run_once<T>(
        &self,
        op: &'static str,
        key: &str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let _permit = self.acquire_permit(op, key).await?;
        call.await.map_err(|error| match retry_decision(&error) {
            RetryDecision::Retry => attempts_exhausted(op, key, 1, Some(error)),
            RetryDecision::Final(code) => self.store_error(op, key, code, error),
        })
    }

    /// Waits for a permit, at most as long as the whole call may take.
    async fn acquire_permit(&self, op: &'static str, key: &str) -> Result<SemaphorePermit<'_>, StoreError> {
        let CallLimiter { max_concurrent, max_queued, calls, queue } = &self.room;
        if let Ok(room) = calls.try_acquire() {
            return Ok(room);
        }
        let key = || key.to_owned();
        let under_way = *max_concurrent;
        let Ok(_place) = queue.try_acquire() else {
            return Err(StoreError::Busy { op, key: key(), under_way, waiting: *max_queued });
        };
        let waited = self.retry.total_timeout;
        match self.clock.timeout(waited, calls.acquire()).await {
            Ok(room) => Ok(room.expect("the semaphore is never closed")),
            Err(_elapsed) => Err(StoreError::NoRoom { op, key: key(), under_way, waited }),
        }
    }

    fn store_error(&self, op: &'static str, key: &str, code: ErrorCode, error: Error) -> StoreError {
        let key = key.to_owned();
        match error {
            // A create needs no existing object, so the bucket itself is missing.
            Error::NotFound { .. } if op == CREATE_OPERATION || is_missing_bucket(&error) => {
                let (bucket, setting) = self.bucket.clone();
                StoreError::NoBucket { op, key, bucket, setting }
            }
            Error::NotFound { .. } => StoreError::NotFound { op, key },
            Error::AlreadyExists { .. } => StoreError::Exists { key },
            error => StoreError::Refused { op, key, code, source: Box::new(error) },
        }
    }
}

enum RetryDecision {
    Retry,
    Final(ErrorCode),
}

fn retry_decision(error: &Error) -> RetryDecision {
    match error {
        Error::NotFound { .. } => RetryDecision::Final(ErrorCode::NotFound),
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => {
            RetryDecision::Final(ErrorCode::Conflict)
        }
        Error::PermissionDenied { .. } => RetryDecision::Final(ErrorCode::PermissionDenied),
        Error::Unauthenticated { .. } => RetryDecision::Final(ErrorCode::Unauthenticated),
        Error::InvalidPath { .. } => RetryDecision::Final(ErrorCode::Invalid),
        Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            RetryDecision::Final(ErrorCode::Unimplemented)
        }
        // Servers return 5xx, 429, a broken connection and others as a generic error. Each of them may be
        // temporary.
        _ => RetryDecision::Retry,
    }
}

/// Returns whether the error means that the bucket itself is missing.
pub(crate) fn is_missing_bucket(error: &Error) -> bool {
    const MISSING_BUCKET_PHRASES: [&str; 3] = ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"];
    let text = error_chain_text(error);
    MISSING_BUCKET_PHRASES.iter().any(|word| text.contains(word))
}

/// Returns the texts of an error and of all its causes.
pub(crate) fn error_chain_text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Many errors already contain the text of their cause.
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

fn attempts_exhausted(op: &'static str, key: &str, attempts: u32, last: Option<Error>) -> StoreError {
    let key = key.to_owned();
    match last {
        Some(error) => StoreError::GaveUp { op, key, attempts, source: Box::new(error) },
        None => StoreError::Deadline { op, key, attempts },
    }
}
