//! A catalogue that lost all its voters, from what lies in the bucket and what nodes say of their disks [INV-16].
//!
//! Nothing in the bucket is changed. What comes out is the state with which a node founds the group anew, by
//! [`begin_again`]; the others then join it.

use std::collections::BTreeSet;

use athanor_block::{FILES, LogRange, MAX_META, META, Meta, Origin, TenantMeta};
use athanor_catalog::{
    BlockEntry, BlockId, Described, Findings, Lying, RebuildError, Remains, Rows, State, TenantSpan,
};
use athanor_chassis::{Code, Coded, Status, Timestamp};
use athanor_consensus::replicated::{self, OpenError};
use athanor_storage::path::{FileName, Key, Owner, Prefix};
use athanor_storage::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};

use crate::GROUP;
use crate::shelf::Shelf;

/// Keys that are listed at once.
const PAGE: usize = 1000;
/// What blocks say of themselves is read from so many at once.
const AT_ONCE: usize = 16;

/// What is rebuilt from.
#[derive(Clone, Debug)]
pub struct Rebuilding {
    /// The bucket.
    pub store: Store,
    /// Whose catalogue.
    pub cluster: u128,
    /// What nodes say of their disks.
    pub described: Vec<Described>,
    /// Nodes that are known to be gone: what only they have is given up.
    pub without: BTreeSet<u64>,
    /// When this is.
    pub at: Timestamp,
    /// Blocks that were named before this were removed for their age, and are not missed.
    pub kept_from: Timestamp,
}

/// What it was rebuilt from, and what it lacks.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The index of the snapshot that was taken, if one was whole.
    pub snapshot: Option<u64>,
    /// Why newer ones were not.
    pub snapshots_passed_over: Vec<String>,
    /// Blocks in the bucket that are not whole, or not this cluster's.
    pub odd_blocks: Vec<String>,
    /// Blocks and shards.
    pub findings: Findings,
}

/// Facts, and where in the catalogue's log they stand.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    /// The facts.
    pub state: State,
    /// The index that they are kept at: above that of every snapshot in the bucket.
    pub index: u64,
}

/// Why nothing is rebuilt.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum RebuildFailed {
    #[error("{0}")]
    Bucket(Status),
    #[error(
        "node {node} has logs of shards, by the snapshot, and has not told of them: what is in no block would be lost; \
         start it, or say that it is gone for good"
    )]
    Silent { node: u64 },
    #[error(transparent)]
    Facts(#[from] RebuildError),
}

impl Coded for RebuildFailed {
    fn code(&self) -> Code {
        match self {
            Self::Bucket(status) => status.code,
            Self::Silent { .. } => Code::Unavailable,
            Self::Facts(_) => Code::DataLoss,
        }
    }
}

/// Puts the facts together again.
pub async fn rebuild(rebuilding: Rebuilding) -> Result<(Rebuilt, Report), RebuildFailed> {
    let Rebuilding { store, cluster, described, without, at, kept_from } = rebuilding;
    let shelf = Shelf::new(store.clone(), cluster);
    let (shelved, highest, snapshots_passed_over) = shelf.newest().await.map_err(RebuildFailed::Bucket)?;
    let snapshot = shelved.as_ref().map(|shelved| shelved.index);
    if let Some(shelved) = &shelved {
        asked(&shelved.state, &described, &without)?;
    }
    let (blocks, odd_blocks) = lying(&store, cluster).await.map_err(RebuildFailed::Bucket)?;
    let remains =
        Remains { snapshot: shelved.map(|shelved| shelved.state), blocks, described, at, kept_from };
    let (state, findings) = State::rebuilt(remains)?;
    let report = Report { snapshot, snapshots_passed_over, odd_blocks, findings };
    Ok((Rebuilt { state, index: highest + 1 }, report))
}

/// Whether all members of shards that have not retired were heard, or are known to be gone.
fn asked(state: &State, described: &[Described], without: &BTreeSet<u64>) -> Result<(), RebuildFailed> {
    let heard: BTreeSet<u64> = described.iter().filter_map(|told| told.node).collect();
    let view = state.view();
    let members = view.shards.iter().filter(|shard| !shard.is_retired()).flat_map(|shard| &shard.members);
    match members.into_iter().find(|node| !heard.contains(node) && !without.contains(node)) {
        Some(node) => Err(RebuildFailed::Silent { node: *node }),
        None => Ok(()),
    }
}

/// Makes a node that has nothing of the group its single voter, with these facts. It opens it after that by its log.
pub async fn begin_again(deps: &replicated::Deps, rebuilt: &Rebuilt) -> Result<(), OpenError> {
    replicated::begin_from(deps, GROUP, rebuilt.index, rebuilt.state.encode()).await
}

