//! What an ingester does for other nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{Code, Compute, Status, TenantId};
use athanor_cluster::failure;
use athanor_cluster::greeting::Introductions;
use athanor_ingester::{self as ingester, Described, Ingester, Stored, WindowAsk};
use athanor_profile::Labels;
use athanor_profile::upload::{Dropped, Upload};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::shards_server::Shards;
use bytes::Bytes;
use futures::Stream;
use tonic::{Request, Response};

use crate::kinship::{bits, paged, unpacked};
use crate::pieces::Piece;
use crate::telling::{Telling, failure_of, is_of_epoch, to_wire};

/// How long a lead may take to go to another.
const HAND_OVER: Duration = Duration::from_secs(5);

/// The shards of this node, for others.
#[derive(Clone)]
pub struct Kept {
    ingester: Arc<Ingester>,
    introductions: Arc<Introductions>,
    telling: Telling,
}

type Told<T> = Result<Response<T>, tonic::Status>;
type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, tonic::Status>> + Send>>;

impl Kept {
    /// Of this ingester.
    pub fn new(ingester: Arc<Ingester>, introductions: Arc<Introductions>, compute: Compute) -> Self {
        let telling = Telling::new(Arc::clone(&ingester), compute);
        Self { ingester, introductions, telling }
    }

    fn checked(&self, caller: Option<&wire::Caller>) -> Result<&Ingester, Status> {
        self.introductions.check(caller).map_err(|stranger| Status::of(&stranger))?;
        Ok(&self.ingester)
    }

    async fn stored(&self, request: wire::AppendRequest) -> Result<wire::append_response::Of, Status> {
        let ingester = self.checked(request.caller.as_ref())?;
        let none = || Status::new(Code::Invalid, "the message has no batch");
        let wire::Batch { shard, epoch, table, tenant, uploads } = request.batch.ok_or_else(none)?;
        is_of_epoch(shard, epoch)?;
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

    async fn answered(&self, request: wire::QueryRequest) -> Result<Vec<Piece>, Status> {
        self.checked(request.caller.as_ref())?;
        let tenant = tenant_of(&request.tenant)?;
        self.telling.answered(&tenant, &request.ask, request.shards).await
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
        let pieces = answered.into_iter().map(|piece| Ok(to_wire(piece)));
        Ok(Response::new(Box::pin(futures::stream::iter(pieces))))
    }

    async fn window(&self, request: Request<wire::WindowRequest>) -> Told<wire::WindowResponse> {
        let request = request.into_inner();
        let ingester = self.checked(request.caller.as_ref()).map_err(|status| failure::to_grpc(&status))?;
        let after = request.after.as_deref().map(unpacked).transpose();
        let after = after.map_err(|status| failure::to_grpc(&status))?.and_then(|ids| ids.first().copied());
        let wire::WindowRequest { shard, since, upto, again, counted, .. } = request;
        let page = ingester.window(shard, WindowAsk { after, since, upto, again, counted }).await;
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
        let packed = serde_json::to_vec(&ingester.tables().await);
        let tables = packed.map_err(|error| {
            failure::to_grpc(&Status::new(Code::Internal, format!("tables cannot be packed: {error}")))
        })?;
        Ok(Response::new(wire::DescribeResponse { shards, tables: tables.into() }))
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

pub fn tenant_of(name: &str) -> Result<TenantId, Status> {
    name.parse().map_err(|error| Status::new(Code::Invalid, format!("tenant {name:?}: {error}")))
}

fn described(shard: Described) -> wire::Described {
    let Described { shard, slot, epoch, members, cut, sealed, fenced, inherited, taken, whole } = shard;
    let members = members.into_iter().collect();
    let of = |(source, shard)| wire::Inherited { shard, of_blocks: source == ingester::Source::Blocks };
    let inherited = inherited.map(of);
    wire::Described { shard, slot, epoch, members, cut, sealed, fenced, inherited, taken, whole }
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
        has_elf_addresses: upload.has_elf_addresses,
    })
}

fn told(stored: Result<Stored, Status>) -> wire::UploadResult {
    match stored {
        Ok(Stored { new, repeats, dropped, raw_bytes, samples }) => {
            let Dropped {
                samples: dangling,
                negative,
                lines,
                mappings,
                deep,
                long,
                by_rules,
                ids,
                without_stack: _,
            } = dropped;
            let dropped =
                wire::Dropped { samples: dangling, negative, lines, mappings, deep, long, by_rules, ids };
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
