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
    questions: Vec<TracedQuery>,
    left_out: usize,
    /// True if the response came from the result cache.
    pub(super) was_told_before: bool,
    /// True if the response came from an equal request in flight.
    pub(super) was_told_along: bool,
}

/// Query to all sources of all tenants of the request.
#[derive(Default)]
pub(super) struct TracedQuery {
    what: &'static str,
    profile_type: String,
    selector: String,
    time: (i64, i64),
    pub(super) waited: Duration,
    pub(super) planned: Duration,
    pub(super) gathered: Duration,
    pub(super) merged: Duration,
    pub(super) ended: Duration,
    plans: Vec<Value>,
    plan_count: usize,
    sums: SourceTotals,
    /// Slowest sources, the slowest first.
    parts: Vec<SourceReport>,
}

/// Sums over all sources of a query.
#[derive(Default)]
struct SourceTotals {
    parts: u64,
    failed: u64,
    heads: u64,
    blocks: u64,
    shards: u64,
    bytes: u64,
    hits: PartialOriginCounts,
}

/// Report on one source of a query.
#[derive(Clone, Debug, Default)]
pub struct SourceReport {
    /// Kind of the source.
    pub of: SourceKind,
    /// Node that ran the query. None for this node.
    pub node: Option<u64>,
    /// Time until the result was merged or the source failed.
    pub took: Duration,
    /// Part of that time on another node: queue time and execution time.
    pub there: Option<(Duration, Duration)>,
    /// Bytes received from another node.
    pub bytes: u64,
    /// Origins of the results of blocks.
    pub hits: PartialOriginCounts,
    /// Error message if the source failed.
    pub failed: Option<String>,
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
    pub(super) took: Duration,
    /// Time since the end of the last query, which rendering takes.
    pub(super) shown: Duration,
    pub(super) failed: Option<&'a Status>,
    pub(super) warnings: &'a [String],
    pub(super) asked: &'a TracedRequest,
}

impl TracedRequest {
    /// Adds a query and returns its index. Returns none if the limit is reached.
    pub(super) fn begin_query(&mut self, ask: &ProfileQuery) -> Option<usize> {
        if self.questions.len() == MAX_TRACED_QUERIES {
            self.left_out += 1;
            return None;
        }
        let selection = &ask.selection;
        self.questions.push(TracedQuery {
            what: name(&ask.what),
            profile_type: selection.profile_type.as_ref().map(|of| cut(&of.to_string())).unwrap_or_default(),
            selector: cut(&selection.selector.to_string()),
            time: (selection.time.from, selection.time.to),
            ..TracedQuery::default()
        });
        Some(self.questions.len() - 1)
    }

    pub(super) fn query_mut(&mut self, place: usize) -> Option<&mut TracedQuery> {
        self.questions.get_mut(place)
    }

    /// Returns the time when the last query ended.
    pub(super) fn last_query_end(&self) -> Option<Duration> {
        self.questions.iter().map(|question| question.ended).filter(|ended| !ended.is_zero()).max()
    }
}

impl TracedQuery {
    pub(super) fn add_plan(&mut self, tenant: &TenantId, plan: &QueryPlan, took: Duration) {
        self.planned += took;
        self.plan_count += 1;
        if self.plans.len() == MAX_LISTED_ITEMS {
            return;
        }
        self.plans.push(json!({
            "tenant": tenant.as_str(),
            "milliseconds": millis(took),
            "blocks": plan.blocks,
            "heads": plan.sources.len(),
            "shardsElsewhere": plan.shards,
            "calls": plan.remote.len(),
            "bytes": plan.bytes,
            "moved": plan.moved.iter().take(MAX_LISTED_ITEMS).map(|why| cut(why)).collect::<Vec<_>>(),
        }));
    }

