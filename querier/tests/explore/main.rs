//! What only this server answers: any uploads held against a model, and single ones.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use athanor_chassis::{Clock, ComputePool, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_profile::data_model::symbols::{Function, Line, NO_ENTRY};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_proto::athanor::v1::Query;
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;
use proptest::prelude::*;

mod columns;
mod exported_ids;
mod filter;
mod gauges;
mod graph;
mod laws;
mod newer;
mod samples;
mod single;
mod transforms;

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const PERIOD: i64 = 10;
/// Number of the function whose name is empty.
const UNNAMED_FUNCTION: u8 = u8::MAX;

/// A profile as the model knows it: frames are functions and their lines, root first.
#[derive(Clone, Debug)]
struct Upload {
    pod: u8,
    second: i64,
    rows: Vec<(Vec<(u8, i64)>, i64)>,
    /// Where it lies.
    source: usize,
    tenant: bool,
}

fn upload() -> impl Strategy<Value = Upload> {
    let row = (prop::collection::vec((0..4u8, 1..4i64), 1..6), -20..200i64);
    let rows = prop::collection::vec(row, 0..6);
    (0..3u8, 1..30i64, rows, 0..3usize, any::<bool>())
        .prop_map(|(pod, second, rows, source, tenant)| Upload { pod, second, rows, source, tenant })
}

/// Settings of a property. The variable `ATHANOR_EXPLORE_CASES` overrides the number of cases.
#[expect(clippy::disallowed_methods, reason = "long runs set the number of cases")]
fn property_config(cases: u32) -> ProptestConfig {
    let wanted = std::env::var("ATHANOR_EXPLORE_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig::with_cases(wanted.unwrap_or(cases))
}

fn name(function: u8) -> String {
    if function == UNNAMED_FUNCTION { String::new() } else { format!("f{function}") }
}

impl Upload {
    fn profile(&self) -> Profile {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
        (profile.header.period, profile.header.duration_nanos) = (PERIOD, 7);
        profile.header.time_nanos = self.second * 1_000_000_000;
        for (frames, value) in &self.rows {
            let symbols = &mut profile.dictionary.symbols;
            let path: Vec<u32> = frames
                .iter()
                .rev()
                .map(|&(function, line)| {
                    let (name, filename) =
                        (symbols.strings.intern(&name(function)), symbols.strings.intern("a.rs"));
                    let of = Function { name, system_name: name, filename, start_line: 0 };
                    let function = symbols.intern_function(of);
                    symbols.intern_location(NO_ENTRY, 0, false, &[Line { function, line, column: 0 }])
                })
                .collect();
            let stack = profile.dictionary.stacks.intern(&profile.dictionary.symbols, &path);
            profile.samples.push(stack, 0, &[*value]);
        }
        profile
    }

    fn labels(&self) -> Labels {
        let pod = if self.pod == 0 { String::new() } else { format!("p{}", self.pod) };
        Labels::new([("__name__".to_owned(), "process_cpu".to_owned()), ("pod".to_owned(), pod)])
    }
}

struct Uploads {
    uploads: Vec<Upload>,
    warnings: Vec<String>,
}

#[async_trait::async_trait]
impl DataSources for Uploads {
    async fn plan(&self, tenant: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        let mut sources: Vec<MemorySource> = (0..3).map(|_| MemorySource::default()).collect();
        let of_tenant = |one: &&Upload| tenant.as_str() == if one.tenant { "b" } else { "a" };
        for (id, upload) in (1u128..).zip(self.uploads.iter()).filter(|(_, one)| of_tenant(one)) {
            sources[upload.source].add(&upload.labels(), &upload.profile(), id << 64);
        }
        let sources = sources.into_iter().map(|source| Arc::new(source) as Arc<dyn ProfileSource>);
        Ok(QueryPlan { warnings: self.warnings.clone(), ..QueryPlan::from_sources(sources) })
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

fn querier_with(config: QuerierConfig, uploads: &[Upload], warnings: &[&str]) -> Querier {
    let warnings = warnings.iter().map(|text| (*text).to_owned()).collect();
    let sources = Arc::new(Uploads { uploads: uploads.to_vec(), warnings });
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    Querier::new(config, QuerierDeps { sources, overrides, clock, compute: ComputePool::inline() })
}

fn ask<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Seconds, both ends in it.
fn query(from: i64, to: i64) -> Option<Query> {
    Some(Query {
        profile_type: TYPE.to_owned(),
        selector: "{}".to_owned(),
        start: from * 1_000,
        end: to * 1_000,
        ..Query::default()
    })
}

fn both() -> QueryContext {
    QueryContext::parse("a|b").expect("tenants")
}
