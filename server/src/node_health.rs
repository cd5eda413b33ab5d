//! Whether the roles of a node can do their work, and what it means at the end if they cannot.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, Status};
use athanor_consensus::RaftGroup;
use athanor_consensus::log::{Log, LogError};
use athanor_ingester::Ingester;
use athanor_metastore::CatalogStateMachine;

/// How often somebody who waits for what may fail has it looked at.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What may fail until a restart.
pub struct NodeHealth {
    /// The shards.
    pub ingester: Option<Arc<Ingester>>,
    /// The catalogue.
    pub groups: Vec<RaftGroup<CatalogStateMachine>>,
    /// What both write to.
    pub log: Option<Log>,
}

impl NodeHealth {
    /// A log or a group that has failed stays so until a restart: nobody should be sent here any more.
    pub fn check(&self) -> Result<(), Status> {
        let catalogue = || self.groups.iter().find_map(RaftGroup::failure);
        let failed = self.log_failed().or_else(|| catalogue().map(|why| format!("the catalogue: {why}")));
        match failed.or_else(|| self.ingester.as_ref()?.failed()) {
            Some(why) => Err(Status::new(ErrorCode::Unavailable, format!("{why}; restart this node"))),
            None => Ok(()),
        }
    }

    /// Asks the disk, too: where nothing is written nobody else would notice that the folder has gone.
    fn log_failed(&self) -> Option<String> {
        match self.log.as_ref()?.admit() {
            Err(error @ LogError::Failed { .. }) => Some(error.to_string()),
            Ok(()) | Err(_) => None,
        }
    }

    /// Waits until the roles cannot do their work any more.
    pub async fn wait_until_failing(&self, clock: &Clock) -> Status {
        loop {
            match self.check() {
                Err(status) => return status,
                Ok(()) => clock.sleep(HEALTH_CHECK_INTERVAL).await,
            }
        }
    }

    /// What becomes of profiles that the last cut did not write, and `why` it did not.
    pub fn check_unflushed(&self, why: &Status) -> Result<(), Status> {
        if !self.ingester.as_ref().is_some_and(|ingester| ingester.has_unflushed()) {
            return Ok(());
        }
        let Some(failed) = self.log_failed() else {
            tracing::warn!(error = %why, "not all heads were cut; their profiles stay in the log");
            return Ok(());
        };
        let message = format!(
            "profiles that were acknowledged since the last cut are in no block, and perhaps in no log: {failed}; \
             restore the data folder and send them again"
        );
        tracing::error!("{message}");
        Err(Status::new(ErrorCode::DataLoss, message))
    }
}
