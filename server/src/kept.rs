//! What an ingester does for other nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{Activity, Code, Compute, Status, TenantId};
use athanor_cluster::failure;
use athanor_cluster::greeting::Introductions;
use athanor_ingester::{Described, Ingester, Moved, Stored, View, WindowAsk};
use athanor_profile::upload::{Dropped, Upload};
use athanor_profile::{Labels, Source};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::query_response::Of as Piece;
use athanor_proto::athanor::internal::v1::shards_server::Shards;
use athanor_query::{Ask, answer};
use bytes::Bytes;
use futures::Stream;
use tokio::sync::Semaphore;
use tonic::{Request, Response};

use crate::kinship::{bits, paged, unpacked};

/// Questions that are answered at once.
const QUESTIONS: usize = 64;
/// Shards of one question: as many as a node may be a member of, and some that it was.
const MOST: usize = 256;
/// How long a lead may take to go to another.
const HAND_OVER: Duration = Duration::from_secs(5);

/// The shards of this node, for others.
#[derive(Clone)]
pub struct Kept {
    ingester: Arc<Ingester>,
    introductions: Arc<Introductions>,
    compute: Compute,
    questions: Arc<Semaphore>,
}

type Told<T> = Result<Response<T>, tonic::Status>;
type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, tonic::Status>> + Send>>;

impl Kept {
    /// Of this ingester.
    pub fn new(ingester: Arc<Ingester>, introductions: Arc<Introductions>, compute: Compute) -> Self {
        Self { ingester, introductions, compute, questions: Arc::new(Semaphore::new(QUESTIONS)) }
    }

    fn checked(&self, caller: Option<&wire::Caller>) -> Result<&Ingester, Status> {
        self.introductions.check(caller).map_err(|stranger| Status::of(&stranger))?;
        Ok(&self.ingester)
    }

    async fn stored(&self, request: wire::AppendRequest) -> Result<wire::append_response::Of, Status> {
        let ingester = self.checked(request.caller.as_ref())?;
        let none = || Status::new(Code::Invalid, "the message has no batch");
        let wire::Batch { shard, table, tenant, uploads, .. } = request.batch.ok_or_else(none)?;
        let tenant = tenant_of(&tenant)?;
        let uploads = uploads.into_iter().map(upload).collect::<Result<_, _>>()?;
        let stored = ingester.append(shard, table, &tenant, uploads).await;
        Ok(match stored {
            Ok(stored) => {
                let uploads = stored.into_iter().map(told).collect();
                wire::append_response::Of::Stored(wire::Stored { uploads })
            }
            Err(moved) => wire::append_response::Of::Failure(failure_of(&moved)),
        })
    }

    /// The answer of all shards that are led here, and of each shard whether it is in that.
    async fn answered(&self, request: wire::QueryRequest) -> Result<Vec<wire::QueryResponse>, Status> {
        let ingester = self.checked(request.caller.as_ref())?;
        let tenant = tenant_of(&request.tenant)?;
        let wants_times = request.ask.is_empty();
        let ask = match wants_times {
            true => None,
            false => Some(Ask::unpack(&request.ask).map_err(|error| Status::of(&error))?),
        };
        if request.shards.len() > MOST {
            let message =
                format!("{} shards are asked for at once, the limit is {MOST}", request.shards.len());
            return Err(Status::new(Code::Invalid, message));
        }
        let _turn = self.questions.acquire().await;
        let (mut views, mut done) = (Vec::new(), Vec::new());
        for wire::ShardAt { shard, watermark, .. } in request.shards {
            let mut times = None;
            let confirmed = ingester.confirm(shard).await;
            let of_shard = confirmed.and_then(|()| ingester.views(shard, watermark, &tenant));
            let of = match of_shard {
                Ok(of_shard) => {
                    if wants_times {
                        times = span(of_shard.iter().filter_map(View::times));
                    } else {
                        views.extend(of_shard);
                    }
                    None
                }
                Err(Moved::Rows { .. }) => Some(wire::shard_done::Of::Replan(true)),
                Err(moved) => Some(wire::shard_done::Of::Failure(failure_of(&moved))),
            };
            let lost = ingester.lost(shard, watermark);
            let (first_nanos, last_nanos) = times.unzip();
            let forgets = ingester.forgets(shard);
            done.push(wire::ShardDone { shard, lost, forgets, first_nanos, last_nanos, of });
        }
        let done = done.into_iter().map(|done| wire::QueryResponse { of: Some(Piece::Done(done)) });
        let Some(ask) = ask else { return Ok(done.collect()) };
        let job = move || {
            let partial = answer(&ask, views.iter().map(|view| view as &dyn Source));
            let partial = partial.map_err(|error| Status::of(&error))?;
            partial.pack().map_err(|error| Status::of(&error))
        };
        let packed =
            self.compute.run_as(Activity::Query, job).await.map_err(|error| Status::of(&error))??;
        let pieces = packed.map(|piece| wire::QueryResponse { of: Some(Piece::Partial(piece)) });
        Ok(pieces.chain(done).collect())
    }
}

#[async_trait]
impl Shards for Kept {
    type QueryStream = Pieces<wire::QueryResponse>;

    async fn append(&self, request: Request<wire::AppendRequest>) -> Told<wire::AppendResponse> {
        let of = self.stored(request.into_inner()).await.map_err(|status| failure::to_grpc(&status))?;
        Ok(Response::new(wire::AppendResponse { of: Some(of) }))
    }

