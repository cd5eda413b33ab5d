//! Queries of the heads that this node leads, for other nodes. Local queries use it if leadership moved here
//! while they were running.

use std::sync::Arc;

use athanor_catalog::{ShardId, decode_shard_id};
use athanor_chassis::{CancelFlag, ComputePool, CpuActivity, ErrorCode, Status, TenantId};
use athanor_cluster::status_codec;
use athanor_ingester::{HeadSnapshot, Ingester, ShardReadError};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::ResultFrame;
use athanor_proto::athanor::internal::v1::shard_result::Outcome;
use athanor_query::{DedupSource, ExcludedIds, ProfileQuery, SourceId, run_all};
use bytes::Bytes;
use futures::future::join_all;
use prost::Message;
use tokio::sync::Semaphore;

use crate::rpc::dedup_ranges;
use crate::rpc::result_stream::{StreamChecksum, encode_frames};

/// Maximum concurrent head queries.
const MAX_CONCURRENT_QUERIES: usize = 64;
/// Maximum shards in one query: the memberships of a node, and some former ones.
const MAX_SHARDS_PER_QUERY: usize = 256;

/// Query service over the shards of this node.
#[derive(Clone)]
pub struct HeadQueryService {
    ingester: Arc<Ingester>,
    compute: ComputePool,
    permits: Arc<Semaphore>,
}

/// Head snapshot to query, with its dedup parameters.
struct HeadSource {
    snapshot: HeadSnapshot,
    /// Source under which the result reports the ids of matching profiles.
    report_ids: Option<SourceId>,
    excluded: ExcludedIds,
}

impl HeadQueryService {
    /// Creates the service of an ingester.
    pub fn new(ingester: Arc<Ingester>, compute: ComputePool) -> Self {
        Self { ingester, compute, permits: Arc::new(Semaphore::new(MAX_CONCURRENT_QUERIES)) }
    }

    /// Returns the result of all shards led here, and for each shard whether the result includes it. An empty
    /// query only returns time ranges.
    pub async fn query_heads(
        &self,
        tenant: &TenantId,
        query: &Bytes,
        shards: Vec<wire::ShardRequest>,
    ) -> Result<Vec<ResultFrame>, Status> {
        let checksum = request_checksum(tenant, query, &shards);
        let query = match query.is_empty() {
            true => None,
            false => Some(ProfileQuery::unpack(query).map_err(|error| Status::from_error(&error))?),
        };
        if shards.len() > MAX_SHARDS_PER_QUERY {
            let message = format!("query names {} shards, the limit is {MAX_SHARDS_PER_QUERY}", shards.len());
            return Err(Status::new(ErrorCode::Invalid, message));
        }
        shards.iter().try_for_each(|shard| check_epoch(shard.shard, shard.epoch))?;
        let _permit = self.permits.acquire().await;
        // The computation is cancelled when the caller disconnects.
        let (stop, _waiting) = CancelFlag::new_pair();
        let mut sources = Vec::new();
        let mut results = Vec::new();
        // Leadership checks run concurrently: a shard that waits for its members does not delay the others.
        let confirmations = shards.iter().map(|shard| self.ingester.confirm_leadership(shard.shard));
        let confirmations = join_all(confirmations).await;
        for (request, confirmed) in shards.into_iter().zip(confirmations) {
            let wire::ShardRequest { shard, watermark, report_ids, excluded, .. } = request;
            let exclusions = dedup_ranges::decode_excluded_heads(shard, &excluded)?;
            let snapshots = confirmed.and_then(|()| self.ingester.head_snapshots(shard, watermark, tenant));
            let mut times = None;
            let outcome = match snapshots {
                Ok(snapshots) => {
                    times = enclosing_span(snapshots.iter().filter_map(HeadSnapshot::times));
                    let heads = dedup_ranges::number_heads(shard, snapshots);
                    sources.extend(heads.map(|(source, snapshot)| HeadSource {
                        snapshot: snapshot.with_cancel(stop.atomic_flag()),
                        report_ids: report_ids.then_some(source),
                        excluded: exclusions.excluded_from(source).cloned().unwrap_or_default(),
                    }));
                    None
                }
                Err(ShardReadError::Rows { .. } | ShardReadError::Over { .. }) => Some(Outcome::Stale(true)),
                Err(error) => Some(Outcome::Error(not_leader_error(&error))),
            };
            results.push(self.shard_result(shard, watermark, times, outcome));
        }
        let Some(query) = query else {
            return Ok(encode_frames(checksum, std::iter::empty(), results.into_iter()));
        };
        let job =
            move || {
                let sources = sources.iter().map(|HeadSource { snapshot, report_ids, excluded }| {
                    DedupSource { source: snapshot, tells: *report_ids, without: excluded }
                });
                let partial = run_all(&query, sources).map_err(|error| Status::from_error(&error))?;
                let chunks = partial.pack().map_err(|error| Status::from_error(&error))?;
                Ok(encode_frames(checksum, chunks, results.into_iter()))
            };
        self.compute
            .for_tenant(tenant)
            .run_as(CpuActivity::Query, job)
            .await
            .map_err(|error| Status::from_error(&error))?
    }

    fn shard_result(
        &self,
        shard: ShardId,
        watermark: u64,
        times: Option<(i64, i64)>,
        outcome: Option<Outcome>,
    ) -> wire::ShardResult {
        let (first_nanos, last_nanos) = times.unzip();
        wire::ShardResult {
            shard,
            lost_entries: self.ingester.count_lost_entries(shard, watermark),
            ids_lost: self.ingester.has_unreported_lost_ids(shard),
            first_nanos,
            last_nanos,
            outcome,
        }
    }
}

/// Returns the checksum of a query to shards.
pub fn request_checksum(tenant: &TenantId, query: &[u8], shards: &[wire::ShardRequest]) -> StreamChecksum {
    StreamChecksum::for_request(tenant, query, shards.iter().map(Message::encode_to_vec))
}

/// Returns the span from the first to the last timestamp of all spans.
pub fn enclosing_span(times: impl Iterator<Item = (i64, i64)>) -> Option<(i64, i64)> {
    times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

/// Checks that the shard's number matches the epoch in the message: the number encodes the epoch [INV-12].
pub fn check_epoch(shard: ShardId, epoch: u32) -> Result<(), Status> {
    match decode_shard_id(shard) {
        Some((_, known)) if known == epoch => Ok(()),
        Some((slot, known)) => {
            let message =
                format!("shard {shard} has epoch {known} of slot {slot}, request names epoch {epoch}");
            Err(Status::new(ErrorCode::Invalid, message))
        }
        None => Err(Status::new(ErrorCode::Invalid, format!("invalid shard id {shard}"))),
    }
}

/// Returns the error for a shard that another node leads.
pub fn not_leader_error(error: &ShardReadError) -> wire::RpcStatus {
    status_codec::encode_status(&Status::new(ErrorCode::NotLeader, error.to_string()), error.leader())
}
