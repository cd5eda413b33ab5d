//! Recovery of a catalog that lost all its voters, from the bucket and from the nodes' reports about their
//! disks [INV-16].
//!
//! Recovery changes nothing in the bucket. Its result is the state from which one node bootstraps the group
//! with [`install_recovered_state`]. The other voters then join that node.

use std::collections::{BTreeMap, BTreeSet};

use athanor_block::{
    BlockMeta, BlockOrigin, JobOrigin, LogRange, MAX_META_BYTES, META_FILE, PARQUET_FILES, TenantMeta,
};
use athanor_catalog::{
    BlockEntry, BlockId, BucketBlock, CatalogRecoveryError, CatalogState, JobParts, JobSource, PartId,
    RecoveryFindings, RecoveryInput, ShardLogRange, ShardReport, TENANT_FOLDER_LEVEL, TenantSpan,
};
use athanor_chassis::{ErrorCode, ErrorCodeExt, Status, TenantId, Timestamp};
use athanor_consensus::replicated::{self, GroupOpenError};
use athanor_storage::path::{BlockOwner, FileName, KeyPrefix, ObjectKey};
use athanor_storage::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};

use crate::CATALOG_GROUP;
use crate::snapshot_store::SnapshotStore;

/// Keys per page of a bucket listing.
const LIST_PAGE_KEYS: usize = 1000;
/// Upper bound of block metadata files that are read concurrently.
const MAX_CONCURRENT_READS: usize = 16;

/// Input of [`recover_catalog`].
#[derive(Clone, Debug)]
pub struct RecoveryParams {
    /// Bucket with the snapshots and blocks.
    pub store: Store,
    /// Id of the cluster.
    pub cluster: u128,
    /// Reports of the nodes about the shards on their disks.
    pub reports: Vec<ShardReport>,
    /// Nodes that are lost for good. Data that only they hold is given up.
    pub without: BTreeSet<u64>,
    /// Time of the recovery.
    pub at: Timestamp,
    /// Retention bound. Blocks created before it were removed for their age and are not reported as missing.
    pub retained_since: Timestamp,
}

/// Report about the sources of a recovery and the data that is missing.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Index of the snapshot that was used, if one was complete.
    pub snapshot: Option<u64>,
    /// Reasons why newer snapshots were not used.
    pub skipped_snapshots: Vec<String>,
    /// Blocks in the bucket that are incomplete or belong to another cluster, each with the reason.
    pub skipped_blocks: Vec<String>,
    /// Findings about blocks and shards.
    pub findings: RecoveryFindings,
}

/// Recovered catalog state with its index in the catalog's log.
#[derive(Clone, Debug)]
pub struct RecoveredState {
    /// Recovered catalog state.
    pub state: CatalogState,
    /// Log index of the state, above the index of every snapshot in the bucket.
    pub index: u64,
}

/// Reason why the catalog was not recovered.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum MetastoreRecoveryError {
    #[error("{0}")]
    Bucket(Status),
    #[error(
        "node {node:016x} has shard logs according to the snapshot, but sent no report; start it, or accept the loss of its \
         unflushed profiles with --exclude-node {node:016x}"
    )]
    MissingReport { node: u64 },
    #[error(transparent)]
    Recovery(#[from] CatalogRecoveryError),
}

impl ErrorCodeExt for MetastoreRecoveryError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Bucket(status) => status.code,
            Self::MissingReport { .. } => ErrorCode::Unavailable,
            Self::Recovery(_) => ErrorCode::DataLoss,
        }
    }
}

/// Recovers the catalog state from the newest snapshot, the blocks in the bucket and the nodes' reports.
pub async fn recover_catalog(
    params: RecoveryParams,
) -> Result<(RecoveredState, RecoveryReport), MetastoreRecoveryError> {
    let RecoveryParams { store, cluster, reports, without, at, retained_since } = params;
    let snapshots = SnapshotStore::new(store.clone(), cluster);
    let (stored, highest, skipped_snapshots) =
        snapshots.newest_readable().await.map_err(MetastoreRecoveryError::Bucket)?;
    let snapshot = stored.as_ref().map(|stored| stored.index);
    if let Some(stored) = &stored {
        check_all_reported(&stored.state, &reports, &without)?;
    }
    let (blocks, skipped_blocks) =
        list_bucket_blocks(&store, cluster).await.map_err(MetastoreRecoveryError::Bucket)?;
    let input =
        RecoveryInput { snapshot: stored.map(|stored| stored.state), blocks, reports, at, retained_since };
    let (state, findings) = CatalogState::recover(input)?;
    let report = RecoveryReport { snapshot, skipped_snapshots, skipped_blocks, findings };
    Ok((RecoveredState { state, index: highest + 1 }, report))
}

