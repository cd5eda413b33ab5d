//! Heads that other nodes have: those of the shards that they lead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{ShardEntry, ShardId};
use athanor_chassis::{Clock, Code, Random, Status, TenantId};
use athanor_cluster::{NodeId, failure};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::shard_done::Of as Outcome;
use athanor_querier::{Asked, Inbox, Part, PartOf, Remote};
use athanor_query::{Ask, Doubles};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::leaders::Leaders;
use crate::pieces::{Piece, Unheard, receive};
use crate::telling::{Telling, piece_of, question, span};
use crate::twice::pack_heads;
use crate::ways::{Afar, Ways};

/// How long a shard may be without a leader until an answer goes on without it, and says so.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one node may take.
const TRY: Duration = Duration::from_secs(60);
/// Between tries.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// An answer that is on its way.
type Pieces = BoxStream<'static, Result<Piece, Status>>;

/// What is needed to ask.
#[derive(Clone)]
pub struct Asking {
    /// Whom.
    pub leaders: Arc<Leaders>,
    /// How.
    pub ways: Ways,
    /// The shards that this node leads by now; none where it keeps none.
    pub here: Option<Telling>,
    /// Measures patience.
    pub clock: Clock,
    /// Spreads tries.
    pub random: Random,
}

/// Shards that seem to have one leader.
pub struct Far {
    asking: Asking,
    shards: Vec<ShardEntry>,
    /// Whether they tell which profiles they have of those that are meant.
    tells: bool,
    /// Those that do not count there.
    doubles: Doubles,
}

/// What other nodes have of some shards beside rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Entries that were lost to damage.
    pub lost: u64,
    /// Ids of some were lost to damage, and the catalogue does not say so yet.
    pub forgets: bool,
    /// Of which time there are profiles.
    pub times: Option<(i64, i64)>,
    /// Shards that nobody answers for, in words.
    pub silent: Vec<String>,
    /// Shards whose rows have moved since the plan was made, in words: they are not in the answer.
    pub moved: Vec<String>,
}

impl Asking {
    /// Divides shards by who seems to lead them. They tell which profiles they have, or not; some of these do not count.
    pub fn far(&self, shards: Vec<ShardEntry>, tells: bool, doubles: &Doubles) -> Vec<Far> {
        let mut by_leader: BTreeMap<NodeId, Vec<ShardEntry>> = BTreeMap::new();
        for shard in shards {
            by_leader.entry(self.leaders.guess(&shard, 0)).or_default().push(shard);
        }
        let of_one = |shards| Far { asking: self.clone(), shards, tells, doubles: doubles.clone() };
        by_leader.into_values().map(of_one).collect()
    }
}

impl Far {
    /// Of which time there are profiles.
    pub async fn times(&self, tenant: &TenantId) -> Result<Beside, Status> {
        self.gather(tenant, &Bytes::new(), None).await
    }

    /// Asks until each shard was answered for, or patience is at its end.
    async fn gather(
        &self,
        tenant: &TenantId,
        ask: &Bytes,
        mut inbox: Option<&mut Inbox>,
    ) -> Result<Beside, Status> {
        let Asking { leaders, clock, .. } = &self.asking;
        // Who waits no longer than that is told in time what there is.
        let wanted = inbox.as_ref().map_or(Duration::MAX, |inbox| inbox.left(clock) / 4 * 3);
        let patience = PATIENCE.min(wanted);
        let until = clock.monotonic() + patience;
        let (mut beside, mut left) = (Beside::default(), self.shards.clone());
        for attempt in 0.. {
            let mut whys = BTreeMap::new();
            let mut by_leader: BTreeMap<NodeId, Vec<ShardEntry>> = BTreeMap::new();
            for shard in left.drain(..) {
                by_leader.entry(leaders.guess(&shard, attempt)).or_default().push(shard);
            }
            for (node, shards) in by_leader {
                match self.ask_one(node, &shards, tenant, ask, inbox.as_deref_mut()).await {
                    Ok(done) => {
                        whys.extend(beside.note(done, leaders));
                        left.extend(shards.into_iter().filter(|shard| whys.contains_key(&shard.id)));
                    }
                    Err(status) if may_pass(&status) => {
                        shards.iter().for_each(|shard| {
                            leaders.learn(shard.id, None);
                            whys.insert(shard.id, status.message.clone());
                        });
                        left.extend(shards);
                    }
                    Err(status) => return Err(status),
                }
            }
            if left.is_empty() {
                break;
            }
            if clock.monotonic() >= until {
                beside.silent.extend(whys.iter().map(|(shard, why)| {
                    format!("shard {shard} did not answer within {patience:.1?}, its latest profiles are left out: {why}")
                }));
                break;
            }
            clock.sleep(self.asking.pause(attempt)).await;
        }
        Ok(beside)
    }

