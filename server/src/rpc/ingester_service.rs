//! gRPC service of the ingester for other nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{ComputePool, ErrorCode, Status, TenantId};
use athanor_cluster::handshake::PeerHandshake;
use athanor_cluster::status_codec;
use athanor_ingester::{self as ingester, HandoffWindowRequest, Ingester, LocalShardReport};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::ingester_service_server;
use bytes::Bytes;
use futures::Stream;
use tonic::{Request, Response};

use crate::rpc::handoff_client::{decode_id_list, encode_bits, encode_page};
use crate::rpc::head_query_service::{HeadQueryService, check_epoch, not_leader_error};
use crate::rpc::upload_codec::{decode_upload, encode_upload_result};

/// Time limit of a leadership transfer.
const LEADER_TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);

/// Service that gives other nodes access to the shards of this node.
#[derive(Clone)]
pub struct IngesterService {
    ingester: Arc<Ingester>,
    handshake: Arc<PeerHandshake>,
    head_queries: HeadQueryService,
}

type RpcResult<T> = Result<Response<T>, tonic::Status>;
type RpcStream<T> = Pin<Box<dyn Stream<Item = Result<T, tonic::Status>> + Send>>;

impl IngesterService {
    /// Creates the service of an ingester.
    pub fn new(ingester: Arc<Ingester>, handshake: Arc<PeerHandshake>, compute: ComputePool) -> Self {
        let head_queries = HeadQueryService::new(Arc::clone(&ingester), compute);
        Self { ingester, handshake, head_queries }
    }

    fn check_caller(&self, header: Option<&wire::CallHeader>) -> Result<&Ingester, Status> {
        self.handshake.check_caller(header).map_err(|error| Status::from_error(&error))?;
        Ok(&self.ingester)
    }

    async fn append_batch(
        &self,
        request: wire::AppendRequest,
    ) -> Result<wire::append_response::Outcome, Status> {
        let ingester = self.check_caller(request.header.as_ref())?;
        let missing = || Status::new(ErrorCode::Invalid, "append request has no batch");
        let wire::AppendBatch { shard, epoch, slot_table_version, tenant, uploads } =
            request.batch.ok_or_else(missing)?;
        check_epoch(shard, epoch)?;
        let tenant = parse_tenant(&tenant)?;
        let uploads = uploads.into_iter().map(decode_upload).collect::<Result<_, _>>()?;
        Ok(match ingester.append(shard, slot_table_version, &tenant, uploads).await {
            Ok(results) => {
                let uploads = results.into_iter().map(encode_upload_result).collect();
                wire::append_response::Outcome::Result(wire::AppendResult { uploads })
            }
            Err(error) => wire::append_response::Outcome::Error(not_leader_error(&error)),
        })
    }

    async fn query_led_heads(
        &self,
        request: wire::QueryHeadsRequest,
    ) -> Result<Vec<wire::ResultFrame>, Status> {
        self.check_caller(request.header.as_ref())?;
        let tenant = parse_tenant(&request.tenant)?;
        self.head_queries.query_heads(&tenant, &request.query, request.shards).await
    }
}

#[async_trait]
impl ingester_service_server::IngesterService for IngesterService {
    type QueryHeadsStream = RpcStream<wire::ResultFrame>;

    async fn append(&self, request: Request<wire::AppendRequest>) -> RpcResult<wire::AppendResponse> {
        let outcome = self.append_batch(request.into_inner()).await;
        let outcome = outcome.map_err(|status| status_codec::to_grpc(&status))?;
        Ok(Response::new(wire::AppendResponse { outcome: Some(outcome) }))
    }

    async fn query_heads(
        &self,
        request: Request<wire::QueryHeadsRequest>,
    ) -> RpcResult<Self::QueryHeadsStream> {
        let frames = self.query_led_heads(request.into_inner()).await;
        let frames = frames.map_err(|status| status_codec::to_grpc(&status))?;
        Ok(Response::new(Box::pin(futures::stream::iter(frames.into_iter().map(Ok)))))
    }

