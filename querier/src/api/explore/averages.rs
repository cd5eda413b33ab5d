//! Averages of gauges over profiles.

use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_profile::analysis::value_divisor::ValueDivisor;
use athanor_query::{PartialResult, ProfileCount, ProfileCounts, ProfileQuery, QueryKind};

use super::ExploreQuery;
use crate::QueryContext;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate;

/// Returns the divisor of all selected values.
pub(super) async fn value_divisor(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: &ExploreQuery,
) -> Result<ValueDivisor, Status> {
    if !query.profile_type.is_gauge() {
        return Ok(ValueDivisor::default());
    }
    let counts = count_profiles(executor, reader, query, Vec::new()).await?;
    Ok(divisor_of(&counts.into_values().next().unwrap_or_default()))
}

/// Returns the divisor of the values of each group. Empty if values are sums.
pub(super) async fn group_divisors(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: &ExploreQuery,
    group_by: &[String],
) -> Result<BTreeMap<Labels, ValueDivisor>, Status> {
    if !query.profile_type.is_gauge() || group_by.is_empty() {
        return Ok(BTreeMap::new());
    }
    let counts = count_profiles(executor, reader, query, group_by.to_vec()).await?;
    Ok(counts.iter().map(|(labels, count)| (labels.clone(), divisor_of(count))).collect())
}

fn divisor_of(count: &ProfileCount) -> ValueDivisor {
    ValueDivisor::from_profiles(count.total())
}

/// Counts the selected profiles, with or without stacks that the query selects.
async fn count_profiles(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: &ExploreQuery,
    group_by: Vec<String>,
) -> Result<ProfileCounts, Status> {
    let selection = query.selection.clone();
    let profile_query = ProfileQuery {
        selection,
        what: QueryKind::Counts(group_by),
        bounds: validate::default_result_limits(),
    };
    match run_query(executor, reader, profile_query).await? {
        PartialResult::Counts(counts) => Ok(counts),
        _ => Err(unexpected_result_type()),
    }
}
