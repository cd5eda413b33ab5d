//! A querier where nothing was ever stored: what is looked at is the asking.

use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{Clock, ComputePool, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryPlan,
};
use athanor_query::ProfileQuery;

struct Nothing;

#[async_trait]
impl DataSources for Nothing {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        Ok(QueryPlan::default())
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

pub fn querier(config: QuerierConfig) -> Querier {
    let deps = QuerierDeps {
        sources: Arc::new(Nothing),
        overrides: LimitOverrides::new(TenantLimits::default()),
        clock: Clock::manual(Timestamp::from_seconds(1_800_000_000)).0,
        compute: ComputePool::inline(),
    };
    Querier::new(config, deps)
}
