//! Router of block queries: assigns blocks to store-gateways and queries them.
//!
//! A block belongs to the first live gateway in the order that its id determines. If that gateway fails, the
//! router queries the next one, and finally this node reads the block itself.
//! Without gateways, queriers read all blocks themselves.
//! A gateway's result is merged completely or not at all: if its stream breaks off, none of its blocks are
//! merged.
//! A block that a gateway cannot read, because of damage or a bucket failure, takes the same path. If no node
//! can read the block, the result omits it and reports that.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{BlockEntry, BlockId};
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState, RoleName};
use athanor_cluster::placement::nodes_of_block;
use athanor_cluster::rpc_client::RpcClient;
use athanor_cluster::{NodeId, status_codec};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_querier::{
    BlockSource, PartialReceiver, RemoteSource, RemoteTimes, SourceKind, SourceQueryError, SourceReport,
    UnreadableBlock,
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

use crate::read::hedging::HedgingPolicy;
use crate::rpc::ingester_client::IngesterClient;
use crate::rpc::result_stream::{ResultStreamError, decode_frames};
use crate::rpc::store_gateway_service::{decode_block_id, encode_block_request, request_checksum};

/// Time limit until a gateway starts a query. The gateway may be overloaded or stalled.
const QUERY_START_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of gateways that are queried for a block before this node reads it.
const MAX_GATEWAYS_PER_BLOCK: usize = 2;
/// Maximum number of blocks per call. Small calls run concurrently on one gateway, and a failed call repeats
/// little work.
const MAX_BLOCKS_PER_CALL: usize = 32;
const _: () = assert!(MAX_BLOCKS_PER_CALL <= MAX_BLOCKS_PER_QUERY, "a gateway takes the blocks of one call");

/// Router to all store-gateways, including the local one.
#[derive(Clone)]
pub struct StoreGatewayRouter {
    /// Local gateway, for blocks that this node reads.
    pub here: Arc<StoreGateway>,
    /// True if this node has the store-gateway role and serves other nodes.
    pub is_one: bool,
    /// Members of the cluster. None for a single-node server.
    pub members: Option<ClusterMembers>,
    /// Client for calls to other nodes.
    pub ways: IngesterClient,
    /// Policy for hedged requests to a second gateway.
    pub hedges: Arc<HedgingPolicy>,
}

/// Blocks of a query, grouped by the node that reads them.
pub struct BlockAssignment {
    /// Blocks that this node reads.
    pub here: Vec<Box<dyn BlockSource>>,
    /// Blocks that other nodes read, one source per call.
    pub away: Vec<Arc<dyn RemoteSource>>,
}

/// Blocks of one call, which belong to the same gateway.
struct RemoteBlocks {
    gateways: StoreGatewayRouter,
    blocks: Vec<OwnedBlock>,
}

/// Block with its gateways in order of preference.
#[derive(Clone)]
struct OwnedBlock {
    at: BlockTarget,
    owners: Vec<NodeId>,
}

/// Query that is sent to gateways.
struct GatewayQuery<'a> {
    tenant: &'a TenantId,
    ask: &'a ProfileQuery,
    packed: Bytes,
    inbox: &'a PartialReceiver,
}

/// Result of some blocks before the merge.
struct UnmergedResult {
    inbox: PartialReceiver,
    lacks: MissingBlocks,
}

/// Blocks that a result lacks.
#[derive(Debug, Default, PartialEq, Eq)]
struct MissingBlocks {
    /// Blocks that the bucket does not contain.
    gone: Vec<BlockId>,
    /// Blocks that could not be read, with the errors.
    unread: Vec<(BlockId, Status)>,
}

/// Block that this node reads.
struct LocalBlockSource {
    of: Arc<LocalBlocksQuery>,
    block: OwnedBlock,
}

/// Query that all local blocks share.
struct LocalBlocksQuery {
    gateways: StoreGatewayRouter,
    question: Arc<OfBlocks>,
    tenant: TenantId,
    ask: ProfileQuery,
}

impl StoreGatewayRouter {
    /// Assigns the blocks of a query to the nodes that read them.
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

    /// Returns the gateways that are alive and serve.
    fn nodes(&self) -> Vec<NodeId> {
        let Some(members) = self.members.as_ref().filter(|_| self.ways.remote.is_some()) else {
            return Vec::new();
        };
        let answers = |member: &&ClusterMember| {
            member.roles.contains(&RoleName::StoreGateway)
                && member.is_alive()
                && !matches!(member.state, MemberState::Starting | MemberState::Draining | MemberState::Left)
        };
        let mut nodes: Vec<NodeId> =
            members.current().values().filter(answers).map(|member| member.node).collect();
        // A node knows its own role without gossip.
        if self.is_one && !nodes.contains(&self.ways.me) {
            nodes.push(self.ways.me);
        }
        nodes
    }

