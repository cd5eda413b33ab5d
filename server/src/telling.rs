//! What this node says of the shards that it leads: to other nodes, and to a question of its own that was on its way
//! while the lead came here.

use std::sync::Arc;

use athanor_catalog::{ShardId, slot_and_epoch};
use athanor_chassis::{Activity, Code, Compute, Status, Stop, TenantId};
use athanor_cluster::failure;
use athanor_ingester::{Ingester, Moved, View};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::query_response::Of;
use athanor_query::{Ask, Lying, Place, Without, answer};
use bytes::Bytes;
use futures::future::join_all;
use prost::Message;
use tokio::sync::Semaphore;

use crate::pieces::{Piece, Sum, summed};
use crate::twice;

/// Questions that are answered at once.
const QUESTIONS: usize = 64;
/// Shards of one question: as many as a node may be a member of, and some that it was.
const MOST: usize = 256;

/// Answers of the shards of this node.
#[derive(Clone)]
pub struct Telling {
    ingester: Arc<Ingester>,
    compute: Compute,
    questions: Arc<Semaphore>,
}

/// Rows that are asked about.
struct Told {
    view: View,
    tells: Option<Place>,
    without: Without,
}

impl Telling {
    /// Of this ingester.
    pub fn new(ingester: Arc<Ingester>, compute: Compute) -> Self {
        Self { ingester, compute, questions: Arc::new(Semaphore::new(QUESTIONS)) }
    }

    /// The answer of all shards that are led here, and of each shard whether it is in that. An empty question is for
    /// times.
    pub async fn answered(
        &self,
        tenant: &TenantId,
        ask: &Bytes,
        shards: Vec<wire::ShardAt>,
    ) -> Result<Vec<Piece>, Status> {
        let question = question(tenant, ask, &shards);
        let ask = match ask.is_empty() {
            true => None,
            false => Some(Ask::unpack(ask).map_err(|error| Status::of(&error))?),
        };
        if shards.len() > MOST {
            let message = format!("{} shards are asked for at once, the limit is {MOST}", shards.len());
            return Err(Status::new(Code::Invalid, message));
        }
        shards.iter().try_for_each(|at| is_of_epoch(at.shard, at.epoch))?;
        let _turn = self.questions.acquire().await;
        // What is computed ends when the caller leaves.
        let (stop, _waiting) = Stop::when_left();
        let (mut views, mut done) = (Vec::new(), Vec::new());
        // All at once: a shard that waits for an answer of its other members keeps no other waiting.
        let confirmed = join_all(shards.iter().map(|at| self.ingester.confirm(at.shard))).await;
        for (at, confirmed) in shards.into_iter().zip(confirmed) {
            let wire::ShardAt { shard, watermark, tells, without, .. } = at;
            let doubles = twice::heads(shard, &without)?;
            let mut times = None;
            let of_shard = confirmed.and_then(|()| self.ingester.views(shard, watermark, tenant));
            let of = match of_shard {
                Ok(of_shard) => {
                    times = span(of_shard.iter().filter_map(View::times));
                    views.extend(twice::numbered(shard, of_shard).map(|(place, view)| Told {
                        view: view.until(stop.flag()),
                        tells: tells.then_some(place),
                        without: doubles.at(place).cloned().unwrap_or_default(),
                    }));
                    None
                }
                Err(Moved::Rows { .. } | Moved::Over { .. }) => Some(wire::shard_done::Of::Replan(true)),
                Err(moved) => Some(wire::shard_done::Of::Failure(failure_of(&moved))),
            };
            let lost = self.ingester.lost(shard, watermark);
            let (first_nanos, last_nanos) = times.unzip();
            let forgets = self.ingester.forgets(shard);
            done.push(wire::ShardDone { shard, lost, forgets, first_nanos, last_nanos, of });
        }
        let Some(ask) = ask else { return Ok(summed(question, std::iter::empty(), done.into_iter())) };
        let job = move || {
            let lying = views.iter().map(|Told { view, tells, without }| Lying {
                source: view,
                tells: *tells,
                without,
            });
            let partial = answer(&ask, lying);
            let partial = partial.map_err(|error| Status::of(&error))?;
            let packed = partial.pack().map_err(|error| Status::of(&error))?;
            Ok(summed(question, packed, done.into_iter()))
        };
        self.compute
            .for_tenant(tenant)
            .run_as(Activity::Query, job)
            .await
            .map_err(|error| Status::of(&error))?
    }
}

/// The sum of a question to shards.
pub fn question(tenant: &TenantId, ask: &[u8], shards: &[wire::ShardAt]) -> Sum {
    Sum::of(tenant, ask, shards.iter().map(Message::encode_to_vec))
}

/// A piece as it is sent.
pub fn to_wire(piece: Piece) -> wire::QueryResponse {
    let of = match piece {
        Piece::Partial(part) => Some(Of::Partial(part)),
        Piece::Done(done) => Some(Of::Done(done)),
        Piece::Sum(sum) => Some(Of::Sum(sum)),
        Piece::Unknown => None,
    };
    wire::QueryResponse { of }
}

/// A piece that was sent.
pub fn piece_of(response: wire::QueryResponse) -> Piece {
    match response.of {
        Some(Of::Partial(part)) => Piece::Partial(part),
        Some(Of::Done(done)) => Piece::Done(done),
        Some(Of::Sum(sum)) => Piece::Sum(sum),
        None => Piece::Unknown,
    }
}

/// From the first to the last of all.
pub fn span(times: impl Iterator<Item = (i64, i64)>) -> Option<(i64, i64)> {
    times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

/// That a message means the shard that it names: its number says its epoch, too [INV-12].
pub fn is_of_epoch(shard: ShardId, epoch: u32) -> Result<(), Status> {
    match slot_and_epoch(shard) {
        Some((_, known)) if known == epoch => Ok(()),
        Some((slot, known)) => {
            let message = format!("shard {shard} is the one of epoch {known} of slot {slot}, not of {epoch}");
            Err(Status::new(Code::Invalid, message))
        }
        None => Err(Status::new(Code::Invalid, format!("{shard} is the number of no shard"))),
    }
}

/// What is told of a shard that others lead.
pub fn failure_of(moved: &Moved) -> wire::Failure {
    failure::pack(&Status::new(Code::NotLeader, moved.to_string()), moved.leader())
}
