//! Fan-out of a query to its sources. Local sources run on compute threads, some at a time, and their results
//! are merged as they arrive. Peers are queried meanwhile, in parallel.

use std::sync::Arc;

use athanor_chassis::requests::query_queue::QueryPermit;
use athanor_chassis::{ByteSize, CancelFlag, CpuActivity, ErrorCode, Status, TenantId};
use athanor_profile::encoding::hash;
use athanor_query::{BudgetedPartial, PartialMerger, PartialResult, ProfileQuery, QueryCost, QueryKind};
use futures::future::{BoxFuture, try_join_all};
use futures::{FutureExt, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::context::result_cache::ResultProvenance;
use crate::diagnostics::{QueryTrace, SourceReport};
use crate::execute::dedup::check::check_dedup;
use crate::execute::dedup::{DedupHints, DedupObservations, DedupOutcome, InMemorySource};
use crate::execute::executor::QueryExecutor;
use crate::execute::partial_receiver::PartialReceiver;
use crate::execute::query_execution::QueryExecution;
use crate::execute::replan::{PlanAttempt, SourceQueryError};
use crate::execute::skipped_sources::SkippedSources;
use crate::validate::{self, invalid_argument};
use crate::{BlockSource, QueryContext, QueryPlan, RemoteSource, context::limits};

/// Minimum number of local sources of a query that are open at once: some are fetched while others are read.
const MIN_CONCURRENT_SOURCES: usize = 16;
/// Maximum number of peers of a query that are queried at once. Peers do the work, and this node only waits.
const MAX_CONCURRENT_PEERS: usize = 64;

/// Warning of a result with means over split profiles in downsampled data.
const INEXACT_COUNTS_WARNING: &str = "means are approximate: sample labels split profiles, and downsampled data does not \
     tell which parts belong together; select or group by these labels, or shorten the time range";

/// Sources of all tenants of one plan.
#[derive(Default)]
struct SourceSet {
    sources: Vec<InMemorySource>,
    stored: Vec<Box<dyn BlockSource>>,
    remote: Vec<(TenantId, Arc<dyn RemoteSource>)>,
}

/// Queries all sources of all tenants. Retries with a new plan while plans are outdated. The request
/// holds the memory of the result.
pub(crate) async fn gather(
    executor: &QueryExecutor,
    reader: &QueryContext,
    ask: Arc<ProfileQuery>,
    turn: &QueryPermit,
    scribe: QueryTrace,
) -> Result<PartialResult, Status> {
    let begun = scribe.now();
    let merging = run_with_replans(executor, reader, &ask, turn, &scribe).await;
    scribe.record_fetch_end(begun);
    let (merging, held) = merging?;
    let made_of = merging.made_of.lock().take();
    let time = merging.ask.selection.time;
    let lead = limits::grid_lead(&merging.ask);
    reader.add_provenance(ResultProvenance { time, lead, of: made_of.map(|of| hash::hash_list(&of)) });
    reader.add_warnings(std::mem::take(&mut *merging.warnings.lock()));
    let is_empty = held.as_ref().is_none_or(|held| held.partial.is_empty());
    // A slice of a stream may be empty though others have samples. The query before the first one tells whether all are.
    let is_slice = matches!(merging.ask.what, QueryKind::Samples(_));
    let fails = is_empty && !is_slice;
    reader.add_warnings(merging.left_out.to_warnings(fails, &executor.left_out)?);
    reader.add_resolution(&merging.resolution.lock());
    if held.as_ref().is_some_and(|held| !held.partial.has_exact_counts()) {
        reader.add_warnings(vec![INEXACT_COUNTS_WARNING.to_owned()]);
    }
    let Some(BudgetedPartial { partial, taken }) = held else {
        return Ok(PartialResult::empty(&merging.ask.what));
    };
    // Rendering takes about the same amount of memory.
    reader.hold_memory(executor.response_budget_for(reader).reserve(taken.bytes())?);
    reader.hold_memory(taken);
    Ok(partial)
}

async fn run_with_replans(
    executor: &QueryExecutor,
    reader: &QueryContext,
    ask: &Arc<ProfileQuery>,
    turn: &QueryPermit,
    scribe: &QueryTrace,
) -> Result<(Arc<QueryExecution>, Option<BudgetedPartial>), Status> {
    let doubts = match ask.needs_dedup() {
        true => executor.twice.hints_for(reader.tenants(), executor.deps.clock.wall()),
        false => DedupHints::default(),
    };
    let mut attempt = PlanAttempt::with_hints(doubts);
    loop {
        match run_plan(executor, reader, ask, turn, scribe, &attempt).await {
            Ok(merging) => match check_dedup(executor, reader, &merging, &mut attempt.doubts).await? {
                DedupOutcome::Counted(held) => return Ok((merging, held)),
                DedupOutcome::Again => {}
            },
            Err(asked) => attempt = attempt.next_attempt(asked)?,
        }
    }
}

async fn run_plan(
    executor: &QueryExecutor,
    reader: &QueryContext,
    ask: &Arc<ProfileQuery>,
    turn: &QueryPermit,
    scribe: &QueryTrace,
    attempt: &PlanAttempt,
) -> Result<Arc<QueryExecution>, SourceQueryError> {
    let until = reader.deadline(&executor.deps.clock);
    let meeting = PartialMerger::new(ask.bounds, executor.response_budget_for(reader));
    let merging = Arc::new(QueryExecution {
        ask: Arc::clone(ask),
        compute: executor.compute_for(reader),
        until,
        meeting,
        scribe: scribe.clone(),
        warnings: Mutex::default(),
        resolution: Mutex::default(),
        left_out: SkippedSources::default(),
        made_of: Mutex::new(Some(Vec::new())),
        met: DedupObservations::default(),
    });
    let mut parts = SourceSet::default();
    let is_cheap = ask.required_data().is_index_only();
    let plans = reader.tenants().iter().map(async |tenant| {
        let begun = scribe.now();
        let plan = executor.deps.sources.plan(tenant, ask, &attempt.doubts).await?;
        scribe.record_plan(tenant, &plan, begun);
        Ok::<_, Status>((tenant, plan))
    });
    for (tenant, plan) in try_join_all(plans).await? {
        let QueryPlan {
            sources, stored, remote, warnings, bytes, moved, made_of, untold, resolution, ..
        } = plan;
        merging.resolution.lock().merge(&resolution);
        // Index queries show available data and its cost, so they cost nothing themselves.
        let bytes = if is_cheap { 0 } else { bytes };
        if attempt.is_first() {
            check_bytes(executor, reader, tenant, ask, bytes, turn).await?;
        }
        turn.charge(tenant, bytes);
        merging.add_provenance(made_of);
        merging.met.observe_unreported(untold);
        parts.sources.extend(sources);
        parts.stored.extend(stored);
        parts.remote.extend(remote.into_iter().map(|remote| (tenant.clone(), remote)));
        merging.add_warnings(warnings);
        for why in moved {
            merging.add_warnings([attempt.warn_or_replan(SourceQueryError::Replan(why))?]);
        }
    }
    query_sources(executor, &merging, parts, attempt).await?;
    Ok(merging)
}

async fn query_sources(
    executor: &QueryExecutor,
    merging: &Arc<QueryExecution>,
    parts: SourceSet,
    attempt: &PlanAttempt,
) -> Result<(), SourceQueryError> {
    let SourceSet { sources, stored, remote } = parts;
    let here =
        sources.into_iter().map(|source| Box::pin(query_memory_source(merging, source)) as BoxFuture<'_, _>);
    let there =
        stored.into_iter().map(|stored| Box::pin(query_block_source(merging, stored)) as BoxFuture<'_, _>);
    let afar = remote
        .into_iter()
        .map(|(tenant, remote)| Box::pin(query_remote(merging, tenant, remote)) as BoxFuture<'_, _>);
    let each = |asked: Result<(), SourceQueryError>| match asked {
        Ok(()) => Ok(()),
        Err(asked) => attempt.warn_or_replan(asked).map(|without| merging.add_warnings([without])),
    };
    // One more job than there are threads, so that no thread waits for its next job.
    let width = MIN_CONCURRENT_SOURCES.max(executor.deps.compute.parallelism() + 1);
    let jobs: Vec<BoxFuture<'_, Result<(), SourceQueryError>>> = here.chain(there).collect();
    let peers: Vec<BoxFuture<'_, Result<(), SourceQueryError>>> = afar.collect();
    let jobs = futures::stream::iter(jobs).buffer_unordered(width).map(each).try_collect::<()>();
    let peers =
        futures::stream::iter(peers).buffer_unordered(MAX_CONCURRENT_PEERS).map(each).try_collect::<()>();
    futures::future::try_join(peers, jobs).await?;
    Ok(())
}

async fn query_block_source(
    merging: &Arc<QueryExecution>,
    stored: Box<dyn BlockSource>,
) -> Result<(), SourceQueryError> {
    let begun = merging.scribe.now();
    let mut inbox = PartialReceiver::new(Arc::clone(merging));
    let Some((partial, part)) = stored.query(&mut inbox).await? else {
        return Ok(inbox.check_finished()?);
    };
    let of = Arc::clone(merging);
    let job = move || Ok(of.scribe.measure_merge(|| of.meeting.add(partial, None))?);
    let done =
        merging.compute.run_as(CpuActivity::Query, job).await.map_err(|error| Status::from_error(&error))?;
    merging.trace_source(begun, part, &done);
    done
}

/// Runs the query on a source in memory. The computation is cancelled when its request is dropped.
async fn query_memory_source(
    merging: &Arc<QueryExecution>,
    mut lying: InMemorySource,
) -> Result<(), SourceQueryError> {
    let (stop, _waiting) = CancelFlag::new_pair();
    if let Some(source) = lying.source.with_cancellation(stop.atomic_flag()) {
        lying.source = source;
    }
    let of = Arc::clone(merging);
    let begun = merging.scribe.now();
    let job = move || of.merge_memory_source(&lying);
    let done =
        merging.compute.run_as(CpuActivity::Query, job).await.map_err(|error| Status::from_error(&error))?;
    merging.trace_source(begun, SourceReport::default(), &done);
    done
}

async fn query_remote(
    merging: &Arc<QueryExecution>,
    tenant: TenantId,
    remote: Arc<dyn RemoteSource>,
) -> Result<(), SourceQueryError> {
    let mut inbox = PartialReceiver::new(Arc::clone(merging));
    remote.query(&tenant, &merging.ask, &mut inbox).await?;
    Ok(inbox.check_finished()?)
}

/// Rejects a query that would read too much of a tenant. `bytes` is an upper bound: the size of all
/// series in blocks and heads. Only if it exceeds the limit, the exact size is estimated.
async fn check_bytes(
    executor: &QueryExecutor,
    reader: &QueryContext,
    tenant: &TenantId,
    ask: &ProfileQuery,
    bytes: u64,
    turn: &QueryPermit,
) -> Result<(), Status> {
    let limit = executor.deps.overrides.for_tenant(tenant).max_query_bytes;
    let Some(limit) = limit.filter(|limit| bytes > limit.get() && ask.what != QueryKind::Sizes) else {
        return Ok(());
    };
    let mut selection = ask.selection.clone();
    selection.resolution = Some(ask.required_resolution());
    let sizes = ProfileQuery { selection, what: QueryKind::Sizes, bounds: validate::default_result_limits() };
    let PartialResult::Sizes(sizes) =
        run_nested_query(executor, &reader.narrow_to_tenant(tenant), sizes, turn).await?
    else {
        return Err(unexpected_result_type());
    };
    let QueryCost { heads, blocks } = &*sizes;
    let bytes = heads.bytes().saturating_add(blocks.bytes());
    if bytes <= limit.get() {
        return Ok(());
    }
    let series = heads.series.union(&blocks.series).count();
    let profiles = heads.profiles + blocks.profiles;
    let samples = heads.samples + blocks.samples;
    Err(invalid_argument(format!(
        "query would read {} of tenant {tenant}, which are {samples} samples in {profiles} profiles of {series} series, \
         the limit is {limit} (limits.max_query_bytes); select fewer series or a shorter time",
        ByteSize::bytes(bytes)
    )))
}

/// Runs a query within a query, with the same permit.
fn run_nested_query<'a>(
    executor: &'a QueryExecutor,
    reader: &'a QueryContext,
    ask: ProfileQuery,
    turn: &'a QueryPermit,
) -> BoxFuture<'a, Result<PartialResult, Status>> {
    gather(executor, reader, Arc::new(ask), turn, QueryTrace::default()).boxed()
}

/// Error for a result of another kind than the query: an internal bug.
pub(crate) fn unexpected_result_type() -> Status {
    Status::new(ErrorCode::Internal, "internal error: source returned a result of another query kind")
}