    /// Asks one node, and gives what it has to the inbox.
    async fn ask_one(
        &self,
        node: NodeId,
        shards: &[ShardEntry],
        tenant: &TenantId,
        ask: &Bytes,
        mut inbox: Option<&mut Inbox>,
    ) -> Result<Vec<wire::ShardDone>, Status> {
        let at = |shard: &ShardEntry| {
            let without = pack_heads(&self.doubles, shard.id);
            wire::ShardAt {
                shard: shard.id,
                epoch: shard.epoch,
                watermark: shard.watermark,
                // Who leaves some out tells which, so that it is seen whether others count them.
                tells: self.tells || !without.is_empty(),
                without,
            }
        };
        let shards_at: Vec<wire::ShardAt> = shards.iter().map(at).collect();
        let question = question(tenant, ask, &shards_at);
        let left = inbox.as_ref().map_or(TRY, |inbox| inbox.left(&self.asking.clock));
        let (limit, begun, mut bytes) = (left.min(TRY), self.asking.clock.monotonic(), 0);
        let asked = async {
            let pieces = self.pieces(node, tenant, ask, shards_at, limit).await?;
            let take = |piece: Bytes| match inbox.as_deref_mut() {
                Some(inbox) => {
                    bytes += piece.len() as u64;
                    inbox.piece(&piece)
                }
                None => Err(Status::new(Code::Internal, "a node says what was not asked for")),
            };
            receive(pieces, question, shards.len(), take).await.map_err(Unheard::status)
        };
        let said = self.asking.ways.within(node, limit, asked).await;
        let said = said.and_then(|done| complete(done, shards));
        if let Some(inbox) = &inbox {
            inbox.tell(Part {
                of: PartOf::Shards(shards.iter().map(|shard| shard.id).collect()),
                node: Some(node),
                took: self.asking.clock.monotonic().saturating_sub(begun),
                bytes,
                failed: said.as_ref().err().map(|status| status.message.clone()),
                ..Part::default()
            });
        }
        match (said, inbox) {
            // Not before each shard has said whether it is in it: else it could be asked for again, and count twice.
            (Ok(said), Some(inbox)) => inbox.end().await.map(|()| said),
            (Err(status), Some(inbox)) => {
                inbox.forget();
                Err(status)
            }
            (said, None) => said,
        }
    }

    /// What a node answers, piece by piece. This one may lead by now what another led when the plan was made.
    async fn pieces(
        &self,
        node: NodeId,
        tenant: &TenantId,
        ask: &Bytes,
        shards: Vec<wire::ShardAt>,
        limit: Duration,
    ) -> Result<Pieces, Status> {
        let Asking { ways, here, .. } = &self.asking;
        if node == ways.me {
            let none = || Status::new(Code::Unavailable, "this node keeps no shards");
            let answered = here.as_ref().ok_or_else(none)?.answered(tenant, ask, shards).await?;
            return Ok(stream::iter(answered.into_iter().map(Ok)).boxed());
        }
        let Afar { peers, introductions } = ways.others()?;
        let caller = Some(introductions.caller(node, limit));
        let request =
            wire::QueryRequest { caller, tenant: tenant.as_str().to_owned(), ask: ask.clone(), shards };
        let answered = peers.shards(node).query(request).await;
        let pieces = answered.map_err(|error| failure::from_grpc(&error))?.into_inner();
        Ok(pieces.map_ok(piece_of).map_err(|error| failure::from_grpc(&error)).boxed())
    }
}

