//! List queries: profile types, labels, series and time ranges.

use athanor_chassis::{Status, TenantId};
use athanor_profile::Labels;
use athanor_proto::querier::v1::{ProfileTypesRequest, ProfileTypesResponse, SeriesRequest, SeriesResponse};
use athanor_proto::types::v1::{
    GetProfileStatsRequest, GetProfileStatsResponse, LabelNamesRequest, LabelNamesResponse, LabelPair,
    LabelValuesRequest, LabelValuesResponse, Labels as WireLabels, ProfileType,
};
use athanor_query::{
    LabelValuesQuery, PartialResult, ProfileQuery, ProfileSelection, QueryKind, ResultLimits,
};

use crate::api::selection::check_on_pool;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::replan::{PlanAttempt, SourceQueryError};
use crate::execute::run_query::run_query;
use crate::validate::{self, NANOS_PER_MILLI};
use crate::{DataTimeRange, QueryContext};

/// Default range of a request for profile types or an estimate: the last hour, in milliseconds.
const DEFAULT_RANGE_MILLIS: i64 = 60 * 60 * 1_000;
/// Maximum number of label values in a response. The memory budget is usually a tighter limit.
const MAX_LABEL_VALUES: usize = 8_000_000;

pub(crate) async fn profile_types(
    executor: &QueryExecutor,
    reader: &QueryContext,
    mut request: ProfileTypesRequest,
) -> Result<ProfileTypesResponse, Status> {
    (request.start, request.end) = range_or_last_hour(executor, request.start, request.end);
    run_cached(executor, reader, "ProfileTypes", request, |request| types_of(executor, reader, request)).await
}

async fn types_of(
    executor: &QueryExecutor,
    reader: &QueryContext,
    ProfileTypesRequest { start, end }: ProfileTypesRequest,
) -> Result<ProfileTypesResponse, Status> {
    let selection =
        ProfileSelection { time: validate::parse_range(start, end)?, ..ProfileSelection::default() };
    let ask =
        ProfileQuery { selection, what: QueryKind::ProfileTypes, bounds: validate::default_result_limits() };
    let PartialResult::ProfileTypes(types) = run_query(executor, reader, ask).await? else {
        return Err(unexpected_result_type());
    };
    let mut profile_types: Vec<ProfileType> = types
        .into_iter()
        .map(|one| ProfileType {
            id: one.to_string(),
            name: one.name,
            sample_type: one.value.kind,
            sample_unit: one.value.unit,
            period_type: one.period.kind,
            period_unit: one.period.unit,
        })
        .collect();
    profile_types.sort_unstable_by(|left, right| left.id.cmp(&right.id));
    Ok(ProfileTypesResponse { profile_types, warnings: reader.warnings() })
}

/// Returns the range in milliseconds, or the last hour if the request has none.
pub(crate) fn range_or_last_hour(executor: &QueryExecutor, start: i64, end: i64) -> (i64, i64) {
    match (start, end) {
        (0, 0) => {
            let now = executor.deps.clock.wall().millis();
            (now - DEFAULT_RANGE_MILLIS, now)
        }
        range => range,
    }
}

pub(crate) async fn label_names(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: LabelNamesRequest,
) -> Result<LabelNamesResponse, Status> {
    run_cached(executor, reader, "LabelNames", request, |request| names_of(executor, reader, request)).await
}

async fn names_of(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: LabelNamesRequest,
) -> Result<LabelNamesResponse, Status> {
    let LabelNamesRequest { matchers, start, end, prefix, limit, counts: has_counts } = request;
    let selection = parse_matchers(executor, &matchers, start, end).await?;
    let limit = validate::parse_limit(Some(limit)).unwrap_or(usize::MAX);
    let what = match has_counts {
        true => QueryKind::LabelNameCounts { prefix: prefix.clone() },
        false => QueryKind::LabelNames,
    };
    let ask = ProfileQuery { selection, what, bounds: validate::default_result_limits() };
    let found: Vec<(String, u64)> = match run_query(executor, reader, ask).await? {
        PartialResult::Texts(names) => names.into_iter().map(|name| (name, 0)).collect(),
        PartialResult::Values(names) => names.into_counts().into_iter().collect(),
        _ => return Err(unexpected_result_type()),
    };
    let context = reader.clone();
    executor
        .render_on_pool(reader, move || {
            // The client may not accept some names, so the limit applies to the rest.
            let is_shown = |name: &str| name.starts_with(&prefix) && context.shows_label(name);
            let mut shown = found.into_iter().filter(|(name, _)| is_shown(name));
            let page: Vec<(String, u64)> = shown.by_ref().take(limit).collect();
            let more = shown.next().is_some();
            let counts = page.iter().filter(|_| has_counts).map(|(_, count)| wire_count(*count)).collect();
            let names = page.into_iter().map(|(name, _)| name).collect();
            LabelNamesResponse { names, counts, more, warnings: context.warnings() }
        })
        .await
}

fn wire_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(crate) async fn label_values(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: LabelValuesRequest,
) -> Result<LabelValuesResponse, Status> {
    run_cached(executor, reader, "LabelValues", request, |request| values_of(executor, reader, request)).await
}