/// The blocks of a cluster that are whole, and why others are left out.
async fn lying(store: &Store, cluster: u128) -> Result<(Vec<Lying>, Vec<String>), Status> {
    let mut found = Vec::new();
    let (mut last, mut sizes): (Option<String>, Vec<(BlockId, String, u64)>) = (None, Vec::new());
    loop {
        let below = Prefix::BlocksOf(Owner::Shared);
        let page = store.list(&below, last.as_deref(), PAGE).await.map_err(|error| Status::of(&error))?;
        for entry in &page {
            let Ok(Key::Block { owner: Owner::Shared, block, .. }) = Key::parse(&entry.key) else { continue };
            let block = BlockId::from_number(block);
            if sizes.first().is_some_and(|(before, ..)| *before != block) {
                found.push(std::mem::take(&mut sizes));
            }
            let file = entry.key.rsplit('/').next().unwrap_or_default();
            if FILES.into_iter().chain([META]).any(|name| name == file) {
                sizes.push((block, file.to_owned(), entry.size));
            }
        }
        last = page.last().map(|entry| entry.key.clone());
        if page.len() < PAGE {
            break;
        }
    }
    found.push(sizes);
    found.retain(|files| !files.is_empty());
    let read = futures::stream::iter(found).map(|files| one(store, cluster, files)).buffered(AT_ONCE);
    let read: Vec<Result<Lying, String>> = read.try_collect().await?;
    let (mut blocks, mut odd) = (Vec::new(), Vec::new());
    for block in read {
        match block {
            Ok(block) => blocks.push(block),
            Err(why) => odd.push(why),
        }
    }
    Ok((blocks, odd))
}

/// What a block says of itself, or why it is left out.
async fn one(
    store: &Store,
    cluster: u128,
    files: Vec<(BlockId, String, u64)>,
) -> Result<Result<Lying, String>, Status> {
    let id = files[0].0;
    let odd = |why: &str| Ok(Err(format!("block {id} {why}")));
    let size = |name: &str| files.iter().find(|(_, file, _)| file == name).map(|(.., size)| *size);
    // It is written last and removed first.
    if size(META).is_none_or(|size| size > MAX_META) {
        return odd("was not written to its end, or is being removed");
    }
    let file = FileName::new(META).map_err(|error| Status::new(Code::Internal, error.to_string()))?;
    let bytes = match store.get(&Key::Block { owner: Owner::Shared, block: id.number(), file }).await {
        Ok(bytes) => bytes,
        Err(StoreError::NotFound { .. }) => return odd("was removed meanwhile"),
        Err(error) => return Err(Status::of(&error)),
    };
    let meta = match Meta::decode(&bytes) {
        Ok(meta) => meta,
        Err(error) => return odd(&format!("cannot be read: {error}")),
    };
    if meta.id != id.to_string() || !meta.files.iter().all(|(name, file)| size(name) == Some(file.bytes)) {
        return odd("lacks files, or has others");
    }
    let Some(origin) = &meta.origin else { return odd("does not say which log it was cut from") };
    if origin.cluster != format!("{cluster:032x}") {
        return odd(&format!("is of cluster {}", origin.cluster));
    }
    Ok(lying_block(id, &meta, origin))
}

/// What a block says of itself, as the catalogue knows it, and what it was made of.
pub fn lying_block(id: BlockId, meta: &Meta, origin: &Origin) -> Result<Lying, String> {
    let span = |part: &TenantMeta| {
        let tenant = part
            .tenant
            .parse()
            .map_err(|error| format!("block {id} names a tenant that is none: {error}"))?;
        let (min_time, max_time) = (part.min_time, part.max_time);
        Ok(TenantSpan { tenant, min_time, max_time, profiles: u64::from(part.profiles.1) })
    };
    let tenants = meta.tenants.iter().map(span).collect::<Result<_, String>>()?;
    let Origin { shard, epoch, from, to, lost, level, .. } = *origin;
    let (bytes, samples) = (meta.bytes(), meta.samples());
    let further =
        origin.further.iter().map(|&LogRange { shard, epoch, from, to }| Rows { shard, epoch, from, to });
    let further = further.collect();
    let empty = |origin: &Origin| {
        origin.level > 0 && (from >= to || origin.further.iter().any(|of| of.from >= of.to))
    };
    if empty(origin) {
        return Err(format!(
            "block {id} was made of others and names a range of a log that ends before it begins"
        ));
    }
    let block = BlockEntry { id, shard, epoch, from, to, bytes, samples, lost, level, further, tenants };
    // Where ranges are not as the catalogue has them, no block could be told from what it was made of.
    if !Rows::joined(block.rows()).into_iter().eq(block.rows()) {
        return Err(format!("block {id} names ranges of logs that are not in order"));
    }
    let input = |name: &String| {
        name.parse()
            .map_err(|error| format!("block {id} was made of {name:?}, which is no block's name: {error}"))
    };
    let inputs = origin.inputs.iter().map(input).collect::<Result<_, String>>()?;
    Ok(Lying { block, inputs })
}
