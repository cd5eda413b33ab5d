//! Any text as the parameters of a flame graph's URL is refused, or answered; nothing panics or overflows.

use std::sync::Arc;

use athanor_chassis::{Clock, ComputePool, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;
use proptest::prelude::*;

/// No profile anywhere.
struct Nothing;

#[async_trait::async_trait]
impl DataSources for Nothing {
    async fn plan(&self, _: &TenantId, ask: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        assert!(ask.selection.time.from < ask.selection.time.to);
        Ok(QueryPlan::default())
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

const SIDE: &str = "(cpu:cpu:ns:cpu:ns|a:b:c::|x|a.cpu)?(\\{(a(=|!=|=~)\"b\")?\\})?";
const TIME: &str = "(now|today|[0-9]{1,19}|20260302)?([+-][0-9]{1,12}(s|h|d|y))?";

fn url() -> impl Strategy<Value = String> {
    let value = format!("{SIDE}|dot|otlp|folded|__name__|{TIME}|{TIME}|-?[0-9]{{1,8}}|\\PC{{0,6}}");
    let name = "query|from|until|format|label|maxNodes|groupBy|leftQuery|rightQuery|leftFrom|rightUntil";
    let part = prop::string::string_regex(&format!("({name})=({value})")).expect("a pattern");
    prop::collection::vec(part, 0..6).prop_map(|parts: Vec<String>| {
        let whole = format!("query=cpu:cpu:ns:cpu:ns&{}", parts.join("&"));
        if parts.len().is_multiple_of(2) { whole } else { parts.join("&") }
    })
}

proptest! {
    #[test]
    fn is_refused_or_answered(url in url()) {
        let (clock, _hand) = Clock::manual(Timestamp::from_seconds(1_772_445_600));
        let overrides = LimitOverrides::new(TenantLimits::default());
        let deps = QuerierDeps { sources: Arc::new(Nothing), overrides, clock, compute: ComputePool::inline() };
        let (querier, reader) = (Querier::new(QuerierConfig::default(), deps), QueryContext::for_tenant(TenantId::anonymous()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let answers = runtime.block_on(async {
            [
                querier.render(&reader, &url).await,
                querier.render_diff(&reader, &url).await,
                querier.render_label_values(&reader, &url).await,
                querier.export(&reader, &url).await,
            ]
        });
        for answer in answers {
            match answer {
                Ok(rendered) => prop_assert!(rendered.body.len() < 1 << 20),
                Err(status) => prop_assert!(status.code.http_status() < 500, "{}", status),
            }
        }
    }
}