/// Checks that every member of a shard that has not retired has reported, or is known to be lost.
fn check_all_reported(
    state: &CatalogState,
    reports: &[ShardReport],
    without: &BTreeSet<u64>,
) -> Result<(), MetastoreRecoveryError> {
    let reporting_nodes: BTreeSet<u64> = reports.iter().filter_map(|report| report.node).collect();
    let view = state.routing_view();
    let members = view.shards.iter().filter(|shard| !shard.is_retired()).flat_map(|shard| &shard.members);
    match members.into_iter().find(|node| !reporting_nodes.contains(node) && !without.contains(node)) {
        Some(node) => Err(MetastoreRecoveryError::MissingReport { node: *node }),
        None => Ok(()),
    }
}

/// Bootstraps a node with the recovered state as the group's single voter. The node must hold nothing of the
/// group. It opens the group from its log afterwards.
pub async fn install_recovered_state(
    deps: &replicated::RaftGroupDeps,
    recovered: &RecoveredState,
) -> Result<(), GroupOpenError> {
    replicated::bootstrap_from_snapshot(deps, CATALOG_GROUP, recovered.index, recovered.state.encode()).await
}

/// Objects of one block in the bucket.
struct BlockObjects {
    owner: BlockOwner,
    block: BlockId,
    /// Sizes of the files in bytes, by name.
    sizes: BTreeMap<String, u64>,
}

impl BlockObjects {
    fn key(&self, file: &str) -> Result<ObjectKey, Status> {
        let file =
            FileName::new(file).map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))?;
        Ok(ObjectKey::Block { owner: self.owner.clone(), block: self.block.number(), file })
    }
}

/// Returns the complete blocks of a cluster, and for each other block the reason why it is left out.
async fn list_bucket_blocks(store: &Store, cluster: u128) -> Result<(Vec<BucketBlock>, Vec<String>), Status> {
    let found = list_block_objects(store).await?;
    let read = futures::stream::iter(found)
        .map(|objects| read_bucket_block(store, cluster, objects))
        .buffered(MAX_CONCURRENT_READS);
    let read: Vec<Result<BucketBlock, String>> = read.try_collect().await?;
    let mut blocks = Vec::new();
    let mut skipped = Vec::new();
    for block in read {
        match block {
            Ok(block) => blocks.push(block),
            Err(reason) => skipped.push(reason),
        }
    }
    Ok((blocks, skipped))
}

/// Lists the objects of all blocks, in the shared folder and in those of the tenants.
async fn list_block_objects(store: &Store) -> Result<Vec<BlockObjects>, Status> {
    let mut found: Vec<BlockObjects> = Vec::new();
    let mut last: Option<String> = None;
    loop {
        let page = store
            .list(&KeyPrefix::Blocks, last.as_deref(), LIST_PAGE_KEYS)
            .await
            .map_err(|error| Status::from_error(&error))?;
        for entry in &page {
            let Ok(ObjectKey::Block { owner, block, file }) = ObjectKey::parse(&entry.key) else { continue };
            if !PARQUET_FILES.into_iter().chain([META_FILE]).any(|name| name == file.as_str()) {
                continue;
            }
            let block = BlockId::from_number(block);
            match found.last_mut().filter(|objects| objects.owner == owner && objects.block == block) {
                Some(objects) => {
                    objects.sizes.insert(file.as_str().to_owned(), entry.size);
                }
                None => {
                    let sizes = [(file.as_str().to_owned(), entry.size)].into();
                    found.push(BlockObjects { owner, block, sizes });
                }
            }
        }
        last = page.last().map(|entry| entry.key.clone());
        if page.len() < LIST_PAGE_KEYS {
            return Ok(found);
        }
    }
}

/// Reads the metadata of a block. The inner error is the reason why the block is left out.
async fn read_bucket_block(
    store: &Store,
    cluster: u128,
    objects: BlockObjects,
) -> Result<Result<BucketBlock, String>, Status> {
    let id = objects.block;
    let skip = |reason: &str| Ok(Err(format!("block {id} {reason}")));
    // A writer uploads the metadata file last, and a deletion removes it first.
    if objects.sizes.get(META_FILE).is_none_or(|size| *size > MAX_META_BYTES) {
        return skip("is incomplete, or is being removed");
    }
    let bytes = match store.get(&objects.key(META_FILE)?).await {
        Ok(bytes) => bytes,
        Err(StoreError::NotFound { .. }) => return skip("was removed concurrently"),
        Err(error) => return Err(Status::from_error(&error)),
    };
    let meta = match BlockMeta::decode(&bytes) {
        Ok(meta) => meta,
        Err(error) => return skip(&format!("cannot be read: {error}")),
    };
    let is_whole = meta.files.iter().all(|(name, file)| objects.sizes.get(name) == Some(&file.bytes));
    if meta.id != id.to_string() || !is_whole {
        return skip("has missing or additional files");
    }
    let Some(origin) = &meta.origin else { return skip("has no origin") };
    if origin.cluster != format!("{cluster:032x}") {
        return skip(&format!("belongs to cluster {}", origin.cluster));
    }
    let found = bucket_block_from_meta(id, &meta, origin);
    Ok(found.and_then(|found| match block_owner(&found.block) == objects.owner {
        true => Ok(found),
        false => Err(format!("block {id} lies in folder {}, which is not its own", objects.owner)),
    }))
}