    /// Queries all of these blocks. `tried` is the number of gateways per block that failed so far.
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

    /// Returns the next remote gateway of a block after `tried` failures. None means that this node reads the
    /// block.
    fn other(&self, block: &OwnedBlock, tried: usize) -> Option<NodeId> {
        block.owners.get(tried).copied().filter(|node| *node != self.ways.me)
    }

    /// Queries one gateway. If it fails or is slow, queries the next ones as well.
    async fn one_or_next(
        &self,
        tried: usize,
        node: NodeId,
        blocks: Vec<OwnedBlock>,
        question: &GatewayQuery<'_>,
    ) -> Result<Vec<UnmergedResult>, Status> {
        let next = || self.answers(tried + 1, blocks.clone(), question);
        let first = pin!(self.answer_of(node, &blocks, question));
        // A retry at another gateway is not a new call, so it earns no credit for hedged requests.
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
                    Either::Left((Err(ResultStreamError::Remote(why)), next)) if may_pass(&why) => {
                        return next.await.inspect(won);
                    }
                    Either::Left((said, _)) => said,
                    // The first gateway may be able to read blocks that the others cannot.
                    Either::Right((Ok(wholes), first)) if wholes.iter().any(UnmergedResult::has_unread) => {
                        // The wait for it is limited to the hedge delay: the gateway may be stalled.
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
            Err(ResultStreamError::Remote(why)) if may_pass(&why) => {
                tracing::debug!(node, error = %why, "store-gateway did not respond, trying another one");
                next().await
            }
            Err(why) => Err(why.into_status()),
        }
    }

    /// Adds results from other gateways for the blocks that one gateway could not read.
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

    /// Queries one gateway and reports the outcome.
    async fn answer_of(
        &self,
        node: NodeId,
        blocks: &[OwnedBlock],
        question: &GatewayQuery<'_>,
    ) -> Result<UnmergedResult, ResultStreamError> {
        let begun = self.ways.clock.monotonic();
        let mut report = SourceReport {
            kind: SourceKind::Blocks(blocks.len()),
            node: Some(node),
            ..SourceReport::default()
        };
        let said = self.called(node, blocks, question, &mut report).await;
        report.duration = self.ways.clock.monotonic().saturating_sub(begun);
        report.error = said.as_ref().err().map(|why| why.clone().into_status().message);
        question.inbox.report_source(report);
        said
    }

    async fn called(
        &self,
        node: NodeId,
        blocks: &[OwnedBlock],
        question: &GatewayQuery<'_>,
        report: &mut SourceReport,
    ) -> Result<UnmergedResult, ResultStreamError> {
        let IngesterClient { clock, .. } = &self.ways;
        let RpcClient { peers, handshake } = self.ways.remote_client().map_err(ResultStreamError::Remote)?;
        let begun = clock.monotonic();
        let left = question.inbox.remaining_time(clock);
        let request = wire::QueryBlocksRequest {
            header: Some(handshake.call_header(node, left)),
            tenant: question.tenant.as_str().to_owned(),
            query: question.packed.clone(),
            blocks: blocks.iter().map(|owned| encode_block_request(&owned.at)).collect(),
        };
        let checksum = request_checksum(question.tenant, &question.packed, &request.blocks);
        let mut client = peers.store_gateway(node);
        let response =
            self.ways.call_node(node, QUERY_START_TIMEOUT.min(left), client.query_blocks(request)).await;
        let frames = response.map_err(ResultStreamError::Remote)?.into_inner();
        let frames = frames.map_err(|error| status_codec::from_grpc(&error));
        let mut inbox = question.inbox.fork();
        let on_partial = |bytes: Bytes| {
            report.bytes += bytes.len() as u64;
            inbox.push_chunk(&bytes)
        };
        let trailer = decode_frames(frames, checksum, 1, on_partial).await?.into_iter().next();
        if let Some(result) = &trailer {
            report.origins = decode_origin_counts(result);
            report.remote = Some(remote_times(result));
        }
        let lacks = decode_missing_blocks(trailer, blocks).map_err(ResultStreamError::Remote)?;
        self.hedges.record_latency(clock.monotonic().saturating_sub(begun));
        Ok(UnmergedResult { inbox, lacks })
    }