    pub(super) fn add_source(&mut self, mut part: SourceReport) {
        let SourceTotals { parts, failed, heads, blocks, shards, bytes, hits } = &mut self.sums;
        *parts += 1;
        *bytes += part.bytes;
        hits.add(part.hits);
        match &mut part.of {
            _ if part.failed.is_some() => *failed += 1,
            SourceKind::Head => *heads += 1,
            SourceKind::Block(_) => *blocks += 1,
            SourceKind::Blocks(count) => *blocks += *count as u64,
            SourceKind::Shards(of) => *shards += of.len() as u64,
        }
        if let SourceKind::Shards(of) = &mut part.of {
            of.truncate(MAX_LISTED_ITEMS);
        }
        part.failed = part.failed.as_deref().map(cut);
        let place = self.parts.partition_point(|other| other.took >= part.took);
        self.parts.insert(place, part);
        self.parts.truncate(MAX_TRACED_SOURCES);
    }

    fn to_json(&self, most: usize) -> Value {
        let SourceTotals { parts, failed, heads, blocks, shards, bytes, hits } = &self.sums;
        let told = &self.parts[..most.min(self.parts.len())];
        json!({
            "what": self.what,
            "profileType": self.profile_type,
            "selector": self.selector,
            // Not all JSON parsers keep numbers of this size exactly.
            "fromNanos": self.time.0.to_string(),
            "toNanos": self.time.1.to_string(),
            "milliseconds": {
                "waited": millis(self.waited),
                "planned": millis(self.planned),
                "gathered": millis(self.gathered),
                "merged": millis(self.merged),
            },
            "plans": self.plans,
            "plansLeftOut": self.plan_count - self.plans.len(),
            "sums": {
                "parts": parts, "failed": failed, "heads": heads, "blocks": blocks, "shards": shards,
                "bytesReceived": bytes, "cache": origins_to_json(*hits),
            },
            "slowest": told.iter().map(SourceReport::to_json).collect::<Vec<_>>(),
            "partsLeftOut": parts - told.len() as u64,
        })
    }
}

impl SourceReport {
    fn to_json(&self) -> Value {
        let mut shown = match &self.of {
            SourceKind::Head => json!({ "head": true }),
            SourceKind::Block(name) => json!({ "block": name }),
            SourceKind::Blocks(count) => json!({ "blocks": count }),
            SourceKind::Shards(shards) => json!({ "shards": shards }),
        };
        shown["milliseconds"] = millis(self.took).into();
        if let Some(node) = self.node {
            shown["node"] = format!("{node:016x}").into();
            shown["bytesReceived"] = self.bytes.into();
        }
        if let Some((waited, worked)) = self.there {
            shown["there"] = json!({ "waited": millis(waited), "worked": millis(worked) });
        }
        if self.hits != PartialOriginCounts::default() {
            shown["cache"] = origins_to_json(self.hits);
        }
        if let Some(why) = &self.failed {
            shown["failed"] = why.as_str().into();
        }
        shown
    }
}

/// Returns the origins of block results as JSON.
fn origins_to_json(PartialOriginCounts { memory, disk, coalesced, computed }: PartialOriginCounts) -> Value {
    json!({ "memory": memory, "disk": disk, "joined": coalesced, "read": computed })
}

impl QueryRecord<'_> {
    pub(super) fn summary(&self) -> QueryRecordSummary {
        QueryRecordSummary {
            id: self.id.clone(),
            time_millis: self.time.millis(),
            call: self.call,
            outcome: self.outcome(),
            milliseconds: millis(self.took),
        }
    }

    fn outcome(&self) -> &'static str {
        self.failed.map_or("ok", |status| status.code.name())
    }

    /// Encodes the record as JSON of at most `most` bytes. An oversized record keeps only the slowest
    /// sources.
    pub(super) fn to_json_bytes(&self, most: usize) -> Vec<u8> {
        let tries = [MAX_TRACED_SOURCES, MAX_TRACED_SOURCES / 4, MAX_TRACED_SOURCES / 16, 0]
            .map(|parts| (MAX_TRACED_QUERIES, parts));
        let mut written = Vec::new();
        for (questions, parts) in tries.into_iter().chain([(0, 0)]) {
            written = self.to_json(questions, parts).to_string().into_bytes();
            if written.len() <= most.min(MAX_RECORD_BYTES) {
                break;
            }
        }
        written
    }

    fn to_json(&self, questions: usize, parts: usize) -> Value {
        let told = &self.asked.questions[..questions.min(self.asked.questions.len())];
        let few = if questions == 0 { 0 } else { MAX_LISTED_ITEMS };
        let warnings = self.warnings.iter().take(few).map(|words| cut(words));
        let mut shown = json!({
            "id": self.id,
            "node": format!("{:016x}", self.node),
            "call": self.call,
            "tenants": self.tenants.iter().map(TenantId::as_str).collect::<Vec<_>>(),
            "timeMillis": self.time.millis(),
            "outcome": self.outcome(),
            "milliseconds": { "all": millis(self.took), "shown": millis(self.shown) },
            "keptAnswer": self.asked.was_told_before,
            "sharedAnswer": self.asked.was_told_along,
            "missing": warnings.collect::<Vec<_>>(),
            "missingLeftOut": self.warnings.len().saturating_sub(few),
            "questions": told.iter().map(|question| question.to_json(parts)).collect::<Vec<_>>(),
            "questionsLeftOut": self.asked.left_out + self.asked.questions.len() - told.len(),
        });
        if let Some(status) = self.failed {
            shown["error"] = cut(&status.message).into();
        }
        shown
    }
}