/// Returns the owner of the folder that holds a block's objects.
pub fn block_owner(block: &BlockEntry) -> BlockOwner {
    block.folder_tenant().cloned().map_or(BlockOwner::Shared, BlockOwner::Tenant)
}

/// Converts block metadata to the catalog's entry, and the job that merged the block.
pub fn bucket_block_from_meta(
    id: BlockId,
    meta: &BlockMeta,
    origin: &BlockOrigin,
) -> Result<BucketBlock, String> {
    let tenants = meta.tenants.iter().map(|part| tenant_span(id, part)).collect::<Result<_, String>>()?;
    let BlockOrigin { shard, epoch, from, to, lost, level, tier, is_covered, .. } = *origin;
    let additional_ranges = origin
        .additional_ranges
        .iter()
        .map(|&LogRange { shard, epoch, from, to }| ShardLogRange { shard, epoch, from, to });
    let additional_ranges: Vec<ShardLogRange> = additional_ranges.collect();
    if level > 0 && (from >= to || additional_ranges.iter().any(|rows| rows.from >= rows.to)) {
        return Err(format!("merged block {id} has a log range that ends before it begins"));
    }
    let job = origin.job.as_ref().map(|job| job_source(id, job)).transpose()?;
    if job.is_some() != (level > 0) {
        return Err(format!("block {id} has level {level}, but only merged blocks name a job"));
    }
    let block = BlockEntry {
        id,
        shard,
        epoch,
        from,
        to,
        bytes: meta.bytes(),
        samples: meta.samples(),
        lost,
        level,
        additional_ranges,
        tier,
        is_covered,
        job: job.as_ref().map(|job| job.token),
        tenants,
    };
    // Ranges must be in the catalog's canonical form. Otherwise a merged block could not be matched with its
    // inputs.
    if !ShardLogRange::join_adjacent(block.log_ranges()).into_iter().eq(block.log_ranges()) {
        return Err(format!("log ranges of block {id} are not in order"));
    }
    if level >= TENANT_FOLDER_LEVEL && block.tenants.len() != 1 {
        return Err(format!("block {id} of level {level} has {} tenants, not 1", block.tenants.len()));
    }
    if !block.has_valid_tier() {
        return Err(format!("block {id} of level {level} cannot be of tier {tier} or covered"));
    }
    Ok(BucketBlock { block, job })
}

fn tenant_span(block: BlockId, part: &TenantMeta) -> Result<TenantSpan, String> {
    Ok(TenantSpan {
        tenant: parse_tenant(block, &part.tenant)?,
        min_time: part.min_time,
        max_time: part.max_time,
        profiles: part.profile_count(),
        samples: part.samples,
        sum: part.sum,
        newest_arrival: Timestamp::from_nanos(i64::try_from(part.newest_arrival).unwrap_or(i64::MAX)),
    })
}

fn parse_tenant(block: BlockId, name: &str) -> Result<TenantId, String> {
    name.parse().map_err(|error| format!("block {block} has an invalid tenant: {error}"))
}

fn parse_block_id(block: BlockId, name: &str) -> Result<BlockId, String> {
    name.parse()
        .map_err(|error| format!("block {block} names the block {name:?}, which is not a block id: {error}"))
}

/// Converts the description of a job. The block must be among its outputs, and the job must read a part.
fn job_source(block: BlockId, job: &JobOrigin) -> Result<JobSource, String> {
    let outputs =
        job.outputs.iter().map(|name| parse_block_id(block, name)).collect::<Result<Vec<_>, _>>()?;
    let mut parts = Vec::new();
    for (tenant, indexes) in &job.tenants {
        let tenant = parse_tenant(block, tenant)?;
        for index in indexes {
            let name = job.blocks.get(*index as usize);
            let name = name.ok_or_else(|| format!("the job of block {block} has no input {index}"))?;
            parts.push(PartId { block: parse_block_id(block, name)?, tenant: tenant.clone() });
        }
    }
    let inputs: JobParts = parts.into_iter().collect();
    if inputs.is_empty() || !outputs.contains(&block) {
        return Err(format!("the job of block {block} reads no part, or does not write the block"));
    }
    Ok(JobSource { token: job.token, outputs, inputs })
}
