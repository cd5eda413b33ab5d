//! Reads of the client for compactors. Any voter may be tried; those that only the leader serves are
//! redirected to it.

use std::time::Duration;

use athanor_catalog::{
    AgeReport, BlockId, Catalog, CatalogError, CompactionJob, CompactionStatus, JobRequest, RemovalReport,
    RetentionPolicy, Tombstone,
};
use athanor_cluster::peers::PeerChannel;
use athanor_cluster::rpc_client::RpcClient;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::metastore_service_client::MetastoreServiceClient;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use tonic::Response;

use super::{MetastoreClient, MetastoreClientShared, empty_response_error, grpc_error, not_a_voter_error};
use crate::retry::{AttemptError, REQUEST_TIMEOUT, VoterEndpoint};
use crate::service::compaction_service::{
    MAX_TOMBSTONES_PER_PAGE, encode_block_ids, encode_retention_policy,
};
use crate::voter::{MetastoreVoter, to_status};

type PackedResult = Result<Response<wire::PackedResponse>, tonic::Status>;
type MetastoreRpc = MetastoreServiceClient<PeerChannel>;

impl MetastoreClientShared {
    /// Reads a value from one voter.
    async fn read_via<T, L, R>(
        &self,
        door: VoterEndpoint,
        limit: Duration,
        read_local: impl FnOnce(MetastoreVoter) -> L,
        read_remote: impl FnOnce(MetastoreRpc, wire::CallHeader) -> R,
    ) -> Result<T, AttemptError>
    where
        T: DeserializeOwned + Send + 'static,
        L: Future<Output = Result<T, CatalogError>>,
        R: Future<Output = PackedResult>,
    {
        use wire::packed_response::Outcome;
        match (door, &self.reach.local) {
            (VoterEndpoint::Here, Some(local)) => {
                let read = read_local(local.clone());
                let reading = async { read.await.map_err(|error| self.local_error(to_status(error))) };
                self.await_response(limit, reading).await
            }
            (VoterEndpoint::Here, None) => Err(not_a_voter_error()),
            (VoterEndpoint::Node(node), _) => {
                let RpcClient { peers, handshake } = self.rpc_client()?;
                let header = handshake.call_header(node, limit);
                let called = read_remote(peers.metastore(node), header);
                let called = async { called.await.map_err(grpc_error) };
                match self.await_response(limit, called).await?.into_inner().outcome {
                    Some(Outcome::Packed(packed)) => self.decompress_response(packed).await,
                    Some(Outcome::Error(error)) => Err(self.remote_error(&error)),
                    None => Err(empty_response_error()),
                }
            }
        }
    }
}

impl MetastoreClient {
    /// Reads a value from a voter, the presumed leader first.
    async fn read<T, L, R>(
        &self,
        read_local: impl Fn(MetastoreVoter) -> L + Send + Sync,
        read_remote: impl Fn(MetastoreRpc, wire::CallHeader) -> R + Send + Sync,
    ) -> Result<T, CatalogError>
    where
        T: DeserializeOwned + Send + 'static,
        L: Future<Output = Result<T, CatalogError>> + Send,
        R: Future<Output = PackedResult> + Send,
    {
        let shared = &*self.shared;
        let mut tries = self.voter_attempts(REQUEST_TIMEOUT);
        loop {
            let (door, each) = tries.next_endpoint(|| shared.voter_endpoints(shared.known.leader())).await?;
            match shared.read_via(door, each, &read_local, &read_remote).await {
                Ok(value) => return Ok(value),
                Err(failed) => self.retry_after(&mut tries, door, failed)?,
            }
        }
    }

    pub(super) async fn read_jobs(&self, request: &JobRequest) -> Result<Vec<CompactionJob>, CatalogError> {
        let read_local = |voter: MetastoreVoter| {
            let request = request.clone();
            async move { voter.compaction_jobs(&request).await }
        };
        let read_remote = |mut rpc: MetastoreRpc, header| {
            let JobRequest { worker, max_bytes, limit } = *request;
            let request = wire::PlanCompactionJobsRequest {
                header: Some(header),
                worker_node_id: worker,
                max_job_bytes: max_bytes,
                max_jobs: limit,
            };
            async move { rpc.plan_compaction_jobs(request).await }
        };
        self.read(read_local, read_remote).await
    }

    pub(super) async fn read_status(&self) -> Result<CompactionStatus, CatalogError> {
        let read_local = |voter: MetastoreVoter| async move { voter.compaction_status().await };
        let read_remote = |mut rpc: MetastoreRpc, header| {
            let request = wire::GetCompactionStatusRequest { header: Some(header) };
            async move { rpc.get_compaction_status(request).await }
        };
        self.read(read_local, read_remote).await
    }

    /// Reads all tombstones, page by page.
    pub(super) async fn read_tombstones(&self) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|(block, _): &(BlockId, Tombstone)| *block);
            let page = self.read_tombstone_page(after).await?;
            let is_last = page.len() < MAX_TOMBSTONES_PER_PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    async fn read_tombstone_page(
        &self,
        after: Option<BlockId>,
    ) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        let read_local = |voter: MetastoreVoter| async move {
            voter.tombstones_after(after, MAX_TOMBSTONES_PER_PAGE).await
        };
        let read_remote = |mut rpc: MetastoreRpc, header| {
            let after_block_id = after.map_or_else(Bytes::new, |block| encode_block_ids(&[block]));
            let request = wire::ListTombstonesRequest { header: Some(header), after_block_id };
            async move { rpc.list_tombstones(request).await }
        };
        self.read(read_local, read_remote).await
    }

    pub(super) async fn read_removal_report(&self) -> Result<RemovalReport, CatalogError> {
        let read_local = |voter: MetastoreVoter| async move { voter.removal_report().await };
        let read_remote = |mut rpc: MetastoreRpc, header| {
            let request = wire::GetRemovalReportRequest { header: Some(header) };
            async move { rpc.get_removal_report(request).await }
        };
        self.read(read_local, read_remote).await
    }

    pub(super) async fn read_block_ages(&self, policy: &RetentionPolicy) -> Result<AgeReport, CatalogError> {
        let retention_policy = encode_retention_policy(policy)?;
        let read_local = |voter: MetastoreVoter| {
            let policy = policy.clone();
            async move { voter.block_ages(&policy).await }
        };
        let read_remote = |mut rpc: MetastoreRpc, header| {
            let retention_policy = retention_policy.clone();
            let request = wire::GetBlockAgesRequest { header: Some(header), retention_policy };
            async move { rpc.get_block_ages(request).await }
        };
        self.read(read_local, read_remote).await
    }

    pub(super) async fn find_unknown_blocks(&self, blocks: &[BlockId]) -> Result<Vec<BlockId>, CatalogError> {
        let read_local = |voter: MetastoreVoter| {
            let blocks = blocks.to_vec();
            async move { voter.unknown_blocks(&blocks).await }
        };
        let read_remote = |mut rpc: MetastoreRpc, header| {
            let block_ids = encode_block_ids(blocks);
            let request = wire::FindUnknownBlocksRequest { header: Some(header), block_ids };
            async move { rpc.find_unknown_blocks(request).await }
        };
        self.read(read_local, read_remote).await
    }
}