/// Returns the name of a query kind.
fn name(what: &QueryKind) -> &'static str {
    match what {
        QueryKind::ProfileTypes => "profile types",
        QueryKind::LabelNames => "label names",
        QueryKind::LabelValues(_) => "label values",
        QueryKind::Series(_) => "series",
        QueryKind::Tree(_) => "tree",
        QueryKind::Profile(..) => "profile",
        QueryKind::Points(_) => "points",
        QueryKind::Heat(_) => "heat",
        QueryKind::Sizes => "sizes",
        QueryKind::Trees(_) => "trees",
        QueryKind::Profiles(_) => "profiles",
        QueryKind::Ids => "ids",
    }
}

/// Converts a duration to milliseconds with microsecond precision.
fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e3
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use athanor_chassis::ErrorCode;
    use athanor_query::{ProfileSelection, Selector};

    use super::*;

    #[test]
    fn a_record_has_its_bound_whatever_is_told() {
        // Each of its letters takes six in JSON.
        let long = "\u{1}".repeat(5_000);
        let selector = Selector::default().with_equal("pod", &long).unwrap();
        let ask = ProfileQuery {
            selection: ProfileSelection { selector, ..ProfileSelection::default() },
            ..ProfileQuery::default()
        };
        let mut asked = TracedRequest::default();
        for _ in 0..MAX_TRACED_QUERIES + 3 {
            let Some(place) = asked.begin_query(&ask) else { continue };
            let question = asked.query_mut(place).unwrap();
            for number in 0..1_000 {
                question.add_source(SourceReport {
                    of: SourceKind::Shards((0..1_000).collect()),
                    took: Duration::from_millis(number % 300),
                    failed: Some(long.clone()),
                    ..SourceReport::default()
                });
            }
            let slowest: Vec<u64> = question.parts.iter().map(|part| part.took.as_millis() as u64).collect();
            let expected: Vec<u64> =
                (0..300).rev().flat_map(|took| [took; 3]).take(MAX_TRACED_SOURCES).collect();
            assert_eq!(slowest, expected);
        }
        let (tenants, warnings) = (vec![TenantId::anonymous(); 64], vec![long.clone(); 100]);
        let failed = Status::new(ErrorCode::Internal, long);
        let record = QueryRecord {
            id: String::new(),
            node: 7,
            call: "a call",
            tenants: &tenants,
            time: Timestamp::UNIX_EPOCH,
            took: Duration::ZERO,
            shown: Duration::ZERO,
            failed: Some(&failed),
            warnings: &warnings,
            asked: &asked,
        };
        for most in [MAX_RECORD_BYTES, 16 << 10] {
            let written = record.to_json_bytes(most);
            assert!(written.len() <= most, "{} of {most}", written.len());
            let told: Value = serde_json::from_slice(&written).unwrap();
            let questions = told["questions"].as_array().unwrap().len();
            assert_eq!(told["questionsLeftOut"], MAX_TRACED_QUERIES + 3 - questions);
        }
    }
}
