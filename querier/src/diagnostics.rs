//! Query diagnostics: a record of each request that demands one, which is available by the id in the
//! response.
//!
//! ```text
//!  Querier::with_diagnostics ─► QueryContext ─► RequestTrace ◄─ QueryTrace: queue, plan, sources, merge
//!                                                  │ finished, or all clients disconnected
//!                                                  ▼
//!                              QueryDiagnostics: JSON within a byte limit ─► query_record, query_records
//! ```
//! A record contains the queries of a request and the origin of their results. Only requests with the same
//! tenants can read it. Of a query with many sources the record lists the slowest, and sums of all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use athanor_chassis::{ByteSize, Clock, ErrorCode, Random, Status, TenantId, Timestamp};
use athanor_query::ProfileQuery;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;

use crate::async_query::query_handle::QueryHandleId;
use crate::fair_eviction::{self, EvictionCandidate};
use crate::{QueryContext, QueryPlan};

pub(crate) mod lookup;
mod record;

use record::{QueryRecord, TracedRequest};
pub use record::{RemoteTimes, SourceKind, SourceReport};

/// Each record counts for at least this fraction of the budget, so there are at most this many records.
const MAX_QUERY_RECORDS: usize = 256;

/// Store of query records.
pub(crate) struct QueryDiagnostics {
    /// Id of this node.
    node: u64,
    random: Random,
    clock: Clock,
    /// Byte limit of all records. One tenant may use at most half of it.
    bytes: usize,
    records: Mutex<BTreeMap<QueryHandleId, StoredQueryRecord>>,
}

/// Stored record of one request.
struct StoredQueryRecord {
    tenants: Vec<TenantId>,
    since: Duration,
    summary: QueryRecordSummary,
    json: Bytes,
}

/// Summary of a record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryRecordSummary {
    /// Id of the record.
    pub id: String,
    /// Time of the request, milliseconds since 1970.
    pub time_millis: i64,
    /// Name of the called method.
    pub call: &'static str,
    /// `ok`, or the name of an error code.
    pub outcome: &'static str,
    /// Duration of the request in milliseconds.
    pub total_millis: f64,
}

/// Trace of one request in progress.
pub(crate) struct RequestTrace {
    diagnostics: Arc<QueryDiagnostics>,
    id: QueryHandleId,
    call: &'static str,
    tenants: Vec<TenantId>,
    time: Timestamp,
    /// Start of the request on the monotonic clock.
    start: Duration,
    /// True if an async query continues after the response.
    in_background: AtomicBool,
    /// None once the record is stored.
    request: Mutex<Option<TracedRequest>>,
}

/// Trace of one query of a request. Empty if diagnostics were not requested.
#[derive(Clone, Default)]
pub(crate) struct QueryTrace(Option<(Arc<RequestTrace>, usize)>);

impl QueryDiagnostics {
    /// Creates a store for a node of at most this many bytes. With zero bytes nothing is recorded.
    pub(crate) fn new(node: u64, random: Random, clock: Clock, bytes: ByteSize) -> Self {
        Self { node, random, clock, bytes: bytes.as_usize(), records: Mutex::default() }
    }

    fn insert_record(&self, id: QueryHandleId, record: StoredQueryRecord) {
        let min_bytes = self.bytes / MAX_QUERY_RECORDS;
        let mut records = self.records.lock();
        if record.json.len().max(min_bytes) > fair_eviction::tenant_quota(self.bytes) {
            return;
        }
        records.insert(id, record);
        let candidates = records.iter().map(|(key, record)| EvictionCandidate {
            key: *key,
            tenants: &record.tenants,
            bytes: record.json.len().max(min_bytes),
            since: record.since,
        });
        let victims = fair_eviction::select_victims(candidates.collect(), id, self.bytes);
        victims.iter().for_each(|victim| drop(records.remove(victim)));
    }

    /// Returns a record of the same tenants. Records of other tenants are treated as missing.
    fn find(&self, reader: &QueryContext, id: QueryHandleId) -> Option<Bytes> {
        let records = self.records.lock();
        let record = records.get(&id).filter(|record| record.tenants == reader.tenants())?;
        Some(record.json.clone())
    }
}

