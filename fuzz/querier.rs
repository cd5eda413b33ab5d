//! A querier where nothing was ever stored: what is looked at is the asking.

use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{Clock, Compute, Limits, Overrides, Status, TenantId, Timestamp};
use athanor_querier::{Config, Deps, Doubts, Plan, Querier, Sources, Times};
use athanor_query::Ask;

struct Nothing;

#[async_trait]
impl Sources for Nothing {
    async fn plan(&self, _: &TenantId, _: &Ask, _: &Doubts) -> Result<Plan, Status> {
        Ok(Plan::default())
    }

    async fn times(&self, _: &TenantId) -> Result<Times, Status> {
        Ok(Times::default())
    }
}

pub fn querier(config: Config) -> Querier {
    let deps = Deps {
        sources: Arc::new(Nothing),
        overrides: Overrides::new(Limits::default()),
        clock: Clock::manual(Timestamp::from_seconds(1_800_000_000)).0,
        compute: Compute::inline(),
    };
    Querier::new(config, deps)
}
