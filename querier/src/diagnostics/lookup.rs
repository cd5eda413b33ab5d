//! Start of a request's record, and the queries for stored records.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use athanor_chassis::{ErrorCode, Status};
use bytes::Bytes;
use parking_lot::Mutex;

use super::record::TracedRequest;
use super::{QueryRecordSummary, RequestTrace};
use crate::QueryContext;
use crate::async_query::peer_queriers::ClientState;
use crate::async_query::query_handle::{PeerRequest, QueryHandleId};
use crate::execute::executor::QueryExecutor;

pub(crate) fn with_diagnostics(
    standing: Option<&ClientState>,
    reader: QueryContext,
    call: &'static str,
) -> QueryContext {
    let diagnostics = standing.map(|standing| &standing.diagnostics);
    let Some(diagnostics) = diagnostics.filter(|diagnostics| diagnostics.bytes > 0) else {
        return reader;
    };
    let trace = RequestTrace {
        diagnostics: Arc::clone(diagnostics),
        id: QueryHandleId::generate(diagnostics.node, &diagnostics.random),
        call,
        tenants: reader.tenants().to_vec(),
        time: diagnostics.clock.wall(),
        start: diagnostics.clock.monotonic(),
        in_background: AtomicBool::new(false),
        request: Mutex::new(Some(TracedRequest::default())),
    };
    reader.with_trace(Arc::new(trace))
}

pub(crate) fn query_records(
    standing: Option<&ClientState>,
    reader: &QueryContext,
) -> Vec<QueryRecordSummary> {
    let Some(standing) = standing else { return Vec::new() };
    let records = standing.diagnostics.records.lock();
    let mut summaries: Vec<(Duration, &QueryRecordSummary)> = records
        .values()
        .filter(|record| record.tenants == reader.tenants())
        .map(|record| (record.since, &record.summary))
        .collect();
    summaries.sort_by_key(|(since, _)| std::cmp::Reverse(*since));
    summaries.into_iter().map(|(_, summary)| summary.clone()).collect()
}

pub(crate) async fn query_record(
    executor: &QueryExecutor,
    standing: Option<&ClientState>,
    reader: &QueryContext,
    id: &str,
) -> Result<Bytes, Status> {
    let handle_id = QueryHandleId::parse(id).ok_or_else(|| unknown_record_error(id))?;
    match standing.and_then(|standing| standing.peer_of(handle_id)) {
        Some(other) => {
            let errand = PeerRequest { reader, room: &executor.room, clock: &executor.deps.clock };
            other.query_record(handle_id, &errand).await
        }
        None => local_query_record(standing, reader, id),
    }
}

pub(crate) fn local_query_record(
    standing: Option<&ClientState>,
    reader: &QueryContext,
    id: &str,
) -> Result<Bytes, Status> {
    let standing = standing.zip(QueryHandleId::parse(id));
    standing
        .and_then(|(standing, id)| standing.diagnostics.find(reader, id))
        .ok_or_else(|| unknown_record_error(id))
}

/// Error for a record that does not exist.
fn unknown_record_error(id: &str) -> Status {
    let message = format!(
        "no query record {id:?}: it was evicted, or its node was restarted; repeat the query with the header X-Pyroscope-Collect-Diagnostics: true"
    );
    Status::new(ErrorCode::NotFound, message)
}
