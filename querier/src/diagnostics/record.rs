//! Record of a query: its contents, its limits and its JSON form.

use std::time::Duration;

use athanor_chassis::{Status, TenantId, Timestamp};
use athanor_query::{PartialOriginCounts, ProfileQuery, QueryKind};
use serde_json::{Value, json};

use super::QueryRecordSummary;
use crate::QueryPlan;

/// Maximum number of recorded queries of one request. Usually there are two or three.
const MAX_TRACED_QUERIES: usize = 16;
/// Maximum number of sources of a query that are listed individually.
const MAX_TRACED_SOURCES: usize = 64;
/// Maximum number of listed plans of a query, of shards of a source, and of warnings.
const MAX_LISTED_ITEMS: usize = 16;
/// Maximum length of a text in bytes.
const MAX_TEXT_BYTES: usize = 512;
/// Maximum size of a record in bytes.
const MAX_RECORD_BYTES: usize = 64 << 10;

/// Queries of one request and the facts on their execution.
#[derive(Default)]
pub(super) struct TracedRequest {
    queries: Vec<TracedQuery>,
    omitted_queries: usize,
    /// True if the response came from the result cache.
    pub(super) from_results_cache: bool,
    /// True if the response came from an equal request in flight.
    pub(super) coalesced: bool,
}

/// Query to all sources of all tenants of the request.
#[derive(Default)]
pub(super) struct TracedQuery {
    kind: &'static str,
    profile_type: String,
    selector: String,
    time: (i64, i64),
    pub(super) queue_time: Duration,
    pub(super) plan_time: Duration,
    pub(super) fetch_time: Duration,
    pub(super) merge_time: Duration,
    /// End of the query on the monotonic clock.
    pub(super) end: Duration,
    plans: Vec<Value>,
    plan_count: usize,
    totals: SourceTotals,
    /// Slowest sources, the slowest first.
    sources: Vec<SourceReport>,
}

/// Sums over all sources of a query.
#[derive(Default)]
struct SourceTotals {
    sources: u64,
    failed: u64,
    heads: u64,
    blocks: u64,
    shards: u64,
    bytes: u64,
    origins: PartialOriginCounts,
}

/// Report on one source of a query.
#[derive(Clone, Debug, Default)]
pub struct SourceReport {
    /// Kind of the source.
    pub kind: SourceKind,
    /// Node that ran the query. None for this node.
    pub node: Option<u64>,
    /// Time until the result was merged or the source failed.
    pub duration: Duration,
    /// Part of that time on another node.
    pub remote: Option<RemoteTimes>,
    /// Bytes received from another node.
    pub bytes: u64,
    /// Origins of the results of blocks.
    pub origins: PartialOriginCounts,
    /// Error message if the source failed.
    pub error: Option<String>,
}

/// Times of a query on another node.
#[derive(Clone, Copy, Debug)]
pub struct RemoteTimes {
    /// Time in the queue for a permit.
    pub queue: Duration,
    /// Time of the execution.
    pub execution: Duration,
}

/// Kind of a source, with its identity.
#[derive(Clone, Debug, Default)]
pub enum SourceKind {
    /// Head of this node.
    #[default]
    Head,
    /// Block that this node reads.
    Block(String),
    /// Number of blocks in one call, or of blocks read on this node because no other node could.
    Blocks(usize),
    /// Shards that another node leads.
    Shards(Vec<u32>),
}

/// All recorded facts of a request.
pub(super) struct QueryRecord<'a> {
    pub(super) id: String,
    pub(super) node: u64,
    pub(super) call: &'static str,
    pub(super) tenants: &'a [TenantId],
    pub(super) time: Timestamp,
    pub(super) duration: Duration,
    /// Time since the end of the last query, which rendering takes.
    pub(super) render_time: Duration,
    pub(super) error: Option<&'a Status>,
    pub(super) warnings: &'a [String],
    pub(super) request: &'a TracedRequest,
}

impl TracedRequest {
    /// Adds a query and returns its index. Returns none if the limit is reached.
    pub(super) fn begin_query(&mut self, query: &ProfileQuery) -> Option<usize> {
        if self.queries.len() == MAX_TRACED_QUERIES {
            self.omitted_queries += 1;
            return None;
        }
        let selection = &query.selection;
        let profile_type = selection.profile_type.as_ref();
        self.queries.push(TracedQuery {
            kind: kind_name(&query.what),
            profile_type: profile_type
                .map(|profile_type| truncate(&profile_type.to_string()))
                .unwrap_or_default(),
            selector: truncate(&selection.selector.to_string()),
            time: (selection.time.from, selection.time.to),
            ..TracedQuery::default()
        });
        Some(self.queries.len() - 1)
    }

    pub(super) fn query_mut(&mut self, index: usize) -> Option<&mut TracedQuery> {
        self.queries.get_mut(index)
    }

    /// Returns the time when the last query ended.
    pub(super) fn last_query_end(&self) -> Option<Duration> {
        self.queries.iter().map(|query| query.end).filter(|end| !end.is_zero()).max()
    }
}

