//! Merged stacktraces, computed for the request or by an async query.

use athanor_chassis::{ErrorCode, Status};
use athanor_proto::querier::v1::{
    AsyncQueryResponse, AsyncQueryStatus, AsyncQueryType, SelectMergeStacktracesRequest,
    SelectMergeStacktracesResponse,
};
use prost::Message;

use crate::QueryContext;
use crate::api::merge::{MergeStacktracesParams, merge_stacktraces, parse_stacktraces_request};
use crate::async_query::background::{
    AsyncQueryProgress, AsyncQueryReport, AsyncQueryResult, AsyncQueryState, StoredAsyncResult,
    unknown_query_error,
};
use crate::async_query::peer_queriers::ClientState;
use crate::async_query::query_handle::{PeerRequest, QueryHandleId};
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;

pub(crate) async fn select_merge_stacktraces(
    executor: &QueryExecutor,
    standing: Option<&ClientState>,
    reader: &QueryContext,
    mut request: SelectMergeStacktracesRequest,
) -> Result<SelectMergeStacktracesResponse, Status> {
    let asked = request.r#async.take().unwrap_or_default();
    if !asked.request_id.is_empty() {
        return poll_async(executor, standing, reader, asked.request_id).await;
    }
    let background = standing.map(|standing| &standing.background);
    let is_wanted = asked.r#type == AsyncQueryType::Force as i32;
    let Some(background) = background.filter(|background| is_wanted && background.is_enabled()) else {
        let answer = async |request| {
            merge_stacktraces(executor, reader, parse_stacktraces_request(executor, reader, request).await?)
                .await
        };
        return run_cached(executor, reader, "SelectMergeStacktraces", request, answer).await;
    };
    // Invalid requests are rejected before the query starts.
    let stacks = parse_stacktraces_request(executor, reader, request).await?;
    let job_executor = executor.clone();
    let query = |reader: QueryContext| async move {
        let kept = run_async(&job_executor, &reader, stacks).await;
        reader.finish_request(kept.as_ref().err());
        kept
    };
    let begun = background.start_query(reader.fork_async(), query);
    let ticket = begun.inspect_err(|status| drop(reader.fork_async().finish_request(Some(status))))?;
    Ok(progress(ticket.to_string(), AsyncQueryStatus::InProgress, String::new()))
}

/// Computes and encodes the result of an async query.
async fn run_async(
    executor: &QueryExecutor,
    reader: &QueryContext,
    stacks: MergeStacktracesParams,
) -> Result<StoredAsyncResult, Status> {
    let answer = merge_stacktraces(executor, reader, stacks).await?;
    let kept = executor.render_on_pool(reader, move || StoredAsyncResult::from_response(&answer)).await?;
    let held = reader.shrink_held_memory(kept.bytes.len());
    executor.reserve_memory(reader, kept.bytes.len() - held)?;
    Ok(kept)
}

/// Returns the state of an async query, from the node that runs it.
async fn poll_async(
    executor: &QueryExecutor,
    standing: Option<&ClientState>,
    reader: &QueryContext,
    request_id: String,
) -> Result<SelectMergeStacktracesResponse, Status> {
    let ticket = QueryHandleId::parse(&request_id).ok_or_else(|| unknown_query_error(&request_id))?;
    let looked = match standing.and_then(|standing| standing.peer_of(ticket)) {
        Some(other) => {
            let errand = PeerRequest { reader, room: &executor.room, clock: &executor.deps.clock };
            other.poll_async_query(ticket, &errand).await?
        }
        None => poll_local(standing, reader, &request_id)?,
    };
    reader.add_warnings(looked.warnings);
    if matches!(looked.progress, AsyncQueryProgress::Done(_)) {
        reader.add_resolution(&looked.resolution);
    }
    match looked.progress {
        AsyncQueryProgress::Running => Ok(progress(request_id, AsyncQueryStatus::InProgress, String::new())),
        AsyncQueryProgress::Failed(why) => Ok(progress(request_id, AsyncQueryStatus::Failure, why)),
        AsyncQueryProgress::Done(AsyncQueryResult { bytes, shown, keeper }) => {
            // The response is in memory both as a value and as bytes.
            executor.reserve_memory(reader, shown.saturating_add(bytes.len()))?;
            let read = move || {
                let read = SelectMergeStacktracesResponse::decode(bytes);
                drop(keeper);
                read
            };
            let unreadable = |error: prost::DecodeError| Status::new(ErrorCode::Internal, error.to_string());
            let mut answer = executor.compute_on_pool(reader, read).await?.map_err(unreadable)?;
            answer.r#async = progress(request_id, AsyncQueryStatus::Success, String::new()).r#async;
            Ok(answer)
        }
    }
}

pub(crate) fn poll_local(
    standing: Option<&ClientState>,
    reader: &QueryContext,
    id: &str,
) -> Result<AsyncQueryReport, Status> {
    let of = standing.zip(QueryHandleId::parse(id));
    let (standing, ticket) = of.ok_or_else(|| unknown_query_error(id))?;
    let (state, keeper) = standing.background.poll_query(reader, ticket)?;
    let warnings = keeper.warnings();
    let resolution = keeper.resolution().unwrap_or_default();
    let progress = match state {
        AsyncQueryState::Running => AsyncQueryProgress::Running,
        AsyncQueryState::Failed(status) => AsyncQueryProgress::Failed(status.message),
        AsyncQueryState::Done(kept) => AsyncQueryProgress::Done(AsyncQueryResult {
            bytes: kept.bytes.clone(),
            shown: kept.shown,
            keeper: Some(keeper),
        }),
    };
    Ok(AsyncQueryReport { progress, warnings, resolution })
}

fn progress(
    request_id: String,
    status: AsyncQueryStatus,
    error_message: String,
) -> SelectMergeStacktracesResponse {
    let of = AsyncQueryResponse { request_id, status: status as i32, error_message };
    SelectMergeStacktracesResponse { r#async: Some(of), ..SelectMergeStacktracesResponse::default() }
}
