//! Which gateways answer for which blocks, and how they are asked.
//!
//! A block belongs to the first of the gateways that are there, by its name; where that one does not answer, the next one
//! is asked, and at last this node reads the block itself. So where no gateway is, queriers read all blocks themselves.
//! What an answer holds is taken as a whole or not at all: a block whose answer broke off is in none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{BlockEntry, BlockId};
use athanor_chassis::{Clock, Code, Status, TenantId};
use athanor_cluster::members::{Member, MemberState, Members, RoleName};
use athanor_cluster::placement::nodes_of_block;
use athanor_cluster::{NodeId, failure};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::blocks_response::Of as Piece;
use athanor_querier::{Asked, Inbox, Remote, Stored};
use athanor_query::{Ask, Partial};
use athanor_store_gateway::{BlockAt, Gateway, MOST, Question};
use bytes::Bytes;
use futures::stream::TryStreamExt;

use crate::gateway::{Sum, block_of, named};
use crate::ways::{Afar, Ways};

/// How long each gateway may take that is asked for a block, until this node reads it itself. The first one may stand
/// still, and most others have their answer much sooner.
const TRIES: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];
/// Blocks of one call: so many answers of a gateway are on their way at once, and little is asked for again where one
/// does not answer.
const CALL: usize = 32;

/// The gateways, and the way to each.
#[derive(Clone)]
pub struct Gateways {
    /// Blocks that this node reads.
    pub here: Arc<Gateway>,
    /// Whether that is for others, too.
    pub is_one: bool,
    /// Who is there; none of a server that is alone.
    pub members: Option<Members>,
    /// How others are asked.
    pub ways: Ways,
    /// Measures patience.
    pub clock: Clock,
}

/// The blocks of a question by who answers for them.
pub struct Divided {
    /// Those that this node reads.
    pub here: Vec<Box<dyn Stored>>,
    /// Those of others.
    pub away: Vec<Arc<dyn Remote>>,
}

/// Blocks that seem to belong to one gateway.
struct Away {
    gateways: Gateways,
    blocks: Vec<(BlockAt, Vec<NodeId>)>,
}

/// A block that is read here.
struct Here {
    gateway: Arc<Gateway>,
    question: Arc<Question>,
    at: BlockAt,
}

impl Gateways {
    /// Divides the blocks of a question by who answers for them.
    pub fn divide(&self, tenant: &TenantId, ask: &Ask, blocks: impl IntoIterator<Item = BlockAt>) -> Divided {
        let nodes = self.nodes();
        let question = Arc::new(Question::new(tenant.clone(), ask.clone()));
        let (mut here, mut away) = (Vec::new(), BTreeMap::<NodeId, Vec<_>>::new());
        for at in blocks {
            let owners = nodes_of_block(at.block.number(), nodes.iter().copied());
            match owners.first() {
                Some(&node) if node != self.ways.me => away.entry(node).or_default().push((at, owners)),
                _ => here.push(self.read(&question, at)),
            }
        }
        let calls = away
            .into_values()
            .flat_map(|blocks| blocks.chunks(CALL.min(MOST)).map(<[_]>::to_vec).collect::<Vec<_>>());
        let remote = |blocks| Arc::new(Away { gateways: self.clone(), blocks }) as Arc<dyn Remote>;
        Divided { here, away: calls.map(remote).collect() }
    }

    fn read(&self, question: &Arc<Question>, at: BlockAt) -> Box<dyn Stored> {
        Box::new(Here { gateway: Arc::clone(&self.here), question: Arc::clone(question), at })
    }

    /// The gateways that seem to be there.
    fn nodes(&self) -> Vec<NodeId> {
        let Some(members) = self.members.as_ref().filter(|_| self.ways.afar.is_some()) else {
            return Vec::new();
        };
        let answers = |member: &&Member| {
            member.roles.contains(&RoleName::StoreGateway)
                && member.is_alive()
                && !matches!(member.state, MemberState::Starting | MemberState::Left)
        };
        let mut nodes: Vec<NodeId> =
            members.now().values().filter(answers).map(|member| member.node).collect();
        // Of itself a node knows without gossip.
        if self.is_one && !nodes.contains(&self.ways.me) {
            nodes.push(self.ways.me);
        }
        nodes
    }

