//! Admission of a query: time limits, quarantine and a permit.

use std::sync::Arc;

use athanor_chassis::{ErrorCode, Status};
use athanor_query::{PartialResult, ProfileQuery};

use crate::QueryContext;
use crate::context::limits;
use crate::context::quarantine::QueryFingerprint;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::gather;

/// Queries all sources of all tenants, and merges partial results as they arrive.
pub(crate) async fn run_query(
    executor: &QueryExecutor,
    reader: &QueryContext,
    mut ask: ProfileQuery,
) -> Result<PartialResult, Status> {
    let limits = executor.limits(reader);
    let time = ask.selection.time;
    let lead = limits::grid_lead(&ask);
    let (time, left_out) = limits::clamp_time_range(&limits, executor.deps.clock.wall(), time, lead)?;
    ask.selection.time = time;
    reader.add_warnings(left_out.into_iter().collect());
    let asked = [Arc::new(ask)];
    executor.check_quarantine(reader, &asked)?;
    let [ask] = &asked;
    reader.add_query(Arc::clone(ask));
    let scribe = reader.start_query_trace(ask);
    let begun = scribe.now();
    let question = || QueryFingerprint::from_queries(reader.tenants(), &asked);
    let clock = &executor.deps.clock;
    let left = reader.deadline(clock).saturating_sub(clock.monotonic());
    let alone = clock
        .timeout(left, executor.quarantine.wait_until_exclusive(reader.active_queries(), question))
        .await;
    alone.map_err(|_| {
        let message = "query timed out while suspect queries ran, each of which runs alone; retry later";
        Status::new(ErrorCode::Deadline, message)
    })??;
    let answer = |turn| async move {
        scribe.record_queue_time(begun);
        executor.quarantine.begin_query(reader.active_queries(), question).await?;
        gather(executor, reader, Arc::clone(ask), &turn, scribe).await
    };
    let answer = executor.with_permit(reader, &limits, answer).await;
    answer.inspect_err(|status| executor.record_crash(reader, &asked, status))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use athanor_chassis::disk::MemoryDisk;
    use athanor_chassis::requests::activity_tracker::{ActivityTracker, PreviousRun};
    use athanor_chassis::{Clock, ComputePool, LimitOverrides, TenantId, TenantLimits, Timestamp};
    use athanor_query::QueryKind;

    use super::*;
    use crate::*;

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

    fn querier() -> Querier {
        let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let overrides = LimitOverrides::new(TenantLimits::default());
        let deps =
            QuerierDeps { sources: Arc::new(Nothing), overrides, clock, compute: ComputePool::inline() };
        Querier::new(QuerierConfig::default(), deps)
    }

    /// Asks all of these, then makes something of the answers that panics, or not.
    async fn shaped(querier: &Querier, all: &[QueryKind], panics: bool) -> Result<(), String> {
        let reader = QueryContext::for_tenant(TenantId::anonymous());
        for what in all {
            let asked = run_query(
                &querier.executor,
                &reader,
                ProfileQuery { what: what.clone(), ..ProfileQuery::default() },
            )
            .await;
            asked.map_err(|status| status.message)?;
        }
        querier
            .executor
            .render_on_pool(&reader, move || assert!(!panics, "no such node"))
            .await
            .map_err(|status| status.message)
    }

    #[tokio::test]
    async fn what_crashes_when_it_is_shown_crashed() {
        let querier = querier();
        let (names, types) = (QueryKind::LabelNames, QueryKind::ProfileTypes);
        for _ in 0..2 {
            let crashed = shaped(&querier, std::slice::from_ref(&names), true).await.unwrap_err();
            assert!(crashed.contains("no such node"), "{crashed}");
        }
        let refused = shaped(&querier, std::slice::from_ref(&names), false).await.unwrap_err();
        assert!(refused.contains("crashed 2 times"), "{refused}");
        assert_eq!(shaped(&querier, std::slice::from_ref(&types), false).await, Ok(()));
        let stats = querier.stats().quarantine;
        assert_eq!(stats, QuarantineStats { quarantined: 1, suspected: 0, crashes: 2, refused: 1 });
        assert_eq!(querier.clear_quarantine(), 1);
        assert_eq!(shaped(&querier, &[names], false).await, Ok(()));
    }

    #[tokio::test]
    async fn questions_that_crash_together_are_good_alone() {
        let querier = querier();
        let both = [QueryKind::LabelNames, QueryKind::ProfileTypes];
        for _ in 0..2 {
            shaped(&querier, &both, true).await.unwrap_err();
        }
        // In whichever order.
        let other_way = [QueryKind::ProfileTypes, QueryKind::LabelNames];
        assert!(shaped(&querier, &other_way, false).await.unwrap_err().contains("crashed 2 times"));
        for alone in both {
            assert_eq!(shaped(&querier, &[alone], false).await, Ok(()));
        }
    }

    /// The process dies while a question is under way: it does not come to be answered.
    async fn dies(querier: &Querier, what: &QueryKind) {
        let reader = QueryContext::for_tenant(TenantId::anonymous());
        let asked = run_query(
            &querier.executor,
            &reader,
            ProfileQuery { what: what.clone(), ..ProfileQuery::default() },
        )
        .await;
        asked.unwrap();
        std::mem::forget(reader);
    }

    #[tokio::test]
    async fn what_kills_the_process_twice_is_refused_and_who_runs_beside_is_not() {
        let disk = MemoryDisk::new();
        let begun = || {
            let deaths = ActivityTracker::open(
                PreviousRun { disk: Arc::new(disk.clone()), has_aborted: true },
                Clock::system(),
            )
            .unwrap();
            querier().with_crash_history(deaths)
        };
        let (killer, beside, other) =
            (QueryKind::LabelNames, QueryKind::ProfileTypes, QueryKind::Series(Vec::new()));
        let first = begun();
        dies(&first, &killer).await;
        dies(&first, &beside).await;
        let second = begun();
        assert_eq!(second.stats().quarantine.suspected, 2);
        // Each of the two is asked alone: no other suspect is under way when the process dies again.
        let reader = QueryContext::for_tenant(TenantId::anonymous());
        run_query(
            &second.executor,
            &reader,
            ProfileQuery { what: killer.clone(), ..ProfileQuery::default() },
        )
        .await
        .unwrap();
        let waits = shaped(&second, std::slice::from_ref(&beside), false);
        let (clock, moment) = (Clock::system(), Duration::from_millis(50));
        assert!(clock.timeout(moment, waits).await.is_err(), "it waits for the other one");
        assert_eq!(shaped(&second, std::slice::from_ref(&other), false).await, Ok(()), "nobody suspects it");
        std::mem::forget(reader);
        let third = begun();
        let refused = shaped(&third, std::slice::from_ref(&killer), false).await.unwrap_err();
        assert!(refused.contains("ran 2 times") && refused.contains("athanor quarantine clear"), "{refused}");
        let stats = third.stats().quarantine;
        assert_eq!(stats, QuarantineStats { quarantined: 1, suspected: 1, crashes: 0, refused: 1 });
        // What ends well is above suspicion.
        let reader = QueryContext::for_tenant(TenantId::anonymous());
        run_query(&third.executor, &reader, ProfileQuery { what: beside, ..ProfileQuery::default() })
            .await
            .unwrap();
        reader.finish_request(None);
        assert_eq!(third.stats().quarantine.suspected, 0);
        assert_eq!(third.clear_quarantine(), 1);
        assert_eq!(shaped(&third, &[killer], false).await, Ok(()));
        third.close();
        assert_eq!(begun().stats().quarantine, QuarantineStats::default());
    }
}
