//! gRPC service of the store-gateway for other nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::BlockId;
use athanor_chassis::requests::query_queue::QueryPermit;
use athanor_chassis::requests::result_budget::ResultReservation;
use athanor_chassis::{Clock, ComputePool, CpuActivity, ErrorCode, Status, TenantId};
use athanor_cluster::handshake::PeerHandshake;
use athanor_cluster::status_codec;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::store_gateway_service_server;
use athanor_query::{ProfileQuery, TimeRange};
use athanor_store_gateway::{BlockOutcomes, BlockQueryResult, BlockTarget, StoreGateway};
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use prost::Message;
use tonic::{Request, Response};

use crate::rpc::dedup_ranges::{decode_excluded_ids, encode_excluded_ids};
use crate::rpc::ingester_service::parse_tenant;
use crate::rpc::result_stream::{StreamChecksum, encode_frames};

/// Limit of the ranges that a request reads from one block. A plan has about ten.
const MAX_BLOCK_RANGES: usize = 64;

/// Service that queries the blocks of this node.
#[derive(Clone)]
pub struct StoreGatewayService {
    /// Store-gateway that runs the queries.
    pub gateway: Arc<StoreGateway>,
    /// Handshake that verifies callers.
    pub handshake: Arc<PeerHandshake>,
    /// Compute pool for decoding and encoding.
    pub compute: ComputePool,
    /// Clock for deadlines.
    pub clock: Clock,
}

/// Decoded request of another node.
struct BlockQueryRequest {
    tenant: TenantId,
    query: ProfileQuery,
    blocks: Vec<BlockTarget>,
    /// Checksum of the request.
    checksum: StreamChecksum,
    /// Time that the caller waits.
    timeout: Duration,
}

/// Times from which the response reports its wait and run time.
struct QueryTimings {
    /// Arrival of the request, on the monotonic clock.
    arrived: Duration,
    /// Time when the query got its permit.
    started: Duration,
}

impl StoreGatewayService {
    fn decode_request(&self, request: wire::QueryBlocksRequest) -> Result<BlockQueryRequest, Status> {
        let wire::QueryBlocksRequest { header, tenant, query, blocks } = request;
        self.handshake.check_caller(header.as_ref()).map_err(|error| Status::from_error(&error))?;
        let timeout_ms = header.map_or(0, |header| header.timeout_ms);
        let tenant = parse_tenant(&tenant)?;
        Ok(BlockQueryRequest {
            checksum: request_checksum(&tenant, &query, &blocks),
            tenant,
            query: ProfileQuery::unpack(&query).map_err(|error| Status::from_error(&error))?,
            blocks: blocks.iter().map(decode_block_request).collect::<Result<Vec<BlockTarget>, Status>>()?,
            timeout: Duration::from_millis(timeout_ms.into()),
        })
    }

    /// Returns all frames, and the memory reservation that they need until they are sent.
    async fn run_query(
        self,
        request: BlockQueryRequest,
        timings: QueryTimings,
        permit: &QueryPermit,
    ) -> Result<(Vec<wire::ResultFrame>, Option<ResultReservation>), Status> {
        let BlockQueryRequest { tenant, query, blocks, checksum, timeout } = request;
        let count = blocks.len() as u32;
        let result = self.clock.timeout(timeout, self.gateway.query_blocks(&tenant, query, blocks)).await;
        let result = result.unwrap_or_else(|late| Err(Status::new(ErrorCode::Deadline, late.to_string())));
        let BlockQueryResult { pieces, met: BlockOutcomes { gone, unread, hits }, read, taken } = result?;
        permit.charge(&tenant, read);
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let trailer = wire::BlocksResult {
            blocks: count,
            not_found: gone.into_iter().map(encode_block_id).collect(),
            unreadable: unread.iter().map(|(block, why)| encode_unreadable_block(*block, why)).collect(),
            from_memory: hits.memory,
            from_disk: hits.disk,
            coalesced: hits.coalesced,
            computed: hits.computed,
            queued_micros: micros(timings.started.saturating_sub(timings.arrived)),
            run_micros: micros(self.clock.monotonic().saturating_sub(timings.started)),
        };
        let encode = move || encode_frames(checksum, pieces, [trailer].into_iter());
        let frames = self.compute.for_tenant(&tenant).run_as(CpuActivity::Query, encode).await;
        let frames = frames.map_err(|error| Status::from_error(&error))?;
        Ok((frames, taken))
    }
}

#[async_trait]
impl store_gateway_service_server::StoreGatewayService for StoreGatewayService {
    type QueryBlocksStream = Pin<Box<dyn Stream<Item = Result<wire::ResultFrame, tonic::Status>> + Send>>;

    /// Starts the response when the query gets its permit, so that the caller can distinguish wait time from
    /// run time.
    async fn query_blocks(
        &self,
        request: Request<wire::QueryBlocksRequest>,
    ) -> Result<Response<Self::QueryBlocksStream>, tonic::Status> {
        let request =
            self.decode_request(request.into_inner()).map_err(|status| status_codec::to_grpc(&status))?;
        let arrived = self.clock.monotonic();
        let permit = self
            .gateway
            .acquire_permit(&request.tenant)
            .await
            .map_err(|status| status_codec::to_grpc(&status))?;
        let timings = QueryTimings { arrived, started: self.clock.monotonic() };
        let service = self.clone();
        let frames = async move {
            let (frames, reservation) = service
                .run_query(request, timings, &permit)
                .await
                .map_err(|status| status_codec::to_grpc(&status))?;
            let held = (permit, reservation);
            Ok::<_, tonic::Status>(stream::iter(frames).map(move |frame| {
                // The permit and the memory are held until all frames are sent.
                let _ = &held;
                Ok(frame)
            }))
        };
        Ok(Response::new(Box::pin(stream::once(frames).try_flatten())))
    }
}

