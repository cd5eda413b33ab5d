//! Client of the ingester role. Calls the local ingester directly and remote ones over gRPC.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{HandoffSource, ShardEntry, ShardId, ShardReport};
use athanor_chassis::{Clock, ErrorCode, Status, TenantId};
use athanor_cluster::handshake::PeerHandshake;
use athanor_cluster::peers::PeerPool;
use athanor_cluster::{NodeId, status_codec};
use athanor_ingester::{Ingester, StoredUpload};
use athanor_profile::Labels;
use athanor_profile::data_model::dropped_counts::{DropReason, DroppedCounts};
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_proto::athanor::internal::v1 as wire;

use crate::rpc::service_load::ServiceLoad;

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
    pub afar: Option<InternalRpcClient>,
    /// Clock for timeouts.
    pub clock: Clock,
}

/// Client of the internal RPCs of other nodes.
#[derive(Clone)]
pub struct InternalRpcClient {
    /// Pool of connections to nodes.
    pub peers: PeerPool,
    /// Source of the caller identity in requests.
    pub introductions: Arc<PeerHandshake>,
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
            let Some(ingester) = &self.ingester else { return Err(unknown("this node keeps no shards")) };
            let appended = ingester.append(shard.id, table, tenant, uploads.to_vec()).await;
            return appended.map_err(|moved| AppendRejected::from(&moved));
        }
        let InternalRpcClient { peers, introductions } = self.remote_client().map_err(gone)?;
        let limit = limit.min(INGESTER_CALL_TIMEOUT);
        let batch = wire::Batch {
            shard: shard.id,
            epoch: shard.epoch,
            table,
            tenant: tenant.as_str().to_owned(),
            uploads: uploads.iter().map(packed).collect(),
        };
        let request =
            wire::AppendRequest { caller: Some(introductions.caller(node, limit)), batch: Some(batch) };
        let mut client = peers.ingester(node);
        let answered = self.call_node(node, limit, client.append(request)).await.map_err(gone)?.into_inner();
        told(answered, uploads.len())
    }
}

impl IngesterClient {
    /// Returns the client of remote nodes. Fails on a single-node server.
    pub fn remote_client(&self) -> Result<&InternalRpcClient, Status> {
        self.afar.as_ref().ok_or_else(|| Status::new(ErrorCode::Unavailable, "there are no other nodes"))
    }

