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
use athanor_proto::athanor::internal::v1::blocks_response::Of;
use athanor_proto::athanor::internal::v1::gateways_server::Gateways;
use athanor_query::{ProfileQuery, TimeRange};
use athanor_store_gateway::{BlockOutcomes, BlockQueryResult, BlockTarget, StoreGateway};
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use prost::Message;
use tonic::{Request, Response};

use crate::rpc::dedup_ranges::{decode_excluded_ids, encode_excluded_ids};
use crate::rpc::ingester_service::parse_tenant;
use crate::rpc::result_stream::{ResultFrame, StreamChecksum, build_frames};

/// Service that queries the blocks of this node.
#[derive(Clone)]
pub struct StoreGatewayService {
    /// Store-gateway that runs the queries.
    pub gateway: Arc<StoreGateway>,
    /// Handshake that verifies callers.
    pub introductions: Arc<PeerHandshake>,
    /// Compute pool for decoding and encoding.
    pub compute: ComputePool,
    /// Clock for deadlines.
    pub clock: Clock,
}

/// Decoded request of another node.
struct BlockQueryRequest {
    tenant: TenantId,
    ask: ProfileQuery,
    blocks: Vec<BlockTarget>,
    /// Checksum of the request.
    question: StreamChecksum,
    /// Time that the caller waits.
    patience: Duration,
}

/// Times from which the response reports its wait and run time.
struct QueryTimings {
    /// Arrival of the request, on the monotonic clock.
    came: Duration,
    /// Time when the query got its permit.
    begun: Duration,
}

impl StoreGatewayService {
    fn asked(&self, request: wire::BlocksRequest) -> Result<BlockQueryRequest, Status> {
        let wire::BlocksRequest { caller, tenant, ask, blocks } = request;
        self.introductions.check_caller(caller.as_ref()).map_err(|stranger| Status::from_error(&stranger))?;
        let patience = caller.map_or(0, |caller| caller.deadline_ms);
        let tenant = parse_tenant(&tenant)?;
        Ok(BlockQueryRequest {
            question: request_checksum(&tenant, &ask, &blocks),
            tenant,
            ask: ProfileQuery::unpack(&ask).map_err(|error| Status::from_error(&error))?,
            blocks: blocks.iter().map(at).collect::<Result<Vec<BlockTarget>, Status>>()?,
            patience: Duration::from_millis(patience.into()),
        })
    }

    /// Returns all frames, and the memory reservation that they need until they are sent.
    async fn answered(
        self,
        asked: BlockQueryRequest,
        QueryTimings { came, begun }: QueryTimings,
        turn: &QueryPermit,
    ) -> Result<(Vec<wire::BlocksResponse>, Option<ResultReservation>), Status> {
        let BlockQueryRequest { tenant, ask, blocks, question, patience } = asked;
        let count = blocks.len() as u32;
        let answer = self.clock.timeout(patience, self.gateway.query_blocks(&tenant, ask, blocks)).await;
        let answer = answer.unwrap_or_else(|late| Err(Status::new(ErrorCode::Deadline, late.to_string())));
        let BlockQueryResult { pieces, met: BlockOutcomes { gone, unread, hits }, read, taken } = answer?;
        turn.charge(&tenant, read);
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let done = wire::BlocksDone {
            blocks: count,
            gone: gone.into_iter().map(encode_block_id).collect(),
            from_memory: hits.memory,
            from_disk: hits.disk,
            joined: hits.coalesced,
            read: hits.computed,
            waited_micros: micros(begun.saturating_sub(came)),
            worked_micros: micros(self.clock.monotonic().saturating_sub(begun)),
            unread: unread.iter().map(|(block, why)| unread_of(*block, why)).collect(),
        };
        let pack = move || {
            build_frames(question, pieces, [done].into_iter()).into_iter().map(encode_frame).collect()
        };
        let said = self.compute.for_tenant(&tenant).run_as(CpuActivity::Query, pack).await;
        let said = said.map_err(|error| Status::from_error(&error))?;
        Ok((said, taken))
    }
}

