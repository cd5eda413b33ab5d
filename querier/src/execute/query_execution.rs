//! State of a running query, shared by the jobs that read its sources.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::ComputePool;
use athanor_profile::encoding::hash::ContentHash;
use athanor_query::{PartialMerger, ProfileQuery, ResultResolution};
use parking_lot::Mutex;

use crate::diagnostics::{QueryTrace, SourceReport};
use crate::execute::dedup::{DedupObservations, InMemorySource};
use crate::execute::replan::SourceQueryError;
use crate::execute::skipped_sources::SkippedSources;

/// State of a running query: inputs and results so far.
pub(crate) struct QueryExecution {
    pub(crate) ask: Arc<ProfileQuery>,
    /// Compute pool of the tenant.
    pub(crate) compute: ComputePool,
    /// Deadline of the request, on the monotonic clock.
    pub(crate) until: Duration,
    /// Merger of partial results.
    pub(crate) meeting: PartialMerger,
    /// Trace of the query, if diagnostics were requested.
    pub(crate) scribe: QueryTrace,
    /// Warnings about data that the result lacks.
    pub(crate) warnings: Mutex<Vec<String>>,
    /// Resolution of the plans of all tenants.
    pub(crate) resolution: Mutex<ResultResolution>,
    /// Sources that the result lacks because they could not be read.
    pub(crate) left_out: SkippedSources,
    /// Block hash of each tenant, as long as only blocks contribute to the result.
    pub(crate) made_of: Mutex<Option<Vec<ContentHash>>>,
    /// Observed time ranges of data that may be in two places.
    pub(crate) met: DedupObservations,
}

impl QueryExecution {
    /// Adds the block hash of a further part of the result. None means that other data than blocks
    /// contributes.
    pub(crate) fn add_provenance(&self, blocks: Option<ContentHash>) {
        let mut made_of = self.made_of.lock();
        match (made_of.as_mut(), blocks) {
            (Some(all), Some(blocks)) => all.push(blocks),
            _ => *made_of = None,
        }
    }

    /// Adds warnings about data that the result lacks.
    pub(crate) fn add_warnings(&self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.lock().extend(warnings);
    }

    /// Records the work of a local source for query diagnostics.
    pub(crate) fn trace_source(
        &self,
        begun: Duration,
        report: SourceReport,
        done: &Result<(), SourceQueryError>,
    ) {
        let duration = self.scribe.now().saturating_sub(begun);
        let error = done.as_ref().err().map(ToString::to_string);
        self.scribe.record_source(SourceReport { duration, error, ..report });
    }

    /// Queries and merges one source in memory.
    pub(crate) fn merge_memory_source(&self, lying: &InMemorySource) -> Result<(), SourceQueryError> {
        let partial = lying.query_source(&self.ask)?;
        Ok(self.scribe.measure_merge(|| self.meeting.add(partial, None))?)
    }
}
