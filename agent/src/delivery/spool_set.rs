//! Spools of all servers: the sink of all uploads.

use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::Status;
use athanor_chassis::observability::metric_family::{MetricCollector, metric_collector};
use futures::future::join_all;

use super::Delivery;
use crate::operator::views::ServerView;
use crate::spool::{DropReason, SPOOL_METRICS, ServerSnapshot};
use crate::upload::{Upload, UploadOrigin, UploadSink};

/// Spools of all servers, each delivered at its own pace.
#[derive(Clone, Debug)]
pub struct SpoolSet {
    servers: Arc<[Delivery]>,
    warnings: Arc<[String]>,
}

/// Returns the collector of [`SPOOL_METRICS`] for all servers.
pub fn spool_collector(spools: SpoolSet) -> MetricCollector {
    metric_collector(SPOOL_METRICS, move || spools.snapshots())
}

impl SpoolSet {
    /// Creates the set of the given servers.
    pub fn new(servers: Vec<Delivery>) -> Self {
        Self { servers: servers.into(), warnings: Arc::default() }
    }

    /// Adds warnings about the folder of all spools.
    #[must_use]
    pub fn with_warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings: warnings.into(), ..self }
    }

    /// Returns the warnings about the folder of all spools.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the counters and the states of all spools.
    pub fn snapshots(&self) -> Vec<ServerSnapshot> {
        self.servers.iter().map(Delivery::snapshot).collect()
    }

    /// Returns the states of all servers for the pages and commands.
    pub fn views(&self) -> Vec<ServerView> {
        self.servers.iter().map(Delivery::view).collect()
    }

    /// Makes all servers get their files now, without waiting for the end of a backoff.
    pub fn drain(&self) {
        self.servers.iter().for_each(Delivery::drain);
    }

    /// Returns whether a spool is in memory, because its folder is not writable.
    pub fn is_in_memory(&self) -> bool {
        self.servers.iter().any(|server| server.snapshot().is_in_memory)
    }
}

#[async_trait]
impl UploadSink for SpoolSet {
    /// Stores an upload in each spool that accepts it. It fails only if no spool accepts it, so a full spool
    /// delays no other server, and a client that retries after an error repeats nothing that is stored. A spool
    /// that did not accept it counts its profiles as dropped.
    async fn store(&self, upload: Upload) -> Result<(), Status> {
        let origin = upload.origin;
        let profiles = upload.profiles;
        let stores = self.servers.iter().map(|server| server.spool().store(upload.clone()));
        let results = join_all(stores).await;
        let Some(stored) = results.iter().position(Result::is_ok) else {
            return results.into_iter().find(Result::is_err).unwrap_or(Ok(()));
        };
        // A spool counts the scraped profiles that it drops itself.
        for (server, result) in self.servers.iter().zip(results) {
            if let Err(status) = result
                && origin == UploadOrigin::Received
            {
                let other = self.servers[stored].spool().server();
                tracing::warn!(
                    server = server.spool().server(),
                    other,
                    error = %status,
                    "dropped received profiles for one server, the spool of another server has them"
                );
                server.spool().stats().record_dropped(DropReason::from_store_error(&status), profiles);
            }
        }
        Ok(())
    }
}