    /// Has one gateway answer for blocks, and gives what it has to the inbox; names those that the bucket has no more.
    async fn ask_one(
        &self,
        (node, patience): (NodeId, Duration),
        blocks: &[BlockAt],
        (tenant, ask): (&TenantId, &Bytes),
        inbox: &mut Inbox,
    ) -> Result<Vec<BlockId>, Status> {
        let none = || Status::new(Code::Unavailable, "there are no other nodes");
        let Afar { peers, introductions } = self.ways.afar.as_ref().ok_or_else(none)?;
        let at = |at: &BlockAt| wire::BlockAt { block: named(at.block), whole: at.whole };
        let request = wire::BlocksRequest {
            caller: Some(introductions.caller(node, patience)),
            tenant: tenant.as_str().to_owned(),
            ask: ask.clone(),
            blocks: blocks.iter().map(at).collect(),
        };
        let asked = async {
            let answered = peers.gateways(node).query(request).await;
            let mut pieces = answered.map_err(|error| failure::from_grpc(&error))?.into_inner();
            let (mut sum, mut done) = (Sum::default(), None);
            while let Some(piece) = pieces.try_next().await.map_err(|error| failure::from_grpc(&error))? {
                match piece.of {
                    Some(Piece::Partial(bytes)) if done.is_none() => {
                        sum = sum.and(&bytes);
                        inbox.piece(&bytes)?;
                    }
                    Some(Piece::Done(of)) if done.is_none() => done = Some(of),
                    _ => return Err(Status::new(Code::Internal, "it says what was not asked for")),
                }
            }
            complete(done, blocks, sum)
        };
        let said = match self.clock.within(patience, asked).await {
            Ok(said) => said,
            Err(late) => Err(Status::new(Code::Deadline, format!("node {node} did not answer {late}"))),
        };
        match said {
            Ok(gone) => inbox.end().await.map(|()| gone),
            Err(status) => {
                inbox.forget();
                Err(status)
            }
        }
    }

    /// Reads blocks itself that no gateway answered for.
    async fn read_here(
        &self,
        blocks: &[BlockAt],
        tenant: &TenantId,
        ask: &Ask,
        inbox: &mut Inbox,
    ) -> Result<Vec<BlockId>, Status> {
        let answer = self.here.answer(tenant, ask.clone(), blocks.to_vec()).await?;
        for piece in answer.pieces {
            inbox.piece(&piece)?;
        }
        inbox.end().await?;
        Ok(answer.gone)
    }
}

#[async_trait]
impl Remote for Away {
    async fn ask(&self, tenant: &TenantId, ask: &Ask, inbox: &mut Inbox) -> Result<(), Asked> {
        let packed: Bytes = ask.pack().map_err(|error| Status::of(&error))?.into();
        let (mut left, mut gone) = (self.blocks.clone(), Vec::new());
        for (attempt, patience) in TRIES.into_iter().enumerate() {
            let mut by_node: BTreeMap<NodeId, Vec<(BlockAt, Vec<NodeId>)>> = BTreeMap::new();
            let mut rest = Vec::new();
            for (at, owners) in left {
                match owners.get(attempt) {
                    Some(&node) if node != self.gateways.ways.me => {
                        by_node.entry(node).or_default().push((at, owners));
                    }
                    _ => rest.push((at, owners)),
                }
            }
            for (node, blocks) in by_node {
                let at: Vec<BlockAt> = blocks.iter().map(|(at, _)| *at).collect();
                match self.gateways.ask_one((node, patience), &at, (tenant, &packed), inbox).await {
                    Ok(of) => gone.extend(of),
                    Err(status) if may_pass(&status) => {
                        tracing::debug!(node, error = %status, "a gateway did not answer, another one is asked");
                        rest.extend(blocks);
                    }
                    Err(status) => return Err(status.into()),
                }
            }
            left = rest;
            if left.is_empty() {
                break;
            }
        }
        if !left.is_empty() {
            let at: Vec<BlockAt> = left.iter().map(|(at, _)| *at).collect();
            gone.extend(self.gateways.read_here(&at, tenant, ask, inbox).await?);
        }
        match gone.first() {
            None => Ok(()),
            Some(block) => Err(Asked::Replan(format!("block {block} has gone since the plan was made"))),
        }
    }
}

#[async_trait]
impl Stored for Here {
    async fn answer(self: Box<Self>) -> Result<Partial, Status> {
        self.gateway.answer_of(&self.question, self.at).await
    }
}

/// The blocks that are gone, of an answer that is whole and came as it was sent.
fn complete(done: Option<wire::BlocksDone>, blocks: &[BlockAt], sum: Sum) -> Result<Vec<BlockId>, Status> {
    let broken = |why: &str| Status::new(Code::Unavailable, format!("a gateway's answer {why}"));
    let done = done.ok_or_else(|| broken("broke off"))?;
    if done.sum != sum.packed() {
        return Err(broken("is not what was sent: its sum is another"));
    }
    let gone = done.gone.iter().map(|name| block_of(name)).collect::<Result<Vec<BlockId>, Status>>()?;
    let is_asked = |gone: &BlockId| blocks.iter().any(|at| at.block == *gone);
    if done.blocks as usize != blocks.len() || !gone.iter().all(is_asked) {
        return Err(broken("is to another question"));
    }
    Ok(gone)
}

/// Whether another gateway may answer.
fn may_pass(status: &Status) -> bool {
    matches!(status.code, Code::Unavailable | Code::Deadline | Code::Cancelled | Code::Unimplemented)
}

/// What a question is about of a block.
pub fn wanted_of(block: &BlockEntry, tenant: &TenantId, from: i64, last: i64) -> BlockAt {
    let span = block.span(tenant, from, last);
    let within = |time: i64| from <= time && time <= last;
    let whole = span.is_some_and(|span| within(span.min_time) && within(span.max_time));
    BlockAt { block: block.id, whole }
}