    /// Reads blocks locally after all of their gateways failed.
    async fn read_here(
        &self,
        blocks: Vec<BlockTarget>,
        question: &GatewayQuery<'_>,
    ) -> Result<Vec<UnmergedResult>, Status> {
        let of_blocks = Arc::new(OfBlocks::new(question.tenant.clone(), question.ask.clone()));
        let mut inbox = question.inbox.fork();
        let place = Arc::new(inbox.local_merger());
        let begun = self.ways.clock.monotonic();
        let kind = SourceKind::Blocks(blocks.len());
        let BlockOutcomes { gone, unread, hits: origins } =
            self.here.merge_blocks(&of_blocks, blocks, &place).await?;
        inbox.add_merged(&place)?;
        let duration = self.ways.clock.monotonic().saturating_sub(begun);
        let error = unread.first().map(|(_, why)| why.message.clone());
        inbox.report_source(SourceReport { kind, duration, origins, error, ..SourceReport::default() });
        Ok(vec![UnmergedResult { inbox, lacks: MissingBlocks { gone, unread } }])
    }
}

impl UnmergedResult {
    fn has_unread(&self) -> bool {
        !self.lacks.unread.is_empty()
    }
}

/// Merges results and reports the blocks that they lack.
async fn merge(wholes: Vec<UnmergedResult>, inbox: &PartialReceiver) -> Result<(), SourceQueryError> {
    let mut gone = Vec::new();
    for mut whole in wholes {
        whole.inbox.finish().await?;
        gone.extend(whole.lacks.gone);
        inbox.report_unreadable_blocks(
            whole.lacks.unread.into_iter().map(|(block, why)| unread(block, why)).collect(),
        );
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
            // Compaction replaced the block, or retention removed it [INV-18].
            Err(status) if status.code == ErrorCode::NotFound => Err(gone(&[at.block])),
            Err(status) if is_skippable_failure(&status) => self.others(status, inbox).await.map(|()| None),
            Err(status) => Err(status.into()),
        }
    }
}

impl LocalBlockSource {
    /// Queries other gateways for a block that is unreadable here. If none can read it, reports the block.
    async fn others(self: Box<Self>, why: Status, inbox: &PartialReceiver) -> Result<(), SourceQueryError> {
        let LocalBlocksQuery { gateways, tenant, ask, .. } = &*self.of;
        inbox.report_source(SourceReport {
            kind: SourceKind::Block(self.block.at.block.to_string()),
            error: Some(why.message.clone()),
            ..SourceReport::default()
        });
        // A bucket failure affects all nodes. Damage may be limited to local caches, so other nodes can help.
        if why.code != ErrorCode::DataLoss && gateways.other(&self.block, 1).is_none() {
            inbox.report_unreadable_blocks(vec![unread(self.block.at.block, why)]);
            return Ok(());
        }
        let packed: Bytes = ask.pack().map_err(|error| Status::from_error(&error))?.into();
        let question = GatewayQuery { tenant, ask, packed, inbox };
        merge(gateways.answers(1, vec![self.block.clone()], &question).await?, inbox).await
    }
}

/// Returns the report of a block that was read here.
fn of_block(block: BlockId, origin: PartialOrigin) -> SourceReport {
    let mut origins = PartialOriginCounts::default();
    origins.count_origin(origin);
    SourceReport { kind: SourceKind::Block(block.to_string()), origins, ..SourceReport::default() }
}

/// Converts the origin counts that a gateway reported.
fn decode_origin_counts(result: &wire::BlocksResult) -> PartialOriginCounts {
    PartialOriginCounts {
        memory: result.from_memory,
        disk: result.from_disk,
        coalesced: result.coalesced,
        computed: result.computed,
    }
}

/// Returns the times that the gateway reported.
fn remote_times(result: &wire::BlocksResult) -> RemoteTimes {
    RemoteTimes {
        queue: Duration::from_micros(result.queued_micros),
        execution: Duration::from_micros(result.run_micros),
    }
}

/// Returns the report of a block that no node could read.
fn unread(block: BlockId, why: Status) -> UnreadableBlock {
    match UnreadableBlock::is_transient(&why) {
        true => {
            tracing::warn!(%block, error = %why, "block is temporarily unreadable, query continues without the block")
        }
        false => tracing::error!(%block, error = %why, "block is damaged, query continues without the block"),
    }
    UnreadableBlock { block: block.to_string(), why }
}

/// Returns the error for blocks that the bucket does not contain, equal for all code paths.
fn gone(blocks: &[BlockId]) -> SourceQueryError {
    SourceQueryError::Gone(blocks.iter().map(|block| format!("block {block}")).collect())
}

