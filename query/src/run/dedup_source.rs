//! Execution on sources that may share profiles.

use std::collections::BTreeSet;

use athanor_profile::ProfileSource;
use athanor_profile::encoding::hash::ContentHash;

use super::matched_profiles::MatchedProfiles;
use super::{run, run_matched};
use crate::dedup::SourceId;
use crate::request::profile_query::{ProfileQuery, ProfileQueryError, RequiredData};
use crate::result::partial::PartialResult;

/// Source that may share profiles with other places.
pub struct DedupSource<'s> {
    /// Profiles of the source.
    pub source: &'s dyn ProfileSource,
    /// Place that the result reports with its ids. None reports no ids.
    pub tells: Option<SourceId>,
    /// Ids of its profiles that do not count.
    pub without: &'s BTreeSet<ContentHash>,
}

/// Empty exclusion set, with which everything counts.
static NO_EXCLUDED_IDS: BTreeSet<ContentHash> = BTreeSet::new();

impl<'s> From<&'s dyn ProfileSource> for DedupSource<'s> {
    /// Wraps a source that shares no profiles with other places.
    fn from(source: &'s dyn ProfileSource) -> Self {
        DedupSource { source, tells: None, without: &NO_EXCLUDED_IDS }
    }
}

impl DedupSource<'_> {
    /// Runs the query, without the excluded profiles.
    pub fn query_source(&self, ask: &ProfileQuery) -> Result<PartialResult, ProfileQueryError> {
        let DedupSource { source, tells, without } = *self;
        if source.is_downsampled() {
            return run(ask, source);
        }
        let needs = ask.required_data();
        let needs =
            RequiredData { profiles: needs.profiles || tells.is_some() || !without.is_empty(), ..needs };
        let mut picked = MatchedProfiles::find_matching_with(ask, needs, source)?;
        let ids = tells.map(|place| (place, picked.rows().map(|row| row.id).collect()));
        let MatchedProfiles { profiles, places, .. } = &mut picked;
        if !without.is_empty() {
            places.retain(|&place| !without.contains(&profiles[place as usize].id));
        }
        let partial = run_matched(ask, source, &picked)?;
        Ok(match ids {
            Some((place, ids)) => partial.with_ids(place, ids),
            None => partial,
        })
    }
}

/// Runs a query on all sources that one process has for others, such as the heads of the shards that it
/// leads. Merging the results of several processes equals a query over all of their sources.
pub fn run_all<'s, L: Into<DedupSource<'s>>>(
    ask: &ProfileQuery,
    sources: impl IntoIterator<Item = L>,
) -> Result<PartialResult, ProfileQueryError> {
    sources.into_iter().try_fold(PartialResult::empty(&ask.what), |sum, source| {
        let next = source.into().query_source(ask)?;
        sum.merge(next, &ask.bounds)
    })
}
