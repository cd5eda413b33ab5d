//! Check after a query that each profile counted once.

use std::sync::Arc;

use athanor_chassis::{CpuActivity, Status};
use athanor_query::BudgetedPartial;

use super::{DedupHints, DedupOutcome, MAX_EXCLUDED_PROFILES, RECENT_HEADS_WINDOW};
use crate::QueryContext;
use crate::execute::executor::QueryExecutor;
use crate::execute::query_execution::QueryExecution;

/// Maximum number of retries of a query for profiles that counted more than once.
const MAX_DEDUP_RETRIES: u32 = 4;

/// Checks that each profile counted once. Otherwise updates `doubts` for a retry of the query.
pub(crate) async fn check_dedup(
    executor: &QueryExecutor,
    reader: &QueryContext,
    merging: &Arc<QueryExecution>,
    doubts: &mut DedupHints,
) -> Result<DedupOutcome, Status> {
    if !merging.ask.needs_dedup() {
        return Ok(DedupOutcome::Counted(merging.meeting.take_merged()));
    }
    doubts.asked += 1;
    let may_ask = doubts.asked <= MAX_DEDUP_RETRIES;
    if let Some(since) = merging.met.unreported_since().filter(|_| may_ask) {
        doubts.since = since;
        executor.twice.record_duplicates(reader.tenants(), |known| known.since = Some(since));
        return Ok(DedupOutcome::Again);
    }
    if merging.met.is_recent(executor.deps.clock.wall().minus(RECENT_HEADS_WINDOW).nanos()) {
        executor.twice.mark_all_recent(reader.tenants(), merging.ask.selection.time.from);
    }
    let Some(BudgetedPartial { partial, mut taken }) = merging.meeting.take_merged() else {
        return Ok(DedupOutcome::Counted(None));
    };
    let (partial, ids) = partial.split_ids();
    if ids.by_source().is_empty() && merging.met.unreported_since().is_none() {
        return Ok(DedupOutcome::Counted(Some(BudgetedPartial { partial, taken })));
    }
    // Ids are held until they are compared, and a second time in sorted order.
    let sorted = merging.meeting.memory_budget().reserve(ids.bytes())?;
    let known = Arc::clone(&doubts.doubles);
    let tenants = reader.tenants().to_vec();
    let twice = Arc::clone(&executor.twice);
    let job = move || {
        let once = match ids.check_counted_once(&known) {
            Err(found) if may_ask && found.count_excluded_of(&ids) <= MAX_EXCLUDED_PROFILES => {
                twice.record_duplicates(&tenants, |known| *known = known.merged_with(&found));
                Err(Some(found))
            }
            Err(_) => Err(None),
            Ok(()) => Ok(()),
        };
        drop((ids, sorted));
        taken.shrink(partial.bytes());
        (once, BudgetedPartial { partial, taken })
    };
    let compared = merging.compute.run_as(CpuActivity::Query, job).await;
    let (once, held) = compared.map_err(|error| Status::from_error(&error))?;
    match once {
        Ok(()) if merging.met.unreported_since().is_none() => {}
        Err(Some(found)) => {
            doubts.doubles = Arc::new(found);
            return Ok(DedupOutcome::Again);
        }
        Ok(()) | Err(None) => merging.add_warnings([format!(
            "more than {MAX_EXCLUDED_PROFILES} selected profiles are stored in two places, or their duplicates change with each \
             retry; some may count twice until blocks are merged: narrow the time range"
        )]),
    }
    Ok(DedupOutcome::Counted(Some(held)))
}
