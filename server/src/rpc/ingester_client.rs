//! Client of the ingester role. Calls the local ingester directly and remote ones over gRPC.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{HandoffSource, ShardEntry, ShardId, ShardReport};
use athanor_chassis::{Clock, ErrorCode, Status, TenantId};
use athanor_cluster::rpc_client::RpcClient;
use athanor_cluster::{NodeId, status_codec};
use athanor_ingester::{Ingester, StoredUpload};
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_proto::athanor::internal::v1 as wire;

use crate::rpc::service_load::ServiceLoad;
use crate::rpc::upload_codec::{decode_upload_result, encode_upload};

/// Time limit of one call. A node that exceeds it may be partitioned, and another may lead by now.
const INGESTER_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a status call.
const STATUS_CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Client of all ingesters, local and remote.
#[derive(Clone)]
pub struct IngesterClient {
    /// Id of this node.
    pub me: NodeId,
    /// Ingester of this node. None if this node has no such role.
    pub ingester: Option<Arc<Ingester>>,
    /// Load by service that this node received.
    pub loads: Arc<ServiceLoad>,
    /// Client of remote nodes. None for a single-node server.
    pub remote: Option<RpcClient>,
    /// Clock for timeouts.
    pub clock: Clock,
}

/// Node and shard that receive an append.
#[derive(Clone, Copy)]
pub struct AppendTarget<'a> {
    /// Node that is called.
    pub node: NodeId,
    /// Shard that stores the uploads.
    pub shard: &'a ShardEntry,
    /// Version of the slot table that placed the uploads.
    pub table: u64,
}

/// Rejection of an append. Nothing was stored: another node leads the shard, or the leader is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendRejected {
    /// Current leader, if the node knows it.
    pub leader: Option<NodeId>,
    /// Error of the append.
    pub status: Status,
}

impl IngesterClient {
    /// Appends uploads to a shard at a node.
    pub async fn append(
        &self,
        target: &AppendTarget<'_>,
        tenant: &TenantId,
        uploads: &[ProfileUpload],
        limit: Duration,
    ) -> Result<Vec<Result<StoredUpload, Status>>, AppendRejected> {
        let AppendTarget { node, shard, table } = *target;
        if node == self.me {
            let Some(ingester) = &self.ingester else { return Err(rejected("this node is not an ingester")) };
            let appended = ingester.append(shard.id, table, tenant, uploads.to_vec()).await;
            return appended.map_err(|error| AppendRejected::from(&error));
        }
        let RpcClient { peers, handshake } = self.remote_client().map_err(unreachable)?;
        let limit = limit.min(INGESTER_CALL_TIMEOUT);
        let batch = wire::AppendBatch {
            shard: shard.id,
            epoch: shard.epoch,
            slot_table_version: table,
            tenant: tenant.as_str().to_owned(),
            uploads: uploads.iter().map(encode_upload).collect(),
        };
        let header = Some(handshake.call_header(node, limit));
        let request = wire::AppendRequest { header, batch: Some(batch) };
        let mut client = peers.ingester(node);
        let response = self.call_node(node, limit, client.append(request)).await.map_err(unreachable)?;
        decode_append_response(response.into_inner(), uploads.len())
    }
}

impl IngesterClient {
    /// Returns the client of remote nodes. Fails on a single-node server.
    pub fn remote_client(&self) -> Result<&RpcClient, Status> {
        self.remote.as_ref().ok_or_else(|| {
            Status::new(ErrorCode::Unavailable, "no remote nodes configured (single-node mode)")
        })
    }

    /// Limits the time of a call to a node.
    pub async fn with_timeout<T>(
        &self,
        node: NodeId,
        limit: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        self.clock.timeout(limit, call).await.unwrap_or_else(|elapsed| {
            Err(Status::new(ErrorCode::Deadline, format!("node {node} did not respond: {elapsed}")))
        })
    }

    /// Runs a gRPC call to a node with a time limit and converts its error.
    pub async fn call_node<T>(
        &self,
        node: NodeId,
        limit: Duration,
        call: impl Future<Output = Result<T, tonic::Status>>,
    ) -> Result<T, Status> {
        self.with_timeout(node, limit, async { call.await.map_err(|error| status_codec::from_grpc(&error)) })
            .await
    }

    /// Returns the shards that a node leads, after an optional transfer of one of them.
    pub async fn led_shards(
        &self,
        node: NodeId,
        transfer: Option<wire::LeadershipTransfer>,
    ) -> Result<Vec<ShardId>, Status> {
        if node == self.me {
            let none = || Status::new(ErrorCode::Unavailable, "this node is not an ingester");
            let ingester = self.ingester.as_ref().ok_or_else(none)?;
            if let Some(wire::LeadershipTransfer { shard, target_node_id }) = transfer {
                ingester.transfer_shard(shard, target_node_id, INGESTER_CALL_TIMEOUT).await?;
            }
            return Ok(ingester.led_shards());
        }
        let RpcClient { peers, handshake } = self.remote_client()?;
        let limit = if transfer.is_some() { 2 * INGESTER_CALL_TIMEOUT } else { STATUS_CALL_TIMEOUT };
        let header = Some(handshake.call_header(node, limit));
        let request = wire::ManageLeadershipRequest { header, transfer };
        let mut client = peers.ingester(node);
        let response = self.call_node(node, limit, client.manage_leadership(request)).await?.into_inner();
        match &response.error {
            Some(error) => Err(status_codec::decode_status(error)),
            None => Ok(response.led_shards),
        }
    }
}

