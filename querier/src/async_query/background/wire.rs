//! Async queries on the wire.

use athanor_chassis::{ErrorCode, Status};
use athanor_proto::google::v1::{Function, Label, Line, Location, Mapping, Profile, Sample};
use athanor_proto::querier::v1::{
    AsyncQueryResponse, AsyncQueryStatus, AsyncQueryType, FunctionStats, Level, Sandwich,
    SelectMergeStacktracesRequest, SelectMergeStacktracesResponse,
};
use bytes::Bytes;
use prost::Message;

use super::{AsyncQueryState, unknown_query_error};
use crate::api::merge::MergeStacktracesParams;
use crate::async_query::query_handle::{PeerRequest, QueryHandleId};
use crate::{Querier, QueryContext};

/// Result in encoded form, which takes a fraction of the memory of the decoded message.
pub(crate) struct StoredAsyncResult {
    bytes: Bytes,
    /// Memory of the decoded message in bytes.
    shown: usize,
}

/// State of an async query, as the node that runs it reports it.
pub struct AsyncQueryReport {
    /// State of the query.
    pub progress: AsyncQueryProgress,
    /// Warnings about data that the result lacks.
    pub warnings: Vec<String>,
}

/// State of an async query for its client.
pub enum AsyncQueryProgress {
    /// The query is running.
    Running,
    /// The query failed with this error message.
    Failed(String),
    /// The query succeeded with this result.
    Done(AsyncQueryResult),
}

/// Stored result, local or received from the node that stores it.
pub struct AsyncQueryResult {
    /// Encoded response message.
    pub bytes: Bytes,
    /// Memory of the decoded message in bytes.
    pub shown: usize,
    /// Context that holds the memory of a local result.
    pub(crate) keeper: Option<QueryContext>,
}

impl StoredAsyncResult {
    fn from_response(answer: &SelectMergeStacktracesResponse) -> Self {
        StoredAsyncResult { bytes: answer.encode_to_vec().into(), shown: response_memory_bytes(answer) }
    }
}

impl AsyncQueryResult {
    /// Wraps a result that another node sent. The caller holds its memory.
    pub fn from_peer(bytes: Bytes, shown: usize) -> Self {
        Self { bytes, shown, keeper: None }
    }
}

impl Querier {
    /// Returns merged stacks in the requested format. Starts or polls an async query if the request demands
    /// that.
    pub async fn select_merge_stacktraces(
        &self,
        reader: &QueryContext,
        mut request: SelectMergeStacktracesRequest,
    ) -> Result<SelectMergeStacktracesResponse, Status> {
        let asked = request.r#async.take().unwrap_or_default();
        if !asked.request_id.is_empty() {
            return self.poll_async(reader, asked.request_id).await;
        }
        let background = self.standing.as_ref().map(|standing| &standing.background);
        let is_wanted = asked.r#type == AsyncQueryType::Force as i32;
        let Some(background) = background.filter(|background| is_wanted && background.is_enabled()) else {
            let answer = async |request| {
                self.merge_stacktraces(reader, self.parse_stacktraces_request(reader, request).await?).await
            };
            return self.run_cached(reader, "SelectMergeStacktraces", request, answer).await;
        };
        // Invalid requests are rejected before the query starts.
        let stacks = self.parse_stacktraces_request(reader, request).await?;
        let querier = self.clone();
        let query = |reader: QueryContext| async move {
            let kept = querier.run_async(&reader, stacks).await;
            reader.finish_request(kept.as_ref().err());
            kept
        };
        let begun = background.start_query(reader.fork_async(), query);
        let ticket = begun.inspect_err(|status| drop(reader.fork_async().finish_request(Some(status))))?;
        Ok(progress(ticket.to_string(), AsyncQueryStatus::InProgress, String::new()))
    }

    /// Computes and encodes the result of an async query.
    async fn run_async(
        &self,
        reader: &QueryContext,
        stacks: MergeStacktracesParams,
    ) -> Result<StoredAsyncResult, Status> {
        let answer = self.merge_stacktraces(reader, stacks).await?;
        let kept = self.render_on_pool(reader, move || StoredAsyncResult::from_response(&answer)).await?;
        let held = reader.shrink_held_memory(kept.bytes.len());
        self.reserve_memory(reader, kept.bytes.len() - held)?;
        Ok(kept)
    }