impl TracedQuery {
    pub(super) fn add_plan(&mut self, tenant: &TenantId, plan: &QueryPlan, duration: Duration) {
        self.plan_time += duration;
        self.plan_count += 1;
        if self.plans.len() == MAX_LISTED_ITEMS {
            return;
        }
        self.plans.push(json!({
            "tenant": tenant.as_str(),
            "planMillis": millis(duration),
            "blocks": plan.blocks,
            "heads": plan.sources.len(),
            "remoteShards": plan.shards,
            "calls": plan.remote.len(),
            "bytes": plan.bytes,
            "stale": plan.moved.iter().take(MAX_LISTED_ITEMS).map(|reason| truncate(reason)).collect::<Vec<_>>(),
        }));
    }

    pub(super) fn add_source(&mut self, mut source: SourceReport) {
        let SourceTotals { sources, failed, heads, blocks, shards, bytes, origins } = &mut self.totals;
        *sources += 1;
        *bytes += source.bytes;
        origins.add(source.origins);
        match &mut source.kind {
            _ if source.error.is_some() => *failed += 1,
            SourceKind::Head => *heads += 1,
            SourceKind::Block(_) => *blocks += 1,
            SourceKind::Blocks(count) => *blocks += *count as u64,
            SourceKind::Shards(ids) => *shards += ids.len() as u64,
        }
        if let SourceKind::Shards(ids) = &mut source.kind {
            ids.truncate(MAX_LISTED_ITEMS);
        }
        source.error = source.error.as_deref().map(truncate);
        let index = self.sources.partition_point(|other| other.duration >= source.duration);
        self.sources.insert(index, source);
        self.sources.truncate(MAX_TRACED_SOURCES);
    }

    fn to_json(&self, max_sources: usize) -> Value {
        let SourceTotals { sources, failed, heads, blocks, shards, bytes, origins } = &self.totals;
        let listed = &self.sources[..max_sources.min(self.sources.len())];
        json!({
            "kind": self.kind,
            "profileType": self.profile_type,
            "selector": self.selector,
            // Not all JSON parsers keep numbers of this size exactly.
            "fromNanos": self.time.0.to_string(),
            "toNanos": self.time.1.to_string(),
            "queueMillis": millis(self.queue_time),
            "planMillis": millis(self.plan_time),
            "fetchMillis": millis(self.fetch_time),
            "mergeMillis": millis(self.merge_time),
            "plans": self.plans,
            "plansOmitted": self.plan_count - self.plans.len(),
            "totals": {
                "sources": sources, "failed": failed, "heads": heads, "blocks": blocks, "shards": shards,
                "bytesReceived": bytes, "cache": origins_to_json(*origins),
            },
            "slowestSources": listed.iter().map(SourceReport::to_json).collect::<Vec<_>>(),
            "sourcesOmitted": sources - listed.len() as u64,
        })
    }
}

impl SourceReport {
    fn to_json(&self) -> Value {
        let mut report = match &self.kind {
            SourceKind::Head => json!({ "head": true }),
            SourceKind::Block(name) => json!({ "block": name }),
            SourceKind::Blocks(count) => json!({ "blocks": count }),
            SourceKind::Shards(shards) => json!({ "shards": shards }),
        };
        report["totalMillis"] = millis(self.duration).into();
        if let Some(node) = self.node {
            report["node"] = format!("{node:016x}").into();
            report["bytesReceived"] = self.bytes.into();
        }
        if let Some(RemoteTimes { queue, execution }) = self.remote {
            report["remote"] = json!({ "queueMillis": millis(queue), "executeMillis": millis(execution) });
        }
        if self.origins != PartialOriginCounts::default() {
            report["cache"] = origins_to_json(self.origins);
        }
        if let Some(error) = &self.error {
            report["error"] = error.as_str().into();
        }
        report
    }
}

/// Returns the origins of block results as JSON.
fn origins_to_json(origins: PartialOriginCounts) -> Value {
    let PartialOriginCounts { memory, disk, coalesced, computed } = origins;
    json!({ "memory": memory, "disk": disk, "coalesced": coalesced, "computed": computed })
}

