//! Health of a node's roles, and the consequences of a failure at shutdown.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, Status};
use athanor_consensus::RaftGroup;
use athanor_consensus::log::{Log, LogError};
use athanor_ingester::Ingester;
use athanor_metastore::CatalogStateMachine;

/// Interval between health checks while waiting for a failure.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Components that may fail until a restart.
pub struct NodeHealth {
    /// Ingester with the shards, if this node has the role.
    pub ingester: Option<Arc<Ingester>>,
    /// Raft groups of the catalog.
    pub groups: Vec<RaftGroup<CatalogStateMachine>>,
    /// Log that shards and catalog share.
    pub log: Option<Log>,
}

impl NodeHealth {
    /// Returns an error if a log or a group failed. Such a failure lasts until a restart, so clients should
    /// use other nodes.
    pub fn check(&self) -> Result<(), Status> {
        let catalogue = || self.groups.iter().find_map(RaftGroup::failure);
        let failed = self.log_failed().or_else(|| catalogue().map(|why| format!("catalog: {why}")));
        match failed.or_else(|| self.ingester.as_ref()?.failed()) {
            Some(why) => Err(Status::new(ErrorCode::Unavailable, format!("{why}; restart this node"))),
            None => Ok(()),
        }
    }

    /// Checks the disk too: without writes no other code detects that the folder is gone.
    fn log_failed(&self) -> Option<String> {
        match self.log.as_ref()?.admit() {
            Err(error @ LogError::Failed { .. }) => Some(error.to_string()),
            Ok(()) | Err(_) => None,
        }
    }

    /// Waits until a role fails permanently.
    pub async fn wait_until_failing(&self, clock: &Clock) -> Status {
        loop {
            match self.check() {
                Err(status) => return status,
                Ok(()) => clock.sleep(HEALTH_CHECK_INTERVAL).await,
            }
        }
    }

    /// Returns a data loss error if the final flush failed because of `why` and the log failed too. Otherwise
    /// the profiles stay in the log.
    pub fn check_unflushed(&self, why: &Status) -> Result<(), Status> {
        if !self.ingester.as_ref().is_some_and(|ingester| ingester.has_unflushed()) {
            return Ok(());
        }
        let Some(failed) = self.log_failed() else {
            tracing::warn!(error = %why, "failed to flush all heads, their profiles stay in the log");
            return Ok(());
        };
        let message = format!(
            "profiles acknowledged since the last flush are in no block and may be missing from the log: {failed}; \
             restore the data folder and resend the profiles"
        );
        tracing::error!("{message}");
        Err(Status::new(ErrorCode::DataLoss, message))
    }
}
