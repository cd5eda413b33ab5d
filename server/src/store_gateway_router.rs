//! Which gateways answer for which blocks, and how they are asked.
//!
//! A block belongs to the first of the gateways that are there, by its name; where that one does not answer, the next one
//! is asked, and at last this node reads the block itself. So where no gateway is, queriers read all blocks themselves.
//! What an answer holds is taken as a whole or not at all: a block whose answer broke off is in none. One that a gateway
//! cannot read, since it is damaged or the bucket does not give it, goes the same way; where nobody can read it, the answer
//! goes on without it and says so.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{BlockEntry, BlockId};
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState, RoleName};
use athanor_cluster::placement::nodes_of_block;
use athanor_cluster::{NodeId, status_codec};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_querier::{
    BlockSource, PartialReceiver, RemoteSource, SourceKind, SourceQueryError, SourceReport, UnreadableBlock,
};
use athanor_query::{PartialOrigin, PartialOriginCounts, PartialResult, ProfileQuery};
use athanor_store_gateway::{
    BlockOutcomes, BlockQuery as OfBlocks, BlockTarget, MAX_BLOCKS_PER_QUERY, StoreGateway,
    is_skippable_failure,
};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select, try_join_all};
use futures::stream::TryStreamExt;

use crate::hedging::HedgingPolicy;
use crate::ingester_client::{IngesterClient, InternalRpcClient};
use crate::result_stream::{ResultStreamError, collect_frames};
use crate::store_gateway_service::{
    decode_block_id, decode_frame, encode_block_at, request_checksum as sum_of,
};

/// How long a gateway may take until it begins with a question: it may have many, and it may stand still.
const QUERY_START_TIMEOUT: Duration = Duration::from_secs(10);
/// Gateways that are asked for a block, until this node reads it itself.
const MAX_GATEWAYS_PER_BLOCK: usize = 2;
/// Blocks of one call: so many answers of a gateway are on their way at once, and little is asked for again where one
/// does not answer.
const MAX_BLOCKS_PER_CALL: usize = 32;
const _: () = assert!(MAX_BLOCKS_PER_CALL <= MAX_BLOCKS_PER_QUERY, "a gateway takes the blocks of one call");

/// The gateways, and the way to each.
#[derive(Clone)]
pub struct StoreGatewayRouter {
    /// Blocks that this node reads.
    pub here: Arc<StoreGateway>,
    /// Whether that is for others, too.
    pub is_one: bool,
    /// Who is there; none of a server that is alone.
    pub members: Option<ClusterMembers>,
    /// How others are asked.
    pub ways: IngesterClient,
    /// Who is asked beside one that takes long.
    pub hedges: Arc<HedgingPolicy>,
}

/// The blocks of a question by who answers for them.
pub struct BlockAssignment {
    /// Those that this node reads.
    pub here: Vec<Box<dyn BlockSource>>,
    /// Those of others.
    pub away: Vec<Arc<dyn RemoteSource>>,
}

/// Blocks that seem to belong to one gateway.
struct RemoteBlocks {
    gateways: StoreGatewayRouter,
    blocks: Vec<OwnedBlock>,
}

/// A block and whom it belongs to, the first one first.
#[derive(Clone)]
struct OwnedBlock {
    at: BlockTarget,
    owners: Vec<NodeId>,
}

/// What is asked.
struct GatewayQuery<'a> {
    tenant: &'a TenantId,
    ask: &'a ProfileQuery,
    packed: Bytes,
    inbox: &'a PartialReceiver,
}

/// The answer of some blocks, which is not merged yet.
struct UnmergedResult {
    inbox: PartialReceiver,
    lacks: MissingBlocks,
}

/// Blocks that are not in an answer.
#[derive(Debug, Default, PartialEq, Eq)]
struct MissingBlocks {
    /// Those that the bucket has no more.
    gone: Vec<BlockId>,
    /// Those that could not be read, and why.
    unread: Vec<(BlockId, Status)>,
}

/// A block that is read here.
struct LocalBlockSource {
    of: Arc<LocalBlocksQuery>,
    block: OwnedBlock,
}

/// What blocks that are read here are asked.
struct LocalBlocksQuery {
    gateways: StoreGatewayRouter,
    question: Arc<OfBlocks>,
    tenant: TenantId,
    ask: ProfileQuery,
}

