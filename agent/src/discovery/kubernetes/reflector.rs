//! Reflector: mirrors one scope of the API by a paged list and then watches.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Backoff, Clock, Random};
use tokio::sync::mpsc;

use super::api_client::{ApiClient, ApiError, ListPage, ObjectScope, is_expired};
use super::inventory::InventoryChange;
use super::kubernetes_status::KubernetesStatus;
use super::objects::Object;
use super::watch_lines::{WatchEvent, WatchLineError, WatchLineSplitter, decode_watch_line};

/// Maximum objects of one scope. Kubernetes supports 150 000 pods.
const MAX_OBJECTS_PER_SCOPE: usize = 300_000;
/// Longest duration of one watch. Half of it is random.
const WATCH_DURATION: Duration = Duration::from_secs(600);
/// Time after which a watch is given up that the server did not end.
const WATCH_OVERTIME: Duration = Duration::from_secs(30);
/// Shortest duration of a watch without events that is no failure.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);
/// Failures in a row after which the scope is listed instead of watched.
const MAX_WATCH_FAILURES: usize = 5;

/// Mirror of one scope. It keeps its objects while the API is unavailable.
pub(super) struct Reflector {
    pub(super) scope: ObjectScope,
    pub(super) api: Arc<ApiClient>,
    pub(super) clock: Clock,
    pub(super) random: Random,
    pub(super) backoff: Backoff,
    pub(super) status: Arc<KubernetesStatus>,
    /// Number of the reflector among those of the discoverer.
    pub(super) index: usize,
    pub(super) changes: mpsc::Sender<ReflectorChange>,
}

/// Change that a reflector sends.
pub(super) struct ReflectorChange {
    pub(super) index: usize,
    pub(super) change: InventoryChange,
}

