//! Sampling period of the selected profiles.

use athanor_chassis::Status;
use athanor_profile::ProfileType;
use athanor_query::{PartialResult, ProfileListQuery, ProfileQuery, QueryKind, RequiredResolution};

use super::ExploreQuery;
use crate::QueryContext;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate;

/// Returns the value of one sample, or 0 if it is unknown. If profiles differ, the greatest period counts, so that a number of
/// samples is a lower bound. A downsampled row has the greatest period of its profiles.
pub(super) async fn sampling_period(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: &ExploreQuery,
) -> Result<i64, Status> {
    let ProfileType { value, period, .. } = &query.profile_type;
    if matches!(value.kind.as_str(), "samples" | "sample") && value.unit == "count" {
        return Ok(1);
    }
    if value.unit.is_empty() || value.unit == "count" || value.unit != period.unit {
        return Ok(0);
    }
    let mut selection = query.selection.clone();
    // The data that the values are read from, which may be downsampled.
    let merge = QueryKind::Profile(Default::default(), None);
    let read = ProfileQuery { selection: selection.clone(), what: merge, ..ProfileQuery::default() };
    selection.resolution = Some(RequiredResolution { steps: None, ..read.required_resolution() });
    let what = QueryKind::Profiles(ProfileListQuery::default());
    let query = ProfileQuery { selection, what, bounds: validate::default_result_limits() };
    match run_query(executor, reader, query).await? {
        PartialResult::Profiles(list) => {
            let known = list.periods.filter(|(least, _)| *least > 0);
            Ok(known.map_or(0, |(_, most)| most))
        }
        _ => Err(unexpected_result_type()),
    }
}