impl StoreGatewayRouter {
    /// Divides the blocks of a question by who answers for them.
    pub fn assign_blocks(
        &self,
        tenant: &TenantId,
        ask: &ProfileQuery,
        blocks: impl IntoIterator<Item = BlockTarget>,
    ) -> BlockAssignment {
        let nodes = self.nodes();
        let question = Arc::new(OfBlocks::new(tenant.clone(), ask.clone()));
        let of =
            LocalBlocksQuery { gateways: self.clone(), question, tenant: tenant.clone(), ask: ask.clone() };
        let of = Arc::new(of);
        let mut here = Vec::new();
        let mut away = BTreeMap::<NodeId, Vec<OwnedBlock>>::new();
        for at in blocks {
            let mut owners = nodes_of_block(at.block.number(), nodes.iter().copied());
            owners.truncate(MAX_GATEWAYS_PER_BLOCK);
            match owners.first() {
                Some(&node) if node != self.ways.me => {
                    away.entry(node).or_default().push(OwnedBlock { at, owners });
                }
                _ => {
                    let block = OwnedBlock { at, owners };
                    here.push(
                        Box::new(LocalBlockSource { of: Arc::clone(&of), block }) as Box<dyn BlockSource>
                    );
                }
            }
        }
        let calls = away
            .into_values()
            .flat_map(|blocks| blocks.chunks(MAX_BLOCKS_PER_CALL).map(<[_]>::to_vec).collect::<Vec<_>>());
        let remote =
            |blocks| Arc::new(RemoteBlocks { gateways: self.clone(), blocks }) as Arc<dyn RemoteSource>;
        BlockAssignment { here, away: calls.map(remote).collect() }
    }

    /// The gateways that seem to be there.
    fn nodes(&self) -> Vec<NodeId> {
        let Some(members) = self.members.as_ref().filter(|_| self.ways.afar.is_some()) else {
            return Vec::new();
        };
        let answers = |member: &&ClusterMember| {
            member.roles.contains(&RoleName::StoreGateway)
                && member.is_alive()
                && !matches!(member.state, MemberState::Starting | MemberState::Draining | MemberState::Left)
        };
        let mut nodes: Vec<NodeId> =
            members.current().values().filter(answers).map(|member| member.node).collect();
        // Of itself a node knows without gossip.
        if self.is_one && !nodes.contains(&self.ways.me) {
            nodes.push(self.ways.me);
        }
        nodes
    }