    async fn query(&self, request: Request<wire::QueryRequest>) -> Told<Self::QueryStream> {
        let answered =
            self.answered(request.into_inner()).await.map_err(|status| failure::to_grpc(&status))?;
        Ok(Response::new(Box::pin(futures::stream::iter(answered.into_iter().map(Ok)))))
    }

    async fn window(&self, request: Request<wire::WindowRequest>) -> Told<wire::WindowResponse> {
        let request = request.into_inner();
        let ingester = self.checked(request.caller.as_ref()).map_err(|status| failure::to_grpc(&status))?;
        let after = request.after.as_deref().map(unpacked).transpose();
        let after = after.map_err(|status| failure::to_grpc(&status))?.and_then(|ids| ids.first().copied());
        let wire::WindowRequest { shard, since, upto, again, .. } = request;
        let page = ingester.window(shard, WindowAsk { after, since, upto, again }).await;
        let refused = |status: Status| wire::WindowResponse {
            failure: Some(failure::pack(&status, ingester.leader(shard))),
            ..wire::WindowResponse::default()
        };
        Ok(Response::new(page.map_or_else(refused, paged)))
    }

    async fn settle(&self, request: Request<wire::SettleRequest>) -> Told<wire::SettleResponse> {
        let wire::SettleRequest { caller, shard, from_shard, ids } = request.into_inner();
        let ingester = self.checked(caller.as_ref()).map_err(|status| failure::to_grpc(&status))?;
        let ids = unpacked(&ids).map_err(|status| failure::to_grpc(&status))?;
        let answer = match ingester.settle(shard, from_shard, ids).await {
            Ok(held) => wire::SettleResponse { held: bits(&held), failure: None },
            Err(status) => {
                let failure = Some(failure::pack(&status, ingester.leader(shard)));
                wire::SettleResponse { held: Bytes::new(), failure }
            }
        };
        Ok(Response::new(answer))
    }

    async fn describe(&self, request: Request<wire::DescribeRequest>) -> Told<wire::DescribeResponse> {
        let ingester = self.checked(request.get_ref().caller.as_ref());
        let ingester = ingester.map_err(|status| failure::to_grpc(&status))?;
        let shards = ingester.describe().await;
        let shards = shards.map_err(|error| failure::to_grpc(&Status::of(&error)))?;
        let shards = shards.into_iter().map(described).collect();
        Ok(Response::new(wire::DescribeResponse { shards }))
    }

    async fn leads(&self, request: Request<wire::LeadsRequest>) -> Told<wire::LeadsResponse> {
        let ingester = self.checked(request.get_ref().caller.as_ref());
        let ingester = ingester.map_err(|status| failure::to_grpc(&status))?;
        let failure = match request.get_ref().hand_over {
            None => None,
            Some(wire::HandOver { shard, to }) => {
                let handed = ingester.hand_over(shard, to, HAND_OVER).await;
                handed.err().map(|status| failure::pack(&status, None))
            }
        };
        Ok(Response::new(wire::LeadsResponse { shards: ingester.leads(), failure }))
    }
}

/// From the first to the last of all.
pub fn span(times: impl Iterator<Item = (i64, i64)>) -> Option<(i64, i64)> {
    times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

fn tenant_of(name: &str) -> Result<TenantId, Status> {
    name.parse().map_err(|error| Status::new(Code::Invalid, format!("tenant {name:?}: {error}")))
}

fn failure_of(moved: &Moved) -> wire::Failure {
    let leader = match moved {
        Moved::Lead { leader, .. } => *leader,
        Moved::Rows { .. } => None,
    };
    failure::pack(&Status::new(Code::NotLeader, moved.to_string()), leader)
}

fn described(shard: Described) -> wire::Described {
    let Described { shard, slot, epoch, members, cut, sealed, fenced } = shard;
    let members = members.into_iter().collect();
    wire::Described { shard, slot, epoch, members, cut, sealed, fenced, table: Bytes::new() }
}

fn labels(labels: Vec<wire::Label>) -> Labels {
    Labels::new(labels.into_iter().map(|label| (label.name, label.value)))
}

fn upload(upload: wire::Upload) -> Result<Upload, Status> {
    let drawn: [u8; 16] = upload.drawn[..].try_into().map_err(|_| {
        let message = format!("what was drawn for an upload has {} bytes, not 16", upload.drawn.len());
        Status::new(Code::Invalid, message)
    })?;
    Ok(Upload {
        sent: labels(upload.sent),
        labels: labels(upload.labels),
        client_id: Some(upload.client_id).filter(|id| !id.is_empty()),
        time_nanos: upload.time_nanos,
        received_nanos: upload.received_nanos,
        drawn: u128::from_be_bytes(drawn),
        pprof: upload.pprof,
    })
}

fn told(stored: Result<Stored, Status>) -> wire::UploadResult {
    match stored {
        Ok(Stored { new, repeats, dropped, raw_bytes, samples }) => {
            let Dropped { samples: dangling, negative, lines, mappings, deep, long } = dropped;
            let dropped = wire::Dropped { samples: dangling, negative, lines, mappings, deep, long };
            wire::UploadResult {
                new: new.into(),
                repeats: repeats.into(),
                dropped: Some(dropped),
                failure: None,
                raw_bytes,
                samples,
            }
        }
        Err(status) => wire::UploadResult {
            failure: Some(failure::pack(&status, None)),
            ..wire::UploadResult::default()
        },
    }
}
