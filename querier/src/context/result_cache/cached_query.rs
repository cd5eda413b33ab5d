//! Queries that return a cached result if one is still valid.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use athanor_chassis::{ByteSize, ErrorCode, Status, TenantLimits};
use athanor_profile::encoding::hash::{self, ContentHash};
use futures::future::join_all;
use prost::Message;

use super::{CacheableResult, CachedResult, PendingInsert, ResultProvenance, SharedResult};
use crate::QueryContext;
use crate::context::coalescer::{CoalescingLeader, JoinOutcome, RequestKey};
use crate::context::limits;
use crate::execute::executor::QueryExecutor;

/// Part of its remaining time for which a request waits for an equal one: an eighth.
const WAIT_TIME_DIVISOR: u32 = 8;
/// Timeout of the check that a cached result is still valid. A longer check would cost as much as a new
/// query.
const REVALIDATION_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns a cached result that is still valid, or the result of an equal request in flight. Otherwise
/// computes `answer`, and caches it if possible.
pub(crate) async fn run_cached<M, A, F>(
    executor: &QueryExecutor,
    reader: &QueryContext,
    method: &str,
    request: M,
    answer: impl FnOnce(M) -> F,
) -> Result<A, Status>
where
    M: Message,
    A: CacheableResult + Send + Sync + 'static,
    F: Future<Output = Result<A, Status>>,
{
    let limits = &executor.limits(reader);
    let key = request_key(executor, reader, limits, method, &request.encode_to_vec());
    let lead = match join_in_flight(executor, reader, &key).await {
        JoinOutcome::Lead(lead) => Some(lead),
        JoinOutcome::Alone => None,
        JoinOutcome::Told(told) => match decode_shared(executor, reader, told).await? {
            Some(answer) => return Ok(answer),
            None => None,
        },
    };
    let answered = match get_cached(executor, reader, limits, &key).await {
        Ok(Some((answer, told))) => Ok((answer, Some(told))),
        Ok(None) => match answer(request).await {
            Ok(answer) => store_result(executor, reader, key, lead.as_ref(), answer).await,
            Err(status) => Err(status),
        },
        Err(status) => Err(status),
    };
    if let Some(lead) = lead {
        match &answered {
            Ok((_, Some(told))) => lead.share_result(Ok(told.clone())),
            // Other requests may have later deadlines.
            Err(status) if status.code != ErrorCode::Deadline => lead.share_result(Err(status.clone())),
            Ok((_, None)) | Err(_) => drop(lead),
        }
    }
    answered.map(|(answer, _)| answer)
}

/// Waits for an equal request in flight, for a part of the remaining time. The rest suffices for an own
/// query.
async fn join_in_flight(
    executor: &QueryExecutor,
    reader: &QueryContext,
    key: &RequestKey,
) -> JoinOutcome<Result<SharedResult, Status>> {
    let clock = &executor.deps.clock;
    let left = reader.deadline(clock).saturating_sub(clock.monotonic());
    let heard = clock
        .timeout(left / WAIT_TIME_DIVISOR, executor.answers.together.join(key, reader.planned_flag()))
        .await;
    heard.unwrap_or(JoinOutcome::Alone)
}

/// Decodes the result of an equal request in flight. Returns none if the bytes were damaged since.
async fn decode_shared<A: CacheableResult + Send + 'static>(
    executor: &QueryExecutor,
    reader: &QueryContext,
    told: Result<SharedResult, Status>,
) -> Result<Option<A>, Status> {
    let SharedResult { kept, warnings, _room } = told?;
    let room = kept.bytes.len().saturating_mul(2);
    let answer = decode_cached(executor, reader, kept, room).await?;
    if answer.is_some() {
        executor.answers.joined.fetch_add(1, Ordering::Relaxed);
        reader.add_warnings(warnings.to_vec());
        reader.record_coalesced();
    }
    Ok(answer)
}

/// Returns a cached result that is still valid, also in shared form.
async fn get_cached<A: CacheableResult + Send + 'static>(
    executor: &QueryExecutor,
    reader: &QueryContext,
    limits: &TenantLimits,
    key: &RequestKey,
) -> Result<Option<(A, SharedResult)>, Status> {
    let Some(kept) = executor.answers.kept.get(key) else { return Ok(None) };
    let of = Arc::clone(&kept);
    // The check sends a request to all nodes, so it needs a permit as a query does.
    let look = |turn| async move {
        let told = revalidate(executor, reader, limits, of).await;
        drop(turn);
        told
    };
    if let Some(answer) = executor.with_permit(reader, limits, look).await? {
        executor.answers.hits.fetch_add(1, Ordering::Relaxed);
        reader.record_cache_hit();
        return Ok(Some((answer, SharedResult { kept, warnings: Arc::default(), _room: None })));
    }
    executor.answers.misses.fetch_add(1, Ordering::Relaxed);
    // Other requests need not check this entry.
    executor.answers.kept.invalidate(key);
    Ok(None)
}

