//! Plans that are overtaken, and what is done about it.
//!
//! A plan is a listing and those who have what the listing has not. Between the two, rows may move: into blocks that
//! a newer listing names, or to another leader. Whoever finds out says *replan*, be it whoever plans, a source, or a
//! peer; and the question begins again, with a new plan. What was put together by then is thrown away, since its parts
//! are of another plan: a profile might be missing, or count twice [INV-18].

use std::collections::BTreeSet;

use athanor_chassis::{ErrorCode, Status};
use athanor_profile::SourceError;
use athanor_query::ProfileQueryError;

use crate::dedup::DedupHints;

/// How often a plan is made anew. The last one goes on without what has moved, and says so.
const MAX_REPLANS: usize = 3;

/// Why a source or a peer gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceQueryError {
    /// What it should have has moved since the plan was made. In words: which shard, and where its rows went.
    #[error("{0}")]
    Replan(String),
    /// The bucket has these blocks no more, each called by what whoever plans again calls it. A newer listing names others
    /// instead, or else they are lost.
    #[error("gone since the plan was made: {}", .0.join(", "))]
    Gone(Vec<String>),
    /// Planning again does not help.
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

/// One of the plans of a question.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanAttempt {
    replans: usize,
    /// Blocks that were gone when the plans before were carried out. Whoever lists them still has lost them.
    gone: BTreeSet<String>,
    /// What is known of profiles that lie in two places.
    pub(crate) doubts: DedupHints,
}

impl PlanAttempt {
    /// The first one.
    pub(crate) fn with_hints(doubts: DedupHints) -> Self {
        Self { doubts, ..Self::default() }
    }

    /// Whether nothing was asked before.
    pub(crate) fn is_first(&self) -> bool {
        self.replans == 0 && self.doubts.is_first()
    }

    /// What is to be said of an answer that goes on without what has moved. Before the last plan it does not go on.
    pub(crate) fn warn_or_replan(&self, asked: SourceQueryError) -> Result<String, SourceQueryError> {
        match asked {
            SourceQueryError::Gone(blocks) if blocks.iter().all(|block| self.gone.contains(block)) => {
                Ok(format!(
                    "listed, but not in the bucket: {}; profiles are left out, look for who removed them",
                    blocks.join(", ")
                ))
            }
            SourceQueryError::Gone(blocks) if self.replans == MAX_REPLANS => {
                self.warn_or_replan(SourceQueryError::Replan(SourceQueryError::Gone(blocks).to_string()))
            }
            SourceQueryError::Replan(why) if self.replans == MAX_REPLANS => Ok(format!(
                "{why}: profiles are left out, since {} plans were overtaken; ask again",
                MAX_REPLANS + 1
            )),
            asked => Err(asked),
        }
    }

    /// The attempt after one that ended so.
    pub(crate) fn next_attempt(mut self, asked: SourceQueryError) -> Result<Self, Status> {
        let why = asked.to_string();
        match asked {
            SourceQueryError::Failed(status) => return Err(status),
            SourceQueryError::Replan(_) => {}
            SourceQueryError::Gone(blocks) => self.gone.extend(blocks),
        }
        if self.replans == MAX_REPLANS {
            return Err(Status::new(ErrorCode::Unavailable, format!("{why}; ask again")));
        }
        self.replans += 1;
        Ok(self)
    }
}