/// Returns the checksum of a block query.
pub fn request_checksum(tenant: &TenantId, query: &[u8], blocks: &[wire::BlockRequest]) -> StreamChecksum {
    StreamChecksum::for_request(tenant, query, blocks.iter().map(Message::encode_to_vec))
}

/// Encodes a block id as 16 bytes, big-endian.
pub fn encode_block_id(block: BlockId) -> Bytes {
    Bytes::copy_from_slice(&block.number().to_be_bytes())
}

/// Encodes the error of a block that the gateway could not read.
pub fn encode_unreadable_block(block: BlockId, why: &Status) -> wire::UnreadableBlock {
    let error = Some(status_codec::encode_status(why, None));
    wire::UnreadableBlock { block_id: encode_block_id(block), error }
}

/// Decodes a block id of 16 bytes. Rejects other lengths.
pub fn decode_block_id(id: &[u8]) -> Result<BlockId, Status> {
    let bytes: [u8; 16] = id.try_into().map_err(|_| {
        Status::new(ErrorCode::Invalid, format!("block id has {} bytes, must be 16", id.len()))
    })?;
    Ok(BlockId::from_number(u128::from_be_bytes(bytes)))
}

fn decode_time_range(range: &wire::TimeRange) -> TimeRange {
    TimeRange { from: range.from_nanos, to: range.until_nanos }
}

fn encode_time_range(TimeRange { from, to }: TimeRange) -> wire::TimeRange {
    wire::TimeRange { from_nanos: from, until_nanos: to }
}

/// Decodes the ranges of one block. Each row must be in one range only, or it would count twice.
fn decode_block_ranges(ranges: &[wire::TimeRange]) -> Result<Vec<TimeRange>, Status> {
    let invalid = |reason: String| Status::new(ErrorCode::Invalid, format!("ranges of a block: {reason}"));
    if ranges.len() > MAX_BLOCK_RANGES {
        return Err(invalid(format!("there are {}, the limit is {MAX_BLOCK_RANGES}", ranges.len())));
    }
    let ranges: Vec<TimeRange> = ranges.iter().map(decode_time_range).collect();
    if let Some(empty) = ranges.iter().find(|range| range.from >= range.to) {
        return Err(invalid(format!("{} to {} is empty", empty.from, empty.to)));
    }
    match ranges.windows(2).find(|pair| pair[1].from < pair[0].to) {
        Some(pair) => Err(invalid(format!("{} begins before {} ends", pair[1].from, pair[0].to))),
        None => Ok(ranges),
    }
}

/// Decodes the request for one block.
fn decode_block_request(request: &wire::BlockRequest) -> Result<BlockTarget, Status> {
    Ok(BlockTarget {
        block: decode_block_id(&request.block_id)?,
        in_tenant_folder: request.in_tenant_folder,
        whole: request.covers_block,
        ranges: decode_block_ranges(&request.ranges)?,
        tells: request.report_ids_for.as_ref().map(decode_time_range),
        without: decode_excluded_ids(&request.excluded_ids)?,
    })
}

/// Encodes the request for one block.
pub fn encode_block_request(target: &BlockTarget) -> wire::BlockRequest {
    wire::BlockRequest {
        block_id: encode_block_id(target.block),
        covers_block: target.whole,
        report_ids_for: target.tells.map(encode_time_range),
        excluded_ids: encode_excluded_ids(&target.without),
        in_tenant_folder: target.in_tenant_folder,
        ranges: target.ranges.iter().copied().map(encode_time_range).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use athanor_query::ExcludedIds;

    use super::*;

    #[test]
    fn block_request_decodes_to_encoded_target() {
        let shared = BlockTarget::without_duplicates(BlockId::from_number(7), true);
        let in_tenant_folder = BlockTarget {
            in_tenant_folder: true,
            ranges: vec![TimeRange { from: -9, to: 0 }, TimeRange { from: 4, to: i64::MAX }],
            tells: Some(TimeRange { from: -5, to: 9 }),
            without: ExcludedIds::new(BTreeSet::from([3, 8])),
            ..BlockTarget::without_duplicates(BlockId::from_number(8), false)
        };
        for target in [shared, in_tenant_folder] {
            let decoded = decode_block_request(&encode_block_request(&target));
            assert_eq!(decoded.expect("a valid request"), target);
        }
    }

    #[test]
    fn ranges_that_would_count_rows_twice_are_refused() {
        let refusal = |ranges: &[(i64, i64)]| {
            let ranges = ranges.iter().map(|&(from, to)| TimeRange { from, to }).collect();
            let target =
                BlockTarget { ranges, ..BlockTarget::without_duplicates(BlockId::from_number(8), false) };
            decode_block_request(&encode_block_request(&target)).map_err(|status| status.message)
        };
        assert!(refusal(&[(0, 5), (5, 6)]).is_ok());
        assert!(refusal(&[(0, 5), (4, 6)]).unwrap_err().contains("4 begins before 5 ends"));
        assert!(refusal(&[(3, 3)]).unwrap_err().contains("3 to 3 is empty"));
        let many: Vec<(i64, i64)> = (0..65).map(|number| (number, number + 1)).collect();
        assert!(refusal(&many).unwrap_err().contains("there are 65, the limit is 64"));
    }
}