impl RequestTrace {
    /// Returns the id of the record.
    pub(crate) fn id(&self) -> String {
        self.id.to_string()
    }

    /// Defers the record until the async query ends.
    pub(crate) fn mark_async(&self) {
        self.in_background.store(true, Ordering::Relaxed);
    }

    /// Returns true if an async query continues after the response.
    pub(crate) fn is_async(&self) -> bool {
        self.in_background.load(Ordering::Relaxed)
    }

    /// Records that the response came from the result cache, without a query.
    pub(crate) fn record_cache_hit(&self) {
        if let Some(request) = self.request.lock().as_mut() {
            request.from_results_cache = true;
        }
    }

    /// Records that the response came from an equal request in flight, without a query.
    pub(crate) fn record_coalesced(&self) {
        if let Some(request) = self.request.lock().as_mut() {
            request.coalesced = true;
        }
    }

    /// Starts the trace of a query.
    pub(crate) fn start_query(self: &Arc<Self>, query: &ProfileQuery) -> QueryTrace {
        let index = self.request.lock().as_mut().and_then(|request| request.begin_query(query));
        QueryTrace(index.map(|index| (Arc::clone(self), index)))
    }

    /// Ends the request with its result or error, and stores the record. Later calls have no effect.
    pub(crate) fn finish_request(&self, error: Option<&Status>, warnings: &[String]) {
        let Some(request) = self.request.lock().take() else { return };
        let QueryDiagnostics { clock, node, .. } = &*self.diagnostics;
        let now = clock.monotonic();
        let record = QueryRecord {
            id: self.id(),
            node: *node,
            call: self.call,
            tenants: &self.tenants,
            time: self.time,
            duration: now.saturating_sub(self.start),
            render_time: now.saturating_sub(request.last_query_end().unwrap_or(self.start)),
            error,
            warnings,
            request: &request,
        };
        let summary = record.summary();
        let json = record.to_json_bytes(fair_eviction::tenant_quota(self.diagnostics.bytes)).into();
        let record = StoredQueryRecord { tenants: self.tenants.clone(), since: now, summary, json };
        self.diagnostics.insert_record(self.id, record);
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        self.finish_request(
            Some(&Status::new(ErrorCode::Cancelled, "client disconnected before the response")),
            &[],
        );
    }
}

impl std::fmt::Debug for RequestTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestTrace").field("id", &self.id).finish_non_exhaustive()
    }
}

impl QueryTrace {
    /// Returns the monotonic time, or zero if the trace is empty.
    pub(crate) fn now(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |(trace, _)| trace.diagnostics.clock.monotonic())
    }

    fn write(&self, write: impl FnOnce(&mut record::TracedQuery, Duration)) {
        let Some((trace, index)) = &self.0 else { return };
        let now = trace.diagnostics.clock.monotonic();
        if let Some(query) = trace.request.lock().as_mut().and_then(|request| request.query_mut(*index)) {
            write(query, now);
        }
    }

    /// Records the time that the query waited in the queue.
    pub(crate) fn record_queue_time(&self, since: Duration) {
        self.write(|query, now| query.queue_time = now.saturating_sub(since));
    }

    /// Records the plan of one tenant.
    pub(crate) fn record_plan(&self, tenant: &TenantId, plan: &QueryPlan, since: Duration) {
        self.write(|query, now| query.add_plan(tenant, plan, now.saturating_sub(since)));
    }

    /// Records the report of a source, successful or not.
    pub(crate) fn record_source(&self, source: SourceReport) {
        self.write(|query, _| query.add_source(source));
    }

    /// Runs a merge step and adds its duration.
    pub(crate) fn measure_merge<R>(&self, work: impl FnOnce() -> R) -> R {
        let since = self.now();
        let result = work();
        self.write(|query, now| query.merge_time += now.saturating_sub(since));
        result
    }

    /// Records that all sources are merged, or that one failed.
    pub(crate) fn record_fetch_end(&self, since: Duration) {
        self.write(|query, now| {
            query.fetch_time = now.saturating_sub(since).saturating_sub(query.plan_time);
            query.end = now;
        });
    }
}