    /// The answers of all of these blocks: of so many gateways none had one so far.
    fn answers<'a>(
        &'a self,
        tried: usize,
        blocks: Vec<OwnedBlock>,
        question: &'a GatewayQuery<'a>,
    ) -> BoxFuture<'a, Result<Vec<UnmergedResult>, Status>> {
        let mut by_node = BTreeMap::<NodeId, Vec<OwnedBlock>>::new();
        let mut here = Vec::new();
        for block in blocks {
            match self.other(&block, tried) {
                Some(node) => by_node.entry(node).or_default().push(block),
                None => here.push(block.at),
            }
        }
        let there =
            by_node.into_iter().map(|(node, blocks)| self.one_or_next(tried, node, blocks, question).boxed());
        let here = (!here.is_empty()).then(|| self.read_here(here, question).boxed());
        let all = try_join_all(there.chain(here));
        async move { Ok(all.await?.into_iter().flatten().collect()) }.boxed()
    }

    /// Which other node is asked for a block when so many had no answer: none when this one is to read it.
    fn other(&self, block: &OwnedBlock, tried: usize) -> Option<NodeId> {
        block.owners.get(tried).copied().filter(|node| *node != self.ways.me)
    }

    /// The answer of a gateway; where it gives none, or not soon, of those after it.
    async fn one_or_next(
        &self,
        tried: usize,
        node: NodeId,
        blocks: Vec<OwnedBlock>,
        question: &GatewayQuery<'_>,
    ) -> Result<Vec<UnmergedResult>, Status> {
        let next = || self.answers(tried + 1, blocks.clone(), question);
        let first = pin!(self.answer_of(node, &blocks, question));
        // Who is asked in another's stead is no new call, which would pay for more of its kind.
        let patience = if tried == 0 { self.hedges.begin() } else { self.hedges.hedge_delay() };
        let patience = pin!(self.ways.clock.sleep(patience));
        let said = match select(first, patience).await {
            Either::Left((said, _)) => said,
            Either::Right(((), first)) if !self.hedges.try_take_credit() => first.await,
            Either::Right(((), first)) => {
                let is_call = blocks.iter().any(|block| self.other(block, tried + 1).is_some());
                if is_call {
                    self.hedges.record_hedge();
                }
                let won = |_: &Vec<UnmergedResult>| {
                    if is_call {
                        self.hedges.record_hedge_won();
                    }
                };
                match select(first, next()).await {
                    Either::Left((Err(ResultStreamError::There(why)), next)) if may_pass(&why) => {
                        return next.await.inspect(won);
                    }
                    Either::Left((said, _)) => said,
                    // The first one may be able to read what others are not.
                    Either::Right((Ok(wholes), first)) if wholes.iter().any(UnmergedResult::has_unread) => {
                        // It is waited for as long again: it may stand still.
                        let first = self.ways.clock.timeout(self.hedges.hedge_delay(), first).await;
                        let first = first.ok().and_then(Result::ok).filter(|whole| !whole.has_unread());
                        return Ok(first.map_or(wholes, |whole| vec![whole]));
                    }
                    Either::Right((Ok(wholes), _)) => return Ok(wholes).inspect(won),
                    Either::Right((Err(_), first)) => {
                        return first.await.map(|whole| vec![whole]).map_err(ResultStreamError::into_status);
                    }
                }
            }
        };
        match said {
            Ok(whole) => self.with_others(tried, whole, &blocks, question).await,
            Err(ResultStreamError::There(why)) if may_pass(&why) => {
                tracing::debug!(node, error = %why, "a gateway did not answer, another one is asked");
                next().await
            }
            Err(why) => Err(why.into_status()),
        }
    }

    /// An answer with those of others for what a gateway could not read.
    async fn with_others(
        &self,
        tried: usize,
        mut whole: UnmergedResult,
        blocks: &[OwnedBlock],
        question: &GatewayQuery<'_>,
    ) -> Result<Vec<UnmergedResult>, Status> {
        let unread = std::mem::take(&mut whole.lacks.unread);
        if unread.is_empty() {
            return Ok(vec![whole]);
        }
        let is_unread = |block: &&OwnedBlock| unread.iter().any(|(unread, _)| *unread == block.at.block);
        let left = blocks.iter().filter(is_unread).cloned().collect();
        let mut wholes = self.answers(tried + 1, left, question).await?;
        wholes.push(whole);
        Ok(wholes)
    }

    /// Has one gateway answer for blocks, and says how that went.
    async fn answer_of(
        &self,
        node: NodeId,
        blocks: &[OwnedBlock],
        question: &GatewayQuery<'_>,
    ) -> Result<UnmergedResult, ResultStreamError> {
        let begun = self.ways.clock.monotonic();
        let mut part = SourceReport {
            of: SourceKind::Blocks(blocks.len()),
            node: Some(node),
            ..SourceReport::default()
        };
        let said = self.called(node, blocks, question, &mut part).await;
        part.took = self.ways.clock.monotonic().saturating_sub(begun);
        part.failed = said.as_ref().err().map(|why| why.clone().into_status().message);
        question.inbox.report_source(part);
        said
    }

    async fn called(
        &self,
        node: NodeId,
        blocks: &[OwnedBlock],
        question: &GatewayQuery<'_>,
        part: &mut SourceReport,
    ) -> Result<UnmergedResult, ResultStreamError> {
        let IngesterClient { clock, .. } = &self.ways;
        let InternalRpcClient { peers, introductions } =
            self.ways.remote_client().map_err(ResultStreamError::There)?;
        let begun = clock.monotonic();
        let left = question.inbox.remaining_time(clock);
        let request = wire::BlocksRequest {
            caller: Some(introductions.caller(node, left)),
            tenant: question.tenant.as_str().to_owned(),
            ask: question.packed.clone(),
            blocks: blocks.iter().map(|owned| encode_block_at(&owned.at)).collect(),
        };
        let sum = sum_of(question.tenant, &question.packed, &request.blocks);
        let mut client = peers.store_gateway(node);
        let answered = self.ways.call_node(node, QUERY_START_TIMEOUT.min(left), client.query(request)).await;
        let pieces = answered.map_err(ResultStreamError::There)?.into_inner();
        let pieces = pieces.map_ok(decode_frame).map_err(|error| status_codec::from_grpc(&error));
        let mut inbox = question.inbox.fork();
        let take = |bytes: Bytes| {
            part.bytes += bytes.len() as u64;
            inbox.push_chunk(&bytes)
        };
        let done = collect_frames(pieces, sum, 1, take).await?.into_iter().next();
        if let Some(done) = &done {
            (part.hits, part.there) = (hits_of(done), Some(there(done)));
        }
        let lacks = complete(done, blocks).map_err(ResultStreamError::There)?;
        self.hedges.record_latency(clock.monotonic().saturating_sub(begun));
        Ok(UnmergedResult { inbox, lacks })
    }

    /// Reads blocks itself that no gateway answered for.
    async fn read_here(
        &self,
        blocks: Vec<BlockTarget>,
        question: &GatewayQuery<'_>,
    ) -> Result<Vec<UnmergedResult>, Status> {
        let of_blocks = Arc::new(OfBlocks::new(question.tenant.clone(), question.ask.clone()));
        let mut inbox = question.inbox.fork();
        let place = Arc::new(inbox.local_merger());
        let begun = self.ways.clock.monotonic();
        let of = SourceKind::Blocks(blocks.len());
        let BlockOutcomes { gone, unread, hits } = self.here.merge_blocks(&of_blocks, blocks, &place).await?;
        inbox.add_merged(&place)?;
        let took = self.ways.clock.monotonic().saturating_sub(begun);
        let failed = unread.first().map(|(_, why)| why.message.clone());
        inbox.report_source(SourceReport { of, took, hits, failed, ..SourceReport::default() });
        Ok(vec![UnmergedResult { inbox, lacks: MissingBlocks { gone, unread } }])
    }
}

