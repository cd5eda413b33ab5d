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
use athanor_chassis::{Code, Status, TenantId};
use athanor_cluster::members::{Member, MemberState, Members, RoleName};
use athanor_cluster::placement::nodes_of_block;
use athanor_cluster::{NodeId, failure};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_querier::{Asked, Inbox, Part, PartOf, Remote, Stored, Unread};
use athanor_query::{Ask, Found, Hits, Partial};
use athanor_store_gateway::{BlockAt, Gateway, MOST, Met, Question as OfBlocks, is_unread};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select, try_join_all};
use futures::stream::TryStreamExt;

use crate::gateway::{block_of, piece_of, question as sum_of, to_wire_at};
use crate::hedges::Hedges;
use crate::pieces::{Unheard, receive};
use crate::ways::{Afar, Ways};

/// How long a gateway may take until it begins with a question: it may have many, and it may stand still.
const TURN: Duration = Duration::from_secs(10);
/// Gateways that are asked for a block, until this node reads it itself.
const TRIES: usize = 2;
/// Blocks of one call: so many answers of a gateway are on their way at once, and little is asked for again where one
/// does not answer.
const CALL: usize = 32;
const _: () = assert!(CALL <= MOST, "a gateway takes the blocks of one call");

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
    /// Who is asked beside one that takes long.
    pub hedges: Arc<Hedges>,
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
    blocks: Vec<Owned>,
}

/// A block and whom it belongs to, the first one first.
#[derive(Clone)]
struct Owned {
    at: BlockAt,
    owners: Vec<NodeId>,
}

/// What is asked.
struct Question<'a> {
    tenant: &'a TenantId,
    ask: &'a Ask,
    packed: Bytes,
    inbox: &'a Inbox,
}

/// The answer of some blocks, which is not merged yet.
struct Whole {
    inbox: Inbox,
    lacks: Lacks,
}

/// Blocks that are not in an answer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lacks {
    /// Those that the bucket has no more.
    gone: Vec<BlockId>,
    /// Those that could not be read, and why.
    unread: Vec<(BlockId, Status)>,
}

/// A block that is read here.
struct Here {
    of: Arc<OfHere>,
    block: Owned,
}

/// What blocks that are read here are asked.
struct OfHere {
    gateways: Gateways,
    question: Arc<OfBlocks>,
    tenant: TenantId,
    ask: Ask,
}

impl Gateways {
    /// Divides the blocks of a question by who answers for them.
    pub fn divide(&self, tenant: &TenantId, ask: &Ask, blocks: impl IntoIterator<Item = BlockAt>) -> Divided {
        let nodes = self.nodes();
        let question = Arc::new(OfBlocks::new(tenant.clone(), ask.clone()));
        let of = OfHere { gateways: self.clone(), question, tenant: tenant.clone(), ask: ask.clone() };
        let (of, mut here, mut away) = (Arc::new(of), Vec::new(), BTreeMap::<NodeId, Vec<Owned>>::new());
        for at in blocks {
            let mut owners = nodes_of_block(at.block.number(), nodes.iter().copied());
            owners.truncate(TRIES);
            match owners.first() {
                Some(&node) if node != self.ways.me => {
                    away.entry(node).or_default().push(Owned { at, owners });
                }
                _ => {
                    let block = Owned { at, owners };
                    here.push(Box::new(Here { of: Arc::clone(&of), block }) as Box<dyn Stored>);
                }
            }
        }
        let calls =
            away.into_values().flat_map(|blocks| blocks.chunks(CALL).map(<[_]>::to_vec).collect::<Vec<_>>());
        let remote = |blocks| Arc::new(Away { gateways: self.clone(), blocks }) as Arc<dyn Remote>;
        Divided { here, away: calls.map(remote).collect() }
    }