impl QueryRecord<'_> {
    pub(super) fn summary(&self) -> QueryRecordSummary {
        QueryRecordSummary {
            id: self.id.clone(),
            time_millis: self.time.millis(),
            call: self.call,
            outcome: self.outcome(),
            total_millis: millis(self.duration),
        }
    }

    fn outcome(&self) -> &'static str {
        self.error.map_or("ok", |status| status.code.name())
    }

    /// Encodes the record as JSON of at most `max_bytes`. An oversized record keeps only the slowest
    /// sources.
    pub(super) fn to_json_bytes(&self, max_bytes: usize) -> Vec<u8> {
        let tries = [MAX_TRACED_SOURCES, MAX_TRACED_SOURCES / 4, MAX_TRACED_SOURCES / 16, 0]
            .map(|sources| (MAX_TRACED_QUERIES, sources));
        let mut json = Vec::new();
        for (queries, sources) in tries.into_iter().chain([(0, 0)]) {
            json = self.to_json(queries, sources).to_string().into_bytes();
            if json.len() <= max_bytes.min(MAX_RECORD_BYTES) {
                break;
            }
        }
        json
    }

    fn to_json(&self, max_queries: usize, max_sources: usize) -> Value {
        let TracedRequest { queries, omitted_queries, .. } = self.request;
        let listed = &queries[..max_queries.min(queries.len())];
        let max_warnings = if max_queries == 0 { 0 } else { MAX_LISTED_ITEMS };
        let warnings = self.warnings.iter().take(max_warnings).map(|warning| truncate(warning));
        let mut record = json!({
            "id": self.id,
            "node": format!("{:016x}", self.node),
            "call": self.call,
            "tenants": self.tenants.iter().map(TenantId::as_str).collect::<Vec<_>>(),
            "timeMillis": self.time.millis(),
            "outcome": self.outcome(),
            "totalMillis": millis(self.duration),
            "renderMillis": millis(self.render_time),
            "fromResultsCache": self.request.from_results_cache,
            "coalesced": self.request.coalesced,
            "warnings": warnings.collect::<Vec<_>>(),
            "warningsOmitted": self.warnings.len().saturating_sub(max_warnings),
            "queries": listed.iter().map(|query| query.to_json(max_sources)).collect::<Vec<_>>(),
            "queriesOmitted": omitted_queries + queries.len() - listed.len(),
        });
        if let Some(status) = self.error {
            record["error"] = truncate(&status.message).into();
        }
        record
    }
}

/// Returns the name of a query kind.
fn kind_name(kind: &QueryKind) -> &'static str {
    match kind {
        QueryKind::ProfileTypes => "profile types",
        QueryKind::LabelNames => "label names",
        QueryKind::LabelNameCounts { .. } => "label name counts",
        QueryKind::LabelValues(_) => "label values",
        QueryKind::Series(_) => "series",
        QueryKind::Tree(_) => "tree",
        QueryKind::Profile(..) => "profile",
        QueryKind::OriginTree(_) => "tree with origins",
        QueryKind::Points(_) => "points",
        QueryKind::Heat(_) => "heat",
        QueryKind::Sizes => "sizes",
        QueryKind::Trees(_) => "trees",
        QueryKind::Profiles(_) => "profiles",
        QueryKind::Ids => "ids",
        QueryKind::Counts(_) => "counts",
        QueryKind::Samples(_) => "samples",
    }
}

/// Converts a duration to milliseconds with microsecond precision.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

fn truncate(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use athanor_chassis::ErrorCode;
    use athanor_query::{ProfileSelection, Selector};

    use super::*;

    #[test]
    fn record_with_many_long_texts_fits_its_limit() {
        // Each of its letters takes six in JSON.
        let long = "\u{1}".repeat(5_000);
        let selector = Selector::default().with_equal("pod", &long).unwrap();
        let query = ProfileQuery {
            selection: ProfileSelection { selector, ..ProfileSelection::default() },
            ..ProfileQuery::default()
        };
        let mut request = TracedRequest::default();
        for _ in 0..MAX_TRACED_QUERIES + 3 {
            let Some(index) = request.begin_query(&query) else { continue };
            let traced = request.query_mut(index).unwrap();
            for number in 0..1_000 {
                traced.add_source(SourceReport {
                    kind: SourceKind::Shards((0..1_000).collect()),
                    duration: Duration::from_millis(number % 300),
                    error: Some(long.clone()),
                    ..SourceReport::default()
                });
            }
            let slowest: Vec<u64> =
                traced.sources.iter().map(|source| source.duration.as_millis() as u64).collect();
            let expected: Vec<u64> =
                (0..300).rev().flat_map(|millis| [millis; 3]).take(MAX_TRACED_SOURCES).collect();
            assert_eq!(slowest, expected);
        }
        let tenants = vec![TenantId::anonymous(); 64];
        let warnings = vec![long.clone(); 100];
        let error = Status::new(ErrorCode::Internal, long);
        let record = QueryRecord {
            id: String::new(),
            node: 7,
            call: "a call",
            tenants: &tenants,
            time: Timestamp::UNIX_EPOCH,
            duration: Duration::ZERO,
            render_time: Duration::ZERO,
            error: Some(&error),
            warnings: &warnings,
            request: &request,
        };
        for limit in [MAX_RECORD_BYTES, 16 << 10] {
            let json = record.to_json_bytes(limit);
            assert!(json.len() <= limit, "{} of {limit}", json.len());
            let decoded: Value = serde_json::from_slice(&json).unwrap();
            let queries = decoded["queries"].as_array().unwrap().len();
            assert_eq!(decoded["queriesOmitted"], MAX_TRACED_QUERIES + 3 - queries);
        }
    }
}