impl IngesterClient {
    /// Returns the shard reports of another node, and the shards of which it has all entries.
    pub async fn report_shards(&self, node: NodeId) -> Result<(Vec<ShardReport>, BTreeSet<ShardId>), Status> {
        let RpcClient { peers, handshake } = self.remote_client()?;
        let header = Some(handshake.call_header(node, INGESTER_CALL_TIMEOUT));
        let request = wire::ReportShardsRequest { header };
        let mut client = peers.ingester(node);
        let response = self.call_node(node, INGESTER_CALL_TIMEOUT, client.report_shards(request)).await?;
        let response = response.into_inner();
        let complete =
            response.shards.iter().filter(|report| report.is_complete).map(|report| report.shard).collect();
        let tables = match response.slot_tables.is_empty() {
            true => Vec::new(),
            false => serde_json::from_slice(&response.slot_tables).map_err(|error| {
                let message = format!("node {node} reports slot tables that are unreadable: {error}");
                Status::new(ErrorCode::Internal, message)
            })?,
        };
        let mut reports: Vec<ShardReport> =
            response.shards.into_iter().map(|report| decode_shard_report(node, report)).collect();
        if let Some(first) = reports.first_mut() {
            first.tables = tables;
        }
        Ok((reports, complete))
    }

    /// Returns the load by service that a node received since its start.
    pub async fn service_load(&self, node: NodeId) -> Result<BTreeMap<(TenantId, String), u64>, Status> {
        if node == self.me {
            return Ok(self.loads.now());
        }
        let RpcClient { peers, handshake } = self.remote_client()?;
        let header = Some(handshake.call_header(node, STATUS_CALL_TIMEOUT));
        let request = wire::GetServiceLoadRequest { header };
        let mut client = peers.distributor(node);
        let response = self.call_node(node, STATUS_CALL_TIMEOUT, client.get_service_load(request)).await?;
        let decode =
            |load: wire::ServiceBytes| Some(((load.tenant.parse().ok()?, load.service), load.received_bytes));
        Ok(response.into_inner().services.into_iter().filter_map(decode).collect())
    }
}

/// Decodes the append response of a node.
fn decode_append_response(
    response: wire::AppendResponse,
    upload_count: usize,
) -> Result<Vec<Result<StoredUpload, Status>>, AppendRejected> {
    use wire::append_response::Outcome;
    match response.outcome {
        Some(Outcome::Result(result)) if result.uploads.len() == upload_count => {
            Ok(result.uploads.into_iter().map(decode_upload_result).collect())
        }
        Some(Outcome::Error(error)) => {
            let leader = Some(error.leader_node_id).filter(|leader| *leader != 0);
            Err(AppendRejected { leader, status: status_codec::decode_status(&error) })
        }
        Some(Outcome::Result(_)) | None => {
            Err(rejected("protocol error: response does not match the request"))
        }
    }
}

/// Decodes the report of a node on a shard.
fn decode_shard_report(node: NodeId, report: wire::ShardReport) -> ShardReport {
    ShardReport {
        node: Some(node),
        shard: report.shard,
        members: report.members.into_iter().collect(),
        flushed: report.flushed_index.unwrap_or_default(),
        sealed: report.seal_index,
        fenced: report.fenced_version,
        // A node without all entries may have missed a change of this field.
        inherited: report.inherited.filter(|_| report.is_complete).map(|ids| match ids.from_blocks {
            true => HandoffSource::RegisteredBlocks { predecessor: ids.from_shard, up_to: 0 },
            false => HandoffSource::DedupWindow { predecessor: ids.from_shard, up_to: None },
        }),
        accepted_profiles: report.has_profiles.filter(|_| report.is_complete),
        tables: Vec::new(),
    }
}

fn rejected(why: &str) -> AppendRejected {
    AppendRejected { leader: None, status: Status::new(ErrorCode::Unavailable, why) }
}

/// Returns the rejection of a node that did not respond. The router retries it after other nodes.
fn unreachable(status: Status) -> AppendRejected {
    AppendRejected { leader: None, status }
}

impl From<&athanor_ingester::ShardReadError> for AppendRejected {
    fn from(error: &athanor_ingester::ShardReadError) -> Self {
        AppendRejected {
            leader: error.leader(),
            status: Status::new(ErrorCode::NotLeader, error.to_string()),
        }
    }
}