    /// The gateways that seem to be there.
    fn nodes(&self) -> Vec<NodeId> {
        let Some(members) = self.members.as_ref().filter(|_| self.ways.afar.is_some()) else {
            return Vec::new();
        };
        let answers = |member: &&Member| {
            member.roles.contains(&RoleName::StoreGateway)
                && member.is_alive()
                && !matches!(member.state, MemberState::Starting | MemberState::Draining | MemberState::Left)
        };
        let mut nodes: Vec<NodeId> =
            members.now().values().filter(answers).map(|member| member.node).collect();
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
        blocks: Vec<Owned>,
        question: &'a Question<'a>,
    ) -> BoxFuture<'a, Result<Vec<Whole>, Status>> {
        let (mut by_node, mut here) = (BTreeMap::<NodeId, Vec<Owned>>::new(), Vec::new());
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
    fn other(&self, block: &Owned, tried: usize) -> Option<NodeId> {
        block.owners.get(tried).copied().filter(|node| *node != self.ways.me)
    }

    /// The answer of a gateway; where it gives none, or not soon, of those after it.
    async fn one_or_next(
        &self,
        tried: usize,
        node: NodeId,
        blocks: Vec<Owned>,
        question: &Question<'_>,
    ) -> Result<Vec<Whole>, Status> {
        let next = || self.answers(tried + 1, blocks.clone(), question);
        let first = pin!(self.answer_of(node, &blocks, question));
        // Who is asked in another's stead is no new call, which would pay for more of its kind.
        let patience = if tried == 0 { self.hedges.begin() } else { self.hedges.patience() };
        let patience = pin!(self.ways.clock.sleep(patience));
        let said = match select(first, patience).await {
            Either::Left((said, _)) => said,
            Either::Right(((), first)) if !self.hedges.may_ask_again() => first.await,
            Either::Right(((), first)) => {
                let is_call = blocks.iter().any(|block| self.other(block, tried + 1).is_some());
                if is_call {
                    self.hedges.second();
                }
                let won = |_: &Vec<Whole>| {
                    if is_call {
                        self.hedges.second_won();
                    }
                };
                match select(first, next()).await {
                    Either::Left((Err(Unheard::There(why)), next)) if may_pass(&why) => {
                        return next.await.inspect(won);
                    }
                    Either::Left((said, _)) => said,
                    // The first one may be able to read what others are not.
                    Either::Right((Ok(wholes), first)) if wholes.iter().any(Whole::has_unread) => {
                        // It is waited for as long again: it may stand still.
                        let first = self.ways.clock.within(self.hedges.patience(), first).await;
                        let first = first.ok().and_then(Result::ok).filter(|whole| !whole.has_unread());
                        return Ok(first.map_or(wholes, |whole| vec![whole]));
                    }
                    Either::Right((Ok(wholes), _)) => return Ok(wholes).inspect(won),
                    Either::Right((Err(_), first)) => {
                        return first.await.map(|whole| vec![whole]).map_err(Unheard::status);
                    }
                }
            }
        };
        match said {
            Ok(whole) => self.with_others(tried, whole, &blocks, question).await,
            Err(Unheard::There(why)) if may_pass(&why) => {
                tracing::debug!(node, error = %why, "a gateway did not answer, another one is asked");
                next().await
            }
            Err(why) => Err(why.status()),
        }
    }

    /// An answer with those of others for what a gateway could not read.
    async fn with_others(
        &self,
        tried: usize,
        mut whole: Whole,
        blocks: &[Owned],
        question: &Question<'_>,
    ) -> Result<Vec<Whole>, Status> {
        let unread = std::mem::take(&mut whole.lacks.unread);
        if unread.is_empty() {
            return Ok(vec![whole]);
        }
        let is_unread = |block: &&Owned| unread.iter().any(|(unread, _)| *unread == block.at.block);
        let left = blocks.iter().filter(is_unread).cloned().collect();
        let mut wholes = self.answers(tried + 1, left, question).await?;
        wholes.push(whole);
        Ok(wholes)
    }

    /// Has one gateway answer for blocks, and says how that went.
    async fn answer_of(
        &self,
        node: NodeId,
        blocks: &[Owned],
        question: &Question<'_>,
    ) -> Result<Whole, Unheard> {
        let begun = self.ways.clock.monotonic();
        let mut part = Part { of: PartOf::Blocks(blocks.len()), node: Some(node), ..Part::default() };
        let said = self.called(node, blocks, question, &mut part).await;
        part.took = self.ways.clock.monotonic().saturating_sub(begun);
        part.failed = said.as_ref().err().map(|why| why.clone().status().message);
        question.inbox.tell(part);
        said
    }

