//! Cost estimates on the wire.

use athanor_chassis::Status;
use athanor_profile::ProfileType;
use athanor_profile::store_interface::series::METRIC_NAME_LABEL;
use athanor_proto::querier::v1::{AnalyzeQueryRequest, AnalyzeQueryResponse, QueryImpact, QueryScope};
use athanor_query::{ProfileSelection, QueryCost, Selector, SourceCost};

use super::estimate_cost;
use crate::QueryContext;
use crate::api::lists::range_or_last_hour;
use crate::api::selection::check_on_pool;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::validate;

/// Names of heads and blocks on the wire.
const HEAD_SCOPE_NAME: &str = "Short term";
const BLOCK_SCOPE_NAME: &str = "Long term";

pub(crate) async fn analyze_query(
    executor: &QueryExecutor,
    reader: &QueryContext,
    mut request: AnalyzeQueryRequest,
) -> Result<AnalyzeQueryResponse, Status> {
    (request.start, request.end) = range_or_last_hour(executor, request.start, request.end);
    run_cached(executor, reader, "AnalyzeQuery", request, |request| impact_of(executor, reader, request))
        .await
}

async fn impact_of(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: AnalyzeQueryRequest,
) -> Result<AnalyzeQueryResponse, Status> {
    let time = validate::parse_range(request.start, request.end)?;
    let query = request.query.clone();
    let of_type = check_on_pool(executor, &[&request.query], move || parse_typed_selector(&query)).await?;
    let selection = ProfileSelection { time, ..of_type };
    let sizes = estimate_cost(executor, reader, selection).await?;
    let warnings = reader.warnings();
    let resolution = reader.resolution().unwrap_or_default().to_string();
    // A union of many series takes a while.
    executor
        .render_on_pool(reader, move || AnalyzeQueryResponse { warnings, resolution, ..impact(sizes) })
        .await
}

fn impact(QueryCost { heads, blocks }: QueryCost) -> AnalyzeQueryResponse {
    let query_impact = Some(QueryImpact {
        total_bytes_in_time_range: heads.bytes().saturating_add(blocks.bytes()),
        total_queried_series: heads.series.union(&blocks.series).count() as u64,
        // Each profile is in one source.
        deduplication_needed: false,
    });
    let scopes = [(HEAD_SCOPE_NAME, heads, false), (BLOCK_SCOPE_NAME, blocks, true)];
    let query_scopes = scopes
        .into_iter()
        .filter(|(_, size, _)| size.sources > 0)
        .map(|(kind, size, is_block)| scope(kind, size, is_block))
        .collect();
    AnalyzeQueryResponse { query_scopes, query_impact, ..AnalyzeQueryResponse::default() }
}

/// Parses a selector. Its name may be a profile type. An empty text selects all series.
fn parse_typed_selector(query: &str) -> Result<ProfileSelection, Status> {
    if query.trim().is_empty() {
        return Ok(ProfileSelection::default());
    }
    let selector = validate::parse_selector(query)?;
    let mut rest = selector.clone();
    let profile_type = rest.take_equal(METRIC_NAME_LABEL).and_then(|name| name.parse::<ProfileType>().ok());
    let selector: Selector = if profile_type.is_some() { rest } else { selector };
    Ok(ProfileSelection { selector, profile_type, ..ProfileSelection::default() })
}

fn scope(kind: &str, size: SourceCost, is_block: bool) -> QueryScope {
    QueryScope {
        component_type: kind.to_owned(),
        component_count: size.sources,
        block_count: if is_block { size.sources } else { 0 },
        series_count: size.series.len() as u64,
        profile_count: size.profiles,
        sample_count: size.samples,
        index_bytes: size.index_bytes,
        profile_bytes: size.row_bytes,
        symbol_bytes: size.name_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_may_name_a_type_a_metric_or_nothing() {
        let of = |query: &str| {
            let ProfileSelection { selector, profile_type, .. } = parse_typed_selector(query).unwrap();
            (selector.to_string(), profile_type.map(|of| of.to_string()).unwrap_or_default())
        };
        let plain = |selector: &str, of: &str| (selector.to_owned(), of.to_owned());
        assert_eq!(of(r#"a:b:c:d:e{x="y"}"#), plain(r#"{x="y"}"#, "a:b:c:d:e"));
        assert_eq!(of(r#"cpu{x="y"}"#), plain(r#"{x="y", __name__="cpu"}"#, ""));
        assert_eq!([of(""), of(" {} ")], [plain("{}", ""), plain("{}", "")]);
        assert!(parse_typed_selector("{").is_err());
    }
}