#[async_trait]
impl Remote for Far {
    async fn ask(&self, tenant: &TenantId, ask: &Ask, inbox: &mut Inbox) -> Result<(), Asked> {
        let packed = ask.pack().map_err(|error| Status::of(&error))?;
        let beside = self.gather(tenant, &packed.into(), Some(&mut *inbox)).await?;
        beside.silent.iter().for_each(|words| inbox.silent(words));
        beside.missing().into_iter().for_each(|missing| inbox.miss(missing));
        inbox.in_memory(beside.times);
        // The others are in the inbox by now: the last plan goes on with them.
        match beside.moved.is_empty() {
            true => Ok(()),
            false => Err(Asked::Replan(beside.moved.join("; "))),
        }
    }
}

impl Asking {
    /// Ever longer, and for each caller a little different.
    fn pause(&self, attempt: usize) -> Duration {
        let (least, most) = PAUSES;
        let span = least.saturating_mul(1 << attempt.min(8)).min(most);
        span / 2 + Duration::from_nanos(self.random.below(span.as_nanos() as u64 / 2))
    }
}

/// What a node said, if it has said it of each shard.
fn complete(mut done: Vec<wire::ShardDone>, shards: &[ShardEntry]) -> Result<Vec<wire::ShardDone>, Status> {
    done.sort_unstable_by_key(|of| of.shard);
    let mut asked: Vec<ShardId> = shards.iter().map(|shard| shard.id).collect();
    asked.sort_unstable();
    if done.iter().map(|of| of.shard).eq(asked) {
        return Ok(done);
    }
    Err(Status::new(Code::Unavailable, "a node's answer is to another question"))
}

/// Whether another node may answer.
fn may_pass(status: &Status) -> bool {
    matches!(status.code, Code::Unavailable | Code::Deadline | Code::NotLeader | Code::Cancelled)
}

impl Beside {
    /// Notes what a node said, and gives the shards that are to be asked for again, with reasons.
    fn note(&mut self, done: Vec<wire::ShardDone>, leaders: &Leaders) -> Vec<(ShardId, String)> {
        let mut again = Vec::new();
        for of in done {
            match of.of {
                None => {
                    self.lost += of.lost;
                    self.forgets |= of.forgets;
                    self.times = span(self.times.into_iter().chain(of.first_nanos.zip(of.last_nanos)));
                }
                Some(Outcome::Failure(failure)) => {
                    leaders.learn(of.shard, Some(failure.leader).filter(|leader| *leader != 0));
                    again.push((of.shard, failure.message));
                }
                Some(Outcome::Replan(_)) => {
                    let why = format!("the latest profiles of shard {} have moved to blocks", of.shard);
                    self.moved.push(why);
                }
            }
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_moved_hides_nothing_of_the_others() {
        let of = |shard, of| wire::ShardDone { shard, of, ..wire::ShardDone::default() };
        let failure = wire::Failure { message: "it leads no more".to_owned(), ..wire::Failure::default() };
        let done = vec![
            of(1, Some(Outcome::Replan(true))),
            wire::ShardDone {
                lost: 3,
                forgets: true,
                first_nanos: Some(5),
                last_nanos: Some(7),
                ..of(2, None)
            },
            of(3, Some(Outcome::Replan(true))),
            of(4, Some(Outcome::Failure(failure))),
        ];
        let (leaders, mut beside) = (Leaders::new(1, None, None), Beside::default());
        assert_eq!(beside.note(done, &leaders), [(4, "it leads no more".to_owned())]);
        assert_eq!((beside.lost, beside.forgets, beside.times), (3, true, Some((5, 7))));
        assert_eq!(
            beside.moved,
            [1, 3].map(|shard| format!("the latest profiles of shard {shard} have moved to blocks"))
        );
    }
}