    async fn called(
        &self,
        node: NodeId,
        blocks: &[Owned],
        question: &Question<'_>,
        part: &mut Part,
    ) -> Result<Whole, Unheard> {
        let Ways { clock, .. } = &self.ways;
        let Afar { peers, introductions } = self.ways.others().map_err(Unheard::There)?;
        let (begun, left) = (clock.monotonic(), question.inbox.left(clock));
        let request = wire::BlocksRequest {
            caller: Some(introductions.caller(node, left)),
            tenant: question.tenant.as_str().to_owned(),
            ask: question.packed.clone(),
            blocks: blocks.iter().map(|owned| to_wire_at(&owned.at)).collect(),
        };
        let sum = sum_of(question.tenant, &question.packed, &request.blocks);
        let mut client = peers.gateways(node);
        let answered = self.ways.called(node, TURN.min(left), client.query(request)).await;
        let pieces = answered.map_err(Unheard::There)?.into_inner();
        let pieces = pieces.map_ok(piece_of).map_err(|error| failure::from_grpc(&error));
        let mut inbox = question.inbox.another();
        let take = |bytes: Bytes| {
            part.bytes += bytes.len() as u64;
            inbox.piece(&bytes)
        };
        let done = receive(pieces, sum, 1, take).await?.into_iter().next();
        if let Some(done) = &done {
            (part.hits, part.there) = (hits_of(done), Some(there(done)));
        }
        let lacks = complete(done, blocks).map_err(Unheard::There)?;
        self.hedges.answered(clock.monotonic().saturating_sub(begun));
        Ok(Whole { inbox, lacks })
    }

    /// Reads blocks itself that no gateway answered for.
    async fn read_here(&self, blocks: Vec<BlockAt>, question: &Question<'_>) -> Result<Vec<Whole>, Status> {
        let of_blocks = Arc::new(OfBlocks::new(question.tenant.clone(), question.ask.clone()));
        let mut inbox = question.inbox.another();
        let (place, begun) = (Arc::new(inbox.place()), self.ways.clock.monotonic());
        let of = PartOf::Blocks(blocks.len());
        let Met { gone, unread, hits } = self.here.meet(&of_blocks, blocks, &place).await?;
        inbox.met(&place)?;
        let took = self.ways.clock.monotonic().saturating_sub(begun);
        let failed = unread.first().map(|(_, why)| why.message.clone());
        inbox.tell(Part { of, took, hits, failed, ..Part::default() });
        Ok(vec![Whole { inbox, lacks: Lacks { gone, unread } }])
    }
}

impl Whole {
    fn has_unread(&self) -> bool {
        !self.lacks.unread.is_empty()
    }
}

/// Merges answers, and says what is in none of them.
async fn merge(wholes: Vec<Whole>, inbox: &Inbox) -> Result<(), Asked> {
    let mut gone = Vec::new();
    for mut whole in wholes {
        whole.inbox.end().await?;
        gone.extend(whole.lacks.gone);
        inbox.left_out(whole.lacks.unread.into_iter().map(unread).collect());
    }
    if gone.is_empty() { Ok(()) } else { Err(self::gone(&gone)) }
}

#[async_trait]
impl Remote for Away {
    async fn ask(&self, tenant: &TenantId, ask: &Ask, inbox: &mut Inbox) -> Result<(), Asked> {
        let packed: Bytes = ask.pack().map_err(|error| Status::of(&error))?.into();
        let question = Question { tenant, ask, packed, inbox };
        let wholes = self.gateways.answers(0, self.blocks.clone(), &question).await?;
        merge(wholes, inbox).await
    }
}

