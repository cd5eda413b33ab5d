//! Charts with exemplars: points come from all tiers, exemplars from raw profiles.

use std::sync::Arc;

use athanor_chassis::{Clock, ComputePool, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_proto::querier::v1::{SelectSeriesRequest, SelectSeriesResponse};
use athanor_proto::types::v1::ExemplarType;
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;

const WARNING: &str = "single profiles exist since 10 s";

/// Raw profiles of the second ten seconds. Older ones exist only in other tiers.
struct ExpiredRaw;

fn source(seconds: &[i64]) -> Arc<dyn ProfileSource> {
    let mut source = MemorySource::default();
    for &second in seconds {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
        profile.header.time_nanos = second * 1_000_000_000;
        let stack = profile.dictionary.intern_named_stack(["main"].into_iter());
        profile.samples.push(stack, 0, &[second]);
        let labels = Labels::new([("__name__".to_owned(), "process_cpu".to_owned())]);
        source.add(&labels, &profile, (second as u128) << 64);
    }
    Arc::new(source)
}

#[async_trait::async_trait]
impl DataSources for ExpiredRaw {
    async fn plan(&self, _: &TenantId, ask: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        Ok(match ask.required_resolution().single_profiles {
            true => QueryPlan {
                warnings: vec![WARNING.to_owned()],
                ..QueryPlan::from_sources([source(&[12, 13, 20])])
            },
            false => QueryPlan::from_sources([source(&[3, 10]), source(&[12, 13, 20])]),
        })
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

async fn chart(exemplar_type: ExemplarType) -> SelectSeriesResponse {
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps =
        QuerierDeps { sources: Arc::new(ExpiredRaw), overrides, clock, compute: ComputePool::inline() };
    let querier = Querier::new(QuerierConfig::default(), deps);
    let request = SelectSeriesRequest {
        profile_type_id: "process_cpu:cpu:nanoseconds:cpu:nanoseconds".to_owned(),
        label_selector: "{}".to_owned(),
        start: 10_000,
        end: 20_000,
        step: 10.0,
        exemplar_type: exemplar_type as i32,
        ..SelectSeriesRequest::default()
    };
    querier.select_series(&QueryContext::parse("a").expect("a tenant"), request).await.expect("a chart")
}

#[tokio::test]
async fn chart_with_exemplars_has_points_of_all_tiers_and_raw_exemplars() {
    let plain = chart(ExemplarType::None).await;
    let shown = chart(ExemplarType::Individual).await;
    let points = |response: &SelectSeriesResponse| -> Vec<(i64, f64)> {
        response.series[0].points.iter().map(|point| (point.timestamp, point.value)).collect()
    };
    assert_eq!(points(&plain), [(10_000, 13.0), (20_000, 45.0)]);
    assert_eq!(points(&shown), points(&plain));
    let exemplars: Vec<Vec<i64>> = shown.series[0]
        .points
        .iter()
        .map(|point| point.exemplars.iter().map(|exemplar| exemplar.value).collect())
        .collect();
    assert_eq!(exemplars, [vec![], vec![20]]);
    assert_eq!((plain.warnings, shown.warnings), (Vec::new(), vec![WARNING.to_owned()]));
}