/// Decodes the missing blocks of a result, and checks that the result covers exactly the requested blocks.
fn decode_missing_blocks(
    trailer: Option<wire::BlocksResult>,
    blocks: &[OwnedBlock],
) -> Result<MissingBlocks, Status> {
    let broken = |why: &str| Status::new(ErrorCode::Unavailable, format!("protocol error: {why}"));
    let result = trailer.ok_or_else(|| broken("response has no trailer"))?;
    let block = |id: &Bytes| decode_block_id(id).map_err(|_| broken("response has an invalid block id"));
    let gone = result.not_found.iter().map(block).collect::<Result<Vec<BlockId>, Status>>()?;
    let unread = |unreadable: &wire::UnreadableBlock| {
        let why = unreadable.error.as_ref().map(status_codec::decode_status).filter(is_skippable_failure);
        Ok((block(&unreadable.block_id)?, why.ok_or_else(|| broken("unreadable block without its error"))?))
    };
    let unread = result.unreadable.iter().map(unread).collect::<Result<Vec<_>, Status>>()?;
    let is_requested = |missing: &BlockId| blocks.iter().any(|block| block.at.block == *missing);
    let mut missing = gone.iter().chain(unread.iter().map(|(block, _)| block));
    if result.blocks as usize != blocks.len() || !missing.all(is_requested) {
        return Err(broken("response does not match the request"));
    }
    Ok(MissingBlocks { gone, unread })
}

/// Returns whether another gateway may succeed: on every error except those caused by the query. A panic
/// would repeat there.
fn may_pass(status: &Status) -> bool {
    !status.panicked && !matches!(status.code, ErrorCode::Invalid | ErrorCode::TooLarge)
}

/// Returns the target for a block: the folder that holds it, and whether the query covers the tenant's whole
/// time range in it.
pub fn block_selection(block: &BlockEntry, tenant: &TenantId, from: i64, last: i64) -> BlockTarget {
    let span = block.tenant_span_between(tenant, from, last);
    let within = |time: i64| from <= time && time <= last;
    let whole = span.is_some_and(|span| within(span.min_time) && within(span.max_time));
    let in_tenant_folder = block.folder_tenant().is_some();
    BlockTarget { in_tenant_folder, ..BlockTarget::without_duplicates(block.id, whole) }
}

#[cfg(test)]
mod fallback_reads;

#[cfg(test)]
mod tests {
    use athanor_chassis::{Clock, ComputePool, Random};
    use athanor_storage::{StorageConfig as Bucket, Store, StoreDeps};
    use athanor_store_gateway::{BlockReader, StoreGatewayConfig};

    use super::*;
    use crate::rpc::store_gateway_service::{encode_block_id, encode_unreadable_block};

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
    fn result_of_other_blocks_is_rejected() {
        let block = |number| OwnedBlock {
            at: BlockTarget::without_duplicates(BlockId::from_number(number), true),
            owners: Vec::new(),
        };
        let blocks = [block(1), block(2)];
        let result = |blocks, not_found: &[u128]| wire::BlocksResult {
            blocks,
            not_found: not_found
                .iter()
                .map(|number| encode_block_id(BlockId::from_number(*number)))
                .collect(),
            ..wire::BlocksResult::default()
        };
        let check = |trailer| decode_missing_blocks(trailer, &blocks).map_err(|status| status.code);
        assert_eq!(check(Some(result(2, &[]))), Ok(MissingBlocks::default()));
        let gone = vec![BlockId::from_number(2)];
        assert_eq!(check(Some(result(2, &[2]))), Ok(MissingBlocks { gone, ..MissingBlocks::default() }));
        let unreadable = |block| wire::BlocksResult { unreadable: vec![block], ..result(2, &[]) };
        let encode = |number, why: &Status| encode_unreadable_block(BlockId::from_number(number), why);
        let damaged = Status::new(ErrorCode::DataLoss, "series.parquet: byte 7");
        let missing = MissingBlocks {
            unread: vec![(BlockId::from_number(1), damaged.clone())],
            ..MissingBlocks::default()
        };
        assert_eq!(check(Some(unreadable(encode(1, &damaged)))), Ok(missing));
        // An error of the query is not an error of a block.
        let of_query = Status::new(ErrorCode::Invalid, "no");
        let without_error = wire::UnreadableBlock { error: None, ..encode(1, &damaged) };
        for block in [encode(3, &damaged), without_error, encode(1, &of_query)] {
            assert_eq!(check(Some(unreadable(block))), Err(ErrorCode::Unavailable));
        }
        for trailer in [None, Some(result(1, &[])), Some(result(2, &[3]))] {
            assert_eq!(check(trailer), Err(ErrorCode::Unavailable));
        }
        let invalid_id = wire::BlocksResult { not_found: vec![Bytes::from_static(b"1")], ..result(2, &[]) };
        assert_eq!(check(Some(invalid_id)), Err(ErrorCode::Unavailable));
    }
}