impl UnmergedResult {
    fn has_unread(&self) -> bool {
        !self.lacks.unread.is_empty()
    }
}

/// Merges answers, and says what is in none of them.
async fn merge(wholes: Vec<UnmergedResult>, inbox: &PartialReceiver) -> Result<(), SourceQueryError> {
    let mut gone = Vec::new();
    for mut whole in wholes {
        whole.inbox.finish().await?;
        gone.extend(whole.lacks.gone);
        inbox.report_unreadable_blocks(whole.lacks.unread.into_iter().map(unread).collect());
    }
    if gone.is_empty() { Ok(()) } else { Err(self::gone(&gone)) }
}

#[async_trait]
impl RemoteSource for RemoteBlocks {
    async fn query(
        &self,
        tenant: &TenantId,
        ask: &ProfileQuery,
        inbox: &mut PartialReceiver,
    ) -> Result<(), SourceQueryError> {
        let packed: Bytes = ask.pack().map_err(|error| Status::from_error(&error))?.into();
        let question = GatewayQuery { tenant, ask, packed, inbox };
        let wholes = self.gateways.answers(0, self.blocks.clone(), &question).await?;
        merge(wholes, inbox).await
    }
}

#[async_trait]
impl BlockSource for LocalBlockSource {
    async fn query(
        self: Box<Self>,
        inbox: &mut PartialReceiver,
    ) -> Result<Option<(PartialResult, SourceReport)>, SourceQueryError> {
        let LocalBlocksQuery { gateways, question, .. } = &*self.of;
        let at = &self.block.at;
        match gateways.here.query_block(question, at).await {
            Ok((partial, found)) => Ok(Some((partial, of_block(at.block, found)))),
            // Another took its place, or it is too old [INV-18].
            Err(status) if status.code == ErrorCode::NotFound => Err(gone(&[at.block])),
            Err(status) if is_skippable_failure(&status) => self.others(status, inbox).await.map(|()| None),
            Err(status) => Err(status.into()),
        }
    }
}