/// Stores a result. Returns it, also in shared form if it is cached or another request waits for it.
async fn store_result<A: CacheableResult + Send + Sync + 'static>(
    executor: &QueryExecutor,
    reader: &QueryContext,
    key: RequestKey,
    lead: Option<&CoalescingLeader<Result<SharedResult, Status>>>,
    answer: A,
) -> Result<(A, Option<SharedResult>), Status> {
    let made = reader.result_provenance();
    let warnings = reader.warnings();
    let is_of_blocks = !made.is_empty() && made.iter().all(|made| made.of.is_some());
    let is_kept = executor.answers.is_on() && is_of_blocks && warnings.is_empty();
    let is_awaited = lead.is_some_and(CoalescingLeader::has_waiters);
    if !is_kept && !is_awaited {
        return Ok((answer, None));
    }
    let kept_as = is_kept.then_some(key);
    let held = reader.held_bytes();
    let room = executor.response_budget_for(reader);
    let resolution = reader.resolution();
    let of = PendingInsert { kept_as, is_awaited, made, resolution, held, warnings, room };
    let answers = Arc::clone(&executor.answers);
    executor
        .compute_on_pool(reader, move || {
            let told = answers.insert_result(&answer, of);
            (answer, told)
        })
        .await
}

/// Decodes cached bytes. Returns none if they were damaged since.
async fn decode_cached<A: CacheableResult + Send + 'static>(
    executor: &QueryExecutor,
    reader: &QueryContext,
    kept: Arc<CachedResult>,
    room: usize,
) -> Result<Option<A>, Status> {
    executor.reserve_memory(reader, room)?;
    let resolution = kept.resolution.clone();
    let read =
        move || (hash::hash_bytes(&kept.bytes) == kept.sum).then(|| A::from_bytes(&kept.bytes)).flatten();
    let answer = executor.compute_on_pool(reader, read).await?;
    match (&answer, resolution) {
        (None, _) => drop(executor.answers.damaged.fetch_add(1, Ordering::Relaxed)),
        (Some(_), Some(resolution)) => reader.add_resolution(&resolution),
        (Some(_), None) => {}
    }
    Ok(answer)
}

async fn revalidate<A: CacheableResult + Send + 'static>(
    executor: &QueryExecutor,
    reader: &QueryContext,
    limits: &TenantLimits,
    kept: Arc<CachedResult>,
) -> Result<Option<A>, Status> {
    let clock = &executor.deps.clock;
    let left = reader.deadline(clock).saturating_sub(clock.monotonic());
    if !matches!(
        clock
            .timeout(left.min(REVALIDATION_TIMEOUT), is_still_valid(executor, reader, limits, &kept.made))
            .await,
        Ok(true)
    ) {
        return Ok(None);
    }
    let room = kept.room;
    decode_cached(executor, reader, kept, room).await
}

/// Returns true if a new result would be computed from the same blocks.
async fn is_still_valid(
    executor: &QueryExecutor,
    reader: &QueryContext,
    limits: &TenantLimits,
    made: &[ResultProvenance],
) -> bool {
    let all = made.iter().map(|of| has_same_provenance(executor, reader, limits, of));
    join_all(all).await.into_iter().all(|holds| holds)
}

/// Returns true if a new result of one query would be computed from the same blocks.
async fn has_same_provenance(
    executor: &QueryExecutor,
    reader: &QueryContext,
    limits: &TenantLimits,
    made: &ResultProvenance,
) -> bool {
    let ResultProvenance { time, lead, of } = *made;
    match limits::clamp_time_range(limits, executor.deps.clock.wall(), time, lead) {
        Ok((within, None)) if within == time => {}
        _ => return false,
    }
    let still = reader.tenants().iter().map(|tenant| executor.deps.sources.block_provenance(tenant, time));
    let still: Option<Vec<ContentHash>> =
        join_all(still).await.into_iter().map(|made_of| made_of.ok().flatten()).collect();
    still.is_some_and(|still| Some(hash::hash_list(&still)) == of)
}

/// Returns a key of all request inputs that decide the response. Each part follows its length, so that
/// keys are unique.
fn request_key(
    executor: &QueryExecutor,
    reader: &QueryContext,
    limits: &TenantLimits,
    method: &str,
    request: &[u8],
) -> RequestKey {
    let nodes = [limits.max_flamegraph_nodes_default, limits.max_flamegraph_nodes_max].map(u64::from);
    let mut key = Vec::new();
    let mut part = |bytes: &[u8]| {
        key.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        key.extend_from_slice(bytes);
    };
    part(method.as_bytes());
    part(&[u8::from(reader.utf8_labels)]);
    part(&nodes.map(u64::to_le_bytes).concat());
    part(&(reader.tenants().len() as u64).to_le_bytes());
    for tenant in reader.tenants() {
        part(tenant.as_str().as_bytes());
        let most = executor.deps.overrides.for_tenant(tenant).max_query_bytes;
        part(&most.map_or(u64::MAX, ByteSize::get).to_le_bytes());
    }
    part(request);
    key.into()
}