#[async_trait]
impl Stored for Here {
    async fn answer(self: Box<Self>, inbox: &mut Inbox) -> Result<Option<(Partial, Part)>, Asked> {
        let (OfHere { gateways, question, .. }, at) = (&*self.of, &self.block.at);
        match gateways.here.answer_of(question, at).await {
            Ok((partial, found)) => Ok(Some((partial, of_block(at.block, found)))),
            // Another took its place, or it is too old [INV-18].
            Err(status) if status.code == Code::NotFound => Err(gone(&[at.block])),
            Err(status) if is_unread(&status) => self.others(status, inbox).await.map(|()| None),
            Err(status) => Err(status.into()),
        }
    }
}

impl Here {
    /// Has others answer for a block that cannot be read here; where nobody can, that is said.
    async fn others(self: Box<Self>, why: Status, inbox: &Inbox) -> Result<(), Asked> {
        let OfHere { gateways, tenant, ask, .. } = &*self.of;
        let of = PartOf::Block(self.block.at.block.to_string());
        inbox.tell(Part { of, failed: Some(why.message.clone()), ..Part::default() });
        // What the bucket does not give, it gives no sooner here; while damage may be that of what was kept of it.
        if why.code != Code::DataLoss && gateways.other(&self.block, 1).is_none() {
            inbox.left_out(vec![unread((self.block.at.block, why))]);
            return Ok(());
        }
        let packed: Bytes = ask.pack().map_err(|error| Status::of(&error))?.into();
        let question = Question { tenant, ask, packed, inbox };
        merge(gateways.answers(1, vec![self.block.clone()], &question).await?, inbox).await
    }
}

/// What is told of a block that was read here.
fn of_block(block: BlockId, found: Found) -> Part {
    let mut hits = Hits::default();
    hits.count(found);
    Part { of: PartOf::Block(block.to_string()), hits, ..Part::default() }
}

/// Where a gateway says that it had answers from.
fn hits_of(done: &wire::BlocksDone) -> Hits {
    Hits { memory: done.from_memory, disk: done.from_disk, joined: done.joined, read: done.read }
}

/// How long it says that the question waited, and was worked on.
fn there(done: &wire::BlocksDone) -> (Duration, Duration) {
    (Duration::from_micros(done.waited_micros), Duration::from_micros(done.worked_micros))
}

/// A block that nobody could read, as answers name it.
fn unread((block, why): (BlockId, Status)) -> Unread {
    match Unread::may_pass(&why) {
        true => {
            tracing::warn!(%block, error = %why, "a block cannot be read now, an answer goes on without it")
        }
        false => tracing::error!(%block, error = %why, "a block is damaged, an answer goes on without it"),
    }
    Unread { block: block.to_string(), why }
}

/// Blocks that the bucket has no more, called the same whoever finds that out.
fn gone(blocks: &[BlockId]) -> Asked {
    Asked::Gone(blocks.iter().map(|block| format!("block {block}")).collect())
}

/// The blocks that are not in an answer that came as it was sent.
fn complete(done: Option<wire::BlocksDone>, blocks: &[Owned]) -> Result<Lacks, Status> {
    let broken = |why: &str| Status::new(Code::Unavailable, format!("a gateway's answer {why}"));
    let done = done.ok_or_else(|| broken("says of no block what became of it"))?;
    let block = |name: &Bytes| block_of(name).map_err(|_| broken("names what is no block"));
    let gone = done.gone.iter().map(block).collect::<Result<Vec<BlockId>, Status>>()?;
    let unread = |wire::Unread { block: name, why }: &wire::Unread| {
        let why = why.as_ref().map(failure::unpack).filter(is_unread);
        Ok((block(name)?, why.ok_or_else(|| broken("does not say why a block is not in it"))?))
    };
    let unread = done.unread.iter().map(unread).collect::<Result<Vec<_>, Status>>()?;
    let is_asked = |lacked: &BlockId| blocks.iter().any(|block| block.at.block == *lacked);
    let mut lacked = gone.iter().chain(unread.iter().map(|(block, _)| block));
    if done.blocks as usize != blocks.len() || !lacked.all(is_asked) {
        return Err(broken("is to another question"));
    }
    Ok(Lacks { gone, unread })
}

/// Whether another one may answer: whatever it is that this gateway lacks, unless the question is at fault. What panicked
/// here would panic there.
fn may_pass(status: &Status) -> bool {
    !status.panicked && !matches!(status.code, Code::Invalid | Code::TooLarge)
}