impl LocalBlockSource {
    /// Has others answer for a block that cannot be read here; where nobody can, that is said.
    async fn others(self: Box<Self>, why: Status, inbox: &PartialReceiver) -> Result<(), SourceQueryError> {
        let LocalBlocksQuery { gateways, tenant, ask, .. } = &*self.of;
        let of = SourceKind::Block(self.block.at.block.to_string());
        inbox.report_source(SourceReport {
            of,
            failed: Some(why.message.clone()),
            ..SourceReport::default()
        });
        // What the bucket does not give, it gives no sooner here; while damage may be that of what was kept of it.
        if why.code != ErrorCode::DataLoss && gateways.other(&self.block, 1).is_none() {
            inbox.report_unreadable_blocks(vec![unread((self.block.at.block, why))]);
            return Ok(());
        }
        let packed: Bytes = ask.pack().map_err(|error| Status::from_error(&error))?.into();
        let question = GatewayQuery { tenant, ask, packed, inbox };
        merge(gateways.answers(1, vec![self.block.clone()], &question).await?, inbox).await
    }
}

/// What is told of a block that was read here.
fn of_block(block: BlockId, found: PartialOrigin) -> SourceReport {
    let mut hits = PartialOriginCounts::default();
    hits.count_origin(found);
    SourceReport { of: SourceKind::Block(block.to_string()), hits, ..SourceReport::default() }
}

/// Where a gateway says that it had answers from.
fn hits_of(done: &wire::BlocksDone) -> PartialOriginCounts {
    PartialOriginCounts {
        memory: done.from_memory,
        disk: done.from_disk,
        joined: done.joined,
        read: done.read,
    }
}

/// How long it says that the question waited, and was worked on.
fn there(done: &wire::BlocksDone) -> (Duration, Duration) {
    (Duration::from_micros(done.waited_micros), Duration::from_micros(done.worked_micros))
}

/// A block that nobody could read, as answers name it.
fn unread((block, why): (BlockId, Status)) -> UnreadableBlock {
    match UnreadableBlock::is_transient(&why) {
        true => {
            tracing::warn!(%block, error = %why, "a block cannot be read now, an answer goes on without it")
        }
        false => tracing::error!(%block, error = %why, "a block is damaged, an answer goes on without it"),
    }
    UnreadableBlock { block: block.to_string(), why }
}

/// Blocks that the bucket has no more, called the same whoever finds that out.
fn gone(blocks: &[BlockId]) -> SourceQueryError {
    SourceQueryError::Gone(blocks.iter().map(|block| format!("block {block}")).collect())
}

/// The blocks that are not in an answer that came as it was sent.
fn complete(done: Option<wire::BlocksDone>, blocks: &[OwnedBlock]) -> Result<MissingBlocks, Status> {
    let broken = |why: &str| Status::new(ErrorCode::Unavailable, format!("a gateway's answer {why}"));
    let done = done.ok_or_else(|| broken("says of no block what became of it"))?;
    let block = |name: &Bytes| decode_block_id(name).map_err(|_| broken("names what is no block"));
    let gone = done.gone.iter().map(block).collect::<Result<Vec<BlockId>, Status>>()?;
    let unread = |wire::Unread { block: name, why }: &wire::Unread| {
        let why = why.as_ref().map(status_codec::decode_status).filter(is_skippable_failure);
        Ok((block(name)?, why.ok_or_else(|| broken("does not say why a block is not in it"))?))
    };
    let unread = done.unread.iter().map(unread).collect::<Result<Vec<_>, Status>>()?;
    let is_asked = |lacked: &BlockId| blocks.iter().any(|block| block.at.block == *lacked);
    let mut lacked = gone.iter().chain(unread.iter().map(|(block, _)| block));
    if done.blocks as usize != blocks.len() || !lacked.all(is_asked) {
        return Err(broken("is to another question"));
    }
    Ok(MissingBlocks { gone, unread })
}

/// Whether another one may answer: whatever it is that this gateway lacks, unless the question is at fault. What panicked
/// here would panic there.
fn may_pass(status: &Status) -> bool {
    !status.panicked && !matches!(status.code, ErrorCode::Invalid | ErrorCode::TooLarge)
}

