//! The single profiles that a query merges.

use athanor_chassis::Status;
use athanor_proto::athanor::v1::{ProfileOrder as WireOrder, ProfileRow, ProfilesRequest, ProfilesResponse};
use athanor_query::{
    PartialResult, ProfileListEntry, ProfileListQuery, ProfileOrder, ProfileQuery, QueryKind,
};

use super::wire::{parse_enum, parse_page, parse_query, resolution_text, visible_labels};
use crate::QueryContext;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate::{self, invalid_argument};

/// Maximum number of profiles that are sorted: those of all pages up to the last requested one.
const MAX_LISTED_PROFILES: u64 = 100_000;
/// Memory of a row beside its labels.
const PROFILE_ROW_BYTES: usize = 320;

pub(crate) async fn profiles(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: ProfilesRequest,
) -> Result<ProfilesResponse, Status> {
    run_cached(executor, reader, "Profiles", request, |request| list_profiles(executor, reader, request))
        .await
}

async fn list_profiles(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: ProfilesRequest,
) -> Result<ProfilesResponse, Status> {
    let query = parse_query(executor, request.query, "query").await?;
    let page = parse_page(request.page)?;
    let order = match parse_enum("order", request.order)? {
        WireOrder::Newest => ProfileOrder::Newest,
        WireOrder::Heaviest => ProfileOrder::Heaviest,
    };
    let keep = (page.offset + page.limit) as u64;
    if keep > MAX_LISTED_PROFILES {
        return Err(invalid_argument(format!(
            "page ends at row {keep}, the limit is {MAX_LISTED_PROFILES}; end the time range at the timestamp of the last row"
        )));
    }
    let unit = query.unit();
    let what = QueryKind::Profiles(ProfileListQuery { order, keep, stacks: query.stacks.filter });
    let profile_query =
        ProfileQuery { selection: query.selection, what, bounds: validate::default_result_limits() };
    let PartialResult::Profiles(list) = run_query(executor, reader, profile_query).await? else {
        return Err(unexpected_result_type());
    };
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            let shown = || page.page_rows(list.entries());
            let bytes = |row: &ProfileListEntry| {
                PROFILE_ROW_BYTES + 2 * row.labels.text_bytes() + 64 * row.labels.len()
            };
            job_executor.reserve_memory(&held, shown().map(bytes).sum())?;
            let rows = shown().map(|one| ProfileRow {
                id: validate::format_uuid(one.id),
                labels: visible_labels(&one.labels, &held),
                time_nanos: one.time,
                duration_nanos: one.duration,
                period: one.period,
                total: one.total,
            });
            let rows = rows.collect();
            let resolution = resolution_text(&held);
            Ok(ProfilesResponse { unit, count: list.profiles, rows, warnings: held.warnings(), resolution })
        })
        .await?
}