    /// Limits the time of a call to a node.
    pub async fn with_timeout<T>(
        &self,
        node: NodeId,
        limit: Duration,
        said: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        self.clock.timeout(limit, said).await.unwrap_or_else(|late| {
            Err(Status::new(ErrorCode::Deadline, format!("node {node} did not answer: {late}")))
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

    /// Returns the shards that a node leads, after an optional handoff of one of them.
    pub async fn led_shards(
        &self,
        node: NodeId,
        hand_over: Option<wire::HandOver>,
    ) -> Result<Vec<ShardId>, Status> {
        if node == self.me {
            let none = || Status::new(ErrorCode::Unavailable, "this node keeps no shards");
            let ingester = self.ingester.as_ref().ok_or_else(none)?;
            if let Some(wire::HandOver { shard, to }) = hand_over {
                ingester.transfer_shard(shard, to, INGESTER_CALL_TIMEOUT).await?;
            }
            return Ok(ingester.led_shards());
        }
        let InternalRpcClient { peers, introductions } = self.remote_client()?;
        let limit = if hand_over.is_some() { 2 * INGESTER_CALL_TIMEOUT } else { STATUS_CALL_TIMEOUT };
        let request = wire::LeadsRequest { caller: Some(introductions.caller(node, limit)), hand_over };
        let mut client = peers.ingester(node);
        let answered = self.call_node(node, limit, client.leads(request)).await?.into_inner();
        match &answered.failure {
            Some(failure) => Err(status_codec::decode_status(failure)),
            None => Ok(answered.shards),
        }
    }
}

impl IngesterClient {
    /// Returns the shard reports of another node, and the shards of which it has all entries.
    pub async fn report_shards(&self, node: NodeId) -> Result<(Vec<ShardReport>, BTreeSet<ShardId>), Status> {
        let InternalRpcClient { peers, introductions } = self.remote_client()?;
        let request =
            wire::DescribeRequest { caller: Some(introductions.caller(node, INGESTER_CALL_TIMEOUT)) };
        let mut client = peers.ingester(node);
        let answered =
            self.call_node(node, INGESTER_CALL_TIMEOUT, client.describe(request)).await?.into_inner();
        let whole = answered.shards.iter().filter(|shard| shard.whole).map(|shard| shard.shard).collect();
        let tables = match answered.tables.is_empty() {
            true => Vec::new(),
            false => serde_json::from_slice(&answered.tables).map_err(|error| {
                let message = format!("node {node} tells of tables that cannot be read: {error}");
                Status::new(ErrorCode::Internal, message)
            })?,
        };
        let one = |of: wire::Described| ShardReport {
            node: Some(node),
            shard: of.shard,
            members: of.members.into_iter().collect(),
            flushed: of.cut.unwrap_or_default(),
            sealed: of.sealed,
            fenced: of.fenced,
            // A node without all entries may have missed a change of this field.
            inherited: of.inherited.filter(|_| of.whole).map(|inherited| match inherited.of_blocks {
                true => HandoffSource::RegisteredBlocks { predecessor: inherited.shard, up_to: 0 },
                false => HandoffSource::DedupWindow { predecessor: inherited.shard, up_to: None },
            }),
            accepted_profiles: of.taken.filter(|_| of.whole),
            tables: Vec::new(),
        };
        let mut told: Vec<ShardReport> = answered.shards.into_iter().map(one).collect();
        if let Some(first) = told.first_mut() {
            first.tables = tables;
        }
        Ok((told, whole))
    }

    /// Returns the load by service that a node received since its start.
    pub async fn service_load(&self, node: NodeId) -> Result<BTreeMap<(TenantId, String), u64>, Status> {
        if node == self.me {
            return Ok(self.loads.now());
        }
        let InternalRpcClient { peers, introductions } = self.remote_client()?;
        let request = wire::LoadsRequest { caller: Some(introductions.caller(node, STATUS_CALL_TIMEOUT)) };
        let mut client = peers.distributor(node);
        let answered = self.call_node(node, STATUS_CALL_TIMEOUT, client.loads(request)).await?.into_inner();
        let one = |load: wire::Load| Some(((load.tenant.parse().ok()?, load.service), load.bytes));
        Ok(answered.loads.into_iter().filter_map(one).collect())
    }
}

/// Converts the append response of a node.
fn told(
    answered: wire::AppendResponse,
    count: usize,
) -> Result<Vec<Result<StoredUpload, Status>>, AppendRejected> {
    use wire::append_response::Of;
    match answered.of {
        Some(Of::Stored(stored)) if stored.uploads.len() == count => {
            Ok(stored.uploads.into_iter().map(unpacked).collect())
        }
        Some(Of::Failure(failure)) => {
            let leader = Some(failure.leader).filter(|leader| *leader != 0);
            Err(AppendRejected { leader, status: status_codec::decode_status(&failure) })
        }
        Some(Of::Stored(_)) | None => Err(unknown("a node's answer is to another request")),
    }
}

fn unknown(why: &str) -> AppendRejected {
    AppendRejected { leader: None, status: Status::new(ErrorCode::Unavailable, why) }
}

/// Returns the rejection of a node that did not respond. The router retries it after other nodes.
fn gone(status: Status) -> AppendRejected {
    AppendRejected { leader: None, status }
}

impl From<&athanor_ingester::ShardReadError> for AppendRejected {
    fn from(moved: &athanor_ingester::ShardReadError) -> Self {
        AppendRejected {
            leader: moved.leader(),
            status: Status::new(ErrorCode::NotLeader, moved.to_string()),
        }
    }
}

fn labels(labels: &Labels) -> Vec<wire::Label> {
    let one = |(name, value): (&str, &str)| wire::Label { name: name.to_owned(), value: value.to_owned() };
    labels.iter().map(one).collect()
}

fn packed(upload: &ProfileUpload) -> wire::Upload {
    wire::Upload {
        sent: labels(&upload.sent),
        labels: labels(&upload.labels),
        client_id: upload.client_id.clone().unwrap_or_default(),
        time_nanos: upload.time_nanos,
        received_nanos: upload.received_nanos,
        drawn: upload.drawn.to_be_bytes().to_vec().into(),
        pprof: upload.pprof.clone(),
        has_elf_addresses: upload.has_elf_addresses,
    }
}

fn unpacked(result: wire::UploadResult) -> Result<StoredUpload, Status> {
    if let Some(failure) = &result.failure {
        return Err(status_codec::decode_status(failure));
    }
    let wire::Dropped { samples, negative, lines, mappings, deep, long, by_rules, ids } =
        result.dropped.unwrap_or_default();
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(StoredUpload {
        new: count(result.new),
        repeats: count(result.repeats),
        // Samples without a stack are dropped before the append.
        dropped: DroppedCounts::from([
            (DropReason::DanglingSample, samples),
            (DropReason::NegativeSample, negative),
            (DropReason::DanglingLine, lines),
            (DropReason::DanglingMapping, mappings),
            (DropReason::DeepStack, deep),
            (DropReason::LongText, long),
            (DropReason::RelabelRule, by_rules),
            (DropReason::MalformedId, ids),
        ]),
        raw_bytes: result.raw_bytes,
        samples: result.samples,
    })
}