/// What a question is about of a block.
pub fn block_selection(block: &BlockEntry, tenant: &TenantId, from: i64, last: i64) -> BlockTarget {
    let span = block.tenant_span_between(tenant, from, last);
    let within = |time: i64| from <= time && time <= last;
    let whole = span.is_some_and(|span| within(span.min_time) && within(span.max_time));
    BlockTarget::without_duplicates(block.id, whole)
}

#[cfg(test)]
mod fallback_reads;

#[cfg(test)]
mod tests {
    use athanor_chassis::{Clock, ComputePool, Random};
    use athanor_storage::{StorageConfig as Bucket, Store, StoreDeps};
    use athanor_store_gateway::{BlockReader, StoreGatewayConfig};

    use super::*;
    use crate::store_gateway_service::encode_block_id;

    #[test]
    fn what_panics_is_not_passed_on() {
        let of = |code, panicked| may_pass(&Status { panicked, ..Status::new(code, "why") });
        assert_eq!([of(ErrorCode::Internal, false), of(ErrorCode::Unavailable, false)], [true; 2]);
        assert_eq!([of(ErrorCode::Internal, true), of(ErrorCode::Invalid, false)], [false; 2]);
    }

    #[tokio::test]
    async fn a_block_that_is_gone_has_one_name() {
        let deps = StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
        let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).expect("a bucket");
        let config = StoreGatewayConfig::default();
        let blocks = BlockReader::new(store, ComputePool::inline(), None, &config);
        let question = Arc::new(OfBlocks::new(TenantId::anonymous(), ProfileQuery::default()));
        let block = BlockId::from_number(7);
        let at = vec![BlockTarget::without_duplicates(block, true)];
        let gateway = StoreGateway::new(Arc::new(blocks), &config);
        let said = gateway.query_block(&question, &at[0]).await.map(drop).expect_err("the bucket is empty");
        assert_eq!(said.code, ErrorCode::NotFound);
        let answer = gateway
            .query_blocks(&TenantId::anonymous(), ProfileQuery::default(), at)
            .await
            .expect("an answer");
        assert_eq!(gone(&answer.met.gone), gone(&[block]));
    }

    #[test]
    fn an_answer_is_of_all_blocks_that_were_asked_for() {
        let block = |number| OwnedBlock {
            at: BlockTarget::without_duplicates(BlockId::from_number(number), true),
            owners: Vec::new(),
        };
        let blocks = [block(1), block(2)];
        let done = |blocks, gone: &[u128]| wire::BlocksDone {
            blocks,
            gone: gone.iter().map(|number| encode_block_id(BlockId::from_number(*number))).collect(),
            ..wire::BlocksDone::default()
        };
        let check = |done| complete(done, &blocks).map_err(|status| status.code);
        assert_eq!(check(Some(done(2, &[]))), Ok(MissingBlocks::default()));
        let gone = vec![BlockId::from_number(2)];
        assert_eq!(check(Some(done(2, &[2]))), Ok(MissingBlocks { gone, ..MissingBlocks::default() }));
        let unread = |number, why: Option<Status>| wire::BlocksDone {
            unread: vec![wire::Unread {
                block: encode_block_id(BlockId::from_number(number)),
                why: why.map(|why| status_codec::encode_status(&why, None)),
            }],
            ..done(2, &[])
        };
        let damaged = Status::new(ErrorCode::DataLoss, "series.parquet: byte 7");
        let lacks = MissingBlocks {
            unread: vec![(BlockId::from_number(1), damaged.clone())],
            ..MissingBlocks::default()
        };
        assert_eq!(check(Some(unread(1, Some(damaged.clone())))), Ok(lacks));
        // What is the question's fault is no block's.
        let odd = [(3, Some(damaged)), (1, None), (1, Some(Status::new(ErrorCode::Invalid, "no")))];
        for (number, why) in odd {
            assert_eq!(check(Some(unread(number, why))), Err(ErrorCode::Unavailable));
        }
        for done in [None, Some(done(1, &[])), Some(done(2, &[3]))] {
            assert_eq!(check(done), Err(ErrorCode::Unavailable));
        }
        let odd = wire::BlocksDone { gone: vec![Bytes::from_static(b"1")], ..done(2, &[]) };
        assert_eq!(check(Some(odd)), Err(ErrorCode::Unavailable));
    }
}