async fn values_of(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: LabelValuesRequest,
) -> Result<LabelValuesResponse, Status> {
    if request.name.is_empty() {
        return Err(validate::invalid_argument("request names no label; set name"));
    }
    let selection = parse_matchers(executor, &request.matchers, request.start, request.end).await?;
    let limit = validate::parse_limit(Some(request.limit)).unwrap_or(usize::MAX);
    // One more value shows that the list is incomplete.
    let most = limit.checked_add(1).map_or(0, |most| most as u64);
    let what = QueryKind::LabelValues(LabelValuesQuery { name: request.name, prefix: request.prefix, most });
    let bounds = ResultLimits { entries: MAX_LABEL_VALUES, ..validate::default_result_limits() };
    let ask = ProfileQuery { selection, what, bounds };
    let PartialResult::Values(values) = run_query(executor, reader, ask).await? else {
        return Err(unexpected_result_type());
    };
    let warnings = reader.warnings();
    executor
        .render_on_pool(reader, move || {
            let values = values.into_counts();
            let more = values.len() > limit;
            let shown = values.into_iter().take(limit).map(|(value, profiles)| (value, wire_count(profiles)));
            let (names, counts) = shown.unzip();
            LabelValuesResponse { names, counts, more, warnings }
        })
        .await
}

pub(crate) async fn series(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SeriesRequest,
) -> Result<SeriesResponse, Status> {
    run_cached(executor, reader, "Series", request, |request| compute_series(executor, reader, request)).await
}

async fn compute_series(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SeriesRequest,
) -> Result<SeriesResponse, Status> {
    validate::check_labels(&request.label_names)?;
    let selection = parse_matchers(executor, &request.matchers, request.start, request.end).await?;
    let ask = ProfileQuery {
        selection,
        what: QueryKind::Series(request.label_names),
        bounds: validate::default_result_limits(),
    };
    let PartialResult::Series(series) = run_query(executor, reader, ask).await? else {
        return Err(unexpected_result_type());
    };
    let whose = reader.clone();
    executor
        .render_on_pool(reader, move || {
            let shown = |labels: &Labels| WireLabels {
                labels: labels
                    .iter()
                    .filter(|(name, _)| whose.shows_label(name))
                    .map(|(name, value)| LabelPair { name: name.to_owned(), value: value.to_owned() })
                    .collect(),
            };
            let mut labels_set: Vec<WireLabels> = series.iter().map(shown).collect();
            labels_set.retain(|labels| !labels.labels.is_empty());
            // Sets may differ only in hidden labels.
            labels_set.dedup();
            SeriesResponse { labels_set, warnings: whose.warnings() }
        })
        .await
}

async fn parse_matchers(
    executor: &QueryExecutor,
    matchers: &[String],
    start: i64,
    end: i64,
) -> Result<ProfileSelection, Status> {
    let time = validate::parse_range(start, end)?;
    let owned = matchers.to_vec();
    let texts = matchers.iter().map(String::as_str).collect::<Vec<_>>();
    let selector = check_on_pool(executor, &texts, move || validate::parse_selectors(&owned)).await?;
    Ok(ProfileSelection { selector, time, ..ProfileSelection::default() })
}

pub(crate) async fn get_profile_stats(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: GetProfileStatsRequest,
) -> Result<GetProfileStatsResponse, Status> {
    run_cached(executor, reader, "GetProfileStats", request, |_| stats_of(executor, reader)).await
}

async fn stats_of(
    executor: &QueryExecutor,
    reader: &QueryContext,
) -> Result<GetProfileStatsResponse, Status> {
    reader.mark_planned();
    let mut span: Option<(i64, i64)> = None;
    for tenant in reader.tenants() {
        let of_tenant = tenant_time_range(executor, reader, tenant).await?;
        span = match (span, of_tenant) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        };
    }
    let (oldest, newest) = span.unwrap_or_default();
    Ok(GetProfileStatsResponse {
        data_ingested: span.is_some(),
        oldest_profile_time: oldest.div_euclid(NANOS_PER_MILLI),
        newest_profile_time: newest.div_euclid(NANOS_PER_MILLI),
        warnings: reader.warnings(),
    })
}

/// Returns the time range of a tenant's profiles. Retries with a new listing while listings are outdated.
async fn tenant_time_range(
    executor: &QueryExecutor,
    reader: &QueryContext,
    tenant: &TenantId,
) -> Result<Option<(i64, i64)>, Status> {
    let mut attempt = PlanAttempt::default();
    loop {
        let DataTimeRange { span, warnings, moved } = executor.deps.sources.data_time_range(tenant).await?;
        let without: Result<Vec<String>, SourceQueryError> =
            moved.into_iter().map(|why| attempt.warn_or_replan(SourceQueryError::Replan(why))).collect();
        match without {
            Ok(without) => {
                reader.add_warnings(warnings.into_iter().chain(without).collect());
                return Ok(span);
            }
            Err(asked) => attempt = attempt.next_attempt(asked)?,
        }
    }
}
