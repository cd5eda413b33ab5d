//! Queries of the heads that this node leads, for other nodes. Local queries use it if leadership moved here
//! while they were running.

use std::sync::Arc;

use athanor_catalog::{ShardId, decode_shard_id};
use athanor_chassis::{CancelFlag, ComputePool, CpuActivity, ErrorCode, Status, TenantId};
use athanor_cluster::status_codec;
use athanor_ingester::{HeadSnapshot, Ingester, ShardReadError};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::query_response::Of;
use athanor_query::{DedupSource, ExcludedIds, ProfileQuery, SourceId, run_all};
use bytes::Bytes;
use futures::future::join_all;
use prost::Message;
use tokio::sync::Semaphore;

use crate::rpc::dedup_ranges;
use crate::rpc::result_stream::{ResultFrame, StreamChecksum, build_frames};

/// Maximum concurrent head queries.
const MAX_CONCURRENT_QUERIES: usize = 64;
/// Maximum shards in one query: the memberships of a node, and some former ones.
const MAX_SHARDS_PER_QUERY: usize = 256;

/// Query service over the shards of this node.
#[derive(Clone)]
pub struct HeadQueryService {
    ingester: Arc<Ingester>,
    compute: ComputePool,
    questions: Arc<Semaphore>,
}

/// Head snapshot to query, with its dedup parameters.
struct HeadSource {
    view: HeadSnapshot,
    tells: Option<SourceId>,
    without: ExcludedIds,
}

impl HeadQueryService {
    /// Creates the service of an ingester.
    pub fn new(ingester: Arc<Ingester>, compute: ComputePool) -> Self {
        Self { ingester, compute, questions: Arc::new(Semaphore::new(MAX_CONCURRENT_QUERIES)) }
    }

    /// Returns the result of all shards led here, and for each shard whether the result includes it. An empty
    /// query only returns time ranges.
    pub async fn query_heads(
        &self,
        tenant: &TenantId,
        ask: &Bytes,
        shards: Vec<wire::ShardAt>,
    ) -> Result<Vec<ResultFrame>, Status> {
        let question = request_checksum(tenant, ask, &shards);
        let ask = match ask.is_empty() {
            true => None,
            false => Some(ProfileQuery::unpack(ask).map_err(|error| Status::from_error(&error))?),
        };
        if shards.len() > MAX_SHARDS_PER_QUERY {
            let message =
                format!("{} shards are asked for at once, the limit is {MAX_SHARDS_PER_QUERY}", shards.len());
            return Err(Status::new(ErrorCode::Invalid, message));
        }
        shards.iter().try_for_each(|at| check_epoch(at.shard, at.epoch))?;
        let _turn = self.questions.acquire().await;
        // The computation is cancelled when the caller disconnects.
        let (stop, _waiting) = CancelFlag::new_pair();
        let mut views = Vec::new();
        let mut done = Vec::new();
        // Leadership checks run concurrently: a shard that waits for its members does not delay the others.
        let confirmed = join_all(shards.iter().map(|at| self.ingester.confirm_leadership(at.shard))).await;
        for (at, confirmed) in shards.into_iter().zip(confirmed) {
            let wire::ShardAt { shard, watermark, tells, without, .. } = at;
            let doubles = dedup_ranges::decode_excluded_heads(shard, &without)?;
            let mut times = None;
            let of_shard = confirmed.and_then(|()| self.ingester.head_snapshots(shard, watermark, tenant));
            let of = match of_shard {
                Ok(of_shard) => {
                    times = enclosing_span(of_shard.iter().filter_map(HeadSnapshot::times));
                    views.extend(dedup_ranges::number_heads(shard, of_shard).map(|(place, view)| {
                        HeadSource {
                            view: view.with_cancel(stop.atomic_flag()),
                            tells: tells.then_some(place),
                            without: doubles.excluded_from(place).cloned().unwrap_or_default(),
                        }
                    }));
                    None
                }
                Err(ShardReadError::Rows { .. } | ShardReadError::Over { .. }) => {
                    Some(wire::shard_done::Of::Replan(true))
                }
                Err(moved) => Some(wire::shard_done::Of::Failure(not_leader_failure(&moved))),
            };
            let lost = self.ingester.count_lost_entries(shard, watermark);
            let (first_nanos, last_nanos) = times.unzip();
            let forgets = self.ingester.has_unreported_lost_ids(shard);
            done.push(wire::ShardDone { shard, lost, forgets, first_nanos, last_nanos, of });
        }
        let Some(ask) = ask else {
            return Ok(build_frames(question, std::iter::empty(), done.into_iter()));
        };
        let job = move || {
            let lying = views.iter().map(|HeadSource { view, tells, without }| DedupSource {
                source: view,
                tells: *tells,
                without,
            });
            let partial = run_all(&ask, lying);
            let partial = partial.map_err(|error| Status::from_error(&error))?;
            let packed = partial.pack().map_err(|error| Status::from_error(&error))?;
            Ok(build_frames(question, packed, done.into_iter()))
        };
        self.compute
            .for_tenant(tenant)
            .run_as(CpuActivity::Query, job)
            .await
            .map_err(|error| Status::from_error(&error))?
    }
}

/// Returns the checksum of a query to shards.
pub fn request_checksum(tenant: &TenantId, ask: &[u8], shards: &[wire::ShardAt]) -> StreamChecksum {
    StreamChecksum::for_request(tenant, ask, shards.iter().map(Message::encode_to_vec))
}

/// Encodes a result frame for the wire.
pub fn encode_frame(piece: ResultFrame) -> wire::QueryResponse {
    let of = match piece {
        ResultFrame::Partial(part) => Some(Of::Partial(part)),
        ResultFrame::Done(done) => Some(Of::Done(done)),
        ResultFrame::Sum(sum) => Some(Of::Sum(sum)),
        ResultFrame::Unknown => None,
    };
    wire::QueryResponse { of }
}

/// Decodes a result frame from the wire.
pub fn decode_frame(response: wire::QueryResponse) -> ResultFrame {
    match response.of {
        Some(Of::Partial(part)) => ResultFrame::Partial(part),
        Some(Of::Done(done)) => ResultFrame::Done(done),
        Some(Of::Sum(sum)) => ResultFrame::Sum(sum),
        None => ResultFrame::Unknown,
    }
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
            let message = format!("shard {shard} is the one of epoch {known} of slot {slot}, not of {epoch}");
            Err(Status::new(ErrorCode::Invalid, message))
        }
        None => Err(Status::new(ErrorCode::Invalid, format!("{shard} is the number of no shard"))),
    }
}

/// Returns the failure for a shard that another node leads.
pub fn not_leader_failure(moved: &ShardReadError) -> wire::Failure {
    status_codec::encode_status(&Status::new(ErrorCode::NotLeader, moved.to_string()), moved.leader())
}