    async fn read_dedup_window(
        &self,
        request: Request<wire::ReadDedupWindowRequest>,
    ) -> RpcResult<wire::ReadDedupWindowResponse> {
        let request = request.into_inner();
        let ingester =
            self.check_caller(request.header.as_ref()).map_err(|status| status_codec::to_grpc(&status))?;
        let after = request.after_id.as_deref().map(decode_id_list).transpose();
        let after =
            after.map_err(|status| status_codec::to_grpc(&status))?.and_then(|ids| ids.first().copied());
        let shard = request.shard;
        let page_request = HandoffWindowRequest {
            after,
            min_age: request.min_age,
            min_applied: request.min_applied_index,
            incremental: request.incremental,
            delta_state_after: request.delta_state_after,
        };
        let page = ingester.window_page(shard, page_request).await;
        let failed = |status: Status| wire::ReadDedupWindowResponse {
            error: Some(status_codec::encode_status(&status, ingester.shard_leader(shard))),
            ..wire::ReadDedupWindowResponse::default()
        };
        Ok(Response::new(page.map_or_else(failed, encode_page)))
    }

    async fn reconcile_ids(
        &self,
        request: Request<wire::ReconcileIdsRequest>,
    ) -> RpcResult<wire::ReconcileIdsResponse> {
        let wire::ReconcileIdsRequest { header, shard, from_shard, ids } = request.into_inner();
        let ingester = self.check_caller(header.as_ref()).map_err(|status| status_codec::to_grpc(&status))?;
        let ids = decode_id_list(&ids).map_err(|status| status_codec::to_grpc(&status))?;
        let response = match ingester.reconcile_ids(shard, from_shard, ids).await {
            Ok(stored) => wire::ReconcileIdsResponse { stored: encode_bits(&stored), error: None },
            Err(status) => {
                let error = Some(status_codec::encode_status(&status, ingester.shard_leader(shard)));
                wire::ReconcileIdsResponse { stored: Bytes::new(), error }
            }
        };
        Ok(Response::new(response))
    }

    async fn report_shards(
        &self,
        request: Request<wire::ReportShardsRequest>,
    ) -> RpcResult<wire::ReportShardsResponse> {
        let ingester = self.check_caller(request.get_ref().header.as_ref());
        let ingester = ingester.map_err(|status| status_codec::to_grpc(&status))?;
        let reports = ingester.shard_reports().await;
        let reports = reports.map_err(|error| status_codec::to_grpc(&Status::from_error(&error)))?;
        let shards = reports.into_iter().map(encode_shard_report).collect();
        let slot_tables = serde_json::to_vec(&ingester.tables().await).map_err(|error| {
            let message = format!("failed to encode slot tables: {error}");
            status_codec::to_grpc(&Status::new(ErrorCode::Internal, message))
        })?;
        Ok(Response::new(wire::ReportShardsResponse { shards, slot_tables: slot_tables.into() }))
    }

    async fn manage_leadership(
        &self,
        request: Request<wire::ManageLeadershipRequest>,
    ) -> RpcResult<wire::ManageLeadershipResponse> {
        let ingester = self.check_caller(request.get_ref().header.as_ref());
        let ingester = ingester.map_err(|status| status_codec::to_grpc(&status))?;
        let error = match request.get_ref().transfer {
            None => None,
            Some(wire::LeadershipTransfer { shard, target_node_id }) => {
                let transferred =
                    ingester.transfer_shard(shard, target_node_id, LEADER_TRANSFER_TIMEOUT).await;
                transferred.err().map(|status| status_codec::encode_status(&status, None))
            }
        };
        Ok(Response::new(wire::ManageLeadershipResponse { led_shards: ingester.led_shards(), error }))
    }
}

pub fn parse_tenant(name: &str) -> Result<TenantId, Status> {
    name.parse().map_err(|error| Status::new(ErrorCode::Invalid, format!("tenant {name:?}: {error}")))
}

/// Encodes the report of this node on a shard.
fn encode_shard_report(report: LocalShardReport) -> wire::ShardReport {
    let inherited = report.inherited.map(|(source, from_shard)| wire::InheritedIds {
        from_shard,
        from_blocks: source == ingester::InheritSource::RegisteredBlocks,
    });
    wire::ShardReport {
        shard: report.shard,
        slot: report.slot,
        epoch: report.epoch,
        members: report.members.into_iter().collect(),
        flushed_index: report.cut,
        seal_index: report.sealed,
        fenced_version: report.fenced,
        inherited,
        has_profiles: report.taken,
        is_complete: report.whole,
    }
}
