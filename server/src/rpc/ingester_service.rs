//! gRPC service of the ingester for other nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{ComputePool, ErrorCode, Status, TenantId};
use athanor_cluster::handshake::PeerHandshake;
use athanor_cluster::status_codec;
use athanor_ingester::{self as ingester, HandoffWindowRequest, Ingester, LocalShardReport, StoredUpload};
use athanor_profile::Labels;
use athanor_profile::data_model::dropped_counts::DropReason;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::shards_server::Shards;
use bytes::Bytes;
use futures::Stream;
use tonic::{Request, Response};

use crate::rpc::handoff_client::{decode_id_list, encode_bits, encode_page};
use crate::rpc::head_query_service::{HeadQueryService, check_epoch, encode_frame, not_leader_failure};
use crate::rpc::result_stream::ResultFrame;

/// Time limit of a leadership transfer.
const LEADER_TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);

/// Service that gives other nodes access to the shards of this node.
#[derive(Clone)]
pub struct IngesterService {
    ingester: Arc<Ingester>,
    introductions: Arc<PeerHandshake>,
    telling: HeadQueryService,
}

type RpcResult<T> = Result<Response<T>, tonic::Status>;
type RpcStream<T> = Pin<Box<dyn Stream<Item = Result<T, tonic::Status>> + Send>>;

impl IngesterService {
    /// Creates the service of an ingester.
    pub fn new(ingester: Arc<Ingester>, introductions: Arc<PeerHandshake>, compute: ComputePool) -> Self {
        let telling = HeadQueryService::new(Arc::clone(&ingester), compute);
        Self { ingester, introductions, telling }
    }

    fn checked(&self, caller: Option<&wire::Caller>) -> Result<&Ingester, Status> {
        self.introductions.check_caller(caller).map_err(|stranger| Status::from_error(&stranger))?;
        Ok(&self.ingester)
    }

    async fn stored(&self, request: wire::AppendRequest) -> Result<wire::append_response::Of, Status> {
        let ingester = self.checked(request.caller.as_ref())?;
        let none = || Status::new(ErrorCode::Invalid, "the message has no batch");
        let wire::Batch { shard, epoch, table, tenant, uploads } = request.batch.ok_or_else(none)?;
        check_epoch(shard, epoch)?;
        let tenant = parse_tenant(&tenant)?;
        let uploads = uploads.into_iter().map(upload).collect::<Result<_, _>>()?;
        let stored = ingester.append(shard, table, &tenant, uploads).await;
        Ok(match stored {
            Ok(stored) => {
                let uploads = stored.into_iter().map(told).collect();
                wire::append_response::Of::Stored(wire::Stored { uploads })
            }
            Err(moved) => wire::append_response::Of::Failure(not_leader_failure(&moved)),
        })
    }

    async fn answered(&self, request: wire::QueryRequest) -> Result<Vec<ResultFrame>, Status> {
        self.checked(request.caller.as_ref())?;
        let tenant = parse_tenant(&request.tenant)?;
        self.telling.query_heads(&tenant, &request.ask, request.shards).await
    }
}

#[async_trait]
impl Shards for IngesterService {
    type QueryStream = RpcStream<wire::QueryResponse>;

    async fn append(&self, request: Request<wire::AppendRequest>) -> RpcResult<wire::AppendResponse> {
        let of = self.stored(request.into_inner()).await.map_err(|status| status_codec::to_grpc(&status))?;
        Ok(Response::new(wire::AppendResponse { of: Some(of) }))
    }

    async fn query(&self, request: Request<wire::QueryRequest>) -> RpcResult<Self::QueryStream> {
        let answered =
            self.answered(request.into_inner()).await.map_err(|status| status_codec::to_grpc(&status))?;
        let pieces = answered.into_iter().map(|piece| Ok(encode_frame(piece)));
        Ok(Response::new(Box::pin(futures::stream::iter(pieces))))
    }

    async fn window(&self, request: Request<wire::WindowRequest>) -> RpcResult<wire::WindowResponse> {
        let request = request.into_inner();
        let ingester =
            self.checked(request.caller.as_ref()).map_err(|status| status_codec::to_grpc(&status))?;
        let after = request.after.as_deref().map(decode_id_list).transpose();
        let after =
            after.map_err(|status| status_codec::to_grpc(&status))?.and_then(|ids| ids.first().copied());
        let wire::WindowRequest { shard, since, upto, again, counted, .. } = request;
        let page =
            ingester.window_page(shard, HandoffWindowRequest { after, since, upto, again, counted }).await;
        let refused = |status: Status| wire::WindowResponse {
            failure: Some(status_codec::encode_status(&status, ingester.shard_leader(shard))),
            ..wire::WindowResponse::default()
        };
        Ok(Response::new(page.map_or_else(refused, encode_page)))
    }

