//! Many sources on many threads, several tenants, and sources that fail.

use std::num::NonZeroUsize;
use std::sync::Arc;

use athanor_chassis::{Clock, Code, Compute, Limits, Overrides, Status, TenantId, Timestamp};
use athanor_profile::source::{EachRows, MemorySource, ReadNames};
use athanor_profile::{Labels, Profile, ProfileRow, Series, Source, SourceError, ValueType};
use athanor_proto::querier::v1::{SelectMergeStacktracesRequest, SeriesRequest};
use athanor_querier::{Deps, Plan, Querier, Reader, Sources};
use athanor_query::TimeRange;

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

fn source(function: &str, value: i64) -> Arc<dyn Source> {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.time_nanos = 5_000_000;
    let stack = profile.dictionary.named_stack(["main", function].into_iter());
    profile.samples.push(stack, 0, &[value]);
    let mut source = MemorySource::default();
    source.add(&Labels::new([("__name__".to_owned(), "process_cpu".to_owned())]), &profile, 1);
    Arc::new(source)
}

/// A source whose peer is gone.
struct Gone;

impl Source for Gone {
    fn series(&self) -> Result<Arc<[Series]>, SourceError> {
        Err(SourceError::Unavailable("its peer left".to_owned()))
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(Arc::new([]))
    }
    fn totals(&self, _: &[u32]) -> Result<Vec<i64>, SourceError> {
        Ok(Vec::new())
    }
    fn rows(&self, _: &[u32], _: &mut EachRows<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn names(&self, _: &mut ReadNames<'_>) -> Result<(), SourceError> {
        Ok(())
    }
}

struct ByTenant;

#[async_trait::async_trait]
impl Sources for ByTenant {
    async fn plan(&self, tenant: &TenantId, _: TimeRange) -> Result<Plan, Status> {
        let sources: Vec<Arc<dyn Source>> = match tenant.as_str() {
            "many" => (0..200).map(|n| source(["a", "b", "c"][n % 3], 1)).collect(),
            "one" => vec![source("a", 1_000)],
            "broken" => vec![source("a", 1), Arc::new(Gone)],
            _ => Vec::new(),
        };
        let missing = if tenant.as_str() == "one" { vec!["half of it".to_owned()] } else { Vec::new() };
        Ok(Plan { sources, missing })
    }
}

async fn total(tenants: &str) -> Result<i64, Status> {
    let (clock, _hand) = Clock::manual(Timestamp::EPOCH);
    let compute = Compute::threads(NonZeroUsize::new(3).expect("3"), 4).expect("threads");
    let overrides = Overrides::new(Limits::default());
    let querier = Querier::new(Deps { sources: Arc::new(ByTenant), overrides, clock, compute });
    let request = SelectMergeStacktracesRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{}".to_owned(),
        start: 1,
        end: 10,
        ..SelectMergeStacktracesRequest::default()
    };
    let reader = Reader::parse(tenants).expect("tenants");
    let graph = querier.select_merge_stacktraces(&reader, request).await?.flamegraph.expect("a graph");
    Ok(graph.total)
}

#[tokio::test]
async fn answers_of_all_sources_and_tenants_add_up() {
    assert_eq!(total("many").await, Ok(200));
    assert_eq!(total("many|one|many").await, Ok(1_200));
    assert_eq!(total("nobody").await, Ok(0));
}

#[tokio::test]
async fn one_that_fails_fails_the_whole() {
    let refused = total("one|broken").await.expect_err("a source is gone");
    assert_eq!(refused.code, Code::Unavailable);
    assert!(refused.message.contains("its peer left"), "{}", refused.message);
}

#[tokio::test]
async fn what_is_missing_is_said() {
    let (clock, _hand) = Clock::manual(Timestamp::EPOCH);
    let overrides = Overrides::new(Limits::default());
    let deps = Deps { sources: Arc::new(ByTenant), overrides, clock, compute: Compute::inline() };
    let (querier, reader) = (Querier::new(deps), Reader::parse("many|one").expect("tenants"));
    assert_eq!(reader.missing(), None);
    querier
        .series(&reader, SeriesRequest { start: 1, end: 10, ..SeriesRequest::default() })
        .await
        .expect("an answer");
    assert_eq!(reader.clone().missing().as_deref(), Some("half of it"));
}
