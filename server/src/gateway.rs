//! What a store-gateway does for other nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::BlockId;
use athanor_chassis::room::Taken;
use athanor_chassis::turns::Turn;
use athanor_chassis::{Activity, Clock, Code, Compute, Status, TenantId};
use athanor_cluster::failure;
use athanor_cluster::greeting::Introductions;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::blocks_response::Of;
use athanor_proto::athanor::internal::v1::gateways_server::Gateways;
use athanor_query::{Ask, TimeRange};
use athanor_store_gateway::{Answer, BlockAt, Gateway, Met};
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use prost::Message;
use tonic::{Request, Response};

use crate::kept::tenant_of;
use crate::pieces::{Piece, Sum, summed};
use crate::twice::{pack, unpack};

/// The blocks of this node, for others.
#[derive(Clone)]
pub struct Offering {
    /// Answers.
    pub gateway: Arc<Gateway>,
    /// Says who calls.
    pub introductions: Arc<Introductions>,
    /// Threads.
    pub compute: Compute,
    /// Measures patience.
    pub clock: Clock,
}

/// What another node asks.
struct Asked {
    tenant: TenantId,
    ask: Ask,
    blocks: Vec<BlockAt>,
    /// The sum of all that.
    question: Sum,
    /// How long it waits.
    patience: Duration,
}

/// What is said of how an answer was found.
struct How {
    /// When the question came, by the clock that goes on.
    came: Duration,
    /// When it was its turn.
    begun: Duration,
}

impl Offering {
    fn asked(&self, request: wire::BlocksRequest) -> Result<Asked, Status> {
        let wire::BlocksRequest { caller, tenant, ask, blocks } = request;
        self.introductions.check(caller.as_ref()).map_err(|stranger| Status::of(&stranger))?;
        let patience = caller.map_or(0, |caller| caller.deadline_ms);
        let tenant = tenant_of(&tenant)?;
        Ok(Asked {
            question: question(&tenant, &ask, &blocks),
            tenant,
            ask: Ask::unpack(&ask).map_err(|error| Status::of(&error))?,
            blocks: blocks.iter().map(at).collect::<Result<Vec<BlockAt>, Status>>()?,
            patience: Duration::from_millis(patience.into()),
        })
    }

    /// All pieces, and the room that they take until they are sent.
    async fn answered(
        self,
        asked: Asked,
        How { came, begun }: How,
        turn: &Turn,
    ) -> Result<(Vec<wire::BlocksResponse>, Option<Taken>), Status> {
        let Asked { tenant, ask, blocks, question, patience } = asked;
        let count = blocks.len() as u32;
        let answer = self.clock.within(patience, self.gateway.answer(&tenant, ask, blocks)).await;
        let answer = answer.unwrap_or_else(|late| Err(Status::new(Code::Deadline, late.to_string())));
        let Answer { pieces, met: Met { gone, unread, hits }, read, taken } = answer?;
        turn.pay(&tenant, read);
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let done = wire::BlocksDone {
            blocks: count,
            gone: gone.into_iter().map(named).collect(),
            from_memory: hits.memory,
            from_disk: hits.disk,
            joined: hits.joined,
            read: hits.read,
            waited_micros: micros(begun.saturating_sub(came)),
            worked_micros: micros(self.clock.monotonic().saturating_sub(begun)),
            unread: unread.iter().map(unread_of).collect(),
        };
        let pack = move || summed(question, pieces, [done].into_iter()).into_iter().map(to_wire).collect();
        let said = self.compute.for_tenant(&tenant).run_as(Activity::Query, pack).await;
        let said = said.map_err(|error| Status::of(&error))?;
        Ok((said, taken))
    }
}

#[async_trait]
impl Gateways for Offering {
    type QueryStream = Pin<Box<dyn Stream<Item = Result<wire::BlocksResponse, tonic::Status>> + Send>>;

    /// Begins to answer when it is the question's turn, so that whoever asks can tell waiting from working.
    async fn query(
        &self,
        request: Request<wire::BlocksRequest>,
    ) -> Result<Response<Self::QueryStream>, tonic::Status> {
        let asked = self.asked(request.into_inner()).map_err(|status| failure::to_grpc(&status))?;
        let came = self.clock.monotonic();
        let turn = self.gateway.turn(&asked.tenant).await.map_err(|status| failure::to_grpc(&status))?;
        let how = How { came, begun: self.clock.monotonic() };
        let here = self.clone();
        let pieces = async move {
            let (said, taken) =
                here.answered(asked, how, &turn).await.map_err(|status| failure::to_grpc(&status))?;
            let held = (turn, taken);
            Ok::<_, tonic::Status>(stream::iter(said).map(move |piece| {
                // Until all are sent.
                let _ = &held;
                Ok(piece)
            }))
        };
        Ok(Response::new(Box::pin(stream::once(pieces).try_flatten())))
    }
}

/// The sum of a question to blocks.
pub fn question(tenant: &TenantId, ask: &[u8], blocks: &[wire::BlockAt]) -> Sum {
    Sum::of(tenant, ask, blocks.iter().map(Message::encode_to_vec))
}

/// A piece as it is sent.
pub fn to_wire(piece: Piece) -> wire::BlocksResponse {
    let of = match piece {
        Piece::Partial(part) => Some(Of::Partial(part)),
        Piece::Done(done) => Some(Of::Done(done)),
        Piece::Sum(sum) => Some(Of::Sum(sum)),
        Piece::Unknown => None,
    };
    wire::BlocksResponse { of }
}

/// A piece that was sent.
pub fn piece_of(response: wire::BlocksResponse) -> Piece {
    match response.of {
        Some(Of::Partial(part)) => Piece::Partial(part),
        Some(Of::Done(done)) => Piece::Done(done),
        Some(Of::Sum(sum)) => Piece::Sum(sum),
        None => Piece::Unknown,
    }
}

/// The name of a block as it is sent.
pub fn named(block: BlockId) -> Bytes {
    Bytes::copy_from_slice(&block.number().to_be_bytes())
}

fn unread_of((block, why): &(BlockId, Status)) -> wire::Unread {
    wire::Unread { block: named(*block), why: Some(failure::pack(why, None)) }
}

/// The block of a name that was sent.
pub fn block_of(name: &[u8]) -> Result<BlockId, Status> {
    let bytes: [u8; 16] = name.try_into().map_err(|_| {
        Status::new(Code::Invalid, format!("a block's name has 16 bytes, and {} came", name.len()))
    })?;
    Ok(BlockId::from_number(u128::from_be_bytes(bytes)))
}

fn at(at: &wire::BlockAt) -> Result<BlockAt, Status> {
    let tells = at.tells.map(|wire::Times { from, to }| TimeRange { from, to });
    Ok(BlockAt { block: block_of(&at.block)?, whole: at.whole, tells, without: unpack(&at.without)? })
}

/// As it is sent.
pub fn to_wire_at(at: &BlockAt) -> wire::BlockAt {
    let tells = at.tells.map(|TimeRange { from, to }| wire::Times { from, to });
    wire::BlockAt { block: named(at.block), whole: at.whole, tells, without: pack(&at.without) }
}