    async fn settle(&self, request: Request<wire::SettleRequest>) -> RpcResult<wire::SettleResponse> {
        let wire::SettleRequest { caller, shard, from_shard, ids } = request.into_inner();
        let ingester = self.checked(caller.as_ref()).map_err(|status| status_codec::to_grpc(&status))?;
        let ids = decode_id_list(&ids).map_err(|status| status_codec::to_grpc(&status))?;
        let answer = match ingester.reconcile_ids(shard, from_shard, ids).await {
            Ok(held) => wire::SettleResponse { held: encode_bits(&held), failure: None },
            Err(status) => {
                let failure = Some(status_codec::encode_status(&status, ingester.shard_leader(shard)));
                wire::SettleResponse { held: Bytes::new(), failure }
            }
        };
        Ok(Response::new(answer))
    }

    async fn describe(&self, request: Request<wire::DescribeRequest>) -> RpcResult<wire::DescribeResponse> {
        let ingester = self.checked(request.get_ref().caller.as_ref());
        let ingester = ingester.map_err(|status| status_codec::to_grpc(&status))?;
        let shards = ingester.shard_reports().await;
        let shards = shards.map_err(|error| status_codec::to_grpc(&Status::from_error(&error)))?;
        let shards = shards.into_iter().map(described).collect();
        let packed = serde_json::to_vec(&ingester.tables().await);
        let tables = packed.map_err(|error| {
            status_codec::to_grpc(&Status::new(
                ErrorCode::Internal,
                format!("tables cannot be packed: {error}"),
            ))
        })?;
        Ok(Response::new(wire::DescribeResponse { shards, tables: tables.into() }))
    }

    async fn leads(&self, request: Request<wire::LeadsRequest>) -> RpcResult<wire::LeadsResponse> {
        let ingester = self.checked(request.get_ref().caller.as_ref());
        let ingester = ingester.map_err(|status| status_codec::to_grpc(&status))?;
        let failure = match request.get_ref().hand_over {
            None => None,
            Some(wire::HandOver { shard, to }) => {
                let handed = ingester.transfer_shard(shard, to, LEADER_TRANSFER_TIMEOUT).await;
                handed.err().map(|status| status_codec::encode_status(&status, None))
            }
        };
        Ok(Response::new(wire::LeadsResponse { shards: ingester.led_shards(), failure }))
    }
}

pub fn parse_tenant(name: &str) -> Result<TenantId, Status> {
    name.parse().map_err(|error| Status::new(ErrorCode::Invalid, format!("tenant {name:?}: {error}")))
}

fn described(shard: LocalShardReport) -> wire::Described {
    let LocalShardReport { shard, slot, epoch, members, cut, sealed, fenced, inherited, taken, whole } =
        shard;
    let members = members.into_iter().collect();
    let of = |(source, shard)| wire::Inherited {
        shard,
        of_blocks: source == ingester::InheritSource::RegisteredBlocks,
    };
    let inherited = inherited.map(of);
    wire::Described { shard, slot, epoch, members, cut, sealed, fenced, inherited, taken, whole }
}

fn labels(labels: Vec<wire::Label>) -> Labels {
    Labels::new(labels.into_iter().map(|label| (label.name, label.value)))
}

fn upload(upload: wire::Upload) -> Result<ProfileUpload, Status> {
    let drawn: [u8; 16] = upload.drawn[..].try_into().map_err(|_| {
        let message = format!("what was drawn for an upload has {} bytes, not 16", upload.drawn.len());
        Status::new(ErrorCode::Invalid, message)
    })?;
    Ok(ProfileUpload {
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

fn told(stored: Result<StoredUpload, Status>) -> wire::UploadResult {
    match stored {
        Ok(StoredUpload { new, repeats, dropped, raw_bytes, samples }) => {
            let dropped = wire::Dropped {
                samples: dropped.get(DropReason::DanglingSample),
                negative: dropped.get(DropReason::NegativeSample),
                lines: dropped.get(DropReason::DanglingLine),
                mappings: dropped.get(DropReason::DanglingMapping),
                deep: dropped.get(DropReason::DeepStack),
                long: dropped.get(DropReason::LongText),
                by_rules: dropped.get(DropReason::RelabelRule),
                ids: dropped.get(DropReason::MalformedId),
            };
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
            failure: Some(status_codec::encode_status(&status, None)),
            ..wire::UploadResult::default()
        },
    }
}