    /// Returns the state of an async query, from the node that runs it.
    async fn poll_async(
        &self,
        reader: &QueryContext,
        request_id: String,
    ) -> Result<SelectMergeStacktracesResponse, Status> {
        let ticket = QueryHandleId::parse(&request_id).ok_or_else(|| unknown_query_error(&request_id))?;
        let looked = match self.standing.as_ref().and_then(|standing| standing.peer_of(ticket)) {
            Some(other) => {
                let errand = PeerRequest { reader, room: &self.room, clock: &self.deps.clock };
                other.poll_async_query(ticket, &errand).await?
            }
            None => self.poll_local(reader, &request_id)?,
        };
        reader.add_warnings(looked.warnings);
        match looked.progress {
            AsyncQueryProgress::Running => {
                Ok(progress(request_id, AsyncQueryStatus::InProgress, String::new()))
            }
            AsyncQueryProgress::Failed(why) => Ok(progress(request_id, AsyncQueryStatus::Failure, why)),
            AsyncQueryProgress::Done(AsyncQueryResult { bytes, shown, keeper }) => {
                // The response is in memory both as a value and as bytes.
                self.reserve_memory(reader, shown.saturating_add(bytes.len()))?;
                let read = move || {
                    let read = SelectMergeStacktracesResponse::decode(bytes);
                    drop(keeper);
                    read
                };
                let unreadable =
                    |error: prost::DecodeError| Status::new(ErrorCode::Internal, error.to_string());
                let mut answer = self.compute_on_pool(reader, read).await?.map_err(unreadable)?;
                answer.r#async = progress(request_id, AsyncQueryStatus::Success, String::new()).r#async;
                Ok(answer)
            }
        }
    }

    /// Returns the state of an async query of this node. On behalf of a peer, `reader` is that peer's client.
    pub fn poll_local(&self, reader: &QueryContext, id: &str) -> Result<AsyncQueryReport, Status> {
        let of = self.standing.as_ref().zip(QueryHandleId::parse(id));
        let (standing, ticket) = of.ok_or_else(|| unknown_query_error(id))?;
        let (state, keeper) = standing.background.poll_query(reader, ticket)?;
        let warnings = keeper.warnings();
        let progress = match state {
            AsyncQueryState::Running => AsyncQueryProgress::Running,
            AsyncQueryState::Failed(status) => AsyncQueryProgress::Failed(status.message),
            AsyncQueryState::Done(kept) => AsyncQueryProgress::Done(AsyncQueryResult {
                bytes: kept.bytes.clone(),
                shown: kept.shown,
                keeper: Some(keeper),
            }),
        };
        Ok(AsyncQueryReport { progress, warnings })
    }
}

fn progress(
    request_id: String,
    status: AsyncQueryStatus,
    error_message: String,
) -> SelectMergeStacktracesResponse {
    let of = AsyncQueryResponse { request_id, status: status as i32, error_message };
    SelectMergeStacktracesResponse { r#async: Some(of), ..SelectMergeStacktracesResponse::default() }
}

/// Returns the memory of a response.
fn response_memory_bytes(answer: &SelectMergeStacktracesResponse) -> usize {
    let graph = answer.flamegraph.iter().map(|graph| {
        let level = |level: &Level| size_of::<Level>() + size_of_val(level.values.as_slice());
        texts(&graph.names) + graph.levels.iter().map(level).sum::<usize>()
    });
    let profile = answer.pprof.iter().filter_map(|pprof| pprof.profile.as_ref()).map(profile_memory_bytes);
    let functions = answer.functions.iter().flat_map(|table| &table.functions);
    let functions = functions.map(|function| size_of::<FunctionStats>() + function.name.len());
    let sandwich = answer.sandwich.iter().map(sandwich_memory_bytes);
    graph.chain(profile).chain(functions).chain(sandwich).sum::<usize>()
        + answer.tree.len()
        + answer.dot.len()
}

fn sandwich_memory_bytes(sandwich: &Sandwich) -> usize {
    let halves = [&sandwich.callers, &sandwich.callees].into_iter().flatten();
    texts(&sandwich.names) + halves.map(|half| size_of_val(half.nodes.as_slice())).sum::<usize>()
}

fn profile_memory_bytes(profile: &Profile) -> usize {
    let sample = |sample: &Sample| {
        let ids = sample.location_id.len() + sample.value.len();
        size_of::<Sample>() + ids * size_of::<u64>() + sample.label.len() * size_of::<Label>()
    };
    let location = |location: &Location| size_of::<Location>() + location.line.len() * size_of::<Line>();
    profile.sample.iter().map(sample).sum::<usize>()
        + profile.location.iter().map(location).sum::<usize>()
        + profile.function.len() * size_of::<Function>()
        + profile.mapping.len() * size_of::<Mapping>()
        + texts(&profile.string_table)
}

fn texts(texts: &[String]) -> usize {
    texts.iter().map(|text| size_of::<String>() + text.len()).sum()
}
