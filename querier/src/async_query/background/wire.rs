//! Results of async queries on the wire.

use athanor_proto::google::v1::{Function, Label, Line, Location, Mapping, Profile, Sample};
use athanor_proto::querier::v1::{FunctionStats, Level, Sandwich, SelectMergeStacktracesResponse};
use athanor_query::ResultResolution;
use bytes::Bytes;
use prost::Message;

use crate::QueryContext;

/// Result in encoded form, which takes a fraction of the memory of the decoded message.
pub(crate) struct StoredAsyncResult {
    pub(crate) bytes: Bytes,
    /// Memory of the decoded message in bytes.
    pub(crate) shown: usize,
}

/// State of an async query, as the node that runs it reports it.
pub struct AsyncQueryReport {
    /// State of the query.
    pub progress: AsyncQueryProgress,
    /// Warnings about data that the result lacks.
    pub warnings: Vec<String>,
    /// Resolution of the data behind the result.
    pub resolution: ResultResolution,
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
    pub(crate) fn from_response(answer: &SelectMergeStacktracesResponse) -> Self {
        StoredAsyncResult { bytes: answer.encode_to_vec().into(), shown: response_memory_bytes(answer) }
    }
}

impl AsyncQueryResult {
    /// Wraps a result that another node sent. The caller holds its memory.
    pub fn from_peer(bytes: Bytes, shown: usize) -> Self {
        Self { bytes, shown, keeper: None }
    }
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
