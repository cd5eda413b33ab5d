//! Samples of a query as an Arrow stream, in order of time.
//!
//! The stream reads the time range in slices, each by a query of its own. A slice is planned when the client has taken
//! the bytes of the one before, so a slow client slows the reads, and memory does not depend on the range.

use std::time::Duration;

use athanor_arrow_format::{SampleColumn, SampleColumns, StreamMetadata};
use athanor_chassis::{ErrorCode, Status};
use athanor_profile::encoding::hash::{ContentHash, hash_bytes};
use athanor_proto::athanor::v1::{Query, SamplesRequest};
use athanor_query::{
    PartialResult, ProfileQuery, ProfileSelection, QueryKind, RequiredResolution, Selector, StackFilter,
    TimeRange,
};
use prost::Message;

use super::wire::parse_query;
use crate::QueryContext;
use crate::context::limits;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate::{self, invalid_argument};

mod cursor;
mod pages;
mod stream;

pub use stream::SampleStream;

/// Maximum number of rows that a request may limit the stream to.
const MAX_LIMIT: u64 = 1_000_000_000;

/// Validated request.
struct SamplesPlan {
    selection: ProfileSelection,
    stacks: StackFilter,
    columns: SampleColumns,
    metadata: StreamMetadata,
    /// Maximum number of rows.
    limit: u64,
    cursor: String,
    /// Hash of tenants and query, which cursors contain.
    query_hash: ContentHash,
}

/// Starts a stream of samples. The schema and the first rows are read when it returns.
pub(crate) async fn samples(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SamplesRequest,
) -> Result<SampleStream, Status> {
    let mut plan = check_request(executor, reader, request).await?;
    let tenant_limits = executor.limits(reader);
    let time = plan.selection.time;
    let now = executor.deps.clock.wall();
    let (time, left_out) =
        limits::clamp_time_range(&tenant_limits, now, time, Duration::ZERO).map_err(|status| Status {
            message: format!("query.start and query.end: {}", status.message),
            ..status
        })?;
    reader.add_warnings(left_out.into_iter().collect());
    plan.selection.time = time;
    let profiles = count_profiles(executor, reader, plan.selection.clone()).await?;
    if profiles == 0 {
        check_type_has_data(executor, reader, &plan).await?;
    }
    stream::start(executor, reader, plan, profiles).await
}

async fn check_request(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SamplesRequest,
) -> Result<SamplesPlan, Status> {
    let query_text = serde_json::to_string(&request)
        .map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))?;
    let SamplesRequest { query, columns, limit, cursor } = request;
    let columns = SampleColumns::from_names(columns.iter().map(String::as_str))
        .map_err(|error| invalid_argument(error.to_string()))?
        .with_warnings();
    let limit = match limit {
        Some(limit) if !(1..=MAX_LIMIT).contains(&limit) => {
            return Err(invalid_argument(format!(
                "limit is {limit}, it must be from 1 to {MAX_LIMIT}; leave it out to get all rows"
            )));
        }
        Some(limit) => limit,
        None => u64::MAX,
    };
    let query_hash = query.as_ref().map(|query| hash_query(reader, query, &columns)).unwrap_or_default();
    let query = parse_query(executor, query, "query").await?;
    let metadata = StreamMetadata {
        query: query_text,
        unit: query.unit(),
        profile_type: query.profile_type.to_string(),
        ..StreamMetadata::default()
    };
    let query = query.with_single_profiles();
    let (selection, stacks) = (query.selection, query.stacks.filter);
    Ok(SamplesPlan { selection, stacks, columns, metadata, limit, cursor, query_hash })
}

/// Returns the hash that binds a cursor to the tenants and the query. Without columns of spans a profile has fewer rows, so
/// the columns count, too.
fn hash_query(reader: &QueryContext, query: &Query, columns: &SampleColumns) -> ContentHash {
    let mut content = Vec::new();
    for tenant in reader.tenants() {
        content.extend_from_slice(tenant.as_str().as_bytes());
        content.push(b'|');
    }
    for column in columns.iter() {
        content.extend_from_slice(column.name().as_bytes());
        content.push(b',');
    }
    content.extend_from_slice(&query.encode_to_vec());
    hash_bytes(&content)
}

/// Returns the number of selected profiles. The query also checks the bytes of the whole range, and reports sources that
/// do not respond.
async fn count_profiles(
    executor: &QueryExecutor,
    reader: &QueryContext,
    selection: ProfileSelection,
) -> Result<u64, Status> {
    let what = QueryKind::Counts(Vec::new());
    let query = ProfileQuery { selection, what, bounds: validate::default_result_limits() };
    match run_query(executor, reader, query).await? {
        PartialResult::Counts(counts) => Ok(counts.values().map(|count| count.raw).sum()),
        _ => Err(unexpected_result_type()),
    }
}

/// Rejects a profile type without any profile in the time range.
async fn check_type_has_data(
    executor: &QueryExecutor,
    reader: &QueryContext,
    plan: &SamplesPlan,
) -> Result<(), Status> {
    let ProfileSelection { profile_type, time, .. } = plan.selection.clone();
    let selection = ProfileSelection {
        selector: Selector::default(),
        profile_type,
        time,
        resolution: Some(RequiredResolution { single_profiles: true, steps: None }),
        ..ProfileSelection::default()
    };
    if count_profiles(executor, reader, selection).await? > 0 || !reader.warnings().is_empty() {
        return Ok(());
    }
    Err(Status::new(
        ErrorCode::NotFound,
        format!(
            "query.profile_type {:?} has no profiles from query.start to query.end; request ProfileTypes for those that exist, or widen the time range",
            plan.metadata.profile_type
        ),
    ))
}

impl SamplesPlan {
    /// Returns true if rows state their spans.
    fn has_spans(&self) -> bool {
        self.columns.contains(SampleColumn::SpanId) || self.columns.contains(SampleColumn::TraceId)
    }

    fn time(&self) -> TimeRange {
        self.selection.time
    }
}