#[async_trait]
impl Gateways for StoreGatewayService {
    type QueryStream = Pin<Box<dyn Stream<Item = Result<wire::BlocksResponse, tonic::Status>> + Send>>;

    /// Starts the response when the query gets its permit, so that the caller can distinguish wait time from
    /// run time.
    async fn query(
        &self,
        request: Request<wire::BlocksRequest>,
    ) -> Result<Response<Self::QueryStream>, tonic::Status> {
        let asked = self.asked(request.into_inner()).map_err(|status| status_codec::to_grpc(&status))?;
        let came = self.clock.monotonic();
        let turn = self
            .gateway
            .acquire_permit(&asked.tenant)
            .await
            .map_err(|status| status_codec::to_grpc(&status))?;
        let how = QueryTimings { came, begun: self.clock.monotonic() };
        let here = self.clone();
        let pieces = async move {
            let (said, taken) =
                here.answered(asked, how, &turn).await.map_err(|status| status_codec::to_grpc(&status))?;
            let held = (turn, taken);
            Ok::<_, tonic::Status>(stream::iter(said).map(move |piece| {
                // The permit and the memory are held until all frames are sent.
                let _ = &held;
                Ok(piece)
            }))
        };
        Ok(Response::new(Box::pin(stream::once(pieces).try_flatten())))
    }
}

/// Returns the checksum of a block query.
pub fn request_checksum(tenant: &TenantId, ask: &[u8], blocks: &[wire::BlockAt]) -> StreamChecksum {
    StreamChecksum::for_request(tenant, ask, blocks.iter().map(Message::encode_to_vec))
}

/// Encodes a frame for the wire.
pub fn encode_frame(piece: ResultFrame) -> wire::BlocksResponse {
    let of = match piece {
        ResultFrame::Partial(part) => Some(Of::Partial(part)),
        ResultFrame::Done(done) => Some(Of::Done(done)),
        ResultFrame::Sum(sum) => Some(Of::Sum(sum)),
        ResultFrame::Unknown => None,
    };
    wire::BlocksResponse { of }
}

/// Decodes a frame from the wire.
pub fn decode_frame(response: wire::BlocksResponse) -> ResultFrame {
    match response.of {
        Some(Of::Partial(part)) => ResultFrame::Partial(part),
        Some(Of::Done(done)) => ResultFrame::Done(done),
        Some(Of::Sum(sum)) => ResultFrame::Sum(sum),
        None => ResultFrame::Unknown,
    }
}

/// Encodes a block id as 16 bytes, big-endian.
pub fn encode_block_id(block: BlockId) -> Bytes {
    Bytes::copy_from_slice(&block.number().to_be_bytes())
}

fn unread_of(block: BlockId, why: &Status) -> wire::Unread {
    wire::Unread { block: encode_block_id(block), why: Some(status_codec::encode_status(why, None)) }
}

/// Decodes a block id of 16 bytes. Rejects other lengths.
pub fn decode_block_id(name: &[u8]) -> Result<BlockId, Status> {
    let bytes: [u8; 16] = name.try_into().map_err(|_| {
        Status::new(ErrorCode::Invalid, format!("a block's name has 16 bytes, and {} came", name.len()))
    })?;
    Ok(BlockId::from_number(u128::from_be_bytes(bytes)))
}

fn at(at: &wire::BlockAt) -> Result<BlockTarget, Status> {
    let tells = at.tells.map(|wire::Times { from, to }| TimeRange { from, to });
    Ok(BlockTarget {
        block: decode_block_id(&at.block)?,
        whole: at.whole,
        tells,
        without: decode_excluded_ids(&at.without)?,
    })
}

/// Encodes a block target for the wire.
pub fn encode_block_at(at: &BlockTarget) -> wire::BlockAt {
    let tells = at.tells.map(|TimeRange { from, to }| wire::Times { from, to });
    wire::BlockAt {
        block: encode_block_id(at.block),
        whole: at.whole,
        tells,
        without: encode_excluded_ids(&at.without),
    }
}
