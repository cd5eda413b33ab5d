//! How shards are asked: those of this node at once, those of others by a call.

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
use athanor_profile::upload::{DroppedCounts, ProfileUpload};
use athanor_proto::athanor::internal::v1 as wire;

use crate::service_load::ServiceLoad;

/// How long one call may take: who does not answer by then may be cut off, and another may lead by now.
const INGESTER_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a node may take that is only asked how it is.
const STATUS_CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// The ways to all nodes.
#[derive(Clone)]
pub struct IngesterClient {
    /// This node.
    pub me: NodeId,
    /// Its shards.
    pub ingester: Option<Arc<Ingester>>,
    /// What services send here.
    pub loads: Arc<ServiceLoad>,
    /// The ways to others; none of a server that is alone.
    pub afar: Option<InternalRpcClient>,
    /// Measures limits.
    pub clock: Clock,
}

/// The ways to other nodes.
#[derive(Clone)]
pub struct InternalRpcClient {
    /// Connections.
    pub peers: PeerPool,
    /// Says who calls.
    pub introductions: Arc<PeerHandshake>,
}

/// Nothing was stored there: another leads the shard, or it is not known who does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendRejected {
    /// Who does, where that is known.
    pub leader: Option<NodeId>,
    /// In words.
    pub status: Status,
}

impl IngesterClient {
    /// Has a node store uploads in a shard, placed by a table of this version.
    pub async fn append(
        &self,
        node: NodeId,
        (shard, table): (&ShardEntry, u64),
        tenant: &TenantId,
        uploads: &[ProfileUpload],
        limit: Duration,
    ) -> Result<Vec<Result<StoredUpload, Status>>, AppendRejected> {
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
    /// The ways to others.
    pub fn remote_client(&self) -> Result<&InternalRpcClient, Status> {
        self.afar.as_ref().ok_or_else(|| Status::new(ErrorCode::Unavailable, "there are no other nodes"))
    }

    /// What a node says, if it says it in time.
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

    /// What comes of a call of a node, if it comes in time.
    pub async fn call_node<T>(
        &self,
        node: NodeId,
        limit: Duration,
        call: impl Future<Output = Result<T, tonic::Status>>,
    ) -> Result<T, Status> {
        self.with_timeout(node, limit, async { call.await.map_err(|error| status_codec::from_grpc(&error)) })
            .await
    }

    /// The shards that a node leads, after it has handed over one.
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
    /// What another node's disk says of shards, and of which of them it has all that was stored.
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
            cut: of.cut.unwrap_or_default(),
            sealed: of.sealed,
            fenced: of.fenced,
            // Who does not have all that was stored may not have heard that it changed.
            inherited: of.inherited.filter(|_| of.whole).map(|inherited| match inherited.of_blocks {
                true => HandoffSource::Blocks { of: inherited.shard, upto: 0 },
                false => HandoffSource::Window { of: inherited.shard, upto: None },
            }),
            taken: of.taken.filter(|_| of.whole),
            tables: Vec::new(),
        };
        let mut told: Vec<ShardReport> = answered.shards.into_iter().map(one).collect();
        if let Some(first) = told.first_mut() {
            first.tables = tables;
        }
        Ok((told, whole))
    }

    /// What services have sent by a node's door since it was started.
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

/// What a node answered.
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

/// Who does not answer is asked again after others.
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
        // What has no stack is left out before a shard is asked.
        dropped: DroppedCounts {
            samples,
            negative,
            lines,
            mappings,
            deep,
            long,
            by_rules,
            ids,
            without_stack: 0,
        },
        raw_bytes: result.raw_bytes,
        samples: result.samples,
    })
}