/// What a question is about of a block.
pub fn wanted_of(block: &BlockEntry, tenant: &TenantId, from: i64, last: i64) -> BlockAt {
    let span = block.span(tenant, from, last);
    let within = |time: i64| from <= time && time <= last;
    let whole = span.is_some_and(|span| within(span.min_time) && within(span.max_time));
    BlockAt::alone(block.id, whole)
}

#[cfg(test)]
mod reading;

#[cfg(test)]
mod tests {
    use athanor_chassis::{Clock, Compute, Random};
    use athanor_storage::{Config as Bucket, Store, StoreDeps};
    use athanor_store_gateway::{Blocks, Config};

    use super::*;
    use crate::gateway::named;

    #[test]
    fn what_panics_is_not_passed_on() {
        let of = |code, panicked| may_pass(&Status { panicked, ..Status::new(code, "why") });
        assert_eq!([of(Code::Internal, false), of(Code::Unavailable, false)], [true; 2]);
        assert_eq!([of(Code::Internal, true), of(Code::Invalid, false)], [false; 2]);
    }

    #[tokio::test]
    async fn a_block_that_is_gone_has_one_name() {
        let deps = StoreDeps { clock: Clock::system(), random: Random::seeded(1) };
        let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).expect("a bucket");
        let config = Config::default();
        let blocks = Blocks::new(store, Compute::inline(), None, &config);
        let question = Arc::new(OfBlocks::new(TenantId::anonymous(), Ask::default()));
        let block = BlockId::from_number(7);
        let at = vec![BlockAt::alone(block, true)];
        let gateway = Gateway::new(Arc::new(blocks), &config);
        let said = gateway.answer_of(&question, &at[0]).await.map(drop).expect_err("the bucket is empty");
        assert_eq!(said.code, Code::NotFound);
        let answer = gateway.answer(&TenantId::anonymous(), Ask::default(), at).await.expect("an answer");
        assert_eq!(gone(&answer.met.gone), gone(&[block]));
    }

    #[test]
    fn an_answer_is_of_all_blocks_that_were_asked_for() {
        let block =
            |number| Owned { at: BlockAt::alone(BlockId::from_number(number), true), owners: Vec::new() };
        let blocks = [block(1), block(2)];
        let done = |blocks, gone: &[u128]| wire::BlocksDone {
            blocks,
            gone: gone.iter().map(|number| named(BlockId::from_number(*number))).collect(),
            ..wire::BlocksDone::default()
        };
        let check = |done| complete(done, &blocks).map_err(|status| status.code);
        assert_eq!(check(Some(done(2, &[]))), Ok(Lacks::default()));
        let gone = vec![BlockId::from_number(2)];
        assert_eq!(check(Some(done(2, &[2]))), Ok(Lacks { gone, ..Lacks::default() }));
        let unread = |number, why: Option<Status>| wire::BlocksDone {
            unread: vec![wire::Unread {
                block: named(BlockId::from_number(number)),
                why: why.map(|why| failure::pack(&why, None)),
            }],
            ..done(2, &[])
        };
        let damaged = Status::new(Code::DataLoss, "series.parquet: byte 7");
        let lacks = Lacks { unread: vec![(BlockId::from_number(1), damaged.clone())], ..Lacks::default() };
        assert_eq!(check(Some(unread(1, Some(damaged.clone())))), Ok(lacks));
        // What is the question's fault is no block's.
        let odd = [(3, Some(damaged)), (1, None), (1, Some(Status::new(Code::Invalid, "no")))];
        for (number, why) in odd {
            assert_eq!(check(Some(unread(number, why))), Err(Code::Unavailable));
        }
        for done in [None, Some(done(1, &[])), Some(done(2, &[3]))] {
            assert_eq!(check(done), Err(Code::Unavailable));
        }
        let odd = wire::BlocksDone { gone: vec![Bytes::from_static(b"1")], ..done(2, &[]) };
        assert_eq!(check(Some(odd)), Err(Code::Unavailable));
    }
}
