//! Recovery of a catalog that lost all its voters, from the bucket and from the nodes' reports about their
//! disks [INV-16].
//!
//! Recovery changes nothing in the bucket. Its result is the state from which one node bootstraps the group
//! with [`install_recovered_state`]. The other voters then join that node.

use std::collections::BTreeSet;

use athanor_block::{BlockMeta, BlockOrigin, LogRange, MAX_META_BYTES, META_FILE, PARQUET_FILES, TenantMeta};
use athanor_catalog::{
    BlockEntry, BlockId, BucketBlock, CatalogRecoveryError, CatalogState, RecoveryFindings, RecoveryInput,
    ShardLogRange, ShardReport, TenantSpan,
};
use athanor_chassis::{ErrorCode, ErrorCodeExt, Status, Timestamp};
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

/// Returns the complete blocks of a cluster, and for each other block the reason why it is left out.
async fn list_bucket_blocks(store: &Store, cluster: u128) -> Result<(Vec<BucketBlock>, Vec<String>), Status> {
    let mut found = Vec::new();
    let (mut last, mut sizes): (Option<String>, Vec<(BlockId, String, u64)>) = (None, Vec::new());
    loop {
        let below = KeyPrefix::BlocksOf(BlockOwner::Shared);
        let page = store
            .list(&below, last.as_deref(), LIST_PAGE_KEYS)
            .await
            .map_err(|error| Status::from_error(&error))?;
        for entry in &page {
            let Ok(ObjectKey::Block { owner: BlockOwner::Shared, block, .. }) = ObjectKey::parse(&entry.key)
            else {
                continue;
            };
            let block = BlockId::from_number(block);
            if sizes.first().is_some_and(|(before, ..)| *before != block) {
                found.push(std::mem::take(&mut sizes));
            }
            let file = entry.key.rsplit('/').next().unwrap_or_default();
            if PARQUET_FILES.into_iter().chain([META_FILE]).any(|name| name == file) {
                sizes.push((block, file.to_owned(), entry.size));
            }
        }
        last = page.last().map(|entry| entry.key.clone());
        if page.len() < LIST_PAGE_KEYS {
            break;
        }
    }
    found.push(sizes);
    found.retain(|files| !files.is_empty());
    let read = futures::stream::iter(found)
        .map(|files| read_bucket_block(store, cluster, files))
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

/// Reads the metadata of a block. The inner error is the reason why the block is left out.
async fn read_bucket_block(
    store: &Store,
    cluster: u128,
    files: Vec<(BlockId, String, u64)>,
) -> Result<Result<BucketBlock, String>, Status> {
    let id = files[0].0;
    let skip = |reason: &str| Ok(Err(format!("block {id} {reason}")));
    let size = |name: &str| files.iter().find(|(_, file, _)| file == name).map(|(.., size)| *size);
    // A writer uploads the metadata file last, and a deletion removes it first.
    if size(META_FILE).is_none_or(|size| size > MAX_META_BYTES) {
        return skip("is incomplete, or is being removed");
    }
    let file =
        FileName::new(META_FILE).map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))?;
    let bytes =
        match store.get(&ObjectKey::Block { owner: BlockOwner::Shared, block: id.number(), file }).await {
            Ok(bytes) => bytes,
            Err(StoreError::NotFound { .. }) => return skip("was removed concurrently"),
            Err(error) => return Err(Status::from_error(&error)),
        };
    let meta = match BlockMeta::decode(&bytes) {
        Ok(meta) => meta,
        Err(error) => return skip(&format!("cannot be read: {error}")),
    };
    if meta.id != id.to_string() || !meta.files.iter().all(|(name, file)| size(name) == Some(file.bytes)) {
        return skip("has missing or additional files");
    }
    let Some(origin) = &meta.origin else { return skip("has no origin") };
    if origin.cluster != format!("{cluster:032x}") {
        return skip(&format!("belongs to cluster {}", origin.cluster));
    }
    Ok(bucket_block_from_meta(id, &meta, origin))
}

/// Converts block metadata to the catalog's entry and the ids of the blocks that it was compacted from.
pub fn bucket_block_from_meta(
    id: BlockId,
    meta: &BlockMeta,
    origin: &BlockOrigin,
) -> Result<BucketBlock, String> {
    let span = |part: &TenantMeta| {
        let tenant =
            part.tenant.parse().map_err(|error| format!("block {id} has an invalid tenant: {error}"))?;
        let min_time = part.min_time;
        let max_time = part.max_time;
        Ok(TenantSpan { tenant, min_time, max_time, profiles: u64::from(part.profiles.1) })
    };
    let tenants = meta.tenants.iter().map(span).collect::<Result<_, String>>()?;
    let BlockOrigin { shard, epoch, from, to, lost, level, .. } = *origin;
    let bytes = meta.bytes();
    let samples = meta.samples();
    let additional_ranges = origin
        .additional_ranges
        .iter()
        .map(|&LogRange { shard, epoch, from, to }| ShardLogRange { shard, epoch, from, to });
    let additional_ranges = additional_ranges.collect();
    let empty = |origin: &BlockOrigin| {
        origin.level > 0 && (from >= to || origin.additional_ranges.iter().any(|rows| rows.from >= rows.to))
    };
    if empty(origin) {
        return Err(format!("merged block {id} has a log range that ends before it begins"));
    }
    let block =
        BlockEntry { id, shard, epoch, from, to, bytes, samples, lost, level, additional_ranges, tenants };
    // Ranges must be in the catalog's canonical form. Otherwise a compacted block could not be matched with
    // its inputs.
    if !ShardLogRange::join_adjacent(block.log_ranges()).into_iter().eq(block.log_ranges()) {
        return Err(format!("log ranges of block {id} are not in order"));
    }
    let input = |name: &String| {
        name.parse()
            .map_err(|error| format!("block {id} has {name:?} as an input, which is not a block id: {error}"))
    };
    let inputs = origin.inputs.iter().map(input).collect::<Result<_, String>>()?;
    Ok(BucketBlock { block, inputs })
}