/// Failure of a list or watch.
#[derive(Debug, thiserror::Error)]
enum ReflectorError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Line(#[from] WatchLineError),
    #[error("watch of {resource} failed ({code}): {message}")]
    Watch { resource: &'static str, code: u16, message: String },
    #[error("version of the watch of {resource} is too old")]
    VersionExpired { resource: &'static str },
    #[error(
        "list of {resource} has over {MAX_OBJECTS_PER_SCOPE} objects; narrow it with namespaces or selectors"
    )]
    TooManyObjects { resource: &'static str },
    #[error("list of {resource} has no version")]
    NoVersion { resource: &'static str },
    #[error("watch of {resource} ended at once")]
    EndedAtOnce { resource: &'static str },
}

/// Progress of the watches since a list.
struct WatchProgress {
    version: Box<str>,
    /// Failures since the last event.
    failures: usize,
}

impl Reflector {
    /// Mirrors the scope until the receiver of changes is dropped.
    pub(super) async fn run(self) {
        let mut failures = 0;
        while !self.changes.is_closed() {
            let error = match self.list().await {
                Ok(list) => {
                    self.status.clear_problem(&self.name());
                    let mut progress = WatchProgress { version: list.version.into(), failures };
                    self.send(InventoryChange::Replace(list.objects)).await;
                    let error = self.watch_until_lost(&mut progress).await;
                    failures = progress.failures;
                    error
                }
                Err(error) => error,
            };
            self.wait_after(&error, failures).await;
            failures += 1;
        }
    }

    /// Lists all pages.
    async fn list(&self) -> Result<ListPage, ReflectorError> {
        let resource = self.scope.resource.name();
        let mut objects: Vec<Object> = Vec::new();
        let mut page_token = String::new();
        loop {
            let page = self.api.list_page(&self.scope, &page_token).await?;
            if objects.len() + page.objects.len() > MAX_OBJECTS_PER_SCOPE {
                return Err(ReflectorError::TooManyObjects { resource });
            }
            let is_empty = page.objects.is_empty();
            objects.extend(page.objects);
            if page.next_page.is_empty() {
                if page.version.is_empty() {
                    return Err(ReflectorError::NoVersion { resource });
                }
                return Ok(ListPage { objects, version: page.version, next_page: String::new() });
            }
            if is_empty && page.next_page == page_token {
                return Err(ReflectorError::NoVersion { resource });
            }
            page_token = page.next_page;
        }
    }

    /// Watches until changes may have been missed, so that a list is needed.
    async fn watch_until_lost(&self, progress: &mut WatchProgress) -> ReflectorError {
        let mut failures_in_a_row = 0;
        loop {
            let started = self.clock.monotonic();
            let before = progress.version.clone();
            let error = match self.watch(progress).await {
                Ok(()) if *before != *progress.version => None,
                Ok(()) if self.clock.monotonic().saturating_sub(started) >= MIN_WATCH_DURATION => {
                    progress.failures = 0;
                    None
                }
                Ok(()) => Some(ReflectorError::EndedAtOnce { resource: self.scope.resource.name() }),
                Err(error) => Some(error),
            };
            let has_progress = *before != *progress.version;
            let Some(error) = error else {
                failures_in_a_row = 0;
                continue;
            };
            failures_in_a_row = if has_progress { 1 } else { failures_in_a_row + 1 };
            if error.needs_list() || failures_in_a_row > MAX_WATCH_FAILURES || self.changes.is_closed() {
                return error;
            }
            self.wait_after(&error, progress.failures).await;
            progress.failures += 1;
        }
    }

    /// Runs one watch to its end.
    async fn watch(&self, progress: &mut WatchProgress) -> Result<(), ReflectorError> {
        let duration = self.random.jitter(WATCH_DURATION);
        let mut stream = self.api.watch(&self.scope, &progress.version, duration).await?;
        self.status.clear_problem(&self.name());
        let events = async {
            let mut splitter = WatchLineSplitter::default();
            let mut events = Vec::new();
            while let Some(chunk) = stream.next_chunk().await? {
                let decode = |line: &[u8]| events.push(decode_watch_line(self.scope.resource, line));
                splitter.push(&chunk, decode)?;
                for event in events.drain(..) {
                    if let Some(event) = event? {
                        self.handle_event(event, progress).await?;
                    }
                }
            }
            Ok(())
        };
        // The server is slow or gone. Nothing is lost: the next watch starts after the last event.
        self.clock.timeout(duration + WATCH_OVERTIME, events).await.unwrap_or(Ok(()))
    }

    async fn handle_event(
        &self,
        event: WatchEvent,
        progress: &mut WatchProgress,
    ) -> Result<(), ReflectorError> {
        let resource = self.scope.resource.name();
        let version = match event {
            WatchEvent::Applied { object, version } => {
                self.send(InventoryChange::Apply(object)).await;
                version
            }
            WatchEvent::Deleted { object, version } => {
                self.send(InventoryChange::Remove(object.key())).await;
                version
            }
            WatchEvent::Bookmark { version } => version,
            WatchEvent::Failed(status) if is_expired(&status) => {
                return Err(ReflectorError::VersionExpired { resource });
            }
            WatchEvent::Failed(status) => {
                let message = status.message.chars().take(500).collect();
                return Err(ReflectorError::Watch { resource, code: status.code, message });
            }
        };
        progress.version = version;
        progress.failures = 0;
        Ok(())
    }

    async fn send(&self, change: InventoryChange) {
        // If the receiver is gone, the reflector ends at its next attempt.
        let _ = self.changes.send(ReflectorChange { index: self.index, change }).await;
    }

    /// Reports a failure and waits before the next attempt.
    async fn wait_after(&self, error: &ReflectorError, failures: usize) {
        let delay = self.backoff.delay(failures, &self.random);
        let requested = match error {
            ReflectorError::Api(error) => error.retry_after().unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let delay = delay.max(requested);
        if error.is_routine() {
            tracing::debug!(scope = self.name(), %error, "listing again");
        } else {
            let is_denied = matches!(error, ReflectorError::Api(error) if error.is_denied());
            self.status.report_problem(&self.name(), error.to_string(), is_denied);
        }
        self.clock.sleep(delay).await;
    }

    /// Name of the scope, for messages.
    fn name(&self) -> String {
        let resource = self.scope.resource.name();
        match &self.scope.namespace {
            Some(namespace) => format!("{resource} in {namespace}"),
            None => resource.to_owned(),
        }
    }
}

impl ReflectorError {
    /// Returns whether a watch cannot continue after the last event.
    fn needs_list(&self) -> bool {
        match self {
            Self::Api(error) => error.is_version_expired(),
            Self::EndedAtOnce { .. } => false,
            _ => true,
        }
    }

    /// Returns whether the failure is part of normal operation.
    fn is_routine(&self) -> bool {
        match self {
            Self::Api(error) => error.is_version_expired(),
            Self::VersionExpired { .. } | Self::EndedAtOnce { .. } => true,
            _ => false,
        }
    }
}
