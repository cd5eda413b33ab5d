//! Replanning of queries with an outdated plan.
//!
//! A plan consists of a listing and of the holders of data that the listing lacks. In the meantime rows may
//! move into blocks of a newer listing, or to another leader. The planner, a source or a peer detects this
//! and returns *replan*. The query then starts over with a new plan. Partial results so far are dropped,
//! since they belong to another plan: a profile might be missing, or count more than once [INV-18].

use std::collections::BTreeSet;

use athanor_chassis::{ErrorCode, Status};
use athanor_profile::SourceError;
use athanor_query::ProfileQueryError;

use crate::execute::dedup::DedupHints;

/// Maximum number of new plans of a query. The last plan skips moved sources and adds a warning.
const MAX_REPLANS: usize = 3;

/// Reasons why a source or a peer returned no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceQueryError {
    /// The source moved since the plan was made. The text names the shard, and where its rows went.
    #[error("{0}")]
    Replan(String),
    /// The bucket no longer has these blocks, named as the planner names them. A newer listing names their
    /// replacements, or else they are lost.
    #[error("blocks deleted since the query was planned: {}", .0.join(", "))]
    Gone(Vec<String>),
    /// The query failed, and a new plan would not help.
    #[error(transparent)]
    Failed(#[from] Status),
}

impl From<ProfileQueryError> for SourceQueryError {
    fn from(error: ProfileQueryError) -> Self {
        match error {
            ProfileQueryError::Source(SourceError::Moved(_)) => SourceQueryError::Replan(error.to_string()),
            error => SourceQueryError::Failed(Status::from_error(&error)),
        }
    }
}

/// Attempt of a query with one plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanAttempt {
    replans: usize,
    /// Blocks that were missing in previous attempts. If a new listing still names them, they are lost.
    gone: BTreeSet<String>,
    /// Known duplicates at the start of the attempt.
    pub(crate) doubts: DedupHints,
}

impl PlanAttempt {
    /// Returns the first attempt.
    pub(crate) fn with_hints(doubts: DedupHints) -> Self {
        Self { doubts, ..Self::default() }
    }

    /// Returns true if the query did not run before.
    pub(crate) fn is_first(&self) -> bool {
        self.replans == 0 && self.doubts.is_first()
    }

    /// Returns the warning of a result without the moved source. Before the last attempt it returns the error
    /// instead.
    pub(crate) fn warn_or_replan(&self, asked: SourceQueryError) -> Result<String, SourceQueryError> {
        match asked {
            SourceQueryError::Gone(blocks) if blocks.iter().all(|block| self.gone.contains(block)) => {
                Ok(format!(
                    "blocks listed, but missing in the bucket: {}; their profiles are left out, check the bucket for deletions",
                    blocks.join(", ")
                ))
            }
            SourceQueryError::Gone(blocks) if self.replans == MAX_REPLANS => {
                self.warn_or_replan(SourceQueryError::Replan(SourceQueryError::Gone(blocks).to_string()))
            }
            SourceQueryError::Replan(why) if self.replans == MAX_REPLANS => Ok(format!(
                "{why}: profiles are left out, since {} query plans became outdated; retry",
                MAX_REPLANS + 1
            )),
            asked => Err(asked),
        }
    }

    /// Returns the attempt after one that ended with this error.
    pub(crate) fn next_attempt(mut self, asked: SourceQueryError) -> Result<Self, Status> {
        let why = asked.to_string();
        match asked {
            SourceQueryError::Failed(status) => return Err(status),
            SourceQueryError::Replan(_) => {}
            SourceQueryError::Gone(blocks) => self.gone.extend(blocks),
        }
        if self.replans == MAX_REPLANS {
            return Err(Status::new(ErrorCode::Unavailable, format!("{why}; retry")));
        }
        self.replans += 1;
        Ok(self)
    }
}
