//! What a store-gateway does for other nodes.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_catalog::BlockId;
use athanor_chassis::{Code, Status};
use athanor_cluster::failure;
use athanor_cluster::greeting::Introductions;
use athanor_profile::hash::{self, Hash};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::blocks_response::Of as Piece;
use athanor_proto::athanor::internal::v1::gateways_server::Gateways;
use athanor_query::Ask;
use athanor_store_gateway::{BlockAt, Gateway};
use bytes::Bytes;
use futures::Stream;
use tonic::{Request, Response};

use crate::kept::tenant_of;

/// The blocks of this node, for others.
#[derive(Clone)]
pub struct Offering {
    /// Answers.
    pub gateway: Arc<Gateway>,
    /// Says who calls.
    pub introductions: Arc<Introductions>,
}

/// The sum of the pieces of an answer: whoever gets them can tell whether they are what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(Hash);

impl Sum {
    /// With one more piece.
    #[must_use]
    pub fn and(self, piece: &[u8]) -> Self {
        Self(hash::list(&[self.0, hash::bytes(piece)]))
    }
    /// As it is sent.
    pub fn packed(self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_be_bytes())
    }
}

impl Offering {
    async fn answered(&self, request: wire::BlocksRequest) -> Result<Vec<wire::BlocksResponse>, Status> {
        let wire::BlocksRequest { caller, tenant, ask, blocks } = request;
        self.introductions.check(caller.as_ref()).map_err(|stranger| Status::of(&stranger))?;
        let ask = Ask::unpack(&ask).map_err(|error| Status::of(&error))?;
        let blocks = blocks.iter().map(at).collect::<Result<Vec<BlockAt>, Status>>()?;
        let asked = blocks.len() as u32;
        let answer = self.gateway.answer(&tenant_of(&tenant)?, ask, blocks).await?;
        let mut sum = Sum::default();
        let mut said: Vec<Piece> = answer
            .pieces
            .map(|piece| {
                sum = sum.and(&piece);
                Piece::Partial(piece)
            })
            .collect();
        let gone = answer.gone.into_iter().map(named).collect();
        said.push(Piece::Done(wire::BlocksDone { blocks: asked, gone, sum: sum.packed() }));
        Ok(said.into_iter().map(|piece| wire::BlocksResponse { of: Some(piece) }).collect())
    }
}

#[async_trait]
impl Gateways for Offering {
    type QueryStream = Pin<Box<dyn Stream<Item = Result<wire::BlocksResponse, tonic::Status>> + Send>>;

    async fn query(
        &self,
        request: Request<wire::BlocksRequest>,
    ) -> Result<Response<Self::QueryStream>, tonic::Status> {
        let said = self.answered(request.into_inner()).await.map_err(|status| failure::to_grpc(&status))?;
        Ok(Response::new(Box::pin(futures::stream::iter(said.into_iter().map(Ok)))))
    }
}

/// The name of a block as it is sent.
pub fn named(block: BlockId) -> Bytes {
    Bytes::copy_from_slice(&block.number().to_be_bytes())
}

/// The block of a name that was sent.
pub fn block_of(name: &[u8]) -> Result<BlockId, Status> {
    let bytes: [u8; 16] = name.try_into().map_err(|_| {
        Status::new(Code::Invalid, format!("a block's name has 16 bytes, and {} came", name.len()))
    })?;
    Ok(BlockId::from_number(u128::from_be_bytes(bytes)))
}

fn at(at: &wire::BlockAt) -> Result<BlockAt, Status> {
    Ok(BlockAt { block: block_of(&at.block)?, whole: at.whole })
}
